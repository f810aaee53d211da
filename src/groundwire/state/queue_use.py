"""Places in the review queue, by tenant and in all, over the partitions of a cluster.

A step counts its own partition exactly, and adds what the others held at the last count. If it could take more than its
partition's share of what was free then, it counts first, and takes that share at most before it counts again. Whoever
decides on a partition keeps a copy of its counts under the tag of the partition half the tags before, as a rule on
another primary, for workers that start while it is away.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from groundwire.errors import StateUnavailable
from groundwire.state.model import QueueLimits
from groundwire.state.server import Server

LOOK: Final = 1.0
"""Seconds between two counts; more if a count takes over a fiftieth of that, but at most 5."""

_SHORT: Final = 0.2
"""Seconds that a step near a limit waits for a count: a primary that hangs holds up no other."""


class QueueUse:
    """Counts the partitions; one whose primary is unreachable keeps its last count, or that of its copy."""

    def __init__(self, server: Server, prefixes: Sequence[str]) -> None:
        self._server = server
        self._keys = [own + "q" for own in prefixes]
        half = len(prefixes) // 2
        self._copies = [f"{prefixes[at - half]}q:{at}" for at in range(len(prefixes))]
        self._copied: dict[int, dict[bytes, int] | None] = {}  # of partitions that this process decides on
        self._counts: dict[int, dict[bytes, int]] = {}
        self._noted: defaultdict[int, dict[bytes, int]] = defaultdict(dict)  # since the last count began
        self._sums: Counter[bytes] = Counter()
        self._looked = float("-inf")
        self._pause = LOOK
        self._looking: asyncio.Task[None] | None = None
        self._calls = asyncio.Semaphore(16)

    async def elsewhere(
        self, partition: int, names: Iterable[str], limits: QueueLimits, wanted: int
    ) -> tuple[dict[str, int], int]:
        """Return what other partitions hold of tenants and in all, by counter, and how many places a step may take.

        One Redis has no other partitions. `wanted`: places that the step takes at most.
        Raises: StateUnavailable: none was ever counted.
        """
        if len(self._keys) == 1:
            return {}, wanted
        shared = {name: name.encode() for name in names if not name.startswith("u:")}
        if (age := time.monotonic() - self._looked) > self._pause:
            is_running = self._looking is not None and not self._looking.done()
            looking = self._look_beside()
            # a worker that stalled grants no places by an old count; one unreachable primary is not waited for
            if self._looked < 0:
                await asyncio.shield(looking)
            elif age > 2 * self._pause and not is_running:
                await asyncio.wait({looking}, timeout=LOOK)
        if 0 < self._free(shared, limits) < wanted * len(self._keys):
            await asyncio.wait({self._look_beside()}, timeout=_SHORT)
        own = self._counts.get(partition, {})
        remote = {name: self._sums[field] - own.get(field, 0) for name, field in shared.items()}
        return remote, max(1, self._free(shared, limits) // len(self._keys))

    def _free(self, shared: Mapping[str, bytes], limits: QueueLimits) -> int:
        """Return the places that each tenant may still take."""
        total = self._sums[b"total"]
        tenants = {name[2:]: self._sums[field] for name, field in shared.items() if name[:2] == "t:"}
        return min(limits.free(tenant, taken, total) for tenant, taken in tenants.items())

    def note(self, partition: int, counts: Mapping[str, int]) -> None:
        """Take in what a step left in its own partition."""
        self._copied.setdefault(partition, None)
        noted = {name.encode(): count for name, count in counts.items()}
        self._noted[partition] |= noted
        own = self._counts.setdefault(partition, {})
        for field, count in noted.items():
            self._sums[field] += count - own.get(field, 0)
            own[field] = count

    async def count(self, name: str) -> int:
        """Return the sum of a counter. Raises: StateUnavailable."""
        if len(self._keys) == 1:
            return int(await self._server.call("HGET", self._keys[0], name) or 0)
        await asyncio.shield(self._look_beside())
        return self._sums[name.encode()]

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

    def _look_beside(self) -> asyncio.Task[None]:
        """Count the partitions in a task, unless a count is running."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
            self._looking.add_done_callback(lambda done: done.cancelled() or done.exception())
        return self._looking

    async def _look(self) -> None:
        """Raises: StateUnavailable: no partition answers."""
        began = time.monotonic()
        took = await asyncio.gather(*map(self._count, range(len(self._keys))))
        if not any(took):
            raise StateUnavailable("no partition's counters can be read")
        self._looked = began
        self._pause = min(max(LOOK, 50 * max(took)), 5.0)

    async def _count(self, partition: int) -> float:
        """Count a partition; return the seconds that it took, 0 if its primary does not answer."""
        async with self._calls:
            noted = self._noted[partition] = {}
            began = time.monotonic()
            try:
                fields = await self._server.call("HGETALL", self._keys[partition])
            except StateUnavailable:
                if partition not in self._counts:
                    with suppress(StateUnavailable):
                        copy = json.loads(await self._server.call("GET", self._copies[partition]) or "{}")
                        self._take(partition, {name.encode(): count for name, count in copy.items()})
                return 0.0
            took = time.monotonic() - began
            counts = {name: int(count) for name, count in fields.items() if name[:2] != b"u:"}
            self._take(partition, counts | noted)
            if self._copied.get(partition, counts) != counts:
                with suppress(StateUnavailable):
                    copy = {name.decode(): count for name, count in counts.items()}
                    await self._server.call("SET", self._copies[partition], json.dumps(copy))
                    self._copied[partition] = counts
            return took

    def _take(self, partition: int, counts: dict[bytes, int]) -> None:
        self._sums.update(counts)
        self._sums.subtract(self._counts.get(partition, {}))
        self._counts[partition] = counts
