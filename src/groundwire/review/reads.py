"""Reads of the board's tables: one item with its context, counts, dead letters, and how people decided."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from math import ceil
from statistics import median
from typing import Any, Final

from groundwire.errors import ErrorCode
from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import Kind, Verdict
from groundwire.review.model import (
    ActionAttempt,
    Agreement,
    Backlog,
    Counts,
    DeadLetterRow,
    DecisionCounts,
    Item,
    Nearest,
    Neighbours,
    Page,
    Revision,
    Row,
    Sort,
    SourceRecord,
    Standing,
)
from groundwire.review.permissions import ViewScope
from groundwire.review.projection import decision_json, parents
from groundwire.review.queries import (
    COLUMNS,
    OTHERS,
    WIDTH,
    SqlValue,
    Where,
    any_word,
    as_row,
    beside,
    bindable,
    make_cursor,
    read_cursor,
    seen,
    sort_key,
    statement,
)

_MOST_ATTEMPTS: Final = 100
_CODES: Final = frozenset(map(str, ErrorCode))
_WAITS: Final = "items.pending AND items.current = decisions.id"
"""Whether a person may decide a Decision now."""
_ASKED: Final = (
    "FROM json_each(?) AS asked CROSS JOIN decisions ON decisions.decision_id = asked.value"
    " JOIN items ON items.id = decisions.item"
)
"""Several Decisions by their ids, each found by its index."""
_NO_SOURCE: Final = "-"  # of responses
DecidedRow = tuple[str, str, str, int]
"""Reason of the review, source, action, milliseconds from review to decision."""


def item(connection: sqlite3.Connection, scope: ViewScope, decision_id: str) -> Item | None:
    """Return a Decision with its context, or None."""
    where = seen(scope).add("decisions.decision_id = ?", decision_id)
    found = connection.execute(
        statement(
            "SELECT",
            COLUMNS,
            f", items.id, {_WAITS}, decisions.value, decisions.topic,",
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
    compared = _memories(connection, scope, decision)
    return Item(
        decision_id=decision["decision_id"],
        current=as_row(found),
        pending=bool(pending),
        decision=decision,
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp=from_milliseconds(timestamp),
        history=_history(connection, number),
        attempts=_attempts(connection, number),
        nearest=compared[0] if compared else None,
        memories=compared,
        parents=parents(connection, scope, decision),
        source_record=_source_record(connection, scope, decision["tenant_id"], decision["source"]),
    )


def standings(
    connection: sqlite3.Connection, scope: ViewScope, decision_ids: Sequence[str]
) -> dict[str, Standing]:
    """Return where the subjects of Decisions stand, by the id asked for; without those that the person does not see."""
    where = seen(scope)
    sql = statement("SELECT", COLUMNS, ", asked.value,", _WAITS, _ASKED, where.sql)
    found = connection.execute(sql, (json.dumps(decision_ids), *where.values)).fetchall()
    return {row[WIDTH]: Standing(row[WIDTH], as_row(row), bool(row[WIDTH + 1])) for row in found}


def memories(
    connection: sqlite3.Connection, scope: ViewScope, decision_ids: Sequence[str]
) -> dict[str, list[Nearest]]:
    """Return, by the id of a Decision, the claims that the gate compared its claim with; see `Item.memories`."""
    where = seen(scope)
    sql = statement("SELECT asked.value, decisions.value", _ASKED, where.sql)
    found = connection.execute(sql, (json.dumps(decision_ids), *where.values)).fetchall()
    return {name: _memories(connection, scope, json.loads(decision_json(value))) for name, value in found}


def neighbours(
    connection: sqlite3.Connection, where: Where, sort: Sort, decision_id: str, is_free: Callable[[Row], bool]
) -> Neighbours:
    """Return the free items beside one in the queue that `where` describes; rows are read until one is free."""

    def count(of: Where) -> int:
        found = connection.execute(statement("SELECT count(*) FROM items", of.sql), of.values)
        return int(found.fetchone()[0])

    def nearest(key: Sequence[SqlValue] | None, *, before: bool = False) -> str | None:
        of = where.copy()
        order = beside(of, sort, key, before=before)
        rows = connection.execute(statement("SELECT", COLUMNS, "FROM items", of.sql, order), of.values)
        free = (row for row in map(as_row, rows) if row.decision_id != decision_id and is_free(row))
        return next((row.decision_id for row in free), None)

    itself = where.copy().add("items.id = (SELECT item FROM decisions WHERE decision_id = ?)", decision_id)
    itself.add("items.decision_id = ?", decision_id)
    sql = statement("SELECT", sort_key(sort), "FROM items", itself.sql)
    key = connection.execute(sql, itself.values).fetchone()
    if key is None:
        first = nearest(None)
        return Neighbours(after=first, then=first, total=count(where))
    earlier = where.copy()
    beside(earlier, sort, key, before=True)
    after = nearest(key)
    return Neighbours(
        before=nearest(key, before=True),
        after=after,
        then=after or nearest(None),
        place=count(earlier) + 1,
        total=count(where),
    )


def find(connection: sqlite3.Connection, scope: ViewScope, subject: tuple[str, str, str]) -> str | None:
    """Return the decision id of a claim's highest revision, or None."""
    tenant, user, name = subject
    where = seen(scope).equals("items.tenant_id", tenant).equals("items.user_id", user)
    where.equals("items.subject_id", name).equals("items.kind", str(Kind.CLAIM))
    row = connection.execute(statement("SELECT decision_id FROM items", where.sql), where.values).fetchone()
    return None if row is None else str(row[0])


def counts(connection: sqlite3.Connection, scope: ViewScope) -> Counts:
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
    connection: sqlite3.Connection, scope: ViewScope, limit: int, cursor: str | None
) -> Page[DeadLetterRow]:
    """Return a page of dead letters, newest first."""
    where = seen(ViewScope(scope.person, scope.whole, frozenset()), table="dead_letters")
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


def dead_letter_counts(connection: sqlite3.Connection, since_ms: int) -> list[tuple[str, int]]:
    """Count dead letters by code since a time, most frequent first; a code that the gate lacks is `other`."""
    counts: Counter[str] = Counter()
    sql = "SELECT code, count(*) FROM dead_letters WHERE at_ms >= ? GROUP BY code"
    for code, count in connection.execute(sql, (since_ms,)):
        counts[code if code in _CODES else "other"] += count
    return counts.most_common()


def _dead_letter(row: Sequence[Any]) -> DeadLetterRow:
    code, message, topic, partition, offset, tenant, user, at_ms, excerpt, at_partition, at_offset = row
    name = f"{at_partition}@{at_offset}"
    return DeadLetterRow(
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


def _attempts(connection: sqlite3.Connection, number: int) -> list[ActionAttempt]:
    found = connection.execute(
        "SELECT action_id, at_ms, actor, applied, action, outcome FROM actions"
        " WHERE (tenant_id, user_id, kind, subject_id) ="
        " (SELECT tenant_id, user_id, kind, subject_id FROM items WHERE id = ?) ORDER BY at_ms, event_id LIMIT ?",
        (number, _MOST_ATTEMPTS),
    )
    return [
        ActionAttempt(row[0], from_milliseconds(row[1]), row[2], bool(row[3]), row[4], row[5])
        for row in found.fetchall()
    ]


def _memories(connection: sqlite3.Connection, scope: ViewScope, decision: Mapping[str, Any]) -> list[Nearest]:
    """Return the claims of the same owner that the gate compared one with, the one that it conflicts with first."""
    matches: list[dict[str, Any]] = (decision["facts"].get("dedup") or {}).get("matches") or []
    near = decision["conflicting_memory_id"]
    owner = (decision["tenant_id"], decision["user_id"])
    return [
        _as_it_stands(
            connection,
            scope,
            owner,
            Nearest(
                match["subject_id"],
                match["difference"],
                match["class"],
                match["inter"] / match["union"] if match["union"] else 0.0,
            ),
        )
        for match in sorted(matches, key=lambda match: match["subject_id"] != near)
    ]


_TEXT_OF: Final = (
    "SELECT items.decision_id, items.topic, items.reason_code, items.revision, items.source, items.since_ms,"
    " items.subject_id, decisions.value FROM items JOIN decisions ON decisions.id = items.current"
)


def _as_it_stands(
    connection: sqlite3.Connection, scope: ViewScope, owner: tuple[str, str], memory: Nearest
) -> Nearest:
    """Return a memory with its text and state of now, as far as the person sees it."""
    if find(connection, scope, (*owner, memory.subject_id)) is None:
        return memory
    of = "WHERE items.tenant_id = ? AND items.user_id = ? AND items.subject_id = ? AND items.kind = 'claim'"
    values = [bindable(part) for part in (*owner, memory.subject_id)]
    return _standing(connection.execute(statement(_TEXT_OF, of), values).fetchone(), memory)


def _standing(row: Sequence[Any], memory: Nearest) -> Nearest:
    decision_id, topic, reason, revision, source, since_ms, _, value = row
    return replace(
        memory,
        decision_id=decision_id,
        verdict=Verdict(topic),
        text=(json.loads(decision_json(value)).get("evidence") or {}).get("claim"),
        reason_code=reason,
        revision=revision,
        source=source,
        decided_at=from_milliseconds(since_ms),
    )


def approved_near(
    connection: sqlite3.Connection, scope: ViewScope, item: Item, *, limit: int, fts: bool
) -> list[Nearest]:
    """Return approved claims of the same owner that share words with a claim, most first; without an index none."""
    text = (item.decision.get("evidence") or {}).get("claim") or ""
    sought = any_word(text) if fts else None
    if sought is None:
        return []
    where = seen(scope).equals("items.tenant_id", item.current.tenant_id)
    where.equals("items.user_id", item.current.user_id).equals("items.topic", str(Verdict.APPROVED))
    where.equals("items.kind", str(Kind.CLAIM)).add("items.subject_id <> ?", item.current.subject_id)
    where.add(f"{OTHERS} MATCH ?", sought)
    sql = (_TEXT_OF, "JOIN", OTHERS, "ON", f"{OTHERS}.rowid = items.id", where.sql, "ORDER BY rank LIMIT ?")
    found = connection.execute(statement(*sql), (*where.values, limit)).fetchall()
    return [_standing(row, Nearest(row[6], "none", "approved", 0.0)) for row in found]


def _source_record(
    connection: sqlite3.Connection, scope: ViewScope, tenant: str, source: str | None
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


def agreement(connection: sqlite3.Connection, scope: ViewScope, since_ms: int) -> Agreement:
    """Count what people decided since a time."""
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
    found: list[DecidedRow] = connection.execute(statement(*sql), (_NO_SOURCE, *where.values)).fetchall()
    return Agreement(
        total=_tally("", found),
        by_reason=_tallies((row[0], row) for row in found),
        by_source=_tallies((row[1], row) for row in found),
    )


def _tallies(found: Iterable[tuple[str, DecidedRow]]) -> list[DecisionCounts]:
    groups: defaultdict[str, list[DecidedRow]] = defaultdict(list)
    for name, row in found:
        groups[name].append(row)
    return sorted(
        (_tally(name, rows) for name, rows in groups.items()), key=lambda tally: (-tally.decided, tally.name)
    )


def _tally(name: str, rows: Sequence[DecidedRow]) -> DecisionCounts:
    actions = [row[2] for row in rows]
    took = sorted(row[3] for row in rows)
    return DecisionCounts(
        name=name,
        approved=actions.count("approve"),
        edited=actions.count("edit"),
        rejected=actions.count("reject"),
        median=timedelta(milliseconds=median(took)) if took else None,
        p90=_nearest_rank(took, 0.9),
    )


def _nearest_rank(ordered: Sequence[int], part: float) -> timedelta | None:
    """Return the smallest value that at least this part of all values do not exceed."""
    return timedelta(milliseconds=ordered[ceil(part * len(ordered)) - 1]) if ordered else None
