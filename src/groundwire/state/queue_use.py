"""What has a place in the review queue, of each tenant and in all, over the buckets of a cluster.

A script counts exactly what is in its own bucket. What is in the others it is told, as they were counted a moment ago:
so nothing that dies can make the sum drift, and limits of tenants and of the whole queue may be overshot by what other
workers, and other batches, have brought in since. Places of one user are all in one bucket, and exact.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from groundwire.errors import StateUnavailable
from groundwire.messages.identity import Subject
from groundwire.state.model import Outcome, StepAnswer, StepRequest, SubjectState
from groundwire.state.server import Server

LOOK: Final = 1.0
"""Seconds between two counts of the buckets; more where a count takes longer than a fiftieth of that."""

LONGEST: Final = 5.0
"""Seconds between two counts at most, also after one that a server has held up."""

_OLD: Final = 2
"""Pauses after which a count is too old for places to be given by it."""
_SHARE: Final = 50
_PAGE: Final = 1_000


class QueueUse:
    """Counts the buckets now and then.

    Args:
        server: has the buckets.
        prefixes: of the keys of each bucket.

    Attributes:
        looks: how many counts have ended.
    """

    def __init__(self, server: Server, prefixes: Sequence[str]) -> None:
        self._server = server
        self._keys = [own + "q" for own in prefixes]
        self._counts: dict[int, Counter[bytes]] = {}
        self._sums: Counter[bytes] = Counter()
        self._looked = float("-inf")
        self._pause = LOOK
        self._looking: asyncio.Task[None] | None = None
        self._first = asyncio.Lock()
        self.looks = 0

    async def elsewhere(self, subjects: Sequence[Subject]) -> dict[int, bytes]:
        """Return for the bucket of each subject what its script is told of the others; empty where that is nothing.

        Raises:
            StateUnavailable: nothing was counted yet, and no server answers.
        """
        if len(self._keys) == 1:
            return {0: b""}
        if self._looked < 0:
            async with self._first:  # who comes meanwhile must not be told that the others hold nothing
                if self._looked < 0:
                    await self._look()
        elif (age := time.monotonic() - self._looked) > self._pause:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look_quietly())
            if age > _OLD * self._pause:  # this worker stood still, and others may have filled the queue
                await asyncio.wait({self._looking})
        tenants: defaultdict[int, set[str]] = defaultdict(set)
        for subject in subjects:
            tenants[self._server.bucket_of(subject.tenant_id, subject.user_id)].add(subject.tenant_id)
        return {bucket: self._told(bucket, some) for bucket, some in tenants.items()}

    def note(self, looks: int, requests: Sequence[StepRequest], answers: Sequence[StepAnswer]) -> None:
        """Add the places that a step has given, unless a count has ended since: they may be among those."""
        if len(self._keys) == 1 or looks != self.looks:
            return
        for request, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Outcome) and answer.fresh and answer.state is SubjectState.PENDING:
                tenant = request.subject.tenant_id.encode()
                given = {b"total": 1, b"t:" + tenant: 1, b"b:" + tenant: len(request.record)}
                bucket = self._server.bucket_of(request.subject.tenant_id, request.subject.user_id)
                self._counts.setdefault(bucket, Counter()).update(given)
                self._sums.update(given)

    async def count(self, field: str) -> int:
        """Return a counter, summed up. Raises: StateUnavailable."""
        if len(self._keys) == 1:
            return int(await self._server.call("HGET", self._keys[0], field) or 0)
        await self._look()
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
            await self._look()
            yield self._sums
            return
        cursor = 0
        while True:
            scan = ("HSCAN", self._keys[0], cursor, "MATCH", "[tb]:*", "COUNT", _PAGE)
            cursor, page = await self._server.call(*scan)
            yield page
            if not int(cursor):
                return

    async def _look_quietly(self) -> None:
        with suppress(StateUnavailable):  # the next step is told what was known before
            await self._look()

    async def _look(self) -> None:
        """Count the buckets that answer; of others the last count stands."""
        began = time.monotonic()
        commands = {bucket: ("HGETALL", key) for bucket, key in enumerate(self._keys)}
        for bucket, fields in (await self._server.each(commands, some=True)).items():
            counts = Counter({name: int(count) for name, count in fields.items() if name[:2] != b"u:"})
            self._sums.update(counts)
            self._sums.subtract(self._counts.get(bucket, {}))
            self._counts[bucket] = counts
        self.looks += 1
        self._looked = began
        self._pause = min(max(LOOK, _SHARE * (time.monotonic() - began)), LONGEST)

    def _told(self, bucket: int, tenants: set[str]) -> bytes:
        own = self._counts.get(bucket, Counter())
        others = {name: self._sums[name] - own[name] for name in (b"total", *_fields(tenants))}
        if not any(others.values()):
            return b""
        of_tenants = {
            tenant: [others[b"t:" + tenant.encode()], others[b"b:" + tenant.encode()]] for tenant in tenants
        }
        return json.dumps([others[b"total"], of_tenants]).encode()


def _fields(tenants: set[str]) -> list[bytes]:
    return [kind + tenant.encode() for tenant in tenants for kind in (b"t:", b"b:")]
