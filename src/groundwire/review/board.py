"""The board: a projection of the output topics in SQLite, for people to look at the review queue.

It decides nothing: the same records in any order, any number of times, give the same tables. Before it shows
what is pending, it asks state (`candidates`, `apply_statuses`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Final

import structlog
from aiokafka import TopicPartition

from groundwire.errors import UsageError
from groundwire.kafka.store import MEMORY
from groundwire.keys.attestation import Keys
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Kind, Place, Verdict
from groundwire.messages.erasure import Erasure, read_tombstone
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName
from groundwire.review import queries
from groundwire.review.model import risk_of
from groundwire.review.queries import statement
from groundwire.review.reads import PORTION, BoardReads
from groundwire.review.records import (
    decision_json,
    in_one_line,
    name_of,
    read_action,
    read_dead_letter,
    read_decision,
    read_review,
    review_fact,
    text_of,
)
from groundwire.state.model import SubjectState, SubjectStatus

log = structlog.get_logger()

_MAX_COUNT: Final = 2**31  # bound of a stated count: SQLite does not hold every number

_TABLES: Final = "items", "decisions", "actions", "dead_letters"
"""By which a board of any layout is told from another's file."""
_ADDED: Final = "rests", "retractions", "notes", "read_to", "held", "erased", queries.PENDING, queries.OTHERS
_LAYOUT: Final = 9
"""Of the tables; the tables of an older one are dropped."""

_NOTE: Final = (
    "INSERT INTO notes (tenant_id, action_id, at_ms, user_id, actor, note) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET note = NULL"
    " WHERE (user_id, actor, note) IS NOT (excluded.user_id, excluded.actor, excluded.note)"
)
_ITEM: Final = (
    "SELECT id, revision FROM items WHERE tenant_id = ? AND user_id = ? AND kind = ? AND subject_id = ?"
)
_HIGHEST: Final = """
SELECT id, revision, decision_id, topic, reason_code, source, memory_type, decided_ms, excerpt, placed FROM decisions
WHERE item = ? ORDER BY revision DESC, timestamp_ms, partition, "offset", topic, decision_id LIMIT 1
"""
_CURRENT: Final = """
UPDATE items SET current = ?, revision = ?, decision_id = ?, topic = ?, reason_code = ?, source = ?, memory_type = ?,
    since_ms = ?, excerpt = ?, placed = ?, risk = ? WHERE id = ?
"""
# each topic is named: an index has them by time, and the rest of a large board is not read
_OLD: Final = "FROM items WHERE topic IN ('approved', 'review', 'blocked') AND pending = 0 AND since_ms < ?"
_READ_TO: Final = """
INSERT INTO read_to VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET next = excluded.next WHERE next < excluded.next
"""


class Board(BoardReads):
    """The tables and their queries; every read takes a ViewScope and answers as if nothing else existed.

    Methods may be called from several threads; one runs at a time. `keys` sign notes; without them none is shown.
    Raises: UsageError, of a file that is no board.
    """

    def __init__(
        self,
        path: Path | str = MEMORY,
        *,
        keys: Keys | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(path, clock)
        self._keys = keys or Keys.empty()
        self._unseen = 0  # changes of places alone, which no page shows
        try:
            with self.transaction():
                self._create(path)
        except UsageError:
            self.close()
            raise

    def _create(self, path: Path | str) -> None:
        ((layout,), tables) = self.row("PRAGMA user_version"), self._rows("SELECT name FROM sqlite_master")
        if tables and not ({(name,) for name in _TABLES} <= {*tables} and 0 < layout <= _LAYOUT):
            raise UsageError(
                f"{path} is no board, or one of a newer version; take another name, or remove it"
            )
        if tables and layout < _LAYOUT:  # the topics fill it again
            log.warning("review_board.emptied", path=str(path), why="its layout is older")
            for name in (*_TABLES, *_ADDED):
                self.rows(statement("DROP TABLE IF EXISTS", name))
        self.rows(statement("PRAGMA user_version =", str(_LAYOUT)))
        try:
            for each in files("groundwire.review").joinpath("schema.sql").read_text("utf-8").split(";\n"):
                self.rows(each)
        except UsageError as exc:
            if "fts5" not in str(exc):
                raise
            raise UsageError("the SQLite of this Python lacks FTS5, by which the board is searched") from exc

    @property
    def version(self) -> int:
        """A number that grows with every change of the board."""
        return self._database.total_changes - self._unseen

    def add(self, records: Sequence[InboundRecord], prefix: str = "") -> None:
        """Write records of output topics, in any order and any number of times; others are ignored.

        `prefix`: of the topics' names.
        """
        for start in range(0, len(records), PORTION):  # readers wait for one portion, not for all
            portion = records[start : start + PORTION]
            with self.transaction():
                for record in portion:
                    self._write(record, TopicName((record.topic or "").removeprefix(prefix)))
                ends: dict[tuple[str | None, int], int] = {}
                for one in portion:
                    place = one.topic, one.partition
                    ends[place] = max(one.offset + 1, ends.get(place, 0))
                for place, end in ends.items():
                    self._unseen += max(0, self.rows(_READ_TO, *place, end).rowcount)

    def resume(self, since: datetime) -> dict[TopicPartition, int]:
        """Return where to read on; nothing if the board holds less than `since`: then it is read from there."""
        (held,) = self.row("SELECT min(since_ms) FROM held")
        if held is None or held > to_milliseconds(since):
            with self.transaction():
                self.rows("DELETE FROM read_to")
                self.rows("DELETE FROM held")
                self.rows("INSERT INTO held VALUES (?)", to_milliseconds(since))
        return {
            TopicPartition(*place): following for *place, following in self._rows("SELECT * FROM read_to")
        }

    def candidates(self, *, dropped: bool = False) -> list[tuple[Subject, int]]:
        """Return what the board shows as pending, with the revision; `dropped`: also what `apply_statuses` dropped."""
        columns = "SELECT tenant_id, user_id, kind, subject_id, revision FROM items WHERE"
        rows = self._rows(columns, "placed = 1" if dropped else "pending = 1")
        return [(Subject(row[0], row[1], Kind(row[2]), row[3]), row[4]) for row in rows]

    def apply_statuses(self, statuses: Mapping[Subject, SubjectStatus | None]) -> None:
        """Drop what state does not hold as pending at the revision that the board shows; put back what it does."""
        with self.transaction():
            for subject, status in statuses.items():
                found = self.row(f"{_ITEM} AND placed = 1", *subject)
                if found is None or (status is not None and status.revision < found[1]):
                    continue
                pending = status == SubjectStatus(SubjectState.PENDING, found[1])
                dropped = -1 if pending else found[1]  # as long as this is its highest revision
                update = "UPDATE items SET dropped = ? WHERE id = ? AND dropped <> ?"
                self.rows(update, dropped, found[0], dropped)
                self._queue(found[0])

    def forget(self, before: datetime) -> None:
        """Delete what is older and not pending, so that the board of a long-running process stays small."""
        at, old = to_milliseconds(before), _OLD
        with self.transaction():
            self.rows(statement("DELETE FROM decisions WHERE item IN (SELECT id", old, ")"), at)
            claims = statement("(SELECT tenant_id, user_id, subject_id", old, "AND kind = 'claim')")
            self.rows(statement("DELETE FROM rests WHERE (tenant_id, user_id, claim) IN", claims), at)
            for (item,) in self._rows("SELECT id", old, values=[at]):
                queries.drop(self._database, item)
            self.rows(statement("DELETE", old), at)
            for table in ("retractions", "actions", "notes", "dead_letters"):
                self.rows(statement("DELETE FROM", table, "WHERE at_ms < ?"), at)
            self.rows("UPDATE held SET since_ms = max(since_ms, ?)", at)

    def _erase(self, erasure: Erasure) -> None:
        """Delete what a user had said before an erasure."""
        owner, until = (erasure.tenant_id, erasure.user_id), to_milliseconds(erasure.until)
        self.put("erased", *owner, until)
        items = "SELECT id FROM items WHERE tenant_id = ? AND user_id = ? AND since_ms <= ?"
        for (item,) in self._rows(items, values=(*owner, until)):
            queries.drop(self._database, item)
            self.rows("DELETE FROM decisions WHERE item = ?", item)
            self.rows("DELETE FROM items WHERE id = ?", item)
        for table in ("rests", "retractions"):
            self.rows(statement("DELETE FROM", table, "WHERE tenant_id = ? AND user_id = ?"), *owner)
        self.rows("DELETE FROM notes WHERE tenant_id = ? AND user_id = ? AND at_ms <= ?", *owner, until)

    def _is_erased(self, tenant_id: str, user_id: str, at_ms: int) -> bool:
        erased = "SELECT 1 FROM erased WHERE tenant_id = ? AND user_id = ? AND until_ms >= ?"
        return self.row(erased, tenant_id, user_id, at_ms) is not None

    def _write(self, record: InboundRecord, topic: TopicName) -> None:
        if topic is TopicName.AUDIT:
            if event := read_action(record):
                names = ("user_id", "kind", "action_id", "action", "outcome")
                what = {name: str(event.detail.get(name) or "") for name in names}
                what |= {"kind": what["kind"] or str(Kind.CLAIM), "subject_id": event.subject_id or ""}
                how = {
                    "at_ms": to_milliseconds(event.at),
                    "actor": event.actor,
                    "decision_id": event.decision_id,
                }
                self.put_first(
                    "actions",
                    {"tenant_id": event.tenant_id, "event_id": event.event_id},
                    {**what, **how, "applied": event.type == "review_action"},
                    order=("at_ms", "outcome", "action_id", "actor"),
                )
        elif topic is TopicName.RETRACTIONS:
            if erasure := read_tombstone(record):
                self._erase(erasure)
            elif retraction := Retraction.try_parse(record.value):
                name = name_of(retraction.kind, retraction.subject_id)
                more = min(max(0, (retraction.truncated or {}).get("affected", 0)), _MAX_COUNT)
                claims = json.dumps(retraction.affected, ensure_ascii=False)
                self.put_first(
                    "retractions",
                    {"tenant_id": retraction.tenant_id, "user_id": retraction.user_id, "name": name},
                    {"at_ms": to_milliseconds(retraction.at), "claims": claims, "more": more},
                    order=("at_ms", "claims", "more"),
                )
        elif topic is TopicName.REVIEW_DECISIONS:
            review = read_review(record, self._keys)
            if review and not self._is_erased(review.tenant_id, review.user_id, record.timestamp):
                key = review.tenant_id, review.action_id, record.timestamp
                self.rows(_NOTE, *key, review.user_id, review.reviewer, review.note)
        elif topic is TopicName.DEAD_LETTER:
            place = {"at_partition": record.partition, "at_offset": record.offset}
            self.put("dead_letters", **place, at_ms=record.timestamp, **asdict(read_dead_letter(record)))
        elif decision := read_decision(record, topic):
            self._write_decision(record, decision)

    def _write_decision(self, record: InboundRecord, decision: Decision) -> None:
        topic = TopicName.of(decision.verdict)
        subject = subject_of_decision(decision)
        if self._is_erased(subject.tenant_id, subject.user_id, to_milliseconds(decision.decided_at)):
            return
        self.put("items", **subject._asdict())
        item, _ = self.row(_ITEM, *subject)
        is_changed = self.put_first(
            "decisions",
            {"item": item, "revision": decision.revision, "decision_id": decision.decision_id},
            {
                "topic": topic.value,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp,
                "reason_code": decision.reason_code,
                "source": decision.source,
                "memory_type": decision.memory_type,
                "decided_ms": to_milliseconds(decision.decided_at),
                "excerpt": in_one_line(text_of(decision)),
                "placed": topic is TopicName.REVIEW
                and decision.revision > 0
                and decision.facts.place == Place.FREE,
                "action": review_fact(decision, "action"),
                "reviewer": review_fact(decision, "reviewer"),
                "review_reason": review_fact(decision, "reason"),
                # half the size at a tenth of the time of the best level
                "value": zlib.compress(record.value or b"", 1),
            },
            order=("timestamp_ms", "partition", "offset", "topic"),
        )
        if not is_changed:
            return
        current = self.row(_HIGHEST, item)
        highest = decision
        if current[2] != decision.decision_id:
            (stored,) = self.row("SELECT value FROM decisions WHERE id = ?", current[0])
            highest = Decision.model_validate_json(decision_json(stored))
        self.rows(_CURRENT, *current, risk_of(highest.reason_code, highest.checks_failed).rank, item)
        if highest.kind == Kind.CLAIM:  # its parents, where it is approved
            claim = highest.tenant_id, highest.user_id, highest.subject_id
            self.rows("DELETE FROM rests WHERE tenant_id = ? AND user_id = ? AND claim = ?", *claim)
            names = {*(highest.derived_from or ())} if highest.verdict == Verdict.APPROVED else set()
            for name in names - {highest.subject_id}:
                self.put("rests", *claim[:2], name, claim[2])
        self._queue(item, changed=highest)

    def _queue(self, item: int, *, changed: Decision | None = None) -> None:
        """Derive `pending`, and the search table, from `placed` and `dropped`."""
        pending, was = self.row(
            "SELECT placed AND dropped <> revision, pending FROM items WHERE id = ?", item
        )
        if pending == was and changed is None:
            return
        if changed is None:
            queries.move(self._database, item, pending=bool(pending))
        else:
            source_id = (changed.evidence.source_id if changed.evidence else None) or ""
            sought = text_of(changed), changed.subject_id, changed.user_id, source_id
            queries.put(self._database, item, "\n".join(sought), pending=bool(pending))
        self.rows("UPDATE items SET pending = ? WHERE id = ?", pending, item)
