"""Records and decisions in files: where each record stands, by hash, in an index on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import BinaryIO, Final, Self

from pydantic import ValidationError

from groundwire.errors import RecordError, UsageError
from groundwire.messages.base import format_time, parse_time, sha256_hex
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.identity import Subject
from groundwire.replay.inputs import DecidedAgain, subject_of

_CACHE_KIB: Final = 65_536
_BATCH: Final = 5_000
_SCHEMA: Final = """
CREATE TABLE records (sha BLOB PRIMARY KEY, at INTEGER, size INTEGER) WITHOUT ROWID;
CREATE TABLE edits (subject BLOB, revision INTEGER, content TEXT);
CREATE TABLE again (subject BLOB, revision INTEGER, sha TEXT, clock TEXT);
CREATE INDEX edits_of ON edits (subject, revision);
CREATE INDEX again_of ON again (subject, revision);
"""


class FileRecords:
    """Records of a file, one value a line; memory holds none of them, however large the file is.

    Args:
        records: one input value a line, unchanged bytes.
        decisions: one Decision a line; those decided on a later record than their first are noted.

    Raises:
        UsageError: a file cannot be read.
    """

    def __init__(self, records: Path, decisions: Path) -> None:
        self._folder = TemporaryDirectory(prefix="groundwire-verify-")
        self._index = sqlite3.connect(Path(self._folder.name) / "index", isolation_level=None)
        try:
            self._index.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._index.execute("PRAGMA journal_mode = OFF")
            self._index.executescript(_SCHEMA)
            self._records = _open(records)
            self._note_records()
            self._note_decisions(decisions)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        """Use it until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Let go of file and index."""
        self._index.close()
        self._folder.cleanup()
        if hasattr(self, "_records"):
            self._records.close()

    def value(self, sha256: str) -> bytes | None:
        """Return the value with this hash, or None."""
        row = self._index.execute("SELECT at, size FROM records WHERE sha = ?", (_key(sha256),)).fetchone()
        if row is None:
            return None
        self._records.seek(row[0])
        return self._records.read(row[1])

    def edits(self, subject: Subject, revision: int) -> Sequence[str]:
        """Return the texts by which reviewers wanted to replace that of a subject at a revision."""
        query = "SELECT content FROM edits WHERE subject = ? AND revision = ?"
        return [content for (content,) in self._index.execute(query, (subject.digest, revision))]

    def decided_again(self, subject: Subject, revision: int) -> DecidedAgain | None:
        """Return the latest revision from 2 to `revision` that the gate itself decided, where it is known."""
        query = (
            "SELECT sha, clock FROM again WHERE subject = ? AND revision <= ? ORDER BY revision DESC LIMIT 1"
        )
        row = self._index.execute(query, (subject.digest, revision)).fetchone()
        return DecidedAgain(row[0], parse_time(row[1])) if row else None

    def _note_records(self) -> None:
        rows: list[tuple[bytes, int, int]] = []
        self._index.execute("BEGIN")
        at = 0
        for line in self._records:
            ended, value = line.removesuffix(b"\n"), line.rstrip(b"\r\n")
            rows += [(_key(sha256_hex(each)), at, len(each)) for each in {ended, value} if each]
            at += len(line)
            if b'"edit"' in value:
                self._note_edit(value)
            if len(rows) >= _BATCH:
                self._insert(rows)
                rows = []
        self._insert(rows)
        self._index.execute("COMMIT")

    def _insert(self, rows: list[tuple[bytes, int, int]]) -> None:
        self._index.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?)", rows)

    def _note_edit(self, value: bytes) -> None:
        try:
            review = decode_review_decision(value)
        except RecordError:
            return
        if review.content is not None:
            subject = Subject(review.tenant_id, review.user_id, Kind(review.kind), review.subject_id)
            row = subject.digest, review.expected_revision, review.content
            self._index.execute("INSERT INTO edits VALUES (?, ?, ?)", row)

    def _note_decisions(self, path: Path) -> None:
        with _open(path) as file:
            for line in file:
                if b'"subject_origin":null' not in line:
                    self._note_again(line)

    def _note_again(self, line: bytes) -> None:
        try:
            decision = Decision.model_validate_json(line)
        except ValidationError:
            return
        if decision.revision > 1 and decision.facts.review is None:
            row = (
                subject_of(decision).digest,
                decision.revision,
                decision.origin.sha256,
                format_time(decision.facts.clock),
            )
            self._index.execute("INSERT INTO again VALUES (?, ?, ?, ?)", row)


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


def _key(sha256: str) -> bytes:
    """Return the key of a hash; one that is no hash finds nothing."""
    try:
        return bytes.fromhex(sha256)
    except ValueError:
        return b""
