"""The records to publish for what the gate decided (S0-02, X-03)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.response_case import fan_out
from groundwire.gate.tree import is_code, reviewed
from groundwire.gate.types import (
    Acted,
    Commented,
    DeadLetter,
    Decided,
    Deferred,
    Provisional,
    Refused,
    Result,
)
from groundwire.messages.base import format_time, from_milliseconds, to_milliseconds
from groundwire.messages.decisions import AuditEvent, AuditType, Decision, Kind, Place, Verdict
from groundwire.messages.headers import (
    ATTESTATION,
    OF_LETTERS,
    VALUE_OMITTED,
    InboundRecord,
    dead_letter_headers,
    decision_headers,
    deferred_headers,
    event_headers,
    passed,
)
from groundwire.messages.identity import decision_id, event_id, retraction_id, subject_of_decision
from groundwire.messages.records import Retraction
from groundwire.messages.seals import Seal
from groundwire.messages.topics import TopicName, record_key
from groundwire.replay.review_closures import closed_by
from groundwire.state.model import SubjectStatus

ACTOR: Final = "groundwire"
_NOTED: Final = {"comment": "commented", "pass": "passed"}

_SIGNATURE: Final = 300
"""Bytes of the longest signature."""


@dataclass(slots=True)
class Output:
    """A record to publish, and the input record it comes from.

    `timestamp`: None for the time of sending; `partition`: where it was published last.
    """

    topic: TopicName
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]
    cause: InboundRecord
    timestamp: int | None = None
    partition: int = field(default=-1, compare=False)


def outputs(results: Sequence[Result]) -> list[Output]:
    """Return the records to publish for a batch, in order."""
    return [output for result in results for output in _outputs(result)]


def followers(results: Sequence[Result]) -> list[Output]:
    """Return what decisions cause, published once they are acknowledged: claims and regenerate requests."""
    outgoing: list[Output] = []
    for result in results:
        if not isinstance(result, Decided) or result.decision.kind != Kind.RESPONSE:
            continue
        record, decision, request = result.record, result.decision, result.request
        key = record_key(decision.tenant_id, decision.user_id)
        for claim in fan_out(decision):
            headers = [("content-type", b"application/json"), *passed(record.headers)]
            value = claim.model_dump_json(exclude_unset=True).encode()
            outgoing.append(Output(TopicName.CLAIMS, key, value, headers, record))
        if request is not None:
            time = format_time(result.requested_at or decision.decided_at)
            headers = event_headers(
                "regenerate", request.request_id, time, decision.subject_id, record.headers
            )
            value = request.__pydantic_serializer__.to_json(request)
            outgoing.append(Output(TopicName.REGENERATE, key, value, headers, record))
    return outgoing


def unpublishable(output: Output, why: str) -> Output:
    """Return the dead letter of a record whose result the broker will never take, without headers, which may be why."""
    error = RecordError(ErrorCode.UNPUBLISHABLE, f"the record for {output.topic} cannot be published: {why}")
    return _without_headers(_dead_letter(output.cause, error))


def reductions(letter: Output) -> Iterator[Output]:
    """Yield a dead letter with less and less of its record, for a topic that does not take all of it."""
    yield letter
    yield _without_headers(letter)
    if letter.value is not None:
        omitted = f"{letter.cause.sha256} {len(letter.value)}".encode()
        letter = replace(letter, value=None, headers=[*letter.headers, (VALUE_OMITTED, omitted)])
    yield letter
    letter = _without_headers(letter)
    yield letter
    yield replace(letter, key=None)


def _without_headers(letter: Output) -> Output:
    """Keep of the record's own headers only the signature."""
    kept = [
        (name, value)
        for name, value in letter.headers
        if name in OF_LETTERS or (name == ATTESTATION and value is not None and len(value) <= _SIGNATURE)
    ]
    return replace(letter, headers=kept)


def worker_event(kind: AuditType, cause: dict[str, Any], at: datetime, *, recurs: bool = False) -> AuditEvent:
    """Return the audit event of a worker, named by `cause`, and by the time if it `recurs`; it has no tenant."""
    return _event(kind, {**cause, "at": format_time(at)} if recurs else cause, at, detail=cause)


def of_worker(event: AuditEvent) -> Output:
    """Return the record of an event that comes of no input record."""
    return _of_event(InboundRecord(None, 0, 0, to_milliseconds(event.at), None, None), event)


def of_seal(seal: Seal) -> Output:
    """Return the audit event of a seal, named by its head."""
    head = seal.head
    place = InboundRecord(head.topic, head.partition, head.end, to_milliseconds(head.at), None, None)
    return _audit(place, "seal", head.sha256, head.at, detail=seal.detail())


def of_head(seal: Seal) -> Output:
    """Return the record on `heads` of a seal, which replaces that of the seal before it."""
    key, value = seal.head.input.encode(), seal.signed.model_dump_json().encode()
    cause = InboundRecord(seal.head.topic, seal.head.partition, seal.head.end, 0, None, None)
    return Output(TopicName.HEADS, key, value, [("content-type", b"application/json")], cause)


def _outputs(result: Result) -> Iterator[Output]:
    record = result.record
    match result:
        case Decided(decision=decision):
            yield _decision(record, decision)
            yield from _enqueued(record, decision)
            if failure := ((decision.report or {}).get("quotes") or {}).get("failure"):
                # no quote of the response is in its source (S1-40, S1-42)
                yield _of_decision(record, "evidence_failure", decision, failure)
        case Provisional(decision=decision):
            yield _decision(record, decision)
            yield _deferred(record, record_key(decision.tenant_id, decision.user_id))
        case Deferred(key=key):
            yield _deferred(record, key or record.key)
        case DeadLetter(error=error):
            yield _dead_letter(record, error)
            origin = record.origin
            place = {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset}
            detail = {"code": error.code, **place}
            cause = origin.model_dump(mode="json")
            yield _audit(record, "dead_letter", cause, origin.timestamp, detail=detail)
        case Acted(decision=decision, retraction=retraction):
            yield _decision(record, decision)
            yield _acted(result)
            yield from _enqueued(record, decision)
            if retraction is not None:
                yield from _retracted(record, retraction, result.review.action_id)
        case Refused(code=code, current=current):
            found = {"outcome": code, **_status(current)}
            yield _action("refused_action", result, None, found)
        case Commented(review=review, current=current):
            at = decision_id(review.subject, current.revision)
            yield _action("review_action", result, at, {"outcome": _NOTED[review.action], **_status(current)})


def _decision(record: InboundRecord, decision: Decision) -> Output:
    return Output(
        TopicName.of(decision.verdict),
        record_key(decision.tenant_id, decision.user_id),
        decision.to_bytes(),
        decision_headers(decision, record.headers),
        record,
    )


def _enqueued(record: InboundRecord, decision: Decision) -> Iterator[Output]:
    if decision.facts.place == Place.FREE:
        detail = {"reason_code": decision.reason_code, "revision": decision.revision}
        yield _of_decision(record, "enqueue", decision, detail)


def _deferred(record: InboundRecord, key: bytes | None) -> Output:
    return Output(TopicName.DEFERRED, key, record.value, deferred_headers(record), record)


def _dead_letter(record: InboundRecord, error: RecordError) -> Output:
    place = record.topic or "", record.partition, record.offset
    headers = dead_letter_headers(error, *place, record.headers, record.timestamp)
    return Output(TopicName.DEAD_LETTER, record.key, record.value, headers, record, record.timestamp)


def _of_decision(
    record: InboundRecord, kind: AuditType, decision: Decision, detail: dict[str, Any]
) -> Output:
    cause = decision.origin.__pydantic_serializer__.to_python(decision.origin, mode="json")
    return _audit(record, kind, cause, decision.decided_at, detail=detail, **_ids(decision))


def _ids(of: Decision | Retraction) -> dict[str, str]:
    return {name: getattr(of, name) for name in ("tenant_id", "subject_id", "decision_id")}


def _status(current: SubjectStatus | None) -> dict[str, Any]:
    return {
        "revision": current.revision if current else None,
        "state": current.state.name.lower() if current else None,
    }


def _acted(result: Acted) -> Output:
    """Report an action by its own revision, though the subject may have moved on."""
    review, decision = result.review, result.decision
    superseded = decision.revision != result.revision
    # only an approval or an overruled block can be superseded
    own = reviewed(review.action, expired=False, duplicate=False)
    detail: dict[str, Any] = {
        "outcome": own.code if superseded else decision.reason_code,
        "revision": result.revision,
        "verdict": Verdict.of(own.tier) if superseded else decision.verdict,
    }
    if not superseded and decision.verdict == Verdict.BLOCKED:
        # for rebuilds: `audit` is retained longer than `blocked`
        detail["closed"] = closed_by(decision)
    subject = subject_of_decision(decision)
    return _action("review_action", result, decision_id(subject, result.revision), detail)


def _action(
    kind: AuditType, result: Acted | Refused | Commented, decision: str | None, detail: dict[str, Any]
) -> Output:
    """Report an action, at the time of its first record.

    Its id names the event of its outcome. A refusal that is not recorded (`at` is 0) may use the id of an action to
    come, so the record's origin names that event.
    """
    record, review = result.record, result.review
    copied = ("action", "action_id", "kind", "user_id", "expected_revision")
    reason = review.reason if review.reason and is_code(review.reason) else None
    return _audit(
        record,
        kind,
        review.action_id if result.at else record.origin.model_dump(mode="json"),
        from_milliseconds(result.at) if result.at else record.origin.timestamp,
        tenant_id=review.tenant_id,
        actor=review.reviewer,
        subject_id=review.subject_id,
        decision_id=decision,
        detail={**{name: getattr(review, name) for name in copied}, "reason": reason, **detail},
    )


def _retracted(record: InboundRecord, retraction: Retraction, action_id: str) -> Iterator[Output]:
    time = format_time(retraction.at)
    ce_id = retraction_id(retraction.decision_id)
    headers = event_headers("retraction", ce_id, time, retraction.subject_id, record.headers)
    key = record_key(retraction.tenant_id, retraction.user_id)
    value = retraction.__pydantic_serializer__.to_json(retraction)
    yield Output(TopicName.RETRACTIONS, key, value, headers, record)
    more = (retraction.truncated or {}).get("affected", 0)
    detail = {"affected": len(retraction.affected) + more, "kind": retraction.kind}
    event = {"actor": retraction.actor, "detail": detail, **_ids(retraction)}
    yield _audit(record, "retraction", action_id, retraction.at, **event)


def _audit(record: InboundRecord, kind: AuditType, cause: Any, at: datetime, **fields: Any) -> Output:  # noqa: ANN401
    return _of_event(record, _event(kind, cause, at, **fields))


def _event(kind: AuditType, cause: Any, at: datetime, **fields: Any) -> AuditEvent:  # noqa: ANN401
    ours = {"tenant_id": "", "actor": ACTOR, "subject_id": None, "decision_id": None}
    return AuditEvent.made(event_id=event_id(kind, cause), type=kind, at=at, **(ours | fields))


def _of_event(record: InboundRecord, event: AuditEvent) -> Output:
    time, subject = format_time(event.at), event.subject_id or ""
    headers = event_headers("audit", event.event_id, time, subject, record.headers)
    value = event.__pydantic_serializer__.to_json(event)
    return Output(TopicName.AUDIT, event.tenant_id.encode(), value, headers, record)
