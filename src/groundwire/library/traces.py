"""Reasoning traces: goals, decisions, and the claims made on the way with their evidence (S4-48..S4-54, C-69).

The tables change by migration steps; the version of a database is its `user_version`. A step that was released is never
changed: a new one is added.
"""

from __future__ import annotations

import sqlite3
import threading
import uuid
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

from groundwire.arguments import takes
from groundwire.epistemic.claims import gap_of
from groundwire.epistemic.model import Client
from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import (
    ClaimVerification,
    EpistemicGap,
    HallucinationReport,
    VerificationConfig,
)
from groundwire.library.epistemic import audit_reasoning


class MigrationStep(NamedTuple):
    """A change of the tables, and its way back."""

    up: tuple[str, ...]
    down: tuple[str, ...]


STEPS: Final = (
    MigrationStep(
        (
            (
                "CREATE TABLE nodes (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, type TEXT NOT NULL, "
                "content TEXT NOT NULL, parent_id TEXT REFERENCES nodes (id))"
            ),
            "CREATE INDEX nodes_parent ON nodes (parent_id)",
        ),
        ("DROP INDEX nodes_parent", "DROP TABLE nodes"),
    ),
    MigrationStep(
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
    """Return the number of migration steps that a database has."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection, target: int = len(STEPS)) -> None:
    """Bring a database to a number of steps, up or down, each step entirely or not at all.

    Raises: ValueError, there is no such number of steps, or the database is newer than this code.
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


# Of a goal and everything below it, in the order in which it was added.
_BELOW = (
    "WITH RECURSIVE below (id) AS (SELECT id FROM nodes WHERE id = ? "
    "UNION SELECT nodes.id FROM nodes JOIN below ON nodes.parent_id = below.id) "
    "SELECT nodes.id FROM nodes JOIN below USING (id) JOIN claims USING (id) ORDER BY nodes.number"
)
_LATEST = "SELECT result FROM verifications JOIN nodes USING (id) WHERE claim_id = ? ORDER BY nodes.number DESC LIMIT 1"
_CITED = "SELECT target FROM edges WHERE source = ? AND label = 'cites' ORDER BY number"
_OBSERVED = (
    "SELECT nodes.id, nodes.content FROM edges JOIN nodes ON nodes.id = edges.target "
    "WHERE edges.source = ? AND edges.label = 'cites' AND nodes.type = 'observation'"
)


class ReasoningTraces:
    """A graph of reasoning, kept in SQLite.

    A claim is the child of a decision and cites observations; a verification is the child of its claim, and verifies or
    refutes it. An id that a claim cites without there being such an observation is kept: it is a phantom citation.

    Args:
        path: the database; by default in memory, gone with the object.
        client: a model to ask as well when a claim is verified.
        config: thresholds.

    Raises:
        sqlite3.Error: the database cannot be used.
        ValueError: it was written by a newer version.
    """

    VALID_DECISION_TYPES: ClassVar = frozenset(
        {"goal", "decision", "option", "action", "outcome", "observation", "claim", "verification"}
    )
    EDGE_LABELS: ClassVar = frozenset({"cites", "verifies", "refutes"})

    def __init__(
        self,
        path: str | Path = ":memory:",
        *,
        client: Client | None = None,
        config: VerificationConfig | None = None,
    ) -> None:
        self._client = client
        self._config = config or VerificationConfig()
        self._lock = threading.RLock()
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA foreign_keys = ON")
        migrate(self._connection)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @takes(content=str, parent_id=str | None)
    def add_node(self, decision_type: str, content: str, parent_id: str | None = None) -> str:
        """Add a node and return its id (S4-48).

        Raises:
            ValueError: there is no such type.
            KeyError: there is no such parent.
        """
        if decision_type not in self.VALID_DECISION_TYPES:
            known = ", ".join(sorted(self.VALID_DECISION_TYPES))
            raise ValueError(f"decision_type: {decision_type!r} is none of {known}")
        with self._lock, self._connection:
            return self._add(decision_type, content, parent_id)

    def add_claim(
        self, decision_id: str, claim: str, evidence_ids: list[str], confidence: float = 0.5
    ) -> str:
        """Add a claim below a decision, with the observations that it cites; return its id (S4-50).

        Raises:
            ValueError: `confidence` is not from 0 to 1.
            KeyError: there is no such decision.
        """
        if isinstance(confidence, bool) or not 0 <= confidence <= 1:
            raise ValueError(f"confidence must be a number from 0 to 1, got {confidence!r}")
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            claim_id = self._add("claim", claim, decision_id)
            self._connection.execute("INSERT INTO claims VALUES (?, ?)", (claim_id, float(confidence)))
            for evidence_id in dict.fromkeys(evidence_ids):
                self._link(claim_id, evidence_id, "cites")
            return claim_id

    @takes(claim_id=str)
    def verify_claim(self, claim_id: str, verification_model: str = "haiku") -> ClaimVerification:
        """Verify a claim against the observations that it cites, and keep the result (S4-51).

        A claim verified again gets another verification; the last one counts.

        Raises:
            KeyError: there is no such claim.
        """
        with self._lock:
            if not self._rows("SELECT 1 FROM claims WHERE id = ?", claim_id):
                raise KeyError(claim_id)
        result = self._verified(claim_id, self._client, verification_model)
        with self._lock, self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            node = self._add("verification", result.flag_reason or "supported", claim_id)
            row = (node, claim_id, verification_model, result.model_dump_json())
            self._connection.execute("INSERT INTO verifications VALUES (?, ?, ?, ?)", row)
            self._link(node, claim_id, "refutes" if result.is_flagged else "verifies")
        return result

    def get_epistemic_gaps(self, goal_id: str) -> list[EpistemicGap]:
        """Return the gaps of the claims below a goal, in the order in which they were made (S4-52).

        Claims that were not verified yet are verified by the rules, without keeping the result.

        Raises:
            KeyError: there is no such goal.
        """
        return [gap for claim in self._claims(goal_id) if (gap := gap_of(claim))]

    def get_verification_report(self, goal_id: str) -> HallucinationReport:
        """Return the report of all claims below a goal; its `response_id` is the goal's id (S4-53).

        Raises:
            KeyError: there is no such goal.
        """
        return build_report(goal_id, self._claims(goal_id), self._config)

    def nodes(self) -> list[dict[str, Any]]:
        """Return all nodes, in the order in which they were added: id, type, content."""
        rows = self._rows("SELECT id, type, content FROM nodes ORDER BY number")
        return [dict(zip(("id", "type", "content"), row, strict=True)) for row in rows]

    def edges(self) -> list[dict[str, Any]]:
        """Return all edges, in the order in which they were added: source, target, label."""
        rows = self._rows("SELECT source, target, label FROM edges ORDER BY number")
        return [dict(zip(("source", "target", "label"), row, strict=True)) for row in rows]

    def _claims(self, goal_id: str) -> list[ClaimVerification]:
        """Return the verifications of the claims below a node: the last one kept, else what the rules say now."""
        found: list[ClaimVerification] = []
        with self._lock:
            self._content(goal_id)
            for (claim_id,) in self._rows(_BELOW, goal_id):
                kept = self._rows(_LATEST, claim_id)
                found.append(
                    ClaimVerification.model_validate_json(kept[0][0])
                    if kept
                    else self._verified(claim_id, None, self._config.verification_model)
                )
        return found

    def _verified(self, claim_id: str, client: Client | None, model: str) -> ClaimVerification:
        with self._lock:
            content = self._content(claim_id)
            cites = [target for (target,) in self._rows(_CITED, claim_id)]
            sources = dict(self._rows(_OBSERVED, claim_id))
        # a claim that is verified by name is asked about, whatever the sample says
        update = {"verification_model": model, "mode": "full", "model_scope": "all"}
        config = self._config.model_copy(update=update)
        step = {"claim": content, "cites": cites}
        (result,) = audit_reasoning([step], sources, client=client, config=config)
        return result.model_copy(update={"claim_id": claim_id})

    def _add(self, kind: str, content: str, parent_id: str | None) -> str:
        if parent_id is not None:
            self._content(parent_id)
        node = str(uuid.uuid4())
        row = (node, kind, content, parent_id)
        self._connection.execute("INSERT INTO nodes (id, type, content, parent_id) VALUES (?, ?, ?, ?)", row)
        return node

    def _link(self, source: str, target: str, label: str) -> None:
        row = (source, target, label)
        self._connection.execute("INSERT INTO edges (source, target, label) VALUES (?, ?, ?)", row)

    def _content(self, node_id: str) -> str:
        rows = self._rows("SELECT content FROM nodes WHERE id = ?", node_id)
        if not rows:
            raise KeyError(node_id)
        return str(rows[0][0])

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._connection.execute(query, values).fetchall()
