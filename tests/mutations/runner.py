"""Runs inside pytest: once all tests as they are, then for each mutant the tests that reach it, in a fork.

Nothing is imported or collected twice. A test that waits ends by pytest's timeout, a mutant that loops by the limit of
processor time. Nothing that a fork started outlives it.
"""

import contextlib
import functools
import gc
import os
import pickle
import resource
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.mutations import operators
from tests.mutations.operators import ROOT, Mutant

_PROCESSES: Final = 2
_SECONDS: Final = 300  # of the processor, for the tests of a mutant
_MEMORY: Final = 6 << 30  # bytes of address space of a fork


class Runner:
    """A plugin of pytest that replaces its loop, with forks that write to a folder.

    `tests`: group -> files and folders of its tests. Fills `outcomes`: the name of each mutant -> noticed, stopped (the
    process ended), survived or unreached; and `failing`: tests that fail with nothing broken.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        tests: Mapping[str, Sequence[str]],
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        self.outcomes: dict[str, str] = {}
        self.failing: list[str] = []
        self._mutants, self._tests, self._folder, self._say = mutants, tests, folder, say
        self._failed = ""
        self._caches: list[Any] = []
        self._noticed_by: Counter[tuple[str, str]] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed = self._failed or str(report.longrepr)[-1500:] or "failed"

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
        files: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            files[item.path.as_posix()].append(item)
        tests = []
        jobs = {path: functools.partial(self._run_as_they_are, items) for path, items in files.items()}
        for path, found in run_in_forks(jobs, self._folder):
            if found is None:
                self.failing.append(f"{path}: its process ended")
                continue
            for item, (failed, seconds, reached) in zip(files[path], found, strict=True):
                self.failing += [f"{item.nodeid}: {failed}"] if failed else []
                tests.append((seconds, item, reached))
        self._say(f"{len(tests)} tests as they are: {sum(test[0] for test in tests):.0f} s")
        if not self.failing:
            self._break_each([test[1:] for test in sorted(tests, key=lambda test: test[0])])
        return True

    def _break_each(self, tests: Sequence[tuple[pytest.Item, frozenset[str]]]) -> None:
        """`tests`: with the mutants that each reaches, quick ones first."""
        jobs = {}
        for mutant in self._mutants:
            places = [ROOT / place for place in self._tests[mutant.group]]
            reaching = [
                item
                for item, reached in tests
                if mutant.name in reached and any(map(item.path.is_relative_to, places))
            ]
            if reaching:
                jobs[mutant] = functools.partial(self._break, mutant, reaching)
            else:
                self.outcomes[mutant.name] = "unreached"
        for done, (mutant, noticed_by) in enumerate(run_in_forks(jobs, self._folder), 1):
            outcome = "stopped" if noticed_by is None else "noticed" if noticed_by else "survived"
            self.outcomes[mutant.name] = outcome
            self._noticed_by[mutant.path, noticed_by or ""] += 1
            if done % 100 == 0:
                self._say(f"{done} of {len(jobs)} broken")

    def _run_as_they_are(self, items: Sequence[pytest.Item]) -> list[tuple[str, float, frozenset[str]]]:
        found = []
        for item, following in zip(items, [*items[1:], None], strict=True):
            operators.reached.clear()
            start = time.monotonic()
            self._run(item, following)
            found.append((self._failed, time.monotonic() - start, frozenset(operators.reached)))
        return found

    def _break(self, mutant: Mutant, items: Sequence[pytest.Item]) -> str:
        """Return the test that notices, or ""; a test that noticed much in this file runs first."""
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
        operators.active = mutant.name
        items = sorted(items, key=lambda item: -self._noticed_by[mutant.path, item.nodeid])
        for item, following in zip(items, [*items[1:], None], strict=True):
            self._run(item, following)
            if self._failed:
                return item.nodeid
        return ""

    def _run(self, item: pytest.Item, following: pytest.Item | None) -> None:
        self._failed = ""
        for cache in self._caches:
            cache.cache_clear()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def run_in_forks(jobs: Mapping[Any, Callable[[], Any]], folder: Path) -> Iterator[tuple[Any, Any]]:
    """Run jobs in their order, two at a time; yield the key of each as it ends, and what it returned.

    None replaces the result of a job that failed or was ended by a signal.
    """
    todo = list(jobs.items())[::-1]
    running: dict[int, Any] = {}
    try:
        while todo or running:
            if todo and len(running) < _PROCESSES:
                key, job = todo.pop()
                if (pid := os.fork()) == 0:
                    _be_fork(job, folder)
                running[pid] = key
                continue
            pid, _ = os.wait()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what the job started
            result = folder / f"{pid}.pickle"
            yield running.pop(pid), pickle.loads(result.read_bytes()) if result.exists() else None  # noqa: S301 - our own
            result.unlink(missing_ok=True)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _be_fork(job: Callable[[], Any], folder: Path) -> None:
    try:
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        (folder / f"{os.getpid()}.pickle").write_bytes(pickle.dumps(job()))
    finally:
        os._exit(0)
