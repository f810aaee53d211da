"""Rebuilds state from the decisions on the output topics.

Approved claims are restored completely, pending and blocked ones as far as retention reaches; what a person rejected,
retracted or let expire stays blocked while any Decision of it is kept. Claims on `deferred` are decided again.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Final, Protocol, Self

import structlog

from groundwire import metrics
from groundwire.checks.citations import CitationDetector
from groundwire.checks.hedges import HedgeAction
from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.gate.build import Stamp
from groundwire.gate.claim_case import CheckFinding, ClaimInputs, dedup_query
from groundwire.gate.kinds import Policies
from groundwire.gate.record import (
    ClaimPayload,
    HumanDecision,
    ReplyAttempt,
    ResponsePayload,
    claim_of,
    record_of,
)
from groundwire.gate.response_checks import CheckInputs
from groundwire.gate.tree import evaluate_tree
from groundwire.gate.types import LARGE, parents_of
from groundwire.kafka.reader import OffsetRange, RecordPlace, Start, TopicReader, follow, open_reader
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
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.seals import seal_of
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.inputs import stored_origin
from groundwire.replay.reading import INPUTS, PATIENCE
from groundwire.replay.review_closures import ReviewClosures, is_erased_action
from groundwire.replay.sealed_topics import read_sealed_hashes
from groundwire.replay.store import RecordStore
from groundwire.replay.verify import Verifier, VerifyFinding, VerifyStatus, on_topics
from groundwire.state.model import Outcome, StoredOutcome, SubjectState
from groundwire.state.policies import KnownPolicies, PolicyStore
from groundwire.state.redis import Rebuild, RedisState

log = structlog.get_logger()

CHUNK: Final = 500

_YIELD: Final = 10  # decisions that are derived between two turns of the event loop

TELL_SECONDS: Final = 10.0

LEFT_OUT: Final = frozenset({VerifyStatus.DIFFERS, VerifyStatus.CONTRADICTED})

DECISIONS: Final = (TopicName.BLOCKED, TopicName.APPROVED, TopicName.REVIEW)
"""The topics with decisions; a person's decision comes before the one that it supersedes."""

PEOPLES_TOPICS: Final = (TopicName.RETRACTIONS, TopicName.AUDIT)
"""The topics with people's actions, which are retained longer than `blocked`."""


class OutputReader(Protocol):
    def __call__(self, *, topics: Sequence[TopicName] = DECISIONS) -> AsyncGenerator[bytes, None]: ...


class Rebuilder:
    """Rebuilds state, as the one worker that holds the lock.

    `counts`: decisions of the last rebuild by the status of deriving them; `unsealed`: records left out without a seal.
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
        count: Callable[[], Awaitable[int]] | None = None,
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
        self._count = count
        self._progress = Progress(0)

    @classmethod
    def of(cls, settings: Settings, state: RedisState, policy: Policy, policies: PolicyStore) -> Self:
        proving = partial(open_prover, settings, KnownPolicies([policy], policies))
        read_sealed = None
        if settings.require_seals:
            read_sealed = partial(read_sealed_hashes, settings, required_seal_keys(settings))
        return cls(
            state,
            policy,
            partial(published, settings),
            quiet=settings.rebuild_wait,
            # a seal says whose decision it is: the worker's, that derived it
            proving=proving if settings.rebuild_derives and not settings.require_seals else None,
            read_sealed=read_sealed,
            count=partial(count_published, settings),
        )

    async def rebuild(self, *, only_lost: bool = False) -> bool:
        """Rebuild state under a new epoch; False: another worker does, or did.

        Raises: StateUnavailable, BrokerUnavailable.
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
            loaded = await self._load(rebuild)
            await rebuild.start_epoch(secrets.token_hex(8))
            left_out = sum(self.counts[status] for status in LEFT_OUT)
            log.info(
                "state.rebuilt",
                decisions=loaded,
                left_out=left_out + self.unsealed,
                **{status.value: count for status, count in self.counts.items()},
            )
            return True

    async def _load(self, rebuild: Rebuild) -> int:
        """Load all outcomes; one chunk is on its way to state while the next is derived."""
        loaded = 0
        self._progress = progress = Progress(await self._count() if self._count else 0)
        async with aclosing(self._stored()) as stored, aclosing(_chunks(stored)) as chunks:
            loading: asyncio.Task[int] | None = None
            try:
                async for chunk in chunks:
                    loaded += await loading if loading else 0
                    loading = asyncio.create_task(rebuild.load(chunk))
                    progress.tell()
                loaded += await loading if loading else 0
            finally:
                if loading:
                    await asyncio.wait({loading})
        return loaded

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
                async with aclosing(self._taken_in()) as published:
                    async for value in published:
                        prover.note_decision(value)
            self.unsealed = 0  # of the decisions alone, once each
            values = self._progress.counted(self._taken_in())
            decisions = prover.keep(values) if prover else parsed(values)
            async with aclosing(decisions):
                async for outcome in _outcomes(decisions, self._policy, closures):
                    yield outcome
            self.counts = prover.counts if prover else Counter()

    async def _taken_in(self, topics: Sequence[TopicName] = DECISIONS) -> AsyncGenerator[bytes, None]:
        async with aclosing(self._read(topics=topics)) as values:
            async for value in values:
                if self._sealed is None or hashlib.sha256(value).digest() in self._sealed:
                    yield value
                elif seal_of(value) is None:
                    self.unsealed += 1


async def published(
    settings: Settings, start: Start = "earliest", *, topics: Sequence[TopicName] = DECISIONS
) -> AsyncGenerator[bytes, None]:
    """Yield the values of output topics up to their current ends, without erased ones.

    Raises: BrokerUnavailable, UsageError.
    """

    def read(topic: TopicName, start: Start) -> AsyncGenerator[InboundRecord, None]:
        return follow(settings.brokers, {settings.topic_prefix + topic: start}, PATIENCE, until_end=True)

    erasures = Erasures()
    async for record in read(TopicName.RETRACTIONS, "earliest"):
        erasures.note(record)
    for topic in topics:
        async with aclosing(read(topic, start)) as records:  # a caller that stops early leaves no client open
            async for record in records:
                if record.value is None or erasures.cover_value(record.value):
                    continue
                if topic is not TopicName.AUDIT or not is_erased_action(record.value, erasures):
                    yield record.value


async def _chunks(outcomes: AsyncIterator[StoredOutcome]) -> AsyncGenerator[list[StoredOutcome], None]:
    chunk: list[StoredOutcome] = []
    async for outcome in outcomes:
        chunk.append(outcome)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


async def count_published(settings: Settings) -> int:
    """Count the records on the topics of decisions. Raises: BrokerUnavailable, UsageError."""
    async with open_reader(settings.brokers, PATIENCE) as reader:
        ranges = await reader.ranges(*(settings.topic_prefix + topic for topic in DECISIONS))
        return sum(each.end - each.start for each in ranges)


class Progress:
    """How far a rebuild is: records read of those that the topics held when it began, in log and metrics."""

    def __init__(self, total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._began = self._told = clock()
        self.done = 0

    async def counted(self, values: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        async with aclosing(values):
            async for value in values:
                self.done += 1
                yield value

    def tell(self) -> None:
        """Set the metrics, and log every ten seconds."""
        now, left = self._clock(), max(0, self._total - self.done)
        metrics.REBUILD_DONE.set(self.done)
        metrics.REBUILD_LEFT.set(left)
        if now - self._told >= TELL_SECONDS:
            self._told = now
            rate = self.done / (now - self._began)
            log.info(
                "state.rebuilding",
                decisions=self.done,
                left=left,
                a_second=round(rate),
                seconds_left=round(left / rate),
            )


async def parsed(values: AsyncGenerator[bytes, None]) -> AsyncGenerator[Decision, None]:
    """Yield the values that are Decisions."""
    async with aclosing(values):
        async for value in values:
            if decision := Decision.try_parse(value):
                yield decision


def stored_outcomes(
    values: AsyncGenerator[bytes, None], policy: Policy, closures: ReviewClosures
) -> AsyncGenerator[StoredOutcome, None]:
    """Turn the values of published Decisions into stored outcomes; see `_outcomes`."""
    return _outcomes(parsed(values), policy, closures)


async def _outcomes(
    decisions: AsyncGenerator[Decision, None], policy: Policy, closures: ReviewClosures
) -> AsyncGenerator[StoredOutcome, None]:
    """Turn published Decisions into stored outcomes, with the changes that people's actions made since.

    For a subject that an action closed, the Decision right before the action holds most. Earlier ones are yielded last,
    because state keeps the first outcome that it is given of a revision.
    """
    late: dict[Subject, tuple[int, StoredOutcome]] = {}
    async for decision in decisions:
        if not 1 <= decision.revision <= LAST_REVISION:  # provisional, or no number
            continue
        current = closures.current(decision)
        outcome = _stored(current, policy, closures.affected(current))
        if outcome is None:
            continue
        if current.revision <= decision.revision + 1:
            yield outcome
        elif late.get(outcome.subject, (0, outcome))[0] < decision.revision:
            late[outcome.subject] = decision.revision, outcome
    for _, outcome in late.values():
        yield outcome


def stored_outcome(value: bytes, policy: Policy) -> StoredOutcome | None:
    """Turn a published Decision into a stored outcome; None: provisional (revision 0), or no Decision."""
    decision = Decision.try_parse(value)
    known = decision is not None and 1 <= decision.revision <= LAST_REVISION
    return _stored(decision, policy, b"") if decision and known else None


def _stored(decision: Decision, policy: Policy, affected: bytes) -> StoredOutcome | None:
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
    code = ReasonCode(decision.reason_code)
    base = code
    if (
        code == ReasonCode.CITATION_UNVERIFIED
    ):  # a branch of the tree, or a cap on what another branch approves
        trusted = any(check.startswith("trusted_source: ") for check in decision.checks_passed)
        grounds = evaluate_tree(
            HedgeAction.CONTINUE,
            has_verified_citation=any(each.state == CitationState.VERIFIED for each in decision.citations),
            source=claim.source,
            memory_type=claim.memory_type,
            trusted_sources={claim.source} if trusted else (),
        )
        base = code if grounds.code == ReasonCode.UNGROUNDED else grounds.code
    human = None
    if facts.review:
        edited = claim.content if facts.review.get("edited") else None
        human = HumanDecision(facts.review, edited, record_of(claim).decode())
    payload = ClaimPayload(
        stamp=_stamp(decision),
        scheme=facts.dedup.scheme if facts.dedup else "",
        base_code=base,
        cap=None if state in {SubjectState.APPROVED, SubjectState.BLOCKED} else code,
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
    report = decision.report
    if report is None:
        return None
    facts = decision.facts
    payload = ResponsePayload(
        stamp=_stamp(decision),
        base_code=ReasonCode(decision.reason_code),
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
    if not decision.citations:
        return {}
    content = decision.evidence.claim if decision.evidence else ""
    detected = CitationDetector().detect(content)
    labels: dict[tuple[str, int], str] = {(c.type, c.start): c.label for c in detected}
    findings: dict[str, CheckFinding] = {}
    for citation in decision.citations:
        label = labels.get((citation.type, citation.start), f"{citation.type}:{citation.value}")
        # the same may be cited again where the claim rests on it
        if citation.state != CitationState.NOT_CHECKED:
            findings.setdefault(label, CheckFinding(citation.state, citation.detail, citation.checked_at))
    return findings


class Prover:
    """Derives decisions again, before they go to state: those that do not follow from their records are left out.

    Holds one page of records, read by position, and people's actions: a rebuilding worker has no disk for the input
    topics. Decisions whose records retention has removed are kept. `counts`: decisions by status.
    """

    def __init__(self, reader: TopicReader, inside: Sequence[OffsetRange], policies: Policies) -> None:
        self._reader = reader
        self._inside = inside
        self._store = RecordStore()
        self._verifier = Verifier(self._store, policies)
        self.counts: Counter[VerifyStatus] = Counter()

    def note_decision(self, value: bytes) -> None:
        """Keep the record reference of a revision from 2 on; call it for all values before `keep`."""
        self._store.note_decision(value)

    def note_event(self, value: bytes) -> None:
        """Keep an action's audit event; call it for all values before `keep`."""
        self._store.note_event(value)

    async def keep(self, values: AsyncGenerator[bytes, None]) -> AsyncGenerator[Decision, None]:
        """Yield the decisions that follow from their records, or that cannot be checked. Raises: BrokerUnavailable."""
        page: dict[bytes, Decision] = {}
        weight = 0
        async with aclosing(values):
            async for value in values:
                decision = Decision.try_parse(value)
                if decision is not None and decision.revision > 0:
                    page[value] = decision
                    weight += 5 if decision.kind is Kind.RESPONSE else 1  # their records may be large
                if weight >= CHUNK:
                    async for kept in self._keep(page):
                        yield kept
                    page, weight = {}, 0
        async for kept in self._keep(page):
            yield kept

    async def _keep(self, page: Mapping[bytes, Decision]) -> AsyncIterator[Decision]:
        self._store.forget_records()
        places: set[RecordPlace] = set()
        for decision in page.values():
            places |= {RecordPlace.of(decision.origin), *self._store.places(decision)}
        async with aclosing(self._reader.records_at(places, self._inside)) as records:
            async for record in records:
                self._store.add_record(record, inside=False)
        for number, (value, decision) in enumerate(page.items()):
            # the same loop renews the rebuild's lock and the worker's group membership: after a large one, give it time
            if len(value) >= LARGE or number % _YIELD == 0:
                await asyncio.sleep(0.01 if len(value) >= LARGE else 0)
            finding = await self._verifier.verify(value, decision)
            try:
                # what follows from its record is no forgery where the topic was copied and places have shifted
                finding = on_topics(self._store, self._inside, decision, finding, moved=True)
            except Exception as exc:  # noqa: BLE001 - one record must not keep all others from coming back
                report_fault("rebuild.unreadable", exc)
                detail = type(exc).__name__
                finding = VerifyFinding(VerifyStatus.DIFFERS, finding.decision_id, detail=detail)
            self.counts[finding.status] += 1
            if finding.status not in LEFT_OUT:
                yield decision
            elif sum(self.counts[status] for status in LEFT_OUT) <= 100:  # the rest is only counted
                log.warning(
                    "rebuild.left_out",
                    decision_id=finding.decision_id,
                    status=finding.status.value,
                    fields=list(finding.paths),
                    detail=finding.detail,
                )


@asynccontextmanager
async def open_prover(settings: Settings, policies: Policies) -> AsyncIterator[Prover]:
    async with open_reader(settings.brokers, PATIENCE) as reader:
        inside: list[OffsetRange] = []
        for name in INPUTS:
            with suppress(UsageError):  # a deployment need not have every topic
                inside += await reader.ranges(settings.topic_prefix + name)
        yield Prover(reader, inside, policies)
