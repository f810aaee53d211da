"""Steady load for an hour: how fast records are decided, and whether memory, files or keys grow.

    .venv/bin/python bench/soak.py --minutes 60 --rate 10 --late 1 --responses 1 --svg docs/trust/soak.svg

Every second `--rate` claims cite nothing, `--late` claims cite pages that take `--delay` seconds to answer, within the
budget of a citation, and `--responses` responses are checked against their context. A user writes forty claims and is
never heard of again. Each line tells an interval: how many were decided, how long the claims that cite nothing
took from their record's time to their decision (seconds), what the workers hold (MB, open files), and what Redis has
grown by (MB). Ends with status 1 where something was not decided, and where the last third of the time differs from the
second: a tenth more memory in workers, more open files, or a tenth more of Redis for each record.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from redis.asyncio import Redis

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from bench.plot import curves_svg  # noqa: E402 - needs the path above
from groundwire.messages.base import parse_time  # noqa: E402 - needs the path above
from tests.services.brokers import start_broker  # noqa: E402
from tests.services.redis_servers import start_redis  # noqa: E402
from tests.services.serving import serving  # noqa: E402
from tests.stream.harness import Deployment, Seen, Site, Worker, good  # noqa: E402

ROLES = ("claims", "deferred", "responses")
CLAIMS_OF_A_USER = 40
GROWTH = 1.1
CURVES = {
    "held": "MB that workers hold",
    "files": "open files of workers",
    "redis": "MB that Redis uses",
    "p99": "s to a decision, p99",
}
FILES = 8
"""More open files than before that are no leak: connections come and go."""


@dataclass(frozen=True)
class Interval:
    """What was seen at the end of an interval.

    Attributes:
        minutes: since the beginning.
        decided: records, in this interval.
        p50, p99: seconds from the time of a record that cites nothing to its decision; 0 where there was none.
        held: MB of memory of all workers.
        files: open files of all workers.
        redis: MB that Redis uses beyond what it used when empty.
        remembered: records decided since the beginning.
    """

    minutes: float
    decided: int
    p50: float
    p99: float
    held: float
    files: int
    redis: float
    remembered: int


class LateSite(Site):
    def __init__(self, delay: float) -> None:
        super().__init__()
        self.delay = delay

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(self.delay)
        await super().serve(reader, writer)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=10)
    parser.add_argument("--late", type=int, default=1)
    parser.add_argument("--responses", type=int, default=1)
    parser.add_argument("--delay", type=float, default=4)
    parser.add_argument("--interval", type=float, default=10, help="seconds of an interval")
    parser.add_argument("--json", type=Path, help="write what was seen here, a JSON line an interval")
    parser.add_argument("--svg", type=Path, help="draw memory, files, Redis and latency over time")
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
    async with serving(site.serve) as site.port, Redis.from_url(made.redis.url) as redis:
        made.environment |= site.settings
        async with made:
            workers = await made.start_workers(*ROLES)
            empty = await _used(redis)
            sent, seen = await _feed(made, workers, redis, empty, site.url, options)
            await made.settled(sent, seconds=60)
    print(f"all {sent} are decided")
    return _judge(seen)


async def _feed(
    made: Deployment,
    workers: Sequence[Worker],
    redis: Redis,
    empty: int,
    url: str,
    options: argparse.Namespace,
) -> tuple[int, list[Interval]]:
    """Send, second by second; return how many were sent, and what was seen."""
    numbers, sent, told, seen = count(), 0, 0, list[Interval]()
    print("minutes  decided  p50 s  p99 s  held MB  files  Redis MB")
    for interval in range(1, max(6, round(options.minutes * 60 / options.interval)) + 1):
        for _ in range(round(options.interval)):
            claims = list(_claims(numbers, options, url))
            answers = [_response(next(numbers)) for _ in range(options.responses)]
            await made.produce(claims)
            await made.produce(answers, topic="llm-responses")
            sent += len(claims) + len(answers)
            await asyncio.sleep(1)
        decisions = made.decisions
        fresh, told = decisions[told:], len(decisions)
        p50, p99 = _delays(fresh)
        held, files = sum(map(_megabytes, workers)), sum(map(_files, workers))
        grown = (await _used(redis) - empty) / 1e6
        now = Interval(interval * options.interval / 60, len(fresh), p50, p99, held, files, grown, told)
        seen.append(now)
        print(
            f"{now.minutes:7.1f}  {now.decided:7}  {p50:5.2f}  {p99:5.2f}  {held:7.0f}  {files:5}  {grown:8.1f}",
            flush=True,
        )
        if options.json:
            options.json.write_text("".join(json.dumps(asdict(one)) + "\n" for one in seen))
    if options.svg:
        minutes = [one.minutes for one in seen]
        curves = {title: [getattr(one, name) for one in seen] for name, title in CURVES.items()}
        options.svg.write_text(curves_svg(minutes, curves), "utf-8")
    return sent, seen


def _judge(seen: Sequence[Interval]) -> int:
    """Compare the last third with the second; the first is warm-up."""
    third = len(seen) // 3
    middle, last = seen[third : 2 * third], seen[-third:]

    def medians(name: str) -> tuple[float, float]:
        first, second = (statistics.median(getattr(one, name) for one in part) for part in (middle, last))
        return first, second

    held, files = medians("held"), medians("files")
    before = (middle[-1].redis - middle[0].redis) / max(1, middle[-1].remembered - middle[0].remembered)
    after = (last[-1].redis - last[0].redis) / max(1, last[-1].remembered - last[0].remembered)
    print(f"workers held {held[0]:.0f} MB, then {held[1]:.0f}; {files[0]:.0f} files, then {files[1]:.0f}")
    print(f"Redis grew by {before * 1e6:.0f} bytes a record, then by {after * 1e6:.0f}")
    grew = held[1] > GROWTH * held[0] or files[1] > files[0] + FILES or after > GROWTH * before
    return int(grew)


def _claims(numbers: Iterator[int], options: argparse.Namespace, url: str) -> Iterator[dict[str, Any]]:
    for number in (next(numbers) for _ in range(options.rate)):
        yield good(number, user_id=f"u{number // CLAIMS_OF_A_USER}")
    for number in (next(numbers) for _ in range(options.late)):
        text = f"Fact {number} is told, see {url}/ok/{number}"
        yield good(number, claim_id=f"late{number}", user_id=f"late{number}", content=text)


def _response(number: int) -> dict[str, Any]:
    told = f"Shard {number} keeps the records of tenant {number} on the second disk."
    return {"response_id": f"r{number}", "user_id": f"u{number}", "answer": told, "context": {"a": told}}


def _delays(decided: Sequence[Seen]) -> tuple[float, float]:
    """Return the median and the 99th percentile of what took how long, in seconds."""
    took = sorted(
        (parse_time(seen.json["decided_at"]) - parse_time(seen.json["origin"]["timestamp"])).total_seconds()
        for seen in decided
        if seen.json["subject_id"].startswith("c")
    ) or [0.0]
    return took[len(took) // 2], took[int(len(took) * 0.99)]


async def _used(redis: Redis) -> int:
    return int((await redis.info("memory"))["used_memory"])


def _megabytes(worker: Worker) -> float:
    status = Path(f"/proc/{worker.process.pid}/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def _files(worker: Worker) -> int:
    return sum(1 for _ in Path(f"/proc/{worker.process.pid}/fd").iterdir())


if __name__ == "__main__":
    sys.exit(main())
