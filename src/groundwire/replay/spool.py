"""What a replay has read from the topics, on disk: records, what became of them, and what that rests on."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import Decision, Origin
from groundwire.messages.headers import TRACEPARENT
from groundwire.messages.identity import Subject
from groundwire.messages.inbound import InboundRecord
from groundwire.replay.inputs import Revision, beyond_numbers, subject_of
from groundwire.replay.notes import Notes, hash_key
from groundwire.replay.published import Place, misplaced, unlike, where

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS read_to (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
  topic TEXT, part INTEGER, at INTEGER, time INTEGER, sha BLOB, key BLOB, value BLOB, trace BLOB, turn INTEGER,
  UNIQUE (topic, part, at)
);
CREATE INDEX IF NOT EXISTS by_hash ON records (sha);
CREATE INDEX IF NOT EXISTS by_turn ON records (turn, topic, part, at) WHERE turn IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_place ON records (topic, part, at) WHERE turn IS NOT NULL;
CREATE TABLE IF NOT EXISTS decisions (
  topic TEXT, part INTEGER, at INTEGER, revision INTEGER, id TEXT, value BLOB, inside INTEGER, published TEXT,
  UNIQUE (topic, part, at, revision, id)
);
CREATE INDEX IF NOT EXISTS by_id ON decisions (id);
CREATE TABLE IF NOT EXISTS variants (value BLOB PRIMARY KEY, published TEXT);
CREATE TABLE IF NOT EXISTS subjects (subject BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS unlike (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS odd (place TEXT, id TEXT, fields TEXT, UNIQUE (place, fields));
CREATE TABLE IF NOT EXISTS ended (name TEXT PRIMARY KEY) WITHOUT ROWID;
"""


class Stretch(NamedTuple):
    """A part of a partition: the offsets from `start` up to `end`, without it."""

    topic: str
    partition: int
    start: int
    end: int


class Spool:
    """Tables of a job that hold what was read.

    Args:
        database: where they are; the job's transactions are used.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(_SCHEMA)
        self._notes = Notes(database)
        self._turns: dict[tuple[str, int], int] = {}

    def next_of(self, stretch: Stretch) -> int:
        """Return where reading a stretch goes on."""
        query = "SELECT next FROM read_to WHERE topic = ? AND part = ?"
        row = self._database.execute(query, (stretch.topic, stretch.partition)).fetchone()
        return max(stretch.start, row[0]) if row else stretch.start

    def read_to(self, stretch: Stretch, offset: int) -> None:
        """Note how far a stretch is read."""
        self._database.execute(
            "REPLACE INTO read_to VALUES (?, ?, ?)", (stretch.topic, stretch.partition, offset)
        )

    def add_record(self, record: InboundRecord, *, inside: bool) -> None:
        """Keep an input record; `inside` where it is one of those that are replayed."""
        trace = next((value for key, value in record.headers if key == TRACEPARENT), None)
        row = (
            *(record.topic, record.partition, record.offset, record.timestamp),
            *(hash_key(record.sha256), record.key, record.value, trace),
            self._turn(record) if inside else None,
        )
        self._database.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _turn(self, record: InboundRecord) -> int:
        """Return when it is a record's turn: at its time, but never before those that stand before it."""
        query = "SELECT max(turn) FROM records WHERE topic = ? AND part = ? AND turn IS NOT NULL"
        key = record.topic or "", record.partition
        if key not in self._turns:
            (last,) = self._database.execute(query, key).fetchone()
            self._turns[key] = record.timestamp if last is None else last
        self._turns[key] = max(self._turns[key], record.timestamp)
        return self._turns[key]

    def add_decision(
        self, published: InboundRecord, *, inside: Mapping[tuple[str, int], Stretch], everything: bool
    ) -> None:
        """Keep a decision of a record that is replayed; of others only that there is one, or `everything`."""
        value = published.value or b""
        try:
            decision = Decision.model_validate_json(value)
        except ValidationError:
            self._note_odd(published, None, ["$"])
            return
        if beyond := beyond_numbers(decision):
            self._note_odd(published, decision.decision_id, beyond)
            return
        fields = misplaced(published, decision)
        if fields:
            self._note_odd(published, decision.decision_id, fields)
        origin = decision.origin
        stretch = inside.get((origin.topic or "", origin.partition))
        within = stretch is not None and stretch.start <= origin.offset < stretch.end
        self._database.execute("INSERT OR IGNORE INTO subjects VALUES (?)", (subject_of(decision).digest,))
        if within or everything or decision.subject_origin:
            self._notes.note_decision(value)
            self._keep(published, decision, within=within)

    def _keep(self, published: InboundRecord, decision: Decision, *, within: bool) -> None:
        name, at = decision.decision_id, where(published)
        again = "UPDATE decisions SET published = ? WHERE id = ? AND value = ?"
        if self._database.execute(again, (at, name, published.value)).rowcount:
            return
        query = "SELECT value FROM decisions WHERE id = ? ORDER BY rowid LIMIT 1"
        kept = self._database.execute(query, (name,)).fetchone()
        fields = unlike(Decision.model_validate_json(kept[0]), decision) if kept else []
        if fields:
            self._note_odd(published, name, fields)
            self._database.execute("INSERT OR IGNORE INTO unlike VALUES (?)", (name,))
        row = *_place(decision.origin), decision.revision, name, published.value, within, at
        insert = "INSERT OR IGNORE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        if not self._database.execute(insert, row).rowcount and not fields:
            variant = "INSERT OR REPLACE INTO variants VALUES (?, ?)"
            self._database.execute(variant, (published.value, at))

    def _note_odd(self, published: InboundRecord, name: str | None, fields: Sequence[str]) -> None:
        """Note what is wrong with a published record, whatever can be derived."""
        row = where(published), name, json.dumps(list(fields))
        self._database.execute("INSERT OR IGNORE INTO odd VALUES (?, ?, ?)", row)

    def add_end(self, name: str) -> None:
        """Note that a record ended without a decision: its place as text, or the id of its audit event."""
        self._database.execute("INSERT OR IGNORE INTO ended VALUES (?)", (name,))

    def missing_places(self) -> list[Place]:
        """Return where records stand that decisions inside rest on, and that were not read with the stretches."""
        wanted: set[Place] = set()
        query = "SELECT value FROM decisions WHERE inside AND revision > 1"
        for (value,) in self._database.execute(query):
            decision = Decision.model_validate_json(value)
            if decision.subject_origin is not None:
                wanted.add(_place(decision.subject_origin))
            wanted.update(self._between(decision))
        return sorted(place for place in wanted if not self._has(place))

    def _between(self, decision: Decision) -> Iterator[Place]:
        """Return the origins of the revisions between a decision and its subject's first record."""
        later, name = decision.revision, decision.supersedes
        while name is not None:
            row = self._database.execute("SELECT value FROM decisions WHERE id = ?", (name,)).fetchone()
            before = Decision.model_validate_json(row[0]) if row else None
            if before is None or before.revision >= later:  # a forged one may name itself
                return
            yield _place(before.origin)
            later, name = before.revision, before.supersedes

    def _has(self, place: Place) -> bool:
        query = "SELECT 1 FROM records WHERE topic = ? AND part = ? AND at = ?"
        return self._database.execute(query, place).fetchone() is not None

    def count(self) -> int:
        """Return how many records are replayed."""
        (count,) = self._database.execute("SELECT count(*) FROM records WHERE turn IS NOT NULL").fetchone()
        return int(count)

    def page(
        self, after: Sequence[Any] | None, size: int, *, by_turn: bool
    ) -> list[tuple[InboundRecord, list[Any]]]:
        """Return the next records that are replayed, each with the mark after which the next page begins.

        Partition by partition, or `by_turn` of all of them.
        """
        order = "turn, topic, part, at" if by_turn else "topic, part, at"
        marks = ", ".join("?" * (4 if by_turn else 3))
        where = f"AND ({order}) > ({marks})" if after is not None else ""
        query = (
            "SELECT topic, part, at, time, key, value, trace, turn FROM records"  # noqa: S608 - our own words only
            f" WHERE turn IS NOT NULL {where} ORDER BY {order} LIMIT ?"
        )
        found = []
        for topic, part, at, time, key, value, trace, turn in self._database.execute(
            query, (*(after or ()), size)
        ):
            headers = ((TRACEPARENT, trace),) if trace is not None else ()
            mark = [turn, topic, part, at] if by_turn else [topic, part, at]
            found.append((InboundRecord(topic, part, at, time, key, value, headers), mark))
        return found

    def decisions_of(self, record: InboundRecord) -> list[bytes]:
        """Return the decisions that a record brought about, lowest revision first."""
        query = "SELECT value FROM decisions WHERE topic = ? AND part = ? AND at = ? ORDER BY revision, id"
        rows = self._database.execute(query, (record.topic, record.partition, record.offset))
        return [value for (value,) in rows]

    def every(self) -> Iterator[tuple[str, bytes]]:
        """Yield every decision that was kept, in each way that it was written, and where that stands last."""
        yield from self._database.execute("SELECT published, value FROM decisions ORDER BY rowid")
        yield from self._database.execute("SELECT published, value FROM variants ORDER BY rowid")

    def odd(self) -> Iterator[tuple[str, str | None, list[str]]]:
        """Yield published records with which something is wrong: where each stands, its id, and what."""
        for place, name, fields in self._database.execute(
            "SELECT place, id, fields FROM odd ORDER BY place, fields"
        ):
            yield place, name, json.loads(fields)

    def is_unlike(self, name: str) -> bool:
        """Say whether a decision was published with different bytes."""
        return self._database.execute("SELECT 1 FROM unlike WHERE id = ?", (name,)).fetchone() is not None

    def is_decided(self, subject: Subject) -> bool:
        """Say whether there is any decision of a subject."""
        query = "SELECT 1 FROM subjects WHERE subject = ?"
        return self._database.execute(query, (subject.digest,)).fetchone() is not None

    def has_ended(self, name: str) -> bool:
        """Say whether a record ended without a decision; see `add_end`."""
        return self._database.execute("SELECT 1 FROM ended WHERE name = ?", (name,)).fetchone() is not None

    def earlier(self, stretches: Iterable[Stretch]) -> Iterator[bytes]:
        """Yield decisions of records that stand before the stretches, lowest revision first."""
        starts = {(s.topic, s.partition): s.start for s in stretches}
        query = "SELECT topic, part, at, value FROM decisions WHERE NOT inside ORDER BY revision"
        for topic, part, at, value in self._database.execute(query):
            if at < starts.get((topic, part), 0):
                yield value

    def value(self, sha256: str) -> bytes | None:
        """Return the value with this hash, or None."""
        row = self._database.execute(
            "SELECT value FROM records WHERE sha = ?", (hash_key(sha256),)
        ).fetchone()
        return row[0] if row else None

    def revision(self, subject: Subject, number: int) -> Revision | None:
        """Return what a decision at hand says of a revision from 2 on, or None."""
        return self._notes.revision(subject, number)

    def stands(self, origin: Origin) -> bool:
        """Say whether a record stands where a decision says, with that time and those bytes."""
        query = "SELECT time, sha FROM records WHERE topic = ? AND part = ? AND at = ?"
        row = self._database.execute(query, _place(origin)).fetchone()
        return row is not None and (from_milliseconds(row[0]), row[1]) == (
            origin.timestamp,
            hash_key(origin.sha256),
        )


def _place(origin: Origin) -> Place:
    return Place(origin.topic or "", origin.partition, origin.offset)
