"""Decisions, audit events and dead letters as the topics hold them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from groundwire.messages.audit import AuditEvent
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import dead_letter_headers
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.topics import TopicName, record_key
from groundwire.review.people import Scope
from groundwire.review.records import TopicRecord

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIERS = {"approved": "tier_1", "review": "tier_2", "blocked": "tier_3"}
ADMIN = Scope("admin", frozenset({"acme", "globex"}), frozenset())


def decision(name="c1", revision=1, verdict="review", *, tenant="acme", user="ann", age=60, **changes):
    """A Decision of the wire, decided `age` minutes ago; `changes` replace its fields."""
    kind = changes.get("kind", "claim")
    subject = Subject(tenant, user, kind, name)
    reasons = {"review": "ungrounded", "approved": "trusted_source", "blocked": "personal_speculation"}
    at = (NOW - timedelta(minutes=age)).isoformat()
    origin = {"topic": "t", "partition": 0, "offset": 0, "timestamp": at, "sha256": "0" * 64}
    facts = {"clock": at, "place": "free" if verdict == "review" else "not_needed"}
    facts |= changes.pop("facts", {})
    text = changes.pop("text", f"The service {name} runs on two machines")
    evidence = {"claim": text, "capture_time": at, "confidence": "medium"}
    fields = {
        "decision_id": decision_id(subject, revision) if revision else f"provisional-{name}",
        "revision": revision,
        "supersedes": decision_id(subject, revision - 1) if revision > 1 else None,
        "kind": kind,
        "subject_id": name,
        "tenant_id": tenant,
        "user_id": user,
        "fingerprint": "f" * 64,
        "memory_type": "fact" if kind == "claim" else None,
        "source": "ai_synthesis" if kind == "claim" else None,
        "derived_from": [] if kind == "claim" else None,
        "tier": TIERS[verdict],
        "verdict": verdict,
        "approved": verdict == "approved",
        "reason": "A sentence about it",
        "reason_code": reasons[verdict],
        "retryable": False,
        "checks_passed": ["not_duplicate"],
        "checks_failed": ["citation_missing"],
        "checks_skipped": [],
        "hedges": [],
        "citations": [],
        "similarity_score": None,
        "conflicting_memory_id": None,
        "evidence": evidence if kind == "claim" else None,
        "report": None if kind == "claim" else {},
        "facts": facts,
        "policy": {"version": "default", "sha256": "0" * 64},
        "engine": "0.1.0",
        "origin": origin,
        "subject_origin": origin if revision > 1 else None,
        "decided_at": at,
        "truncated": None,
        "replay": None,
    }
    return Decision.model_validate_json(json.dumps(fields | changes))


def reviewed(name="c1", action="approve", *, reviewer="ann", reason=None, revision=2, **changes):
    """The Decision that a person's action brought."""
    verdict, code = {
        "approve": ("approved", "human_approved"),
        "edit": ("approved", "human_approved"),
        "reject": ("blocked", "human_rejected"),
        "retract": ("blocked", "retracted"),
        "expire": ("blocked", "review_expired"),
    }[action]
    fact = {"action": action, "action_id": f"{name}-{revision}", "reviewer": reviewer, "reason": reason}
    verdict = changes.pop("verdict", verdict)
    changes = {"age": 30, "reason_code": code, "facts": {"review": fact}} | changes
    return decision(name, revision, verdict, **changes)


def record(made, offset=0, partition=0):
    """A Decision's record."""
    return TopicRecord(
        TopicName.of(made.verdict),
        partition,
        offset,
        to_milliseconds(made.decided_at),
        record_key(made.tenant_id, made.user_id),
        made.to_bytes(),
    )


def records(*made):
    """The records of Decisions, one offset each."""
    return [record(each, offset) for offset, each in enumerate(made)]


def audit(name="c1", action="approve", *, applied=True, tenant="acme", user="ann", offset=0, **changes):
    """The record of an action's AuditEvent."""
    kind = "review_action" if applied else "refused_action"
    detail = {
        "action": action,
        "action_id": f"{name}-action",
        "kind": "claim",
        "user_id": user,
        "expected_revision": 1,
        "reason": None,
        "outcome": "human_approved" if applied else "unauthorized",
        "revision": 2 if applied else 1,
        "verdict": "approved" if applied else None,
    } | changes.pop("detail", {})
    event = AuditEvent(
        event_id=event_id(kind, detail["action_id"]),
        type=kind,
        at=NOW.isoformat(),
        tenant_id=tenant,
        actor="mallory",
        subject_id=name,
        decision_id=None,
        detail=detail,
        **changes,
    )
    value = event.model_dump_json().encode()
    return TopicRecord(TopicName.AUDIT, 0, offset, to_milliseconds(NOW), tenant.encode(), value)


def retraction(name, *affected, more=0, tenant="acme", user="ann", kind="claim", age=30):
    """The record of a Retraction."""
    subject = Subject(tenant, user, kind, name)
    value = {
        "decision_id": decision_id(subject, 2),
        "supersedes": decision_id(subject, 1),
        "kind": kind,
        "subject_id": name,
        "tenant_id": tenant,
        "user_id": user,
        "reason": None,
        "actor": "admin",
        "at": (NOW - timedelta(minutes=age)).isoformat(),
        "affected": list(affected),
        "truncated": {"affected": more} if more else None,
    }
    return TopicRecord(TopicName.RETRACTIONS, 0, 0, to_milliseconds(NOW), b"", json.dumps(value).encode())


def dead_letter(key, value, offset=0, error=None):
    """The record of a dead letter."""
    headers = dead_letter_headers(error, "groundwire.claims", 3, 41, ()) if error else []
    return TopicRecord(TopicName.DEAD_LETTER, 0, offset, to_milliseconds(NOW) + offset, key, value, headers)
