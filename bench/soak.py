"""Claims on time beside a site that answers late, for minutes: how fast they are decided, how large workers grow.

    .venv/bin/python bench/soak.py --minutes 10 --rate 20 --late 2

Every second `--late` claims cite pages that take `--delay` seconds to answer, within the budget of a citation, and
`--rate` claims cite nothing. Each line tells a stretch of ten seconds: how many of both were decided, how long the
others took from their record's time to their decision (seconds), and what the workers hold (MB). Ends with status 1
where something was not decided, or where workers hold a quarter more at the end than after a third of the time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from groundwire.messages.base import parse_time  # noqa: E402 - needs the path above
from tests.services.brokers import start_broker  # noqa: E402
from tests.services.redis_servers import start_redis  # noqa: E402
from tests.stream.harness import Deployment, Seen, Worker, good  # noqa: E402
from tests.stream.site import Site  # noqa: E402

STRETCH = 10
GROWTH = 1.25


class LateSite(Site):
    """Answers as ever, but late."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.delay = delay

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.delay)
        await super()._serve(reader, writer)


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=20)
    parser.add_argument("--late", type=int, default=2)
    parser.add_argument("--delay", type=float, default=4)
    options = parser.parse_args()
    broker, redis = start_broker(), start_redis()
    try:
        with TemporaryDirectory(prefix="soak-") as folder:
            return asyncio.run(_soak(Deployment(broker, redis, Path(folder)), options))
    finally:
        redis.close()
        broker.close()


async def _soak(made: Deployment, options: argparse.Namespace) -> int:
    site = LateSite(options.delay)
    await site.start()
    made.environment |= site.settings
    stretches = max(3, round(options.minutes * 60 / STRETCH))
    async with made:
        workers = await made.start_workers("claims", "deferred")
        numbers, held, told, sent = count(), list[float](), set[str](), 0
        print("decided  late  p50 s  p99 s  held MB")
        for _ in range(stretches):
            for _ in range(STRETCH):
                batch = list(_batch(numbers, options, site.url))
                sent += len(batch)
                await made.produce(batch)
                await asyncio.sleep(1)
            held.append(sum(_megabytes(worker) for worker in workers))
            decided = [seen for seen in made.decisions if seen.json["decision_id"] not in told]
            told |= {seen.json["decision_id"] for seen in decided}
            _tell(decided, held[-1])
        await made.settled(sent, seconds=60)
    await site.stop()
    settled = held[len(held) // 3]
    print(f"all {sent} are decided; {settled:.0f} MB were held after a third, {held[-1]:.0f} MB at the end")
    return int(held[-1] > GROWTH * settled)


def _batch(numbers: Iterator[int], options: argparse.Namespace, url: str) -> Iterator[dict[str, Any]]:
    """Yield the claims of a second."""
    for number in (next(numbers) for _ in range(options.rate)):
        yield good(number)
    for number in (next(numbers) for _ in range(options.late)):
        text = f"Fact {number} is told, see {url}/ok/{number}"
        yield good(number, claim_id=f"late{number}", user_id=f"late{number}", content=text)


def _tell(decided: list[Seen], held: float) -> None:
    others = [seen for seen in decided if not seen.json["subject_id"].startswith("late")]
    took = sorted(
        (parse_time(seen.json["decided_at"]) - parse_time(seen.json["origin"]["timestamp"])).total_seconds()
        for seen in others
    ) or [0.0]
    p50, p99 = took[len(took) // 2], took[int(len(took) * 0.99)]
    print(f"{len(others):7}  {len(decided) - len(others):4}  {p50:5.2f}  {p99:5.2f}  {held:7.0f}")


def _megabytes(worker: Worker) -> float:
    """What a worker holds in memory (Linux)."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    sys.exit(main())
