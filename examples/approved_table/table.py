"""A table of approved claims, in SQLite or PostgreSQL.

What makes it right, in whichever order records come and however often:

- a `ce_id` that was seen is dropped;
- of a subject, (tenant, user, kind, id), the decision with the highest revision is kept;
- a retraction names the approval that it withdraws, and is kept even if it comes before it;
- `memories` is a view: what is approved is worked out when it is asked for, from all that is known by then;
- the text of what was withdrawn is erased.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

TABLES = (
    """
    CREATE TABLE IF NOT EXISTS decisions (
        tenant_id TEXT, user_id TEXT, kind TEXT, subject_id TEXT,
        revision BIGINT NOT NULL, decision_id TEXT NOT NULL, approved BOOLEAN NOT NULL,
        content TEXT, confidence TEXT, valid_until TEXT,
        PRIMARY KEY (tenant_id, user_id, kind, subject_id)
    )
    """,
    "CREATE INDEX IF NOT EXISTS decisions_by_id ON decisions (decision_id)",
    "CREATE TABLE IF NOT EXISTS retracted (decision_id TEXT PRIMARY KEY)",
    "CREATE TABLE IF NOT EXISTS seen (ce_id TEXT PRIMARY KEY)",
)

VIEW = """
VIEW {} memories AS
SELECT tenant_id, user_id, kind, subject_id, revision, content, confidence, valid_until FROM decisions
WHERE approved AND kind = 'claim'
    AND NOT EXISTS (SELECT 1 FROM retracted WHERE retracted.decision_id = decisions.decision_id)
"""

DECIDE = """
INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant_id, user_id, kind, subject_id) DO UPDATE SET
    revision = excluded.revision, decision_id = excluded.decision_id, approved = excluded.approved,
    content = excluded.content, confidence = excluded.confidence, valid_until = excluded.valid_until
WHERE excluded.revision > decisions.revision
"""

ERASE = """
UPDATE decisions SET content = NULL
WHERE decision_id = ? AND EXISTS (SELECT 1 FROM retracted WHERE retracted.decision_id = decisions.decision_id)
"""


@dataclass(frozen=True)
class Decided:
    """A decision on a subject, (tenant, user, kind, id)."""

    ce_id: str
    subject: tuple[str, str, str, str]
    revision: int
    decision_id: str
    approved: bool
    content: tuple[str | None, str | None, str | None]


@dataclass(frozen=True)
class Retracted:
    """The withdrawal of an approval."""

    ce_id: str
    subject: tuple[str, str, str, str]
    supersedes: str


def read(headers: Iterable[tuple[str, bytes]], value: bytes | None) -> Decided | Retracted | None:
    """Read a record of a topic of decisions or of `retractions`; None where it changes nothing here.

    Fields that are not known here are ignored, not refused: records may gain some.

    Raises:
        ValueError: it is none of these records.
    """
    named = {name: (data or b"").decode() for name, data in headers if name in {"ce_id", "ce_type"}}
    event = json.loads(value or b"")
    if not isinstance(event, dict):
        raise ValueError("the record is no object")  # noqa: TRY004 - what is wrong is what came in
    ce_id = _text(named, "ce_id")
    subject = (
        _text(event, "tenant_id"),
        _text(event, "user_id"),
        _text(event, "kind"),
        _text(event, "subject_id"),
    )
    if named.get("ce_type") == "groundwire.retraction.v1":
        return Retracted(ce_id, subject, _text(event, "supersedes"))
    if named.get("ce_type") != "groundwire.decision.v1":
        return None
    approved, revision = event.get("approved"), event.get("revision")
    if not isinstance(approved, bool) or type(revision) is not int or not 0 <= revision < 2**63:
        raise ValueError("approved is no boolean, or revision no number")
    if not approved and event.get("supersedes") is None:
        return None  # nothing came before it, so that it withdraws nothing
    evidence = event.get("evidence") if approved else None  # a response has none: its answer is not repeated
    return Decided(ce_id, subject, revision, _text(event, "decision_id"), approved, _content(evidence))


def _content(evidence: object) -> tuple[str | None, str | None, str | None]:
    if evidence is None:
        return None, None, None
    if not isinstance(evidence, dict):
        raise ValueError("evidence is no object")  # noqa: TRY004 - the same
    horizon = evidence.get("validity_horizon")
    until = None if horizon is None else _text(evidence, "validity_horizon")
    return _text(evidence, "claim"), _text(evidence, "confidence"), until


def _text(fields: dict[str, Any], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"{name} is no text")
    text.encode()  # half of a surrogate pair is none either
    return text


class Table:
    """The decisions, and what has to be remembered of the stream to keep them right.

    Args:
        url: `postgresql://...`, or the path of an SQLite file.
    """

    def __init__(self, url: str) -> None:
        self.connection: Any
        if url.startswith(("postgresql://", "postgres://")):
            import psycopg  # noqa: PLC0415 - only those who use PostgreSQL need it

            self.connection = psycopg.connect(url)
            self._mark, create = "%s", "CREATE OR REPLACE"
            view = VIEW.format("")
        else:
            self.connection = sqlite3.connect(url)
            self._mark, create = "?", "CREATE"
            view = VIEW.format("IF NOT EXISTS")
        for statement in (*TABLES, create + view):
            self._execute(statement)
        self.connection.commit()

    def apply(self, events: Sequence[Decided | Retracted]) -> None:
        """Apply events in one transaction: all of them, or none.

        Their order does not matter. They are sorted so that two programs never wait for each other's rows.
        """
        try:
            for event in sorted(events, key=lambda event: (event.subject, event.ce_id)):
                if self._execute("INSERT INTO seen VALUES (?) ON CONFLICT DO NOTHING", event.ce_id) == 0:
                    continue
                if isinstance(event, Decided):
                    values = (event.revision, event.decision_id, event.approved, *event.content)
                    self._execute(DECIDE, *event.subject, *values)
                    self._execute(ERASE, event.decision_id)
                else:
                    self._execute("INSERT INTO retracted VALUES (?) ON CONFLICT DO NOTHING", event.supersedes)
                    self._execute(ERASE, event.supersedes)
            self.connection.commit()
        except BaseException:
            self.connection.rollback()
            raise

    def _execute(self, statement: str, *values: object) -> int:
        """Run a statement and return how many rows it changed."""
        cursor = self.connection.cursor()
        cursor.execute(statement.replace("?", self._mark), values)
        changed: int = cursor.rowcount
        cursor.close()
        return changed

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
