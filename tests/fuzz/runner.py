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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

import structlog

from tests.fuzz.inputs import CANARY, Dice

Case = Callable[[Dice], Awaitable[int]]
"""Makes one input, feeds it in, checks the outcome and returns its size. Raises: what broke."""


@dataclass(frozen=True)
class Entry:
    """A way into Groundwire; `share`: of the inputs of a run, relative to the others."""

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


class Failed(AssertionError): ...


def hold(promise: object, told: str) -> None:
    """Raise Failed unless a promise holds. An assertion would be silent under -O."""
    if not promise:
        raise Failed(told)


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """Take what is logged off the terminal; gives a function that returns it, and forgets it."""
    heard, root = StringIO(), logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers, root.level = [logging.StreamHandler(heard)], logging.DEBUG
    settings = structlog.get_config()
    structlog.configure(
        processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=repr)],
        wrapper_class=structlog.make_filtering_bound_logger(0),
        logger_factory=structlog.PrintLoggerFactory(heard),
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


def read_strictly(value: bytes) -> Any:
    """Read JSON as the strictest reader does. Raises: Failed, ValueError."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        hold(len(dict(pairs)) == len(pairs), "a published record has a duplicate key")
        return dict(pairs)

    def no_constant(name: str) -> None:
        raise Failed(f"a published record has {name}")

    return json.loads(value.decode(), object_pairs_hook=once, parse_constant=no_constant)


def quiet(logged: str, *, faults: bool = False) -> None:
    """Hold that a log tells no text, and of nothing that broke inside, unless faults may be told of."""
    hold(CANARY.lower() not in logged.lower(), "a log holds the text of a record")
    for line in logged.splitlines():
        hold(faults or '"where":' not in line, f"something broke inside: {line[:600]}")


HANGS: Final = 30  # seconds of processor time for one input
_RENEWED: Final = 2_000  # inputs after which a case is opened anew


class Hangs(Exception):
    """An input takes longer than any should."""


@dataclass
class Report:
    """Outcome of an entry.

    `failures`: seed of the input -> traceback. `seconds`, `slowest`: of processor time; of the slowest input with its
    bytes and seed. `peak`: MiB of memory of the process.
    """

    entry: str
    inputs: int = 0
    failures: dict[str, str] = field(default_factory=dict)
    failed: int = 0
    seconds: float = 0.0
    slowest: tuple[float, int, str] = (0.0, 0, "-")
    peak: int = 0

    def plus(self, other: Report) -> Report:
        return Report(
            self.entry,
            self.inputs + other.inputs,
            {**self.failures, **other.failures},
            self.failed + other.failed,
            self.seconds + other.seconds,
            max(self.slowest, other.slowest),
            max(self.peak, other.peak),
        )

    def __str__(self) -> str:
        seconds, size, seed = self.slowest
        return (
            f"{self.entry:<14} {self.inputs:>9} inputs {self.failed:>5} failed {self.seconds:>8.1f} s "
            f"slowest {seconds:.2f} s for {size} bytes ({seed}) peak {self.peak} MiB"
        )


def seeds(seed: int, entry: str, inputs: int) -> Iterator[str]:
    yield from (f"{entry}:{seed}.{number}" for number in range(inputs))


def run(entry: Entry, those: Sequence[str], *, most: int = 20) -> Report:
    """Feed inputs in, and report; ends early after so many failures."""
    return asyncio.run(_run(entry, those, most))


async def _run(entry: Entry, those: Sequence[str], most: int) -> Report:
    report = Report(entry.name)

    def hangs(_number: int, _frame: FrameType | None) -> None:
        faulthandler.dump_traceback(all_threads=True)
        raise Hangs

    before = signal.signal(signal.SIGPROF, hangs)  # processor time: other work on the machine does not count
    try:
        while report.inputs < len(those) and report.failed < most:
            async with entry.opened() as case:
                failed = report.failed
                for seed in those[report.inputs : report.inputs + _RENEWED]:
                    await _one(case, seed, report)
                    if report.failed > failed:
                        break  # a failure may have left something behind
            report.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    finally:
        signal.signal(signal.SIGPROF, before)
    return report


async def _one(case: Case, seed: str, report: Report) -> None:
    began, size = time.process_time(), 0
    try:
        signal.setitimer(signal.ITIMER_PROF, HANGS)
        size = await case(Dice(seed))
    except Exception as error:  # noqa: BLE001 - whatever breaks is what is sought
        report.failed += 1
        report.failures[seed] = "".join(traceback.format_exception(error)[-6:])
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    taken = time.process_time() - began
    report.inputs += 1
    report.seconds += taken
    report.slowest = max(report.slowest, (taken, size, seed))
