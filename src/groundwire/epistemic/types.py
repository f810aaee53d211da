"""What epistemic verification hands back (S4-08..S4-15)."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

Score = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
GapType = Literal[
    "unsupported",
    "partial_support",
    "phantom_citation",
    "contradicted",
    "over_extrapolation",
    "evidence_independent",
]
GAP_TYPES = frozenset(get_args(GapType))
"""The six ways in which a claim may want evidence (S4-11)."""


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class UncoveredWord(_Result):
    """A word of a claim that the evidence does not hold; positions are characters of the text checked."""

    text: str
    start: Count
    end: Count


class ClaimVerification(_Result):
    """Result of verifying a claim (S4-08, S4-09).

    Attributes:
        claim_id: `<response id>#<n>`, counted from 1.
        claim_text: as written.
        evidence_ids: what it was held against: the ids cited, else those that bind its words, the best one first.
        evidence_support: how well the evidence supports it.
        evidence_dependence: how much it rests on the evidence. Measured where a model was asked without the evidence;
            else the share of it that stands in the evidence.
        consistency_score: how far the verdicts of rules and model agree; 1.0 where only one was asked.
        confidence_justified: whether the evidence bears out the reliability asked for: the gap is 0 or less.
        evidence_gap_bits: bits that are missing for it, negative where there are more than enough.
        is_flagged: whether something is wrong.
        flag_reason: a gap type, `verifier_unparseable` or `verifier_unavailable`; None where not flagged.
        method: `deterministic`, or `model` where a model's answer counted too.
        prior_support: support without evidence, measured or configured.
        start: position in the text checked, in characters.
        end: the same, behind its last character.
        uncovered: its words that the evidence does not hold, at most 100.
    """

    claim_id: str
    claim_text: str
    evidence_ids: list[str]
    evidence_support: Score
    evidence_dependence: Score
    consistency_score: Score
    confidence_justified: bool
    evidence_gap_bits: FiniteFloat
    is_flagged: bool
    flag_reason: str | None = None
    method: Literal["deterministic", "model"] = "deterministic"
    prior_support: Score = 0.02
    start: Count = 0
    end: Count = 0
    uncovered: list[UncoveredWord] = Field(default_factory=list)


class EpistemicGap(_Result):
    """A gap between a claim and its evidence (S4-10, S4-11)."""

    claim_id: str
    claim_text: str
    gap_type: GapType
    gap_bits: FiniteFloat
    suggested_action: str


class ModelCall(_Result):
    """One question to a model: what it cost (S4-47). Tokens are the service's, else a fourth of the bytes.

    Attributes:
        claim_id: the claim that it was about.
        kind: with the evidence, without it, or an open question.
        cached: the reply was known, nothing was asked.
        input_tokens: sent.
        output_tokens: received.
        cost_usd: at the configured prices.
        requests: that were made for it, failed ones included.
        fault: why it has no answer that counts: `timeout`, `refused`, `unparseable`, `over_budget`, ...; else None.
    """

    claim_id: str
    kind: Literal["support", "prior", "answer"]
    cached: bool = False
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Annotated[float, Field(ge=0)] = 0.0
    requests: Count = 1
    fault: str | None = None


class HallucinationReport(_Result):
    """What was found in a response (S4-12..S4-15).

    Attributes:
        response_id: of the response; the hash of its text where none was given.
        total_claims: verified + flagged + unverified.
        verified_claims: looked at, and nothing wrong.
        flagged_claims: something is wrong.
        unverified_claims: not looked at, as there are too many.
        claims: in text order.
        gaps: one for each flagged claim that wants evidence, in text order.
        overall_confidence: mean of the claims' support, weighted by their words; 1.0 where nothing is claimed.
        answer_support: support of the answer as a whole: doubts about its claims add up.
        max_gap_bits: of its claims; 0.0 where it has none.
        has_critical_gaps: whether a gap exceeds the threshold; independence of the evidence alone is never critical.
        should_retry: critical gaps, and failures are to be retried.
        retry_guidance: what another answer should do; None without gaps.
        model_claims: claims about which a model was asked.
        model_truncated: claims that were due for a model but beyond the limit.
        calls: what was asked, in the order of the claims.
        input_tokens: sum over `calls`.
        output_tokens: the same.
        cost_usd: the same.
    """

    response_id: str
    total_claims: Count
    verified_claims: Count
    flagged_claims: Count
    unverified_claims: Count = 0
    claims: list[ClaimVerification]
    gaps: list[EpistemicGap]
    overall_confidence: Score
    answer_support: Score = 1.0
    max_gap_bits: FiniteFloat
    has_critical_gaps: bool
    should_retry: bool
    retry_guidance: str | None = None
    model_claims: Count = 0
    model_truncated: Count = 0
    calls: list[ModelCall] = Field(default_factory=list)
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Annotated[float, Field(ge=0)] = 0.0


class VerifiedResponse(_Result):
    """What `verify_response` hands back.

    Attributes:
        answer: the answer, annotated or another one where failures ask for it.
        report: of the answer handed back, without its annotations; None where nothing was verified.
        retries: other answers that were asked for.
        skipped: why no model was asked: `no_answer`, `disabled`, `bypassed`, `too_short`, `no_evidence`; else None.
    """

    answer: str | None
    report: HallucinationReport | None
    retries: Count
    skipped: str | None = None
