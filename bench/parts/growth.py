"""What a claim costs Redis by how many are remembered: over many scopes, and within a single large one.

State is filled with real keys and signatures of a pool of texts, each under a scope of its own, which takes minutes
instead of hours; then batches of new claims are decided, and the server's processor time is taken: in turns with a
server as small as the first size, because filling takes so long that the machine may have changed since.
The new claims are of as many users at every size, spread over all.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from redis import Redis

from bench.claims import claims, text
from bench.inside import BATCH, batches, fresh_state, new_gate
from bench.measure import Figure, Options, Part, Target
from bench.parts.redis import processor_time
from bench.services import open_redis
from groundwire.gate.claim_case import dedup_query
from groundwire.gate.gate import Gate
from groundwire.gate.types import PreparedClaim
from groundwire.messages.decisions import Kind
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, digest
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.state.model import DedupQuery, QueueLimits, StepRequest
from groundwire.state.redis import RedisState

_POOL: Final = 5_000
_SCOPE: Final = 100
"""Claims of a scope, where there are many scopes."""
_LIMITS: Final = QueueLimits(100, 10_000, 10_000)
_USERS: Final = 100
"""Of whom new claims are, where there are many scopes."""
_METHODS: Final = ("minhash", "partition")
"""The first is the default, and has most to find and to store: it alone is grown up to `_MOST`, with 18 GB."""
_MOST: Final = 10_000_000


async def run(options: Options) -> AsyncIterator[Figure]:
    many: Sequence[int] = options.of((10_000, 50_000), (10_000, 100_000, 1_000_000))
    one: Sequence[int] = options.of((1_000, 5_000), (1_000, 10_000, 100_000))
    for method in _METHODS:
        policy = Policy.model_validate({"dedup_method": method})
        most = [_MOST] if options.size == "full" and method == _METHODS[0] else []
        for scopes, sizes in (("many", [*many, *most]), ("one", one)):
            async for figure in _compared(policy, scopes, sizes, options):
                yield figure


async def _compared(
    policy: Policy, scopes: str, sizes: Sequence[int], options: Options
) -> AsyncIterator[Figure]:
    """Grow one server, and compare it at each size with a fresh one of the first size."""
    one, method = scopes == "one", policy.dedup_method
    where = "in one scope" if one else "over many scopes"
    async with _filled(policy, options, one=one) as large:
        for size in sizes:
            await large.grow(size)
            async with _filled(policy, options, one=one) as small:
                await small.grow(sizes[0])
                each = [(await small.cost(), await large.cost()) for _ in range(options.rounds)]
            name = f"processor time of the server a claim with {size:,} remembered {where}, {method}"
            costs = [cost for _, cost in each]
            yield Figure(name, "µs", costs, (), None, f"growth.{scopes}.{method}.{size}")
    target = None if one else Target("<=", 1.3)
    name = f"growth from {sizes[0]:,} to {sizes[-1]:,} {where}, {method}"
    grown = [cost / before for before, cost in each]
    yield Figure(name, "times", grown, (), target, f"growth.{scopes}.{method}")


@asynccontextmanager
async def _filled(policy: Policy, options: Options, *, one: bool) -> AsyncIterator[_Growing]:
    with open_redis(options.redis) as server, Redis.from_url(server.url) as client:
        async with fresh_state(server.url, "growth.", policy) as state:
            yield _Growing(state, policy, client, one=one)


class _Growing:
    """A server that remembers more and more claims, in one scope or in many."""

    def __init__(self, state: RedisState, policy: Policy, client: Redis, *, one: bool) -> None:
        self._state = state
        self._policy = policy
        self._client = client
        self._one = one
        self._asks = approved_claims(policy, one=one)
        self._filled = 0
        self._measured = 0

    async def grow(self, size: int) -> None:
        """Fill state up to a size, and let the server write its file anew where it is about to."""
        while self._filled < size:
            chunk = [next(self._asks) for _ in range(min(BATCH, size - self._filled))]
            await self._state.step(chunk, _LIMITS)
            self._filled += len(chunk)
        while self._client.info("persistence")["aof_rewrite_in_progress"]:  # noqa: ASYNC110 - the server's event
            await asyncio.sleep(1)

    async def cost(self) -> float:
        """Return the server's processor time a new claim."""
        self._measured += 1
        users = ["one"] if self._one else self._users()
        made = claims(2 * BATCH, seed=self._measured, users=len(users), name=f"new-{self._measured}")
        given = [_of(users, record) for batch in batches(made) for record in batch]
        gate: Gate = new_gate(self._policy, self._state)
        prepared = await gate.prepare(given)
        before = processor_time(self._client)
        await gate.apply_step(prepared[:BATCH])
        await gate.apply_step(prepared[BATCH:])
        return (processor_time(self._client) - before) / len(prepared)

    def _users(self) -> list[str]:
        every = max(1, self._filled // _SCOPE // _USERS)
        return [f"user-{(number * every)}" for number in range(_USERS)]


def approved_claims(policy: Policy, *, one: bool) -> Iterator[StepRequest]:
    """Yield what the gate asks of state about approved claims, without end; of one user, or a hundred of each."""
    rng = random.Random(3)
    (entry,) = _example(policy)
    pool = [] if one else [_query(text(rng), policy) for _ in range(_POOL)]
    number = 0
    while True:
        user = "one" if one else f"user-{number // _SCOPE}"
        query = _query(text(rng), policy) if one else pool[number % _POOL]
        query = replace(query, scope=digest("default", user, "fact"))
        subject = Subject("default", user, Kind.CLAIM, f"old-{number}")
        yield replace(entry, subject=subject, dedup=query)
        number += 1


def _query(content: str, policy: Policy) -> DedupQuery:
    query = dedup_query(Claim(claim_id="c", user_id="u", content=content, source="user"), policy)
    assert query is not None  # noqa: S101 - the policy compares
    return query


def _example(policy: Policy) -> Iterator[StepRequest]:
    gate = new_gate(policy)
    for entry in gate._prepare(next(batches(claims(1)))):  # noqa: SLF001 - as prepare does
        assert isinstance(entry, PreparedClaim)  # noqa: S101 - it is one
        yield gate._claims.step_of(entry).request  # noqa: SLF001 - as apply_step does


def _of(users: Sequence[str], record: InboundRecord) -> InboundRecord:
    """Give a record of the n-th user to the n-th of these."""
    made = json.loads(record.value or b"")
    made["user_id"] = users[int(made["user_id"].removeprefix("user-"))]
    return replace(record, value=json.dumps(made).encode())


PART = Part("growth", "server time a claim, by how many are remembered", run, "Redis")
