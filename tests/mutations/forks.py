"""Runs jobs in forks of this process, each for so long and with so much memory; nothing that one starts outlives it."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

_MEMORY: Final = 6 << 30
_LOOK: Final = 0.5  # seconds between looks at the clock
ERROR: Final = 3  # exit code of a fork whose job itself failed

Said = tuple[int, str]
"""Exit code, and what is told with it."""


class Job(NamedTuple):
    """What a fork does.

    Args:
        run: returns an exit code and a text.
        seconds: on the clock after which it is stopped; None: never.
    """

    run: Callable[[], Said]
    seconds: float | None = None


class Ended(NamedTuple):
    """How a fork ended.

    Attributes:
        name: of the job.
        code: its exit code; below zero the signal that ended it, and `ERROR` where the job itself failed.
        said: its text.
        late: it was stopped when its time was over.
    """

    name: str
    code: int
    said: str
    late: bool


@dataclass
class _Fork:
    name: str
    said: Path
    until: float
    late: bool = False


@dataclass
class Forks:
    """Forks, so many at a time.

    Args:
        folder: where each may write, in a folder of its own.
        at_once: how many run at a time.
        enter: is called in each fork with its folder.
    """

    folder: Path
    at_once: int
    enter: Callable[[Path], None]
    _running: dict[int, _Fork] = field(default_factory=dict)

    def run(self, jobs: Mapping[str, Job]) -> Iterator[Ended]:
        """Run jobs, in their order; yield each as it ends."""
        todo = list(jobs.items())[::-1]
        handlers = {
            signal.SIGALRM: signal.signal(signal.SIGALRM, self._look),
            signal.SIGTERM: signal.signal(signal.SIGTERM, leave),
        }
        timer = signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        try:
            while todo or self._running:
                while todo and len(self._running) < self.at_once:
                    self._start(*todo.pop())
                yield self._next()
        finally:
            signal.setitimer(signal.ITIMER_REAL, *timer)
            for pid in self._running:
                _end_group(pid)
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _start(self, name: str, job: Job) -> None:
        said = self.folder / f"{time.monotonic_ns()}.said"
        if (pid := os.fork()) == 0:
            self._be_fork(job, said)
        _lead_group(pid)
        until = float("inf") if job.seconds is None else time.monotonic() + job.seconds
        self._running[pid] = _Fork(name, said, until)

    def _look(self, *_signal: Any) -> None:
        now = time.monotonic()
        for pid, fork in self._running.items():
            if now > fork.until:
                fork.late = True
                _end_group(pid)

    def _next(self) -> Ended:
        pid, status = os.wait()
        fork = self._running.pop(pid)
        _end_group(pid)
        code = os.waitstatus_to_exitcode(status)
        said = fork.said.read_text("utf-8") if fork.said.exists() else f"ended by signal {-code}"
        fork.said.unlink(missing_ok=True)
        shutil.rmtree(fork.said.with_suffix(".tmp"), ignore_errors=True)
        return Ended(fork.name, code, said, fork.late)

    def _be_fork(self, job: Job, said: Path) -> None:
        code, text = ERROR, ""
        try:
            _lead_group(0)
            for number in (signal.SIGALRM, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
            own = said.with_suffix(".tmp")
            own.mkdir()
            self.enter(own)
            code, text = job.run()
        except BaseException:  # noqa: BLE001 - a fork may not return into the loop of its parent
            text = traceback.format_exc()
        finally:
            said.write_text(text, "utf-8")
            os._exit(code)


def leave(*_signal: Any) -> None:
    """End a run as from the keyboard: forks have groups of their own, and are ended by whoever started them."""
    raise KeyboardInterrupt


def _lead_group(pid: int) -> None:
    """Put a fork into a group of its own; both sides say so, whoever is first."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpgid(pid, pid)


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
