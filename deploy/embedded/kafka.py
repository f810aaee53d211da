"""A handle on the embedded broker's process."""

from __future__ import annotations

import select
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deploy.embedded.process import HOST, ServerProcess, ServiceError, free_port, listening, tail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_START_SECONDS = 20.0
_COMMAND_SECONDS = 10.0
_ROOT = Path(__file__).resolve().parents[2]


class EmbeddedBroker:
    """The embedded broker as a child process on a free loopback port; a context manager.

    Args:
        directory: where its log goes; None: a temporary folder that `stop` removes.
        advertised: the port that clients are told, of a proxy before it; None: its own.

    Raises:
        ServiceError: from any method, when the broker does not start or does not answer.
    """

    #: How many copies of a record there are.
    replication = 1

    def __init__(self, directory: Path | None = None, advertised: int | None = None) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="groundwire-broker-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._server = ServerProcess(
            "embedded broker",
            [
                *(sys.executable, "-m", "deploy.embedded.broker", "--port", str(self.port)),
                *(() if advertised is None else ("--advertise", str(advertised))),
            ],
            self.directory / "broker.log",
            folder=_ROOT,  # where `deploy` is found
            keep_input=True,
        )

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self, topics: Mapping[str, int] | None = None) -> None:
        """Start the process unless it is there, wait until it answers, create topics (name: partitions)."""
        if not self._server.running:
            self._server.start()
            self._server.wait_until(lambda: listening(self.port), _START_SECONDS)
            self._answer()  # its line `ready`
        for name, partitions in (topics or {}).items():
            self.create_topic(name, partitions)

    def stop(self) -> None:
        self._server.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def create_topic(self, name: str, partitions: int) -> None:
        """Create a topic; one that exists is left as it is."""
        self._command(f"topic {name} {partitions}")

    def down(self) -> None:
        """Drop all connections and refuse new ones; records and offsets are kept."""
        self._command("down")

    def up(self) -> None:
        """Accept connections again, on the same port."""
        self._command("up")

    def pause(self) -> None:
        """Stop the process by SIGSTOP: connections stay open and nothing answers."""
        self._server.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue a stopped process by SIGCONT."""
        self._server.signal(signal.SIGCONT)

    def _command(self, line: str) -> None:
        process = self._server.process
        if process is None or process.stdin is None or not self._server.running:
            raise ServiceError(f"the embedded broker is not running\n{tail(self._server.log)}")
        process.stdin.write(line + "\n")
        process.stdin.flush()
        answer = self._answer()
        if answer != "ok":
            raise ServiceError(f"embedded broker, {line!r}: {answer}")

    def _answer(self) -> str:
        process = self._server.process
        if process is None or process.stdout is None:
            raise ServiceError("the embedded broker is not running")
        if not select.select([process.stdout], [], [], _COMMAND_SECONDS)[0]:
            raise ServiceError(f"the embedded broker gave no answer in {_COMMAND_SECONDS:g} s")
        return process.stdout.readline().strip()
