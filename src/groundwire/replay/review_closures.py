"""Subjects that people's actions closed, read from `retractions` and `audit`, which outlive `blocked`.

A blocking Decision is gone after 30 days, while the one that it superseded is still on `review` or `approved`: without
this, a rebuild would reopen, or approve again, what a person had rejected, retracted or let expire.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from groundwire.messages.base import OutputRecord, Time
from groundwire.messages.decisions import (
    LAST_REVISION,
    AuditEvent,
    Decision,
    DedupFacts,
    IngestionTier,
    Kind,
    Origin,
    Place,
    PolicyName,
    ReasonCode,
    Verdict,
)
from groundwire.messages.erasure import Erasures
from groundwire.messages.identity import Subject, decision_id, subject_of_decision
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName


class Closed(OutputRecord):
    """What the closing Decision said beside its text: `detail.closed` of its audit event."""

    origin: Origin
    decided_at: Time
    engine: str
    policy: PolicyName
    key_id: str | None = None
    edited: bool = False
    dedup: DedupFacts | None = None


@dataclass(frozen=True, slots=True)
class Closure:
    """The highest known revision of a subject, blocked by a person; `closed`: None where no audit event holds it."""

    revision: int
    code: ReasonCode
    action: str
    action_id: str
    reviewer: str
    reason: str | None
    at: datetime
    closed: Closed | None


class ReviewClosures:
    """Collects closures from values of `retractions` and `audit`, in any order.

    Memory grows with people's actions within retention, not with what was published.
    """

    def __init__(self) -> None:
        self._closures: dict[Subject, Closure] = {}
        self._retracted: dict[str, tuple[str | None, bytes]] = {}

    def note(self, value: bytes) -> None:
        """Add a record; others than Retractions and blocking actions are skipped."""
        is_retraction = b'"affected"' in value and b'"supersedes"' in value
        if is_retraction and (retraction := Retraction.try_parse(value)):
            self._note_retraction(retraction)
        elif event := AuditEvent.of_type(value, "review_action"):
            with suppress(ValueError, LookupError, TypeError):
                closure = _closure(event)
                if closure is not None:
                    detail, name = event.detail, event.subject_id or ""
                    subject = Subject(event.tenant_id, detail["user_id"], Kind(detail["kind"]), name)
                    self._keep(subject, closure)

    def current(self, decision: Decision) -> Decision:
        """Return a decision, or the one that closed its subject since.

        The latter is complete as far as state needs it; its text is that of the decision given, as no topic holds a
        blocked edit.
        """
        closure = self._closures.get(subject_of_decision(decision))
        if closure is None or not 1 <= decision.revision < closure.revision:
            return decision
        retracted = self._retracted.get(decision_id(subject_of_decision(decision), closure.revision))
        return _close(decision, closure, retracted[0] if retracted else closure.reason)

    def affected(self, decision: Decision) -> bytes:
        """Return the claims that a retraction affected, as state stores them; empty where none is known."""
        return self._retracted.get(decision.decision_id, (None, b""))[1]

    def _note_retraction(self, record: Retraction) -> None:
        total = len(record.affected) + (record.truncated or {}).get("affected", 0)
        affected = json.dumps([total, record.affected], ensure_ascii=False, separators=(",", ":")).encode()
        self._retracted[record.decision_id] = record.reason, affected
        subject = Subject(record.tenant_id, record.user_id, Kind(record.kind), record.subject_id)
        # a Retraction does not say which revision it is: its id is looked for among these
        revision = next((n for n in range(2, 1_000) if decision_id(subject, n) == record.decision_id), None)
        if revision is not None:
            closure = Closure(
                revision=revision,
                code=ReasonCode.RETRACTED,
                action="retract",
                action_id="",
                reviewer=record.actor,
                reason=record.reason,
                at=record.at,
                closed=None,
            )
            self._keep(subject, closure)

    def _keep(self, subject: Subject, closure: Closure) -> None:
        before = self._closures.get(subject)
        richer = (closure.revision, closure.closed is not None)
        if before is None or richer > (before.revision, before.closed is not None):
            self._closures[subject] = closure


def is_erased_action(value: bytes, erasures: Erasures) -> bool:
    """Say whether an audit event is of a blocking action on an erased subject.

    Revisions restart after an erasure: it would close what the user has said since.
    """
    event = AuditEvent.of_type(value, "review_action")
    if event is None:
        return False
    try:
        closure = _closure(event)
        if closure is None:
            return False
        decided_at = closure.closed.decided_at if closure.closed else event.at
        return erasures.cover(event.tenant_id, event.detail["user_id"], decided_at)
    except (ValueError, LookupError, TypeError):
        return False


def closed_by(decision: Decision) -> dict[str, Any]:
    """Return `detail.closed` of a blocking action's audit event: ids, counts and codes only."""
    review = decision.facts.review or {}
    closed = Closed(
        origin=decision.origin,
        decided_at=decision.decided_at,
        engine=decision.engine,
        policy=decision.policy,
        key_id=review.get("key_id"),
        edited=bool(review.get("edited")),
        dedup=decision.facts.dedup,
    )
    return closed.model_dump(mode="json")


def _closure(event: AuditEvent) -> Closure | None:
    """Read an event; None where the action did not block. Raises: ValueError, LookupError, TypeError."""
    detail = event.detail
    if detail["verdict"] != Verdict.BLOCKED:
        return None
    if type(detail["revision"]) is not int or not 1 < detail["revision"] <= LAST_REVISION:
        raise ValueError("revision")
    closed = detail.get("closed")
    return Closure(
        revision=detail["revision"],
        code=ReasonCode(detail["outcome"]),
        action=str(detail["action"]),
        action_id=str(detail["action_id"]),
        reviewer=event.actor,
        reason=detail["reason"],
        at=event.at,
        closed=Closed.model_validate(closed) if closed else None,
    )


def _close(before: Decision, closure: Closure, reason: str | None) -> Decision:
    closed = closure.closed or Closed(
        # without an audit event only the topic of the ReviewDecision is known
        origin=Origin(
            topic=TopicName.REVIEW_DECISIONS, partition=0, offset=0, timestamp=closure.at, sha256="0" * 64
        ),
        decided_at=closure.at,
        engine=before.engine,
        policy=before.policy,
        edited=bool((before.facts.review or {}).get("edited")),
        dedup=before.facts.dedup,
    )
    review = {
        "action": closure.action,
        "action_id": closure.action_id,
        "reviewer": closure.reviewer,
        "reason": reason,
        "key_id": closed.key_id,
        "edited": closed.edited,
    }
    changed = {
        "clock": closed.origin.timestamp,
        "dedup": closed.dedup,
        "place": Place.NOT_NEEDED,
        "review": review,
    }
    subject = subject_of_decision(before)
    return before.model_copy(
        update={
            "decision_id": decision_id(subject, closure.revision),
            "revision": closure.revision,
            "supersedes": decision_id(subject, closure.revision - 1),
            "tier": IngestionTier.BLOCK,
            "verdict": Verdict.BLOCKED,
            "approved": False,
            "retryable": False,
            "reason_code": closure.code,
            "engine": closed.engine,
            "policy": closed.policy,
            "origin": closed.origin,
            "subject_origin": before.subject_origin or before.origin,
            "decided_at": closed.decided_at,
            "facts": before.facts.model_copy(update=changed),
        }
    )
