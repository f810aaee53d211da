"""A test's own deployment: topics, worker processes, a producer, reviewers, a web site, and the output topics."""

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
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from deploy.embedded.process import free_port
from groundwire.config import Settings
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.policy import load_policy
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.seals import read_seals
from groundwire.replay.verify import Placed, Signatures, VerifyStatus, verify_topics
from groundwire.state.policies import KnownPolicies, PolicyStore
from tests.services.brokers import Broker, until_ready
from topics.declare import declare

ROOT = Path(__file__).resolve().parents[2]
DECISIONS = ("approved", "review", "blocked")
OUTPUTS = (*DECISIONS, "dead-letter", "deferred", "audit", "retractions", "regenerate", "claims")
COMMAND = "from groundwire.cli.main import main; main()"
FULL = os.environ.get("GROUNDWIRE_TEST_LENGTH") == "full"
"""Whether tests of long stretches take all of the promised length, up to an hour: `-o faulthandler_timeout=0`."""
PATIENCE = 120.0
"""Seconds until a test gives up waiting for an event. A quiet machine needs a few; a busy one decides nothing."""
SESSION = 10.0
"""Session timeout of workers in seconds; a busy machine must still send its heartbeats."""


@dataclass(frozen=True)
class Seen:
    """A record of an output topic, as a consumer reads it; the topic without its prefix."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, record: Any, prefix: str) -> Self:
        place = (record.topic.removeprefix(prefix), record.partition, record.offset, record.timestamp)
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
        await until(
            lambda: re.search(pattern, self.text) is not None,
            lambda: f"{self.log.name} says {pattern!r} (exit {self.process.poll()})",
        )

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def kill(self) -> None:
        self.process.kill()
        await self.ended()

    async def stop(self) -> int:
        """Send SIGTERM, and return the exit status."""
        self.process.terminate()
        return await self.ended()

    async def ended(self) -> int:
        await until(lambda: not self.alive, lambda: f"{self.log.name} ends")
        return self.process.wait()

    async def get(self, path: str) -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        return await asyncio.to_thread(ask)

    async def answers(self, path: str, status: int) -> str:
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
    """Topics under a prefix of their own, and their workers.

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
        brokers, copies = self.broker.bootstrap, self.broker.replication
        await until_ready(brokers, copies)
        topics = {"topic_prefix": self.prefix, "partitions": self.partitions, "replication": copies}
        await declare(Settings(brokers=brokers, **topics))
        options: dict[str, Any] = {"enable_idempotence": True, "request_timeout_ms": 300_000}
        self.producer = AIOKafkaProducer(bootstrap_servers=brokers, **options)
        await self.producer.start()
        self._consumer = AIOKafkaConsumer(bootstrap_servers=brokers, group_id=None)
        await self._consumer.start()
        self._consumer.assign(self.places(*OUTPUTS))
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
        """Derive again what workers have published, and check its seals. Raises: AssertionError naming faults."""
        environment = self.settings(**self.policies)
        seals = (
            partial(read_seals, settings_of(environment), SealKeys(self.seal_key)) if self.seal_key else None
        )
        wrong = await not_derived(environment, Signatures(seals) if seals else Signatures())
        # what a killed worker leaves is sealed once another has read it again; a test may be over by then
        notes = {VerifyStatus.NOT_SEALED_YET, VerifyStatus.UNANCHORED}
        wrong = [placed for placed in wrong if placed.finding.status not in notes]
        assert not wrong, f"{len(wrong)} decisions do not follow: {wrong[:5]}"

    def places(self, *topics: str) -> list[TopicPartition]:
        return [TopicPartition(self.prefix + topic, n) for topic in topics for n in range(self.partitions)]

    @property
    def policies(self) -> dict[str, str]:
        name = "GROUNDWIRE_POLICIES_DIR"
        return {name: self.environment.get(name, str(self.folder / f"{self.prefix}policies"))}

    @property
    def sealing(self) -> dict[str, str]:
        return {"GROUNDWIRE_SEAL_KEY": str(self.seal_key)} if self.seal_key else {}

    def settings(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("GROUNDWIRE_")}
        own = {
            "BROKERS": self.broker.bootstrap,
            "REDIS_URL": self.redis.url,
            "TOPIC_PREFIX": self.prefix,
            "GROUP_PREFIX": self.prefix,
            "PARTITIONS": str(self.partitions),
            "REPLICATION": str(self.broker.replication),
            "SESSION_TIMEOUT": str(SESSION),
            "REBUILD_WAIT": "1",
            "NO_NETWORK": "1",
            "CITATION_PATIENCE": "0",
        }
        kept |= {f"GROUNDWIRE_{name}": value for name, value in own.items()}
        kept["XDG_CACHE_HOME"] = str(self.folder / "cache")
        kept["PYTHONPATH"] = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
        return kept | self.environment | more

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
        process = await self.start_command(*arguments, **options)
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def succeeds(self, *arguments: str, **options: str) -> tuple[str, str]:
        status, out, err = await self.command(*arguments, **options)
        assert status == 0, f"{arguments}: {out}{err}"
        return out, err

    async def produce(self, claims: Iterable[Mapping[str, Any] | bytes], **options: Any) -> list[Any]:
        """Produce claims to `claims`, keyed by user unless `key` is given; return their places."""
        futures = [await self.send(claim, **options) for claim in claims]
        return list(await asyncio.gather(*futures))

    async def send(
        self,
        claim: Mapping[str, Any] | bytes | None,
        *,
        key: bytes | None = None,
        topic: str = "claims",
        headers: Sequence[tuple[str, bytes]] = (),
        **place: int | None,
    ) -> asyncio.Future[Any]:
        """Hand one record to the producer; the future gives its place. `place`: partition, timestamp_ms."""
        if isinstance(claim, Mapping):
            key = key if key is not None else user_key(claim)
            claim = json.dumps(claim, ensure_ascii=False).encode()
        sent = self.producer.send(self.prefix + topic, claim, key=key, headers=list(headers), **place)
        future: asyncio.Future[Any] = await sent
        return future

    async def stored(self, *topics: str) -> list[Seen]:
        """Read topics to their ends: their records, in order within a partition."""
        places = self.places(*topics)
        settings: dict[str, Any] = {"group_id": None, "isolation_level": "read_committed"}
        async with AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap, **settings) as consumer:
            consumer.assign(places)
            await consumer.seek_to_beginning()
            ends = await consumer.end_offsets(places)
            found: list[Seen] = []
            while any([await consumer.position(place) < ends[place] for place in places]):
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    found += [Seen.of(record, self.prefix) for record in records]
            return found

    @property
    def decisions(self) -> list[Seen]:
        """All decisions seen so far, repeats and provisional ones too."""
        return [record for topic in DECISIONS for record in self.seen[topic]]

    @property
    def dead(self) -> list[Seen]:
        return self.seen["dead-letter"]

    def first_decisions(self) -> dict[tuple[str, str, str], Seen]:
        return {seen.subject: seen for seen in self.decisions if seen.json["revision"] == 1}

    def decided(self, claim_id: str) -> list[Seen]:
        return [seen for seen in self.decisions if seen.json["subject_id"] == claim_id]

    async def decision(self, claim_id: str, *, revision: int = 1) -> Seen:
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
        last, since = -1, time.monotonic()
        while time.monotonic() - since < seconds:
            count = sum(map(len, self.seen.values()))
            if count != last:
                last, since = count, time.monotonic()
            await asyncio.sleep(0.05)

    async def committed(self, role: str, topic: str | None = None) -> dict[int, int]:
        """Committed offsets of a role's group, by partition; 0 where there is none."""
        group = {"group_id": self.prefix + role, "enable_auto_commit": False}
        places = self.places(topic or role)
        async with AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap, **group) as consumer:
            consumer.assign(places)
            return {place.partition: await consumer.committed(place) or 0 for place in places}

    async def caught_up(self, role: str, topic: str | None = None) -> None:
        """Wait until a role has committed all of its topic: after an outage its group has to join first."""
        async with asyncio.timeout(PATIENCE):
            while await self.committed(role, topic) != await self.ends(topic or role):  # noqa: ASYNC110 - nothing tells when
                await asyncio.sleep(0.5)

    async def ends(self, topic: str) -> dict[int, int]:
        ends: dict[TopicPartition, int] = await self._consumer.end_offsets(self.places(topic))
        return {place.partition: end for place, end in ends.items()}

    async def flush(self) -> None:
        """Empty the deployment's state, as a lost disk would."""
        async with Redis.from_url(self.redis.url) as redis:
            await redis.delete(*[key async for key in redis.scan_iter(f"{self.prefix}*")])

    def dump(self) -> str:
        counts = {topic: len(records) for topic, records in self.seen.items()}
        return "\n".join([f"published: {counts}", *(worker.dump() for worker in self.workers)])

    def note(self, seen: Seen) -> None:
        self.seen[seen.topic].append(seen)

    async def _watch(self) -> None:
        while True:
            try:
                fetched = await self._consumer.getmany(timeout_ms=100)
            except KafkaError:  # the broker is unreachable
                await asyncio.sleep(0.2)
                continue
            for record in (record for records in fetched.values() for record in records):
                self.note(Seen.of(record, self.prefix))


def settings_of(environment: Mapping[str, str]) -> Settings:
    names = {"brokers": "BROKERS", "topic_prefix": "TOPIC_PREFIX", "group_prefix": "GROUP_PREFIX"}
    return Settings(**{name: environment[f"GROUNDWIRE_{variable}"] for name, variable in names.items()})


def policies_of(environment: Mapping[str, str]) -> KnownPolicies:
    """The policy of an environment, and those that its workers kept."""
    given = environment.get("GROUNDWIRE_POLICY_FILE")
    kept = environment.get("GROUNDWIRE_POLICIES_DIR")
    in_force = load_policy(Path(given) if given else None, environment)
    return KnownPolicies([in_force], PolicyStore(Path(kept) if kept else None, None))


def new_seal_key(path: Path) -> Path:
    """Make a keys file with a key that seals; its public half checks the seals."""
    new_key(path, "gate-seals", tenants=[], roles=["seal"], asymmetric=True)
    return path


async def not_derived(environment: Mapping[str, str], signatures: Signatures) -> list[Placed]:
    """Derive everything on the topics of an environment again: what is not the same, or not covered by seals."""
    prefix = environment["GROUNDWIRE_TOPIC_PREFIX"]
    reader = ReplayReader(environment["GROUNDWIRE_BROKERS"], prefix, Rate(None), lambda *_: None)
    policies = policies_of(environment)
    findings = verify_topics(reader, prefix, "earliest", policies, signatures=signatures)
    async with contextlib.aclosing(findings):
        return [placed async for placed in findings if placed.finding.status is not VerifyStatus.EQUAL]


class Office:
    """Sends claims to review and signed ReviewDecisions; workers that start later know its keys."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        path = folder / "keys.toml"
        for name in ("console", "gate"):
            new_key(path, name, tenants=["default"], roles=["reviewer"])
        with path.open("a") as file:
            file.write('\n[reviewers]\ndefault = ["lead"]\n')
        self.keys = Keys.load(path)
        self.deployment = deployment
        own = {"GROUNDWIRE_KEYS_FILE": str(path), "GROUNDWIRE_REVIEW_KEY": "gate"}
        deployment.environment = deployment.environment | own

    async def pending(self, number: int, **fields: object) -> Seen:
        content = f"Service {number} keeps {number * 7919} sessions"
        claim = good(number, **{"content": content, "source": "ai_synthesis", **fields})
        await self.deployment.produce([claim])
        return await self.deployment.decision(str(claim["claim_id"]))

    async def act(self, action: str, seen: Seen, *, key: str | None = "console", **fields: Any) -> str:
        """Send a person's decision about a decision; return the action's id."""
        decision = seen.json
        review = {
            "action_id": str(uuid.uuid4()),
            **{name: decision[name] for name in ("tenant_id", "user_id", "kind", "subject_id")},
            "expected_revision": decision["revision"],
            "action": action,
            "reviewer": decision["user_id"],
            **fields,
        }
        value = json.dumps(review).encode()
        headers = [("gw-attestation", self.keys.sign(key, value))] if key else []
        place = {"key": user_key(review), "topic": "review-decisions"}
        await (await self.deployment.send(value, headers=headers, **place))
        return str(review["action_id"])

    def audited(self, action_id: str) -> list[Seen]:
        events = self.deployment.seen["audit"]
        return [seen for seen in events if seen.json["detail"].get("action_id") == action_id]

    async def outcome(self, action_id: str) -> dict[str, Any]:
        await until(lambda: bool(self.audited(action_id)), lambda: f"action {action_id} is audited")
        return self.audited(action_id)[0].json


class Site:
    """A web site: `/ok/...` answers 200, `/gone/...` 404, `/hang/...` never, `/ill/...` 503 until `is_well`.

    Requests are counted by path.
    """

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.port = 0
        self.is_well = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def settings(self) -> dict[str, str]:
        allowed = {"GROUNDWIRE_ALLOW_NETWORKS": "127.0.0.0/8", "GROUNDWIRE_ALLOW_PORTS": str(self.port)}
        return {"GROUNDWIRE_NO_NETWORK": "", **allowed}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, IndexError):
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split()[1].decode()
            self.requests[path] += 1
            if path.startswith("/hang"):
                await reader.read()  # until the client goes
            else:
                ill = path.startswith("/ill") and not self.is_well
                status = b"404 Gone" if path.startswith("/gone") else b"503 Ill" if ill else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                await writer.drain()
        writer.close()


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
