"""Answer again where the gate asks for it: a generator on the `regenerate` topic.

    python examples/generator.py --database generator.sqlite

Needs aiokafka only. It answers without a model, by quoting sentences of the sources: put your own in `answer`.
A generator's part of the contract:

- a request names the response that was too weak, the mode to use now, and holds a grounded prompt; the answer
  is a new response, `in_reply_to` the old one, with everything that it rests on, so that it is checked as well;
- it comes at least once: the id of the answer is made from the id of the request, and an answer is kept before it
  is sent, so that a repeat sends the same bytes. The gate would refuse another answer under an id that it knows;
- commit the offset when the broker has the answer. The gate asks at most twice in a row, so this ends.

A generator of your own knows what it retrieved for a response. This one has retrieved nothing: it reads along on
`llm-responses`, and remembers the chunks of the latest responses in its database.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import signal
import sqlite3
import sys
import uuid
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import CommitFailedError

TABLES = """
CREATE TABLE IF NOT EXISTS served (
    tenant_id TEXT, user_id TEXT, response_id TEXT, given TEXT NOT NULL, PRIMARY KEY (tenant_id, user_id, response_id)
);
CREATE TABLE IF NOT EXISTS answers (request_id TEXT PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL);
"""

NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:example:generator")
NOT_FOUND = "Not found in provided sources"
KEPT = ("scope", "chunks", "current_revisions")  # what a next answer to the same question rests on
COMMON = {"what", "which", "when", "where", "does", "with", "from", "that", "this", "have", "there", "come"}
QUOTES = {"instant": 1, "auto": 3, "thinking": 5}
LONGEST_QUOTE = 500
LARGEST_RECORD = 900_000  # bytes: what the gate still reads

# what a record that is none leads to; an error of the database itself, a full disk, is none of these
MALFORMED = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError),
    *(sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.IntegrityError),
)


async def answer(request: dict[str, Any], chunks: list[dict[str, Any]]) -> tuple[str, list[dict[str, str]]]:
    """Return an answer and the sources that it cites. Here goes the call of your model.

    A model is given `request["prompt"]`: the question and the numbered sources, with the rules for citing them.
    `request["flagged"]` says what was wrong with the last answer.
    """
    asked = words(request["query"] or "")
    sentences = [
        (len(asked & words(sentence)), number, sentence.strip())
        for number, chunk in enumerate(chunks, 1)
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", chunk["content"])
        if len(sentence) <= LONGEST_QUOTE and "[source:" not in sentence
    ]
    best = sorted((one for one in sentences if one[0]), key=lambda one: -one[0])[: QUOTES[request["mode"]]]
    text = "\n".join(f"{sentence} [source:{number}]" for _, number, sentence in best)
    return text or NOT_FOUND, [{"file": chunks[n - 1]["file"], "snippet": quote} for _, n, quote in best]


def words(text: str) -> set[str]:
    """Return the words that a question and its answer may share."""
    return set(re.findall(r"\w{4,}", text.lower())) - COMMON


def response(
    request: dict[str, Any], given: dict[str, Any], text: str, sources: list[dict[str, str]]
) -> bytes:
    """Build the LlmResponse 1.0 that answers a request."""
    fields = {
        "response_id": str(uuid.uuid5(NAMESPACE, request["request_id"])),
        "in_reply_to": request["response_id"],
        **{name: request[name] for name in ("tenant_id", "user_id", "query", "mode")},
        "answer": text,
        "sources": sources,
        **given,
    }
    value = json.dumps(fields, ensure_ascii=False).encode()
    if len(value) > LARGEST_RECORD:
        raise ValueError("the answer and its chunks are too large for a record")
    return value


class Memory:
    """What was served, and what was answered; only the latest of both."""

    def __init__(self, path: str, size: int) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.executescript(TABLES)
        self.size = size

    def positions(self) -> dict[int, int]:
        """Return up to where `llm-responses` was read, by partition."""
        return dict(self.connection.execute("SELECT partition, offset FROM positions"))

    def read(self, records: list[Any]) -> None:
        """Remember what responses were given, and how far they were read."""
        with self.connection:
            for record in records:
                with contextlib.suppress(*MALFORMED):  # the gate makes a dead letter of it
                    self._serve(json.loads(record.value))
                place = (record.partition, record.offset + 1)
                self.connection.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", place)
            self._forget("served")

    def given(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Return what the response of a request was given, or None where it is not known."""
        query = "SELECT given FROM served WHERE tenant_id = ? AND user_id = ? AND response_id = ?"
        key = [request[name] for name in ("tenant_id", "user_id", "response_id")]
        row = self.connection.execute(query, key).fetchone()
        return json.loads(row[0]) if row else None

    def answered(self, request_id: str) -> bytes | None:
        """Return the answer that a request was given before, or None."""
        query = "SELECT value FROM answers WHERE request_id = ?"
        row = self.connection.execute(query, (request_id,)).fetchone()
        return row[0] if row else None

    def keep(self, request_id: str, value: bytes) -> None:
        """Remember an answer."""
        with self.connection:
            self.connection.execute("INSERT INTO answers VALUES (?, ?)", (request_id, value))
            self._forget("answers")

    def _serve(self, one: dict[str, Any]) -> None:
        key = (one.get("tenant_id", "default"), one["user_id"], one["response_id"])
        given = {"chunks": [], **{name: one[name] for name in KEPT if name in one}}
        # the first record of an id is the one that counts
        self.connection.execute("INSERT OR IGNORE INTO served VALUES (?, ?, ?, ?)", (*key, json.dumps(given)))

    def _forget(self, table: str) -> None:
        oldest = f"(SELECT max(rowid) FROM {table}) - {self.size}"  # noqa: S608 - names and numbers of ours
        self.connection.execute(f"DELETE FROM {table} WHERE rowid <= {oldest}")  # noqa: S608 - as above


class Generator:
    """Reads requests as a member of a group, and all of `llm-responses` beside them; sends answers there."""

    def __init__(self, given: argparse.Namespace, memory: Memory) -> None:
        self.memory = memory
        self.topic = f"{given.prefix}llm-responses"
        reading = {
            "bootstrap_servers": given.brokers,
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
            "isolation_level": "read_committed",
        }
        self.requests = AIOKafkaConsumer(f"{given.prefix}regenerate", group_id=given.group, **reading)
        self.responses = AIOKafkaConsumer(group_id=None, **reading)
        self.producer = AIOKafkaProducer(
            bootstrap_servers=given.brokers, enable_idempotence=True, max_request_size=1_000_000
        )

    async def run(self, idle: float | None) -> None:
        async with self.responses, self.requests, self.producer:
            partitions = await self._follow()
            loop = asyncio.get_running_loop()
            came = loop.time()
            while idle is None or loop.time() - came < idle:
                fetched = await self.requests.getmany(timeout_ms=500, max_records=100)
                # a response comes before the request for a better one, so to the end of the topic is far enough
                await self._catch_up(partitions)
                if records := [record for batch in fetched.values() for record in batch]:
                    await self._answer(records)
                    came = loop.time()

    async def _follow(self) -> list[TopicPartition]:
        numbers = await self.producer.partitions_for(self.topic)
        partitions = [TopicPartition(self.topic, number) for number in sorted(numbers)]
        self.responses.assign(partitions)
        known = self.memory.positions()
        for partition in partitions:
            self.responses.seek(partition, known.get(partition.partition, 0))
        return partitions

    async def _catch_up(self, partitions: list[TopicPartition]) -> None:
        ends = await self.responses.end_offsets(partitions)
        while any([await self.responses.position(one) < ends[one] for one in partitions]):
            fetched = await self.responses.getmany(timeout_ms=500, max_records=100)
            self.memory.read([record for batch in fetched.values() for record in batch])

    async def _answer(self, records: list[Any]) -> None:
        sent = []
        for record in records:
            try:
                request = json.loads(record.value)
                value = await self._value(request)
                key = f"{request['tenant_id']}:{request['user_id']}".encode()
            except MALFORMED as exc:  # not of the gate, or nothing that can be answered: say so, and go on
                where = f"{record.topic}[{record.partition}]@{record.offset}"
                print(f"skipped {where}: {type(exc).__name__}: {exc}", file=sys.stderr)
                continue
            trace = [header for header in record.headers if header[0] == "traceparent"]
            sent.append((request, await self.producer.send(self.topic, value, key, headers=trace)))
        for request, acknowledged in sent:
            await acknowledged
            print(f"{request['response_id']!r} answered again in mode {request['mode']}", flush=True)
        # a partition that went to another member meanwhile is answered again there, with the same ids
        with contextlib.suppress(CommitFailedError):
            await self.requests.commit()

    async def _value(self, request: dict[str, Any]) -> bytes:
        value = self.memory.answered(request["request_id"])
        if value is None:
            given = self.memory.given(request)
            if given is None:
                raise ValueError("the response is not known here")
            value = response(request, given, *await answer(request, given["chunks"]))
            self.memory.keep(request["request_id"], value)
        return value


async def run(given: argparse.Namespace) -> None:
    memory = Memory(given.database, given.remember)
    task = asyncio.create_task(Generator(given, memory).run(given.exit_when_idle))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError), contextlib.closing(memory.connection):
        await task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("--database", default="generator.sqlite", help="SQLite file (default: generator.sqlite)")
    option("--remember", type=int, default=1000, help="responses and answers kept (default: 1000)")
    option("--group", default="example-generator", help="consumer group")
    option(
        "--prefix",
        default=os.environ.get("GROUNDWIRE_TOPIC_PREFIX", "groundwire."),
        help="before every topic's name",
    )
    option("--brokers", default=os.environ.get("GROUNDWIRE_BROKERS", "127.0.0.1:9092"))
    option("--exit-when-idle", type=float, metavar="SECONDS", help="stop after so long a silence")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
