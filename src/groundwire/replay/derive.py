"""A decision derived again: a pure function of (record, policy, facts), by the code that decides on the stream.

Of the recorded decision only what came from outside is taken over: `facts`, the citations' states, where the
records stood and when it was decided. What of the facts follows from record and policy is derived as well.
"""

from __future__ import annotations

from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.identity import Subject
from groundwire.messages.responses import LlmResponse
from groundwire.messages.reviews import ReviewDecision
from groundwire.policy import Policy
from groundwire.replay import claims, responses
from groundwire.replay.inputs import Inputs, Mismatch, named


def rederive(recorded: Decision, inputs: Inputs, policy: Policy) -> Decision:
    """Derive a decision again.

    Args:
        recorded: where the facts stand.
        inputs: the records that it names.
        policy: what decides; the recorded one gives the recorded decision.

    Raises:
        Mismatch: records and facts do not fit together.
        RecordError: the record has no canonical form.
    """
    record = inputs.record
    if isinstance(record, ReviewDecision):
        return _reviewed(recorded, inputs, record, policy)
    if recorded.facts.review is not None:
        raise Mismatch("$.facts.review", "the record is not what a person decided")
    if isinstance(record, Claim):
        return claims.decide(recorded, inputs.value, record, policy)
    return responses.decide(recorded, inputs.value, record, policy)


def _reviewed(recorded: Decision, inputs: Inputs, review: ReviewDecision, policy: Policy) -> Decision:
    first = inputs.first
    if first is None:
        raise Mismatch("$.subject_origin", "a person decided, so the first record is named")
    if named(first) != Subject(review.tenant_id, review.user_id, Kind(review.kind), review.subject_id):
        raise Mismatch("$.subject_origin.sha256", "the first record is not what the person decided about")
    if isinstance(first, LlmResponse):
        return responses.review(recorded, inputs, review, policy)
    return claims.review(recorded, inputs, review, policy)
