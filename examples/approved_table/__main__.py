"""Keep approved claims in a table: an idempotent consumer of Groundwire's decisions.

    python examples/approved_table --database memories.sqlite
    python examples/approved_table --database postgresql://app@db.example/memories

Needs aiokafka and, where the table is in PostgreSQL, what `requirements-postgresql.txt` names. A consumer's part of
the contract:

- a record may come more than once: drop a `ce_id` that was seen;
- topics may be read in any order: of a subject, (tenant, user, kind, id), the highest revision is true;
- an approval can be withdrawn: read `retractions` too, and note those that come before what they withdraw;
- a record of `retractions` without a value erases a user: delete what was decided up to its `ce_time`;
- fields that are not known here are ignored, not refused;
- commit the offset after the table's own transaction: a crash in between repeats records, and the first rule
  makes that harmless.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError
from table import Event, Table, read

TOPICS = ("approved", "review", "blocked", "retractions")


def events(records: list[Any]) -> list[Event]:
    """Read records; only the gate writes to these topics, so a record that cannot be read is logged and skipped."""
    found = []
    for record in records:
        try:
            event = read(record.headers, record.value, record.key)
        except (ValueError, RecursionError) as exc:
            where = f"{record.topic}[{record.partition}]@{record.offset}"
            print(f"skipped {where}: {type(exc).__name__}", file=sys.stderr)
        else:
            found += [event] if event else []
    return found


async def consume(brokers: str, group: str, prefix: str, table: Table, idle: float | None) -> None:
    """Follow the topics until cancelled, or until nothing has come for `idle` seconds."""
    consumer = AIOKafkaConsumer(
        *(f"{prefix}{topic}" for topic in TOPICS),
        bootstrap_servers=brokers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    await consumer.start()
    loop = asyncio.get_running_loop()
    came = loop.time()
    try:
        while idle is None or loop.time() - came < idle:
            fetched = await consumer.getmany(timeout_ms=500, max_records=500)
            records = [record for batch in fetched.values() for record in batch]
            if records:
                table.apply(events(records))
                # a partition that went to another member meanwhile is read again there, and dropped as repeats
                with contextlib.suppress(CommitFailedError):
                    await consumer.commit()
                came = loop.time()
    finally:
        await consumer.stop()


async def run(given: argparse.Namespace) -> None:
    with contextlib.closing(Table(given.database)) as table:
        following = consume(given.brokers, given.group, given.prefix, table, given.exit_when_idle)
        task = asyncio.create_task(following)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--database",
        default="memories.sqlite",
        help="SQLite file, or postgresql://... (default: memories.sqlite)",
    )
    parser.add_argument("--group", default="example-approved", help="consumer group")
    parser.add_argument(
        "--prefix",
        default=os.environ.get("GROUNDWIRE_TOPIC_PREFIX", "groundwire."),
        help="before every topic's name",
    )
    parser.add_argument("--brokers", default=os.environ.get("GROUNDWIRE_BROKERS", "127.0.0.1:9092"))
    parser.add_argument(
        "--exit-when-idle", type=float, metavar="SECONDS", help="stop after so long a silence"
    )
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
