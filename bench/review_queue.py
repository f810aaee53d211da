"""How long the operations of a review queue take, in memory and in Redis, empty and full.

    python bench/review_queue.py [--redis URL] [--items N] [--rounds N]

For every operation the median and the 99th percentile, in microseconds of wall-clock time as one caller sees them;
for Redis also the median by that of a bare round trip (PING) through the same client in the same run, which says
what the queue adds, whatever the machine. Items are enqueued for users of 100 items each; the callback of
approvals does nothing. Without --redis, the embedded server is started.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from deploy.embedded import EmbeddedRedis
from groundwire.library.review_queue import MemoryReviewStore, ReviewQueue, ReviewStore
from groundwire.library.review_queue.redis_store import RedisReviewStore
from groundwire.library.validator import ValidationResult
from groundwire.messages.decisions import EvidenceObject, IngestionTier
from groundwire.state.server import connect

CLAIM = "the ingest service retries every failed upload five times before it gives up and raises an alarm"
EVIDENCE = EvidenceObject(CLAIM, datetime(2026, 1, 31, 12, tzinfo=UTC), "medium")
RESULT = ValidationResult(
    tier=IngestionTier.FLAG_REVIEW,
    approved=False,
    reason="Ungrounded assertion needs verification",
    evidence=EVIDENCE,
    checks_passed=["no_speculation"],
    checks_failed=["citation_missing", "source_not_trusted: ai_synthesis"],
    similarity_score=None,
    conflicting_memory_id=None,
)
Times = dict[str, list[float]]


async def enqueue(queue: ReviewQueue, user: str) -> str:
    """Enqueue the claim."""
    return await queue.enqueue(user, CLAIM, "fact", "ai_synthesis", EVIDENCE, RESULT)


async def measure(
    store: ReviewStore, items: int, rounds: int, ping: Callable[[], Awaitable[object]] | None = None
) -> Times:
    """Fill a queue and time each operation on top of what is there, in turn with bare round trips."""
    queue = ReviewQueue(lambda _: "m", store=store, max_total=items + 100)
    for number in range(items):
        await enqueue(queue, f"user-{number // 100}")
    times: Times = {}

    async def timed(name: str, call: Awaitable[object]) -> object:
        start = time.perf_counter()
        answer = await call
        times.setdefault(name, []).append((time.perf_counter() - start) * 1e6)
        return answer

    for _ in range(10):
        await enqueue(queue, "ada")
    for _ in range(rounds):
        if ping:
            await timed("PING", ping())
        first = str(await timed("enqueue", enqueue(queue, "ada")))
        second = await enqueue(queue, "ada")
        await timed("get_pending(10)", queue.get_pending("ada"))
        await timed("get_by_id", queue.get_by_id(first, "ada"))
        await timed("approve", queue.approve(first, "ada"))
        await timed("reject", queue.reject(second, "ada", "wrong"))
        await timed("history(50)", queue.history("ada"))
    return times


def show(store: str, items: int, times: Times) -> None:
    """Print a line for each operation."""
    ping = statistics.median(times["PING"]) if "PING" in times else None
    for name, found in times.items():
        cuts = statistics.quantiles(found, n=100)
        ratio = "" if ping is None else f"{cuts[49] / ping:8.1f}"
        print(f"{store:8}{items:8}  {name:18}{cuts[49]:10.0f}{cuts[98]:10.0f}{ratio}")


async def run(url: str, sizes: list[int], rounds: int) -> None:
    """Measure both stores at each size and print."""
    print(f"{'store':8}{'items':>8}  {'operation':18}{'median us':>10}{'p99 us':>10}{'by ping':>8}")
    for items in sizes:
        show("memory", items, await measure(MemoryReviewStore(), items, rounds))
    client = connect(url)
    for items in sizes:
        prefix = f"bench-{uuid.uuid4().hex}."
        show("redis", items, await measure(RedisReviewStore(client, prefix), items, rounds, client.ping))
        async for key in client.scan_iter(f"{prefix}*"):
            await client.delete(key)
    await client.aclose()


def main() -> None:
    """Read the options, start a server where none is named, and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis", help="URL of a server to use; what is written there is deleted again")
    parser.add_argument(
        "--items", type=int, nargs="+", default=[0, 10_000], help="items of others in the queue"
    )
    parser.add_argument("--rounds", type=int, default=1000, help="calls of each operation (default 1000)")
    options = parser.parse_args()
    if min(options.items) < 0 or options.rounds < 2:
        parser.error("--items must be at least 0 and --rounds at least 2")
    if options.redis:
        asyncio.run(run(options.redis, options.items, options.rounds))
        return
    server = EmbeddedRedis()
    server.start()
    try:
        asyncio.run(run(server.url, options.items, options.rounds))
    finally:
        server.close()


if __name__ == "__main__":
    main()
