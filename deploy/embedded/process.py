"""Server processes for the demo and the tests: started with a deadline, stopped by handle, ended with their parent."""

from __future__ import annotations

import random
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"

#: Servers get ports below those that the kernel gives to outgoing connections (Linux: from 32768). There, a
#: client that keeps trying while a server is down can connect to itself, and hold the port that way.
_PORTS = range(10_000, 32_000)
_PORT_TRIES = 50

_TAIL_BYTES = 4_000
_POLL_SECONDS = 0.02
_STOP_SECONDS = 10.0


class ServiceError(RuntimeError):
    """A server did not start, or ended when it should not have; the message holds the end of its log."""


class MissingServiceError(RuntimeError):
    """A program is not installed here; the message names what to install."""


def free_port() -> int:
    """Return a free TCP port of the loopback address.

    Raises:
        ServiceError: no free port was found in a few dozen tries.
    """
    for port in random.sample(_PORTS, _PORT_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise ServiceError(f"no free TCP port between {_PORTS.start} and {_PORTS.stop} on {HOST}")


def listening(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def find_program(name: str, install: str) -> str:
    """Return the path of a program.

    Raises:
        MissingServiceError: it is not on the PATH; the message says what to `install`.
    """
    path = shutil.which(name)
    if path is None:
        raise MissingServiceError(f"{name} is not on the PATH: install {install}")
    return path


def tail(path: Path) -> str:
    return path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace") if path.exists() else ""


@dataclass(slots=True)
class ServerProcess:
    """A child process whose output goes to a file and that dies with its parent.

    A shell beside it holds the reading end of a pipe from this process; should this process die, by
    whatever signal, the pipe closes and the shell kills the server.

    Args:
        name: what error messages call it.
        command: program and arguments.
        log: file that gets its output, appended.
        environment: the child's whole environment; None: that of this process.
        folder: the child's working directory; None: that of this process.
        keep_input: give the child a standard input of its own to take commands from (`process.stdin`),
            and its standard output as `process.stdout`.
    """

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    keep_input: bool = False
    process: subprocess.Popen[str] | None = field(default=None, init=False)
    _watcher: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        """The process id.

        Raises:
            ServiceError: the process is not there.
        """
        if self.process is None:
            raise ServiceError(f"{self.name} is not running")
        return self.process.pid

    def start(self) -> None:
        """Start the process; one that runs is left alone."""
        if self.running:
            return
        self._release()
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: S603 - commands are built here, not received
                self.command,
                stdin=subprocess.PIPE if self.keep_input else subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.keep_input else log,
                stderr=log,
                env=self.environment,
                cwd=self.folder,
                text=True,
                start_new_session=True,  # Ctrl-C goes to the parent alone, which stops its servers in order
            )
        self._watcher = subprocess.Popen(  # noqa: S603 - the same
            ["/bin/sh", "-c", 'read -r _; kill -9 "$0"', str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait for the server to be up.

        Raises:
            ServiceError: it ended, or `seconds` passed; it is stopped then.
        """
        ends = time.monotonic() + seconds
        while not ready():
            if not self.running or time.monotonic() > ends:
                code = self.process.poll() if self.process else None
                why = "still not ready" if code is None else f"ended with status {code}"
                self.kill()
                raise ServiceError(f"{self.name}: {why} after at most {seconds:g} s\n{tail(self.log)}")
            time.sleep(_POLL_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        if self.process and self.running:
            self.process.send_signal(number)

    def stop(self, seconds: float = _STOP_SECONDS) -> None:
        """Ask the process to end, and make it end after `seconds`."""
        if self.process and self.running:
            self.signal(signal.SIGCONT)  # a stopped process (SIGSTOP) does not handle SIGTERM
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self._release()

    def kill(self) -> None:
        """End the process at once, as a crash would (SIGKILL)."""
        if self.process and self.running:
            self.process.kill()
        self._release()

    def _release(self) -> None:
        """Stop the watcher first: the id of an ended process may be given to another one."""
        if self._watcher:
            self._watcher.kill()
            self._watcher.wait()
            _close(self._watcher.stdin)
            self._watcher = None
        if self.process:
            self.process.wait()
            _close(self.process.stdin)
            _close(self.process.stdout)
            self.process = None


def _close(stream: IO[str] | IO[bytes] | None) -> None:
    if stream:
        stream.close()
