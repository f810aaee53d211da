"""The board: what the output topics say of the review queue, in SQLite, for people to look at.

It is a projection. Nothing is decided here and nothing is lost with it: it is read again from the topics, in any
order and as often as comes. State has the last word on what is pending (`candidates`, `settle`).
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
from groundwire.review import agreement, items, projection, resting, search
from groundwire.review.model import (
    Agreement,
    Backlog,
    Counts,
    DeadLetter,
    Item,
    LookedUp,
    Opinion,
    Page,
    Query,
    Related,
    Revealed,
    Row,
    Sampled,
    check_limit,
)
from groundwire.review.people import Scope
from groundwire.review.queries import COLUMNS, WIDTH, as_row, filtered, make_cursor, ordered, seen, sort_key
from groundwire.review.records import TopicRecord
from groundwire.review.sql import Where, statement
from groundwire.state.model import Standing, SubjectState

IN_MEMORY: Final = ":memory:"
_PORTION: Final = 100


def _now() -> datetime:
    return datetime.now(UTC)


class Board:
    """What people see. Every read takes a Scope, and answers as if nothing else existed.

    Methods are quick and may be called from several threads; one runs at a time.

    Args:
        path: of the SQLite file, which is made readable for its owner alone. In memory, what people thought of
            the blind sample is forgotten with the process.
        clock: what the time is.
        fts: whether texts are searched by an index; None: if this SQLite can.

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
        self._fts = search.has_fts5(self._connection) if fts is None else fts
        with self._writing() as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(files("groundwire.review").joinpath("schema.sql").read_text("utf-8"))
            search.create(connection, fts=self._fts)
            projection.upgrade(connection)

    @property
    def version(self) -> int:
        """A number that grows whenever something on the board changes."""
        return self._connection.total_changes

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._connection.close()

    def add(self, records: Sequence[TopicRecord]) -> None:
        """Take in records of output topics, in any order and as often as they come; others are left out."""
        for start in range(0, len(records), _PORTION):  # who reads need not wait for all of them
            with self._writing() as connection:
                for record in records[start : start + _PORTION]:
                    projection.write(connection, record)

    def candidates(self, *, dropped: bool = False) -> list[tuple[Subject, int]]:
        """Return what the board takes for pending, with the revision; `dropped`: what it dropped, too."""
        found = "SELECT tenant_id, user_id, kind, subject_id, revision FROM items WHERE"
        with self._reading() as connection:
            rows = connection.execute(statement(found, "placed = 1" if dropped else "pending = 1")).fetchall()
        return [(Subject(row[0], row[1], Kind(row[2]), row[3]), row[4]) for row in rows]

    def settle(self, standings: Mapping[Subject, Standing | None]) -> None:
        """Drop what state does not hold as pending at the revision that the board shows; put back what it does.

        An answer older than what the board shows says nothing about it.
        """
        with self._writing() as connection:
            for subject, standing in standings.items():
                found = connection.execute(
                    "SELECT id, revision FROM items WHERE tenant_id = ? AND user_id = ? AND kind = ?"
                    " AND subject_id = ? AND placed = 1",
                    (subject.tenant_id, subject.user_id, str(subject.kind), subject.subject_id),
                ).fetchone()
                if found is None or (standing is not None and standing.revision < found[1]):
                    continue
                held = standing == Standing(SubjectState.PENDING, found[1])
                projection.settle(connection, found[0], -1 if held else found[1])

    def forget(self, before: datetime) -> None:
        """Drop what is older and not pending, so that a board that runs for long stays small."""
        with self._writing() as connection:
            projection.forget(connection, to_milliseconds(before))

    def pending(self, scope: Scope, query: Query) -> Page[Row]:
        """Return a page of the queue. Raises: ValueError, of a cursor that is none."""
        where = filtered(seen(scope, Where(["items.pending = 1"])), query, self._clock(), fts=self._fts)
        return self._page(where, query)

    def looked_up(
        self,
        scope: Scope,
        topic: LookedUp,
        limit: int = 50,
        cursor: str | None = None,
        text: str = "",
    ) -> Page[Row]:
        """Return a page of what waits for nobody, newest first: approved, blocked, or responses in review.

        `text`: words that all stand in the text or id, as in a Query.

        Raises:
            ValueError: of limit or cursor.
        """
        where = seen(scope, Where(["items.pending = 0"]).equals("items.topic", str(topic)))
        if topic is TopicName.REVIEW:
            where.equals("items.kind", str(Kind.RESPONSE))
        found = search.condition(text, fts=self._fts, table=search.OTHERS)
        if found is not None:
            where.add(found[0], *found[1])
        return self._page(where, Query(sort="newest", limit=limit, cursor=cursor))

    def dead_letters(self, scope: Scope, limit: int = 50, cursor: str | None = None) -> Page[DeadLetter]:
        """Return a page of dead letters, newest first.

        They have no owner that could be trusted: only who sees the whole tenant of a record's key sees it, and
        nobody where its value names another tenant.

        Raises:
            ValueError: of limit or cursor.
        """
        check_limit(limit)
        with self._reading() as connection:
            return items.dead_letters(connection, scope, limit, cursor)

    def item(self, scope: Scope, decision_id: str) -> Item | None:
        """Return a Decision with all that bears on it; None where there is none that the person sees (S0-132)."""
        with self._reading() as connection:
            return items.item(connection, scope, decision_id)

    def resting(self, scope: Scope, row: Row) -> Page[Related]:
        """Return the approved claims that rest on what is approved or retracted, by id; `total` counts all.

        At most 1,000: those that the board holds, and of what was retracted those that its Retraction names.
        """
        with self._reading() as connection:
            return resting.children(connection, scope, row)

    def find(self, scope: Scope, tenant_id: str, user_id: str, subject_id: str) -> str | None:
        """Return the decision id of a claim's highest revision, or None."""
        with self._reading() as connection:
            return items.find(connection, scope, (tenant_id, user_id, subject_id))

    def counts(self, scope: Scope) -> Counts:
        """Return how many items are pending, for the gauges of the limits (S0-133, S0-134)."""
        with self._reading() as connection:
            return items.counts(connection, scope)

    def backlog(self) -> Backlog:
        """Return how near the queue is to its limits, of all tenants: for whoever is on call (S0-133, S0-134)."""
        with self._reading() as connection:
            return items.backlog(connection)

    def agreement(self, scope: Scope, since: datetime) -> Agreement:
        """Return how people's decisions since a time compare with the gate's."""
        with self._reading() as connection:
            return agreement.agreement(connection, scope, to_milliseconds(since))

    def sample(self, scope: Scope, share: float = 0.0, limit: int = 20) -> list[Sampled]:
        """Return claims of the blind sample that the person has no opinion on yet, verdicts hidden.

        Args:
            scope: what the person sees.
            share: of all claims that the gate approved or blocked by itself, 0 (off) to 1; a smaller sample is
                part of every larger one.
            limit: at most so many.
        """
        check_limit(limit)
        with self._reading() as connection:
            return agreement.sample(connection, scope, share, limit)

    def record_opinion(self, scope: Scope, decision_id: str, opinion: Opinion) -> Revealed | None:
        """Keep what a person thinks of a sampled claim, the first time, and tell what the gate decided.

        Returns:
            None where there is no such claim that the person sees.
        """
        with self._writing() as connection:
            return agreement.record_opinion(
                connection, scope, decision_id, opinion, to_milliseconds(self._clock())
            )

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
