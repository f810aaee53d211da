"""A deployment of its own for a test: topics, worker processes, a producer, and all that they publish."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from asyncio.subprocess import Process
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from deploy.embedded.process import free_port
from groundwire.config import Settings
from tests.services.brokers import Broker, until_ready
from tests.stream.verified import new_seal_key, not_derived
from topics.declare import declare

ROOT = Path(__file__).resolve().parents[2]
OUTPUTS = (
    *("approved", "review", "blocked", "dead-letter", "deferred", "audit", "retractions"),
    *("regenerate", "claims"),
)
COMMAND = "from groundwire.cli.main import main; main()"
DECISIONS = ("approved", "review", "blocked")
FULL = os.environ.get("GROUNDWIRE_TEST_LENGTH") == "full"
"""Whether tests of long stretches take a part of the length that is promised, or the whole, which may be an hour.

Nothing may then end them before: `-o faulthandler_timeout=0`.
"""
PATIENCE = 120.0
"""Seconds until a test gives up waiting for an event. A quiet machine needs a few; a busy one decides nothing."""
SESSION = 10.0
"""Seconds until the group notices a silent worker; a busy machine must still send its heartbeats."""


@dataclass(frozen=True)
class Seen:
    """A record of an output topic, as a consumer reads it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, record: Any, topic: str) -> Self:
        """What aiokafka's consumer has read, under the topic's name without prefix."""
        place = (topic, record.partition, record.offset, record.timestamp)
        return cls(*place, record.key, record.value, tuple(record.headers))

    @cached_property
    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.value or b"null")
        return parsed

    @property
    def subject(self) -> tuple[str, str, str]:
        return self.json["tenant_id"], self.json["user_id"], self.json["subject_id"]

    def header(self, name: str) -> str | None:
        return next((value.decode() for key, value in self.headers if key == name), None)


class Worker:
    """A worker process; its log is a file of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path, port: int) -> None:
        self.port = port
        self.log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=stderr
            )

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def text(self) -> str:
        return self.log.read_text(errors="replace")

    async def ready(self) -> Self:
        await self.says(r"\bready\b")
        return self

    async def says(self, pattern: str) -> None:
        """Wait until its log holds a pattern."""
        await until(
            lambda: re.search(pattern, self.text) is not None,
            lambda: f"{self.log.name} says {pattern!r} (exit {self.process.poll()})",
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        await self.ended()

    async def stop(self) -> int:
        """Ask it to stop, and return its exit status."""
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        await until(lambda: not self.alive, lambda: f"{self.log.name} ends")
        return self.process.wait()

    async def get(self, path: str) -> tuple[int, str]:
        """Ask its metrics port: status and text."""

        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        return await asyncio.to_thread(ask)

    async def answers(self, path: str, status: int) -> str:
        """Wait until a page of its port has a status; return its text."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found, text = await self.get(path)
                if found == status:
                    return text
                await asyncio.sleep(0.2)

    async def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's samples that carry these labels."""
        _, page = await self.get("/metrics")
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        lines = (line for line in page.splitlines() if re.match(rf"{name}(\{{| )", line))
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if all(want in line for want in wanted))

    def dump(self) -> str:
        """Return the end of its log, with the stacks of all threads where it still runs."""
        said = self.text[-4000:]
        if self.alive:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGUSR1)
            time.sleep(0.3)
        stacks = self.text[-8000:] if self.alive else ""
        return f"===== {self.log.name} (exit {self.process.poll()})\n{said}\n----- stacks\n{stacks}"


@dataclass
class Deployment:
    """Topics under a prefix of their own, and who works on them.

    Attributes:
        verified: whether workers seal, and everything on the topics is derived again and its seals are checked
            when a test has passed.
    """

    broker: Broker
    redis: RedisServer
    folder: Path
    partitions: int = 4
    environment: dict[str, str] = field(default_factory=dict)
    verified: bool = False
    prefix: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}.")

    def __post_init__(self) -> None:
        self.workers: list[Worker] = []
        self.seen: defaultdict[str, list[Seen]] = defaultdict(list)
        self._watching: asyncio.Task[None] | None = None
        self.seal_key = new_seal_key(self.folder / f"{self.prefix}seal.toml") if self.verified else None

    async def __aenter__(self) -> Self:
        await until_ready(self.broker.bootstrap, self.broker.replication)
        brokers, copies = self.broker.bootstrap, self.broker.replication
        topics = {"topic_prefix": self.prefix, "partitions": self.partitions, "replication": copies}
        await declare(Settings(brokers=brokers, **topics))
        options: dict[str, Any] = {"enable_idempotence": True, "request_timeout_ms": 300_000}
        self.producer = AIOKafkaProducer(bootstrap_servers=brokers, **options)
        await self.producer.start()
        self._consumer = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=None)
        await self._consumer.start()
        tps = [TopicPartition(self.prefix + t, n) for t in OUTPUTS for n in range(self.partitions)]
        self._consumer.assign(tps)
        await self._consumer.seek_to_beginning()
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        for worker in self.workers:
            if worker.alive:
                worker.process.kill()
            worker.process.wait()
        if self._watching:
            self._watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watching
        await self._consumer.stop()
        await self.producer.stop()
        if kind is None and self.verified:
            await self.verify()

    async def verify(self) -> None:
        """Derive again whatever workers have published, and check its seals. Raises: AssertionError naming faults."""
        _, wrong = await not_derived(self.settings(**self.policies), self.seal_key)
        assert not wrong, f"{len(wrong)} decisions do not follow: {wrong[:5]}"

    @property
    def policies(self) -> dict[str, str]:
        """Where workers keep the policies by which they decide."""
        name = "GROUNDWIRE_POLICIES_DIR"
        return {name: self.environment.get(name, str(self.folder / f"{self.prefix}policies"))}

    @property
    def sealing(self) -> dict[str, str]:
        """By which key workers seal, and only they."""
        return {"GROUNDWIRE_SEAL_KEY": str(self.seal_key)} if self.seal_key else {}

    def settings(self, **more: str) -> dict[str, str]:
        """The environment of a process of this deployment."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GROUNDWIRE_")}
        return {
            **kept,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "GROUNDWIRE_BROKERS": self.broker.bootstrap,
            "GROUNDWIRE_REDIS_URL": self.redis.url,
            "GROUNDWIRE_TOPIC_PREFIX": self.prefix,
            "GROUNDWIRE_GROUP_PREFIX": self.prefix,
            "GROUNDWIRE_PARTITIONS": str(self.partitions),
            "GROUNDWIRE_REPLICATION": str(self.broker.replication),
            "GROUNDWIRE_SESSION_TIMEOUT": str(SESSION),
            "GROUNDWIRE_REBUILD_WAIT": "1",
            "GROUNDWIRE_NO_NETWORK": "1",
            "GROUNDWIRE_CITATION_PATIENCE": "0",
            **self.environment,
            **more,
        }

    def start_worker(self, role: str, *options: str, faulty: str | None = None, **more: str) -> Worker:
        """Start a worker with options of its command; `faulty`: a fault of `tests.stream.faulty`, built in."""
        port = free_port()
        module = ["agents"] if faulty is None else ["tests.stream.faulty", faulty]
        log = self.folder / f"{self.prefix}{len(self.workers)}-{role}.log"
        own = {**self.policies, **self.sealing, **self.environment, "GROUNDWIRE_METRICS_PORT": str(port)}
        environment = self.settings(**{**own, **more})
        worker = Worker([sys.executable, "-m", *module, role, *options], environment, log, port)
        self.workers.append(worker)
        return worker

    async def start_workers(self, *roles: str, **more: str) -> list[Worker]:
        """Start workers side by side and wait until all are ready."""
        workers = [self.start_worker(role, **more) for role in roles]
        for worker in workers:
            await worker.ready()
        return workers

    async def start_command(self, *arguments: str, program: str = COMMAND, **more: str) -> Process:
        """Start a command with the deployment's settings; `program` runs `groundwire` with its arguments."""
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", program, *arguments),
            cwd=ROOT,
            env=self.settings(**more),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def command(self, *arguments: str, **options: str) -> tuple[int, str, str]:
        """Run a command to its end: status, standard output and error."""
        process = await self.start_command(*arguments, **options)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def produce(self, claims: Iterable[Mapping[str, Any] | bytes], **options: Any) -> list[Any]:
        """Produce claims to `claims`, each under its user's key unless told otherwise; return their places."""
        futures = [await self.send(claim, **options) for claim in claims]
        return list(await asyncio.gather(*futures))

    async def send(
        self,
        claim: Mapping[str, Any] | bytes | None,
        *,
        key: bytes | None = None,
        topic: str = "claims",
        headers: Sequence[tuple[str, bytes]] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[Any]:
        """Hand one record to the producer; the future says where it stands."""
        if isinstance(claim, Mapping):
            key = key if key is not None else user_key(claim)
            claim = json.dumps(claim, ensure_ascii=False).encode()
        future: asyncio.Future[Any] = await self.producer.send(
            *(self.prefix + topic, claim),
            key=key,
            headers=list(headers),
            partition=partition,
            timestamp_ms=timestamp_ms,
        )
        return future

    async def stored(self, topic: str) -> list[Seen]:
        """Read a topic to its end: its records, in order within a partition."""
        tps = [TopicPartition(self.prefix + topic, n) for n in range(self.partitions)]
        async with AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap, group_id=None) as consumer:
            consumer.assign(tps)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(tps)
            found: list[Seen] = []
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [Seen.of(record, topic) for record in records]
            return found

    @property
    def decisions(self) -> list[Seen]:
        """All decisions seen so far, repeats and provisional ones too."""
        return [record for topic in DECISIONS for record in self.seen[topic]]

    @property
    def dead(self) -> list[Seen]:
        return self.seen["dead-letter"]

    def first_decisions(self) -> dict[tuple[str, str, str], Seen]:
        """The decision of revision 1 of each subject."""
        return {seen.subject: seen for seen in self.decisions if seen.json["revision"] == 1}

    def decided(self, claim_id: str) -> list[Seen]:
        """All decisions of a claim id, in no order across topics."""
        return [seen for seen in self.decisions if seen.json["subject_id"] == claim_id]

    async def decision(self, claim_id: str, *, revision: int = 1) -> Seen:
        """Wait for a claim's decision."""
        found: list[Seen] = []

        def there() -> bool:
            found[:] = [d for d in self.decided(claim_id) if d.json["revision"] == revision]
            return bool(found)

        await until(there, lambda: f"claim {claim_id} is decided (revision {revision})")
        return found[0]

    async def settled(self, subjects: int, dead: int = 0, seconds: float = PATIENCE) -> None:
        """Wait until so many subjects have a revision 1, and so many places dead letters."""
        await until(
            lambda: len(self.first_decisions()) >= subjects and len(self.dead_places()) >= dead,
            lambda: f"{len(self.first_decisions())} of {subjects}, {len(self.dead_places())} of {dead} dead",
            seconds,
        )

    def dead_places(self) -> dict[tuple[str, str, str], Seen]:
        """Dead letters by the place of the record that they hold."""
        names = ("topic", "partition", "offset")
        return {tuple(d.header(f"__connect.errors.{n}") or "" for n in names): d for d in self.dead}  # type: ignore[misc]

    async def quiet(self, seconds: float = 0.7) -> None:
        """Wait until nothing has been published for a while."""
        last, since = -1, time.monotonic()
        while time.monotonic() - since < seconds:
            count = sum(map(len, self.seen.values()))
            if count != last:
                last, since = count, time.monotonic()
            await asyncio.sleep(0.05)

    async def committed(self, role: str, topic: str | None = None) -> dict[int, int]:
        """Committed offsets of a role's group, by partition; 0 where there is none."""
        group = {"group_id": self.prefix + role, "enable_auto_commit": False}
        tps = [TopicPartition(self.prefix + (topic or role), n) for n in range(self.partitions)]
        async with AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap, **group) as consumer:
            consumer.assign(tps)
            return {tp.partition: await consumer.committed(tp) or 0 for tp in tps}

    async def caught_up(self, role: str, seconds: float = PATIENCE) -> None:
        """Wait until a role has committed all of its topic: after an outage its group has to find together first."""
        async with asyncio.timeout(seconds):
            while await self.committed(role) != await self.ends(role):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.5)

    async def ends(self, topic: str) -> dict[int, int]:
        """Where each partition of a topic ends."""
        tps = [TopicPartition(self.prefix + topic, n) for n in range(self.partitions)]
        ends: dict[TopicPartition, int] = await self._consumer.end_offsets(tps)
        return {tp.partition: end for tp, end in ends.items()}

    async def flush(self) -> None:
        """Empty the deployment's state, as a lost disk would."""
        async with Redis.from_url(self.redis.url) as redis:
            await redis.delete(*[key async for key in redis.scan_iter(f"{self.prefix}*")])

    def dump(self) -> str:
        """Return what helps to understand a failure."""
        counts = {topic: len(records) for topic, records in self.seen.items()}
        return "\n".join([f"published: {counts}", *(worker.dump() for worker in self.workers)])

    async def _watch(self) -> None:
        while True:
            fetched = await self._consumer.getmany(timeout_ms=100)
            for tp, records in fetched.items():
                topic = tp.topic.removeprefix(self.prefix)
                self.seen[topic] += [Seen.of(record, topic) for record in records]


def user_key(record: Mapping[str, Any]) -> bytes:
    return f"{record.get('tenant_id', 'default')}:{record.get('user_id')}".encode()


def good(number: int, **fields: object) -> dict[str, object]:
    """A claim that resembles no other; of forty users, five sources and, every eleventh, with a hedge."""
    words = random.Random(number)
    text = f"Module {number} keeps {' '.join(f'w{words.randrange(10**6)}' for _ in range(6))} in memory"
    return {
        "claim_id": f"c{number}",
        "user_id": f"u{number % 40}",
        "content": text if number % 11 else f"Maybe {text}",
        "source": ("user", "ai_synthesis", "documentation", "conversation", "agent-7")[number % 5],
        **fields,
    }


async def until(true: Callable[[], object], what: Callable[[], str] | str, seconds: float = PATIENCE) -> None:
    """Wait until something holds. Raises: TimeoutError saying what did not."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        await asyncio.sleep(0.05)


def chunk(number: int = 1, **fields: Any) -> dict[str, Any]:
    content = f"def search(query, top_k):\n    timeout = {number} s\n    return index.find(query)"
    place = {"file": f"src/module_{number}.py", "start_line": 1, "end_line": 3}
    return {"chunk_id": f"k{number}", "content": content, **place, **fields}


def response(number: int, **fields: Any) -> dict[str, Any]:
    """A response that is approved, but every third names a field that is not there."""
    invented = " Set `fuzziness` too." if number % 3 == 0 else ""
    return {
        "response_id": f"r{number}",
        "user_id": f"u{number % 20}",
        "query": "How do I search?",
        "answer": f"Call `search` with `top_k` [source:1].{invented}",
        "chunks": [chunk(number)],
        "sources": [{"file": f"src/module_{number}.py", "start_line": 1, "end_line": 3}],
        **fields,
    }


BAD = (
    (b"{", "invalid_json"),
    (b'{"claim_id": "x", "claim_id": "y"}', "invalid_json"),
    (None, "invalid_json"),
    (b"\xff\xfe", "invalid_json"),
    (b'{"claim_id": "x", "user_id": "u", "content": "c", "colour": "red"}', "invalid_record"),
    (b'{"claim_id": "x", "user_id": "u"}', "invalid_record"),
    (b'{"claim_id": "x", "user_id": "u", "content": "c", "schema_version": "9.0"}', "unsupported_version"),
    (b'{"claim_id": "x", "user_id": "u", "content": "' + b"a" * 900_000 + b'"}', "too_large"),
)
"""Values that no agent takes as claims, each with the code of its dead letter."""


def assert_one_truth(decisions: Iterable[Seen]) -> None:
    """Every repeat of a decision is byte-equal under its id, and a subject has one decision a revision (X-09)."""
    by_id: dict[str, Seen] = {}
    by_revision: dict[tuple[Any, ...], str] = {}
    for seen in decisions:
        name = seen.header("ce_id")
        assert name == seen.json["decision_id"]
        first = by_id.setdefault(name, seen)
        assert (first.topic, first.key, first.value) == (seen.topic, seen.key, seen.value)
        if seen.json["revision"] > 0:
            revision = (*seen.subject, seen.json["kind"], seen.json["revision"])
            assert by_revision.setdefault(revision, name) == name
