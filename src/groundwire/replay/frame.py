"""What frames a derived decision beside its case: identity, places, times; and the facts of an action."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from groundwire.decide.build import Envelope
from groundwire.gate.drafts import PreparedReview
from groundwire.messages.base import sha256_hex, to_milliseconds
from groundwire.messages.decisions import Decision, Origin
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import ReviewDecision
from groundwire.policy import Policy
from groundwire.version import __version__


def origin_of(recorded: Decision, value: bytes) -> Origin:
    """Return where the record stood; its time is the clock of the facts, its hash that of its bytes."""
    place = recorded.origin
    return Origin(
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
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


def review_fact(recorded: Decision, value: bytes, review: ReviewDecision, *, edited: bool) -> dict[str, Any]:
    """Return `facts.review`: what the action says, and the key that vouched for it."""
    key_id = (recorded.facts.review or {}).get("key_id")
    return PreparedReview(inbound_of(recorded, value), review, "", key_id).fact(edited=edited)
