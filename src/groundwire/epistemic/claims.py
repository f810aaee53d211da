"""From what the rules found, and what a model said, to the verification of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from groundwire.checks.epistemic.score import Verdict
from groundwire.checks.epistemic.verify import AnswerCheck, ClaimCheck
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.scale import TARGET, evidence_gap_bits
from groundwire.epistemic.types import ClaimVerification, EpistemicGap, GapType, UncoveredWord

UNPARSEABLE: Final = "verifier_unparseable"
UNAVAILABLE: Final = "verifier_unavailable"
_SHOWN: Final = 100

ACTIONS: Final[dict[GapType, str]] = {
    "unsupported": "Remove the claim, or cite evidence that states it.",
    "partial_support": "Keep what the evidence states, and remove or support the rest.",
    "phantom_citation": "Cite a source that exists.",
    "contradicted": "Correct the claim to what the evidence states.",
    "over_extrapolation": "Say no more than the evidence does.",
    "evidence_independent": "Check that the claim follows from the evidence rather than from memory.",
}


class Draft(NamedTuple):
    """A claim as the rules see it, before a model is asked."""

    claim_id: str
    text: str
    evidence_ids: tuple[str, ...]
    support: float
    held: float
    verdict: Verdict
    phantom: bool = False
    start: int = 0
    end: int = 0
    uncovered: tuple[tuple[str, int, int], ...] = ()
    critical: bool = False


class Opinion(NamedTuple):
    """What a model said of a claim: `fault` where an answer of it does not count."""

    support: float | None = None
    prior: float | None = None
    fault: str = ""
    verdict: Verdict | None = None
    reason: str = ""


def draft(claim_id: str, claim: ClaimCheck) -> Draft:
    """Return a claim of an answer as a draft."""
    words = tuple((word.text, word.start, word.end) for word in claim.uncovered[:_SHOWN])
    return Draft(
        claim_id,
        claim.text,
        claim.evidence_ids,
        claim.support,
        claim.held,
        claim.verdict,
        start=claim.start,
        end=claim.end,
        uncovered=words,
    )


def whole(
    claim_id: str, text: str, check: AnswerCheck, cited: Sequence[str], *, phantom: bool = False
) -> Draft:
    """Return a text that was given as one claim as a draft: its worst part names what is wrong.

    A text that claims nothing is supported by nothing: what was to be verified was not.
    """
    if not check.claims:
        return Draft(claim_id, text, tuple(cited), 0.0, 0.0, Verdict.UNSUPPORTED, phantom, 0, len(text))
    worst = max(check.claims, key=lambda claim: claim.cost)
    words = tuple((word.text, word.start, word.end) for claim in check.claims for word in claim.uncovered)
    held = sum(claim.held * len(claim.text) for claim in check.claims) / sum(
        len(claim.text) for claim in check.claims
    )
    verdict = worst.verdict if worst.verdict is not Verdict.SUPPORTED else Verdict.PARTIAL
    return Draft(
        claim_id, text, tuple(cited), check.support, held, verdict, phantom, 0, len(text), words[:_SHOWN]
    )


def settle(
    found: Draft, config: VerificationConfig, opinion: Opinion | None = None, *, target: float = TARGET
) -> ClaimVerification:
    """Return the verification of a claim.

    A model can lower what the rules found, and raise it only where configured: neither support nor the gap of what
    the rules flag gets better by it. What it said that does not parse changes no score, and flags the claim (S4-17).

    Args:
        found: what the rules found.
        config: thresholds.
        opinion: what a model said; None where none was asked.
        target: reliability that the claim should have, 0..1.
    """
    said = opinion.support if opinion else None
    support = found.support
    if said is not None:
        support = said if config.model_may_clear and not found.phantom else min(support, said)
    measured = opinion is not None and opinion.prior is not None and said is not None
    prior = opinion.prior if opinion and opinion.prior is not None else config.prior_support
    dependence = abs(said - prior) if measured and said is not None else found.held
    bits = evidence_gap_bits(support, prior, target)
    if not config.model_may_clear and found.support < config.support_threshold:
        # what a model thinks likely without evidence makes what the rules flag no smaller
        bits = max(bits, evidence_gap_bits(found.support, config.prior_support, target))
    reason = _reason(found, support, dependence, config, opinion, measured=measured)
    return ClaimVerification(
        claim_id=found.claim_id,
        claim_text=found.text,
        evidence_ids=list(found.evidence_ids),
        evidence_support=support,
        evidence_dependence=dependence,
        consistency_score=1.0 if said is None else 1 - abs(said - found.support),
        confidence_justified=bits <= 0 and reason is None,
        evidence_gap_bits=bits,
        is_flagged=reason is not None,
        flag_reason=reason,
        method="deterministic" if said is None else "model",
        prior_support=prior,
        start=found.start,
        end=found.end,
        uncovered=[UncoveredWord(text=text, start=start, end=end) for text, start, end in found.uncovered],
    )


def _reason(
    found: Draft,
    support: float,
    dependence: float,
    config: VerificationConfig,
    opinion: Opinion | None,
    *,
    measured: bool,
) -> str | None:
    if found.phantom:
        return "phantom_citation"
    if support < config.support_threshold:
        return _verdict(found, config, opinion).value
    if opinion is not None and opinion.fault:
        return opinion.fault
    return "evidence_independent" if measured and dependence < config.dependence_threshold else None


def _verdict(found: Draft, config: VerificationConfig, opinion: Opinion | None) -> Verdict:
    """Return what is wrong: as the rules say, or as the model does where the rules found nothing."""
    said = opinion.verdict if opinion else None
    if said and said is not Verdict.SUPPORTED and found.support >= config.support_threshold:
        return said
    return found.verdict if found.verdict is not Verdict.SUPPORTED else Verdict.PARTIAL


def gap_of(claim: ClaimVerification) -> EpistemicGap | None:
    """Return the gap that a flagged claim has; None where it has none."""
    kind = next((kind for kind in ACTIONS if kind == claim.flag_reason), None)
    if kind is None:
        return None
    return EpistemicGap(
        claim_id=claim.claim_id,
        claim_text=claim.claim_text,
        gap_type=kind,
        gap_bits=claim.evidence_gap_bits,
        suggested_action=ACTIONS[kind],
    )
