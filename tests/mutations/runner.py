"""Runs inside pytest: once all tests as they are, then for each mutant the tests that come by it, in a fork.

Nothing is imported or collected twice. A mutant that loops is stopped by the processor time that it uses.
"""

from __future__ import annotations

import functools
import gc
import json
import os
import resource
import shutil
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mutation_switch as switch
import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutations.found import Found
from tests.unit.checks import growth

_CPU_SECONDS: Final = 60
"""Beside ten times what its tests need as they are."""
_EXAMPLES: Final = 20
"""Of a property: what is broken as a whole shows early."""
_MEMORY: Final = 6 << 30
_SURVIVED, _KILLED, _ERROR = 0, 1, 3


@dataclass
class _Test:
    item: pytest.Item
    seconds: float
    reached: frozenset[str]


class Runner:
    """A plugin of pytest that takes over its loop.

    Args:
        names: of the mutants.
        folder: where forks may write.
        processes: forks at a time.
        tell: is given a line for people now and then.
    """

    def __init__(
        self, names: Sequence[str], folder: Path, processes: int, tell: Callable[[str], None]
    ) -> None:
        self.found = Found()
        self._names = names
        self._folder = folder
        self._processes = processes
        self._tell = tell
        self._failed = False
        self._why = ""
        self._caches: list[Any] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._caches = [o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper)]
        self._caches = [o for o in self._caches if str(o.__module__).startswith("groundwire")]
        self._config = session.config
        if session.testsfailed:
            self.found.failing.append("tests could not be collected: run pytest on them")
            return True
        for item in session.items:
            _shorten(item)
        tests = self._as_they_are(session.items)
        if not self.found.failing:
            self._break_each(tests)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed:
            self._failed, self._why = True, str(report.longrepr)[-1500:]

    def _as_they_are(self, items: list[pytest.Item]) -> list[_Test]:
        """Run all tests with nothing broken, and note the places that each comes by."""
        by_file: dict[Path, list[pytest.Item]] = {}
        for item in items:
            by_file.setdefault(item.path, []).append(item)
        jobs = {path.as_posix(): functools.partial(self._note, group) for path, group in by_file.items()}
        tests = []
        for name, code, said in self._in_forks(jobs):
            if code != _SURVIVED:
                self.found.failing.append(f"{name}: {said[-2000:]}")
                continue
            for item, (failed, seconds, reached) in zip(by_file[Path(name)], json.loads(said), strict=True):
                if failed:
                    self.found.failing.append(f"{item.nodeid}: {failed}")
                tests.append(_Test(item, seconds, frozenset(reached)))
        return tests

    def _note(self, items: list[pytest.Item]) -> tuple[int, str]:
        noted = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._failed = False
            switch.reached.clear()
            for cache in self._caches:
                cache.cache_clear()
            start = time.process_time()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            noted.append((self._failed and self._why, time.process_time() - start, sorted(switch.reached)))
        return _SURVIVED, json.dumps(noted)

    def _break_each(self, tests: list[_Test]) -> None:
        coming_by: dict[str, list[_Test]] = {name: [] for name in self._names}
        for test in sorted(tests, key=lambda test: test.seconds):
            for name in test.reached & coming_by.keys():
                coming_by[name].append(test)
        jobs = {
            name: functools.partial(self._break, name, group) for name, group in coming_by.items() if group
        }
        for name in (name for name, group in coming_by.items() if not group):
            self.found.survived[name] = 0
            self._tell(f"no test comes by: {name}")
        for done, (name, code, said) in enumerate(self._in_forks(jobs), 1):
            if code == _SURVIVED:
                self.found.survived[name] = len(coming_by[name])
                self._tell(f"survives: {name}")
            else:
                self.found.killed[name] = said
            if done % 100 == 0:
                self._tell(f"{done} of {len(jobs)} broken, {len(self.found.survived)} noticed by no test")

    def _break(self, name: str, tests: list[_Test]) -> tuple[int, str]:
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = used.ru_utime + used.ru_stime + _CPU_SECONDS + 10 * sum(test.seconds for test in tests)
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds)))
        switch.active = name
        for cache in self._caches:
            cache.cache_clear()
        for test, following in zip(tests, [*tests[1:], None], strict=True):
            item = test.item
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following and following.item)
            if self._failed:
                return _KILLED, item.nodeid
        return _SURVIVED, ""

    def _in_forks(self, jobs: dict[str, Callable[[], tuple[int, str]]]) -> Any:
        """Run jobs in forks, so many at a time; yield name, exit code and what was said."""
        running: dict[int, tuple[str, Path]] = {}
        todo = list(jobs.items())[::-1]
        number = 0
        while todo or running:
            while todo and len(running) < self._processes:
                name, job = todo.pop()
                number += 1
                said = self._folder / f"{number}.said"
                if (pid := os.fork()) == 0:
                    self._be_fork(job, said)
                running[pid] = name, said
            pid, status = os.wait()
            name, said = running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            yield name, code, said.read_text("utf-8") if said.exists() else f"ended by signal {-code}"
            said.unlink(missing_ok=True)
            shutil.rmtree(said.with_suffix(".tmp"), ignore_errors=True)

    def _be_fork(self, job: Callable[[], tuple[int, str]], said: Path) -> None:
        code, text = _ERROR, ""
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            self._config._tmp_path_factory._basetemp = said.with_suffix(".tmp")
            said.with_suffix(".tmp").mkdir()
            code, text = job()
        except BaseException:  # noqa: BLE001 - a fork may not return into the loop of its parent
            text = traceback.format_exc()
        finally:
            said.write_text(text, "utf-8")
            os._exit(code)


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
