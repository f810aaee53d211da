"""The keys file as a process that runs for long needs it: whoever is let in or shut out today counts today."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Final, Self

import structlog
from prometheus_client import Counter

from groundwire.attestation import Attestation, Key, Keys, Role
from groundwire.errors import UsageError

log = structlog.get_logger()

EVERY: Final = 1.0
"""Seconds for which the file is taken to be as it was: a key that is withdrawn holds for so long at most."""

RELOADS: Final = Counter(
    "groundwire_keys_reloads",
    "Changes of the keys file, by what came of them: taken, or refused, and then the keys before it hold.",
    ["result"],
)
for _result in ("taken", "refused"):
    RELOADS.labels(_result)

_Seen = tuple[int, int, int, int] | None


class WatchedKeys(Keys):
    """The keys of a file, read again whenever it changes (C-28, C-34).

    A change is seen by time, size and inode, so also where the file is replaced or a link to it moved; it is taken once
    the file has stood still for a second, for half a file may be one with fewer keys. A file that
    cannot be read, or is none, changes nothing: it is logged and counted, once, and the last good one holds.

    Args:
        path: of the file.
        clock: seconds, of which only differences count.

    Raises:
        UsageError: as `Keys.load`; there is no good file yet.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._looked = clock()
        self._seen = _look(path)  # before it is read: what changes in between is read again
        self._glimpsed = self._seen
        self._good = Keys.load(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a keys file and watch it. Raises: UsageError."""
        return cls(path)

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        """Yield (key id, key) in the order of the file, as it is now."""
        return iter(self._current())

    def __contains__(self, key_id: object) -> bool:
        """Say whether there is a key of this id now."""
        return key_id in self._current()

    def delegated(self, tenant: str, reviewer: str) -> bool:
        """Say whether `reviewer` may now decide the claims of other people of `tenant`."""
        return self._current().delegated(tenant, reviewer)

    def sign(self, key_id: str, value: bytes) -> bytes:
        """Return the value of the header `gw-attestation`. Raises: UsageError, there is no such key (any more)."""
        return self._current().sign(key_id, value)

    def check(
        self,
        header: str | None,
        value: bytes,
        *,
        tenant: str | None,
        at: datetime,
        source: str | None = None,
        role: Role | None = None,
    ) -> Attestation | None:
        """Check the header `gw-attestation` of a record, by the keys that there are now; see `Keys.check`."""
        return self._current().check(header, value, tenant=tenant, at=at, source=source, role=role)

    def _current(self) -> Keys:
        now = self._clock()
        if now - self._looked >= EVERY:
            self._looked = now
            self._look_again()
        return self._good

    def _look_again(self) -> None:
        seen, before = _look(self._path), self._glimpsed
        self._glimpsed = seen
        if seen == self._seen or not (seen == before or _stands_still(seen)):
            return
        self._seen = seen
        try:
            self._good = Keys.load(self._path)
        except UsageError as exc:  # which tells no secret
            RELOADS.labels("refused").inc()
            log.warning("keys.refused", error=str(exc), hint="the keys that were read before hold")
        else:
            RELOADS.labels("taken").inc()
            log.info("keys.taken", keys=len(list(self._good)))


def _stands_still(seen: _Seen) -> bool:
    """Say whether nobody has written for a while: whoever writes in place may be in the middle."""
    return seen is None or time.time_ns() - seen[0] >= EVERY * 1e9


def _look(path: Path) -> _Seen:
    try:
        found = path.stat()
    except OSError:
        return None
    # the last is also that of a file which may be read again since its mode was changed
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns
