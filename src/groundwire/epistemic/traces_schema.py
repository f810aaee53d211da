"""The tables of reasoning traces, as steps up and down (S4-54).

The version of a database stands in its `user_version`. A step that was released is never changed: a new one is added.
"""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple


class Step(NamedTuple):
    """A change of the tables, and its way back."""

    up: tuple[str, ...]
    down: tuple[str, ...]


STEPS: Final = (
    Step(
        (
            (
                "CREATE TABLE nodes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, "
                "content TEXT NOT NULL, parent_id TEXT REFERENCES nodes (id))"
            ),
            "CREATE INDEX nodes_parent ON nodes (parent_id)",
        ),
        ("DROP INDEX nodes_parent", "DROP TABLE nodes"),
    ),
    Step(
        (
            (
                "CREATE TABLE edges (number INTEGER PRIMARY KEY, source TEXT NOT NULL REFERENCES nodes (id), "
                "target TEXT NOT NULL, label TEXT NOT NULL CHECK (label IN ('cites', 'verifies', 'refutes')))"
            ),
            "CREATE INDEX edges_source ON edges (source, label)",
            "CREATE INDEX edges_target ON edges (target, label)",
            "CREATE TABLE claims (id TEXT PRIMARY KEY REFERENCES nodes (id), confidence REAL NOT NULL)",
            (
                "CREATE TABLE verifications (id TEXT PRIMARY KEY REFERENCES nodes (id), "
                "claim_id TEXT NOT NULL REFERENCES claims (id), model TEXT NOT NULL, result TEXT NOT NULL)"
            ),
            "CREATE INDEX verifications_claim ON verifications (claim_id)",
        ),
        ("DROP TABLE verifications", "DROP TABLE claims", "DROP TABLE edges"),
    ),
)
"""First the nodes, then what epistemic verification adds."""


def version(connection: sqlite3.Connection) -> int:
    """Return the number of steps that a database has."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, target: int = len(STEPS)) -> None:
    """Bring a database to a number of steps, up or down, each step entirely or not at all.

    Raises:
        ValueError: there is no such number of steps, or the database is newer than this code.
    """
    if not 0 <= target <= len(STEPS):
        raise ValueError(f"target must be from 0 to {len(STEPS)}, got {target}")
    if version(connection) > len(STEPS):
        raise ValueError(f"the traces are of version {version(connection)}, newer than {len(STEPS)}")
    while (now := version(connection)) != target:
        statements, after = (STEPS[now].up, now + 1) if now < target else (STEPS[now - 1].down, now - 1)
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement in (*statements, f"PRAGMA user_version = {after}"):
                connection.execute(statement)
        except sqlite3.Error:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
