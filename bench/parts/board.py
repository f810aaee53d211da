"""The review queue at size: a kept board that is opened and listed, beside one that is read anew."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.claims import claims
from bench.inside import batches, new_gate
from bench.measure import Figure, Options, Part, Target
from groundwire.gate.types import Decided
from groundwire.messages.base import to_milliseconds
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import TopicName, record_key
from groundwire.policy import Policy
from groundwire.review.board import Board

_DIFFERENT = 2_000
_LIST = """
import sys
from datetime import UTC, datetime, timedelta
from groundwire.review.board import Board
from groundwire.review.model import Query
from groundwire.review.permissions import ViewScope
with Board(sys.argv[1]) as board:
    board.resume(datetime.now(UTC))
    board.candidates()
    board.forget(datetime.now(UTC) - timedelta(days=30))
    page = board.pending(ViewScope("lead", frozenset({"default"}), frozenset()), Query(limit=50))
    # not ru_maxrss: that of the process which started this one counts in it
    (peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(page.total, peak)
"""
"""What a start of `review list` does beside reading what is new."""


async def _decided() -> list[tuple[str, bytes, bytes]]:
    """Return topic, key and value of some decisions, of which others are made by their ids."""
    gate, found = new_gate(Policy()), []
    for batch in batches(claims(_DIFFERENT)):
        for result in await gate.apply_step(await gate.prepare(batch)):
            if isinstance(result, Decided):
                made = result.decision
                key = record_key(made.tenant_id, made.user_id)
                found.append((TopicName.of(made.verdict).value, key, made.to_bytes()))
    return found


def _records(decided: list[tuple[str, bytes, bytes]], count: int) -> Iterator[list[InboundRecord]]:
    """Yield batches of decisions, ten thousand of them in review at most, as `review_total` allows."""
    at, page, waiting = to_milliseconds(datetime.now(UTC)), [], 0
    for number in range(count):
        topic, key, value = decided[number % len(decided)]
        if topic == TopicName.REVIEW:
            waiting += 1
            if waiting > 10_000:
                continue
        named = value.replace(b'"claim-', b'"n%d-' % number).replace(
            b'{"decision_id":"', b'{"decision_id":"%08x' % number, 1
        )
        page.append(InboundRecord(topic, number % 8, number, at, key, named))
        if len(page) == 500:
            yield page
            page = []
    yield page


def _list(path: Path) -> tuple[float, float]:
    """Return seconds and megabytes of a process that lists the queue of a kept board."""
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", _LIST, str(path)], capture_output=True, check=True)  # noqa: S603 - ours
    return time.perf_counter() - began, float(done.stdout.split()[1]) / 1000


async def _run(options: Options) -> AsyncIterator[Figure]:
    count = options.of(20_000, 180_000, 1_000_000)
    decided = await _decided()
    with TemporaryDirectory() as folder:
        path = Path(folder, "board.sqlite")
        began = time.perf_counter()
        with Board(path) as board:
            board.resume(datetime.now(UTC))
            for page in _records(decided, count):
                board.add(page)
        yield Figure(f"{count:,} decisions read anew", "s", [time.perf_counter() - began])
        seconds, megabytes = zip(*(_list(path) for _ in range(options.rounds)), strict=True)
        name = f"a list of a kept board of {count:,}, its process included"
        yield Figure(name, "s", seconds, target=Target("<=", 2.0))
        yield Figure("its memory", "MB", megabytes, target=Target("<=", 300.0))


PART = Part("board", "the review queue at size: a kept board, beside one that is read anew", _run)
