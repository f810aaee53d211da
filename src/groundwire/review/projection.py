"""Writing what records say into the board's tables; the same records in any order give the same tables."""

from __future__ import annotations

import sqlite3
import zlib
from typing import Final

from groundwire.messages.audit import AuditEvent
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Place
from groundwire.messages.topics import TopicName
from groundwire.review import resting, search
from groundwire.review.records import (
    Failed,
    TopicRecord,
    in_one_line,
    lot,
    read_action,
    read_dead_letter,
    read_decision,
    read_retraction,
    review_fact,
    text_of,
)
from groundwire.review.risk import risk_of
from groundwire.review.sql import statement

_VERSION: Final = 4
"""Of what is derived from Decisions: 2, the risk by all failed checks, excerpts tell that they are cut; 3, what rests
on what; 4, texts of what waits for nobody."""
_FAST: Final = 1  # zlib's level: half the size at a tenth of the time of the best one

_ITEM: Final = """
INSERT INTO items (tenant_id, user_id, kind, subject_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_ITEM_ID: Final = "SELECT id FROM items WHERE tenant_id = ? AND user_id = ? AND kind = ? AND subject_id = ?"

# a decision published twice stands where it stood first
_DECISION: Final = """
INSERT INTO decisions (item, revision, decision_id, topic, partition, "offset", timestamp_ms, reason_code, source,
    memory_type, decided_ms, excerpt, placed, action, reviewer, review_reason, lot, value)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (item, revision, decision_id) DO UPDATE SET
    topic = excluded.topic, partition = excluded.partition, "offset" = excluded."offset",
    timestamp_ms = excluded.timestamp_ms, reason_code = excluded.reason_code, source = excluded.source,
    memory_type = excluded.memory_type, decided_ms = excluded.decided_ms, excerpt = excluded.excerpt,
    placed = excluded.placed, action = excluded.action, reviewer = excluded.reviewer,
    review_reason = excluded.review_reason, lot = excluded.lot, value = excluded.value
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


def upgrade(connection: sqlite3.Connection) -> None:
    """Let what an earlier version of the board has written follow from its Decisions as they are read now."""
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
        search.put(connection, item, _sought(decision), pending=bool(pending))
        resting.follow(connection, decision)
    for number, value in connection.execute("SELECT id, value FROM decisions").fetchall():
        decision = Decision.model_validate_json(decision_json(value))
        excerpt = in_one_line(text_of(decision))
        connection.execute("UPDATE decisions SET excerpt = ? WHERE id = ?", (excerpt, number))
    connection.execute(statement("PRAGMA user_version =", str(_VERSION)))


def write(connection: sqlite3.Connection, record: TopicRecord) -> None:
    """Write a record; one that the board does not show is left out."""
    if record.topic is TopicName.AUDIT:
        event = read_action(record)
        if event is not None:
            _write_action(connection, event)
    elif record.topic is TopicName.RETRACTIONS:
        retraction = read_retraction(record)
        if retraction is not None:
            resting.follow_retraction(connection, retraction)
    elif record.topic is TopicName.DEAD_LETTER:
        failed = read_dead_letter(record)
        if failed is not None:
            _write_dead_letter(connection, record, failed)
    else:
        decision = read_decision(record)
        if decision is not None and record.value is not None:
            _write_decision(connection, record, decision, record.value)


def settle(connection: sqlite3.Connection, item: int, dropped: int) -> None:
    """Take an item out of the queue for as long as its highest revision is this one; -1: put it back."""
    connection.execute("UPDATE items SET dropped = ? WHERE id = ? AND dropped <> ?", (dropped, item, dropped))
    _queue(connection, item)


def forget(connection: sqlite3.Connection, before_ms: int) -> None:
    """Drop what is older and not pending."""
    old = "FROM items WHERE pending = 0 AND since_ms < ?"
    connection.execute(statement("DELETE FROM decisions WHERE item IN (SELECT id", old, ")"), (before_ms,))
    resting.forget(connection, before_ms)
    for (item,) in connection.execute(statement("SELECT id", old), (before_ms,)).fetchall():
        search.drop(connection, item)
    connection.execute(statement("DELETE", old), (before_ms,))
    connection.execute("DELETE FROM actions WHERE at_ms < ?", (before_ms,))
    connection.execute("DELETE FROM dead_letters WHERE at_ms < ?", (before_ms,))


def decision_json(value: bytes) -> bytes:
    """Return a stored Decision as it was published."""
    return zlib.decompress(value)


def _write_decision(
    connection: sqlite3.Connection, record: TopicRecord, decision: Decision, value: bytes
) -> None:
    subject = (decision.tenant_id, decision.user_id, str(decision.kind), decision.subject_id)
    connection.execute(_ITEM, subject)
    (item,) = connection.execute(_ITEM_ID, subject).fetchone()
    before = connection.total_changes
    place = (str(record.topic), record.partition, record.offset, record.timestamp_ms)
    shown = (
        decision.reason_code,
        decision.source,
        decision.memory_type,
        to_milliseconds(decision.decided_at),
    )
    text = in_one_line(text_of(decision))
    placed = record.topic is TopicName.REVIEW and decision.revision > 0 and decision.facts.place == Place.FREE
    people = tuple(review_fact(decision, name) for name in ("action", "reviewer", "reason"))
    row = (
        item,
        decision.revision,
        decision.decision_id,
        *place,
        *shown,
        text,
        placed,
        *people,
        lot(decision),
    )
    connection.execute(_DECISION, (*row, zlib.compress(value, _FAST)))
    if connection.total_changes != before:
        _choose_current(connection, item, decision)


def _choose_current(connection: sqlite3.Connection, item: int, written: Decision) -> None:
    row = connection.execute(_HIGHEST, (item,)).fetchone()
    highest = _read(connection, row[0], row[2], written)
    connection.execute(_CURRENT, (*row, _rank(highest), item))
    resting.follow(connection, highest)
    _queue(connection, item, changed=highest)


def _rank(decision: Decision) -> int:
    return risk_of(decision.reason_code, decision.checks_failed).rank


def _sought(decision: Decision) -> str:
    """Return what a search looks through."""
    return f"{text_of(decision)}\n{decision.subject_id}"


def _read(connection: sqlite3.Connection, number: int, decision_id: str, written: Decision) -> Decision:
    """Return a Decision of the board: the one that was just written, or as it was stored."""
    if written.decision_id == decision_id:
        return written
    (value,) = connection.execute("SELECT value FROM decisions WHERE id = ?", (number,)).fetchone()
    return Decision.model_validate_json(decision_json(value))


def _queue(connection: sqlite3.Connection, item: int, *, changed: Decision | None = None) -> None:
    """Let `pending`, and what is searched, follow from `placed` and `dropped`."""
    pending, was = connection.execute(
        "SELECT placed AND dropped <> revision, pending FROM items WHERE id = ?", (item,)
    ).fetchone()
    if pending == was and changed is None:
        return
    if changed is None:
        search.move(connection, item, pending=bool(pending))
    else:
        search.put(connection, item, _sought(changed), pending=bool(pending))
    connection.execute("UPDATE items SET pending = ? WHERE id = ?", (pending, item))


def _write_action(connection: sqlite3.Connection, event: AuditEvent) -> None:
    names = ("user_id", "kind", "action_id", "action", "outcome")
    user, kind, action_id, action, outcome = (str(event.detail.get(name) or "") for name in names)
    subject = (event.tenant_id, event.event_id, user, kind or "claim", event.subject_id or "")
    applied = event.type == "review_action"
    what = (action_id, to_milliseconds(event.at), event.actor, applied, action, outcome)
    connection.execute(_ACTION, (*subject, *what))


def _write_dead_letter(connection: sqlite3.Connection, record: TopicRecord, failed: Failed) -> None:
    place = (record.partition, record.offset, record.timestamp_ms)
    why = (failed.code, failed.message, failed.topic, failed.partition, failed.offset)
    connection.execute(_DEAD_LETTER, (*place, *why, failed.tenant_id, failed.user_id, failed.excerpt))
