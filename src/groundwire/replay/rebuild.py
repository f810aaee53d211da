"""Rebuilds state from the topics: reads the output topics to their ends and loads the decisions on them.

Approved claims are restored completely, pending and blocked ones as far as their topics' retention reaches; what a
person rejected, retracted or let expire stays blocked for as long as any Decision of it is kept. Claims that wait on
`deferred` are decided anew from there. What does not follow from its record, policy and facts is left out.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, Self

import structlog

from groundwire.checks.citations import CitationDetector
from groundwire.config import Settings
from groundwire.gate.build import Stamp
from groundwire.gate.claim_case import CheckFinding, ClaimInputs, dedup_query
from groundwire.gate.record import (
    ClaimPayload,
    HumanDecision,
    ReplyAttempt,
    ResponsePayload,
    claim_of,
    record_of,
)
from groundwire.gate.response_checks import CheckInputs
from groundwire.gate.types import parents_of
from groundwire.kafka.reader import Start, TopicSpan, follow
from groundwire.keys.seal_keys import required_seal_keys
from groundwire.logs import report_fault
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import (
    LAST_REVISION,
    CitationState,
    Decision,
    IngestionTier,
    Kind,
    ParentFact,
    Place,
    ReasonCode,
)
from groundwire.messages.erasure import Erasures
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.seals import seal_of
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.inputs import parse_decision, stored_origin
from groundwire.replay.proof import LEFT_OUT, Prover, open_prover
from groundwire.replay.review_closures import ReviewClosures, is_erased_action
from groundwire.replay.seals import read_sealed_hashes
from groundwire.replay.verify import VerifyStatus
from groundwire.state.model import Outcome, StoredOutcome, SubjectState
from groundwire.state.policies import KnownPolicies, PolicyStore
from groundwire.state.redis import RedisState

log = structlog.get_logger()

CHUNK: Final = 500
_PATIENCE: Final = 30.0

DECISIONS: Final = (TopicName.BLOCKED, TopicName.APPROVED, TopicName.REVIEW)
"""The topics with decisions; those that a person may have brought about come before what they supersede."""

PEOPLES_TOPICS: Final = (TopicName.RETRACTIONS, TopicName.AUDIT)
"""The topics that tell what people did for longer than what they blocked stands on its topic."""


class OutputReader(Protocol):
    """Reads output topics."""

    def __call__(self, *, topics: Sequence[TopicName] = DECISIONS) -> AsyncGenerator[bytes, None]:
        """Yield the values of topics, one topic after the other, from their beginnings to where they end now."""
        ...


class Rebuilder:
    """Rebuilds state, as the one worker that holds the lock.

    Attributes:
        counts: of the last rebuild, decisions by what came of deriving them.
        unsealed: records of output topics that it left out for want of a seal.
    """

    def __init__(
        self,
        state: RedisState,
        policy: Policy,
        read: OutputReader,
        *,
        quiet: float,
        proving: Callable[[], AbstractAsyncContextManager[Prover]] | None = None,
        read_sealed: Callable[[], Awaitable[frozenset[bytes]]] | None = None,
    ) -> None:
        self.unsealed = 0
        self._read_sealed = read_sealed
        self._sealed: frozenset[bytes] | None = None
        self.counts: Counter[VerifyStatus] = Counter()
        self._proving = proving
        self._state = state
        self._policy = policy
        self._read = read
        self._quiet = quiet

    @classmethod
    def of(cls, settings: Settings, state: RedisState, policy: Policy, policies: PolicyStore) -> Self:
        """Return the rebuilder that the settings describe; `policies`: those that decisions to be derived name."""
        proving = partial(open_prover, settings, KnownPolicies([policy], policies))
        read_sealed = None
        if settings.require_seals:
            read_sealed = partial(read_sealed_hashes, settings, required_seal_keys(settings))
        return cls(
            state,
            policy,
            partial(published, settings),
            quiet=settings.rebuild_wait,
            proving=proving if settings.rebuild_derives else None,
            read_sealed=read_sealed,
        )

    async def rebuild(self, *, only_lost: bool = False) -> bool:
        """Rebuild state and give it a new epoch. Raises: StateUnavailable, BrokerUnavailable.

        Returns:
            False where another worker rebuilds state, or has rebuilt it.
        """
        async with self._state.rebuilding() as rebuild:
            if rebuild is None or (only_lost and await self._state.read_epoch() is not None):
                return False
            await rebuild.clear()  # first, so that workers pause
            async with aclosing(self._read()) as values:
                in_flight = await anext(values, None) is not None
            if in_flight:
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
            left_out = sum(self.counts[status] for status in LEFT_OUT)
            log.info(
                "state.rebuilt",
                decisions=loaded,
                left_out=left_out + self.unsealed,
                **{status.value: count for status, count in self.counts.items()},
            )
            return True

    async def _stored(self) -> AsyncGenerator[StoredOutcome, None]:
        self._sealed = await self._read_sealed() if self._read_sealed else None
        async with self._proving() if self._proving else nullcontext() as prover:
            closures = ReviewClosures()
            async with aclosing(self._taken_in(PEOPLES_TOPICS)) as people:
                async for value in people:
                    closures.note(value)
                    if prover:
                        prover.note_event(value)
            if prover:
                async with aclosing(self._taken_in()) as decisions:
                    async for value in decisions:
                        prover.note_decision(value)
            self.unsealed = 0  # of the decisions alone, once each
            values = prover.keep(self._taken_in()) if prover else self._taken_in()
            async with aclosing(values):
                async for outcome in stored_outcomes(values, self._policy, closures):
                    yield outcome
            self.counts = prover.counts if prover else Counter()

    async def _taken_in(self, topics: Sequence[TopicName] = DECISIONS) -> AsyncGenerator[bytes, None]:
        """Yield the values of topics, but for those that want a seal; of seals themselves nothing is taken in."""
        async with aclosing(self._read(topics=topics)) as values:
            async for value in values:
                if self._sealed is None or hashlib.sha256(value).digest() in self._sealed:
                    yield value
                elif seal_of(value) is None:
                    self.unsealed += 1


async def published(
    settings: Settings, start: Start = "earliest", *, topics: Sequence[TopicName] = DECISIONS
) -> AsyncGenerator[bytes, None]:
    """Yield the values of output topics, from their beginnings or a time to where they end now; not what is erased.

    Raises: BrokerUnavailable, UsageError.
    """
    erasures = Erasures()
    name = settings.topic_prefix + TopicName.RETRACTIONS
    read = follow(settings.brokers, name, TopicSpan("earliest", until_end=True), _PATIENCE)
    async with aclosing(read) as records:
        async for record in records:
            erasures.note(record)
    for topic in topics:
        name = settings.topic_prefix + topic
        read = follow(settings.brokers, name, TopicSpan(start, until_end=True), _PATIENCE)
        async with aclosing(read) as records:  # a caller that stops early leaves no client open
            async for record in records:
                if record.value is None or erasures.cover_value(record.value):
                    continue
                if topic is not TopicName.AUDIT or not is_erased_action(record.value, erasures):
                    yield record.value


async def stored_outcomes(
    values: AsyncGenerator[bytes, None], policy: Policy, closures: ReviewClosures
) -> AsyncGenerator[StoredOutcome, None]:
    """Turn published Decisions back into what state holds, with what people's actions have made of them since.

    For a subject that an action closed, the Decision right before the action tells most. Earlier ones are yielded last,
    because state keeps the first outcome that it is given of a revision.
    """
    late: dict[Subject, tuple[int, StoredOutcome]] = {}
    async for value in values:
        decision = _decision(value)
        current = closures.current(decision) if decision else None
        outcome = _stored(current, policy, closures.affected(current)) if current else None
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
    decision = parse_decision(value)
    return decision if decision and 1 <= decision.revision <= LAST_REVISION else None


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
    evidence, facts = decision.evidence, decision.facts
    if evidence is None:
        return None
    claim = claim_of(decision)
    state = _state(decision)
    subject = subject_of_decision(decision)
    rejected = decision.reason_code in {ReasonCode.HUMAN_REJECTED, ReasonCode.RETRACTED}
    dedup = None
    # what could not be read or compared is not to be found, until a person decides it
    compared = facts.error is None and (facts.dedup is None or facts.dedup.status != "failed")
    indexed = rejected or state in {SubjectState.APPROVED, SubjectState.PENDING}
    if indexed and (compared or state is not SubjectState.PENDING):
        try:
            dedup = dedup_query(claim, policy)
        except Exception as exc:  # noqa: BLE001 - one text must not keep all others from coming back
            report_fault("rebuild.unreadable", exc)
    human = None
    if facts.review:
        edited = claim.content if facts.review.get("edited") else None
        human = HumanDecision(facts.review, edited, record_of(claim).decode())
    payload = ClaimPayload(
        stamp=_stamp(decision),
        scheme=facts.dedup.scheme if facts.dedup else "",
        base=ReasonCode(decision.reason_code),
        cap=None,
        capture_time=evidence.capture_time,
        metadata=evidence.metadata,
        inputs=ClaimInputs(_findings(decision), facts.attestation, facts.relevance, facts.error),
        human=human,
    )
    record = record_of(claim) if state == SubjectState.PENDING else b""
    joined = decision.conflicting_memory_id if state == SubjectState.JOINED else None
    return StoredOutcome(
        subject=subject,
        outcome=_recorded(decision, state, payload.to_bytes(), record),
        dedup=dedup,
        horizon=to_milliseconds(claim.validity_horizon) if claim.validity_horizon else 0,
        rejected=rejected,
        joined_to=subject._replace(subject_id=joined) if joined else None,
        parents=[parent for _, parent in parents_of(claim)],
    )


def _stored_response(decision: Decision) -> StoredOutcome | None:
    """Return what state holds of a response; its text stands on no output topic, and so not in state again."""
    report = decision.report
    if report is None:
        return None
    facts = decision.facts
    payload = ResponsePayload(
        stamp=_stamp(decision),
        code=ReasonCode(decision.reason_code),
        attempt=ReplyAttempt((report.get("regenerate") or {}).get("mode"), report.get("attempt")),
        inputs=CheckInputs(facts.entities, facts.relations, facts.verifier, facts.error, facts.attestation),
        extraction=facts.extraction,
        reply_to=facts.reply_to,
        review=facts.review,
    )
    state = _state(decision)
    if state is SubjectState.PENDING and facts.place != Place.FREE:
        state = SubjectState.REVIEW
    return StoredOutcome(
        subject=subject_of_decision(decision),
        outcome=_recorded(decision, state, payload.to_bytes(), b""),
        dedup=None,
        horizon=0,
    )


def _recorded(decision: Decision, state: SubjectState, payload: bytes, record: bytes) -> Outcome:
    dedup = decision.facts.dedup
    parents, ids = decision.facts.parents or [], decision.derived_from or []
    if len(parents) == len(ids):  # under their whole ids, which a large decision cuts
        parents = [ParentFact(id=name, state=one.state) for name, one in zip(ids, parents, strict=True)]
    return Outcome(
        state=state,
        tier=2 if state == SubjectState.REFUSED else list(IngestionTier).index(decision.tier) + 1,
        revision=decision.revision,
        fresh=False,
        origin=stored_origin(decision.origin),
        first_origin=stored_origin(decision.subject_origin) if decision.subject_origin else None,
        fingerprint=decision.fingerprint,
        dedup_status=dedup.status if dedup else "disabled",
        matches=dedup.matches if dedup else [],
        parents=parents,
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


def _stamp(decision: Decision) -> Stamp:
    policy = decision.policy
    return Stamp(decision.decided_at, decision.engine, policy.sha256, policy.version)


def _findings(decision: Decision) -> dict[str, CheckFinding]:
    """Return the citations' states by label; a long label is read in its place in the text again."""
    if not decision.citations:
        return {}
    content = decision.evidence.claim if decision.evidence else ""
    detected = CitationDetector().detect(content)
    labels: dict[tuple[str, int], str] = {(c.type, c.start): c.label for c in detected}
    findings: dict[str, CheckFinding] = {}
    for citation in decision.citations:
        label = labels.get((citation.type, citation.start), f"{citation.type}:{citation.value}")
        if (
            citation.state != CitationState.NOT_CHECKED
        ):  # the same may be cited again where the claim rests on it
            findings.setdefault(label, CheckFinding(citation.state, citation.detail, citation.checked_at))
    return findings
