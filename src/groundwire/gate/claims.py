"""Claims at the gate: prepared, put to state, decided; and what people decide of them (S0-157)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from groundwire.checks.citations import Citation
from groundwire.checks.hedges import HedgeAction
from groundwire.checks.support.verify import relevance
from groundwire.errors import RecordError
from groundwire.gate.build import Envelope, Stamp, build_decision
from groundwire.gate.claim_case import (
    UNREAD,
    CheckFinding,
    ClaimCase,
    ClaimInputs,
    ClaimReading,
    dedup_queries,
    dedup_query,
    dedup_scheme,
    load_dedup,
    prejudge,
    read_claim,
)
from groundwire.gate.record import (
    ClaimPayload,
    Derivation,
    HumanDecision,
    claim_of,
    derive,
    derive_all,
    record_of,
    recorded_facts,
)
from groundwire.gate.types import (
    NOT_PUBLISHED,
    DeadLetter,
    Decided,
    DecidedText,
    DecisionQuery,
    PreparedClaim,
    PreparedReview,
    ReviewPlan,
    canonical_form,
    of_kind,
    parents_of,
    put_back,
    record_origin,
)
from groundwire.keys.attestation import Keys, Role
from groundwire.logs import report_fault, write_event
from groundwire.messages.base import from_milliseconds, sha256_hex, to_milliseconds
from groundwire.messages.decisions import CitationState, Decision, DedupFacts, Verdict
from groundwire.messages.decode import decode_claim
from groundwire.messages.headers import ATTESTATION, InboundRecord, LookupRetry, header
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.state.model import DedupQuery, HeldEntry, Outcome, ReviewAction, StepRequest
from groundwire.verify.citations import NETWORK, CitationVerifier
from groundwire.verify.results import CitationCheck

MAX_DETAIL = 100
"""Characters of a finding's detail: a hundred of them have to fit into a decision beside everything else."""

Answers = dict[tuple[str, str], CitationCheck]
"""Tenant and label of a citation -> what checking it gave; one that is missing could not be checked."""


class Policies(Protocol):
    async def get(self, sha256: str) -> Policy | None: ...


class GateRules(NamedTuple):
    """What every part of a gate decides by; see `groundwire.gate.gate.Gate` for the fields."""

    policy: Policy
    policies: Policies
    keys: Keys
    now: Callable[[], datetime]

    async def policy_that_decided(self, stamp: Stamp) -> Policy | None:
        """Return the policy of a recorded outcome, or None where it is not known here any more."""
        sha256 = stamp.policy_sha256
        policy = self.policy if sha256 == self.policy.sha256 else await self.policies.get(sha256)
        if policy is None:
            write_event(
                "warning", "policy.unknown", sha256=sha256, hint="put its file into GROUNDWIRE_POLICIES_DIR"
            )
        return policy

    def attestation(
        self,
        record: InboundRecord,
        at: datetime,
        *,
        tenant: str,
        source: str | None = None,
        role: Role | None = None,
    ) -> dict[str, Any] | None:
        """Check the header `gw-attestation` of a record; see `Keys.check`. None where there is none."""
        signed = header(record.headers, ATTESTATION)
        found = self.keys.check(signed, record.value or b"", tenant=tenant, at=at, source=source, role=role)
        return found.fact() if found else None

    def clock(self, record: InboundRecord) -> datetime:
        """Return the time at which a signature is checked: who sends a record may choose its own."""
        return max(from_milliseconds(record.timestamp), self.now())


class ClaimStep(NamedTuple):
    """A claim as it is put to state; `case` is what was known of it then."""

    entry: PreparedClaim
    case: ClaimCase
    payload: ClaimPayload
    request: StepRequest


class DueClaim(NamedTuple):
    step: ClaimStep
    recorded: Outcome


class ClaimGate:
    def __init__(self, rules: GateRules, verifier: CitationVerifier) -> None:
        self._rules = rules
        self._policy, self._now = rules.policy, rules.now
        self._scheme = dedup_scheme(rules.policy)
        load_dedup(rules.policy)
        self.look_up = CitationLookup(verifier, rules.policy).look_up

    def prepare(self, given: Sequence[tuple[InboundRecord, Claim]]) -> list[PreparedClaim | DeadLetter]:
        """Read claims' texts; one that has no canonical form is a dead letter.

        Each step is done for all claims before the next one: what it needs stays in the processor's caches meanwhile,
        which saves a fifth of the time.
        """
        entries = [self._unread(record, claim) for record, claim in given]
        readings = [self._read(entry) for entry in of_kind(entries, PreparedClaim)]
        return put_back(entries, self._compared(readings), PreparedClaim)

    def _unread(self, record: InboundRecord, claim: Claim) -> PreparedClaim | DeadLetter:
        try:
            fingerprint = sha256_hex(canonical_form(claim))
        except RecordError as error:
            return DeadLetter(record, error)
        inputs = ClaimInputs({}, self._attestation(record, claim, self._rules.clock(record)))
        return PreparedClaim(record, claim, fingerprint, UNREAD, None, inputs)

    def _read(self, entry: PreparedClaim) -> PreparedClaim:
        try:
            return entry._replace(reading=read_claim(entry.claim.content, self._policy))
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            return _unreadable(entry, exc)

    def _compared(self, entries: Sequence[PreparedClaim]) -> list[PreparedClaim]:
        try:
            queries = dedup_queries([entry.claim for entry in entries], self._policy)
        except Exception as exc:  # noqa: BLE001 - fails closed, and takes no other claim along
            if len(entries) == 1:
                return [entry if entry.inputs.error else _unreadable(entry, exc) for entry in entries]
            return [self._compared([entry])[0] for entry in entries]
        return [
            entry if entry.inputs.error else entry._replace(dedup=query)
            for entry, query in zip(entries, queries, strict=True)
        ]

    def _attestation(self, record: InboundRecord, claim: Claim, at: datetime) -> dict[str, Any] | None:
        return self._rules.attestation(record, at, tenant=claim.tenant_id, source=claim.source)

    def request_of(self, entry: PreparedClaim) -> ClaimStep:
        try:
            return self._judged(entry)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unjudged", exc, offset=entry.record.offset)
            return self._judged(entry.failed(exc))

    def provisional(self, entry: PreparedClaim) -> Decision:
        """Decide a claim without state; see `provisional_claim`. No wall clock counts: a repeat has the same bytes."""
        attestation = self._attestation(entry.record, entry.claim, entry.clock)
        entry = entry._replace(inputs=entry.inputs._replace(attestation=attestation))
        try:
            return provisional_claim(entry, self._policy)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unjudged", exc, offset=entry.record.offset)
            return provisional_claim(entry.failed(exc), self._policy)

    def _judged(self, entry: PreparedClaim) -> ClaimStep:
        claim, inputs = entry.claim, entry.inputs
        case = ClaimCase(claim, entry.reading, self._policy, inputs.facts(entry.clock), inputs.findings)
        judged = prejudge(case)
        payload = ClaimPayload(
            stamp=Stamp.of(self._policy, self._now()),
            scheme=self._scheme,
            base=judged.base.code,
            cap=judged.cap,
            capture_time=claim.captured_at or entry.clock,
            metadata=claim.metadata,
            inputs=inputs,
        )
        request = StepRequest(
            subject=entry.subject,
            fingerprint=entry.fingerprint,
            origin=record_origin(entry.record),
            base_tier=judged.base_tier,
            capped=judged.cap is not None,
            wait=entry.wait,
            dedup=entry.dedup,
            dedup_failed=inputs.error is not None,
            parents=parents_of(claim),
            horizon=to_milliseconds(claim.validity_horizon) if claim.validity_horizon else 0,
            payload=payload.to_bytes(),
            record=record_of(claim),  # canonical: blanks between its fields would take places' bytes
        )
        return ClaimStep(entry, case, payload, request)

    def postponed(self, entry: PreparedClaim, patience: float) -> InboundRecord | None:
        """Return the record as it goes to `deferred` again, where a host failed and might still make a difference.

        Pauses double, from a twentieth of the patience (in seconds) on; the last look-up is at its end.
        """
        now = to_milliseconds(self._now())
        first = min(entry.record.retry.first, now) if entry.record.retry else now
        end = first + round(1000 * patience)
        if now >= end or not self.would_help(entry):
            return None
        due = min(now + max(round(50 * patience), now - first), end)
        return replace(entry.record, retry=LookupRetry(first, due))

    def would_help(self, entry: PreparedClaim) -> bool:
        """Say whether a claim that goes to a person now would be approved if what failed were verified."""
        if not entry.unanswered:
            return False
        verified = CheckFinding(CitationState.VERIFIED, "", self._now())
        findings_if_verified = {**entry.inputs.findings, **dict.fromkeys(entry.unanswered, verified)}
        relevant = [{"start": c.start, "score": 1.0, "relevant": True} for c in entry.reading.verifiable]
        inputs = entry.inputs._replace(findings=findings_if_verified, relevance=relevant)
        now, then = self.request_of(entry).request, self.request_of(entry._replace(inputs=inputs)).request
        return (now.base_tier, now.capped) != (then.base_tier, then.capped) == (1, False)

    async def decide(self, answered: Sequence[DueClaim]) -> list[Decided]:
        decisions = derive_all([await self._derivation(step, recorded) for step, recorded in answered])
        return [
            Decided(step.entry.record, decision, recorded.fresh)
            for (step, recorded), decision in zip(answered, decisions, strict=True)
        ]

    async def _derivation(self, step: ClaimStep, recorded: Outcome) -> Derivation:
        if recorded.fresh:  # what this very step recorded need not be read back
            case = step.case.with_state(recorded_facts(recorded, step.payload))
            return Derivation(case, recorded, step.payload, known_policy=True)
        entry, payload = step.entry, ClaimPayload.from_bytes(recorded.payload)
        known = await self._rules.policy_that_decided(payload.stamp)
        policy, claim = known or self._policy, payload.as_decided(entry.claim)
        as_read = claim is entry.claim and policy is self._policy
        reading = entry.reading if as_read else read_claim(claim.content, policy)
        case = ClaimCase(claim, reading, policy, recorded_facts(recorded, payload), payload.inputs.findings)
        return Derivation(case, recorded, payload, known_policy=known is not None)


def _unreadable(entry: PreparedClaim, error: Exception) -> PreparedClaim:
    report_fault("claim.unreadable", error, offset=entry.record.offset)
    return entry.failed(error)


def provisional_claim(entry: PreparedClaim, policy: Policy) -> Decision:
    """Decide a claim while state is out of reach: nothing approved, nothing looked up, the same bytes each time."""
    claim, clock = entry.claim, entry.clock
    failed = DedupFacts(status="failed", scheme=dedup_scheme(policy), matches=[])
    inputs = entry.inputs._replace(findings={}, relevance=None)
    facts = inputs.facts(clock).model_copy(update={"dedup": failed})
    case = ClaimCase(claim, entry.reading, policy, facts, {})
    envelope = Envelope(
        revision=0,
        fingerprint=entry.fingerprint,
        origin=entry.record.origin,
        subject_origin=None,
        stamp=Stamp.of(policy, clock),
        capture_time=claim.captured_at or clock,
        metadata=claim.metadata,
    )
    return build_decision(case, envelope, case.outcome())


class CitationLookup:
    """Looks up the citations of prepared claims; network ones in the cache only, where their claims may wait."""

    def __init__(self, verifier: CitationVerifier, policy: Policy) -> None:
        self._verifier = verifier
        self._policy = policy

    async def look_up(self, claims: Sequence[PreparedClaim], *, ask_network: bool) -> list[PreparedClaim]:
        cited = [
            (entry.claim.tenant_id, citation) for entry in claims for citation in entry.reading.verifiable
        ]
        if not cited:
            return list(claims)
        answers = await _nothing_if_broken(self._local(cited))
        remote = [request for request in cited if request[1].type in NETWORK]
        if remote:
            want_text = self._policy.verify_claim_relevance
            answers |= await _nothing_if_broken(self._verifier.cached(remote, want_text=want_text))
            missing = [
                (tenant, citation) for tenant, citation in remote if (tenant, citation.label) not in answers
            ]
            if ask_network:  # what failed a moment ago is asked again by who has waited for it
                missing += [
                    (entry.claim.tenant_id, citation)
                    for entry in claims
                    if entry.record.retry
                    for citation in entry.reading.verifiable
                    if citation.type in NETWORK
                    and (check := answers.get((entry.claim.tenant_id, citation.label)))
                    and check.may_pass
                ]
            if missing and ask_network:
                answers |= await _nothing_if_broken(self._verifier.remote(missing, want_text=want_text))
        return [self._with_answers(entry, answers) for entry in claims]

    async def _local(self, cited: Sequence[tuple[str, Citation]]) -> Answers:
        tenants: defaultdict[str, list[Citation]] = defaultdict(list)
        for tenant, citation in cited:
            if citation.type not in NETWORK:
                tenants[tenant].append(citation)
        answers: Answers = {}
        for tenant, citations in tenants.items():
            found = await self._verifier.local(
                tenant, citations, want_text=self._policy.verify_claim_relevance
            )
            answers |= {(tenant, label): check for label, check in found.items()}
        return answers

    def _with_answers(self, entry: PreparedClaim, answers: Answers) -> PreparedClaim:
        if not entry.reading.citations:
            return entry
        first: dict[str, Citation] = {}
        for citation in entry.reading.verifiable:
            first.setdefault(citation.label, citation)
        checks = {label: answers.get((entry.claim.tenant_id, label)) for label in first}
        inputs = entry.inputs._replace(
            findings={label: as_finding(check) for label, check in checks.items() if check is not None}
        )
        if self._policy.verify_claim_relevance:
            texts = {
                first[label].start: check.text
                for label, check in checks.items()
                if check is not None and check.state == CitationState.VERIFIED
            }
            inputs = inputs._replace(relevance=self._relevance(entry.claim.content, texts) or None)
        unanswered = tuple(label for label, check in checks.items() if check is not None and check.may_pass)
        return entry._replace(inputs=inputs, wait=None in checks.values(), unanswered=unanswered)

    def _relevance(self, content: str, texts: Mapping[int, str | None]) -> list[dict[str, Any]]:
        """Return `facts.relevance`: for each verified citation, by where it starts, its source's support.

        A source without text has no score, and is not relevant.
        """
        read = {start: text for start, text in texts.items() if text is not None}
        scores: dict[int, float] = {}
        try:
            scores = dict(zip(read, relevance(content, list(read.values())), strict=True))
        except Exception as exc:  # noqa: BLE001 - a check that broke takes credit away, never a claim
            report_fault("relevance.failed", exc)
        least = self._policy.relevance_minimum
        return [
            {"start": start, "score": scores.get(start), "relevant": scores.get(start, -1.0) >= least}
            for start in texts
        ]


def as_finding(check: CitationCheck) -> CheckFinding:
    """Keep of a verification what a decision may carry: a short detail, never the source's text."""
    return CheckFinding(check.state, check.detail[:MAX_DETAIL], check.checked_at)


async def _nothing_if_broken(lookup: Awaitable[Answers]) -> Answers:
    """Await a look-up; what it could not say is not checked, and gives no credit (S0-21)."""
    try:
        return await lookup
    except Exception as exc:  # noqa: BLE001 - as it says
        report_fault("citations.failed", exc)
        return {}


_WITHOUT_TEXT = {ReviewAction.EXPIRE, ReviewAction.RETRACT}
"""Actions for which the claim's text is not compared."""


class ClaimReviews:
    def __init__(self, rules: GateRules) -> None:
        self._rules, self._policy = rules, rules.policy
        self._scheme = dedup_scheme(rules.policy)

    def refuse(self, held: HeldEntry, refused: str, *, only_recorded: bool) -> ReviewPlan:
        human = ClaimPayload.from_bytes(held.payload).human
        parents = parents_of(decode_claim(human.record.encode())) if human else ()
        return ReviewPlan(refused, only_recorded=only_recorded, text=DecidedText(parents=parents))

    def query(self, entry: PreparedReview, held: HeldEntry) -> DecisionQuery | None:
        """Return the published decision that an action rests on: state keeps no text of what the gate approved."""
        payload = ClaimPayload.from_bytes(held.payload)
        if held.record or payload.human:
            return None
        superseded = decision_id(entry.subject, held.revision)
        return DecisionQuery(Verdict.APPROVED, superseded, payload.stamp.decided_at)

    def plan(self, entry: PreparedReview, held: HeldEntry, published: Decision | None) -> ReviewPlan:
        """Work out what an action on a claim would come to; `published` is the decision that `query` named."""
        before = ClaimPayload.from_bytes(held.payload)
        record = held.record or (before.human.record.encode() if before.human else b"")
        if record:
            first = decode_claim(record)
        elif published is not None:
            first = claim_of(published)
        else:
            return NOT_PUBLISHED
        payload = self._next_payload(entry, before, first)
        claim = payload.as_decided(first)
        reading, dedup, failed = self._read(claim, self._policy)
        case = ClaimCase(
            claim, reading, self._policy, payload.inputs.facts(entry.clock), payload.inputs.findings
        )
        text = DecidedText(
            expired=case.expired,
            dedup=None if entry.action in _WITHOUT_TEXT else dedup,
            dedup_failed=failed,
            parents=parents_of(claim),
            horizon=to_milliseconds(claim.validity_horizon) if claim.validity_horizon else 0,
        )
        refused = ""
        if entry.action is ReviewAction.EDIT:
            speculates = case.hedge == HedgeAction.BLOCK
            refused = "unreadable" if failed else "personal_speculation" if speculates else ""
        return ReviewPlan(refused, text=text, payload=payload.to_bytes())

    def _next_payload(self, entry: PreparedReview, before: ClaimPayload, first: Claim) -> ClaimPayload:
        edits = entry.action is ReviewAction.EDIT
        kept = before.human.content if before.human else None
        content = entry.review.content if edits else kept
        human = HumanDecision(entry.fact(edited=content is not None), content, record_of(first).decode())
        # relevance names places in the text that was edited, and an error was one of reading it
        inputs = before.inputs._replace(relevance=None, error=None) if edits else before.inputs
        stamp = Stamp.of(self._policy, self._rules.now())
        return replace(before, stamp=stamp, scheme=self._scheme, inputs=inputs, human=human)

    async def next_decision(
        self,
        subject: Subject,  # noqa: ARG002 - as of responses
        recorded: Outcome,
        before: Decision | None,  # noqa: ARG002
    ) -> Decision | None:
        payload = ClaimPayload.from_bytes(recorded.payload)
        known = await self._rules.policy_that_decided(payload.stamp)
        policy, record = known or self._policy, payload.human.record if payload.human else ""
        claim = payload.as_decided(decode_claim(record.encode()))
        reading, _, _ = self._read(claim, policy)
        facts = recorded_facts(recorded, payload)
        case = ClaimCase(claim, reading, policy, facts, payload.inputs.findings)
        return derive(Derivation(case, recorded, payload, known_policy=known is not None))

    def _read(self, claim: Claim, policy: Policy) -> tuple[ClaimReading, DedupQuery | None, bool]:
        try:
            return read_claim(claim.content, policy), dedup_query(claim, self._policy), False
        except Exception as exc:  # noqa: BLE001 - a person may decide what the gate could not read
            report_fault("review.unreadable", exc)
        return UNREAD, None, True
