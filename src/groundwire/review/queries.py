"""Pieces of SQL: conditions with their parameters bound, and pages by cursor."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Kind, Verdict
from groundwire.review.model import Query, Row, Sort
from groundwire.review.people import Scope
from groundwire.review.risk import risk_at
from groundwire.review.search import condition
from groundwire.review.sql import Value, Where, statement

COLUMNS: Final = (
    "items.decision_id, items.revision, items.tenant_id, items.user_id, items.kind, items.subject_id,"
    " items.topic, items.reason_code, items.source, items.memory_type, items.since_ms, items.excerpt,"
    " items.risk"
)
WIDTH: Final = 13
"""How many columns `COLUMNS` are."""
_INT64: Final = 2**63


def seen(scope: Scope, where: Where | None = None, table: str = "items") -> Where:
    """Add that a person sees the row."""
    where = where or Where()
    whole, own = sorted(scope.whole), sorted(scope.own)
    # + keeps SQLite from gathering a whole tenant by owner and sorting it, where an index has the order already
    column = f"+{table}.tenant_id" if whole else f"{table}.tenant_id"
    among = statement(column, "IN (SELECT value FROM json_each(?))")
    if not whole:
        return where.add(f"{table}.user_id = ?", scope.person).add(among, json.dumps(own))
    term = f"({among} OR ({table}.user_id = ? AND {among}))"
    return where.add(term, json.dumps(whole), scope.person, json.dumps(own))


def filtered(where: Where, query: Query, now: datetime, *, fts: bool) -> Where:
    """Add what a query asks for."""
    where.equals("items.reason_code", query.reason).equals("items.tenant_id", query.tenant)
    where.equals("items.user_id", query.user).equals("items.source", query.source)
    where.equals("items.memory_type", query.memory_type)
    where.equals("items.kind", None if query.kind is None else str(query.kind))
    milliseconds = to_milliseconds(now)
    if query.min_age is not None:
        where.add("items.since_ms <= ?", _clamped(milliseconds - query.min_age.total_seconds() * 1000))
    if query.max_age is not None:
        where.add("items.since_ms >= ?", _clamped(milliseconds - query.max_age.total_seconds() * 1000))
    found = condition(query.text, fts=fts)
    return where if found is None else where.add(found[0], *found[1])


_ORDERS: Final[dict[Sort, tuple[tuple[str, ...], str]]] = {
    "risk": (("items.risk", "items.since_ms", "items.decision_id"), ">"),
    "oldest": (("items.since_ms", "items.decision_id"), ">"),
    "newest": (("items.since_ms", "items.decision_id"), "<"),
}


def ordered(where: Where, sort: Sort, cursor: str | None) -> str:
    """Add what comes after the cursor; return the columns of the sort key and the ORDER BY clause.

    Raises:
        ValueError: the cursor is none of this sort's.
    """
    columns, beyond = _ORDERS[sort]
    if cursor is not None:
        marks = ", ".join("?" * len(columns))
        where.add(f"({', '.join(columns)}) {beyond} ({marks})", *read_cursor(cursor, len(columns)))
    direction = " DESC" if beyond == "<" else ""
    return "ORDER BY " + ", ".join(column + direction for column in columns)


def sort_key(sort: Sort) -> str:
    """Return the columns of the sort key."""
    return ", ".join(_ORDERS[sort][0])


def make_cursor(key: Sequence[Value]) -> str:
    """Return where a page ended, as text for a URL: places in the order, no text of claims."""
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode()


def read_cursor(cursor: str, length: int) -> list[Value]:
    """Read it again: whole numbers, and an id at the end. Raises: ValueError."""
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor.encode()))
    except (ValueError, binascii.Error, RecursionError):
        key = None
    if not isinstance(key, list) or len(key) != length or not isinstance(key[-1], str):
        raise ValueError("cursor: is not one that a page ended with")
    if not all(type(part) is int and -_INT64 <= part < _INT64 for part in key[:-1]):
        raise ValueError("cursor: is not one that a page ended with")
    return key


def as_row(found: Sequence[Any]) -> Row:
    """Turn the values of `COLUMNS` into a Row."""
    decision_id, revision, tenant, user, kind, subject, topic, reason, source, memory, since, text, risk = (
        found[:WIDTH]
    )
    return Row(
        decision_id=str(decision_id),
        revision=int(revision),
        tenant_id=str(tenant),
        user_id=str(user),
        kind=Kind(kind),
        subject_id=str(subject),
        verdict=Verdict(topic),
        reason_code=str(reason),
        source=None if source is None else str(source),
        memory_type=None if memory is None else str(memory),
        since=from_milliseconds(int(since)),
        excerpt=str(text),
        risk=risk_at(risk),
    )


def _clamped(milliseconds: float) -> int:
    return int(max(-(2.0**62), min(2.0**62, milliseconds)))
