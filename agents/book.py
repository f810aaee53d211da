"""The records of one partition, from fetch to commit.

One rule says what may start: no earlier undone record has its key, nothing outside blocks it, and its lane is free.
The offset to commit is the end of the done prefix; the crash mark covers the running records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from groundwire.messages.headers import InboundRecord
from groundwire.state.model import InFlightMark

ALONE: Final = 2
"""Crashes from which on a record runs with nothing beside it."""

LARGE: Final = 50_000
"""Bytes of a record that others of its partition do not wait for: checking it takes up to two seconds."""

READ_AHEAD: Final = 16_000_000
"""Bytes of undone records from which on a partition is not read."""

_OBJECT: Final = 500
"""Bytes of a buffered record besides key and value."""


@dataclass(slots=True, eq=False)
class Entry:
    """A record that is not done.

    Attributes:
        taken: seconds of the monotonic clock at which it was fetched.
        large: runs beside the small records that follow it.
        crashes: how often a worker died with it in flight.
        due: seconds of the monotonic clock before which it does not start.
        shards: the parts of state that it was found to depend on.
    """

    record: InboundRecord
    taken: float
    large: bool = False
    crashes: int = 0
    due: float = 0.0
    shards: frozenset[int] = frozenset()
    running: bool = False

    @property
    def size(self) -> int:
        return len(self.record.value or b"")

    @property
    def held_bytes(self) -> int:
        return _OBJECT + len(self.record.key or b"") + self.size


class PartitionBook:
    """Every record of a partition that is fetched and not done.

    Args:
        together: bytes that run together, smallest first; None: all that are not large.
        most: records that run together.
        blocked: tells whether a record waits for something outside; set when processing begins.
        clock: in seconds.
    """

    def __init__(
        self,
        together: int | None = None,
        most: int = 500,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._together = together
        self._most = most
        self._clock = clock
        self.blocked: Callable[[Entry], bool] = lambda _entry: False
        self.due: Callable[[InboundRecord], float] = lambda _record: 0.0
        self._entries: dict[int, Entry] = {}  # by offset, in order
        self._bytes = 0
        self._left: InFlightMark | None = None
        self.begin: int | None = None
        self._end: int | None = None

    @property
    def committable(self) -> int | None:
        """The offset to commit: that of the first undone record, or the next one to read."""
        return next(iter(self._entries), self._end)

    @property
    def undone(self) -> Collection[Entry]:
        """The records that are not done, by offset."""
        return self._entries.values()

    @property
    def running(self) -> list[Entry]:
        return [entry for entry in self._entries.values() if entry.running]

    @property
    def mark(self) -> InFlightMark | None:
        """The mark of the running records; after a crash, what lies between them is isolated too."""
        running = self.running
        if not running:
            return None
        crashes = max(entry.crashes for entry in running)
        return InFlightMark(running[0].record.offset, running[-1].record.offset, crashes)

    @property
    def has_room(self) -> bool:
        """Whether to read on: the lane of small records is idle, and not too much is undone."""
        if self._bytes >= READ_AHEAD:
            return False
        small_runs = any(entry.running and not entry.large for entry in self._entries.values())
        return not small_runs and not self._startable(large=False)

    def isolate(self, left: InFlightMark | None) -> None:
        """Suspect the records under the mark that a dead worker left; until all are done, portions run one by one."""
        self._left = left
        for entry in self._entries.values():
            entry.crashes = self._crashes(entry.record)

    def add(self, records: Sequence[InboundRecord], end: int) -> None:
        """Take in a fetch; `end` is the next offset to read, behind transaction markers."""
        small = self._small(records)
        now = self._clock()
        for record in records:
            entry = Entry(record, now, record.offset not in small, self._crashes(record), self.due(record))
            self._entries[record.offset] = entry
            self._bytes += entry.held_bytes
        self.pass_over(end, first=records[0].offset)

    def pass_over(self, end: int, *, first: int) -> None:
        """Note that the offsets from `first` to `end` hold no records, or known ones."""
        if self.begin is None:
            self.begin = first
        self._end = end

    def take(self, *, large: bool, most: int | None = None) -> list[Entry]:
        """Start the next portion of a lane, of at most `most` records; empty if nothing may start."""
        portion = self._startable(large=large)[: most or self._most]
        for entry in portion:
            entry.running = True
        return portion

    def done(self, entries: Iterable[Entry]) -> None:
        """Settle records: the broker has acknowledged everything that follows from them."""
        for entry in entries:
            del self._entries[entry.record.offset]
            self._bytes -= entry.held_bytes

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Return running records to those that wait."""
        for entry in entries:
            entry.running = False

    def _small(self, records: Sequence[InboundRecord]) -> set[int]:
        """Return the offsets of the records that run first: the smallest, up to the bytes that run together."""
        left = float("inf") if self._together is None else self._together
        small: set[int] = set()
        for record in sorted(records, key=_size):
            left -= _size(record)
            if left < 0 or _size(record) >= LARGE:
                break
            small.add(record.offset)
        return small

    def _crashes(self, record: InboundRecord) -> int:
        left = self._left
        return left.crashes if left is not None and left.first <= record.offset <= left.last else 0

    @property
    def _last_suspect(self) -> int | None:
        """The last offset under suspicion, until everything up to it is done."""
        left, reached = self._left, self.committable
        return left.last if left is not None and (reached is None or reached <= left.last) else None

    def _startable(self, *, large: bool) -> list[Entry]:
        """Return the next portion of a lane."""
        idle = not any(entry.running for entry in self._entries.values())
        last = self._last_suspect
        if last is not None and not idle:
            return []
        now = self._clock()
        portion: list[Entry] = []
        held: set[bytes | None] = set()
        size = 0
        for entry in self._entries.values():
            key = entry.record.key
            if last is not None and entry.record.offset > last:
                return portion
            if entry.crashes >= ALONE:  # nothing passes it
                free = idle and not held and not portion and entry.due <= now and not self.blocked(entry)
                return [entry] if free and entry.large == large else portion
            follows = key in held or (key is None and bool(held))
            free = not (entry.running or follows or entry.large != large or entry.due > now)
            fits = not large or not portion or size + entry.size <= (self._together or 0)
            if free and fits and not self.blocked(entry):
                portion.append(entry)
                size += entry.size
                if len(portion) == self._most:
                    return portion
            else:
                held.add(key)
        return portion


def split(items: Iterable[Any], waits: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Split items, each with a `record`, into free ones, and those that wait or follow a waiting one in their key.

    Items without a key follow whichever waits.
    """
    keys: set[bytes | None] = set()
    free: list[Any] = []
    follow: list[Any] = []
    for item in items:
        key = item.record.key
        if key in keys or (keys and key is None) or waits(item):
            keys.add(key)
            follow.append(item)
        else:
            free.append(item)
    return free, follow


def _size(record: InboundRecord) -> int:
    return len(record.value or b"")
