"""The records of one partition, from fetch to commit.

One rule says what may start: no earlier undone record has its key, it is due, and it fits the bytes of a batch. The
offset to commit is the end of the done prefix; the crash mark covers what has started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from groundwire.messages.headers import InboundRecord
from groundwire.state.model import InFlightMark

ALONE: Final = 2
"""Crashes from which on a record runs with nothing beside it."""

LARGE: Final = 50_000
"""Bytes of a record that others of its partition do not wait for: checking it takes up to two seconds."""

READ_AHEAD: Final = 16_000_000
"""Bytes of undone records from which on a partition is not read."""

_OBJECT: Final = 500
"""Bytes of a buffered record besides key, value and headers."""


@dataclass(slots=True, eq=False)
class Entry:
    """A record that is not done.

    Attributes:
        fetched_at: seconds of the monotonic clock.
        large: runs beside the small records that follow it.
        crashes: how often a worker died with it in flight.
        due: seconds of the monotonic clock before which it does not start.
        started: its processing has begun, so that a crash may be its fault.
        aside: waits for its look-ups while later records of other keys run.
    """

    record: InboundRecord
    fetched_at: float
    large: bool = False
    crashes: int = 0
    due: float = 0.0
    started: bool = False
    aside: bool = False

    @property
    def size(self) -> int:
        return _size(self.record)

    @property
    def held_bytes(self) -> int:
        headers = sum(len(name) + len(value or b"") for name, value in self.record.headers)
        return _OBJECT + len(self.record.key or b"") + self.size + headers


class PartitionBook:
    """Every record of a partition that is fetched and not done.

    Args:
        max_bytes: of a batch, smallest records of a fetch first; None: any number of small records, one large one.
        max_records: of a batch.
        large: bytes of a record from which on others do not wait for it.
        due: returns the time of the clock before which a record does not start.
        clock: in seconds.

    Attributes:
        first_offset: the first offset that was read.
    """

    def __init__(
        self,
        max_bytes: int | None = None,
        max_records: int = 500,
        *,
        large: int = LARGE,
        due: Callable[[InboundRecord], float] = lambda _record: 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._large = large
        self._max_records = max_records
        self._due = due
        self._clock = clock
        self._entries: dict[int, Entry] = {}  # by offset, in order
        self._running: set[Entry] = set()
        self._may_start = False  # whether small records may start, as far as known
        self._bytes = 0
        self._crash_mark: InFlightMark | None = None
        self.first_offset: int | None = None
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
    def waits(self) -> bool:
        """Whether records wait to be taken."""
        return len(self._entries) > len(self._running)

    @property
    def mark(self) -> InFlightMark | None:
        """The mark of the started records; after a crash, what lies between them is isolated too."""
        started = [entry for entry in self._running if entry.started]
        if not started:
            return None
        offsets = [entry.record.offset for entry in started]
        return InFlightMark(min(offsets), max(offsets), max(entry.crashes for entry in started))

    @property
    def has_room(self) -> bool:
        """Whether to read on: no small record runs or may start, and not too much is undone."""
        small_runs = any(not (entry.large or entry.aside) for entry in self._running)
        return self._bytes < READ_AHEAD and not self._may_start and not small_runs

    def isolate(self, mark: InFlightMark | None) -> None:
        """Suspect the records under the mark that a dead worker left; until all are done, batches run one by one."""
        self._crash_mark = mark
        for entry in self._entries.values():
            entry.crashes = self._crashes(entry.record)

    def add(self, records: Sequence[InboundRecord], end: int) -> None:
        """Take in a fetch; `end` is the next offset to read, behind transaction markers."""
        small = self._small(records)
        now = self._clock()
        for record in records:
            if record.offset in self._entries:  # the broker had the consumer start anew
                continue
            large = record.offset not in small
            entry = Entry(record, now, large, self._crashes(record), self._due(record))
            self._entries[record.offset] = entry
            self._bytes += entry.held_bytes
        self._may_start = True
        self.pass_over(end, first=records[0].offset)

    def pass_over(self, end: int, *, first: int) -> None:
        """Note that the offsets from `first` to `end` hold no records, or known ones."""
        if self.first_offset is None:
            self.first_offset = first
        self._end = end

    def take(self, *, large: bool, most: int | None = None) -> list[Entry]:
        """Return the next batch of small or of large records, of at most `most`; empty if none may start."""
        batch = self._startable(large=large)[:most]
        self._running.update(batch)
        if not large:
            self._may_start = False
        return batch

    def done(self, entries: Iterable[Entry]) -> None:
        """Settle records: the broker has acknowledged everything that follows from them."""
        for entry in entries:
            del self._entries[entry.record.offset]
            self._running.discard(entry)
            self._bytes -= entry.held_bytes
        self._may_start = self.waits

    def put_back(self, entries: Iterable[Entry]) -> None:
        """Return running records to those that wait."""
        for entry in entries:
            entry.started = False
            self._running.discard(entry)
        self._may_start = True

    def set_aside(self, entry: Entry) -> None:
        """Let later records of other keys run while a running record waits."""
        entry.started, entry.aside = False, True
        self._may_start = self.waits

    def _small(self, records: Sequence[InboundRecord]) -> set[int]:
        """Return the offsets of the records of a fetch that run first: the smallest, up to the bytes of a batch."""
        budget = float("inf") if self._max_bytes is None else self._max_bytes
        small: set[int] = set()
        for record in sorted(records, key=_size):
            budget -= _size(record)
            if budget < 0 or _size(record) >= self._large:
                break
            small.add(record.offset)
        return small

    def _crashes(self, record: InboundRecord) -> int:
        mark = self._crash_mark
        return mark.crashes if mark is not None and mark.first <= record.offset <= mark.last else 0

    @property
    def _last_suspect(self) -> int | None:
        """The last offset under suspicion, until everything up to it is done."""
        mark, reached = self._crash_mark, self.committable
        return mark.last if mark is not None and (reached is None or reached <= mark.last) else None

    def _startable(self, *, large: bool) -> list[Entry]:
        last = self._last_suspect
        if last is not None and self._running:
            return []
        now = self._clock()
        budget = self._max_bytes if self._max_bytes is not None else 0 if large else float("inf")
        batch: list[Entry] = []
        held: set[bytes | None] = set()
        size = 0
        for entry in self._entries.values():
            key = entry.record.key
            if last is not None and entry.record.offset > last:
                return batch
            waits = entry in self._running or entry.due > now
            if entry.crashes >= ALONE:  # nothing passes it
                free = not (self._running or held or batch or waits)
                return [entry] if free and entry.large == large else batch
            follows = key in held or (key is None and bool(held))
            fits = not batch or size + entry.size <= budget
            if entry.large == large and fits and not (waits or follows):
                batch.append(entry)
                size += entry.size
                if len(batch) == self._max_records:
                    return batch
            else:
                held.add(key)
        return batch


def _size(record: InboundRecord) -> int:
    return len(record.value or b"")
