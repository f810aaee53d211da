"""Reading one item with all that bears on it, dead letters and gauges."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import Kind, Verdict
from groundwire.review.model import (
    Attempt,
    Backlog,
    Counts,
    DeadLetter,
    Item,
    Nearest,
    Page,
    Revision,
    SourceRecord,
)
from groundwire.review.people import Scope
from groundwire.review.projection import decision_json
from groundwire.review.queries import COLUMNS, WIDTH, as_row, make_cursor, read_cursor, seen
from groundwire.review.resting import parents
from groundwire.review.sql import Where, bindable, statement

_MOST_ATTEMPTS: Final = 100


def item(connection: sqlite3.Connection, scope: Scope, decision_id: str) -> Item | None:
    """Return a Decision with all that bears on it, or None."""
    where = seen(scope).add("decisions.decision_id = ?", decision_id)
    found = connection.execute(
        statement(
            "SELECT",
            COLUMNS,
            ", items.id, items.pending AND items.current = decisions.id, decisions.value, decisions.topic,",
            'decisions.partition, decisions."offset", decisions.timestamp_ms',
            "FROM decisions JOIN items ON items.id = decisions.item",
            where.sql,
            "LIMIT 1",
        ),
        where.values,
    ).fetchone()
    if found is None:
        return None
    number, pending, value, topic, partition, offset, timestamp = found[WIDTH:]
    decision: Mapping[str, Any] = json.loads(decision_json(value))
    return Item(
        current=as_row(found),
        pending=bool(pending),
        decision=decision,
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=from_milliseconds(timestamp),
        history=_history(connection, number),
        attempts=_attempts(connection, number),
        nearest=_nearest(connection, scope, decision),
        parents=parents(connection, scope, decision),
        source_record=_source_record(connection, scope, decision["tenant_id"], decision["source"]),
    )


def find(connection: sqlite3.Connection, scope: Scope, subject: tuple[str, str, str]) -> str | None:
    """Return the decision id of a claim's highest revision, or None."""
    tenant, user, name = subject
    where = seen(scope).equals("items.tenant_id", tenant).equals("items.user_id", user)
    where.equals("items.subject_id", name).equals("items.kind", str(Kind.CLAIM))
    row = connection.execute(statement("SELECT decision_id FROM items", where.sql), where.values).fetchone()
    return None if row is None else str(row[0])


def counts(connection: sqlite3.Connection, scope: Scope) -> Counts:
    """Return how many items are pending."""
    own = Where(["items.pending = 1"]).equals("items.user_id", scope.person)
    whole = Where(["items.pending = 1"])
    total = None
    if scope.whole:
        (total,) = connection.execute("SELECT count(*) FROM items WHERE pending = 1").fetchone()
    tenants = _by_tenant(connection, whole)
    mine = _by_tenant(connection, own)
    return Counts(
        own={tenant: mine.get(tenant, 0) for tenant in sorted(scope.whole | scope.own)},
        tenants={tenant: tenants.get(tenant, 0) for tenant in sorted(scope.whole)},
        total=total,
    )


def backlog(connection: sqlite3.Connection) -> Backlog:
    """Return how near the queue is to its limits (S0-133, S0-134)."""
    most = "SELECT max(n) FROM (SELECT count(*) AS n FROM items WHERE pending = 1 GROUP BY"
    (user,) = connection.execute(f"{most} tenant_id, user_id)").fetchone()
    (tenant,) = connection.execute(f"{most} tenant_id)").fetchone()
    total, since = connection.execute(
        "SELECT count(*), min(since_ms) FROM items WHERE pending = 1"
    ).fetchone()
    return Backlog(user or 0, tenant or 0, total, None if since is None else from_milliseconds(since))


def dead_letters(
    connection: sqlite3.Connection, scope: Scope, limit: int, cursor: str | None
) -> Page[DeadLetter]:
    """Return a page of dead letters, newest first."""
    where = seen(Scope(scope.person, scope.whole, frozenset()), table="dead_letters")
    (total,) = connection.execute(
        statement("SELECT count(*) FROM dead_letters", where.sql), where.values
    ).fetchone()
    if cursor is not None:
        *place, _ = read_cursor(cursor, 4)
        where.add("(at_ms, at_partition, at_offset) < (?, ?, ?)", *place)
    sql = (
        'SELECT code, message, topic, partition, "offset", tenant_id, user_id, at_ms, excerpt, at_partition,',
        "at_offset FROM dead_letters",
        where.sql,
        "ORDER BY at_ms DESC, at_partition DESC, at_offset DESC LIMIT ?",
    )
    found = connection.execute(statement(*sql), (*where.values, limit + 1)).fetchall()
    rows = found[:limit]
    following = make_cursor([rows[-1][7], rows[-1][9], rows[-1][10], ""]) if len(found) > limit else None
    return Page([_dead_letter(row) for row in rows], total, following)


def _dead_letter(row: Sequence[Any]) -> DeadLetter:
    code, message, topic, partition, offset, tenant, user, at_ms, excerpt, at_partition, at_offset = row
    name = f"{at_partition}@{at_offset}"
    return DeadLetter(
        name, code, message, topic, partition, offset, tenant, user, from_milliseconds(at_ms), excerpt
    )


def _by_tenant(connection: sqlite3.Connection, where: Where) -> dict[str, int]:
    sql = ("SELECT tenant_id, count(*) FROM items", where.sql, "GROUP BY tenant_id")
    return dict(connection.execute(statement(*sql), where.values).fetchall())


def _history(connection: sqlite3.Connection, number: int) -> list[Revision]:
    found = connection.execute(
        "SELECT revision, decision_id, topic, reason_code, decided_ms, action, reviewer, review_reason"
        ' FROM decisions WHERE item = ? ORDER BY revision, timestamp_ms, partition, "offset", decision_id',
        (number,),
    )
    return [
        Revision(row[0], row[1], Verdict(row[2]), row[3], from_milliseconds(row[4]), *row[5:])
        for row in found.fetchall()
    ]


def _attempts(connection: sqlite3.Connection, number: int) -> list[Attempt]:
    found = connection.execute(
        "SELECT action_id, at_ms, actor, applied, action, outcome FROM actions"
        " WHERE (tenant_id, user_id, kind, subject_id) ="
        " (SELECT tenant_id, user_id, kind, subject_id FROM items WHERE id = ?) ORDER BY at_ms, event_id LIMIT ?",
        (number, _MOST_ATTEMPTS),
    )
    return [
        Attempt(row[0], from_milliseconds(row[1]), row[2], bool(row[3]), row[4], row[5])
        for row in found.fetchall()
    ]


def _nearest(connection: sqlite3.Connection, scope: Scope, decision: Mapping[str, Any]) -> Nearest | None:
    """Return the claim of the same owner that the decision conflicts with, else the first of its matches."""
    matches: list[dict[str, Any]] = (decision["facts"].get("dedup") or {}).get("matches") or []
    near = decision["conflicting_memory_id"]
    match = next((match for match in matches if match["subject_id"] == near), matches[0] if matches else None)
    if match is None:
        return None
    similarity = match["inter"] / match["union"] if match["union"] else 0.0
    nearest = Nearest(match["subject_id"], match["difference"], match["class"], similarity)
    owner = (decision["tenant_id"], decision["user_id"], nearest.subject_id)
    held = find(connection, scope, owner)
    if held is None:
        return nearest
    value, topic, reason = connection.execute(
        "SELECT decisions.value, decisions.topic, decisions.reason_code"
        " FROM items JOIN decisions ON decisions.id = items.current"
        " WHERE items.tenant_id = ? AND items.user_id = ? AND items.subject_id = ? AND items.kind = 'claim'",
        [bindable(part) for part in owner],
    ).fetchone()
    text = (json.loads(decision_json(value)).get("evidence") or {}).get("claim")
    return Nearest(*_plain(nearest), decision_id=held, verdict=Verdict(topic), text=text, reason_code=reason)


def _plain(nearest: Nearest) -> tuple[str, str, str, float]:
    return nearest.subject_id, nearest.difference, nearest.match_class, nearest.similarity


def _source_record(
    connection: sqlite3.Connection, scope: Scope, tenant: str, source: str | None
) -> SourceRecord:
    if source is None:
        return SourceRecord()
    where = seen(scope).equals("items.tenant_id", tenant).equals("items.source", source)
    sql = ("SELECT topic, reason_code, count(*) FROM items", where.sql, "GROUP BY topic, reason_code")
    found: list[tuple[str, str, int]] = connection.execute(statement(*sql), where.values).fetchall()
    return SourceRecord(
        approved=sum(count for topic, _, count in found if topic == "approved"),
        human_approved=sum(count for _, reason, count in found if reason == "human_approved"),
        human_rejected=sum(count for _, reason, count in found if reason == "human_rejected"),
        blocked=sum(count for topic, _, count in found if topic == "blocked"),
    )
