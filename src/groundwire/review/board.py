"""The board: what the output topics say of the review queue, in SQLite, for people to look at.

It is a projection: it decides nothing, and is rebuilt by reading the topics again, in any order and any number of
times. State has the last word on what is pending (`candidates`, `apply_statuses`).
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
from groundwire.messages.topics import TopicName
from groundwire.review import projection, queries, reads
from groundwire.review.model import (
    Agreement,
    Backlog,
    Counts,
    DeadLetterRow,
    Item,
    ListedTopic,
    Nearest,
    Neighbours,
    Page,
    Query,
    Related,
    Row,
    Standing,
    check_limit,
)
from groundwire.review.permissions import ViewScope
from groundwire.review.queries import (
    COLUMNS,
    WIDTH,
    Where,
    as_row,
    filtered,
    make_cursor,
    ordered,
    seen,
    sort_key,
    statement,
)
from groundwire.review.records import TopicRecord
from groundwire.state.model import SubjectState, SubjectStatus

IN_MEMORY: Final = ":memory:"
_PORTION: Final = 100


def _now() -> datetime:
    return datetime.now(UTC)


class Board:
    """The tables and their queries; every read takes a ViewScope and answers as if nothing else existed.

    Methods take milliseconds and may be called from several threads; one runs at a time.

    Args:
        path: of the SQLite file, which is made readable for its owner alone.
        clock: the wall clock.
        fts: whether texts are searched by an index; None: if this SQLite has FTS5.

    Raises:
        sqlite3.Error: the file cannot be used.
    """

    def __init__(
        self, path: str = IN_MEMORY, *, clock: Callable[[], datetime] = _now, fts: bool | None = None
    ) -> None:
        if path != IN_MEMORY:
            Path(path).touch(mode=0o600)
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._lock = threading.RLock()
        self._clock = clock
        self._fts = queries.has_fts5(self._connection) if fts is None else fts
        with self._writing() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(files("groundwire.review").joinpath("schema.sql").read_text("utf-8"))
            queries.create(connection, fts=self._fts)
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
        for start in range(0, len(records), _PORTION):  # readers wait for one portion, not for all
            with self._writing() as connection:
                for record in records[start : start + _PORTION]:
                    projection.write(connection, record)

    def candidates(self, *, dropped: bool = False) -> list[tuple[Subject, int]]:
        """Return what the board shows as pending, with the revision; `dropped`: also what `apply_statuses` dropped."""
        columns = "SELECT tenant_id, user_id, kind, subject_id, revision FROM items WHERE"
        with self._reading() as connection:
            rows = connection.execute(
                statement(columns, "placed = 1" if dropped else "pending = 1")
            ).fetchall()
        return [(Subject(row[0], row[1], Kind(row[2]), row[3]), row[4]) for row in rows]

    def apply_statuses(self, statuses: Mapping[Subject, SubjectStatus | None]) -> None:
        """Drop what state does not hold as pending at the revision that the board shows; put back what it does.

        A status of a lower revision than the board's is out of date and changes nothing.
        """
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

    def pending(self, scope: ViewScope, query: Query) -> Page[Row]:
        """Return a page of the queue. Raises: ValueError, of an invalid cursor."""
        where = filtered(seen(scope, Where(["items.pending = 1"])), query, self._clock(), fts=self._fts)
        return self._page(where, query)

    def neighbours(
        self, scope: ViewScope, query: Query, decision_id: str, is_free: Callable[[Row], bool]
    ) -> Neighbours:
        where = filtered(seen(scope, Where(["items.pending = 1"])), query, self._clock(), fts=self._fts)
        with self._reading() as connection:
            return reads.neighbours(connection, where, query.sort, decision_id, is_free)

    def not_pending(
        self,
        scope: ViewScope,
        topic: ListedTopic,
        limit: int = 50,
        cursor: str | None = None,
        text: str = "",
    ) -> Page[Row]:
        """Return a page of what is not pending, newest first: approved, blocked, or responses in review.

        `text`: words that all stand in the text or id, as in a Query.

        Raises:
            ValueError: of limit or cursor.
        """
        where = seen(scope, Where(["items.pending = 0"]).equals("items.topic", str(topic)))
        if topic is TopicName.REVIEW:
            where.equals("items.kind", str(Kind.RESPONSE))
        found = queries.condition(text, fts=self._fts, table=queries.OTHERS)
        if found is not None:
            where.add(found[0], *found[1])
        return self._page(where, Query(sort="newest", limit=limit, cursor=cursor))

    def dead_letters(
        self, scope: ViewScope, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetterRow]:
        """Return a page of dead letters, newest first.

        Their owner is not verified: a letter is shown to who sees the whole tenant of the record's key, and to nobody
        where the value names another tenant.

        Raises:
            ValueError: of limit or cursor.
        """
        check_limit(limit)
        with self._reading() as connection:
            return reads.dead_letters(connection, scope, limit, cursor)

    def dead_letter_counts(self, since: datetime) -> list[tuple[str, int]]:
        """Return how many dead letters of each code there were since a time, over all tenants."""
        with self._reading() as connection:
            return reads.dead_letter_counts(connection, to_milliseconds(since))

    def item(self, scope: ViewScope, decision_id: str) -> Item | None:
        """Return a Decision with its context; None where there is none that the person sees (S0-132)."""
        with self._reading() as connection:
            return reads.item(connection, scope, decision_id)

    def standings(self, scope: ViewScope, decision_ids: Sequence[str]) -> dict[str, Standing]:
        """Return where the subjects of many Decisions stand, by the id asked for: of those that the person sees."""
        with self._reading() as connection:
            return reads.standings(connection, scope, decision_ids)

    def memories(self, scope: ViewScope, decision_ids: Sequence[str]) -> dict[str, list[Nearest]]:
        found: dict[str, list[Nearest]] = {}
        for start in range(0, len(decision_ids), _PORTION):  # others wait for one portion, not for all
            with self._reading() as connection:
                found |= reads.memories(connection, scope, decision_ids[start : start + _PORTION])
        return found

    def approved_near(self, scope: ViewScope, item: Item, limit: int = 20) -> list[Nearest]:
        """Return approved claims of the same owner that share words with a claim, as the search finds them."""
        with self._reading() as connection:
            return reads.approved_near(connection, scope, item, limit=limit, fts=self._fts)

    def dependents(self, scope: ViewScope, row: Row) -> Page[Related]:
        """Return the approved claims that rest on an approved or retracted item, by id; `total` counts all.

        At most 1,000: those that the board holds, and of a retracted item those that its Retraction names.
        """
        with self._reading() as connection:
            return projection.dependents(connection, scope, row)

    def find(self, scope: ViewScope, tenant_id: str, user_id: str, subject_id: str) -> str | None:
        """Return the decision id of a claim's highest revision, or None."""
        with self._reading() as connection:
            return reads.find(connection, scope, (tenant_id, user_id, subject_id))

    def counts(self, scope: ViewScope) -> Counts:
        """Return how many items are pending, for the gauges of the limits (S0-133, S0-134)."""
        with self._reading() as connection:
            return reads.counts(connection, scope)

    def backlog(self) -> Backlog:
        """Return how near the queue is to its limits, over all tenants, for operators (S0-133, S0-134)."""
        with self._reading() as connection:
            return reads.backlog(connection)

    def agreement(self, scope: ViewScope, since: datetime) -> Agreement:
        """Return how people's decisions since a time compare with the gate's."""
        with self._reading() as connection:
            return reads.agreement(connection, scope, to_milliseconds(since))

    def _page(self, where: Where, query: Query) -> Page[Row]:
        total_sql = statement("SELECT count(*) FROM items", where.sql)
        total_values = list(where.values)
        order = ordered(where, query.sort, query.cursor)
        sql = ["SELECT", COLUMNS, ",", sort_key(query.sort), "FROM items", where.sql, order, "LIMIT ?"]
        with self._reading() as connection:
            (total,) = connection.execute(total_sql, total_values).fetchone()
            found = connection.execute(statement(*sql), (*where.values, query.limit + 1)).fetchall()
        rows = found[: query.limit]
        following = make_cursor(rows[-1][WIDTH:]) if len(found) > query.limit else None
        return Page([as_row(row) for row in rows], total, following)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._connection:
            yield self._connection
