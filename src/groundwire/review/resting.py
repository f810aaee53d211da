"""What an item rests on, and what rests on it: `derived_from` of the Decisions that the board holds, read both ways.

What rests on an item stands in a table of its own, which follows the highest revision of each claim; of what was
retracted, the Retraction tells it too, with claims that the board may not hold.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Final

from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Kind, ReasonCode, Verdict
from groundwire.messages.reviews import Retraction
from groundwire.review.model import Page, Related, Row, state_of
from groundwire.review.people import Scope
from groundwire.review.queries import COLUMNS, WIDTH, as_row, seen
from groundwire.review.sql import statement

_APPROVED: Final = str(Verdict.APPROVED)
_RETRACTED: Final = str(ReasonCode.RETRACTED)
_RESPONSE: Final = "response:"
_MOST: Final = 1_000
"""Claims resting on an item that are named, as many as a Retraction names."""

_COUNTABLE: Final = 2**31
"""No more are counted: it is a number of the record, and SQLite does not hold every number."""

_RETRACTION: Final = """
INSERT INTO retractions (tenant_id, user_id, name, at_ms, claims, more) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, user_id, name) DO UPDATE SET
    at_ms = excluded.at_ms, claims = excluded.claims, more = excluded.more
WHERE (excluded.at_ms, excluded.claims, excluded.more)
    < (retractions.at_ms, retractions.claims, retractions.more)
"""
_OF: Final = "WHERE tenant_id = ? AND user_id = ? AND name = ?"
_HELD: Final = statement("FROM rests", _OF)
_TOLD: Final = """
SELECT told.value,
    EXISTS (SELECT 1 FROM rests WHERE tenant_id = ? AND user_id = ? AND name = ? AND claim = told.value),
    EXISTS (SELECT 1 FROM items WHERE tenant_id = ? AND user_id = ? AND kind = 'claim' AND subject_id = told.value
        AND reason_code = 'retracted')
FROM retractions, json_each(retractions.claims) AS told WHERE tenant_id = ? AND user_id = ? AND name = ?
"""
_NAMED: Final = """
SELECT named.value, items.decision_id, items.excerpt FROM json_each(?) AS named LEFT JOIN items
    ON tenant_id = ? AND user_id = ? AND kind = 'claim' AND subject_id = named.value
ORDER BY named.key
"""


def follow(connection: sqlite3.Connection, highest: Decision) -> None:
    """Let what a claim rests on follow from its highest revision: nothing, where that is not approved."""
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


def follow_retraction(connection: sqlite3.Connection, retraction: Retraction) -> None:
    """Keep what a Retraction tells of claims that rest on what it withdraws."""
    name = _name(retraction.kind, retraction.subject_id)
    claims = json.dumps(retraction.affected, ensure_ascii=False)
    more = min(max(0, (retraction.truncated or {}).get("affected", 0)), _COUNTABLE)
    owner = (retraction.tenant_id, retraction.user_id)
    connection.execute(_RETRACTION, (*owner, name, to_milliseconds(retraction.at), claims, more))


def forget(connection: sqlite3.Connection, before_ms: int) -> None:
    """Drop what is told of items that are dropped for their age; before these are."""
    connection.execute(
        "DELETE FROM rests WHERE (tenant_id, user_id, claim) IN (SELECT tenant_id, user_id, subject_id FROM items"
        " WHERE pending = 0 AND since_ms < ? AND kind = 'claim')",
        (before_ms,),
    )
    connection.execute("DELETE FROM retractions WHERE at_ms < ?", (before_ms,))


def parents(connection: sqlite3.Connection, scope: Scope, decision: Mapping[str, Any]) -> list[Related]:
    """Return what a Decision rests on as it stands now; of what the person does not see, the bare id."""
    owner = (decision["tenant_id"], decision["user_id"])
    return [_parent(connection, scope, owner, name) for name in decision["derived_from"] or ()]


def children(connection: sqlite3.Connection, scope: Scope, row: Row) -> Page[Related]:
    """Return the approved claims of the same owner that rest on what is approved, or was until it was retracted.

    At most 1,000, by id; `total` counts all.
    """
    concerns = row.verdict == Verdict.APPROVED or row.reason_code == _RETRACTED
    if not concerns or not scope.sees(row.tenant_id, row.user_id):
        return Page([], 0, None)
    of = (row.tenant_id, row.user_id, name_of(row))
    (held,) = connection.execute(statement("SELECT count(*)", _HELD), of).fetchone()
    found = connection.execute(statement("SELECT claim", _HELD, "ORDER BY claim LIMIT ?"), (*of, _MOST))
    others, at_least = _told(connection, of)
    names = sorted([*(name for (name,) in found), *others])[:_MOST]
    rows = connection.execute(_NAMED, (json.dumps(names), *of[:2]))
    related = [Related(name, number, _APPROVED, excerpt or "") for name, number, excerpt in rows]
    return Page(related, max(held + len(others), at_least), None)


def _told(connection: sqlite3.Connection, of: tuple[str, str, str]) -> tuple[list[str], int]:
    """Return what a Retraction alone names, and how many claims at least there are by it.

    What it names was approved then, so that it can only have been retracted since: whatever else the board shows
    of it is from before.
    """
    told = connection.execute(_TOLD, (*of, *of[:2], *of))
    found = [(name, held) for name, held, gone in told if not gone]
    more = connection.execute(statement("SELECT more FROM retractions", _OF), of).fetchone()
    return [name for name, held in found if not held], len(found) + (more[0] if more else 0)


def name_of(row: Row) -> str:
    """Return how `derived_from` names an item."""
    return _name(row.kind, row.subject_id)


def _name(kind: str, subject_id: str) -> str:
    return subject_id if kind == Kind.CLAIM else f"{_RESPONSE}{subject_id}"


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
