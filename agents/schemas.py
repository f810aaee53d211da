"""Fetches the schemas of framed values before they are read: reading asks no network, and holds up no event loop."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from agents.health import Health
from agents.hooks import Batch, Hook
from groundwire.errors import RegistryUnavailable
from groundwire.kafka.registry import Registry
from groundwire.messages.decode import schema_of

log = structlog.get_logger()

_RETRY: Final = 1.0


class Schemas(Hook):
    """Lets a partition wait while the registry is away; comes before what marks records as started."""

    def __init__(self, registry: Registry, health: Health) -> None:
        self._registry = registry
        self._health = health

    async def before_prepare(self, batch: Batch) -> None:
        ids = {schema for record in batch.originals if (schema := schema_of(record.value)) is not None}
        while ids := {schema for schema in ids if not self._registry.knows(schema)}:
            try:
                for schema in ids:
                    await asyncio.to_thread(self._registry.look_up, schema)
            except RegistryUnavailable as exc:
                if "registry" not in self._health.current:
                    log.warning("registry.unavailable", error=str(exc))
                self._health.begin("registry", batch)
                await batch.loop.lease.pause(_RETRY)
        self._health.end("registry", batch)
