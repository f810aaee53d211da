"""Runs entries over inputs made from a seed, and keeps what fails with the seed of its input."""

from __future__ import annotations

import asyncio
import faulthandler
import json
import logging
import resource
import signal
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final, Protocol

import structlog

from tests.fuzz.inputs import CANARY


class Case(Protocol):
    """Makes one input, puts it in, and holds what comes to what is promised. Raises: what broke."""

    async def __call__(self, rng: Random) -> int:
        """Return the bytes of what was put in."""
        ...


@dataclass(frozen=True)
class Entry:
    """A way into Groundwire.

    Attributes:
        name: by which it is asked for.
        opened: gives its case; what the case needs lives as long.
        share: of the inputs of a run, relative to the others.
    """

    name: str
    opened: Callable[[], AbstractAsyncContextManager[Case]]
    share: int = 1


def entry(name: str, make: Callable[[Path, Callable[[], str]], Case], share: int) -> Entry:
    """Return an entry whose case is made of a folder and of what was logged."""

    @asynccontextmanager
    async def opened() -> AsyncIterator[Case]:
        with TemporaryDirectory() as folder, listening() as heard:
            yield make(Path(folder), heard)

    return Entry(name, opened, share)


class Failed(AssertionError):
    """Something promised does not hold."""


def hold(promise: object, told: str) -> None:
    """Raise Failed unless a promise holds. An assertion would be silent under -O."""
    if not promise:
        raise Failed(told)


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """Take what is logged off the terminal; gives a function that returns it, and forgets it."""
    heard = StringIO()
    handler = logging.StreamHandler(heard)
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers, root.level = [handler], logging.DEBUG
    settings = structlog.get_config()
    logger = structlog.PrintLoggerFactory(heard)
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        logger_factory=logger,
        cache_logger_on_first_use=False,
    )

    def taken() -> str:
        found = heard.getvalue()
        heard.seek(0)
        heard.truncate()
        return found

    try:
        yield taken
    finally:
        root.handlers, root.level = before, level
        structlog.configure(**settings)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    hold(len(dict(pairs)) == len(pairs), "a key stands twice in what is published")
    return dict(pairs)


def _no_constant(name: str) -> None:
    raise Failed(f"{name} stands in what is published")


def read_strictly(value: bytes) -> Any:
    """Read JSON as the strictest reader does. Raises: Failed, ValueError."""
    return json.loads(value.decode(), object_pairs_hook=_once, parse_constant=_no_constant)


def quiet(logged: str, *, faults: bool = False) -> None:
    """Hold that a log tells no text, and of nothing that broke inside, unless faults may be told of."""
    hold(CANARY not in logged, "a log holds the text of a record")
    hold(CANARY.lower() not in logged.lower(), "a log holds the text of a record")
    for line in logged.splitlines():
        hold(faults or '"where":' not in line, f"something broke inside: {line[:600]}")


HANGS: Final = 30  # seconds of processor time for one input
_RENEWED: Final = 2_000  # inputs after which what a case needs is made anew
_SLOW: Final = 5


class Hangs(Exception):
    """An input takes longer than any should."""


@dataclass
class Report:
    """What came of an entry.

    Attributes:
        inputs: that were put in.
        failures: seed of the input -> what broke; at most as many as were asked for.
        failed: inputs that failed.
        seconds: of processor time, in all.
        bytes: that were put in.
        slowest: (seconds of processor time, bytes, seed) of the slowest inputs.
        peak: MiB of memory at most that the process has held so far.
        growth: MiB by which that grew after the first tenth of the inputs.
    """

    entry: str
    inputs: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    failed: int = 0
    seconds: float = 0.0
    bytes: int = 0
    slowest: list[tuple[float, int, str]] = field(default_factory=list)
    peak: int = 0
    growth: int = 0

    def plus(self, other: Report) -> Report:
        """Add the report of other inputs up."""
        return Report(
            self.entry,
            self.inputs + other.inputs,
            {**self.failures, **other.failures},
            self.failed + other.failed,
            self.seconds + other.seconds,
            self.bytes + other.bytes,
            sorted([*self.slowest, *other.slowest], reverse=True)[:_SLOW],
            max(self.peak, other.peak),
            max(self.growth, other.growth),
        )

    def __str__(self) -> str:
        slow = self.slowest[0] if self.slowest else (0.0, 0, "-")
        return (
            f"{self.entry:<14} {self.inputs:>9} inputs {self.failed:>5} failed {self.seconds:>8.1f} s "
            f"slowest {slow[0]:.2f} s for {slow[1]} bytes ({slow[2]}) peak {self.peak} MiB (+{self.growth})"
        )


def seeds(seed: int, entry: str, inputs: int, job: int = 0, jobs: int = 1) -> Iterator[str]:
    """Yield the seeds of a run's inputs; of several jobs each has its own."""
    yield from (f"{entry}:{seed}.{number}" for number in range(job, inputs, jobs))


def run(entry: Entry, those: Sequence[str], *, until: float | None = None, most: int = 20) -> Report:
    """Put inputs in, and report; ends early at a time of `time.monotonic`, or after so many failures."""
    return asyncio.run(_run(entry, those, until, most))


async def _run(entry: Entry, those: Sequence[str], until: float | None, most: int) -> Report:
    report = Report(entry.name)
    settled = 0
    with _guarded():
        while report.inputs < len(those) and not _ended(report, until, most):
            async with entry.opened() as case:
                failed = report.failed
                for seed in those[report.inputs : report.inputs + _RENEWED]:
                    await _one(case, seed, report)
                    if report.failed > failed or _ended(report, until, most):
                        break  # what failed may have left something behind
            report.peak = _memory()
            settled = settled or (report.peak if report.inputs * 10 >= len(those) else 0)
            report.growth = report.peak - settled if settled else 0
    return report


def _ended(report: Report, until: float | None, most: int) -> bool:
    return report.failed >= most or (until is not None and time.monotonic() >= until)


async def _one(case: Callable[[Random], object], seed: str, report: Report) -> None:
    began = time.process_time()
    size = 0
    try:
        signal.setitimer(signal.ITIMER_PROF, HANGS)
        size = await case(Random(seed))  # type: ignore[misc]
    except Exception as error:  # noqa: BLE001 - whatever breaks is what is sought
        report.failed += 1
        report.failures[seed] = "".join(traceback.format_exception(error)[-6:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    taken = time.process_time() - began
    report.inputs += 1
    report.bytes += size
    report.seconds += taken
    report.slowest = sorted([*report.slowest, (taken, size, seed)], reverse=True)[:_SLOW]


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@contextmanager
def _guarded() -> Iterator[None]:
    """Break off an input by the processor time that it takes: other work on the machine does not count."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback(all_threads=True)
        raise Hangs

    before = signal.signal(signal.SIGPROF, hangs)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)
