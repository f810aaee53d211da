"""Configuration (S4-26..S4-36) and results (S4-08..S4-15) of epistemic verification; gaps in bits (S4-21..S4-23).

A gap is the information that a claim lacks to be as reliable as it should be. Required is what takes it from its prior
to the target reliability; observed is what the evidence gave, with the sign of its direction: evidence that speaks
against a claim is not observed for it (C-58). Both are Kullback-Leibler divergences of two coins, in bits.
"""

from __future__ import annotations

from math import isfinite, log2
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from groundwire.arguments import takes

PRIOR: Final = 0.02
"""Support without evidence, where it is not measured (C-59)."""
TARGET: Final = 0.95
"""Reliability that a claim should have (C-57)."""

_EDGE: Final = 1e-6  # certainty would be worth endless bits

Band = Literal["supported", "minor", "suspicious", "likely_hallucination"]


def evidence_gap_bits(p1: float, p0: float = PRIOR, tau: float = TARGET) -> float:
    """Return the bits that a claim lacks: KL(tau, p0) less the observed KL(p1, p0), negative below p0 (S4-21, S4-22).

    Args:
        p1: support with the evidence, 0..1.
        p0: support without it, 0..1.
        tau: target reliability, 0..1.

    Returns:
        0 or less where the evidence gives enough; with the defaults 2.00 at a support of 0.70.

    Raises:
        ValueError: an argument is no number from 0 to 1.

    Example:
        >>> round(evidence_gap_bits(0.99), 2), round(evidence_gap_bits(0.01, 0.9), 1)
        (-0.43, 3.2)
    """
    for name, value in (("p1", p1), ("p0", p0), ("tau", tau)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    observed = _divergence(p1, p0)
    return _divergence(tau, p0) - (observed if p1 >= p0 else -observed)


@takes(bits=float | int)
def gap_band(bits: float) -> Band:
    """Return what a gap means: below 0 supported, to 2 minor, to 10 suspicious, above that likely invented (S4-23).

    Raises: ValueError, `bits` is no finite number.
    """
    if not isfinite(bits):
        raise ValueError(f"bits must be a finite number, got {bits!r}")
    if bits < 0:
        return "supported"
    if bits <= 2:
        return "minor"
    return "suspicious" if bits <= 10 else "likely_hallucination"


def _divergence(p: float, q: float) -> float:
    p, q = (min(max(value, _EDGE), 1 - _EDGE) for value in (p, q))
    return p * log2(p / q) + (1 - p) * log2((1 - p) / (1 - q))


Score = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


OperatingPoint = Literal["strict", "balanced", "lenient"]

LENIENT: Final = 0.75
"""Of the threshold of support, below which the answer's has to be at the lenient operating point."""


def share_of_threshold(point: OperatingPoint) -> float:
    """Return of which share of the threshold an answer has to be supported, at an operating point."""
    return LENIENT if point == "lenient" else 1.0


def support_at(point: OperatingPoint, weakest: float, whole: float) -> float:
    """Return the support that an operating point holds against its share of the threshold."""
    whole = round(whole, 4)
    return min(weakest, whole) if point == "strict" else whole


def is_doubted(weakest: float, whole: float, point: OperatingPoint, threshold: float) -> bool:
    """Return whether doubts flag an answer; what one point flags, every stricter one flags too."""
    least = threshold if point == "strict" else round(threshold * share_of_threshold(point), 4)
    return support_at(point, weakest, whole) < least


Weight = Annotated[float, Field(ge=-100, le=100)]
AS_SCORED: Final = (0.0, 1.0, 0.0, 0.0)
"""The head without calibration: support is the model's score, whatever the rules say."""


class VerificationConfig(BaseModel):
    """Epistemic verification: thresholds, how failures are handled, and when a model is asked.

    The library's configuration, and the table `[verification]` of the policy: the one source of its defaults (S4-36).
    Deterministic checks see every claim; `mode`, limits, skip rules and the cache govern model calls alone.

    Attributes:
        enabled: `false`: no verification; the gate lists `claims_skipped: disabled`.
        support_threshold: claims and answers with less support are flagged.
        operating_point: `strict`: one flagged claim flags the answer. `balanced`: doubts add up until the
            answer's support is below the threshold; `lenient`: far below it.
        dependence_threshold: claims with less measured dependence are flagged.
        gap_threshold_bits: a gap above it is critical.
        on_failure: `flag` annotates the answer, at the gate it ends in review. `retry` requests another answer at a
            critical gap. `ask` queues it for a person.
        max_retries: most other answers requested; at the gate two.
        verification_model: model name passed to the client.
        entailment_model: name and revision of an entailment model, as `groundwire entailment` prints them; it is asked
            instead of a language model, about every claim in scope.
        entailment_head: what makes a claim's support of its score: bias, and the weights of the log-odds of score and
            of rules, and of a hard fault.
        max_claims_per_response: most claims of a response put to a model.
        parallel_verification: ask about claims concurrently.
        model_scope: `doubtful`: claims that neither a passage in the same words nor a hard fault decides; `all`: all.
        mode: within the scope, `full` asks about all, `sample` about a share, `critical_only` about those with numbers,
            citations, negations or uncertainty markers.
        sample_rate: the share for `sample`.
        sample_seed: seed of the sample (C-61).
        evidence_scrubbing: also ask without evidence, to measure dependence.
        prior_support: assumed support without evidence.
        model_may_clear: a model may raise support, not only lower it.
        samples: answers to each question, averaged.
        timeout_seconds: limit of a model call with its retries.
        max_output_tokens: limit of one model answer.
        budget_seconds: limit of all model calls of a response.
        budget_tokens: tokens sent and received a response; questions that may exceed it are not asked.
        budget_usd: US dollars a response.
        budget_tokens_per_minute: tokens a minute of one client.
        budget_usd_per_minute: US dollars a minute of one client.
        input_price: US dollars a million tokens sent.
        output_price: the same for tokens received.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), hide_input_in_errors=True)

    enabled: bool = True
    support_threshold: Score = 0.7
    operating_point: OperatingPoint = "balanced"
    dependence_threshold: Score = 0.3
    gap_threshold_bits: Annotated[float, Field(ge=0, le=100)] = 2.0
    on_failure: Literal["flag", "retry", "ask"] = "flag"
    max_retries: Annotated[int, Field(ge=0, le=10)] = 2
    verification_model: Annotated[str, Field(min_length=1, max_length=200)] = "haiku"
    entailment_model: Annotated[str, Field(pattern=r"^([^\s@]{1,150}@[0-9a-f]{16})?$")] = ""
    entailment_head: tuple[Weight, Weight, Weight, Weight] = AS_SCORED
    max_claims_per_response: Annotated[int, Field(ge=0, le=100)] = 10
    parallel_verification: bool = True
    model_scope: Literal["doubtful", "all"] = "doubtful"
    mode: Literal["full", "sample", "critical_only"] = "sample"
    sample_rate: Score = 0.3
    sample_seed: Annotated[str, Field(max_length=200)] = ""
    evidence_scrubbing: bool = True
    prior_support: Score = PRIOR
    model_may_clear: bool = False
    samples: Annotated[int, Field(ge=1, le=20)] = 1
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    max_output_tokens: Annotated[int, Field(ge=1, le=100_000)] = 300
    budget_seconds: Annotated[float, Field(gt=0, le=3_600)] = 30.0
    budget_tokens: Annotated[int, Field(ge=0, le=1_000_000_000)] = 200_000
    budget_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    budget_tokens_per_minute: Annotated[int, Field(ge=0, le=1_000_000_000)] = 2_000_000
    budget_usd_per_minute: Annotated[float, Field(ge=0, le=1_000_000)] = 10.0
    input_price: Annotated[float, Field(ge=0)] = 0.25
    output_price: Annotated[float, Field(ge=0)] = 1.25


GapType = Literal[
    "unsupported",
    "partial_support",
    "phantom_citation",
    "contradicted",
    "over_extrapolation",
    "evidence_independent",
]


class _Result(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), hide_input_in_errors=True)


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
        evidence_ids: what it was checked against: the ids cited, else those that bind its words, the best one first.
        evidence_support: how well the evidence supports it.
        evidence_dependence: how much it rests on the evidence. Measured where a model was asked without the evidence;
            else the share of it that the evidence holds.
        consistency_score: how far the verdicts of rules and model agree; 1.0 where only one was asked.
        confidence_justified: whether the evidence bears out the reliability asked for: the gap is 0 or less.
        evidence_gap_bits: bits that are missing for it, negative where there are more than enough.
        is_flagged: whether something is wrong.
        severity: of what is wrong: `hard` flags the answer, `soft` adds to other doubts; None where not flagged.
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
    severity: Literal["hard", "soft"] | None = None
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
    """One question to a model: what it cost (S4-47). Tokens are the service's, else a fourth of the bytes."""

    claim_id: str
    kind: Literal["support", "prior", "answer"]  # with the evidence, without it, or an open question
    cached: bool = False  # the reply was known, nothing was asked
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_usd: Annotated[float, Field(ge=0)] = 0.0  # at the configured prices
    requests: Count = 1  # that were made for it, failed ones included
    fault: str | None = None  # why no answer counts: `timeout`, `refused`, `unparseable`, `over_budget`, ...


class HallucinationReport(_Result):
    """What was found in a response (S4-12..S4-15).

    Attributes:
        response_id: of the response; the hash of its text where none was given.
        total_claims: verified + flagged + unverified.
        verified_claims: looked at, and nothing wrong.
        flagged_claims: something is wrong.
        unverified_claims: not looked at, as there are too many.
        is_flagged: whether the answer is: by what is hard, or by doubts as the operating point says.
        claims: in text order.
        gaps: one for each flagged claim that wants evidence, in text order.
        overall_confidence: mean of the claims' support, weighted by their words; 1.0 where nothing is claimed.
        answer_support: support of the answer as a whole, 0..1: doubts about its claims add up, hard ones aside.
        max_gap_bits: of its claims; 0.0 where it has none.
        has_critical_gaps: whether the answer is flagged and a gap exceeds the threshold; independence of the evidence
            alone is never critical.
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
    is_flagged: bool = False
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
    """The result of `verify_response`: the answer, annotated or another one where failures ask for it."""

    answer: str | None
    report: HallucinationReport | None  # of that answer without annotations; None where nothing was verified
    retries: Count  # other answers that were requested
    # why no model was asked: no_answer, disabled, bypassed, too_short, no_evidence
    skipped: str | None = None
