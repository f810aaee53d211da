"""Keep the claims that are approved in a vector store, and look for those that are like a question.

    python examples/vector_store follow --database postgresql://127.0.0.1/memories
    python examples/vector_store search --database postgresql://127.0.0.1/memories --user maria "Which database?"

Needs `groundwire[client]` and psycopg, and PostgreSQL with pgvector 0.5 or later. `follow` reads all that was ever
approved or withdrawn, makes the table hold what is left of it, and goes on with what comes: edits, withdrawals and
erasures too. It may be ended at any time: the next start finds what was missed. A second one waits for the first.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import signal
import zlib
from collections.abc import Iterable

from store import Vector, VectorStore

from groundwire.client import ApprovedTable, Memory, changes
from groundwire.messages.identity import Subject

DIMENSIONS = 256


def embed(texts: list[str]) -> Iterable[Vector]:
    """Count the words of each text in buckets. It needs no model, and knows no synonyms: put yours here."""
    for text in texts:
        vector = [0.0] * DIMENSIONS
        for word in re.findall(r"\w+", text.lower()):
            vector[zlib.crc32(word.encode()) % DIMENSIONS] += 1.0
        yield vector


async def follow(store: VectorStore, brokers: str, prefix: str) -> None:
    """Carry every change of what is approved into the store, until cancelled."""
    store.be_the_only_writer()
    held: dict[Subject, Memory] = {}
    caught_up = False

    def hold_what_is_left() -> None:
        nonlocal caught_up
        store.hold_only(held.values())
        held.clear()
        caught_up = True
        print("caught up", flush=True)

    following = changes(ApprovedTable(), brokers=brokers, topic_prefix=prefix, at_end=hold_what_is_left)
    async for subject, memory in following:
        if not caught_up:  # what is over by now is never written
            held.pop(subject, None)
            held |= {subject: memory} if memory else {}
        elif memory:
            store.write([memory])
        else:
            store.delete(subject.tenant_id, subject.user_id, subject.subject_id)


async def until_stopped(store: VectorStore, brokers: str, prefix: str) -> None:
    task = asyncio.create_task(follow(store, brokers, prefix))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    following = commands.add_parser("follow", help="keep the store right")
    following.add_argument("--brokers", default=os.environ.get("GROUNDWIRE_BROKERS", "127.0.0.1:9092"))
    following.add_argument(
        "--prefix",
        default=os.environ.get("GROUNDWIRE_TOPIC_PREFIX", "groundwire."),
        help="before every topic's name",
    )
    searching = commands.add_parser("search", help="look for what is like a question")
    searching.add_argument("query")
    searching.add_argument("--user", required=True)
    searching.add_argument("--tenant", default="default")
    for command in (following, searching):
        command.add_argument("--database", required=True, help="postgresql://...")
    given = parser.parse_args()
    with contextlib.closing(VectorStore(given.database, embed)) as store:
        if given.command == "follow":
            asyncio.run(until_stopped(store, given.brokers, given.prefix))
        else:
            for found in store.nearest(given.tenant, given.user, given.query):
                print(f"{found.likeness:.2f} {found.claim_id} {found.content}")


if __name__ == "__main__":
    main()
