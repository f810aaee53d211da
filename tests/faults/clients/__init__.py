"""Producers that are not ours: Apache Kafka's client, franz-go, librdkafka and aiokafka, each in a process of its own.

A process has the brokers and its name as arguments, and reads lines of fields between tabs: number, codec, end
("commit", "abort": a transaction of its own; empty: none), topic, key, value in base64 (-: null), traceparent. It
answers with number, partition and offset, or number, - and an error.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from deploy.embedded.process import find_program
from deploy.kafka.jars import find_java, jars_folder
from tests.faults.history import CLAIMS, RESPONSES, Place, Sent, traceparent
from tests.faults.load import Input, Inputs
from tests.stream.harness import BAD, Deployment, response, user_key

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
HOSTILE = "gamma"
"""The tenant that sends the worst that it may, from `hostile_since` on; its other records go on."""

_FOLDER = Path(__file__).parent
_FIELDS = ("claim_id", "tenant_id", "user_id", "content", "memory_type", "source")
_TRANSACTION_EVERY = 1.0  # seconds
_FRAMED = 0.1  # of the claims


def commands(scratch: Path) -> dict[str, list[str]]:
    """Return what starts each client; franz-go is built first. Raises: MissingServiceError, CalledProcessError."""
    go = find_program("go", "Go 1.24 or later")
    subprocess.run([go, "build", "-o", str(scratch.resolve() / "franz-go"), "."], cwd=_FOLDER, check=True)
    own = [sys.executable, str(_FOLDER / "client.py")]
    return {
        "java": [find_java(), "-Xmx256m", "-cp", f"{jars_folder()}/*", str(_FOLDER / "Client.java")],
        "franz-go": [str(scratch.resolve() / "franz-go")],
        "librdkafka": [*own, "librdkafka"],
        "aiokafka": [*own, "aiokafka"],
    }


class ForeignSender:
    """Sends inputs as `load.Sender` does, by all clients in turn, in all codecs, some framed for a schema registry.

    Each second one goes in a transaction; every second one of them is aborted: `aborted` has what nobody may decide.
    `sent_at`: when each acknowledged record was sent, by `time.monotonic`. `errors`: what clients said.
    """

    def __init__(
        self, deployment: Deployment, inputs: Inputs, rate: float, registry: str, scratch: Path
    ) -> None:
        self.crowd: tuple[str, str] | None = None
        self.hostile_since = math.inf
        self.sent: list[Sent] = []
        self.sent_at: dict[Place, float] = {}
        self.aborted: set[Place] = set()
        self.errors: list[str] = []
        self.total = 0
        self._deployment, self._inputs, self._rate = deployment, inputs, rate
        self._commands = commands(scratch)
        self._clients: dict[str, asyncio.subprocess.Process] = {}
        self._reading: list[asyncio.Task[None]] = []
        self._waiting: dict[int, tuple[Input, float, str]] = {}
        self._rng = random.Random("hostile")
        self._bad = _worst(self._rng)
        fields = [{"name": name, "type": "string"} for name in _FIELDS]
        schema = json.dumps({"type": "record", "name": "Claim", "fields": fields})
        self._avro = AvroSerializer(SchemaRegistryClient({"url": registry}), schema)
        self._where = SerializationContext(f"{deployment.prefix}claims", MessageField.VALUE)

    async def run(self) -> None:
        for name, command in self._commands.items():
            self._clients[name] = client = await asyncio.create_subprocess_exec(
                *command,
                self._deployment.broker.bootstrap,
                self._deployment.prefix + name,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            self._reading.append(asyncio.create_task(self._read(client)))
        names, codecs = itertools.cycle(self._clients), itertools.cycle(CODECS)
        ends = itertools.cycle(("commit", "abort"))
        due = time.monotonic()
        while True:
            await asyncio.sleep(1 / self._rate)
            if len(self._waiting) >= 1_000:
                continue
            end = ""
            if time.monotonic() >= due:
                end, due = next(ends), due + _TRANSACTION_EVERY
            await self._send(next(names), next(codecs), end, self._inputs.next())
            if self.crowd:
                await self._send(next(names), next(codecs), "", self._inputs.crowd(*self.crowd))
            if self.hostile_since < math.inf and self.total % 5 == 0:
                await self._send(next(names), next(codecs), "", next(self._bad))

    async def finish(self, seconds: float) -> None:
        for client in self._clients.values():
            assert client.stdin
            client.stdin.close()
        await asyncio.wait(self._reading, timeout=seconds)
        for client in self._clients.values():
            await client.wait()
        self.errors += [f"{len(self._waiting)} never acknowledged"] if self._waiting else []

    async def _send(self, name: str, codec: str, end: str, item: Input) -> None:
        self.total += 1
        if item.topic == CLAIMS and not item.bad and self._rng.random() < _FRAMED:
            fields = json.loads(item.value or b"")
            if sorted(fields) == sorted(_FIELDS):
                item = Input(item.topic, item.key, self._avro(fields, self._where))
        self._waiting[self.total] = item, time.monotonic(), end
        value = "-" if item.value is None else base64.b64encode(item.value).decode()
        _, header = traceparent(1, self.total)
        topic = self._deployment.prefix + item.topic
        line = "\t".join((str(self.total), codec, end, topic, item.key.decode(), value, header.decode()))
        stdin = self._clients[name].stdin
        assert stdin
        stdin.write(f"{line}\n".encode())
        await stdin.drain()

    async def _read(self, client: asyncio.subprocess.Process) -> None:
        assert client.stdout
        async for line in client.stdout:
            number, partition, rest = line.decode().rstrip("\n").split("\t", 2)
            item, at, end = self._waiting.pop(int(number))
            if partition == "-":
                self.errors.append(rest)
                continue
            place = item.topic, int(partition), int(rest)
            if end == "abort":
                self.aborted.add(place)
            else:
                self.sent.append(Sent(place, item.value, item.bad))
                self.sent_at[place] = at


def _worst(rng: random.Random) -> Iterator[Input]:
    """Yield records of the hostile tenant: as large, as deep and as costly as a record may be, and larger."""
    for number in itertools.count():
        owner = {"tenant_id": HOSTILE, "user_id": f"u{rng.randrange(12)}"}
        words = " ".join("".join(rng.choices("ghijklmnopqrstuvwxyz", k=7)) for _ in range(6))
        claim: dict[str, Any] = {
            "claim_id": f"worst-{number}",
            "source": "user",
            "memory_type": "fact",
            **owner,
        }
        nested = 10_000
        values: list[tuple[str, bytes | None, bool]] = [
            (CLAIMS, BAD[-1][0], True),
            (CLAIMS, b'{"metadata":' + b"[" * nested + b"]" * nested + b"}", True),
            (CLAIMS, _json({**claim, "content": f"{words} see ADR-{number} " * 1_500}), False),
            (CLAIMS, _json({**claim, "content": "(" * 9_000 + words + "[" * 9_000}), False),
            (CLAIMS, _json({**claim, "content": f"Module {words} keeps {number}"}), False),
            (RESPONSES, _json(response(10**6 + number, **owner, answer=f"{words}, 3 % [1]. " * 800)), False),
        ]
        topic, value, bad = rng.choice(values)
        yield Input(topic, user_key(owner), value, bad)


def _json(record: dict[str, Any]) -> bytes:
    return json.dumps(record, ensure_ascii=False).encode()
