"""Runs inside pytest: once all tests as they are, then for each mutant the tests that come by it, in a fork.

Nothing is imported or collected twice. A mutant that loops is stopped by the processor time that it uses, one that
waits by the clock: both in proportion to what its tests need as they are.
"""

from __future__ import annotations

import functools
import gc
import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final, NamedTuple

import mutation_switch as switch
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutations.forks import ERROR, Ended, Forks, Job, Said
from tests.mutations.found import Found
from tests.mutations.groups import GROUPS
from tests.mutations.operators import Mutant
from tests.mutations.rooms import ROOT
from tests.unit.checks import growth

_AT_LEAST: Final = 30  # seconds, of the clock and of the processor, for the tests of a mutant
_TIMES: Final = 10  # as long as they need as they are
_EXAMPLES: Final = 20
"""Of a property: what is broken as a whole shows early."""
_SURVIVED, _KILLED = 0, 1


class _Seconds(NamedTuple):
    clock: float
    processor: float


@dataclass
class _Test:
    item: pytest.Item
    seconds: _Seconds
    reached: frozenset[str]


class Runner:
    """A plugin of pytest that takes over its loop.

    Args:
        mutants: to be broken, by name.
        found: takes what becomes of them.
        folder: where forks may write.
        processes: forks at a time.
        tell: is given a line for people now and then.
    """

    def __init__(
        self,
        mutants: dict[str, Mutant],
        found: Found,
        folder: Path,
        processes: int,
        tell: Callable[[str], None],
    ) -> None:
        self._mutants = mutants
        self._found = found
        self._forks = Forks(folder, processes, self._enter)
        self._tell = tell
        self._failed = False
        self._why = ""
        self._caches: list[Any] = []
        self._noticed_by: Counter[tuple[str, str]] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._caches = [o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper)]
        self._caches = [o for o in self._caches if str(o.__module__).startswith("groundwire")]
        self._config = session.config
        if session.testsfailed:
            self._found.failing.append("tests could not be collected: run pytest on them")
            return True
        for item in session.items:
            _shorten(item)
        tests = self._as_they_are(session.items)
        took = _sum(tests)
        self._tell(
            f"{len(tests)} tests as they are: {took.clock:.0f} s, {took.processor:.0f} s of a processor"
        )
        if not self._found.failing:
            self._break_each(tests)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed, self._why = True, str(report.longrepr)[-1500:]

    def _enter(self, folder: Path) -> None:
        """Have tests in a fork write into its own folder."""
        self._config._tmp_path_factory._basetemp = folder

    def _forget(self) -> None:
        for cache in self._caches:
            cache.cache_clear()

    def _as_they_are(self, items: list[pytest.Item]) -> list[_Test]:
        """Run all tests with nothing broken, and note the places that each comes by."""
        by_file: dict[Path, list[pytest.Item]] = {}
        for item in items:
            by_file.setdefault(item.path, []).append(item)
        jobs = {path.as_posix(): Job(functools.partial(self._note, group)) for path, group in by_file.items()}
        tests = []
        for name, code, said, _late in self._forks.run(jobs):
            if code != _SURVIVED:
                self._found.failing.append(f"{name}: {said[-2000:]}")
                continue
            for item, (failed, seconds, reached) in zip(by_file[Path(name)], json.loads(said), strict=True):
                if failed:
                    self._found.failing.append(f"{item.nodeid}: {failed}")
                tests.append(_Test(item, _Seconds(*seconds), frozenset(reached)))
        return tests

    def _note(self, items: list[pytest.Item]) -> Said:
        noted = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._failed = False
            switch.reached.clear()
            self._forget()
            start = time.monotonic(), time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            seconds = time.monotonic() - start[0], time.process_time() - start[1]
            noted.append((self._failed and self._why, seconds, sorted(switch.reached)))
        return _SURVIVED, json.dumps(noted)

    def _break_each(self, tests: list[_Test]) -> None:
        coming_by = self._coming_by(tests)
        jobs = {
            name: Job(functools.partial(self._break, name, group), _AT_LEAST + _TIMES * _sum(group).clock)
            for name, group in coming_by.items()
            if group
        }
        for name in coming_by.keys() - jobs.keys():
            self._found.note(self._mutants[name], "unreached", "", 0)
            self._tell(f"no test comes by: {name}")
        lives = 0
        for done, ended in enumerate(self._forks.run(jobs), 1):
            lives += self._judge(ended, len(coming_by[ended.name]))
            if done % 100 == 0:
                self._tell(f"{done} of {len(jobs)} broken, {lives} noticed by no test")

    def _coming_by(self, tests: list[_Test]) -> dict[str, list[_Test]]:
        """Return mutant -> the tests of its group that come by it, quick ones first."""
        coming_by: dict[str, list[_Test]] = {name: [] for name in self._mutants}
        for test in sorted(tests, key=lambda test: test.seconds.processor):
            place = test.item.path.relative_to(ROOT).as_posix()
            for name in test.reached & coming_by.keys():
                asked = self._found.asked or GROUPS[self._mutants[name].group].tests
                if any(place == one or place.startswith(f"{one}/") for one in asked):
                    coming_by[name].append(test)
        return {name: self._quick(group) for name, group in coming_by.items()}

    def _quick(self, tests: list[_Test]) -> list[_Test]:
        """Leave out what takes more time than a mutant may have; the first test is always asked."""
        sums = accumulate(test.seconds.processor for test in tests)
        most = self._found.most
        return [
            t
            for n, (t, so_far) in enumerate(zip(tests, sums, strict=True))
            if not n or most is None or so_far <= most
        ]

    def _judge(self, ended: Ended, tests: int) -> bool:
        """Keep what became of a mutant, and say whether it lives."""
        mutant = self._mutants[ended.name]
        if ended.code == _SURVIVED:
            self._found.note(mutant, "survived", "", tests)
            self._tell(f"survives: {ended.name}")
            return True
        if ended.code == ERROR:
            self._found.failing.append(f"{ended.name}: {ended.said[-2000:]}")
        elif ended.code == _KILLED:
            self._found.note(mutant, "noticed", ended.said, tests)
            self._noticed_by[mutant.path, ended.said] += 1
        else:
            self._found.note(mutant, "stopped", "too late" if ended.late else ended.said, tests)
            self._tell(f"stopped, {'too late' if ended.late else ended.said}: {ended.name}")
        return False

    def _break(self, name: str, tests: list[_Test]) -> Said:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = used.ru_utime + used.ru_stime + _AT_LEAST + _TIMES * _sum(tests).processor
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        path = self._mutants[name].path  # what noticed much in this file is asked first
        tests = sorted(tests, key=lambda test: -self._noticed_by[path, test.item.nodeid])
        switch.active = name
        self._forget()
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            item = test.item
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following and following.item)
            if self._failed:
                return _KILLED, item.nodeid
        return _SURVIVED, ""


def _sum(tests: Sequence[_Test]) -> _Seconds:
    return _Seconds(sum(t.seconds.clock for t in tests), sum(t.seconds.processor for t in tests))


def _shorten(item: pytest.Item) -> None:
    """Lower a number of examples that a test asks for itself."""
    test = getattr(item, "obj", None)
    asked = getattr(test, "_hypothesis_internal_use_settings", None)
    if asked is not None and asked.max_examples > _EXAMPLES:
        test = getattr(test, "__func__", test)
        test._hypothesis_internal_use_settings = settings(asked, max_examples=_EXAMPLES)


def prepare() -> None:
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
