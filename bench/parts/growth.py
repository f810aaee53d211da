"""What a claim costs Redis by how many are remembered: over many scopes, and within a single large one.

State is filled with real keys and signatures of a pool of texts, each under a scope of its own, which takes minutes
instead of hours; then batches of new claims are decided, and the server's processor time is taken.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
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

_PATIENCE: Final = 120
"""Seconds: a million keys take longer to remove than a client waits by itself."""

_POOL: Final = 5_000
_SCOPE: Final = 100
"""Claims of a scope, where there are many scopes."""
_LIMITS: Final = QueueLimits(100, 10_000, 10_000)
_METHODS: Final = ("minhash", "partition")


async def run(options: Options) -> AsyncIterator[Figure]:
    """Measure each key function over many scopes, then within one."""
    many = {"quick": (10_000, 50_000), "normal": (10_000, 100_000, 1_000_000)}.get(
        options.size, (10_000, 100_000, 1_000_000, 10_000_000)
    )
    one = {"quick": (1_000, 5_000)}.get(options.size, (1_000, 10_000, 100_000))
    with open_redis(options.redis) as server, Redis.from_url(server.url, socket_timeout=_PATIENCE) as client:
        for method in _METHODS:
            policy = Policy.model_validate({"dedup_method": method})
            for scopes, sizes in (("many", many), ("one", one)):
                client.flushall()
                async with fresh_state(server.url, "growth.", policy) as state:
                    found = [
                        (size, await _at(size, state, policy, client, options, one=scopes == "one"))
                        async for size in _grown(state, policy, sizes, one=scopes == "one")
                    ]
                for figure in _figures(method, scopes, found):
                    yield figure


def _figures(method: str, scopes: str, found: list[tuple[int, list[float]]]) -> Iterator[Figure]:
    where = "over many scopes" if scopes == "many" else "in one scope"
    for size, values in found:
        name = f"processor time of the server a claim with {size:,} remembered {where}, {method}"
        yield Figure(name, "µs", values, (), None, f"growth.{scopes}.{method}.{size}")
    (first, few), (last, many) = found[0], found[-1]
    grown = [b / a for a, b in zip(few, many, strict=True)]
    target = Target("<=", 1.3) if scopes == "many" else None
    name = f"growth from {first:,} to {last:,} {where}, {method}"
    yield Figure(name, "times", grown, (), target, f"growth.{scopes}.{method}")


async def _grown(
    state: RedisState, policy: Policy, sizes: tuple[int, ...], *, one: bool
) -> AsyncIterator[int]:
    """Fill state up to each size in turn."""
    filled = 0
    asks = approved_claims(policy, one=one)
    for size in sizes:
        while filled < size:
            chunk = [next(asks) for _ in range(min(BATCH, size - filled))]
            await state.step(chunk, _LIMITS)
            filled += len(chunk)
        yield size


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
    """Yield what the gate asks of an approved claim."""
    gate = new_gate(policy)
    for entry in gate._prepare(next(batches(claims(1)))):  # noqa: SLF001 - as prepare does
        assert isinstance(entry, PreparedClaim)  # noqa: S101 - it is one
        yield gate._claims.request_of(entry).request  # noqa: SLF001 - as apply_step does


async def _at(
    size: int, state: RedisState, policy: Policy, client: Redis, options: Options, *, one: bool
) -> list[float]:
    """Return the server's processor time a new claim, one value for each round."""
    found = []
    for turn in range(options.rounds):
        name = f"new-{size}-{turn}"
        users = 1 if one else max(1, size // _SCOPE)
        given = [
            record
            for batch in batches(claims(2 * BATCH, seed=turn + size, users=users, name=name))
            for record in batch
        ]
        gate: Gate = new_gate(policy, state)
        prepared = await gate.prepare(_named(given, "one") if one else given)
        before = processor_time(client)
        await gate.apply_step(prepared[:BATCH])
        await gate.apply_step(prepared[BATCH:])
        found.append((processor_time(client) - before) / len(prepared))
    return found


def _named(given: Sequence[InboundRecord], user: str) -> list[InboundRecord]:
    return [replace(r, value=(r.value or b"").replace(b'"user-0"', f'"{user}"'.encode())) for r in given]


PART = Part("growth", "server time a claim, by how many are remembered", run, "Redis")
