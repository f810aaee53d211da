"""Places in the review queue, by tenant and in all, over the buckets of a cluster.

A script counts its own bucket exactly. It is told what the other buckets held at the last count, and what steps have
granted since: a worker adds that to a ledger in the first bucket after each step, and reads it before the next. Places
of a step in flight are missed, as are those of a worker that dies, until the next count. Only ledger entries since the
count matter, so that lost or repeated ones cause no drift.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from groundwire.errors import StateUnavailable
from groundwire.state.model import QueueLimits, StepRequest
from groundwire.state.server import Server, script

LOOK: Final = 1.0
"""Seconds between two counts; more if a count takes over a fiftieth of that, but at most 5."""

_NAME: Final = b"name"


class QueueUse:
    """Counts the buckets, and reads and writes the ledger."""

    def __init__(self, server: Server, prefixes: Sequence[str]) -> None:
        self._server = server
        self._prefix = prefixes[0]
        self._keys = [own + "q" for own in prefixes]
        self._ledger = prefixes[0] + "g"
        self._counts: dict[int, Counter[bytes]] = {}
        self._sums: Counter[bytes] = Counter()
        self._base: Mapping[bytes, bytes] = {}  # the ledger before the count
        self._unreported: Counter[bytes] = Counter()
        self._looked = float("-inf")
        self._pause = LOOK
        self._looking: asyncio.Task[None] | None = None

    async def next_turn(
        self, left: Mapping[int, Sequence[int]], requests: Sequence[StepRequest], limits: QueueLimits
    ) -> dict[int, bytes]:
        """Return the buckets that a step may run in at once, each with the counts of the others.

        Few run at once near the limits, as they do not see each other's grants. `left`: undecided requests by bucket.
        Raises: StateUnavailable: nothing was counted yet, and no server answers.
        """
        if len(self._keys) == 1:
            return {0: b""}
        if self._looked < 0:  # never counted
            await asyncio.shield(self._look_beside())
        elif (age := time.monotonic() - self._looked) > self._pause:
            looking = self._look_beside()
            if age > 2 * self._pause:  # this worker stalled: the count is too old to grant places by
                await asyncio.wait({looking})
        fields = {
            bucket: {b"total", *(field for at in some for field in _place(requests[at]))}
            for bucket, some in left.items()
        }
        named = sorted(set().union(*fields.values()))
        given = await self._given(named)
        most = {b"t:": limits.per_tenant, b"b:": limits.tenant_bytes}
        room = {name: most.get(name[:2], limits.total) - self._sums[name] - given[name] for name in named}
        turn: dict[int, bytes] = {}
        for bucket in _side_by_side({at: [requests[n] for n in some] for at, some in left.items()}, room):
            own = self._counts.get(bucket, Counter())
            # per counter: count of other buckets, count of this one, grants since
            counts = {n.decode(): (self._sums[n] - own[n], own[n], given[n]) for n in fields[bucket]}
            remote = any(others or new for others, _, new in counts.values())
            turn[bucket] = json.dumps(counts).encode() if remote else b""
        return turn

    async def report(self, pending: Iterable[StepRequest]) -> None:
        """Add the places that a step granted to the ledger; they stay local while its server is away."""
        if len(self._keys) == 1:
            return
        for request in pending:
            self._unreported.update(_place(request))
        added, self._unreported = self._unreported, Counter()
        if not added:
            return
        parts = [part for field in added.items() for part in field]
        # a new ledger has no tenants that are gone
        call = (
            (),
            (self._ledger, secrets.token_hex(8), 600, *parts),
        )
        try:
            await self._server.run_each(script("given"), self._prefix, {0: call})
        except BaseException as error:
            self._unreported.update(added)
            if not isinstance(error, StateUnavailable):
                raise

    async def count(self, field: str) -> int:
        """Return the sum of a counter. Raises: StateUnavailable."""
        if len(self._keys) == 1:
            return int(await self._server.call("HGET", self._keys[0], field) or 0)
        await asyncio.shield(self._look_beside())
        return self._sums[field.encode()]

    async def tenants(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """Return places and bytes by tenant."""
        found: dict[bytes, dict[bytes, int]] = {b"t:": {}, b"b:": {}}

        def add(counts: Mapping[bytes, bytes | int]) -> None:
            for name, count in counts.items():
                if int(count) and (kind := found.get(name[:2])) is not None:
                    kind[name[2:]] = int(count)

        if len(self._keys) > 1:
            await asyncio.shield(self._look_beside())
            add(self._sums)
        else:
            async for page in self._server.scan_hash(self._keys[0], "[tb]:*"):
                add(page)
        return found[b"t:"], found[b"b:"]

    async def _given(self, fields: Sequence[bytes]) -> Counter[bytes]:
        """Return what was granted since the count began, by counter."""
        given = Counter(self._unreported)
        with suppress(StateUnavailable):
            name, *values = await self._server.call("HMGET", self._ledger, _NAME, *fields)
            if name != self._base.get(_NAME):  # a new ledger
                await asyncio.wait({self._look_beside()})
                name, *values = await self._server.call("HMGET", self._ledger, _NAME, *fields)
            base = self._base if name == self._base.get(_NAME) else {}
            for field, value in zip(fields, values, strict=True):
                given[field] += max(int(value or 0) - int(base.get(field, 0)), 0)
        return given

    def _look_beside(self) -> asyncio.Task[None]:
        """Count the buckets that answer in a task, unless a count is running; others keep their last count."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._looking

    async def _look(self) -> None:
        began = time.monotonic()
        unreported = Counter(self._unreported)
        base: Mapping[bytes, bytes] = {_NAME: b""}
        with suppress(StateUnavailable):
            base = await self._server.call("HGETALL", self._ledger)
        commands = {bucket: ("HGETALL", key) for bucket, key in enumerate(self._keys)}
        for bucket, fields in (await self._server.each(commands, some=True)).items():
            counts = Counter({name: int(count) for name, count in fields.items() if name[:2] != b"u:"})
            self._sums.update(counts)
            self._sums.subtract(self._counts.get(bucket, {}))
            self._counts[bucket] = counts
        self._base = base
        self._unreported -= unreported
        self._looked = began
        self._pause = min(max(LOOK, 50 * (time.monotonic() - began)), 5.0)


def _place(request: StepRequest) -> dict[bytes, int]:
    """Return what a place for a request adds to the counters."""
    tenant = request.subject.tenant_id.encode()
    return {b"total": 1, b"t:" + tenant: 1, b"b:" + tenant: len(request.record)}


def _side_by_side(requests: Mapping[int, Sequence[StepRequest]], room: Mapping[bytes, int]) -> list[int]:
    """Return the buckets that may grant places concurrently, at least one."""
    planned: Counter[bytes] = Counter()
    chosen: list[int] = []
    for bucket, some in requests.items():
        more = Counter(planned)
        for request in some:
            # it asks for a place unless it is a duplicate; others do only if they conflict
            doubtful = request.capped or request.dedup_failed or request.parents
            if request.queued and (request.base_tier == 2 or (request.base_tier == 1 and doubtful)):
                place = _place(request)
                if all(by <= room[field] for field, by in place.items()):
                    more.update(place)
        # several at once ask for at most a quarter of the places left
        if not chosen or all(by == planned[f] or by * 4 <= room[f] for f, by in more.items()):
            chosen.append(bucket)
            planned = more
    return chosen
