"""The whole gate on a broker, beside the bare aiokafka loop and stock Faust: the same records in, as many bytes out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.claims import claims
from bench.inside import batches, decide_all, new_gate
from bench.measure import MICROSECONDS, Figure, Options, Part, Race, Target
from bench.processes import DECISIONS, Speed, declare, environment, fill, running, watching
from bench.services import open_broker, open_redis, redis_kind
from groundwire.keys.file import new_key
from groundwire.policy import Policy

_SAMPLE = 1_000
_MOST = 120
"""Microseconds of a processor that a worker may take for a claim."""


class Field:
    """One broker and one Redis, on which contenders run one after the other, each on topics of its own."""

    def __init__(self, bootstrap: str, redis_url: str, records: int, size: int) -> None:
        self._bootstrap = bootstrap
        self._redis_url = redis_url
        self._records = records
        self._size = size
        self._numbers = count(1)
        self.processor: dict[str, list[float]] = {}

    async def loop(self, kind: str) -> float:
        prefix = f"bench{next(self._numbers)}."
        given = environment(self._bootstrap, self._redis_url, prefix, {})
        topics = f"{prefix}claims", f"{prefix}copy"
        command = ["bench.loops", kind, self._bootstrap, *topics, str(self._size)]
        speed = await self._run(prefix, given, [command], [topics[1]])
        return self._note(kind, speed)

    async def gate(self, method: str, workers: int = 1) -> float:
        """Decide all records with so many workers; return records a second."""
        return self._note(f"{method}{workers}", await self._decide(method, workers, {}))

    async def processor_time(self, method: str, more: Mapping[str, str]) -> float:
        """Decide all records with one worker and further settings; return microseconds of a processor a record."""
        return (await self._decide(method, 1, more)).processor * MICROSECONDS

    async def _decide(self, method: str, workers: int, more: Mapping[str, str]) -> Speed:
        prefix = f"bench{next(self._numbers)}."
        given = environment(
            self._bootstrap, self._redis_url, prefix, {"GROUNDWIRE_DEDUP_METHOD": method, **more}
        )
        outputs = [prefix + name for name in DECISIONS]
        return await self._run(prefix, given, [["agents", "claims"]] * workers, outputs)

    async def _run(
        self, prefix: str, given: dict[str, str], commands: Sequence[Sequence[str]], outputs: Sequence[str]
    ) -> Speed:
        await declare(given, [f"{prefix}copy"])
        await fill(self._bootstrap, f"{prefix}claims", claims(self._records))
        async with watching(self._bootstrap, outputs) as watch, running(commands, given) as pids:
            return await watch.speed(self._records, pids)

    def _note(self, name: str, speed: Speed) -> float:
        self.processor.setdefault(name, []).append(speed.processor * MICROSECONDS)
        return speed.rate


async def run(options: Options) -> AsyncIterator[Figure]:
    made = await decide_all(new_gate(Policy()), batches(claims(_SAMPLE)))
    headers = sum(len(name) + len(value) for output in made for name, value in output.headers)
    size = (headers + sum(len(output.key or b"") + len(output.value or b"") for output in made)) // _SAMPLE
    records = options.of(6_000, 20_000, 60_000)
    yield Figure("bytes that the gate publishes for a claim", "bytes", [size], (), None, "gate.bytes")
    with open_broker(options.broker) as broker, open_redis(options.redis) as server:
        field = Field(broker.bootstrap, server.url, records, size)
        race = Race("records/s")
        race.add(f"bare aiokafka loop on {broker.kind}", lambda: field.loop("bare"), key="gate.bare")
        race.add("stock Faust agent", lambda: field.loop("faust"), key="gate.faust")
        quarter = Target(">=", 0.25, "ratio")
        kind = redis_kind(server)
        race.add(f"gate, minhash, {kind}", lambda: field.gate("minhash"), quarter, "gate.minhash")
        race.add("gate, partition", lambda: field.gate("partition"), quarter, "gate.partition")
        for figure in await race.figures(options.rounds):
            yield figure
        for figure in _processor(field, options.rounds):
            yield figure
        pair = Race("records/s")
        pair.add("one worker, partition", lambda: field.gate("partition"))
        two = Target(">=", 1.8, "ratio", cores=6)  # two workers, their threads, a broker and Redis
        pair.add("two workers, partition", lambda: field.gate("partition", 2), two, "gate.two")
        for figure in await pair.figures(max(1, options.rounds // 2), warm=False):
            yield figure


def _processor(field: Field, rounds: int) -> list[Figure]:
    """Return processor time a record, which says more than a rate where a machine is busy."""
    names = {
        "bare": "bare loop",
        "faust": "stock Faust agent",
        "minhash1": "gate, minhash",
        "partition1": "gate, partition",
    }
    found = {name: field.processor[name][-rounds:] for name in names}
    return [
        Figure(
            f"processor time a record, {names[name]}",
            "µs",
            values,
            ()
            if name == "bare"
            else [base / value for base, value in zip(found["bare"], values, strict=True)],
            Target("<=", _MOST) if name in {"minhash1", "partition1"} else None,
            f"gate.processor.{name}",
        )
        for name, values in found.items()
        if all(values)
    ]


async def _sealing(options: Options) -> AsyncIterator[Figure]:
    records = options.of(6_000, 20_000, 60_000)
    with (
        open_broker(options.broker) as broker,
        open_redis(options.redis) as server,
        TemporaryDirectory(prefix="groundwire-bench-") as folder,
    ):
        keys = Path(folder) / "gate.toml"
        new_key(keys, "gate", tenants=[], roles=["seal"], asymmetric=True)
        field = Field(broker.bootstrap, server.url, records, 0)
        race = Race("µs", higher=False)
        for name, more, target, key in (
            ("processor time a claim, nothing sealed", {}, None, ""),
            (
                "the same, sealed",
                {"GROUNDWIRE_SEAL_KEY": str(keys)},
                Target(">=", 1 / 1.05, "ratio"),
                "processor",
            ),
        ):
            run_one = partial(field.processor_time, "partition", more)
            race.add(name, run_one, target, key and f"sealing.{key}")
        for figure in await race.figures(options.rounds):
            yield figure


SEALING = Part("sealing", "what sealing costs a worker", _sealing, "broker, Redis")
PART = Part("gate", "the whole gate, beside the bare loop and stock Faust", run, "broker, Redis")
