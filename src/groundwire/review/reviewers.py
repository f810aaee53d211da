"""What each reviewer did: decided, in which time, taken back, and how far they agree with others who judged blind."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Final, NamedTuple

from groundwire.review.permissions import ViewScope
from groundwire.review.queries import seen, statement

_CARRIED_OUT: Final = (
    "EXISTS (SELECT 1 FROM actions WHERE actions.tenant_id = turns.tenant_id"
    " AND actions.action_id = turns.action_id AND actions.applied = 1)"
)


class Turn(NamedTuple):
    """An action as a person took it at a console.

    Attributes:
        tenant_id, user_id: whose the item is.
        took_ms: from when its page was first shown to them; None: it was not decided there.
    """

    action_id: str
    tenant_id: str
    user_id: str
    person: str
    took_ms: int | None


@dataclass(frozen=True, slots=True)
class ReviewerCounts:
    """What a reviewer did.

    Attributes:
        decided: actions that the gate carried out, whatever they were sent by.
        median: of the times from when an item's page was first shown to them until they decided there, over
            what the gate carried out; None where there are none.
        undone: actions that were taken back while they were held.
        compared: opinions of the blind sample that somebody else has an opinion on too, a pair each.
        agreed: pairs of one mind.
    """

    name: str
    decided: int
    median: timedelta | None
    undone: int
    agreed: int
    compared: int


def record_turns(connection: sqlite3.Connection, turns: Sequence[Turn], at_ms: int) -> None:
    """Store what people do."""
    connection.executemany(
        "INSERT INTO turns (action_id, tenant_id, user_id, person, took_ms, at_ms) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO NOTHING",
        [(*turn, at_ms) for turn in turns],
    )


def mark_undone(connection: sqlite3.Connection, action_ids: Sequence[str]) -> None:
    """Store that actions were taken back."""
    connection.executemany("UPDATE turns SET undone = 1 WHERE action_id = ?", [(one,) for one in action_ids])


def by_reviewer(connection: sqlite3.Connection, scope: ViewScope, since_ms: int) -> list[ReviewerCounts]:
    """Return what each did since a time with items that the person sees, who decided most first."""
    decided = _decided(connection, scope, since_ms)
    took, undone = _turns(connection, scope, since_ms)
    pairs = _pairs(connection, scope, since_ms)
    found = [
        ReviewerCounts(
            name,
            decided.get(name, 0),
            timedelta(milliseconds=median(took[name])) if name in took else None,
            undone.get(name, 0),
            *pairs.get(name, (0, 0)),
        )
        for name in {*decided, *took, *undone, *pairs}
    ]
    return sorted(found, key=lambda one: (-one.decided, one.name))


def _decided(connection: sqlite3.Connection, scope: ViewScope, since_ms: int) -> dict[str, int]:
    where = seen(scope).add("decisions.action IN ('approve', 'edit', 'reject', 'retract')")
    where.add("decisions.decided_ms >= ?", since_ms)
    sql = (
        "SELECT decisions.reviewer, count(*) FROM decisions JOIN items ON items.id = decisions.item",
        where.sql,
    )
    return dict(connection.execute(statement(*sql, "GROUP BY decisions.reviewer"), where.values).fetchall())


def _turns(
    connection: sqlite3.Connection, scope: ViewScope, since_ms: int
) -> tuple[dict[str, list[int]], dict[str, int]]:
    where = seen(scope, table="turns").add("turns.at_ms >= ?", since_ms)
    took: defaultdict[str, list[int]] = defaultdict(list)
    undone: defaultdict[str, int] = defaultdict(int)
    sql = statement("SELECT person, took_ms, undone,", _CARRIED_OUT, "FROM turns", where.sql)
    for person, took_ms, taken_back, carried_out in connection.execute(sql, where.values).fetchall():
        if taken_back:
            undone[person] += 1
        elif carried_out and took_ms is not None:
            took[person].append(took_ms)
    return took, undone


def _pairs(connection: sqlite3.Connection, scope: ViewScope, since_ms: int) -> dict[str, tuple[int, int]]:
    where = seen(scope).add("mine.at_ms >= ?", since_ms)
    sql = (
        "SELECT mine.person, sum(mine.opinion = other.opinion), count(*) FROM opinions AS mine",
        "JOIN opinions AS other ON other.decision_id = mine.decision_id AND other.person <> mine.person",
        "JOIN decisions ON decisions.decision_id = mine.decision_id AND decisions.lot IS NOT NULL",
        "JOIN items ON items.id = decisions.item",
        where.sql,
        "GROUP BY mine.person",
    )
    return {row[0]: (row[1], row[2]) for row in connection.execute(statement(*sql), where.values).fetchall()}
