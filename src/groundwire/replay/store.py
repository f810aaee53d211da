"""What a replay or a verification has read, kept on disk: records, the decisions on them, and what those rest on."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final, NamedTuple, Self

from groundwire import __version__
from groundwire.errors import UsageError
from groundwire.messages.base import (
    format_time,
    from_milliseconds,
    parse_time,
    sha256_hex,
    to_microseconds,
    to_milliseconds,
)
from groundwire.messages.decisions import Decision, Origin
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import ATTESTATION, TRACEPARENT, InboundRecord, header
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.topics import TopicName, record_key
from groundwire.replay.inputs import InputRevision, beyond_numbers, parse_decision

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FIRST_REVISION: Final = re.compile(rb'\{"decision_id":"[0-9a-f-]{36}","revision":[01],')
"""Begins every decision, as the gate writes it, that rests on its first record alone."""

_STABLE_FIELDS: Final = (
    *("revision", "tenant_id", "user_id", "kind", "subject_id", "fingerprint", "origin", "subject_origin"),
    *("verdict", "approved", "tier", "reason_code", "evidence", "facts", "decided_at"),
)
"""Fields of a decision that every engine writes alike."""

_REVISIONS: Final = """
CREATE TABLE IF NOT EXISTS erased (owner TEXT, until INTEGER, PRIMARY KEY (owner, until)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revisions (
  subject BLOB, revision INTEGER, sha TEXT, clock TEXT, people INTEGER, topic TEXT, part INTEGER, at INTEGER,
  PRIMARY KEY (subject, revision)
) WITHOUT ROWID;
"""
_RECORDS: Final = """
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
CREATE TABLE IF NOT EXISTS contradicted (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS misfits (place TEXT, id TEXT, fields TEXT, other INTEGER, UNIQUE (place, fields));
CREATE TABLE IF NOT EXISTS ended (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS signed (topic TEXT, part INTEGER, at INTEGER, header TEXT, PRIMARY KEY (topic, part, at))
  WITHOUT ROWID;
"""
_FILE: Final = """
CREATE TABLE records (sha BLOB PRIMARY KEY, at INTEGER, size INTEGER) WITHOUT ROWID;
CREATE TABLE decided (id TEXT PRIMARY KEY, sha BLOB) WITHOUT ROWID;
"""
_CACHE_KIB: Final = 65_536
_BATCH: Final = 5_000
_LONGEST_SIGNATURE: Final = 300
"""Characters of a header that may hold a signature: a key's id, a colon and 128 digits."""


class RecordPlace(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: InboundRecord | Origin) -> RecordPlace:
        """Return the place of a record, or the one that a decision names."""
        return cls(record.topic or "", record.partition, record.offset)

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        """Read a place that was written as text."""
        topic, _, rest = text.rpartition("/")
        partition, _, offset = rest.partition("@")
        return cls(topic, int(partition), int(offset))

    def __str__(self) -> str:
        """Write it as reports name it, `groundwire.claims/0@17`."""
        return f"{self.topic}/{self.partition}@{self.offset}"


class OffsetRange(NamedTuple):
    """A part of a partition: the offsets from `start` up to `end`, without it."""

    topic: str
    partition: int
    start: int
    end: int


class Misfit(NamedTuple):
    """A published record that is wrong in itself: where it stands, its id, and what is wrong.

    `other`: another decision was published under its id before, and these fields are not the same.
    """

    where: str
    name: str | None
    fields: tuple[str, ...]
    other: bool


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Open a database in autocommit mode, with a cache of 64 MiB. Raises: sqlite3.Error."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    database.executescript(schema)
    return database


class RevisionStore:
    """What brought each revision from 2 on about: people's decisions rest on it beside their first record.

    Where a user was erased, revisions and ids begin anew: what was decided before and after is held apart by its time.

    Args:
        database: where it is kept; the caller's transactions are used.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(_REVISIONS)

    def note_erasure(self, erasure: Erasure) -> None:
        """Keep what a tombstone tells, before the decisions that it stands between."""
        row = _owner(erasure.tenant_id, erasure.user_id), to_microseconds(erasure.until)
        self._database.execute("INSERT OR IGNORE INTO erased VALUES (?, ?)", row)

    def note_decision(self, value: bytes) -> None:
        """Keep what a decision tells; one that rests on its first record alone is skipped, and what is no decision."""
        if _FIRST_REVISION.match(value):
            return
        decision = parse_decision(value)
        if decision and decision.revision > 1 and not beyond_numbers(decision):
            row = (
                *(self._life(decision), decision.revision, decision.origin.sha256),
                *(format_time(decision.facts.clock), decision.facts.review is not None),
                *RecordPlace.of(decision.origin),
            )
            self._database.execute("INSERT OR IGNORE INTO revisions VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def revision(self, decision: Decision, number: int) -> InputRevision | None:
        """Return what brought a revision of a decision's subject about, from 2 on; None where no decision tells it."""
        query = "SELECT sha, clock, people FROM revisions WHERE subject = ? AND revision = ?"
        row = self._row(query, self._life(decision), number)
        return InputRevision(row[0], parse_time(row[1]), bool(row[2])) if row else None

    def places(self, decision: Decision) -> list[RecordPlace]:
        """Return where the records stand that brought the revisions before a decision about, from 2 on."""
        query = "SELECT topic, part, at FROM revisions WHERE subject = ? AND revision < ?"
        values = self._life(decision), decision.revision
        return [RecordPlace(*row) for row in self._database.execute(query, values)]

    def _life(self, decision: Decision) -> bytes:
        """Return what the decisions of a subject between two erasures of its user have in common, and no others."""
        query = "SELECT max(until) FROM erased WHERE owner = ? AND until < ?"
        owner = _owner(decision.tenant_id, decision.user_id)
        (until,) = self._row(query, owner, to_microseconds(decision.decided_at))
        return subject_of_decision(decision).digest + (b"" if until is None else str(until).encode())

    def _row(self, query: str, *values: object) -> Any:  # noqa: ANN401 - a row, or None
        return self._database.execute(query, values).fetchone()


class RecordStore(RevisionStore):
    """Records and decisions that were read from topics.

    Args:
        database: where they are kept; the caller's transactions are used.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        super().__init__(database)
        database.executescript(_RECORDS)
        self._turns: dict[tuple[str, int], int] = {}

    def next_of(self, offsets: OffsetRange) -> int:
        """Return the offset at which reading continues."""
        row = self._row("SELECT next FROM read_to WHERE topic = ? AND part = ?", *offsets[:2])
        return max(offsets.start, row[0]) if row else offsets.start

    def set_next(self, offsets: OffsetRange, offset: int) -> None:
        """Note the offset at which reading continues."""
        self._database.execute("REPLACE INTO read_to VALUES (?, ?, ?)", (*offsets[:2], offset))

    def add_record(self, record: InboundRecord, *, inside: bool) -> None:
        """Keep an input record; `inside` where it is one of those that are replayed."""
        trace = next((value for key, value in record.headers if key == TRACEPARENT), None)
        row = (
            *(record.topic, record.partition, record.offset, record.timestamp),
            *(_hash_key(record.sha256), record.key, record.value, trace),
            self._turn(record) if inside else None,
        )
        self._database.execute("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        signature = header(record.headers, ATTESTATION)
        if signature:
            signed = *RecordPlace.of(record), signature[:_LONGEST_SIGNATURE]
            self._database.execute("INSERT OR IGNORE INTO signed VALUES (?, ?, ?, ?)", signed)

    def signature(self, place: RecordPlace) -> str | None:
        """Return the header `gw-attestation` of the record at a place, or None."""
        query = "SELECT header FROM signed WHERE topic = ? AND part = ? AND at = ?"
        row = self._row(query, *place)
        return row[0] if row else None

    def _turn(self, record: InboundRecord) -> int:
        """Return when a record is replayed: at its time, but never before those that stand before it."""
        query = "SELECT max(turn) FROM records WHERE topic = ? AND part = ? AND turn IS NOT NULL"
        key = record.topic or "", record.partition
        if key not in self._turns:
            (last,) = self._row(query, *key)
            self._turns[key] = record.timestamp if last is None else last
        self._turns[key] = max(self._turns[key], record.timestamp)
        return self._turns[key]

    def forget_records(self) -> None:
        """Forget the records, where they are read a page at a time."""
        self._database.execute("DELETE FROM records")

    def add_decision(
        self, published: InboundRecord, *, inside: Mapping[tuple[str, int], OffsetRange], everything: bool
    ) -> None:
        """Keep a decision of a record that is replayed; of others only that there is one, or `everything`."""
        value = published.value or b""
        decision = parse_decision(value)
        if decision is None:
            self._note_misfit(published, None, ["$"])
            return
        if beyond := beyond_numbers(decision):
            self._note_misfit(published, decision.decision_id, beyond)
            return
        if fields := _misfits(published, decision):
            self._note_misfit(published, decision.decision_id, fields)
        origin = decision.origin
        offsets = inside.get((origin.topic or "", origin.partition))
        within = offsets is not None and offsets.start <= origin.offset < offsets.end
        self._database.execute(
            "INSERT OR IGNORE INTO subjects VALUES (?)", (subject_of_decision(decision).digest,)
        )
        if within or everything or decision.subject_origin:
            self.note_decision(value)
            self._keep(published, decision, within=within)

    def _keep(self, published: InboundRecord, decision: Decision, *, within: bool) -> None:
        name, at = decision.decision_id, str(RecordPlace.of(published))
        again = "UPDATE decisions SET published = ? WHERE id = ? AND value = ?"
        if self._database.execute(again, (at, name, published.value)).rowcount:
            return
        first = next((one for one in self._named(name) if self._life(one) == self._life(decision)), None)
        fields = _contradictions(first, decision) if first else []
        if fields:
            self._note_misfit(published, name, fields, other=True)
            self._database.execute("INSERT OR IGNORE INTO contradicted VALUES (?)", (name,))
        row = *RecordPlace.of(decision.origin), decision.revision, name, published.value, within, at
        insert = "INSERT OR IGNORE INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        if not self._database.execute(insert, row).rowcount and not fields:
            variant = "INSERT OR REPLACE INTO variants VALUES (?, ?)"
            self._database.execute(variant, (published.value, at))

    def _named(self, name: str) -> Iterator[Decision]:
        query = "SELECT value FROM decisions WHERE id = ? ORDER BY rowid"
        return (Decision.model_validate_json(value) for (value,) in self._database.execute(query, (name,)))

    def _note_misfit(
        self, published: InboundRecord, name: str | None, fields: Sequence[str], *, other: bool = False
    ) -> None:
        row = str(RecordPlace.of(published)), name, json.dumps(list(fields)), other
        self._database.execute("INSERT OR IGNORE INTO misfits VALUES (?, ?, ?, ?)", row)

    def add_end(self, name: str) -> None:
        """Note that a record ended without a decision: its place as text, or the id of its audit event."""
        self._database.execute("INSERT OR IGNORE INTO ended VALUES (?)", (name,))

    def missing_places(self) -> list[RecordPlace]:
        """Return where records stand that decisions inside rest on, and that were not read with the ranges."""
        places: set[RecordPlace] = set()
        query = "SELECT value FROM decisions WHERE inside AND revision > 1"
        for (value,) in self._database.execute(query):
            decision = Decision.model_validate_json(value)
            if decision.subject_origin is not None:
                places.add(RecordPlace.of(decision.subject_origin))
            places.update(self._between(decision))
        return sorted(place for place in places if not self.has_record(place))

    def _between(self, decision: Decision) -> Iterator[RecordPlace]:
        """Return the origins of the revisions between a decision and its subject's first record."""
        later, name = decision.revision, decision.supersedes
        while name is not None:
            row = self._row("SELECT value FROM decisions WHERE id = ?", name)
            before = Decision.model_validate_json(row[0]) if row else None
            if before is None or before.revision >= later:  # a forged one may name itself
                return
            yield RecordPlace.of(before.origin)
            later, name = before.revision, before.supersedes

    def has_record(self, place: RecordPlace, until: datetime | None = None) -> bool:
        """Say whether the record at a place was read, and is no later than a time."""
        query = "SELECT time FROM records WHERE topic = ? AND part = ? AND at = ?"
        row = self._row(query, *place)
        return row is not None and (until is None or row[0] <= to_milliseconds(until))

    def has_origin(self, origin: Origin) -> bool:
        """Say whether a record stands where a decision says, with that time and those bytes."""
        query = "SELECT time, sha FROM records WHERE topic = ? AND part = ? AND at = ?"
        row = self._row(query, *RecordPlace.of(origin))
        named = origin.timestamp, _hash_key(origin.sha256)
        return row is not None and (from_milliseconds(row[0]), row[1]) == named

    def count(self) -> int:
        """Return how many records are replayed."""
        (count,) = self._row("SELECT count(*) FROM records WHERE turn IS NOT NULL")
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
        page = []
        for row in self._database.execute(query, (*(after or ()), size)):
            topic, part, at, time, key, value, trace, turn = row
            headers = ((TRACEPARENT, trace),) if trace is not None else ()
            mark = [turn, topic, part, at] if by_turn else [topic, part, at]
            page.append((InboundRecord(topic, part, at, time, key, value, headers), mark))
        return page

    def decisions_of(self, record: InboundRecord) -> list[bytes]:
        """Return the decisions that a record brought about, lowest revision first."""
        query = "SELECT value FROM decisions WHERE topic = ? AND part = ? AND at = ? ORDER BY revision, id"
        return [value for (value,) in self._database.execute(query, RecordPlace.of(record))]

    def decisions(self) -> Iterator[tuple[str, bytes]]:
        """Yield every decision that was kept, in each way that it was written, after the place where it stands last."""
        yield from self._database.execute("SELECT published, value FROM decisions ORDER BY rowid")
        yield from self._database.execute("SELECT published, value FROM variants ORDER BY rowid")

    def decisions_before(self, ranges: Iterable[OffsetRange]) -> Iterator[bytes]:
        """Yield decisions of records that stand before the ranges, lowest revision first."""
        starts = {each[:2]: each.start for each in ranges}
        query = "SELECT topic, part, at, value FROM decisions WHERE NOT inside ORDER BY revision"
        for topic, part, at, value in self._database.execute(query):
            if at < starts.get((topic, part), 0):
                yield value

    def count_decisions(self) -> int:
        """Return how many `decisions` yields."""
        (count,) = self._row("SELECT (SELECT count(*) FROM decisions) + (SELECT count(*) FROM variants)")
        return int(count)

    def misfits(self) -> Iterator[Misfit]:
        """Yield published records that do not fit their decisions, or another one under the same id."""
        query = "SELECT place, id, fields, other FROM misfits ORDER BY place, fields"
        for place, name, fields, other in self._database.execute(query):
            yield Misfit(place, name, tuple(json.loads(fields)), bool(other))

    def is_contradicted(self, name: str) -> bool:
        """Say whether another decision was published under the same id."""
        return self._row("SELECT 1 FROM contradicted WHERE id = ?", name) is not None

    def is_decided(self, subject: Subject) -> bool:
        """Say whether there is any decision of a subject."""
        return self._row("SELECT 1 FROM subjects WHERE subject = ?", subject.digest) is not None

    def has_ended(self, name: str) -> bool:
        """Say whether a record ended without a decision; see `add_end`."""
        return self._row("SELECT 1 FROM ended WHERE name = ?", name) is not None

    def value(self, sha256: str) -> bytes | None:
        """Return the value with this hash, or None."""
        row = self._row("SELECT value FROM records WHERE sha = ?", _hash_key(sha256))
        return row[0] if row else None


class FileRecords(RevisionStore):
    """Records of a file, one value a line; memory holds none of them, however large the file is.

    Args:
        records: one input value a line, unchanged bytes.
        decisions: one Decision a line; what brought revisions from 2 on about is noted.

    Raises:
        UsageError: a file cannot be read.
    """

    def __init__(self, records: Path, decisions: Path) -> None:
        self._folder = TemporaryDirectory(prefix="groundwire-verify-")
        # the index is not read after a crash
        schema = f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {_FILE}"
        super().__init__(open_database(Path(self._folder.name) / "index", schema))
        try:
            self._records = _open(records)
            self._note_records()
            with _open(decisions) as file:
                for line in file:
                    self.note_decision(line)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Use it until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Release the file and remove the index."""
        self._database.close()
        self._folder.cleanup()
        if hasattr(self, "_records"):
            self._records.close()

    def value(self, sha256: str) -> bytes | None:
        """Return the value with this hash, or None."""
        row = self._row("SELECT at, size FROM records WHERE sha = ?", _hash_key(sha256))
        if row is None:
            return None
        self._records.seek(row[0])
        return self._records.read(row[1])

    def is_first(self, value: bytes) -> bool:
        """Say whether a decision is the first that was passed under its id, or the same; as values, not bytes."""
        decision = Decision.model_validate_json(value)
        row = decision.decision_id, _hash_key(sha256_hex(decision.to_bytes()))
        self._database.execute("INSERT OR IGNORE INTO decided VALUES (?, ?)", row)
        return self._row("SELECT 1 FROM decided WHERE id = ? AND sha = ?", *row) is not None

    def _note_records(self) -> None:
        rows: list[tuple[bytes, int, int]] = []
        self._database.execute("BEGIN")
        at = 0
        for line in self._records:
            ended, value = line.removesuffix(b"\n"), line.rstrip(b"\r\n")
            rows += [(_hash_key(sha256_hex(each)), at, len(each)) for each in {ended, value} if each]
            at += len(line)
            if len(rows) >= _BATCH:
                self._insert(rows)
                rows = []
        self._insert(rows)
        self._database.execute("COMMIT")

    def _insert(self, rows: list[tuple[bytes, int, int]]) -> None:
        self._database.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?)", rows)


def decision_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (number, value) of each line that is not blank; numbers count from 1. Raises: UsageError."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            value = line.rstrip(b"\r\n")
            if value.strip():
                yield number, value


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as exc:
        raise UsageError(f"{path}: {exc.strerror}") from None


def _owner(tenant_id: str, user_id: str) -> str:
    return record_key(tenant_id, user_id).decode()


def _hash_key(sha256: str) -> bytes:
    """Return the key of a hash; one that is not written as hashes are finds nothing."""
    return bytes.fromhex(sha256) if _SHA256.fullmatch(sha256) else b""


def _misfits(published: InboundRecord, decision: Decision) -> list[str]:
    """Return what of a published record does not fit the decision in it: its topic, key, or an event's header."""
    headers = {
        "ce_id": decision.decision_id,
        "ce_time": format_time(decision.decided_at),
        "ce_subject": decision.subject_id,
    }
    wrong = [f"header {name}" for name, text in headers.items() if header(published.headers, name) != text]
    if published.key != record_key(decision.tenant_id, decision.user_id):
        wrong.append("key")
    if not (published.topic or "").endswith(TopicName.of(decision.verdict)):
        wrong.append("topic")
    return wrong


def _contradictions(kept: Decision, again: Decision) -> list[str]:
    """Return the fields in which a decision that was published again, with other bytes, is another one.

    One engine writes a decision in one way. What one engine decided another may write otherwise; that says the same.
    """
    if kept.engine == again.engine == __version__:
        return ["$"]
    return [f"$.{name}" for name in _STABLE_FIELDS if getattr(kept, name) != getattr(again, name)]
