"""What has a place in the review queue, of each tenant and in all, over the buckets of a cluster.

A script counts exactly what is in its own bucket. Of the others it is told what they held when they were counted, and
what steps have given since: a worker adds that to a ledger, which is in the first bucket, once its step is done, and
reads it before the next one. So a place is missed while the step that gives it is under way, and until the next count
where its worker dies or gets no answer. Of the ledger only what was added since the count began matters: nothing that
dies, or is added twice, makes the sum drift.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from groundwire.errors import StateUnavailable
from groundwire.state.model import QueueLimits, StepRequest
from groundwire.state.server import Server, script

LOOK: Final = 1.0
"""Seconds between two counts of the buckets; more where a count takes longer than a fiftieth of that."""

LONGEST: Final = 5.0
"""Seconds between two counts at most, also after one that a server has held up."""

_OLD: Final = 2
"""Pauses after which a count is too old for places to be given by it."""
_SHARE: Final = 50
_PAGE: Final = 1_000
_NAME: Final = b"name"
_LIFETIME: Final = 600
"""Seconds after which a ledger ends and another begins, without the tenants that are gone."""
_AT_ONCE: Final = 4
"""What part of the places that are left, 1 of so many, a step asks for in several buckets at once."""


class QueueUse:
    """Counts the buckets now and then, and reads and writes the ledger.

    Args:
        server: has the buckets.
        prefixes: of the keys of each bucket.
    """

    def __init__(self, server: Server, prefixes: Sequence[str]) -> None:
        self._server = server
        self._prefix = prefixes[0]
        self._keys = [own + "q" for own in prefixes]
        self._ledger = prefixes[0] + "g"
        self._counts: dict[int, Counter[bytes]] = {}
        self._sums: Counter[bytes] = Counter()
        self._base: Mapping[bytes, bytes] = {}  # the ledger, before the buckets were counted
        self._unreported: Counter[bytes] = Counter()
        self._looked = float("-inf")
        self._pause = LOOK
        self._looking: asyncio.Task[None] | None = None

    async def next_turn(
        self, left: Mapping[int, Sequence[int]], requests: Sequence[StepRequest], limits: QueueLimits
    ) -> dict[int, bytes]:
        """Return in which buckets a step may go on at once, and what their scripts are told of the others.

        Args:
            left: by bucket, which of the requests are left to decide.
            requests: of the step.
            limits: near which a step asks for few places at once, as one bucket is not told what another gives.

        Raises:
            StateUnavailable: nothing was counted yet, and no server answers.
        """
        if len(self._keys) == 1:
            return {0: b""}
        await self._renew_count()
        fields = {
            bucket: {b"total", *(field for at in some for field in _place(requests[at]))}
            for bucket, some in left.items()
        }
        named = sorted(set().union(*fields.values()))
        given = await self._given(named)
        room = {name: _limit(name, limits) - self._sums[name] - given[name] for name in named}
        undecided = {bucket: [requests[at] for at in some] for bucket, some in left.items()}
        return {
            bucket: self._told(bucket, fields[bucket], given) for bucket in _side_by_side(undecided, room)
        }

    async def report(self, pending: Iterable[StepRequest]) -> None:
        """Add the places that a step has given to the ledger; while its server is away, they are known here alone."""
        if len(self._keys) == 1:
            return
        for request in pending:
            self._unreported.update(_place(request))
        added, self._unreported = self._unreported, Counter()
        if not added:
            return
        parts = [part for field in added.items() for part in field]
        call = ((), (self._ledger, secrets.token_hex(8), _LIFETIME, *parts))
        try:
            await self._server.run_each(script("given"), self._prefix, {0: call})
        except BaseException as error:
            self._unreported.update(added)
            if not isinstance(error, StateUnavailable):
                raise

    async def count(self, field: str) -> int:
        """Return a counter, summed up. Raises: StateUnavailable."""
        if len(self._keys) == 1:
            return int(await self._server.call("HGET", self._keys[0], field) or 0)
        await asyncio.shield(self._look_beside())
        return self._sums[field.encode()]

    async def tenants(self) -> tuple[dict[bytes, int], dict[bytes, int]]:
        """Return places and bytes by tenant; see `groundwire.state.redis.RedisState.tenants_use`."""
        found: dict[bytes, dict[bytes, int]] = {b"t:": {}, b"b:": {}}
        async for page in self._fields_of_tenants():
            for name, count in page.items():
                kind = found.get(name[:2])
                if kind is not None and int(count):
                    kind[name[2:]] = int(count)
        return found[b"t:"], found[b"b:"]

    async def _fields_of_tenants(self) -> AsyncIterator[Mapping[bytes, bytes | int]]:
        if len(self._keys) > 1:
            await asyncio.shield(self._look_beside())
            yield self._sums
            return
        cursor = 0
        while True:
            scan = ("HSCAN", self._keys[0], cursor, "MATCH", "[tb]:*", "COUNT", _PAGE)
            cursor, page = await self._server.call(*scan)
            yield page
            if not int(cursor):
                return

    async def _renew_count(self) -> None:
        if self._looked < 0:  # nobody may be told that the others hold nothing
            await asyncio.shield(self._look_beside())
        elif (age := time.monotonic() - self._looked) > self._pause:
            looking = self._look_beside()
            if age > _OLD * self._pause:  # this worker stood still, and tenants may have been forgotten
                await asyncio.wait({looking})

    async def _given(self, fields: Sequence[bytes]) -> Counter[bytes]:
        """Return what was given since the count began, of each counter."""
        given = Counter(self._unreported)
        with suppress(StateUnavailable):
            name, *values = await self._server.call("HMGET", self._ledger, _NAME, *fields)
            if name != self._base.get(_NAME):  # nobody knows what was added to the one before
                await asyncio.wait({self._look_beside()})
                name, *values = await self._server.call("HMGET", self._ledger, _NAME, *fields)
            base = self._base if name == self._base.get(_NAME) else {}
            for field, value in zip(fields, values, strict=True):
                given[field] += max(int(value or 0) - int(base.get(field, 0)), 0)
        return given

    def _look_beside(self) -> asyncio.Task[None]:
        """Count the buckets in a task, unless one is at it; a step is told what was known before where it fails."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._looking

    async def _look(self) -> None:
        """Count the buckets that answer; of others the last count stands."""
        began = time.monotonic()
        unreported = Counter(self._unreported)
        base: Mapping[bytes, bytes] = {_NAME: b""}  # that of no ledger
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
        self._pause = min(max(LOOK, _SHARE * (time.monotonic() - began)), LONGEST)

    def _told(self, bucket: int, fields: Collection[bytes], given: Counter[bytes]) -> bytes:
        """Return of each counter what other buckets held, what this one held, and what was given since."""
        own = self._counts.get(bucket, Counter())
        told = {name.decode(): (self._sums[name] - own[name], own[name], given[name]) for name in fields}
        return json.dumps(told).encode() if any(others or new for others, _, new in told.values()) else b""


def _place(request: StepRequest) -> dict[bytes, int]:
    """Return what a place for a request adds to the counters."""
    tenant = request.subject.tenant_id.encode()
    return {b"total": 1, b"t:" + tenant: 1, b"b:" + tenant: len(request.record)}


def _limit(field: bytes, limits: QueueLimits) -> int:
    return {b"t:": limits.per_tenant, b"b:": limits.tenant_bytes}.get(field[:2], limits.total)


def _side_by_side(requests: Mapping[int, Sequence[StepRequest]], room: Mapping[bytes, int]) -> list[int]:
    """Return the buckets that may give places at once, one of them at least; who gets none there asks for none."""
    planned: Counter[bytes] = Counter()
    chosen: list[int] = []
    for bucket, some in requests.items():
        more = Counter(planned)
        for place in (_place(request) for request in some if _asks(request)):
            if all(by <= room[field] for field, by in place.items()):
                more.update(place)
        if not chosen or all(by == planned[f] or by * _AT_ONCE <= room[f] for f, by in more.items()):
            chosen.append(bucket)
            planned = more
    return chosen


def _asks(request: StepRequest) -> bool:
    """Say whether a request asks for a place, unless it is a duplicate; of others those alone that conflict do."""
    doubtful = request.capped or request.dedup_failed or request.parents
    return request.queued and (request.base_tier == 2 or (request.base_tier == 1 and bool(doubtful)))
