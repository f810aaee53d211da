"""What becomes of a cluster's primaries and slots while workers decide."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from deploy.embedded import RedisServer
from groundwire.state.buckets import bucket_of, slots
from tests.faults.load import TENANTS, USERS
from tests.services.redis_cluster import LocalCluster

SHARDS: Final = 3

_USERS: Final = sorted(
    {slots()[bucket_of(tenant, f"u{n}")] for tenant in TENANTS for n in range(USERS)}
    | {slots()[bucket_of(tenant, "")] for tenant in TENANTS}
)
"""The slots of the load's users, and of what their tenants do."""


class Shards:
    """Breaks a cluster; every fault is mended when it returns.

    A shard is named by its number: it is whoever has the slot in the middle of that share, which is never moved.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster

    async def kill(self, shard: int, seconds: float, *, keep_data: bool = True) -> None:
        """Kill a primary; some seconds later, where it has a replica after that took over, it is started again."""
        cluster, node = self._cluster, await self._primary(shard)
        await asyncio.to_thread(node.kill)
        try:
            if cluster.replicas:
                slot = _middle(shard)
                await asyncio.to_thread(cluster.wait_until, lambda: cluster.primary_of(slot) is not node)
            await asyncio.sleep(seconds)
        finally:
            await asyncio.to_thread(lambda: cluster.restart(node, keep_data=keep_data))

    async def pause(self, shard: int, seconds: float) -> None:
        node = await self._primary(shard)
        node.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            node.resume()
        await asyncio.to_thread(self._cluster.wait_until, self._cluster.is_whole)

    async def move(self, shard: int, seconds: float) -> None:
        """Give what a primary has of the load's slots to the next one, slot by slot; each is half moved for a while."""
        cluster = self._cluster
        source, target = await self._primary(shard), await self._primary((shard + 1) % SHARDS)
        moved = [slot for slot in _USERS if await asyncio.to_thread(cluster.primary_of, slot) is source]
        half_moved = partial(time.sleep, seconds / max(len(moved), 1))
        for slot in moved:
            await asyncio.to_thread(cluster.move, slot, source, target, pause=half_moved)

    async def _primary(self, shard: int) -> RedisServer:
        return await asyncio.to_thread(self._cluster.primary_of, _middle(shard))


def _middle(shard: int) -> int:
    return round((shard + 0.5) * REDIS_CLUSTER_HASH_SLOTS / SHARDS)
