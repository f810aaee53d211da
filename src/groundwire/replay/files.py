"""Records and decisions in files: where each record stands, by hash, in an index on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import BinaryIO, Final, Self

from groundwire.errors import UsageError
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Decision
from groundwire.replay.notes import Notes, hash_key
from groundwire.replay.verify import Finding, Placed, Status, Verifier

_CACHE_KIB: Final = 65_536
_BATCH: Final = 5_000
_SCHEMA: Final = """
CREATE TABLE records (sha BLOB PRIMARY KEY, at INTEGER, size INTEGER) WITHOUT ROWID;
CREATE TABLE decided (id TEXT PRIMARY KEY, sha BLOB) WITHOUT ROWID;
"""


class FileRecords:
    """Records of a file, one value a line; memory holds none of them, however large the file is.

    Args:
        records: one input value a line, unchanged bytes.
        decisions: one Decision a line; what brought revisions from 2 on about is noted.

    Raises:
        UsageError: a file cannot be read.
    """

    def __init__(self, records: Path, decisions: Path) -> None:
        self._folder = TemporaryDirectory(prefix="groundwire-verify-")
        self._index = sqlite3.connect(Path(self._folder.name) / "index", isolation_level=None)
        try:
            self._index.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            self._index.execute("PRAGMA journal_mode = OFF")
            self._index.execute("PRAGMA synchronous = OFF")  # nobody reads it after a crash
            self._index.executescript(_SCHEMA)
            self._notes = Notes(self._index)
            self.revision = self._notes.revision
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
        row = self._index.execute(
            "SELECT at, size FROM records WHERE sha = ?", (hash_key(sha256),)
        ).fetchone()
        if row is None:
            return None
        self._records.seek(row[0])
        return self._records.read(row[1])

    def is_first(self, value: bytes) -> bool:
        """Say whether a decision is the first that was asked about under its id, or the same; as values, not bytes."""
        decision = Decision.model_validate_json(value)
        row = decision.decision_id, hash_key(sha256_hex(decision.to_bytes()))
        self._index.execute("INSERT OR IGNORE INTO decided VALUES (?, ?)", row)
        query = "SELECT 1 FROM decided WHERE id = ? AND sha = ?"
        return self._index.execute(query, row).fetchone() is not None

    def _note_records(self) -> None:
        rows: list[tuple[bytes, int, int]] = []
        self._index.execute("BEGIN")
        at = 0
        for line in self._records:
            ended, value = line.removesuffix(b"\n"), line.rstrip(b"\r\n")
            rows += [(hash_key(sha256_hex(each)), at, len(each)) for each in {ended, value} if each]
            at += len(line)
            if len(rows) >= _BATCH:
                self._insert(rows)
                rows = []
        self._insert(rows)
        self._index.execute("COMMIT")

    def _insert(self, rows: list[tuple[bytes, int, int]]) -> None:
        self._index.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?)", rows)

    def _note_decisions(self, path: Path) -> None:
        with _open(path) as file:
            for line in file:
                self._notes.note_decision(line)


async def verify_files(found: FileRecords, verifier: Verifier, path: Path) -> AsyncGenerator[Placed, None]:
    """Verify the decisions of a file; yields one finding for each.

    Args:
        found: what the decisions rest on.
        verifier: derives them again from that.
        path: of the decisions.

    Raises:
        UsageError: the file cannot be read.
    """
    for number, value in decision_lines(path):
        finding = await verifier.verify(value)
        if finding.status is Status.EQUAL and not found.is_first(value):
            detail = "another decision stands under this id"
            finding = Finding(Status.DIFFERS, finding.decision_id, ("$",), detail)
        yield Placed(f"line {number}", finding)


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
