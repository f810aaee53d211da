"""The board: a projection of the output topics in SQLite, for people to look at the review queue.

It decides nothing: the same records in any order, any number of times, give the same tables. Before it shows
what is pending, it asks state (`candidates`, `apply_statuses`).
"""

from __future__ import annotations

import json
import sqlite3
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Kind, Place, Verdict
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.review import queries
from groundwire.review.model import risk_of
from groundwire.review.queries import statement
from groundwire.review.reads import PORTION, BoardReads
from groundwire.review.records import (
    TopicRecord,
    decision_json,
    in_one_line,
    name_of,
    read_action,
    read_dead_letter,
    read_decision,
    read_retraction,
    review_fact,
    text_of,
)
from groundwire.state.model import SubjectState, SubjectStatus

IN_MEMORY: Final = ":memory:"
_MAX_COUNT: Final = 2**31  # bound of a stated count: SQLite does not hold every number

_RETRACTION: Final = """
INSERT INTO retractions (tenant_id, user_id, name, at_ms, claims, more) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, user_id, name) DO UPDATE SET
    at_ms = excluded.at_ms, claims = excluded.claims, more = excluded.more
WHERE (excluded.at_ms, excluded.claims, excluded.more)
    < (retractions.at_ms, retractions.claims, retractions.more)
"""

_VERSION: Final = 5
"""Of the columns derived from Decisions: 2, the risk by all failed checks, excerpts that end with "…" where they are
cut; 3, dependencies; 4, texts of items that are not pending; 5, users and sources in what is searched."""

_ITEM: Final = """
INSERT INTO items (tenant_id, user_id, kind, subject_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_ITEM_ID: Final = "SELECT id FROM items WHERE tenant_id = ? AND user_id = ? AND kind = ? AND subject_id = ?"

# of a decision published twice the first position counts
_DECISION: Final = """
INSERT INTO decisions (item, revision, decision_id, topic, partition, "offset", timestamp_ms, reason_code, source,
    memory_type, decided_ms, excerpt, placed, action, reviewer, review_reason, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (item, revision, decision_id) DO UPDATE SET
    topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset",
    timestamp_ms = excluded.timestamp_ms, reason_code = excluded.reason_code, source = excluded.source,
    memory_type = excluded.memory_type, decided_ms = excluded.decided_ms, excerpt = excluded.excerpt,
    placed = excluded.placed, action = excluded.action, reviewer = excluded.reviewer,
    review_reason = excluded.review_reason, value = excluded.value
WHERE (excluded.timestamp_ms, excluded.partition, excluded."offset", excluded.topic)
    < (decisions.timestamp_ms, decisions.partition, decisions."offset", decisions.topic)
"""
_HIGHEST: Final = """
SELECT id, revision, decision_id, topic, reason_code, source, memory_type, decided_ms, excerpt, placed FROM decisions
WHERE item = ? ORDER BY revision DESC, timestamp_ms, partition, "offset", topic, decision_id LIMIT 1
"""
_CURRENT: Final = """
UPDATE items SET current = ?, revision = ?, decision_id = ?, topic = ?, reason_code = ?, source = ?, memory_type = ?,
    since_ms = ?, excerpt = ?, placed = ?, risk = ? WHERE id = ?
"""
_ACTION: Final = """
INSERT INTO actions (tenant_id, event_id, user_id, kind, subject_id, action_id, at_ms, actor, applied, action,
    outcome)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, event_id) DO UPDATE SET
    user_id = excluded.user_id, kind = excluded.kind, subject_id = excluded.subject_id,
    action_id = excluded.action_id, at_ms = excluded.at_ms, actor = excluded.actor,
    applied = excluded.applied, action = excluded.action, outcome = excluded.outcome
WHERE (excluded.at_ms, excluded.outcome, excluded.action_id, excluded.actor)
    < (actions.at_ms, actions.outcome, actions.action_id, actions.actor)
"""
_DEAD_LETTER: Final = """
INSERT INTO dead_letters (at_partition, at_offset, at_ms, code, message, topic, partition, "offset", tenant_id,
    user_id, excerpt)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING
"""


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
            _upgrade(connection)

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
                    _write(connection, record)

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
                dropped = -1 if pending else found[1]  # as long as this is its highest revision
                update = "UPDATE items SET dropped = ? WHERE id = ? AND dropped <> ?"
                connection.execute(update, (dropped, found[0], dropped))
                _queue(connection, found[0])

    def forget(self, before: datetime) -> None:
        """Delete what is older and not pending, so that the board of a long-running process stays small."""
        before_ms = to_milliseconds(before)
        with self._writing() as connection:
            old = "FROM items WHERE pending = 0 AND since_ms < ?"
            connection.execute(
                statement("DELETE FROM decisions WHERE item IN (SELECT id", old, ")"), (before_ms,)
            )
            connection.execute(
                "DELETE FROM rests WHERE (tenant_id, user_id, claim) IN"
                " (SELECT tenant_id, user_id, subject_id FROM items"
                " WHERE pending = 0 AND since_ms < ? AND kind = 'claim')",
                (before_ms,),
            )
            connection.execute("DELETE FROM retractions WHERE at_ms < ?", (before_ms,))
            for (item,) in connection.execute(statement("SELECT id", old), (before_ms,)).fetchall():
                queries.drop(connection, item)
            connection.execute(statement("DELETE", old), (before_ms,))
            connection.execute("DELETE FROM actions WHERE at_ms < ?", (before_ms,))
            connection.execute("DELETE FROM dead_letters WHERE at_ms < ?", (before_ms,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._connection:
            yield self._connection


def _upgrade(connection: sqlite3.Connection) -> None:
    """Derive the columns that an earlier version of this module wrote again, from the stored Decisions."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version >= _VERSION:
        return
    items = connection.execute(
        "SELECT items.id, items.pending, decisions.value FROM items JOIN decisions ON decisions.id = items.current"
    )
    for item, pending, value in items.fetchall():
        decision = Decision.model_validate_json(decision_json(value))
        risk, excerpt = _rank(decision), in_one_line(text_of(decision))
        connection.execute("UPDATE items SET risk = ?, excerpt = ? WHERE id = ?", (risk, excerpt, item))
        queries.put(connection, item, _sought(decision), pending=bool(pending))
        _index_dependencies(connection, decision)
    for number, value in connection.execute("SELECT id, value FROM decisions").fetchall():
        decision = Decision.model_validate_json(decision_json(value))
        excerpt = in_one_line(text_of(decision))
        connection.execute("UPDATE decisions SET excerpt = ? WHERE id = ?", (excerpt, number))
    connection.execute(statement("PRAGMA user_version =", str(_VERSION)))


def _write(connection: sqlite3.Connection, record: TopicRecord) -> None:
    if record.topic is TopicName.AUDIT:
        if event := read_action(record):
            names = ("user_id", "kind", "action_id", "action", "outcome")
            user, kind, action_id, action, outcome = (str(event.detail.get(name) or "") for name in names)
            subject = (event.tenant_id, event.event_id, user, kind or "claim", event.subject_id or "")
            applied = event.type == "review_action"
            what = (action_id, to_milliseconds(event.at), event.actor, applied, action, outcome)
            connection.execute(_ACTION, (*subject, *what))
    elif record.topic is TopicName.RETRACTIONS:
        if retraction := read_retraction(record):
            name = name_of(retraction.kind, retraction.subject_id)
            claims = json.dumps(retraction.affected, ensure_ascii=False)
            more = min(max(0, (retraction.truncated or {}).get("affected", 0)), _MAX_COUNT)
            owner = (retraction.tenant_id, retraction.user_id)
            connection.execute(_RETRACTION, (*owner, name, to_milliseconds(retraction.at), claims, more))
    elif record.topic is TopicName.DEAD_LETTER:
        if failed := read_dead_letter(record):
            place = (record.partition, record.offset, record.timestamp_ms)
            why = (failed.code, failed.message, failed.topic, failed.partition, failed.offset)
            connection.execute(_DEAD_LETTER, (*place, *why, failed.tenant_id, failed.user_id, failed.excerpt))
    elif (decision := read_decision(record)) and record.value is not None:
        _write_decision(connection, record, decision, record.value)


def _write_decision(
    connection: sqlite3.Connection, record: TopicRecord, decision: Decision, value: bytes
) -> None:
    subject = (decision.tenant_id, decision.user_id, str(decision.kind), decision.subject_id)
    connection.execute(_ITEM, subject)
    (item,) = connection.execute(_ITEM_ID, subject).fetchone()
    before = connection.total_changes
    row = (
        *(item, decision.revision, decision.decision_id),
        *(str(record.topic), record.partition, record.offset, record.timestamp_ms),
        *(decision.reason_code, decision.source, decision.memory_type, to_milliseconds(decision.decided_at)),
        in_one_line(text_of(decision)),
        record.topic is TopicName.REVIEW and decision.revision > 0 and decision.facts.place == Place.FREE,
        *(review_fact(decision, name) for name in ("action", "reviewer", "reason")),
        zlib.compress(value, 1),  # half the size at a tenth of the time of the best level
    )
    connection.execute(_DECISION, row)
    if connection.total_changes == before:
        return
    current = connection.execute(_HIGHEST, (item,)).fetchone()
    highest = decision
    if current[2] != decision.decision_id:
        (stored,) = connection.execute("SELECT value FROM decisions WHERE id = ?", current[:1]).fetchone()
        highest = Decision.model_validate_json(decision_json(stored))
    connection.execute(_CURRENT, (*current, _rank(highest), item))
    _index_dependencies(connection, highest)
    _queue(connection, item, changed=highest)


def _index_dependencies(connection: sqlite3.Connection, highest: Decision) -> None:
    """Store the parents of a claim by its highest revision: none unless it is approved."""
    if highest.kind != Kind.CLAIM:
        return
    claim = (highest.tenant_id, highest.user_id, highest.subject_id)
    connection.execute("DELETE FROM rests WHERE tenant_id = ? AND user_id = ? AND claim = ?", claim)
    if highest.verdict == Verdict.APPROVED:
        names = {name for name in highest.derived_from or () if name != highest.subject_id}
        connection.executemany(
            "INSERT INTO rests (tenant_id, user_id, claim, name) VALUES (?, ?, ?, ?)",
            [(*claim, name) for name in names],
        )


def _rank(decision: Decision) -> int:
    return risk_of(decision.reason_code, decision.checks_failed).rank


def _sought(decision: Decision) -> str:
    source_id = (decision.evidence.source_id if decision.evidence else None) or ""
    return "\n".join((text_of(decision), decision.subject_id, decision.user_id, source_id))


def _queue(connection: sqlite3.Connection, item: int, *, changed: Decision | None = None) -> None:
    """Derive `pending`, and the search table, from `placed` and `dropped`."""
    pending, was = connection.execute(
        "SELECT placed AND dropped <> revision, pending FROM items WHERE id = ?", (item,)
    ).fetchone()
    if pending == was and changed is None:
        return
    if changed is None:
        queries.move(connection, item, pending=bool(pending))
    else:
        queries.put(connection, item, _sought(changed), pending=bool(pending))
    connection.execute("UPDATE items SET pending = ? WHERE id = ?", (pending, item))
