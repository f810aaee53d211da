"""Decisions, audit events and dead letters as the topics hold them."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from groundwire.kafka.store import MEMORY
from groundwire.keys.attestation import Keys
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import AuditEvent, Decision, Kind
from groundwire.messages.headers import InboundRecord, dead_letter_headers
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.topics import TopicName, record_key
from groundwire.review.board import Board
from groundwire.review.permissions import ViewScope

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
TIERS = {"approved": "tier_1", "review": "tier_2", "blocked": "tier_3"}
KEYS = Keys.parse(
    b"[keys.console]\nsecret = 's'\ntenants = ['acme']\nroles = ['reviewer']", Path("keys.toml")
)
ADMIN = ViewScope("admin", frozenset({"acme", "globex"}), frozenset())


def wire(subject, revision=1, verdict="review", *, at, text="Water is wet.", **changes):
    """A Decision as JSON on its topic, decided at a time; `changes` replace its fields."""
    reasons = {"review": "ungrounded", "approved": "trusted_source", "blocked": "personal_speculation"}
    origin = {"topic": "groundwire.claims", "partition": 0, "offset": 7, "timestamp": at, "sha256": "0" * 64}
    is_claim = subject.kind == "claim"
    fields = {
        "decision_id": decision_id(subject, revision) if revision else f"provisional-{subject.subject_id}",
        "revision": revision,
        "supersedes": decision_id(subject, revision - 1) if revision > 1 else None,
        "kind": str(subject.kind),
        "subject_id": subject.subject_id,
        "tenant_id": subject.tenant_id,
        "user_id": subject.user_id,
        "fingerprint": "f" * 64,
        "memory_type": "fact" if is_claim else None,
        "source": "ai_synthesis" if is_claim else None,
        "derived_from": [] if is_claim else None,
        "tier": TIERS[verdict],
        "verdict": verdict,
        "approved": verdict == "approved",
        "reason": "A sentence about it",
        "reason_code": reasons[verdict],
        "retryable": False,
        "checks_passed": ["no_speculation"],
        "checks_failed": ["citation_missing"],
        "checks_skipped": ["relevance_skipped"],
        "hedges": [],
        "citations": [],
        "similarity_score": None,
        "conflicting_memory_id": None,
        "evidence": {"claim": text, "capture_time": at, "confidence": "medium"} if is_claim else None,
        "report": None if is_claim else {},
        "facts": {"clock": at, "place": "free" if verdict == "review" else "not_needed"},
        "policy": {"version": "default", "sha256": "a" * 64},
        "engine": "0.1.0",
        "origin": origin,
        "subject_origin": origin if revision > 1 else None,
        "decided_at": at,
        "truncated": None,
        "replay": None,
    }
    return fields | changes


def decision(name="c1", revision=1, verdict="review", *, tenant="acme", user="ann", age=60, **changes):
    """A Decision, decided `age` minutes ago; `changes` replace its fields, `facts` are added to its facts."""
    subject = Subject(tenant, user, Kind(changes.get("kind", "claim")), name)
    at = (NOW - timedelta(minutes=age)).isoformat()
    text = changes.pop("text", f"The service {name} runs on two machines")
    facts = changes.pop("facts", {})
    made = wire(subject, revision, verdict, at=at, text=text, **changes)
    made["facts"] |= facts
    return Decision.model_validate_json(json.dumps(made))


def reviewed(name="c1", action="approve", *, reviewer="ann", reason=None, revision=2, **changes):
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
    at, key = to_milliseconds(made.decided_at), record_key(made.tenant_id, made.user_id)
    return InboundRecord(TopicName.of(made.verdict), partition, offset, at, key, made.to_bytes())


def records(*made):
    return [record(each, offset) for offset, each in enumerate(made)]


class FilledBoard(Board):
    """A board at NOW that takes Decisions and records."""

    def __init__(self, path=MEMORY):
        super().__init__(path, keys=KEYS, clock=lambda: NOW)

    def take(self, *made):
        self.add([one if isinstance(one, InboundRecord) else record(one, n) for n, one in enumerate(made)])


def filled(*made):
    board = FilledBoard()
    board.take(*made)
    return board


def names(page):
    return [row.subject_id for row in page.rows]


def audit(name="c1", action="approve", *, applied=True, tenant="acme", user="ann", offset=0, **changes):
    kind = "review_action" if applied else "refused_action"
    detail = {"action": action, "action_id": f"{name}-action", "kind": "claim", "user_id": user}
    outcome = ("human_approved", 2, "approved") if applied else ("unauthorized", 1, None)
    detail |= {"expected_revision": 1, "reason": None}
    detail |= dict(zip(("outcome", "revision", "verdict"), outcome, strict=True)) | changes.pop("detail", {})
    fields = {"at": NOW.isoformat(), "tenant_id": tenant, "actor": "mallory", "subject_id": name}
    event = AuditEvent(
        event_id=event_id(kind, detail["action_id"]),
        type=kind,
        decision_id=None,
        detail=detail,
        **fields,
        **changes,
    )
    value = event.model_dump_json().encode()
    return InboundRecord(TopicName.AUDIT, 0, offset, to_milliseconds(NOW), tenant.encode(), value)


def retraction(name, *affected, more=0, tenant="acme", user="ann", kind="claim", age=30):
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
    return InboundRecord(TopicName.RETRACTIONS, 0, 0, to_milliseconds(NOW), b"", json.dumps(value).encode())


def dead_letter(key, value, offset=0, error=None):
    headers = dead_letter_headers(error, "groundwire.claims", 3, 41, ()) if error else []
    return InboundRecord(TopicName.DEAD_LETTER, 0, offset, to_milliseconds(NOW) + offset, key, value, headers)
