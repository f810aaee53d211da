"""What an item rests on, and what rests on it: `derived_from` of the Decisions that the board holds, read both ways."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from groundwire.messages.decisions import Kind, Verdict
from groundwire.review.model import Related, Row, state_of
from groundwire.review.people import Scope
from groundwire.review.projection import decision_json
from groundwire.review.queries import COLUMNS, WIDTH, as_row, seen
from groundwire.review.sql import Where, statement

_RESPONSE: Final = "response:"
_MOST: Final = 1_000
"""Claims resting on an item that are named, as many as a Retraction names."""


def parents(connection: sqlite3.Connection, scope: Scope, decision: Mapping[str, Any]) -> list[Related]:
    """Return what a Decision rests on as it stands now; of what the person does not see, the bare id."""
    owner = (decision["tenant_id"], decision["user_id"])
    return [_parent(connection, scope, owner, name) for name in decision["derived_from"] or ()]


def children(connection: sqlite3.Connection, scope: Scope, row: Row) -> list[Related]:
    """Return the approved claims of the same owner that rest on an item, at most 1,000, by id.

    This reads all approved claims of the owner: ask for one item, not for a list.
    """
    name = name_of(row)
    where = seen(scope, Where(["items.topic = 'approved'", "items.kind = 'claim'"]))
    where.equals("items.tenant_id", row.tenant_id).equals("items.user_id", row.user_id)
    sql = ("SELECT", COLUMNS, ", decisions.value FROM items JOIN decisions ON decisions.id = items.current")
    order = "ORDER BY items.subject_id"
    found = connection.execute(statement(*sql, where.sql, order), where.values)
    return [related for related, _ in zip(_resting(found, name), range(_MOST), strict=False)]


def name_of(row: Row) -> str:
    """Return how `derived_from` names an item."""
    return row.subject_id if row.kind == Kind.CLAIM else f"{_RESPONSE}{row.subject_id}"


def _resting(found: sqlite3.Cursor, name: str) -> Iterator[Related]:
    for values in found:
        value = decision_json(values[WIDTH])
        if name in (json.loads(value)["derived_from"] or ()):
            yield _related(as_row(values).subject_id, values, pending=False)


def _parent(connection: sqlite3.Connection, scope: Scope, owner: tuple[str, str], name: str) -> Related:
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
