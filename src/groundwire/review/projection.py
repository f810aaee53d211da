"""Writes records into the board's tables; the same records in any order give the same tables.

Dependencies (`derived_from`) stand in a table of their own, `rests`, which follows the highest revision of each claim.
Of a retracted item its Retraction names the dependents too, among them claims that the board may not hold.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import AuditEvent, Decision, Kind, Place, ReasonCode, Verdict
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName
from groundwire.review import queries
from groundwire.review.model import Page, Related, Row, risk_of, state_of
from groundwire.review.permissions import ViewScope
from groundwire.review.queries import COLUMNS, WIDTH, as_row, seen, statement
from groundwire.review.records import (
    FailedRecord,
    TopicRecord,
    in_one_line,
    read_action,
    read_dead_letter,
    read_decision,
    read_retraction,
    review_fact,
    text_of,
)

_APPROVED: Final = str(Verdict.APPROVED)
_RETRACTED: Final = str(ReasonCode.RETRACTED)
_RESPONSE: Final = "response:"
_MOST: Final = 1_000
"""Dependents of an item that are named: as many as a Retraction names."""

_MAX_COUNT: Final = 2**31
"""Bound of a count that a record states: SQLite does not hold every number."""

_RETRACTION: Final = """
INSERT INTO retractions (tenant_id, user_id, name, at_ms, claims, more) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, user_id, name) DO UPDATE SET
    at_ms = excluded.at_ms, claims = excluded.claims, more = excluded.more
WHERE (excluded.at_ms, excluded.claims, excluded.more)
    < (retractions.at_ms, retractions.claims, retractions.more)
"""
_OF: Final = "WHERE tenant_id = ? AND user_id = ? AND name = ?"
_DEPENDENTS: Final = statement("FROM rests", _OF)
_NAMED_BY_RETRACTION: Final = """
SELECT named.value,
    EXISTS (SELECT 1 FROM rests WHERE tenant_id = ? AND user_id = ? AND name = ? AND claim = named.value),
    EXISTS (SELECT 1 FROM items WHERE tenant_id = ? AND user_id = ? AND kind = 'claim' AND subject_id = named.value
        AND reason_code = 'retracted')
FROM retractions, json_each(retractions.claims) AS named WHERE tenant_id = ? AND user_id = ? AND name = ?
"""
_WITH_ITEMS: Final = """
SELECT named.value, items.decision_id, items.excerpt FROM json_each(?) AS named LEFT JOIN items
    ON tenant_id = ? AND user_id = ? AND kind = 'claim' AND subject_id = named.value
ORDER BY named.key
"""


def index_dependencies(connection: sqlite3.Connection, highest: Decision) -> None:
    """Store what a claim rests on by its highest revision: nothing, where that is not approved."""
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


def _write_retraction(connection: sqlite3.Connection, retraction: Retraction) -> None:
    name = _name(retraction.kind, retraction.subject_id)
    claims = json.dumps(retraction.affected, ensure_ascii=False)
    more = min(max(0, (retraction.truncated or {}).get("affected", 0)), _MAX_COUNT)
    owner = (retraction.tenant_id, retraction.user_id)
    connection.execute(_RETRACTION, (*owner, name, to_milliseconds(retraction.at), claims, more))


def _forget_dependencies(connection: sqlite3.Connection, before_ms: int) -> None:
    connection.execute(
        "DELETE FROM rests WHERE (tenant_id, user_id, claim) IN (SELECT tenant_id, user_id, subject_id FROM items"
        " WHERE pending = 0 AND since_ms < ? AND kind = 'claim')",
        (before_ms,),
    )
    connection.execute("DELETE FROM retractions WHERE at_ms < ?", (before_ms,))


def parents(connection: sqlite3.Connection, scope: ViewScope, decision: Mapping[str, Any]) -> list[Related]:
    """Return what a Decision rests on as it stands now; of what the person does not see, the id only."""
    owner = (decision["tenant_id"], decision["user_id"])
    return [_parent(connection, scope, owner, name) for name in decision["derived_from"] or ()]


def dependents(connection: sqlite3.Connection, scope: ViewScope, row: Row) -> Page[Related]:
    """Return the approved claims of the same owner that rest on an approved or retracted item.

    At most 1,000, by id; `total` counts all.
    """
    may_have = row.verdict == Verdict.APPROVED or row.reason_code == _RETRACTED
    if not may_have or not scope.sees(row.tenant_id, row.user_id):
        return Page([], 0, None)
    of = (row.tenant_id, row.user_id, name_of(row))
    (held,) = connection.execute(statement("SELECT count(*)", _DEPENDENTS), of).fetchone()
    found = connection.execute(statement("SELECT claim", _DEPENDENTS, "ORDER BY claim LIMIT ?"), (*of, _MOST))
    others, at_least = _named_by_retraction(connection, of)
    names = sorted([*(name for (name,) in found), *others])[:_MOST]
    rows = connection.execute(_WITH_ITEMS, (json.dumps(names), *of[:2]))
    related = [Related(name, number, _APPROVED, excerpt or "") for name, number, excerpt in rows]
    return Page(related, max(held + len(others), at_least), None)


def _named_by_retraction(connection: sqlite3.Connection, of: tuple[str, str, str]) -> tuple[list[str], int]:
    """Return the claims that a Retraction alone names, and how many dependents there are at least by it.

    What it names was approved at that time, so it can only have been retracted since: anything else that the board
    shows of it is older.
    """
    named = connection.execute(_NAMED_BY_RETRACTION, (*of, *of[:2], *of))
    found = [(name, held) for name, held, gone in named if not gone]
    more = connection.execute(statement("SELECT more FROM retractions", _OF), of).fetchone()
    return [name for name, held in found if not held], len(found) + (more[0] if more else 0)


def name_of(row: Row) -> str:
    return _name(row.kind, row.subject_id)


def _name(kind: str, subject_id: str) -> str:
    return subject_id if kind == Kind.CLAIM else f"{_RESPONSE}{subject_id}"


def _parent(connection: sqlite3.Connection, scope: ViewScope, owner: tuple[str, str], name: str) -> Related:
    kind = Kind.RESPONSE if name.startswith(_RESPONSE) else Kind.CLAIM
    where = seen(scope).equals("items.tenant_id", owner[0]).equals("items.user_id", owner[1])
    where.equals("items.kind", str(kind)).equals("items.subject_id", name.removeprefix(_RESPONSE))
    sql = statement("SELECT", COLUMNS, ", items.pending FROM items", where.sql)
    found = connection.execute(sql, where.values).fetchone()
    return Related(name) if found is None else _related(name, found, pending=bool(found[WIDTH]))


def _related(name: str, found: Sequence[Any], *, pending: bool) -> Related:
    row = as_row(found)
    state = state_of(row.verdict, row.reason_code)
    waits = row.verdict != Verdict.REVIEW or pending
    return Related(name, row.decision_id, state if waits else "in review", row.excerpt)


_VERSION: Final = 5
"""Of the columns derived from Decisions: 2, the risk by all failed checks, excerpts that end with "…" where they are
cut; 3, dependencies; 4, texts of items that are not pending; 5, users and sources in what is searched."""
_FAST: Final = 1  # zlib's level: half the size at a tenth of the time of the best one

_ITEM: Final = """
INSERT INTO items (tenant_id, user_id, kind, subject_id) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING
"""
_ITEM_ID: Final = "SELECT id FROM items WHERE tenant_id = ? AND user_id = ? AND kind = ? AND subject_id = ?"

# a decision published twice stands where it stood first
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


def upgrade(connection: sqlite3.Connection) -> None:
    """Derive again from the stored Decisions what an earlier version of this module wrote."""
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
        index_dependencies(connection, decision)
    for number, value in connection.execute("SELECT id, value FROM decisions").fetchall():
        decision = Decision.model_validate_json(decision_json(value))
        excerpt = in_one_line(text_of(decision))
        connection.execute("UPDATE decisions SET excerpt = ? WHERE id = ?", (excerpt, number))
    connection.execute(statement("PRAGMA user_version =", str(_VERSION)))


def write(connection: sqlite3.Connection, record: TopicRecord) -> None:
    """Write a record; one that the board does not show is ignored."""
    if record.topic is TopicName.AUDIT:
        event = read_action(record)
        if event is not None:
            _write_action(connection, event)
    elif record.topic is TopicName.RETRACTIONS:
        retraction = read_retraction(record)
        if retraction is not None:
            _write_retraction(connection, retraction)
    elif record.topic is TopicName.DEAD_LETTER:
        failed = read_dead_letter(record)
        if failed is not None:
            _write_dead_letter(connection, record, failed)
    else:
        decision = read_decision(record)
        if decision is not None and record.value is not None:
            _write_decision(connection, record, decision, record.value)


def set_dropped(connection: sqlite3.Connection, item: int, dropped: int) -> None:
    """Take an item out of the queue for as long as its highest revision is this one; -1: put it back."""
    connection.execute("UPDATE items SET dropped = ? WHERE id = ? AND dropped <> ?", (dropped, item, dropped))
    _queue(connection, item)


def forget_items(connection: sqlite3.Connection, before_ms: int) -> None:
    old = "FROM items WHERE pending = 0 AND since_ms < ?"
    connection.execute(statement("DELETE FROM decisions WHERE item IN (SELECT id", old, ")"), (before_ms,))
    _forget_dependencies(connection, before_ms)
    for (item,) in connection.execute(statement("SELECT id", old), (before_ms,)).fetchall():
        queries.drop(connection, item)
    connection.execute(statement("DELETE", old), (before_ms,))
    connection.execute("DELETE FROM actions WHERE at_ms < ?", (before_ms,))
    connection.execute("DELETE FROM dead_letters WHERE at_ms < ?", (before_ms,))


def decision_json(value: bytes) -> bytes:
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
    )
    connection.execute(_DECISION, (*row, zlib.compress(value, _FAST)))
    if connection.total_changes != before:
        _choose_current(connection, item, decision)


def _choose_current(connection: sqlite3.Connection, item: int, written: Decision) -> None:
    row = connection.execute(_HIGHEST, (item,)).fetchone()
    highest = _read(connection, row[0], row[2], written)
    connection.execute(_CURRENT, (*row, _rank(highest), item))
    index_dependencies(connection, highest)
    _queue(connection, item, changed=highest)


def _rank(decision: Decision) -> int:
    return risk_of(decision.reason_code, decision.checks_failed).rank


def _sought(decision: Decision) -> str:
    """Return what a search looks through: the text, and by which ids people know it."""
    source_id = (decision.evidence.source_id if decision.evidence else None) or ""
    return "\n".join((text_of(decision), decision.subject_id, decision.user_id, source_id))


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
        queries.move(connection, item, pending=bool(pending))
    else:
        queries.put(connection, item, _sought(changed), pending=bool(pending))
    connection.execute("UPDATE items SET pending = ? WHERE id = ?", (pending, item))


def _write_action(connection: sqlite3.Connection, event: AuditEvent) -> None:
    names = ("user_id", "kind", "action_id", "action", "outcome")
    user, kind, action_id, action, outcome = (str(event.detail.get(name) or "") for name in names)
    subject = (event.tenant_id, event.event_id, user, kind or "claim", event.subject_id or "")
    applied = event.type == "review_action"
    what = (action_id, to_milliseconds(event.at), event.actor, applied, action, outcome)
    connection.execute(_ACTION, (*subject, *what))


def _write_dead_letter(connection: sqlite3.Connection, record: TopicRecord, failed: FailedRecord) -> None:
    place = (record.partition, record.offset, record.timestamp_ms)
    why = (failed.code, failed.message, failed.topic, failed.partition, failed.offset)
    connection.execute(_DEAD_LETTER, (*place, *why, failed.tenant_id, failed.user_id, failed.excerpt))
