"""The decision of a claim, pure: its text's hedges, citations and dedup keys, the tree, the caps and the queue.

State's step and this know the tier: state needs it to keep the queue and the index, this to say why. `prejudge` gives
state its part; a test holds both to the same answer for every input.

Requirements S0-24..S0-45, S0-112, S0-114, S0-161, S0-162, C-03, C-11, C-27, C-35.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from groundwire.checks.citations import MAX_CREDITED, Citation, CitationDetector
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.keys import KeyFunction, key_function, scheme
from groundwire.checks.dedup.signature import Thresholds, basis_points, signature
from groundwire.checks.hedges import Hedge, HedgeAction, HedgeDetector, Lexicon, hedge_lexicon
from groundwire.errors import UsageError
from groundwire.gate.tree import CONVERSATIONS, TreeOutcome, cap, evaluate_tree, explain, reviewed
from groundwire.messages.base import immutable
from groundwire.messages.decisions import (
    CitationState,
    DedupFacts,
    DedupMatch,
    Facts,
    IngestionTier,
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

_TIERS: Final = tuple(IngestionTier)
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
        return tuple(citation for citation in self.citations[:MAX_CREDITED] if not citation.doubt)


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

    def facts(self, clock: datetime) -> Facts:
        return Facts.made(
            clock=clock, attestation=self.attestation, relevance=self.relevance or None, error=self.error
        )


class DedupVerdict(NamedTuple):
    """What a decision's matches come to: the first of each kind, in the order of the facts."""

    duplicate: DedupMatch | None
    conflict: DedupMatch | None
    rejected: DedupMatch | None
    pending: DedupMatch | None


_DECIDING: Final = (MatchKind.DUPLICATE, MatchKind.CONFLICT, MatchKind.REJECTED, MatchKind.PENDING)
_NO_MATCH: Final = DedupVerdict(None, None, None, None)
_DISABLED: Final = DedupFacts(status="disabled", scheme="", matches=[])


def verdict_of(matches: Sequence[DedupMatch], rules: MatchRules) -> DedupVerdict:
    """Sort matches by what they mean (C-08, C-09)."""
    first = {kind_of(match, rules): match for match in reversed(matches)}
    return DedupVerdict(*map(first.get, _DECIDING))


REVIEW_PLACE = "review_place"
"""The check of what has a place in the queue, and only of that."""

_FULL = {Place.USER_FULL: "user", Place.TENANT_FULL: "tenant", Place.TOTAL_FULL: "total"}


@dataclass(slots=True)
class Checks:
    """The checks that passed, failed or were skipped, in the order of the contract's table.

    Each check is in one of the lists, once or more (S0-03, S0-149, S0-150, S0-159, X-02).
    """

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, passed: str, failed: list[str]) -> None:
        if failed:
            self.failed += failed
        else:
            self.passed.append(passed)

    def add_place(self, place: Place) -> None:
        if place in _FULL:
            self.failed.append(f"review_queue_full: {_FULL[place]}")
        elif place == Place.FREE:
            self.passed.append(REVIEW_PLACE)


class ClaimCase:
    """A claim with everything that bears on its decision; pure."""

    def __init__(
        self, claim: Claim, reading: ClaimReading, policy: Policy, facts: Facts, findings: Findings
    ) -> None:
        self.claim = claim
        self.reading = UNREAD if facts.error else reading
        self.policy = policy
        self.findings = findings
        self._take(facts)
        outside_ai = claim.source in policy.trusted_sources or claim.source in CONVERSATIONS
        self.unattested = policy.attestation == "hmac" and outside_ai and not facts.attested
        self.source = AI_SYNTHESIS if self.unattested else claim.source
        self.expired = claim.validity_horizon is not None and claim.validity_horizon <= facts.clock
        self.verified = [
            c for c in self.reading.verifiable if self.finding(c).state == CitationState.VERIFIED
        ]
        """The citations that were checked and exist."""

    def with_state(self, facts: Facts) -> ClaimCase:
        """Return the case with what state answered: duplicates, parents and place; the other facts are equal."""
        case = ClaimCase.__new__(ClaimCase)  # a third of the time of `copy`
        case.__dict__.update(self.__dict__)
        case._take(facts)  # noqa: SLF001 - of the copy
        return case

    def _take(self, facts: Facts) -> None:
        self.facts = facts
        self.dedup = facts.dedup or _DISABLED
        matches = self.dedup.matches
        self.matches = verdict_of(matches, match_rules(self.policy)) if matches else _NO_MATCH

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

    def before_queue(self) -> TreeOutcome:
        """Return tier and reason before the queue: expiry, the tree, the caps."""
        base = self.base()
        if base.tier != IngestionTier.AUTO_APPROVE:
            return base
        code = self.hidden_cap or self.state_cap() or self.late_cap()
        return cap(code) if code else base

    def base(self) -> TreeOutcome:
        if self.expired:
            return explain(IngestionTier.BLOCK, ReasonCode.EXPIRED)
        if self.facts.error:
            return explain(IngestionTier.FLAG_REVIEW, ReasonCode.INTERNAL_ERROR)
        tree = evaluate_tree(
            self.hedge,
            is_duplicate=self.matches.duplicate is not None,
            dedup_failed=self.dedup.status == "failed",
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

    @property
    def hidden_cap(self) -> ReasonCode | None:
        return ReasonCode.HIDDEN_TEXT if self.reading.hidden else None

    def late_cap(self) -> ReasonCode | None:
        """Return the cap that comes after those of state's answer and needs none of it."""
        if self.policy.verify_claim_relevance and self.irrelevant:
            return ReasonCode.CITATION_IRRELEVANT
        if self.ai_synthesis and not self.policy.auto_approve_ai_synthesis:
            return ReasonCode.AI_SYNTHESIS_HELD
        if len(self.verified) < len(self.reading.citations) and self.policy.failed_citation_overrides_trust:
            return ReasonCode.CITATION_UNVERIFIED
        return None

    @property
    def irrelevant(self) -> list[str]:
        """Labels of the verified citations that were not shown to share the claim's words (S0-155)."""
        first = {citation.label: citation.start for citation in reversed(self.verified)}
        relevant = {entry["start"] for entry in self.facts.relevance or () if entry["relevant"]}
        return [c.label for c in self.verified if c.start == first[c.label] and c.start not in relevant]

    def outcome(self) -> TreeOutcome:
        """Return tier and reason as published: what a person decided, else the tree and its caps, then the queue."""
        if self.facts.review is not None:
            duplicate = self.matches.duplicate is not None
            return reviewed(self.facts.review["action"], expired=self.expired, duplicate=duplicate)
        judged = self.before_queue()
        if judged.tier != IngestionTier.FLAG_REVIEW:
            return judged
        if self.joins:
            return explain(IngestionTier.FLAG_REVIEW, ReasonCode.PENDING_DUPLICATE)
        if self.facts.place not in {Place.FREE, Place.NOT_NEEDED}:
            return explain(IngestionTier.BLOCK, ReasonCode.REVIEW_QUEUE_FULL)
        return judged

    @property
    def joins(self) -> bool:
        """Whether the claim, in review, follows one that is already pending (C-09)."""
        return self.matches.pending is not None and self.facts.place == Place.NOT_NEEDED

    def conflicting(self, code: ReasonCode) -> DedupMatch | None:
        """Return the match that the decision names, by what it came to (S0-118)."""
        if code == ReasonCode.PENDING_DUPLICATE:
            return self.matches.pending
        return self.matches.duplicate or self.matches.conflict or self.matches.rejected

    def state_cap(self) -> ReasonCode | None:
        """Return the cap that state's answer brings, if one applies to a tier 1."""
        if self.matches.conflict:
            return ReasonCode.CONFLICTING_NEAR_DUPLICATE
        if self.matches.rejected:
            return ReasonCode.PREVIOUSLY_REJECTED
        return ReasonCode.DERIVED_FROM_UNAPPROVED if self.unapproved_parents else None


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
    duplicate, conflict, rejected, pending = case.matches
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


class Prejudgement(NamedTuple):
    """What is known before state is asked: the tree as if nothing were a duplicate, and the cap on top of it.

    State's step takes the tier and whether it is capped; the codes are recorded for a later engine.
    """

    base: TreeOutcome
    cap: ReasonCode | None

    @property
    def base_tier(self) -> int:
        return _TIERS.index(self.base.tier) + 1


def prejudge(case: ClaimCase) -> Prejudgement:
    return Prejudgement(case.base(), case.hidden_cap or case.late_cap())
