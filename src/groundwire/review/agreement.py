"""How often people agree with the gate: on what it sent to them, and on a blind sample of what it did not."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from math import ceil
from typing import Any, Final

from groundwire.messages.decisions import Verdict
from groundwire.review.model import Agreement, Blind, Opinion, Revealed, Sampled, Tally
from groundwire.review.people import Scope
from groundwire.review.projection import decision_json
from groundwire.review.queries import seen
from groundwire.review.sql import statement

_LOTS: Final = 2**32
_UNTOLD: Final = "-"  # responses name no source

Decided = tuple[str, str, str, int]
"""Reason of the review, source, action, milliseconds from review to decision."""


def agreement(connection: sqlite3.Connection, scope: Scope, since_ms: int) -> Agreement:
    """Return the tallies of what people decided since a time, and of the blind sample."""
    where = (
        seen(scope).add("done.action IN ('approve', 'edit', 'reject')").add("done.decided_ms >= ?", since_ms)
    )
    sql = (
        "SELECT before.reason_code, coalesce(before.source, ?), done.action, done.decided_ms - before.decided_ms",
        "FROM decisions AS done JOIN items ON items.id = done.item JOIN decisions AS before ON",
        "before.item = done.item AND before.revision = done.revision - 1 AND before.topic = 'review'",
        "AND before.placed = 1",
        where.sql,
    )
    found: list[Decided] = connection.execute(statement(*sql), (_UNTOLD, *where.values)).fetchall()
    return Agreement(
        total=_tally("", found),
        by_reason=_tallies((reason, row) for row in found for reason in row[:1]),
        by_source=_tallies((source, row) for row in found for source in row[1:2]),
        blind=_blind(connection, scope, since_ms),
    )


def sample(connection: sqlite3.Connection, scope: Scope, share: float, limit: int) -> list[Sampled]:
    """Return sampled claims that the person has no opinion on, in the order of their lots."""
    where = seen(scope).add("decisions.lot < ?", round(max(0.0, min(1.0, share)) * _LOTS))
    where.add(
        "NOT EXISTS (SELECT 1 FROM opinions WHERE opinions.decision_id = decisions.decision_id"
        " AND opinions.person = ?)",
        scope.person,
    )
    sql = (
        "SELECT items.decision_id, items.tenant_id, items.user_id, items.subject_id, items.source,",
        "items.memory_type, decisions.value",
        "FROM decisions JOIN items ON items.current = decisions.id",
        where.sql,
        "ORDER BY decisions.lot, decisions.decision_id LIMIT ?",
    )
    found = connection.execute(statement(*sql), (*where.values, limit)).fetchall()
    return [_sampled(row) for row in found]


def record_opinion(
    connection: sqlite3.Connection, scope: Scope, decision_id: str, opinion: Opinion, at_ms: int
) -> Revealed | None:
    """Keep a person's first opinion and return it with the gate's verdict."""
    where = seen(scope).add("decisions.decision_id = ?", decision_id).add("decisions.lot IS NOT NULL")
    sql = (
        "SELECT decisions.decision_id, decisions.topic, decisions.reason_code FROM decisions",
        "JOIN items ON items.id = decisions.item",
        where.sql,
    )
    found = connection.execute(statement(*sql), where.values).fetchone()
    if found is None:
        return None
    connection.execute(
        "INSERT INTO opinions (decision_id, person, opinion, at_ms) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (found[0], scope.person, opinion, at_ms),
    )
    (stands,) = connection.execute(
        "SELECT opinion FROM opinions WHERE decision_id = ? AND person = ?", (found[0], scope.person)
    ).fetchone()
    return Revealed(found[0], stands, Verdict(found[1]), found[2])


def _sampled(row: Sequence[Any]) -> Sampled:
    decision_id, tenant, user, subject, source, memory_type, value = row
    claim = (json.loads(decision_json(value)).get("evidence") or {}).get("claim")
    return Sampled(decision_id, tenant, user, subject, source, memory_type, str(claim or ""))


def _blind(connection: sqlite3.Connection, scope: Scope, since_ms: int) -> Blind:
    where = seen(scope).add("opinions.at_ms >= ?", since_ms)
    sql = (
        "SELECT decisions.topic, opinions.opinion, count(*) FROM opinions",
        "JOIN decisions ON decisions.decision_id = opinions.decision_id AND decisions.lot IS NOT NULL",
        "JOIN items ON items.id = decisions.item",
        where.sql,
        "GROUP BY decisions.topic, opinions.opinion",
    )
    rows = connection.execute(statement(*sql), where.values).fetchall()
    found = {(topic, opinion): count for topic, opinion, count in rows}
    approved_agreed, blocked_agreed = (
        found.get(("approved", "approve"), 0),
        found.get(("blocked", "reject"), 0),
    )
    return Blind(
        approved_agreed=approved_agreed,
        approved=approved_agreed + found.get(("approved", "reject"), 0),
        blocked_agreed=blocked_agreed,
        blocked=blocked_agreed + found.get(("blocked", "approve"), 0),
    )


def _tallies(found: Iterable[tuple[str, Decided]]) -> list[Tally]:
    groups: defaultdict[str, list[Decided]] = defaultdict(list)
    for name, row in found:
        groups[name].append(row)
    return sorted(
        (_tally(name, rows) for name, rows in groups.items()), key=lambda tally: (-tally.decided, tally.name)
    )


def _tally(name: str, rows: Sequence[Decided]) -> Tally:
    actions = [row[2] for row in rows]
    took = sorted(row[3] for row in rows)
    return Tally(
        name=name,
        approved=actions.count("approve"),
        edited=actions.count("edit"),
        rejected=actions.count("reject"),
        median=_nearest_rank(took, 0.5),
        p90=_nearest_rank(took, 0.9),
    )


def _nearest_rank(ordered: Sequence[int], part: float) -> timedelta | None:
    """Return the smallest value that at least this part of all values do not exceed."""
    return timedelta(milliseconds=ordered[ceil(part * len(ordered)) - 1]) if ordered else None
