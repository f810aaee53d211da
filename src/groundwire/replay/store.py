"""Records by place, id and hash on disk, and views of them: input records with their decisions, and job files.

A replay reads everything from the topics first and asks no service after that: it can resume after an interruption,
holds one page of records in memory, and gives the same result each time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

from groundwire import __version__
from groundwire.errors import UsageError, naming
from groundwire.kafka.reader import OffsetRange, RecordPlace
from groundwire.kafka.store import MEMORY, SCRATCH, Store
from groundwire.messages.base import (
    format_time,
    from_milliseconds,
    parse_time,
    sha256_hex,
    to_microseconds,
    to_milliseconds,
)
from groundwire.messages.decisions import AuditEvent, Decision, Origin
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import ATTESTATION, InboundRecord, header, misfitting, passed
from groundwire.messages.identity import subject_of_decision
from groundwire.messages.topics import TopicName, record_key
from groundwire.replay.inputs import InputRevision, beyond_numbers

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts_of_job (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS simulated (id TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, before BLOB, after BLOB, fields TEXT, verdict INTEGER);
CREATE TABLE IF NOT EXISTS erased (owner TEXT, until INTEGER, PRIMARY KEY (owner, until)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revisions (
  subject BLOB, revision INTEGER, sha TEXT, clock TEXT, people INTEGER, topic TEXT, part INTEGER, at INTEGER,
  PRIMARY KEY (subject, revision)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS read_to (topic TEXT, part INTEGER, next INTEGER, PRIMARY KEY (topic, part)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
  topic TEXT, part INTEGER, at INTEGER, time INTEGER, sha BLOB, key BLOB, value BLOB, trace TEXT, signature TEXT,
  turn INTEGER, UNIQUE (topic, part, at)
);
CREATE INDEX IF NOT EXISTS by_hash ON records (sha);
CREATE INDEX IF NOT EXISTS by_turn ON records (turn, topic, part, at) WHERE turn IS NOT NULL;
CREATE INDEX IF NOT EXISTS by_place ON records (topic, part, at) WHERE turn IS NOT NULL;
CREATE TABLE IF NOT EXISTS decisions (
  topic TEXT, part INTEGER, at INTEGER, revision INTEGER, id TEXT, variant INTEGER, value BLOB, inside INTEGER,
  published TEXT, UNIQUE (topic, part, at, revision, id, variant)
);
CREATE INDEX IF NOT EXISTS by_id ON decisions (id);
CREATE TABLE IF NOT EXISTS decided (id TEXT PRIMARY KEY, sha BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks (kind TEXT, name, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS misfits (place TEXT, id TEXT, fields TEXT, other INTEGER, UNIQUE (place, fields));
CREATE TABLE IF NOT EXISTS lines (sha BLOB PRIMARY KEY, at INTEGER, size INTEGER) WITHOUT ROWID;
"""

Mark = Literal["contradicted", "decided", "ended", "lost"]
"""What is known under a name.

A decision's id: another was published under it too; the digest of a subject: it has a decision; a record's position as
text, or the id of its audit event: it ended without one; a time and offsets: records were lost.
"""


class Misfit(NamedTuple):
    """A published record that does not match its decision, and the wrong fields.

    `other`: another decision was published under its id before, and these fields differ.
    """

    where: str
    name: str | None
    fields: tuple[str, ...]
    other: bool


_FIRST_REVISION: Final = re.compile(rb'\{"decision_id":"[0-9a-f-]{36}","revision":[01],')
"""Begins every decision, as the gate writes it, that rests on its first record alone."""

_STABLE_FIELDS: Final = (
    *("revision", "tenant_id", "user_id", "kind", "subject_id", "fingerprint", "origin", "subject_origin"),
    *("verdict", "approved", "tier", "reason_code", "evidence", "facts", "decided_at"),
)
"""Fields of a decision that every engine writes alike."""

_LONGEST_SIGNATURE: Final = 300
"""Characters of a header that may hold a signature: a key's id, a colon and 128 digits."""


class RecordStore(Store):
    """Input records, the decisions on them, and what these rest on.

    Revisions and ids restart after an erasure: decisions before and after it are kept apart by their time.
    """

    def __init__(self, path: Path | str = MEMORY, *, durable: bool = False) -> None:
        super().__init__(path, durable=durable)
        self.script(_SCHEMA)
        self._turns: dict[tuple[str, int], int] = {}

    def note_erasure(self, erasure: Erasure) -> None:
        """Keep a tombstone; call it before the decisions around it are added."""
        owner = record_key(erasure.tenant_id, erasure.user_id).decode()
        self.put("erased", owner, to_microseconds(erasure.until))

    def note_decision(self, value: bytes) -> None:
        """Keep the record reference of a revision from 2 on; other values are skipped."""
        if _FIRST_REVISION.match(value):
            return
        decision = Decision.try_parse(value)
        if decision and decision.revision > 1 and not beyond_numbers(decision):
            self.put(
                "revisions",
                *(self._life(decision), decision.revision, decision.origin.sha256),
                *(format_time(decision.facts.clock), decision.facts.review is not None),
                *RecordPlace.of(decision.origin),
            )

    def revision(self, decision: Decision, number: int) -> InputRevision | None:
        """Return the record behind a revision from 2 on; None where no decision names it."""
        query = "SELECT sha, clock, people FROM revisions WHERE subject = ? AND revision = ?"
        row = self.row(query, self._life(decision), number)
        return InputRevision(row[0], parse_time(row[1]), bool(row[2])) if row else None

    def places(self, decision: Decision) -> set[RecordPlace]:
        """Return the positions of the records behind earlier revisions."""
        if decision.subject_origin is None:
            return set()
        query = "SELECT topic, part, at FROM revisions WHERE subject = ? AND revision < ?"
        later = self.rows(query, self._life(decision), decision.revision)
        return {RecordPlace.of(decision.subject_origin), *(RecordPlace(*row) for row in later)}

    def _life(self, decision: Decision) -> bytes:
        """Return a key shared by the decisions of a subject between two erasures of its user."""
        query = "SELECT max(until) FROM erased WHERE owner = ? AND until < ?"
        owner = record_key(decision.tenant_id, decision.user_id).decode()
        (until,) = self.row(query, owner, to_microseconds(decision.decided_at))
        return subject_of_decision(decision).digest + (b"" if until is None else str(until).encode())

    def next_of(self, offsets: OffsetRange) -> int:
        row = self.row("SELECT next FROM read_to WHERE topic = ? AND part = ?", *offsets[:2])
        return max(offsets.start, row[0]) if row else offsets.start

    def set_next(self, offsets: OffsetRange, offset: int) -> None:
        self.replace("read_to", *offsets[:2], offset)

    def add_record(self, record: InboundRecord, *, inside: bool) -> None:
        """Keep an input record; `inside`: it is replayed."""
        turn = None
        if inside:  # replayed at its time, but never before those that stand before it
            key = record.topic or "", record.partition
            if key not in self._turns:
                query = "SELECT max(turn) FROM records WHERE topic = ? AND part = ? AND turn IS NOT NULL"
                (last,) = self.row(query, *key)
                self._turns[key] = record.timestamp if last is None else last
            turn = self._turns[key] = max(self._turns[key], record.timestamp)
        trace = json.dumps([(key, value.hex()) for key, value in passed(record.headers) if value])
        signature = (header(record.headers, ATTESTATION) or "")[:_LONGEST_SIGNATURE] or None
        sha, *held = _hash_key(record.sha256), record.key, record.value, trace, signature, turn
        self.put("records", *RecordPlace.of(record), record.timestamp, sha, *held)

    def mark(self, kind: Mark, name: str | bytes) -> None:
        self.put("marks", kind, name)

    def marked(self, kind: Mark, name: str | bytes) -> bool:
        return self.row("SELECT 1 FROM marks WHERE kind = ? AND name = ?", kind, name) is not None

    def forget_records(self) -> None:
        self.rows("DELETE FROM records")

    def add_decision(
        self, published: InboundRecord, *, inside: Mapping[tuple[str, int], OffsetRange], everything: bool
    ) -> None:
        """Keep a decision of a replayed record; of others only that it exists, or `everything`."""
        value = published.value or b""
        decision = Decision.try_parse(value)
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
        self.mark("decided", subject_of_decision(decision).digest)
        if within or everything or decision.subject_origin:
            self.note_decision(value)
            self._keep(published, decision, within=within)

    def _keep(self, published: InboundRecord, decision: Decision, *, within: bool) -> None:
        name, at = decision.decision_id, str(RecordPlace.of(published))
        again = "UPDATE decisions SET published = ? WHERE id = ? AND value = ?"
        if self.rows(again, at, name, published.value).rowcount:
            return
        values = self.rows("SELECT value FROM decisions WHERE id = ? ORDER BY rowid", name)
        named = (Decision.model_validate_json(value) for (value,) in values)
        first = next((one for one in named if self._life(one) == self._life(decision)), None)
        fields: list[str] = []
        # one engine writes a decision in one way
        if first and first.engine == decision.engine == __version__:
            fields = ["$"]
        elif first:
            fields = [
                f"$.{each}" for each in _STABLE_FIELDS if getattr(first, each) != getattr(decision, each)
            ]
        if fields:
            self._note_misfit(published, name, fields, other=True)
            self.mark("contradicted", name)
        key = *RecordPlace.of(decision.origin), decision.revision, name
        query = "SELECT count(*) FROM decisions WHERE (topic, part, at, revision, id) = (?, ?, ?, ?, ?)"
        (variant,) = self.row(query, *key)
        if not (variant and fields):
            self.put("decisions", *key, variant, published.value, within, at)

    def _note_misfit(
        self, published: InboundRecord, name: str | None, fields: Sequence[str], *, other: bool = False
    ) -> None:
        self.put("misfits", str(RecordPlace.of(published)), name, json.dumps(list(fields)), other)

    def note_event(self, value: bytes | None) -> None:
        """Note the end of an action, or lost records, of an event of `audit`; other values are skipped."""
        event = AuditEvent.of_type(value, "refused_action", "review_action", "records_lost")
        if event is None:
            return
        if event.type != "records_lost":
            self.mark("ended", event.event_id)
            return
        match event.detail:
            case {"topic": str(topic), "partition": int(number), "first": int(first), "end": int(end)}:
                self.mark("lost", f"{to_milliseconds(event.at)} {end} {RecordPlace(topic, number, first)}")

    def lost(self) -> Iterator[tuple[int, OffsetRange]]:
        """Yield the offsets that retention deleted before a worker read them, and when one noted it."""
        for (name,) in self.rows("SELECT name FROM marks WHERE kind = 'lost' ORDER BY name"):
            at, end, where = name.split(" ", 2)
            place = RecordPlace.parse(where)
            yield int(at), OffsetRange(*place, int(end))

    def missing_places(self) -> list[RecordPlace]:
        """Return the positions that replayed decisions rest on and that were not read yet."""
        places: set[RecordPlace] = set()
        for (value,) in self.rows("SELECT value FROM decisions WHERE inside AND revision > 1"):
            places |= self.places(Decision.model_validate_json(value))
        return sorted(place for place in places if not self.has_record(place))

    def has_record(self, place: RecordPlace, until: datetime | None = None) -> bool:
        """Say whether the record at a position was read, and is no later than a time."""
        row = self._at(place)
        return row is not None and (until is None or row[0] <= to_milliseconds(until))

    def has_origin(self, origin: Origin) -> bool:
        """Say whether the record at an origin has its timestamp and hash."""
        row = self._at(RecordPlace.of(origin))
        named = origin.timestamp, _hash_key(origin.sha256)
        return row is not None and (from_milliseconds(row[0]), row[1]) == named

    def signature(self, place: RecordPlace) -> str | None:
        row = self._at(place)
        return row[2] if row else None

    def _at(self, place: RecordPlace) -> tuple[int, bytes, str | None] | None:
        query = "SELECT time, sha, signature FROM records WHERE topic = ? AND part = ? AND at = ?"
        row: tuple[int, bytes, str | None] | None = self.row(query, *place)
        return row

    def count(self) -> int:
        return int(self.row("SELECT count(*) FROM records WHERE turn IS NOT NULL")[0])

    def page(
        self, after: Sequence[Any] | None, size: int, *, by_turn: bool
    ) -> list[tuple[InboundRecord, list[Any]]]:
        """Return the next replayed records with the mark that continues behind each: by partition, or by time."""
        order = "turn, topic, part, at" if by_turn else "topic, part, at"
        marks = ", ".join("?" * (4 if by_turn else 3))
        where = f"AND ({order}) > ({marks})" if after is not None else ""
        query = (
            "SELECT topic, part, at, time, key, value, trace, turn FROM records"  # noqa: S608 - our own words only
            f" WHERE turn IS NOT NULL {where} ORDER BY {order} LIMIT ?"
        )
        page = []
        for topic, part, at, time, key, value, trace, turn in self.rows(query, *(after or ()), size):
            headers = tuple((name, bytes.fromhex(value)) for name, value in json.loads(trace))
            mark = [turn, topic, part, at] if by_turn else [topic, part, at]
            page.append((InboundRecord(topic, part, at, time, key, value, headers), mark))
        return page

    def decisions_of(self, record: InboundRecord) -> list[bytes]:
        """Return the decisions of a record, lowest revision first."""
        query = "SELECT value FROM decisions WHERE topic = ? AND part = ? AND at = ? AND variant = 0"
        return [value for (value,) in self.rows(f"{query} ORDER BY revision, id", *RecordPlace.of(record))]

    def decisions(self) -> Iterator[tuple[str, bytes]]:
        """Yield all decisions, in each form that was published, with the last position of each."""
        yield from self.rows("SELECT published, value FROM decisions ORDER BY rowid")

    def decisions_before(self, ranges: Iterable[OffsetRange]) -> Iterator[bytes]:
        """Yield decisions of records before the ranges, lowest revision first."""
        starts = {each[:2]: each.start for each in ranges}
        query = (
            "SELECT topic, part, at, value FROM decisions WHERE NOT inside AND variant = 0 ORDER BY revision"
        )
        for topic, part, at, value in self.rows(query):
            if at < starts.get((topic, part), 0):
                yield value

    def count_decisions(self) -> int:
        return int(self.row("SELECT count(*) FROM decisions")[0])

    def misfits(self) -> Iterator[Misfit]:
        query = "SELECT place, id, fields, other FROM misfits ORDER BY place, fields"
        for place, name, fields, other in self.rows(query):
            yield Misfit(place, name, tuple(json.loads(fields)), bool(other))

    def value(self, sha256: str) -> bytes | None:
        row = self.row("SELECT value FROM records WHERE sha = ?", _hash_key(sha256))
        return row[0] if row else None


@dataclass(frozen=True, slots=True)
class ReplayOrder:
    """The options of a replay; a job file is continued by the same order only.

    `start`, `end`, `facts_from`: as given by `--from`, `--to` and `--facts-from`; `policy`: canonical JSON, None: each
    decision's own; `engine`: another version may decide otherwise; `layout`: of the job file's tables.
    """

    name: str
    topics: Sequence[str]
    start: str
    end: str
    policy: str | None
    simulate: bool
    output: str | None
    facts_from: str = "earliest"
    engine: str = __version__
    layout: int = 7


class Job(RecordStore):
    """A job file: what was read, the progress and the results; an existing one is continued. Raises: UsageError."""

    def __init__(self, path: Path, order: ReplayOrder) -> None:
        self.order = order
        with naming("--job"):
            super().__init__(path, durable=True)
        plain = json.dumps(asdict(order))
        known = self.known("order")
        if known is None:
            self.note(order=plain)
        elif json.loads(known) != json.loads(plain):
            self.close()
            raise UsageError(f"--job: {path} is the file of another replay; take another name, or remove it")

    def known(self, name: str) -> str | None:
        row = self.row("SELECT value FROM facts_of_job WHERE name = ?", name)
        return row[0] if row else None

    def note(self, **values: str) -> None:
        for name, value in values.items():
            self.replace("facts_of_job", name, value)

    def add_change(
        self,
        number: int,
        before: bytes | None,
        after: bytes | None,
        fields: Sequence[str],
        *,
        verdict: bool = False,
    ) -> None:
        """Keep a decision that came out differently; `verdict`: with another verdict."""
        self.replace("changes", number, before, after, json.dumps(list(fields)), verdict)

    def changes(self) -> Iterator[tuple[bytes | None, bytes | None, list[str]]]:
        """Yield recorded decision, derived one and differing fields; other verdicts first."""
        query = "SELECT before, after, fields FROM changes ORDER BY verdict DESC, number"
        for before, after, fields in self.rows(query):
            yield before, after, json.loads(fields)

    def forget_results(self) -> None:
        self.rows("DELETE FROM changes")

    def forget_simulated(self) -> None:
        self.rows("DELETE FROM simulated")

    def add_simulated(self, name: str, value: bytes) -> None:
        self.replace("simulated", name, value)

    def simulated(self, name: str) -> bytes | None:
        row = self.row("SELECT value FROM simulated WHERE id = ?", name)
        return row[0] if row else None


class FileRecords(RecordStore):
    """Records and revisions from files with one value a line; none is held in memory. Raises: UsageError."""

    def __init__(self, records: Path, decisions: Path) -> None:
        self._records = _open(records)
        super().__init__(SCRATCH)
        try:
            with self.transaction(), _open(decisions) as file:
                at = 0
                for line in self._records:
                    for value in {line.removesuffix(b"\n"), line.rstrip(b"\r\n")} - {b""}:
                        self.put("lines", _hash_key(sha256_hex(value)), at, len(value))
                    at += len(line)
                for line in file:
                    self.note_decision(line)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        super().close()
        self._records.close()

    def value(self, sha256: str) -> bytes | None:
        row = self.row("SELECT at, size FROM lines WHERE sha = ?", _hash_key(sha256))
        if row is None:
            return None
        self._records.seek(row[0])
        return self._records.read(row[1])

    def is_first(self, value: bytes) -> bool:
        """Say whether a decision is the first passed under its id, or equal to it as values."""
        decision = Decision.model_validate_json(value)
        row = decision.decision_id, _hash_key(sha256_hex(decision.to_bytes()))
        self.put("decided", *row)
        return self.row("SELECT 1 FROM decided WHERE id = ? AND sha = ?", *row) is not None


def decision_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield number and value of each line that is not blank, from 1. Raises: UsageError."""
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


def _hash_key(sha256: str) -> bytes:
    """Return the key of a hash; one that is not lowercase hexadecimal finds nothing."""
    return bytes.fromhex(sha256) if re.fullmatch(r"[0-9a-f]{64}", sha256, re.ASCII) else b""


def _misfits(published: InboundRecord, decision: Decision) -> list[str]:
    headers = {
        "ce_id": decision.decision_id,
        "ce_type": decision.ce_type,
        "ce_time": format_time(decision.decided_at),
        "ce_subject": decision.subject_id,
    }
    wrong = [f"header {name}" for name in misfitting(published.headers, **headers)]
    if published.key != record_key(decision.tenant_id, decision.user_id):
        wrong.append("key")
    if not (published.topic or "").endswith(TopicName.of(decision.verdict)):
        wrong.append("topic")
    return wrong
