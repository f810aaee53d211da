"""Reads of the board's tables: pages of the queue, one item with its context, counts, and how people decided."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from math import ceil
from pathlib import Path
from statistics import median
from typing import Any, Final

from groundwire.errors import ErrorCode
from groundwire.kafka.store import Store
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.decisions import Kind, ReasonCode, Verdict
from groundwire.messages.topics import TopicName
from groundwire.review.model import (
    ActionAttempt,
    Agreement,
    Backlog,
    Counts,
    DeadLetterRow,
    DecisionCounts,
    Item,
    ListedTopic,
    Nearest,
    Neighbours,
    Page,
    Query,
    Related,
    Revision,
    Row,
    SourceRecord,
    Standing,
    check_limit,
    state_of,
)
from groundwire.review.permissions import ViewScope
from groundwire.review.queries import (
    COLUMNS,
    OTHERS,
    WIDTH,
    SqlValue,
    Where,
    any_word,
    as_row,
    beside,
    containing,
    filtered,
    make_cursor,
    ordered,
    read_cursor,
    seen,
    sort_key,
    statement,
)
from groundwire.review.records import RESPONSE, decision_json, name_of

PORTION: Final = 100
"""Rows for which others wait."""
_WAITS: Final = "items.pending AND items.current = decisions.id"
"""Whether a person may decide a Decision now."""
_ASKED: Final = (
    "FROM json_each(?) AS asked CROSS JOIN decisions ON decisions.decision_id = asked.value"
    " JOIN items ON items.id = decisions.item"
)
"""Several Decisions by their ids, each found by its index."""
_TEXT_OF: Final = (
    "SELECT items.decision_id, items.topic, items.reason_code, items.revision, items.source, items.since_ms,"
    " items.subject_id, decisions.value FROM items JOIN decisions ON decisions.id = items.current"
)
_OF: Final = "WHERE tenant_id = ? AND user_id = ? AND name = ?"
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
_MOST_NAMED: Final = 1_000
"""Dependents of an item that are named: as many as a Retraction names."""
_MOST_ATTEMPTS: Final = 100

DecidedRow = tuple[str, str, str, int]
"""Reason of the review, source, action, milliseconds from review to decision."""


class BoardReads(Store):
    """What a person may read of a board."""

    def __init__(self, path: Path | str, clock: Callable[[], datetime]) -> None:
        super().__init__(path, durable=True)
        self._clock = clock

    def pending(self, scope: ViewScope, query: Query) -> Page[Row]:
        """Return a page of the queue. Raises: ValueError, of an invalid cursor."""
        return self._page(self._queued(scope, query), query)

    def neighbours(
        self, scope: ViewScope, query: Query, decision_id: str, is_free: Callable[[Row], bool]
    ) -> Neighbours:
        """Return the free items next to one in the queue; rows are read until one is free."""
        where, sort = self._queued(scope, query), query.sort

        def count(of: Where) -> int:
            return int(self._rows("SELECT count(*) FROM items", of.sql, values=of.values)[0][0])

        def nearest(key: Sequence[SqlValue] | None, *, before: bool = False) -> str | None:
            of = where.copy()
            order = beside(of, sort, key, before=before)
            rows = self.rows(statement("SELECT", COLUMNS, "FROM items", of.sql, order), *of.values)
            free = (row for row in map(as_row, rows) if row.decision_id != decision_id and is_free(row))
            return next((row.decision_id for row in free), None)

        with self._lock:
            itself = where.copy().add(
                "items.id = (SELECT item FROM decisions WHERE decision_id = ?)", decision_id
            )
            itself.add("items.decision_id = ?", decision_id)
            key = self._row("SELECT", sort_key(sort), "FROM items", itself.sql, values=itself.values)
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

    def not_pending(
        self, scope: ViewScope, topic: ListedTopic, limit: int = 50, cursor: str | None = None, text: str = ""
    ) -> Page[Row]:
        """Return a page of what is not pending, newest first: approved, blocked, or responses in review.

        `text`: words, as in a Query. Raises: ValueError, of limit or cursor.
        """
        where = seen(scope, Where(["items.pending = 0"]).equals("items.topic", str(topic)))
        if topic is TopicName.REVIEW:
            where.equals("items.kind", str(Kind.RESPONSE))
        containing(where, text, OTHERS)
        return self._page(where, Query(sort="newest", limit=limit, cursor=cursor))

    def dead_letters(
        self, scope: ViewScope, limit: int = 50, cursor: str | None = None
    ) -> Page[DeadLetterRow]:
        """Return a page of dead letters, newest first. Raises: ValueError, of limit or cursor.

        Their owner is not verified: a letter is shown to who sees the whole tenant of the record's key, and to nobody
        where the value names another tenant.
        """
        check_limit(limit)
        where = seen(ViewScope(scope.person, scope.whole, frozenset()), table="dead_letters")
        with self._lock:
            total = self._row("SELECT count(*) FROM dead_letters", where.sql, values=where.values)[0]
            if cursor is not None:
                *place, _ = read_cursor(cursor, 4)
                where.add("(at_ms, at_partition, at_offset) < (?, ?, ?)", *place)
            found = self._rows(
                "SELECT at_ms, at_partition, at_offset, code, message, topic, partition,",
                '"offset", tenant_id, user_id, excerpt FROM dead_letters',
                where.sql,
                "ORDER BY at_ms DESC, at_partition DESC, at_offset DESC LIMIT ?",
                values=(*where.values, limit + 1),
            )
        rows = [
            DeadLetterRow(*(*failed, f"{partition}@{offset}", from_milliseconds(at_ms)))
            for at_ms, partition, offset, *failed in found[:limit]
        ]
        following = make_cursor([*found[limit - 1][:3], ""]) if len(found) > limit else None
        return Page(rows, total, following)

    def dead_letter_counts(self, since: datetime) -> list[tuple[str, int]]:
        """Count dead letters of all tenants by code, most frequent first; an unknown code is `other`."""
        counts: Counter[str] = Counter()
        sql = "SELECT code, count(*) FROM dead_letters WHERE at_ms >= ? GROUP BY code"
        for code, count in self._rows(sql, values=[to_milliseconds(since)]):
            counts[code if code in set(ErrorCode) else "other"] += count
        return counts.most_common()

    def item(self, scope: ViewScope, decision_id: str) -> Item | None:
        """Return a Decision with its context; None where there is none that the person sees (S0-132)."""
        where = seen(scope).add("decisions.decision_id = ?", decision_id)
        with self._lock:
            found = self._row(
                "SELECT",
                COLUMNS,
                f", items.id, {_WAITS}, decisions.value, decisions.topic,",
                'decisions.partition, decisions."offset", decisions.timestamp_ms',
                "FROM decisions JOIN items ON items.id = decisions.item",
                where.sql,
                "LIMIT 1",
                values=where.values,
            )
            if found is None:
                return None
            number, pending, value, topic, partition, offset, timestamp = found[WIDTH:]
            decision: Mapping[str, Any] = json.loads(decision_json(value))
            compared = self._memories(scope, decision)
            history = self._rows(
                "SELECT revision, decision_id, topic, reason_code, decided_ms, action, reviewer, review_reason"
                ' FROM decisions WHERE item = ? ORDER BY revision, timestamp_ms, partition, "offset", decision_id',
                values=[number],
            )
            attempts = self._rows(
                "SELECT action_id, actions.at_ms, actor, applied, action, outcome, decision_id, note FROM actions"
                " LEFT JOIN notes USING (tenant_id, user_id, action_id, actor)"
                " WHERE (tenant_id, user_id, kind, subject_id) ="
                " (SELECT tenant_id, user_id, kind, subject_id FROM items WHERE id = ?)"
                " ORDER BY actions.at_ms, event_id LIMIT ?",
                values=[number, _MOST_ATTEMPTS],
            )
            owner = decision["tenant_id"], decision["user_id"]
            return Item(
                decision_id=decision["decision_id"],
                current=as_row(found),
                pending=bool(pending),
                decision=decision,
                topic=topic,
                partition=partition,
                offset=offset,
                timestamp=from_milliseconds(timestamp),
                history=[
                    Revision(row[0], row[1], Verdict(row[2]), row[3], from_milliseconds(row[4]), *row[5:])
                    for row in history
                ],
                attempts=[
                    ActionAttempt(row[0], from_milliseconds(row[1]), row[2], bool(row[3]), *row[4:])
                    for row in attempts
                ],
                nearest=compared[0] if compared else None,
                memories=compared,
                parents=[self._parent(scope, owner, name) for name in decision["derived_from"] or ()],
                source_record=self._source_record(scope, decision["tenant_id"], decision["source"]),
            )

    def standings(self, scope: ViewScope, decision_ids: Sequence[str]) -> dict[str, Standing]:
        where = seen(scope)
        sql = "SELECT", COLUMNS, ", asked.value,", _WAITS, _ASKED, where.sql
        found = self._rows(*sql, values=(json.dumps(decision_ids), *where.values))
        return {row[WIDTH]: Standing(row[WIDTH], as_row(row), bool(row[WIDTH + 1])) for row in found}

    def memories(self, scope: ViewScope, decision_ids: Sequence[str]) -> dict[str, list[Nearest]]:
        found: dict[str, list[Nearest]] = {}
        where = seen(scope)
        for start in range(0, len(decision_ids), PORTION):
            portion = json.dumps(decision_ids[start : start + PORTION])
            with self._lock:
                sql = "SELECT asked.value, decisions.value", _ASKED, where.sql
                for name, value in self._rows(*sql, values=(portion, *where.values)):
                    found[name] = self._memories(scope, json.loads(decision_json(value)))
        return found

    def approved_near(self, scope: ViewScope, item: Item, limit: int = 20) -> list[Nearest]:
        """Return approved claims of the same owner that share words with a claim, most first."""
        text = (item.decision.get("evidence") or {}).get("claim") or ""
        sought = any_word(text)
        if sought is None:
            return []
        where = seen(scope).equals("items.tenant_id", item.current.tenant_id)
        where.equals("items.user_id", item.current.user_id).equals("items.topic", str(Verdict.APPROVED))
        where.equals("items.kind", str(Kind.CLAIM)).add("items.subject_id <> ?", item.current.subject_id)
        where.add(f"{OTHERS} MATCH ?", sought)
        sql = _TEXT_OF, "JOIN", OTHERS, "ON", f"{OTHERS}.rowid = items.id", where.sql, "ORDER BY rank LIMIT ?"
        found = self._rows(*sql, values=(*where.values, limit))
        return [_current(row, Nearest(row[6], "none", "approved", 0.0)) for row in found]

    def dependents(self, scope: ViewScope, row: Row) -> Page[Related]:
        """Return the approved claims that rest on an approved or retracted item: at most 1,000, by id.

        `total` counts all. Of a retracted item those that its Retraction names are included, among them claims that
        the board does not hold. What it names was approved at that time, so it can only have been retracted since: any
        other state on the board is older.
        """
        may_have = row.verdict == Verdict.APPROVED or row.reason_code == ReasonCode.RETRACTED
        if not may_have or not scope.sees(row.tenant_id, row.user_id):
            return Page([], 0, None)
        of = (row.tenant_id, row.user_id, name_of(row.kind, row.subject_id))
        with self._lock:
            (held,) = self._row("SELECT count(*) FROM rests", _OF, values=of)
            found = self._rows(
                "SELECT claim FROM rests", _OF, "ORDER BY claim LIMIT ?", values=(*of, _MOST_NAMED)
            )
            named = [
                (name, is_held)
                for name, is_held, is_gone in self._rows(_NAMED_BY_RETRACTION, values=(*of, *of[:2], *of))
                if not is_gone
            ]
            others = [name for name, is_held in named if not is_held]
            (more,) = self._row("SELECT more FROM retractions", _OF, values=of) or (0,)
            names = sorted([*(name for (name,) in found), *others])[:_MOST_NAMED]
            rows = self._rows(_WITH_ITEMS, values=(json.dumps(names), *of[:2]))
        related = [Related(name, number, "approved", excerpt or "") for name, number, excerpt in rows]
        return Page(related, max(held + len(others), len(named) + more), None)

    def find(self, scope: ViewScope, tenant_id: str, user_id: str, subject_id: str) -> str | None:
        where = _of_subject(scope, (tenant_id, user_id), Kind.CLAIM, subject_id)
        row = self._row("SELECT decision_id FROM items", where.sql, values=where.values)
        return None if row is None else str(row[0])

    def counts(self, scope: ViewScope) -> Counts:
        """Return how many items are pending, for the gauges of the limits (S0-133, S0-134)."""
        grouped = "SELECT tenant_id, count(*) FROM items WHERE pending = 1"
        with self._lock:
            tenants = dict(self._rows(grouped, "GROUP BY tenant_id"))
            own = Where().equals("user_id", scope.person)
            mine = dict(self._rows(grouped, "AND user_id = ? GROUP BY tenant_id", values=own.values))
        return Counts(
            own={tenant: mine.get(tenant, 0) for tenant in sorted(scope.whole | scope.own)},
            tenants={tenant: tenants.get(tenant, 0) for tenant in sorted(scope.whole)},
            total=sum(tenants.values()) if scope.whole else None,
        )

    def backlog(self) -> Backlog:
        """Return how near the queue is to its limits, over all tenants, for operators (S0-133, S0-134)."""
        most = "SELECT max(n) FROM (SELECT count(*) AS n FROM items WHERE pending = 1 GROUP BY"
        with self._lock:
            (user,) = self._row(most, "tenant_id, user_id)")
            (tenant,) = self._row(most, "tenant_id)")
            total, since = self._row("SELECT count(*), min(since_ms) FROM items WHERE pending = 1")
        return Backlog(user or 0, tenant or 0, total, None if since is None else from_milliseconds(since))

    def agreement(self, scope: ViewScope, since: datetime) -> Agreement:
        where = seen(scope).add("done.action IN ('approve', 'edit', 'reject')")
        where.add("done.decided_ms >= ?", to_milliseconds(since))
        found: list[DecidedRow] = self._rows(
            # a response has no source
            "SELECT before.reason_code, coalesce(before.source, '-'), done.action, done.decided_ms - before.decided_ms",
            "FROM decisions AS done JOIN items ON items.id = done.item JOIN decisions AS before ON",
            "before.item = done.item AND before.revision = done.revision - 1 AND before.topic = 'review'",
            "AND before.placed = 1",
            where.sql,
            values=where.values,
        )
        return Agreement(
            total=_tally("", found),
            by_reason=_tallies((row[0], row) for row in found),
            by_source=_tallies((row[1], row) for row in found),
        )

    def _queued(self, scope: ViewScope, query: Query) -> Where:
        return filtered(seen(scope, Where(["items.pending = 1"])), query, self._clock())

    def _page(self, where: Where, query: Query) -> Page[Row]:
        total_sql = statement("SELECT count(*) FROM items", where.sql)
        total_values = list(where.values)
        order = ordered(where, query.sort, query.cursor)
        sql = "SELECT", COLUMNS, ",", sort_key(query.sort), "FROM items", where.sql, order, "LIMIT ?"
        with self._lock:
            (total,) = self._row(total_sql, values=total_values)
            found = self._rows(*sql, values=(*where.values, query.limit + 1))
        rows = found[: query.limit]
        following = make_cursor(rows[-1][WIDTH:]) if len(found) > query.limit else None
        return Page([as_row(row) for row in rows], total, following)

    def _memories(self, scope: ViewScope, decision: Mapping[str, Any]) -> list[Nearest]:
        """Return the claims of the same owner that the gate compared one with, the conflicting one first."""
        matches: list[dict[str, Any]] = (decision["facts"].get("dedup") or {}).get("matches") or []
        near = decision["conflicting_memory_id"]
        found = []
        for match in sorted(matches, key=lambda match: match["subject_id"] != near):
            similarity = match["inter"] / match["union"] if match["union"] else 0.0
            memory = Nearest(match["subject_id"], match["difference"], match["class"], similarity)
            owner = decision["tenant_id"], decision["user_id"]
            where = _of_subject(scope, owner, Kind.CLAIM, memory.subject_id)
            row = self._row(_TEXT_OF, where.sql, values=where.values)
            found.append(_current(row, memory) if row else memory)
        return found

    def _parent(self, scope: ViewScope, owner: tuple[str, str], name: str) -> Related:
        kind = Kind.RESPONSE if name.startswith(RESPONSE) else Kind.CLAIM
        where = _of_subject(scope, owner, kind, name.removeprefix(RESPONSE))
        found = self._row("SELECT", COLUMNS, ", items.pending FROM items", where.sql, values=where.values)
        if found is None:
            return Related(name)
        row = as_row(found)
        waits = row.verdict != Verdict.REVIEW or found[WIDTH]
        state = state_of(row.verdict, row.reason_code) if waits else "in review"
        return Related(name, row.decision_id, state, row.excerpt, row.reason_code)

    def _source_record(self, scope: ViewScope, tenant: str, source: str | None) -> SourceRecord:
        if source is None:
            return SourceRecord()
        where = seen(scope).equals("items.tenant_id", tenant).equals("items.source", source)
        sql = "SELECT topic, reason_code, count(*) FROM items", where.sql, "GROUP BY topic, reason_code"
        found: list[tuple[str, str, int]] = self._rows(*sql, values=where.values)
        return SourceRecord(
            approved=sum(count for topic, _, count in found if topic == "approved"),
            human_approved=sum(count for _, reason, count in found if reason == "human_approved"),
            human_rejected=sum(count for _, reason, count in found if reason == "human_rejected"),
            blocked=sum(count for topic, _, count in found if topic == "blocked"),
        )

    def _rows(self, *sql: str, values: Sequence[SqlValue] = ()) -> list[Any]:
        with self._lock:
            return self.rows(statement(*sql), *values).fetchall()

    def _row(self, *sql: str, values: Sequence[SqlValue] = ()) -> Any:  # noqa: ANN401 - a row, or None
        with self._lock:
            return self.row(statement(*sql), *values)


def _of_subject(scope: ViewScope, owner: tuple[str, str], kind: Kind, name: str) -> Where:
    where = seen(scope).equals("items.tenant_id", owner[0]).equals("items.user_id", owner[1])
    return where.equals("items.kind", str(kind)).equals("items.subject_id", name)


def _current(row: Sequence[Any], memory: Nearest) -> Nearest:
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
        p90=timedelta(milliseconds=took[ceil(0.9 * len(took)) - 1]) if took else None,
    )
