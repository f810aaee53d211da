"""What people's decisions rest on beside their first record: texts of edits, and claims decided on a later record."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from groundwire.errors import RecordError
from groundwire.messages.base import format_time, parse_time
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.identity import Subject
from groundwire.replay.inputs import DecidedAgain, subject_of

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS edits (subject BLOB, revision INTEGER, content TEXT);
CREATE TABLE IF NOT EXISTS again (subject BLOB, revision INTEGER, sha TEXT, clock TEXT);
CREATE INDEX IF NOT EXISTS edits_of ON edits (subject, revision);
CREATE INDEX IF NOT EXISTS again_of ON again (subject, revision);
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

    def note_record(self, value: bytes) -> None:
        """Take in a record: what is no edit is skipped."""
        if b'"edit"' not in value and b"\\u" not in value:  # which may spell it otherwise
            return
        try:
            review = decode_review_decision(value)
        except RecordError:
            return
        if review.content is not None:
            subject = Subject(review.tenant_id, review.user_id, Kind(review.kind), review.subject_id)
            row = subject.digest, review.expected_revision, review.content
            self._database.execute("INSERT INTO edits VALUES (?, ?, ?)", row)

    def note_decision(self, value: bytes) -> None:
        """Take in a decision: what rests on its first record alone is skipped."""
        if _FIRST.match(value):
            return
        try:
            decision = Decision.model_validate_json(value)
        except ValidationError:
            return
        if decision.revision > 1 and decision.facts.review is None:
            clock = format_time(decision.facts.clock)
            row = subject_of(decision).digest, decision.revision, decision.origin.sha256, clock
            self._database.execute("INSERT INTO again VALUES (?, ?, ?, ?)", row)

    def edits(self, subject: Subject, revision: int) -> Sequence[str]:
        """Return the texts by which reviewers wanted to replace that of a subject at a revision."""
        query = "SELECT content FROM edits WHERE subject = ? AND revision = ?"
        return [content for (content,) in self._database.execute(query, (subject.digest, revision))]

    def decided_again(self, subject: Subject, revision: int) -> DecidedAgain | None:
        """Return the latest revision from 2 to `revision` that the gate itself decided, where it is known."""
        query = (
            "SELECT sha, clock FROM again WHERE subject = ? AND revision <= ? ORDER BY revision DESC LIMIT 1"
        )
        row = self._database.execute(query, (subject.digest, revision)).fetchone()
        return DecidedAgain(row[0], parse_time(row[1])) if row else None


def hash_key(sha256: str) -> bytes:
    """Return the key of a hash; one that is not written as hashes are finds nothing."""
    return bytes.fromhex(sha256) if _SHA256.fullmatch(sha256) else b""
