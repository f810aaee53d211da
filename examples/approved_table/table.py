"""A table of approved claims, in SQLite or PostgreSQL.

What makes it right, in whichever order records come and however often:

- a `ce_id` that was seen is dropped;
- of a subject, (tenant, user, kind, id), the decision with the highest revision counts, and one is deleted where
  another has a higher revision and is later;
- a retraction names the approval that it withdraws, and is kept even if it comes before it;
- `memories` is a view: what is approved is worked out when it is asked for, from all that is known by then;
- the text of what was withdrawn is erased;
- a tombstone deletes what was decided of a user up to its time, and keeps out what comes of that later. What is decided
  anew after it begins with revision 1 and may have the old id: an event that was seen is one with its `ce_id` and its
  time, and a lower revision that is later is kept until it is known which of the two is true.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

TABLES = (
    """
    CREATE TABLE IF NOT EXISTS decisions (
        tenant_id TEXT, user_id TEXT, kind TEXT, subject_id TEXT,
        revision BIGINT NOT NULL, decision_id TEXT NOT NULL, approved BOOLEAN NOT NULL,
        content TEXT, confidence TEXT, valid_until TEXT, decided_at BIGINT NOT NULL,
        PRIMARY KEY (tenant_id, user_id, kind, subject_id, revision, decided_at)
    )
    """,
    "CREATE INDEX IF NOT EXISTS decisions_by_id ON decisions (decision_id)",
    "CREATE TABLE IF NOT EXISTS retracted (decision_id TEXT, at BIGINT, PRIMARY KEY (decision_id, at))",
    "CREATE TABLE IF NOT EXISTS erased (tenant_id TEXT, user_id TEXT, at BIGINT, PRIMARY KEY (tenant_id, user_id, at))",
    "CREATE TABLE IF NOT EXISTS owners (tenant_id TEXT, user_id TEXT, PRIMARY KEY (tenant_id, user_id))",
    "CREATE TABLE IF NOT EXISTS seen (ce_id TEXT, at BIGINT, PRIMARY KEY (ce_id, at))",
)

WITHDRAWN = """
EXISTS (
    SELECT 1 FROM retracted
    WHERE retracted.decision_id = decisions.decision_id AND retracted.at >= decisions.decided_at
)
"""

SAME = """
(higher.tenant_id, higher.user_id, higher.kind, higher.subject_id)
    = (decisions.tenant_id, decisions.user_id, decisions.kind, decisions.subject_id)
"""

VIEW = f"""
VIEW {{}} memories AS
SELECT tenant_id, user_id, kind, subject_id, revision, content, confidence, valid_until FROM decisions
WHERE approved AND kind = 'claim'
    AND NOT {WITHDRAWN}
    AND NOT EXISTS (SELECT 1 FROM decisions AS higher WHERE {SAME} AND higher.revision > decisions.revision)
"""  # noqa: S608 - of constants

DECIDE = "INSERT INTO decisions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"

OVERTAKEN = f"""
DELETE FROM decisions WHERE (tenant_id, user_id, kind, subject_id) = (?, ?, ?, ?) AND EXISTS (
    SELECT 1 FROM decisions AS higher WHERE {SAME}
        AND higher.revision >= decisions.revision AND higher.decided_at >= decisions.decided_at
        AND (higher.revision, higher.decided_at) <> (decisions.revision, decisions.decided_at)
)
"""  # noqa: S608 - of constants

LOCK = """
INSERT INTO owners VALUES (?, ?) ON CONFLICT (tenant_id, user_id) DO UPDATE SET user_id = excluded.user_id
"""

DELETE = """
DELETE FROM decisions WHERE tenant_id = ? AND user_id = ? AND EXISTS (
    SELECT 1 FROM erased
    WHERE (erased.tenant_id, erased.user_id) = (decisions.tenant_id, decisions.user_id)
        AND erased.at >= decisions.decided_at
)
"""

ERASE = f"UPDATE decisions SET content = NULL WHERE decision_id = ? AND {WITHDRAWN}"  # noqa: S608 - of constants


@dataclass(frozen=True)
class Decided:
    """A decision on a subject, (tenant, user, kind, id)."""

    ce_id: str
    at: int
    subject: tuple[str, str, str, str]
    revision: int
    decision_id: str
    approved: bool
    content: tuple[str | None, str | None, str | None]


@dataclass(frozen=True)
class Retracted:
    """The withdrawal of an approval."""

    ce_id: str
    at: int
    subject: tuple[str, str, str, str]
    supersedes: str


@dataclass(frozen=True)
class Erased:
    """A tombstone: what was decided for (tenant, user) until then is to be deleted."""

    ce_id: str
    at: int
    subject: tuple[str, str]


Event = Decided | Retracted | Erased
"""Its time is in microseconds since 1970."""


def read(headers: Iterable[tuple[str, bytes]], value: bytes | None, key: bytes | None = None) -> Event | None:
    """Read a record of a topic of decisions or of `retractions`; None where it changes nothing here.

    Fields that are not known here are ignored, not refused: records may gain some.

    Raises:
        ValueError: it is none of these records.
    """
    named = {name: (data or b"").decode() for name, data in headers if name.startswith("ce_")}
    tenant_id, colon, user_id = (key or b"").decode().partition(":")
    if value is None and colon:
        return Erased(_text(named, "ce_id"), _microseconds(named, "ce_time"), (tenant_id, user_id))
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
        return Retracted(ce_id, _microseconds(event, "at"), subject, _text(event, "supersedes"))
    if named.get("ce_type") != "groundwire.decision.v1":
        return None
    approved, revision = event.get("approved"), event.get("revision")
    if not isinstance(approved, bool) or type(revision) is not int or not 0 <= revision < 2**63:
        raise ValueError("approved is no boolean, or revision no number")
    if not approved and event.get("supersedes") is None:
        return None  # nothing came before it, so that it withdraws nothing
    evidence = event.get("evidence") if approved else None  # a response has none: its answer is not repeated
    at = _microseconds(event, "decided_at")
    return Decided(ce_id, at, subject, revision, _text(event, "decision_id"), approved, _content(evidence))


def _content(evidence: object) -> tuple[str | None, str | None, str | None]:
    if evidence is None:
        return None, None, None
    if not isinstance(evidence, dict):
        raise ValueError("evidence is no object")  # noqa: TRY004 - the same
    horizon = evidence.get("validity_horizon")
    until = None if horizon is None else _text(evidence, "validity_horizon")
    return _text(evidence, "claim"), _text(evidence, "confidence"), until


def _microseconds(fields: dict[str, Any], name: str) -> int:
    """Read a time: as text it has no order, since a fraction may be left out."""
    return (datetime.fromisoformat(_text(fields, name)) - EPOCH) // timedelta(microseconds=1)


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

    def apply(self, events: Sequence[Event]) -> None:
        """Apply events in one transaction: all of them, or none.

        Their order does not matter. They are sorted so that two programs never wait for each other's rows.
        """
        try:
            for event in sorted(events, key=lambda event: (event.subject, event.ce_id)):
                user = event.subject[:2]
                self._execute(LOCK, *user)  # another program would not see the rows of this one
                if (
                    self._execute(
                        "INSERT INTO seen VALUES (?, ?) ON CONFLICT DO NOTHING", event.ce_id, event.at
                    )
                    == 0
                ):
                    continue
                if isinstance(event, Decided):
                    values = (event.revision, event.decision_id, event.approved, *event.content, event.at)
                    self._execute(DECIDE, *event.subject, *values)
                    self._execute(OVERTAKEN, *event.subject)
                    self._execute(ERASE, event.decision_id)
                    self._execute(DELETE, *user)
                elif isinstance(event, Retracted):
                    names = event.supersedes, event.at
                    self._execute("INSERT INTO retracted VALUES (?, ?) ON CONFLICT DO NOTHING", *names)
                    self._execute(ERASE, event.supersedes)
                else:
                    self._execute(
                        "INSERT INTO erased VALUES (?, ?, ?) ON CONFLICT DO NOTHING", *user, event.at
                    )
                    self._execute(DELETE, *user)
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
        self.connection.close()
