"""Runs inside pytest: once all tests as they are, then for each mutant the tests that reach it, in a fork.

Nothing is imported or collected twice. A mutant that loops is stopped by the processor time that it uses, one that
waits by the clock: both in proportion to what its tests need as they are. Nothing that a fork started outlives it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from multiprocessing import connection, get_context
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutations import mutation_switch as switch
from tests.mutations.operators import ROOT, Mutant
from tests.unit.checks import growth

_AT_LEAST: Final = 30  # seconds, of the clock and of the processor, for the tests of a mutant
_TIMES: Final = 10  # as long as they need as they are
_EXAMPLES: Final = 20  # of a property: what is broken as a whole shows early
_PROCESSES: Final = 2
_MEMORY: Final = 6 << 30  # bytes of address space of a fork


Outcome = Literal["noticed", "stopped", "survived", "unreached"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant, and how many tests reach it; `stopped`: they took too long, or it ended the process."""

    name: str
    outcome: Outcome
    tests: int

    @property
    def lives(self) -> bool:
        return self.outcome in {"survived", "unreached"}


class _Test(NamedTuple):
    """A test as it is: seconds of the clock and of the processor, and the mutants that it reaches."""

    item: pytest.Item
    clock: float
    processor: float
    reached: frozenset[str]


Job = tuple[Callable[[], Any], float]
"""What a fork runs, which returns something that can be pickled, and the seconds of the clock that it may take."""


class Runner:
    """A plugin of pytest that takes over its loop, with forks that may write to a folder.

    `tests`: group -> files and folders of its tests. Fills `fates`, by the names of mutants, and `failing`: tests that
    fail with nothing broken.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        tests: Mapping[str, Sequence[str]],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.fates: dict[str, Fate] = {}
        self.failing: list[str] = []
        self._mutants = {mutant.name: mutant for mutant in mutants}
        self._tests, self._folder, self._say = tests, folder, say
        self._failed = ""
        self._caches: list[Any] = []
        self._noticed_by: Counter[tuple[str, str]] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._caches = [
            each
            for each in gc.get_objects()
            if isinstance(each, functools._lru_cache_wrapper)
            and str(each.__module__).startswith("groundwire")
        ]
        if session.testsfailed:
            self.failing.append("tests could not be collected: run pytest on them")
            return True
        by_file: dict[str, list[pytest.Item]] = {}
        for item in session.items:
            by_file.setdefault(item.path.as_posix(), []).append(item)
            test = getattr(item, "obj", None)
            own = getattr(test, "_hypothesis_internal_use_settings", None)
            if own is not None and own.max_examples > _EXAMPLES:
                test = getattr(test, "__func__", test)
                test._hypothesis_internal_use_settings = settings(own, max_examples=_EXAMPLES)
        tests = []
        jobs = {path: (functools.partial(self._note, group), inf) for path, group in by_file.items()}
        for path, noted in run_in_forks(jobs, _PROCESSES, self._folder):
            if noted is None:
                self.failing.append(f"{path}: its process ended")
                continue
            for item, (failed, *seconds, reached) in zip(by_file[path], noted, strict=True):
                self.failing += [f"{item.nodeid}: {failed}"] if failed else []
                tests.append(_Test(item, *seconds, reached))
        clock, processor = sum(one.clock for one in tests), sum(one.processor for one in tests)
        self._say(f"{len(tests)} tests as they are: {clock:.0f} s, {processor:.0f} s of a processor")
        if not self.failing:
            self._break_each(tests)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = self._failed or str(report.longrepr)[-1500:] or "failed"

    def _note(self, items: Sequence[pytest.Item]) -> list[tuple[str, float, float, frozenset[str]]]:
        noted = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            switch.reached.clear()
            clock, processor = time.monotonic(), time.process_time()
            self._run_one(item, following)
            seconds = time.monotonic() - clock, time.process_time() - processor
            noted.append((self._failed, *seconds, frozenset(switch.reached)))
        return noted

    def _run_one(self, item: pytest.Item, following: pytest.Item | None) -> None:
        """Run a test with nothing remembered from another one, in the temporary folder of this fork."""
        self._failed = ""
        for cache in self._caches:
            cache.cache_clear()
        own = self._folder / str(os.getpid())
        own.mkdir(exist_ok=True)
        item.config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _break_each(self, tests: Sequence[_Test]) -> None:
        tests = sorted(tests, key=lambda test: test.processor)  # quick ones first
        jobs, reaching = {}, {}
        for name, mutant in self._mutants.items():
            places = [f"{place}/" for place in self._tests[mutant.group]]
            group = reaching[name] = [
                test
                for test in tests
                if name in test.reached
                and f"{test.item.path.relative_to(ROOT).as_posix()}/".startswith(tuple(places))
            ]
            if group:
                seconds = _AT_LEAST + _TIMES * sum(test.clock for test in group)
                jobs[name] = functools.partial(self._break, name, group), seconds
            else:
                self.fates[name] = Fate(name, "unreached", 0)
                self._say(f"no test reaches: {name}")
        for done, (name, noticed_by) in enumerate(run_in_forks(jobs, _PROCESSES, self._folder), 1):
            outcome: Outcome = "stopped" if noticed_by is None else "noticed" if noticed_by else "survived"
            self.fates[name] = Fate(name, outcome, len(reaching[name]))
            if noticed_by:
                self._noticed_by[self._mutants[name].path, noticed_by] += 1
            else:
                self._say(f"{outcome}: {name}")
            if done % 100 == 0:
                self._say(f"{done} of {len(jobs)} broken")

    def _break(self, name: str, tests: Sequence[_Test]) -> str:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(
            used.ru_utime + used.ru_stime + _AT_LEAST + _TIMES * sum(test.processor for test in tests)
        )
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        path = self._mutants[name].path  # what noticed much in this file is asked first
        tests = sorted(tests, key=lambda test: -self._noticed_by[path, test.item.nodeid])
        switch.active = name
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            self._run_one(test.item, following and following.item)
            if self._failed:
                return test.item.nodeid
        return ""


def run_in_forks(jobs: Mapping[str, Job], at_once: int, folder: Path) -> Iterator[tuple[str, Any]]:
    """Run jobs in their order, so many at a time; yield the name of each as it ends, and what it returned.

    None stands for a job that failed, was ended by a signal, or was stopped when its time was over.
    """
    context = get_context("fork")
    todo = list(jobs.items())[::-1]
    running: dict[Any, tuple[str, Any, float]] = {}
    try:
        while todo or running:
            while todo and len(running) < at_once:
                name, (job, seconds) = todo.pop()
                receives, sends = context.Pipe(duplex=False)
                process = context.Process(target=_be_fork, args=(job, sends))
                process.start()
                sends.close()
                running[receives] = name, process, time.monotonic() + seconds
            until = min(each[2] for each in running.values())
            timeout = None if until == inf else max(0.0, until - time.monotonic())
            ended = connection.wait(running, timeout)
            late = [receives for receives, each in running.items() if time.monotonic() > each[2]]
            for receives in {*ended, *late}:
                name, process, _ = running.pop(receives)
                yield name, _ended(process, receives if receives in ended else None, folder)
    finally:
        for _, process, _ in running.values():
            _ended(process, None, folder)


def _ended(process: Any, receives: connection.Connection | None, folder: Path) -> Any:
    sent = None
    with contextlib.suppress(EOFError):
        sent = receives and receives.recv()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # it has no group of its own before it has begun
    process.join()
    shutil.rmtree(folder / str(process.pid), ignore_errors=True)
    return sent


def _be_fork(job: Callable[[], Any], sends: connection.Connection) -> None:
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sends.send(job())


def use_short_searches() -> None:
    """Keep the search for counterexamples short and the same in each run; tests of time are about machines."""
    settings.register_profile(
        "mutants",
        max_examples=_EXAMPLES,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutants")
    growth.assert_linear = lambda *_args, **_kwargs: None
