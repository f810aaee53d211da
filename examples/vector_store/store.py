"""A table of PostgreSQL with pgvector that holds what the gate has approved, and nothing else.

A row stands for one decision: `decision_id` and `decided_at` name it. A memory whose row has that name is neither
embedded nor written again, so that the same may be told any number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import psycopg

from groundwire.client import Memory

Vector = Sequence[float]
Embed = Callable[[list[str]], Iterable[Vector]]
"""Turns texts into vectors of the same length: a call of your model."""

Key = tuple[str, str, str]
"""Tenant, user and claim id."""

_TABLE: Final = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE IF NOT EXISTS memories (
    tenant_id TEXT, user_id TEXT, claim_id TEXT, decision_id TEXT NOT NULL, decided_at TIMESTAMPTZ NOT NULL,
    content TEXT NOT NULL, valid_until TIMESTAMPTZ, embedding VECTOR NOT NULL,
    PRIMARY KEY (tenant_id, user_id, claim_id)
)
"""

_WRITE: Final = """
INSERT INTO memories VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (tenant_id, user_id, claim_id) DO UPDATE SET
    decision_id = excluded.decision_id, decided_at = excluded.decided_at,
    content = excluded.content, valid_until = excluded.valid_until, embedding = excluded.embedding
"""

_NEAREST: Final = """
SELECT claim_id, content, 1 - (embedding <=> %(vector)s::vector) FROM memories
WHERE tenant_id = %(tenant)s AND user_id = %(user)s AND (valid_until IS NULL OR valid_until > now())
ORDER BY embedding <=> %(vector)s::vector LIMIT %(limit)s
"""


class Found(NamedTuple):
    """A memory that is like what was asked; `likeness` is the cosine of the two vectors."""

    claim_id: str
    content: str
    likeness: float


class VectorStore:
    """The table, and the model that makes its vectors.

    Args:
        url: `postgresql://...`.
        embed: turns texts into vectors.
    """

    def __init__(self, url: str, embed: Embed) -> None:
        self._embed = embed
        self._connection = psycopg.connect(url, autocommit=True)
        with self._connection.transaction():
            # CREATE ... IF NOT EXISTS fails where two do it at once
            self._connection.execute("SELECT pg_advisory_xact_lock(hashtext('memories'))")
            self._connection.execute(_TABLE)

    def be_the_only_writer(self) -> None:
        """Wait until no other program follows the topics into this table: one that lags would write what is over."""
        self._connection.execute("SELECT pg_advisory_lock(hashtext('memories'), 1)")

    def hold_only(self, memories: Iterable[Memory]) -> None:
        """Make the table hold these: embed what is new, and delete what is no longer among them."""
        wanted = {_key(memory): memory for memory in memories}
        with self._connection.transaction():
            held = self._held()
            for key in held.keys() - wanted.keys():
                self.delete(*key)
            self.write(
                [one for key, one in wanted.items() if held.get(key) != (one.decision_id, one.decided_at)]
            )

    def write(self, memories: Sequence[Memory]) -> None:
        """Store memories, each in place of what is held under its claim id."""
        vectors = self._embed([memory.content for memory in memories]) if memories else []
        rows = [
            (*_key(one), one.decision_id, one.decided_at, one.content, one.valid_until, _text(vector))
            for one, vector in zip(memories, vectors, strict=True)
        ]
        with self._connection.transaction():
            self._connection.cursor().executemany(_WRITE, rows)

    def delete(self, tenant_id: str, user_id: str, claim_id: str) -> None:
        """Delete a memory, if it is held."""
        where = "tenant_id = %s AND user_id = %s AND claim_id = %s"
        self._connection.execute(f"DELETE FROM memories WHERE {where}", (tenant_id, user_id, claim_id))  # noqa: S608 - a constant

    def nearest(self, tenant_id: str, user_id: str, query: str, limit: int = 5) -> list[Found]:
        """Return the memories of a user that are most like a query and have not expired."""
        (vector,) = self._embed([query])
        asked = {"vector": _text(vector), "tenant": tenant_id, "user": user_id, "limit": limit}
        return [Found(*row) for row in self._connection.execute(_NEAREST, asked).fetchall()]

    def close(self) -> None:
        self._connection.close()

    def _held(self) -> dict[Key, tuple[str, datetime]]:
        rows = self._connection.execute(
            "SELECT tenant_id, user_id, claim_id, decision_id, decided_at FROM memories"
        ).fetchall()
        return {(tenant, user, claim): (name, at) for tenant, user, claim, name, at in rows}


def _key(memory: Memory) -> Key:
    subject = memory.subject
    return subject.tenant_id, subject.user_id, subject.subject_id


def _text(vector: Vector) -> str:
    """Write a vector as pgvector reads it."""
    return f"[{','.join(map(str, vector))}]"
