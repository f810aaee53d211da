"""What sealing costs a worker: processor time a claim with a seal key, beside that without, in turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import Figure, Options, Part, Race, Target
from bench.parts.gate import Field
from bench.services import open_broker, open_redis
from groundwire.keys.file import new_key


async def run(options: Options) -> AsyncIterator[Figure]:
    """Race a worker that seals against one that does not."""
    records = options.of(6_000, 20_000, 60_000)
    with (
        open_broker(options.broker) as broker,
        open_redis(options.redis) as server,
        TemporaryDirectory(prefix="groundwire-bench-") as folder,
    ):
        keys = Path(folder) / "gate.toml"
        new_key(keys, "gate", tenants=[], roles=["seal"], asymmetric=True)
        field = Field(broker.bootstrap, server.url, records, 0)
        sealing = {"GROUNDWIRE_SEAL_KEY": str(keys)}
        race = Race("µs", higher=False)
        race.add("processor time a claim, nothing sealed", lambda: field.processor_time("partition", {}))
        race.add(
            "the same, sealed",
            lambda: field.processor_time("partition", sealing),
            Target(">=", 1 / 1.05, "ratio"),
            "sealing.processor",
        )
        for figure in await race.figures(options.rounds):
            yield figure


PART = Part("sealing", "what sealing costs a worker", run, "broker, Redis")
