"""The board: a projection of the output topics in SQLite, for people to look at the review queue.

It decides nothing, and can be rebuilt by reading the topics again, in any order and any number of times. State has the
last word on what is pending (`candidates`, `apply_statuses`).
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from groundwire.review import projection, queries
from groundwire.review.reads import PORTION, BoardReads
from groundwire.review.records import TopicRecord
from groundwire.state.model import SubjectState, SubjectStatus

IN_MEMORY: Final = ":memory:"


class Board(BoardReads):
    """The tables and their queries; every read takes a ViewScope and answers as if nothing else existed.

    Methods may be called from several threads; one runs at a time. `path`: an SQLite file, readable for its owner
    alone; `fts`: search by an FTS5 index, None: if this SQLite has it. Raises: sqlite3.Error.
    """

    def __init__(
        self,
        path: str = IN_MEMORY,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        fts: bool | None = None,
    ) -> None:
        if path != IN_MEMORY:
            Path(path).touch(mode=0o600)
        connection = sqlite3.connect(path, check_same_thread=False)
        has_fts = queries.has_fts5(connection) if fts is None else fts
        super().__init__(connection, threading.RLock(), clock, fts=has_fts)
        with self._writing() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(files("groundwire.review").joinpath("schema.sql").read_text("utf-8"))
            queries.create(connection, fts=has_fts)
            projection.upgrade(connection)

    @property
    def version(self) -> int:
        """A number that grows with every change of the board."""
        return self._connection.total_changes

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def add(self, records: Sequence[TopicRecord]) -> None:
        """Write records of output topics, in any order and any number of times; others are ignored."""
        for start in range(0, len(records), PORTION):  # readers wait for one portion, not for all
            with self._writing() as connection:
                for record in records[start : start + PORTION]:
                    projection.write(connection, record)

    def candidates(self, *, dropped: bool = False) -> list[tuple[Subject, int]]:
        """Return what the board shows as pending, with the revision; `dropped`: also what `apply_statuses` dropped."""
        columns = "SELECT tenant_id, user_id, kind, subject_id, revision FROM items WHERE"
        rows = self._rows(columns, "placed = 1" if dropped else "pending = 1")
        return [(Subject(row[0], row[1], Kind(row[2]), row[3]), row[4]) for row in rows]

    def apply_statuses(self, statuses: Mapping[Subject, SubjectStatus | None]) -> None:
        """Drop what state does not hold as pending at the revision that the board shows; put back what it does."""
        with self._writing() as connection:
            for subject, status in statuses.items():
                found = connection.execute(
                    "SELECT id, revision FROM items WHERE tenant_id = ? AND user_id = ? AND kind = ?"
                    " AND subject_id = ? AND placed = 1",
                    (subject.tenant_id, subject.user_id, str(subject.kind), subject.subject_id),
                ).fetchone()
                if found is None or (status is not None and status.revision < found[1]):
                    continue
                pending = status == SubjectStatus(SubjectState.PENDING, found[1])
                projection.set_dropped(connection, found[0], -1 if pending else found[1])

    def forget(self, before: datetime) -> None:
        """Delete what is older and not pending, so that the board of a long-running process stays small."""
        with self._writing() as connection:
            projection.forget_items(connection, to_milliseconds(before))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._connection:
            yield self._connection
