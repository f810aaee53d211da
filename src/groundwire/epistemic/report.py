"""From verified claims to the report of a response (S4-12..S4-15)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from groundwire.epistemic.claims import gap_of
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.types import ClaimVerification, EpistemicGap, HallucinationReport, ModelCall


def response_id_of(text: str) -> str:
    """Return the id of a response that has none: the first 16 hex digits of its hash."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def build_report(
    response_id: str,
    claims: Sequence[ClaimVerification],
    config: VerificationConfig,
    *,
    answer_support: float = 1.0,
    unverified: int = 0,
    asked: int = 0,
    truncated: int = 0,
    calls: Sequence[ModelCall] = (),
) -> HallucinationReport:
    """Return the report of a response.

    Args:
        response_id: of the response.
        claims: all that were looked at, in text order.
        config: thresholds, and what becomes of failures.
        answer_support: of the answer as a whole.
        unverified: claims that were not looked at.
        asked: claims about which a model was asked.
        truncated: claims that were due for a model but beyond the limit.
        calls: what was asked.
    """
    gaps = [gap for claim in claims if (gap := gap_of(claim))]
    flagged = sum(claim.is_flagged for claim in claims)
    weights = [max(1, len(claim.claim_text.split())) for claim in claims]
    scores = [claim.evidence_support for claim in claims]
    mean = sum(map(_product, weights, scores)) / sum(weights) if claims else 1.0
    critical = any(is_critical(gap, config) for gap in gaps)
    return HallucinationReport(
        response_id=response_id,
        total_claims=len(claims) + unverified,
        verified_claims=len(claims) - flagged,
        flagged_claims=flagged,
        unverified_claims=unverified,
        claims=list(claims),
        gaps=gaps,
        overall_confidence=min(1.0, mean),
        answer_support=min([answer_support, *scores]),
        max_gap_bits=max((claim.evidence_gap_bits for claim in claims), default=0.0),
        has_critical_gaps=critical,
        should_retry=critical and config.on_failure == "retry",
        retry_guidance=guidance(gaps) if gaps else None,
        model_claims=asked,
        model_truncated=truncated,
        calls=list(calls),
        input_tokens=sum(call.input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost_usd=sum(call.cost_usd for call in calls),
    )


def is_critical(gap: EpistemicGap, config: VerificationConfig) -> bool:
    """Tell whether a gap exceeds the threshold; independence of the evidence alone never does (S4-14, C-68)."""
    return gap.gap_type != "evidence_independent" and gap.gap_bits > config.gap_threshold_bits


def guidance(gaps: Sequence[EpistemicGap]) -> str:
    """Return what another answer should do, a line for each gap (S4-39)."""
    lines = (f"- {gap.suggested_action} ({gap.gap_type}) {gap.claim_text}" for gap in gaps)
    return "\n".join(("Answer again from the evidence alone.", *lines))


def _product(one: float, other: float) -> float:
    return one * other
