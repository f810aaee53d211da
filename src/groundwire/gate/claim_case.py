"""The decision of a claim, pure: its text's hedges, citations and dedup keys, the tree, and the caps.

State decides the tier (`groundwire.state.lifecycle`) from `ClaimCase.base` and `ClaimCase.own_cap`; `ClaimCase.judged`
gives the reason. Without state it gives the tier too: of provisional decisions, in the library, and in a replay.

Requirements S0-24..S0-45, S0-112, S0-114, S0-161, S0-162, C-03, C-11, C-27, C-35.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from groundwire.checks.citations import MAX_CREDITED, Citation, CitationDetector
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.keys import KeyFunction, key_function, scheme
from groundwire.checks.dedup.signature import Thresholds, basis_points, signature
from groundwire.checks.hedges import Hedge, HedgeAction, HedgeDetector, Lexicon, hedge_lexicon
from groundwire.errors import UsageError
from groundwire.gate.build import (
    CONFIDENCE,
    MAX_CHARACTERS,
    MAX_ENTRIES,
    MAX_SOURCE_ID,
    Case,
    Checks,
    Fields,
    Limits,
    left_out,
)
from groundwire.gate.tree import CONVERSATIONS, TreeOutcome, cap, compared, evaluate_tree, explain
from groundwire.messages.base import immutable
from groundwire.messages.decisions import (
    CitationResult,
    CitationState,
    DedupFacts,
    DedupMatch,
    EvidenceObject,
    Facts,
    HedgeMark,
    IngestionTier,
    ParentFact,
    Place,
    ReasonCode,
)
from groundwire.messages.identity import digest
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.state.matching import MatchKind, kind_of
from groundwire.state.model import DedupQuery, MatchRules
from groundwire.text.visible import hidden

AI_SYNTHESIS: Final = "ai_synthesis"

_citations = CitationDetector()


@immutable
class ClaimReading:
    """Hedges and citations of a text, each in text order, and the characters by which it hides something."""

    hedges: tuple[Hedge, ...]
    hedge_words: tuple[str, ...]
    action: HedgeAction
    citations: tuple[Citation, ...]
    hidden: tuple[str, ...] = ()

    @property
    def verifiable(self) -> tuple[Citation, ...]:
        """The citations that are verified at all: the first ones, where the claim rests on them."""
        if not self.citations:
            return ()
        return tuple(citation for citation in self.citations[:MAX_CREDITED] if not citation.doubt)

    @property
    def first_places(self) -> dict[str, int]:
        """Where each label of a verifiable citation starts first."""
        places: dict[str, int] = {}
        for citation in self.verifiable:
            places.setdefault(citation.label, citation.start)
        return places


UNREAD: Final = ClaimReading((), (), HedgeAction.CONTINUE, ())
"""A text without hedges and citations; also that of a claim that the gate's own code could not read."""


def read_claim(content: str, policy: Policy) -> ClaimReading:
    hedges, result = _detector(policy.hedges.block, policy.hedges.review, policy.hedges.lexicon).read(content)
    citations = _citations.detect(content)
    concealed = hidden(content)
    if not hedges and not citations and not concealed:
        return UNREAD
    return ClaimReading(
        tuple(hedges), tuple(result.hedge_words), result.action, tuple(citations), tuple(concealed)
    )


@lru_cache(maxsize=64)
def _detector(block: tuple[str, ...], review: tuple[str, ...], lexicon: Lexicon) -> HedgeDetector:
    return HedgeDetector(block=block, review=(*review, *hedge_lexicon(lexicon)))


def dedup_scheme(policy: Policy) -> str:
    """Name everything that stored deduplication data depends on; a change of it needs a rebuild."""
    if policy.dedup_method == "vector":
        raise UsageError(
            "dedup_method: 'vector' needs an embedder and works in the library only; use 'minhash' or 'partition'"
        )
    if not policy.enable_dedup:
        return "disabled"
    keys = scheme(policy.dedup_method, match_rules(policy).thresholds)
    return f"{keys}/{policy.dedup_scope}"


def dedup_query(claim: Claim, policy: Policy) -> DedupQuery | None:
    return dedup_queries([claim], policy)[0]


def dedup_queries(claims: Sequence[Claim], policy: Policy) -> Sequence[DedupQuery | None]:
    """Return how each claim is compared; None where deduplication is disabled."""
    if not policy.enable_dedup:
        return [None] * len(claims)
    rules = match_rules(policy)
    forms = [read_form(claim.content) for claim in claims]
    keys = list(map(_keys(policy.dedup_method, rules.thresholds).of, forms))
    signatures = list(map(signature, forms))
    typed = policy.dedup_scope == "user_type"
    return [
        DedupQuery(
            scope=digest(claim.tenant_id, claim.user_id, claim.memory_type if typed else ""),
            stored=stored,
            probed=probed,
            signature=sign,
            rules=rules,
        )
        for claim, (stored, probed), sign in zip(claims, keys, signatures, strict=True)
    ]


def match_rules(policy: Policy) -> MatchRules:
    shares = policy.dedup_threshold, policy.conflict_threshold, policy.rejected_threshold
    thresholds = Thresholds(*map(_basis_points, shares))
    return MatchRules(thresholds, policy.dedup_material_difference, policy.dedup_word_difference)


_basis_points = lru_cache(maxsize=16)(basis_points)  # of each claim again


def load_dedup(policy: Policy) -> None:
    """Load what comparing claims needs before the first claim waits for it: it takes a tenth of a second."""
    if policy.enable_dedup:
        _keys(policy.dedup_method, match_rules(policy).thresholds).of(read_form("ready"))


@lru_cache(maxsize=16)
def _keys(method: str, thresholds: Thresholds) -> KeyFunction:
    return key_function(method, thresholds)


@dataclass(frozen=True, slots=True)
class CheckFinding:
    state: CitationState
    detail: str
    checked_at: datetime | None


Findings = Mapping[str, CheckFinding]
"""Label of a citation -> finding; a citation that is missing was not checked."""

NOT_CHECKED: Final = CheckFinding(CitationState.NOT_CHECKED, "", None)


class ClaimInputs(NamedTuple):
    """What a claim's decision rests on from outside the record and state: the facts of these names."""

    findings: Findings  # the states of its citations
    attestation: dict[str, Any] | None = None
    relevance: list[dict[str, Any]] | None = None  # whether verified citations share the claim's words
    # class of an exception in the gate's own code: the claim is a review then (S0-23)
    error: str | None = None

    def facts(self, clock: datetime, **answers: Any) -> Facts:  # noqa: ANN401 - as of `Facts`
        """Return the facts of a decision; `answers`: those of state."""
        return Facts.made(
            clock=clock,
            attestation=self.attestation,
            relevance=self.relevance or None,
            error=self.error,
            **answers,
        )


_DISABLED: Final = DedupFacts(status="disabled", scheme="", matches=[])


def first_matches(matches: Sequence[DedupMatch], rules: MatchRules) -> dict[MatchKind | None, DedupMatch]:
    """Return the first match of each kind, in the order of the facts (C-08, C-09)."""
    return {kind_of(match, rules): match for match in reversed(matches)}


_UNAPPROVED: Final = {
    ReasonCode.EXPIRED: IngestionTier.BLOCK,
    ReasonCode.PERSONAL_SPECULATION: IngestionTier.BLOCK,
    ReasonCode.INTERNAL_ERROR: IngestionTier.FLAG_REVIEW,
    ReasonCode.TECHNICAL_HEDGE: IngestionTier.FLAG_REVIEW,
    ReasonCode.SOURCE_UNATTESTED: IngestionTier.FLAG_REVIEW,
    ReasonCode.CITATION_UNVERIFIED: IngestionTier.FLAG_REVIEW,
    ReasonCode.UNGROUNDED: IngestionTier.FLAG_REVIEW,
}
"""The codes of `ClaimCase.base` that do not approve a claim, with their tiers."""


class ClaimCase(Case):
    def __init__(
        self, claim: Claim, reading: ClaimReading, policy: Policy, facts: Facts, findings: Findings
    ) -> None:
        self.claim = claim
        self.subject = claim.subject
        self.reading = UNREAD if facts.error else reading
        self.policy = policy
        self.findings = findings
        self.facts = facts
        self.matches = matches_of(self)
        outside_ai = claim.source in policy.trusted_sources or claim.source in CONVERSATIONS
        self.unattested = policy.attestation == "hmac" and outside_ai and not facts.attested
        self.source = AI_SYNTHESIS if self.unattested else claim.source
        self.expired = claim.validity_horizon is not None and claim.validity_horizon <= facts.clock
        self.verified = [
            c for c in self.reading.verifiable if self.finding(c).state == CitationState.VERIFIED
        ]
        """The citations that were checked and exist."""
        self.base = self._base()
        """Tier and reason as if the claim had been compared and were new, and without caps."""
        self.own_cap = self._own_cap()
        """The first cap that needs nothing of state."""

    def with_facts(self, facts: Facts) -> Self:
        case = super().with_facts(facts)
        case.matches = matches_of(case)
        return case

    def failed(self, error: Exception) -> Self:
        update: dict[str, Any] = {"error": type(error).__name__, "relevance": None}
        if self.facts.review is None:
            update["dedup"] = DedupFacts(status="failed", scheme=self.dedup.scheme, matches=[])
        return type(self)(self.claim, UNREAD, self.policy, self.facts.model_copy(update=update), {})

    @property
    def dedup(self) -> DedupFacts:
        return self.facts.dedup or _DISABLED

    @property
    def duplicate(self) -> bool:  # type: ignore[override]
        return MatchKind.DUPLICATE in self.matches

    @property
    def joins(self) -> bool:  # type: ignore[override]
        return MatchKind.PENDING in self.matches and self.facts.place == Place.NOT_NEEDED

    def finding(self, citation: Citation) -> CheckFinding:
        if citation.doubt:
            return CheckFinding(CitationState.NOT_CHECKED, citation.doubt, None)
        return self.findings.get(citation.label, NOT_CHECKED)

    @property
    def unapproved_parents(self) -> list[str]:
        return [parent.id for parent in self.facts.parents or () if parent.state != "approved"]

    @property
    def ai_synthesis(self) -> bool:
        """Whether the source counts as AI synthesis: neither trusted nor a conversation."""
        return self.source not in self.policy.trusted_sources and self.source not in CONVERSATIONS

    @property
    def hedge(self) -> HedgeAction:
        """The hedges' action after the two options that soften it."""
        action = self.reading.action
        if action == HedgeAction.BLOCK and self.policy.grounded_speculation == "review" and self.verified:
            return HedgeAction.REVIEW
        trusted = self.source in self.policy.trusted_sources
        if action == HedgeAction.REVIEW and trusted and self.policy.trusted_technical_hedges == "approve":
            return HedgeAction.CONTINUE
        return action

    def _base(self) -> TreeOutcome:
        if self.expired:
            return explain(IngestionTier.BLOCK, ReasonCode.EXPIRED)
        if self.facts.error:
            return explain(IngestionTier.FLAG_REVIEW, ReasonCode.INTERNAL_ERROR)
        tree = evaluate_tree(
            self.hedge,
            has_verified_citation=bool(self.verified),
            source=self.source,
            memory_type=self.claim.memory_type,
            trusted_sources=self.policy.trusted_sources,
        )
        if tree.code != ReasonCode.UNGROUNDED:
            return tree
        if self.unattested:
            return explain(tree.tier, ReasonCode.SOURCE_UNATTESTED)
        return explain(
            tree.tier, ReasonCode.CITATION_UNVERIFIED if self.reading.citations else ReasonCode.UNGROUNDED
        )

    def _own_cap(self) -> ReasonCode | None:
        if self.reading.hidden:
            return ReasonCode.HIDDEN_TEXT
        if self.policy.verify_claim_relevance and self.irrelevant:
            return ReasonCode.CITATION_IRRELEVANT
        if self.ai_synthesis and not self.policy.auto_approve_ai_synthesis:
            return ReasonCode.AI_SYNTHESIS_HELD
        if len(self.verified) < len(self.reading.citations) and self.policy.failed_citation_overrides_trust:
            return ReasonCode.CITATION_UNVERIFIED
        return None

    def recorded_as(self, base_code: ReasonCode, own_cap: ReasonCode | None) -> Self:
        """Set what state decided from: `policy` and engine may be others since."""
        # a source that counts as AI synthesis may be trusted as such
        source = self.source if self.source in self.policy.trusted_sources else self.claim.source
        self.base = explain(_UNAPPROVED.get(base_code, IngestionTier.AUTO_APPROVE), base_code, source)
        self.own_cap = own_cap
        return self

    def judged(self, tier: IngestionTier | None = None) -> TreeOutcome:
        """Lower `base` by a duplicate or by the first cap that applies; a tier that is not given follows from that."""
        duplicate = tier == IngestionTier.BLOCK if tier else self.duplicate
        found = compared(self.base, is_duplicate=duplicate, dedup_failed=self.dedup.status == "failed")
        if found.tier != IngestionTier.AUTO_APPROVE or tier == IngestionTier.AUTO_APPROVE:
            return found
        is_first = self.own_cap in {ReasonCode.HIDDEN_TEXT, self.base.code}
        code = self.own_cap if is_first else self.state_cap() or self.own_cap
        if code is None and tier:  # what differs materially is not known without the policy that decided
            code = ReasonCode.CONFLICTING_NEAR_DUPLICATE
        return cap(code) if code else found

    def state_cap(self) -> ReasonCode | None:
        # a duplicate that was not blocked is a conflict by the rules that decided
        if MatchKind.CONFLICT in self.matches or MatchKind.DUPLICATE in self.matches:
            return ReasonCode.CONFLICTING_NEAR_DUPLICATE
        if MatchKind.REJECTED in self.matches:
            return ReasonCode.PREVIOUSLY_REJECTED
        return ReasonCode.DERIVED_FROM_UNAPPROVED if self.unapproved_parents else None

    @property
    def irrelevant(self) -> list[str]:
        """Labels of the verified citations that were not shown to share the claim's words (S0-155)."""
        first = self.reading.first_places
        relevant = {entry["start"] for entry in self.facts.relevance or () if entry["relevant"]}
        return [c.label for c in self.verified if c.start == first[c.label] and c.start not in relevant]

    def fields(self, outcome: TreeOutcome, limits: Limits) -> Fields:
        claim, facts, reading = self.claim, self.facts, self.reading
        match = self.conflicting(outcome.code)
        checks = list_checks(self, joined=outcome.code == ReasonCode.PENDING_DUPLICATE)
        lists, truncated = checks.within(limits)
        if facts.parents and limits.characters < max(len(parent.id) for parent in facts.parents):
            # `derived_from` holds the ids whole, in the same order; the other facts are short
            parents = [
                ParentFact(id=parent.id[: limits.characters], state=parent.state) for parent in facts.parents
            ]
            facts = facts.model_copy(update={"parents": parents})
        source_id = claim.source_id if claim.source_id is not None else primary_source(self)
        fields = lists | {
            "memory_type": claim.memory_type,
            "source": claim.source,
            "derived_from": claim.derived_from,
            "hedges": [
                HedgeMark.made(
                    text=hedge.text[: limits.characters],
                    category=hedge.category,
                    action=str(hedge.action),
                    start=hedge.start,
                    end=hedge.end,
                )
                for hedge in reading.hedges[: limits.entries]
            ],
            "citations": [
                CitationResult.made(
                    type=citation.type,
                    value=citation.value[: limits.characters],
                    start=citation.start,
                    end=citation.end,
                    state=finding.state,
                    detail=finding.detail[:MAX_CHARACTERS],
                    checked_at=finding.checked_at,
                )
                for citation in reading.citations[:MAX_ENTRIES]
                for finding in [self.finding(citation)]
            ],
            "similarity_score": round(match.inter / match.union, 4) if match else None,
            "conflicting_memory_id": match.subject_id if match else None,
            "evidence": EvidenceObject(
                claim=claim.content,
                capture_time=claim.captured_at or facts.clock,
                confidence=CONFIDENCE[outcome.tier],
                source_id=source_id[:MAX_SOURCE_ID] if source_id is not None else None,
                validity_horizon=claim.validity_horizon,
                metadata=claim.metadata,
            ),
            "report": None,
            "facts": facts,
        }
        whole = {"hedges": reading.hedges, "citations": reading.citations}
        return fields, truncated | left_out(whole, fields)

    def conflicting(self, code: ReasonCode) -> DedupMatch | None:
        """Return the match that the decision names, by what it came to (S0-118)."""
        if code == ReasonCode.PENDING_DUPLICATE:
            return self.matches.get(MatchKind.PENDING)
        deciding = (MatchKind.DUPLICATE, MatchKind.CONFLICT, MatchKind.REJECTED)
        return next(filter(None, map(self.matches.get, deciding)), None) if self.matches else None


def matches_of(case: ClaimCase) -> dict[MatchKind | None, DedupMatch]:
    """Return the first match of each kind in the facts of a case."""
    found = case.dedup.matches
    return first_matches(found, match_rules(case.policy)) if found else {}


def primary_source(case: ClaimCase) -> str | None:
    """Return the id of the first verified citation, else of the first detected one (S0-55)."""
    citation = next(iter(case.verified or case.reading.citations), None)
    return citation.source_id if citation else None


def list_checks(case: ClaimCase, *, joined: bool = False) -> Checks:
    """Name every check of a claim as `name` or `name: detail`, in the order in which the gate looks.

    `joined`: whether it follows a pending one. Requirements S0-03, S0-149, S0-150, S0-159.
    """
    checks = Checks()
    claim, facts, reading = case.claim, case.facts, case.reading
    if facts.error:  # the text was not read: nothing is known of hedges and citations
        checks.failed += ["hedges_unavailable", "citation_unavailable", "citation_verification_unavailable"]
    else:
        failed = [f"hedge_words_detected: {', '.join(reading.hedge_words)}"] if reading.hedge_words else []
        failed += [f"hidden_text: {', '.join(reading.hidden)}"] if reading.hidden else []
        checks.add("no_speculation", failed)
    _list_dedup(case, checks, joined=joined)
    if not facts.error:
        _list_citations(case, checks)
    if case.policy.verify_claim_relevance and case.verified:
        checks.add("citation_relevant", [f"citation_irrelevant: {label}" for label in case.irrelevant])
    else:
        checks.skipped.append("relevance_skipped")
    if case.unattested:
        checks.failed.append(f"source_unattested: {claim.source}")
    else:
        trusted = claim.source in case.policy.trusted_sources
        checks.add(
            f"trusted_source: {claim.source}", [] if trusted else [f"source_not_trusted: {claim.source}"]
        )
    if not claim.derived_from:
        checks.skipped.append("parents_skipped")
    elif facts.parents is None:
        checks.failed.append("parents_unavailable")
    else:
        failed = [f"derived_from_unapproved: {parent}" for parent in dict.fromkeys(case.unapproved_parents)]
        checks.add("parents_approved", failed)
    if claim.validity_horizon is None:
        checks.skipped.append("validity_skipped")
    else:
        checks.add("not_expired", ["expired"] if case.expired else [])
    checks.add_place(facts.place)
    return checks


def _list_dedup(case: ClaimCase, checks: Checks, *, joined: bool) -> None:
    if case.dedup.status == "disabled":
        checks.skipped += ["dedup_skipped", "previously_rejected_skipped"]
        return
    if case.dedup.status == "failed":
        checks.failed += ["dedup_check_failed", "previously_rejected_unavailable"]
        return
    if not case.matches:
        checks.passed += ["not_duplicate", "not_previously_rejected"]
        return
    duplicate, conflict, rejected, pending = map(case.matches.get, MatchKind)
    failed = [f"duplicate: {duplicate.subject_id}"] if duplicate else []
    if conflict:
        failed.append(f"conflicting_near_duplicate: {conflict.subject_id}: {conflict.difference}")
    passed = "not_duplicate"
    if joined and pending and pending.inter != pending.union:
        passed += f": {pending.subject_id}: in other words"
    checks.add(passed, failed)
    failed = [f"previously_rejected: {rejected.subject_id}"] if rejected else []
    checks.add("not_previously_rejected", failed)


def _list_citations(case: ClaimCase, checks: Checks) -> None:
    if not case.reading.citations:
        checks.failed.append("citation_missing")
        checks.skipped.append("citation_verification_skipped")
        return
    checks.passed.append("citation_present")
    verified = {citation.label for citation in case.verified}
    for label in dict.fromkeys(citation.label for citation in case.reading.citations):
        held = label in verified
        checks.add(f"citation_verified: {label}", [] if held else [f"citation_unverified: {label}"])
