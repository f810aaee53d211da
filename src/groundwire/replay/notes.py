"""What people's decisions rest on beside their first record: what brought about the revisions between."""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from pydantic import ValidationError

from groundwire.messages.base import format_time, parse_time
from groundwire.messages.decisions import Decision
from groundwire.messages.identity import Subject
from groundwire.replay.inputs import Revision, beyond_numbers, subject_of

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS revisions (
  subject BLOB, revision INTEGER, sha TEXT, clock TEXT, people INTEGER, PRIMARY KEY (subject, revision)
) WITHOUT ROWID;
"""
_FIRST: Final = re.compile(rb'\{"decision_id":"[0-9a-f-]{36}","revision":[01],')
"""Begins every decision, as the gate writes it, that rests on its first record alone."""


class Notes:
    """Notes in a database on disk.

    Args:
        database: where they are kept; the caller's transactions are used.
    """

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        database.executescript(_SCHEMA)

    def note_decision(self, value: bytes) -> None:
        """Take in a decision: what rests on its first record alone is skipped, and what is no decision."""
        if _FIRST.match(value):
            return
        try:
            decision = Decision.model_validate_json(value)
        except ValidationError:
            return
        if decision.revision > 1 and not beyond_numbers(decision):
            row = (
                *(subject_of(decision).digest, decision.revision, decision.origin.sha256),
                *(format_time(decision.facts.clock), decision.facts.review is not None),
            )
            self._database.execute("INSERT OR IGNORE INTO revisions VALUES (?, ?, ?, ?, ?)", row)

    def revision(self, subject: Subject, number: int) -> Revision | None:
        """Return what a decision at hand says of a revision from 2 on, or None."""
        query = "SELECT sha, clock, people FROM revisions WHERE subject = ? AND revision = ?"
        row = self._database.execute(query, (subject.digest, number)).fetchone()
        return Revision(row[0], parse_time(row[1]), bool(row[2])) if row else None


def hash_key(sha256: str) -> bytes:
    """Return the key of a hash; one that is not written as hashes are finds nothing."""
    return bytes.fromhex(sha256) if _SHA256.fullmatch(sha256) else b""
