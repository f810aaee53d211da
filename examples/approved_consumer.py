"""Keep approved claims in a table: an idempotent consumer of Groundwire's decisions.

    python examples/approved_consumer.py --database memories.sqlite

Needs aiokafka only. A consumer's part of the contract:

- a record may come more than once: drop a `ce_id` that was seen;
- topics may be read in any order: of a subject, (tenant, user, kind, id), the highest revision is true;
- an approval can be withdrawn: read `retractions` too, and note those that come before what they withdraw;
- fields that are not known here are ignored, not refused;
- commit the offset after the table's own transaction: a crash in between repeats records, and the first rule
  makes that harmless.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError

TABLES = """
CREATE TABLE IF NOT EXISTS memories (
    tenant_id TEXT, user_id TEXT, kind TEXT, subject_id TEXT,
    revision INTEGER NOT NULL, decision_id TEXT NOT NULL, content TEXT, confidence TEXT, valid_until TEXT,
    PRIMARY KEY (tenant_id, user_id, kind, subject_id)
);
CREATE TABLE IF NOT EXISTS retracted (decision_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS seen (ce_id TEXT PRIMARY KEY);
"""

APPROVE = """
INSERT INTO memories VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    revision = excluded.revision, decision_id = excluded.decision_id, content = excluded.content,
    confidence = excluded.confidence, valid_until = excluded.valid_until
WHERE excluded.revision > memories.revision
"""

# what a record that is no decision leads to; an error of the database itself, a full disk, is none of these
MALFORMED = (
    *(KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError),
    *(sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.IntegrityError),
)


class Table:
    """The memories, and what has to be remembered of the stream to keep them right."""

    def __init__(self, path: str) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.executescript(TABLES)

    def apply(self, records: list[Any]) -> None:
        """Apply records in one transaction."""
        with self.connection:
            for record in records:
                try:
                    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
                    self._apply(headers["ce_type"], headers["ce_id"], json.loads(record.value))
                except MALFORMED as exc:
                    # only the gate writes to these topics: tell somebody, and go on
                    where = f"{record.topic}[{record.partition}]@{record.offset}"
                    print(f"skipped {where}: {type(exc).__name__}", file=sys.stderr)

    def _apply(self, kind: str, event_id: str, event: dict[str, Any]) -> None:
        if self.connection.execute("SELECT 1 FROM seen WHERE ce_id = ?", (event_id,)).fetchone():
            return
        if kind == "groundwire.decision.v1" and event["approved"]:
            self._approve(event)
        elif kind == "groundwire.retraction.v1":
            self._retract(event["supersedes"])
        self.connection.execute("INSERT INTO seen VALUES (?)", (event_id,))

    def _approve(self, event: dict[str, Any]) -> None:
        withdrawn = "SELECT 1 FROM retracted WHERE decision_id = ?"
        if self.connection.execute(withdrawn, (event["decision_id"],)).fetchone():
            return
        subject = (event["tenant_id"], event["user_id"], event["kind"], event["subject_id"])
        evidence = event["evidence"] or {}  # a response has none: its answer is not repeated
        content = (evidence.get("claim"), evidence.get("confidence"), evidence.get("validity_horizon"))
        self.connection.execute(APPROVE, (*subject, event["revision"], event["decision_id"], *content))

    def _retract(self, decision_id: str) -> None:
        self.connection.execute("INSERT OR IGNORE INTO retracted VALUES (?)", (decision_id,))
        self.connection.execute("DELETE FROM memories WHERE decision_id = ?", (decision_id,))


async def consume(brokers: str, group: str, prefix: str, table: Table, idle: float | None) -> None:
    """Follow the topics until cancelled, or until nothing has come for `idle` seconds."""
    consumer = AIOKafkaConsumer(
        f"{prefix}approved",
        f"{prefix}retractions",
        bootstrap_servers=brokers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await consumer.start()
    loop = asyncio.get_running_loop()
    came = loop.time()
    try:
        while idle is None or loop.time() - came < idle:
            fetched = await consumer.getmany(timeout_ms=500, max_records=500)
            records = [record for batch in fetched.values() for record in batch]
            if records:
                table.apply(records)
                # a partition that went to another member meanwhile is read again there, and dropped as repeats
                with contextlib.suppress(CommitFailedError):
                    await consumer.commit()
                came = loop.time()
    finally:
        await consumer.stop()


async def run(given: argparse.Namespace) -> None:
    """Consume until SIGTERM or Ctrl-C."""
    table = Table(given.database)
    task = asyncio.create_task(consume(given.brokers, given.group, given.prefix, table, given.exit_when_idle))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError), contextlib.closing(table.connection):
        await task


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--database", default="memories.sqlite", help="SQLite file (default: memories.sqlite)"
    )
    parser.add_argument("--group", default="example-approved", help="consumer group")
    parser.add_argument("--prefix", default="groundwire.", help="before every topic's name")
    parser.add_argument("--brokers", default=os.environ.get("GROUNDWIRE_BROKERS", "127.0.0.1:9092"))
    parser.add_argument(
        "--exit-when-idle", type=float, metavar="SECONDS", help="stop after so long a silence"
    )
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
