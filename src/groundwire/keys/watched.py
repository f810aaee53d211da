"""Files that a process which runs for long reads again when they change: keys and API tokens."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, Self, TypeVar

import structlog
from prometheus_client import Counter

from groundwire.errors import UsageError
from groundwire.keys.attestation import KeyFile, Keys

log = structlog.get_logger()

EVERY: Final = 1.0
"""Seconds between two looks at the keys file: a withdrawn key is accepted for so long at most."""

RELOADS: Final = Counter(
    "groundwire_keys_reloads",
    "Changes of the keys file, by what came of them: taken, or refused, and then the keys before it hold.",
    ["result"],
)
for _result in ("taken", "refused"):
    RELOADS.labels(_result)

Content = TypeVar("Content")


class WatchedFile(Generic[Content]):
    """The parsed content of a file, read again whenever the file changes.

    A change is seen by time, size and inode, so also where the file is replaced or a link to it moved. It is taken once
    the file has not been written for `every` seconds: whoever writes in place may be in the middle.

    Raises:
        UsageError: as `load`, at the start.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[Path], Content],
        *,
        broken: Callable[[UsageError, Content], Content],
        taken: Callable[[Content], None] = lambda _: None,
        every: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._load = load
        self._broken = broken
        self._taken = taken
        self._every = every
        self._clock = clock
        self._looked = clock()
        self._read = self._latest = _version(path)  # before it is read: a change in between is read again
        self._content = load(path)

    def current(self) -> Content:
        now = self._clock()
        if now - self._looked >= self._every:
            self._looked = now
            version, before = _version(self._path), self._latest
            self._latest = version
            settled = not self._every or version is None or time.time_ns() - version[0] >= self._every * 1e9
            if version != self._read and (version == before or settled):
                self._read = version
                try:
                    self._content = self._load(self._path)
                except UsageError as exc:
                    self._content = self._broken(exc, self._content)
                else:
                    self._taken(self._content)
        return self._content


class WatchedKeys(Keys):
    """The keys of a file as it is now (C-28, C-34). Raises: UsageError, as `Keys.load`.

    A file that cannot be read later changes nothing: that is logged and counted once, and the last good one holds.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = WatchedFile(path, Keys.load, broken=_refused, taken=_taken, every=EVERY, clock=clock)

    @classmethod
    def load(cls, path: Path) -> Self:
        return cls(path)

    def held(self) -> KeyFile:
        return self._file.current().held()


def _refused(error: UsageError, before: Keys) -> Keys:
    RELOADS.labels("refused").inc()
    log.warning("keys.refused", error=str(error), hint="the keys that were read before hold")
    return before


def _taken(keys: Keys) -> None:
    RELOADS.labels("taken").inc()
    log.info("keys.taken", keys=len(list(keys)))


def _version(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    # the change time is also that of a file which may be read again since its mode was changed
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
