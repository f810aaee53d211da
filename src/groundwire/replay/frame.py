"""What frames a derived decision beside its case: identity, places, times; and the facts of an action."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from groundwire.decide.build import Envelope
from groundwire.gate.drafts import PreparedReview
from groundwire.messages.base import sha256_hex, to_milliseconds
from groundwire.messages.decisions import Decision, Origin
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import ReviewDecision
from groundwire.policy import Policy
from groundwire.version import __version__

_REVISIONS: Final = 20
"""Revisions among which that of an id is looked for: a subject that is refused again and again may have more."""


def origin_of(recorded: Decision, value: bytes) -> Origin:
    """Return where the record stood; its time is the clock of the facts, its hash that of its bytes."""
    place = recorded.origin
    return Origin(
        topic=place.topic or None,
        partition=max(place.partition, 0),
        offset=max(place.offset, 0),
        timestamp=recorded.facts.clock,
        sha256=sha256_hex(value),
    )


def inbound_of(recorded: Decision, value: bytes) -> InboundRecord:
    """Return the record as it came in, but for its key and headers."""
    place = recorded.origin
    clock = to_milliseconds(recorded.facts.clock)
    return InboundRecord(place.topic, place.partition, place.offset, clock, None, value)


def envelope(
    recorded: Decision,
    origin: Origin,
    policy: Policy,
    *,
    revision: int,
    fingerprint: str,
    capture_time: datetime,
    metadata: dict[str, Any],
) -> Envelope:
    """Frame a decision of revision 1 or higher."""
    return Envelope(
        revision=revision,
        fingerprint=fingerprint,
        origin=origin,
        subject_origin=recorded.subject_origin if revision > 1 else None,
        decided_at=recorded.decided_at,
        capture_time=capture_time,
        metadata=metadata,
        engine=__version__,
        policy_sha256=policy.sha256,
        policy_version=policy.version,
    )


def revision_of(recorded: Decision, subject: Subject) -> int | None:
    """Return the revision that the decision's id was made of; None where it was made of no such revision."""
    candidates = (recorded.revision, *range(1, _REVISIONS)) if recorded.revision > 0 else range(1, _REVISIONS)
    return next((n for n in candidates if decision_id(subject, n) == recorded.decision_id), None)


def review_fact(recorded: Decision, value: bytes, review: ReviewDecision, *, edited: bool) -> dict[str, Any]:
    """Return `facts.review`: what the action says, and the key that vouched for it."""
    key_id = (recorded.facts.review or {}).get("key_id")
    return PreparedReview(inbound_of(recorded, value), review, "", key_id).fact(edited=edited)
