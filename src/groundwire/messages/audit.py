"""AuditEvent 1.0 and RegenerateRequest 1.0."""

from __future__ import annotations

from typing import Any, Literal

from groundwire.messages.base import OutputRecord, Time

AuditType = Literal[
    "enqueue",
    "review_action",
    "refused_action",
    "retraction",
    "dead_letter",
    "state_lost",
    "state_rebuilt",
    "policy_loaded",
    "evidence_failure",
]


class AuditEvent(OutputRecord):
    """What happened to whom and when: ids, counts, codes and keyed hashes only, never text."""

    event_id: str
    type: AuditType
    at: Time
    tenant_id: str
    actor: str
    subject_id: str | None
    decision_id: str | None
    detail: dict[str, Any]


class RegenerateRequest(OutputRecord):
    """A grounded prompt with which a generator is asked to answer again."""

    request_id: str
    response_id: str
    decision_id: str
    tenant_id: str
    user_id: str
    query: str | None
    mode: Literal["instant", "auto", "thinking"]
    attempt: int
    why: Literal["low_confidence", "critical_gap"]
    prompt: str
    flagged: list[str]
