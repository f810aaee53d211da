"""Fetches the schemas of framed values before they are read: reading asks no network, and holds up no event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from agents.health import Health
from agents.hooks import Batch, Hook
from groundwire.errors import RegistryUnavailable
from groundwire.kafka.registry import Registry
from groundwire.messages.decode import schema_of

log = structlog.get_logger()

_RETRY: Final = 1.0
_AT_ONCE: Final = 8
"""Look-ups: each invented id takes one."""


class Schemas(Hook):
    """Lets a partition wait while the registry is away; comes before what marks records as started."""

    def __init__(self, registry: Registry, health: Health) -> None:
        self._registry = registry
        self._health = health
        # its own, so that a registry which hangs keeps no thread from the checks
        self._threads = ThreadPoolExecutor(_AT_ONCE, "schemas")

    async def before_batch(self, batch: Batch) -> None:
        found = {schema for entry in batch.entries if (schema := schema_of(entry.record.value)) is not None}
        ids = [schema for schema in found if not self._registry.knows(schema)]
        while ids:
            try:
                await batch.loop.lease.wait_for(self._look_up(ids[-_AT_ONCE:]))
                del ids[-_AT_ONCE:]
            except RegistryUnavailable as exc:
                if "registry" not in self._health.current:
                    log.warning("registry.unavailable", error=str(exc))
                self._health.begin("registry", batch)
                await batch.loop.lease.pause(_RETRY)
        self._health.end("registry", batch)

    before_prepare = before_batch  # long after, where it is tried again

    async def _look_up(self, ids: list[int]) -> None:
        loop = asyncio.get_running_loop()
        asked = [loop.run_in_executor(self._threads, self._registry.look_up, schema) for schema in ids]
        await asyncio.gather(*asked)
