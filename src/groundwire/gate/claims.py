"""Claims at the gate: prepared, put to state, decided; and what people decide of them (S0-157)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from groundwire.checks.citations import Citation
from groundwire.checks.hedges import HedgeAction
from groundwire.checks.support.verify import relevance
from groundwire.errors import RecordError
from groundwire.gate.build import Stamp
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
    read_claim,
)
from groundwire.gate.kinds import GateRules, KindGate, Step, attempted, decide_provisionally, or_failed
from groundwire.gate.record import (
    ClaimPayload,
    HumanDecision,
    claim_of,
    derive,
    derive_one,
    record_of,
)
from groundwire.gate.types import (
    DeadLetter,
    Decided,
    DecisionQuery,
    Deferred,
    PreparedClaim,
    PreparedReview,
    canonical_form,
    horizon_of,
    of_kind,
    parents_of,
    put_back,
    record_origin,
)
from groundwire.logs import report_fault
from groundwire.messages.base import sha256_hex, to_milliseconds
from groundwire.messages.decisions import CitationState, Decision, DedupFacts, ReasonCode, Verdict
from groundwire.messages.headers import InboundRecord, LookupRetry
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.state.model import (
    DedupQuery,
    HeldEntry,
    Outcome,
    ReviewAction,
    ReviewRequest,
    StepRequest,
    SubjectState,
)
from groundwire.verify.citations import NETWORK, CitationVerifier
from groundwire.verify.pacing import NotReachedError
from groundwire.verify.results import CitationCheck

MAX_DETAIL = 100
"""Characters of a finding's detail: a hundred of them have to fit into a decision beside everything else."""

Answers = dict[tuple[str, str], CitationCheck]
"""Tenant and label of a citation -> what checking it gave; one that is missing could not be checked."""

_NO_INPUTS: Final = ClaimInputs({})

ClaimStep = Step[PreparedClaim, ClaimCase, ClaimPayload]


class ClaimGate(KindGate[PreparedClaim, ClaimCase, ClaimPayload]):
    def __init__(self, rules: GateRules, verifier: CitationVerifier, patience: float) -> None:
        super().__init__(rules)
        self._patience = patience
        self._scheme = dedup_scheme(rules.policy)
        load_dedup(rules.policy)
        self._lookup = CitationLookup(verifier, rules.policy)

    def prepare(self, given: Sequence[tuple[InboundRecord, Claim]]) -> list[PreparedClaim | DeadLetter]:
        """Read claims' texts; one that has no canonical form is a dead letter."""
        entries = [self._unread(record, claim) for record, claim in given]
        return put_back(entries, self._read(of_kind(entries, PreparedClaim)), PreparedClaim)

    def _unread(self, record: InboundRecord, claim: Claim) -> PreparedClaim | DeadLetter:
        try:
            fingerprint = sha256_hex(canonical_form(claim))
        except RecordError as error:
            return DeadLetter(record, error)
        return self._attested(PreparedClaim(record, claim, fingerprint, UNREAD, None, _NO_INPUTS))

    def _read(self, entries: Sequence[PreparedClaim]) -> list[PreparedClaim]:
        """Read texts, each step for all claims: what it needs stays in the processor's caches, which saves a fifth."""
        claims = [entry.claim for entry in entries]
        try:
            readings = [read_claim(claim.content, self._policy) for claim in claims]
            queries = dedup_queries(claims, self._policy)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            if len(entries) > 1:  # one that breaks takes no other along
                return [read for entry in entries for read in self._read([entry])]
            report_fault("claim.unreadable", exc, offset=entries[0].record.offset)
            return [entries[0].failed(exc)]
        return [
            PreparedClaim(entry.record, entry.claim, entry.fingerprint, reading, query, entry.inputs)
            for entry, reading, query in zip(entries, readings, queries, strict=True)
        ]

    async def check(
        self, entries: Sequence[PreparedClaim], *, ask_network: bool
    ) -> list[PreparedClaim | Deferred]:
        """Look up what claims cite; without `ask_network`, what is not cached is left for later."""
        found = await self._lookup.look_up(entries, ask_network=ask_network)
        if ask_network:
            return [self._or_postponed(entry) for entry in found]
        # a host that failed a moment ago is no answer: the claim waits with those that met it
        return [
            entry._replace(wait=True) if self._patience > 0 and self._would_help(entry) else entry
            for entry in found
        ]

    def _or_postponed(self, entry: PreparedClaim) -> PreparedClaim | Deferred:
        """Send a claim to `deferred` again, where a host failed and might still make a difference.

        Pauses are a twentieth of the patience (in seconds), and double at failures; the last look-up is at its end.
        """
        now = to_milliseconds(self._now())
        first = min(entry.record.retry.first, now) if entry.record.retry else now
        end = first + round(1000 * self._patience)
        if now >= end or not self._would_help(entry):
            return entry
        details = {entry.inputs.findings[label].detail for label in entry.unanswered}
        failed_for = now - first if details != {NotReachedError.detail} else 0
        due = min(now + max(round(50 * self._patience), failed_for), end)
        return Deferred(replace(entry.record, retry=LookupRetry(first, due)))

    def _would_help(self, entry: PreparedClaim) -> bool:
        """Say whether a claim that goes to a person now would be approved if what failed were verified."""
        if not entry.unanswered:
            return False
        verified = CheckFinding(CitationState.VERIFIED, "", self._now())
        findings_if_verified = {**entry.inputs.findings, **dict.fromkeys(entry.unanswered, verified)}
        relevant = [{"start": c.start, "score": 1.0, "relevant": True} for c in entry.reading.verifiable]
        inputs = entry.inputs._replace(findings=findings_if_verified, relevance=relevant)
        now, then = self.step_of(entry).request, self.step_of(entry._replace(inputs=inputs)).request
        return (now.base_tier, now.capped) != (then.base_tier, then.capped) == (1, False)

    def _signer(self, entry: PreparedClaim) -> dict[str, Any]:
        return {"tenant": entry.claim.tenant_id, "source": entry.claim.source}

    def _step(self, entry: PreparedClaim) -> ClaimStep:
        claim, inputs = entry.claim, entry.inputs
        case = ClaimCase(
            claim, entry.reading, self._policy, inputs.facts(entry.record.clock), inputs.findings
        )
        base, own_cap = case.base, case.own_cap
        payload = ClaimPayload(
            stamp=Stamp.of(self._policy, self._now()),
            scheme=self._scheme,
            base_code=base.code,
            cap=own_cap,
            capture_time=claim.captured_at or entry.record.clock,
            metadata=claim.metadata,
            inputs=inputs,
        )
        request = StepRequest(
            subject=case.subject,
            fingerprint=entry.fingerprint,
            origin=record_origin(entry.record),
            base_tier=base.number,
            capped=own_cap is not None,
            wait=entry.wait,
            dedup=entry.dedup,
            dedup_failed=inputs.error is not None,
            parents=parents_of(claim),
            horizon=horizon_of(claim),
            payload=payload.to_bytes(),
            record=record_of(claim),  # canonical: blanks between its fields would take places' bytes
        )
        return Step(entry, case, payload, request)

    def _provisional(self, entry: PreparedClaim) -> Decision:
        return provisional_claim(entry, self._policy)

    async def _recorded(self, entry: PreparedClaim, recorded: Outcome) -> tuple[ClaimCase, ClaimPayload]:
        payload = ClaimPayload.from_bytes(recorded.payload)
        policy = await self._rules.policy_that_decided(payload.stamp)
        claim = payload.as_decided(entry.claim)
        # what broke this time need not have broken when it was decided
        as_read = (entry.inputs.error, entry.claim.content, self._policy) == (None, claim.content, policy)
        as_read = as_read or payload.inputs.error is not None  # then nothing was read
        reading = entry.reading if as_read else read_claim(claim.content, policy)
        return payload.case(claim, reading, policy, recorded), payload

    async def decide(
        self, answered: Sequence[tuple[ClaimStep, Outcome]], *, again: bool
    ) -> list[Decided | Exception]:
        known = [await self._known(step, recorded) for step, recorded in answered]
        decisions: Sequence[Decision | Exception]
        try:
            decisions = derive(known)
        except Exception:  # noqa: BLE001 - one that breaks takes no other along
            decisions = [
                (or_failed if again or one[1].review else attempted)(derive_one, one) for one in known
            ]
        return [
            decision
            if isinstance(decision, Exception)
            else Decided(step.entry.record, decision, recorded.fresh)
            for (step, recorded), decision in zip(answered, decisions, strict=True)
        ]


def provisional_claim(entry: PreparedClaim, policy: Policy) -> Decision:
    """Decide a claim while state is out of reach: nothing approved, nothing looked up, the same bytes each time."""
    claim, clock = entry.claim, entry.record.clock
    failed = DedupFacts(status="failed", scheme=dedup_scheme(policy), matches=[])
    facts = entry.inputs._replace(findings={}, relevance=None).facts(clock, dedup=failed)
    case = ClaimCase(claim, entry.reading, policy, facts, {})
    return decide_provisionally(case, entry, policy)


class CitationLookup:
    """Looks up the citations of prepared claims; network ones in the cache only, where their claims may wait."""

    def __init__(self, verifier: CitationVerifier, policy: Policy) -> None:
        self._verifier = verifier
        self._policy = policy

    async def look_up(self, claims: Sequence[PreparedClaim], *, ask_network: bool) -> list[PreparedClaim]:
        cited = [(entry, citation) for entry in claims for citation in entry.reading.verifiable]
        if not cited:
            return list(claims)
        answers = await _nothing_if_broken(self._local(cited))
        remote = [(entry, citation) for entry, citation in cited if citation.type in NETWORK]
        if remote:
            want_text = self._policy.verify_claim_relevance
            asked = [(entry.claim.tenant_id, citation) for entry, citation in remote]
            answers |= await _nothing_if_broken(self._verifier.cached(asked, want_text=want_text))
            missing = [
                (entry.claim.tenant_id, citation)
                for entry, citation in remote
                for known in [answers.get((entry.claim.tenant_id, citation.label))]
                # what failed a moment ago is asked again by who has waited for it
                if known is None or (entry.record.retry and known.may_pass)
            ]
            if missing and ask_network:
                answers |= await _nothing_if_broken(self._verifier.remote(missing, want_text=want_text))
        return [self._with_answers(entry, answers) for entry in claims]

    async def _local(self, cited: Sequence[tuple[PreparedClaim, Citation]]) -> Answers:
        tenants: defaultdict[str, list[Citation]] = defaultdict(list)
        for entry, citation in cited:
            if citation.type not in NETWORK:
                tenants[entry.claim.tenant_id].append(citation)
        answers: Answers = {}
        want_text = self._policy.verify_claim_relevance
        for tenant, citations in tenants.items():
            found = await self._verifier.local(tenant, citations, want_text=want_text)
            answers |= {(tenant, label): check for label, check in found.items()}
        return answers

    def _with_answers(self, entry: PreparedClaim, answers: Answers) -> PreparedClaim:
        if not entry.reading.citations:
            return entry
        first = entry.reading.first_places
        known = {
            label: check
            for label in first
            if (check := answers.get((entry.claim.tenant_id, label))) is not None
        }
        inputs = entry.inputs._replace(findings={label: as_finding(check) for label, check in known.items()})
        if self._policy.verify_claim_relevance:
            verified = {label: c for label, c in known.items() if c.state == CitationState.VERIFIED}
            texts = {first[label]: check.text for label, check in verified.items()}
            inputs = inputs._replace(relevance=self._relevance(entry.claim.content, texts) or None)
        unanswered = tuple(label for label, check in known.items() if check.may_pass)
        return entry._replace(inputs=inputs, wait=len(known) < len(first), unanswered=unanswered)

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


OVERRULABLE: Final = {ReasonCode.DUPLICATE, ReasonCode.PERSONAL_SPECULATION}
"""Reasons of the gate's own blocks after which a person may put a claim back for review."""

_WITHOUT_TEXT = {ReviewAction.EXPIRE, ReviewAction.RETRACT}
"""Actions for which the claim's text is not compared."""


class ClaimReviews:
    def __init__(self, rules: GateRules) -> None:
        self._rules, self._policy = rules, rules.policy
        self._scheme = dedup_scheme(rules.policy)

    def parents(self, held: HeldEntry) -> Sequence[tuple[str, Subject]]:
        """Return the parents of a claim that a person decided; its outcome in state holds their states alone."""
        human = ClaimPayload.from_bytes(held.payload).human
        return parents_of(Claim.model_validate_json(human.record)) if human else ()

    def query(self, entry: PreparedReview, held: HeldEntry) -> DecisionQuery | None:
        """Return the published decision that an action rests on: state keeps no text of what the gate approved."""
        payload = ClaimPayload.from_bytes(held.payload)
        if held.record or payload.human:
            return None
        verdict = Verdict.BLOCKED if held.state is SubjectState.BLOCKED else Verdict.APPROVED
        superseded = decision_id(entry.subject, held.revision)
        return DecisionQuery(verdict, superseded, payload.stamp.decided_at)

    def request(self, entry: PreparedReview, held: HeldEntry, published: Decision | None) -> ReviewRequest:
        """Work out what an action on a claim would come to; `published` is the decision that `query` named."""
        before = ClaimPayload.from_bytes(held.payload)
        record = held.record or (before.human.record.encode() if before.human else b"")
        if record:
            first = Claim.model_validate_json(record)
        elif published is not None:
            first = claim_of(published)
        else:
            return entry.request("not_published", forget=True)  # it may be when the action comes again
        overrules = entry.action is ReviewAction.OVERRULE
        if overrules and (published is None or published.reason_code not in OVERRULABLE):
            return entry.request("not_overrulable")
        if overrules and sha256_hex(canonical_form(first)) != held.fingerprint:
            # somebody else's, with the id of ours
            return entry.request("not_published", forget=True)
        payload = self._next_payload(entry, before, first)
        claim = payload.as_decided(first)
        reading, dedup, failed = self._read(claim, self._policy)
        inputs = payload.inputs
        case = ClaimCase(claim, reading, self._policy, inputs.facts(entry.record.clock), inputs.findings)
        refused = ""
        if entry.action is ReviewAction.EDIT:
            speculates = case.hedge == HedgeAction.BLOCK
            refused = "hidden_text" if reading.hidden else "personal_speculation" if speculates else ""
            refused = "unreadable" if failed else refused
        return entry.request(
            refused,
            expired=case.expired,
            dedup=None if entry.action in _WITHOUT_TEXT else dedup,
            dedup_failed=failed,
            parents=parents_of(claim),
            horizon=horizon_of(claim),
            payload=payload.to_bytes(),
            record=record_of(first) if overrules else b"",
        )

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
        policy = await self._rules.policy_that_decided(payload.stamp)
        record = payload.human.record if payload.human else ""
        claim = payload.as_decided(Claim.model_validate_json(record))
        reading, _, _ = self._read(claim, policy)
        case = payload.case(claim, reading, policy, recorded)
        return or_failed(derive_one, (case, payload, recorded))

    def _read(self, claim: Claim, policy: Policy) -> tuple[ClaimReading, DedupQuery | None, bool]:
        try:
            return read_claim(claim.content, policy), dedup_query(claim, self._policy), False
        except Exception as exc:  # noqa: BLE001 - a person may decide what the gate could not read
            report_fault("review.unreadable", exc)
        return UNREAD, None, True
