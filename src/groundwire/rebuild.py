"""State from the topics: reads the output topics to their ends and loads what they say.

Approved claims come back wholly, pending and blocked ones as far as their topics' retention reaches; what a person
rejected, retracted or let expire stays blocked for as long as any Decision of it stands. Claims that wait on
`deferred` are decided anew from there.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final, Protocol

import structlog
from pydantic import ValidationError

from groundwire.checks.citations import CitationDetector
from groundwire.client.tail import Span, Start, follow
from groundwire.client.unasked import unasked
from groundwire.decide.claims import Finding
from groundwire.gate.closings import Closings
from groundwire.gate.dedup import dedup_query
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import parents_of
from groundwire.gate.recorded import Payload, claim_of, record_of
from groundwire.gate.recorded_responses import ResponsePayload
from groundwire.messages.base import to_milliseconds
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import (
    LAST_REVISION,
    Decision,
    Kind,
    Origin,
    ParentFact,
    Place,
    ReasonCode,
)
from groundwire.messages.identity import Subject
from groundwire.messages.tiers import IngestionTier
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.settings import Settings
from groundwire.state.model import DedupQuery, Outcome, RecordOrigin, StoredOutcome, SubjectState
from groundwire.state.redis import RedisState

log = structlog.get_logger()

CHUNK: Final = 500
_PATIENCE: Final = 30.0

_REJECTED: Final = {ReasonCode.HUMAN_REJECTED, ReasonCode.RETRACTED}

DECISIONS: Final = (TopicName.BLOCKED, TopicName.APPROVED, TopicName.REVIEW)
"""The topics with decisions; those that a person may have brought about come before what they supersede."""

PEOPLE: Final = (TopicName.RETRACTIONS, TopicName.AUDIT)
"""The topics that tell what people did for longer than what they blocked stands on its topic."""


class Read(Protocol):
    """Reads output topics."""

    def __call__(self, *, topics: Sequence[TopicName] = DECISIONS) -> AsyncGenerator[bytes, None]:
        """Yield the values of topics, one topic after the other, from their beginnings to where they end now."""
        ...


class Rebuilder:
    """Rebuilds state, as the one worker that holds the lock.

    Args:
        state: what is rebuilt.
        policy: how claims are indexed.
        read: reads the output topics.
        quiet: seconds to wait first, so that nothing is in flight any more; not at all on empty topics.
    """

    def __init__(
        self,
        state: RedisState,
        policy: Policy,
        read: Read,
        *,
        quiet: float,
    ) -> None:
        self._state = state
        self._policy = policy
        self._read = read
        self._quiet = quiet

    async def rebuild(self, *, only_lost: bool = False) -> bool:
        """Rebuild state and give it a new epoch.

        Args:
            only_lost: leave state alone that carries an epoch by the time that the lock is ours: another worker
                has rebuilt it meanwhile, and decides on it.

        Returns:
            False where another worker is at it, or was.

        Raises:
            StateUnavailable: state went away meanwhile; start over.
            BrokerUnavailable: the topics cannot be read.
        """
        async with self._state.rebuilding() as rebuild:
            if rebuild is None or (only_lost and await self._state.read_epoch() is not None):
                return False
            await rebuild.clear()  # first, so that workers pause
            if await self._any():
                log.warning("state.rebuild_waits", seconds=self._quiet, why="nothing may be in flight")
                await asyncio.sleep(self._quiet)
            loaded = 0
            chunk: list[StoredOutcome] = []
            async with aclosing(self._stored()) as stored:
                async for outcome in stored:
                    chunk.append(outcome)
                    if len(chunk) == CHUNK:
                        loaded += await rebuild.load(chunk)
                        chunk = []
            loaded += await rebuild.load(chunk) if chunk else 0
            await rebuild.start_epoch(secrets.token_hex(8))
            log.info("state.rebuilt", decisions=loaded)
            return True

    async def _any(self) -> bool:
        async with aclosing(self._read()) as values:
            async for _ in values:
                return True
        return False

    async def _stored(self) -> AsyncGenerator[StoredOutcome, None]:
        closings = await self._closings()
        async with aclosing(self._read()) as values:
            async for outcome in stored_outcomes(values, self._policy, closings):
                yield outcome

    async def _closings(self) -> Closings:
        closings = Closings()
        async with aclosing(self._read(topics=PEOPLE)) as values:
            async for value in values:
                closings.note(value)
        return closings


async def published(
    settings: Settings, start: Start = "earliest", *, topics: Sequence[TopicName] = DECISIONS
) -> AsyncGenerator[bytes, None]:
    """Yield the values of output topics, from their beginnings or a time to where they end now.

    Raises:
        BrokerUnavailable: the broker does not answer, or stopped answering.
        UsageError: a topic does not exist.
    """
    for topic in topics:
        name = settings.topic_prefix + topic
        read = follow(settings.brokers, name, Span(start, until_end=True), _PATIENCE)
        with unasked(f"{name} cannot be read"):
            async with aclosing(read) as records:  # who stops in between leaves no client open
                async for record in records:
                    if record.value is not None:
                        yield record.value


async def stored_outcomes(
    values: AsyncGenerator[bytes, None], policy: Policy, closings: Closings
) -> AsyncGenerator[StoredOutcome, None]:
    """Turn published Decisions back into what state holds, with what people's actions have made of them since.

    Of a subject that an action closed the Decision right before it tells most, so earlier ones come last: state
    keeps the first that it hears of a revision.
    """
    late: dict[Subject, tuple[int, StoredOutcome]] = {}
    async for value in values:
        decision = _decision(value)
        current = closings.current(decision) if decision else None
        outcome = _stored(current, policy, closings.affected(current)) if current else None
        if decision is None or current is None or outcome is None:
            continue
        if current.revision <= decision.revision + 1:
            yield outcome
        elif late.get(outcome.subject, (0, outcome))[0] < decision.revision:
            late[outcome.subject] = decision.revision, outcome
    for _, outcome in late.values():
        yield outcome


def stored_outcome(value: bytes, policy: Policy) -> StoredOutcome | None:
    """Turn a published Decision back into what state holds of it; None for what state does not hold.

    A provisional decision (revision 0) is none of state's, and neither is a record that is no Decision.
    """
    decision = _decision(value)
    return _stored(decision, policy, b"") if decision else None


def _decision(value: bytes) -> Decision | None:
    try:
        decision = Decision.model_validate_json(value)
    except ValidationError:
        return None
    return decision if 1 <= decision.revision <= LAST_REVISION else None


def _stored(decision: Decision, policy: Policy, affected: bytes) -> StoredOutcome | None:
    """Return what state holds of a decision; `affected` is what it holds of a retracted one beside.

    None too for one that no gate wrote, such as with a reason that there is not: facts and report may hold anything.
    """
    try:
        stored = (
            _stored_response(decision) if decision.kind == Kind.RESPONSE else _stored_claim(decision, policy)
        )
    except Exception as exc:  # noqa: BLE001 - one record must not keep all others from coming back
        report_fault("rebuild.unreadable", exc)
        return None
    if stored is None or not affected:
        return stored
    return replace(stored, outcome=replace(stored.outcome, record=affected))


def _stored_claim(decision: Decision, policy: Policy) -> StoredOutcome | None:
    if decision.evidence is None:
        return None
    claim = claim_of(decision)
    state = _state(decision)
    subject = Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id)
    joined = decision.conflicting_memory_id if state == SubjectState.JOINED else None
    horizon = claim.validity_horizon
    rejected = decision.reason_code in _REJECTED
    indexed = rejected or state in {SubjectState.APPROVED, SubjectState.PENDING}
    return StoredOutcome(
        subject=subject,
        outcome=_outcome(decision, state, claim),
        dedup=_query(claim, policy) if indexed and _was_compared(decision, state) else None,
        horizon=to_milliseconds(horizon) if horizon else 0,
        rejected=rejected,
        joined_to=subject._replace(subject_id=joined) if joined else None,
        parents=[parent for _, parent in parents_of(claim)],
    )


def _query(claim: Claim, policy: Policy) -> DedupQuery | None:
    """Return how a claim is found; None where its text cannot be read, as when a person decided it."""
    try:
        return dedup_query(claim, policy)
    except Exception as exc:  # noqa: BLE001 - one text must not keep all others from coming back
        report_fault("rebuild.unreadable", exc)
    return None


def _stored_response(decision: Decision) -> StoredOutcome | None:
    """Return what state holds of a response; its text stands on no output topic, and so not in state again."""
    report = decision.report
    if report is None:
        return None
    facts = decision.facts
    payload = ResponsePayload(
        decided_at=decision.decided_at,
        engine=decision.engine,
        policy_sha256=decision.policy.sha256,
        policy_version=decision.policy.version,
        code=ReasonCode(decision.reason_code),
        asked_mode=(report.get("regenerate") or {}).get("mode"),
        attempt=report.get("attempt"),
        entities=facts.entities,
        relations=facts.relations,
        verifier=facts.verifier,
        extraction=facts.extraction,
        reply_to=facts.reply_to,
        review=facts.review,
        error=facts.error,
    )
    state = _state(decision)
    if state is SubjectState.PENDING and facts.place != Place.FREE:
        state = SubjectState.REVIEW
    return StoredOutcome(
        subject=Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id),
        outcome=_recorded(decision, state, payload.to_bytes(), b""),
        dedup=None,
        horizon=0,
    )


def _was_compared(decision: Decision, state: SubjectState) -> bool:
    """Say whether the claim is to be found: what could not be read or compared is not, until a person decides it."""
    if state is not SubjectState.PENDING:
        return True
    dedup = decision.facts.dedup
    return decision.facts.error is None and (dedup is None or dedup.status != "failed")


def _outcome(decision: Decision, state: SubjectState, claim: Claim) -> Outcome:
    record = record_of(claim) if state == SubjectState.PENDING else b""
    return _recorded(decision, state, _payload(decision, claim).to_bytes(), record)


def _recorded(decision: Decision, state: SubjectState, payload: bytes, record: bytes) -> Outcome:
    dedup = decision.facts.dedup
    return Outcome(
        state=state,
        tier=2 if state == SubjectState.REFUSED else list(IngestionTier).index(decision.tier) + 1,
        revision=decision.revision,
        fresh=False,
        origin=_origin(decision.origin),
        first_origin=_origin(decision.subject_origin) if decision.subject_origin else None,
        fingerprint=decision.fingerprint,
        dedup_status=dedup.status if dedup else "disabled",
        matches=dedup.matches if dedup else [],
        parents=_parents(decision),
        place=decision.facts.place,
        payload=payload,
        record=record,
    )


def _state(decision: Decision) -> SubjectState:
    if decision.tier == IngestionTier.AUTO_APPROVE:
        return SubjectState.APPROVED
    if decision.tier == IngestionTier.FLAG_REVIEW:
        joined = decision.reason_code == ReasonCode.PENDING_DUPLICATE
        return SubjectState.JOINED if joined else SubjectState.PENDING
    return SubjectState.REFUSED if decision.retryable else SubjectState.BLOCKED


def _payload(decision: Decision, claim: Claim) -> Payload:
    evidence = decision.evidence
    facts = decision.facts
    return Payload(
        capture_time=evidence.capture_time if evidence else decision.decided_at,
        decided_at=decision.decided_at,
        engine=decision.engine,
        policy_sha256=decision.policy.sha256,
        policy_version=decision.policy.version,
        scheme=facts.dedup.scheme if facts.dedup else "",
        base=ReasonCode(decision.reason_code),
        cap=None,
        metadata=evidence.metadata if evidence else {},
        findings=_findings(decision),
        attestation=facts.attestation,
        relevance=facts.relevance,
        review=facts.review,
        content=claim.content if (facts.review or {}).get("edited") else None,
        record=record_of(claim).decode() if facts.review else None,
        error=facts.error,
    )


def _parents(decision: Decision) -> list[ParentFact]:
    """Return the parents' states under their whole ids, which a large decision cuts."""
    parents, ids = decision.facts.parents or [], decision.derived_from or []
    if len(parents) != len(ids):
        return parents
    return [ParentFact(id=name, state=parent.state) for name, parent in zip(ids, parents, strict=True)]


def _findings(decision: Decision) -> dict[str, Finding]:
    """Return the citations' states by label; a long label is read in its place in the text again."""
    if not decision.citations:
        return {}
    content = decision.evidence.claim if decision.evidence else ""
    detected = CitationDetector().detect(content)
    labels: dict[tuple[str, int], str] = {(c.type, c.start): c.label for c in detected}
    findings: dict[str, Finding] = {}
    for citation in decision.citations:
        label = labels.get((citation.type, citation.start), f"{citation.type}:{citation.value}")
        findings.setdefault(label, Finding(citation.state, citation.detail, citation.checked_at))
    return findings


def _origin(origin: Origin) -> RecordOrigin:
    timestamp = to_milliseconds(origin.timestamp)
    return RecordOrigin(origin.topic or "", origin.partition, origin.offset, timestamp, origin.sha256)
