"""One claim: what the rules found, whether a model is asked about it, and its verification (C-49)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.support.score import SupportVerdict
from groundwire.checks.support.verify import AnswerCheck, ClaimCheck, Uncovered
from groundwire.epistemic.types import (
    TARGET,
    ClaimVerification,
    EpistemicGap,
    GapType,
    Score,
    UncoveredWord,
    VerificationConfig,
    evidence_gap_bits,
)
from groundwire.text.negation import negations
from groundwire.text.tokens import tokenize

UNPARSEABLE: Final = "verifier_unparseable"
UNAVAILABLE: Final = "verifier_unavailable"

ACTIONS: Final[dict[GapType, str]] = {
    "unsupported": "Remove the claim, or cite evidence that states it.",
    "partial_support": "Keep what the evidence states, and remove or support the rest.",
    "phantom_citation": "Cite a source that exists.",
    "contradicted": "Correct the claim to what the evidence states.",
    "over_extrapolation": "Say no more than the evidence does.",
    "evidence_independent": "Check that the claim follows from the evidence rather than from memory.",
}

_LISTED: Final = 100  # uncovered words of a claim
_CITED: Final = re.compile(r"\d|\[[^\]]{1,200}\]|https?://", re.IGNORECASE)
_hedges = HedgeDetector()


class ClaimDraft(NamedTuple):
    """A claim as the rules see it, before a model is asked."""

    claim_id: str
    text: str
    evidence_ids: tuple[str, ...]
    support: float
    held: float
    verdict: SupportVerdict
    phantom: bool = False
    start: int = 0
    end: int = 0
    uncovered: tuple[Uncovered, ...] = ()
    critical: bool = False
    hard: bool = False
    cost: float | None = None  # with `lacking`, of a part of an answer; None for what is judged by itself
    lacking: float = 0.0
    size: int = 0


class Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelOpinion(Fact):
    """What a model said of a claim.

    Attributes:
        claim_id: of the plan that was asked.
        support: probability that the evidence states the claim; None where no answer counts.
        prior: the same without the evidence; None where it was not measured.
        verdict: the model's, where it gave one.
        reason: in its words, at most 300 characters.
        fault: `verifier_unavailable` or `verifier_unparseable` where an answer does not count.
    """

    claim_id: str
    support: Score | None = None
    prior: Score | None = None
    verdict: SupportVerdict | None = None
    reason: Annotated[str, Field(max_length=300)] = ""
    fault: str = ""


def draft_of(claim_id: str, claim: ClaimCheck) -> ClaimDraft:
    return ClaimDraft(
        claim_id,
        claim.text,
        claim.evidence_ids,
        claim.support,
        claim.held,
        claim.verdict,
        start=claim.start,
        end=claim.end,
        uncovered=claim.uncovered[:_LISTED],
        hard=claim.hard,
        cost=claim.cost,
        lacking=claim.lacking,
        size=claim.size,
    )


def whole_draft(
    claim_id: str, text: str, check: AnswerCheck, cited: Sequence[str], *, phantom: bool = False
) -> ClaimDraft:
    """Return the draft of a text that was given as one claim: its worst part names what is wrong.

    A text that claims nothing is supported by nothing.
    """
    found = ClaimDraft(
        claim_id, text, tuple(cited), 0.0, 0.0, SupportVerdict.UNSUPPORTED, phantom, 0, len(text)
    )
    if not check.claims:
        return found
    worst = max(check.claims, key=lambda claim: claim.cost).verdict
    held = sum(claim.held * len(claim.text) for claim in check.claims)
    uncovered = tuple(word for claim in check.claims for word in claim.uncovered)
    return found._replace(
        support=check.support,
        held=held / sum(len(claim.text) for claim in check.claims),
        verdict=SupportVerdict.PARTIAL if worst is SupportVerdict.SUPPORTED else worst,
        uncovered=uncovered[:_LISTED],
        hard=any(claim.hard for claim in check.claims),
    )


def verification_of(
    draft: ClaimDraft,
    config: VerificationConfig,
    opinion: ModelOpinion | None = None,
    *,
    target: float = TARGET,
) -> ClaimVerification:
    """Return the verification of a claim.

    A model can lower what the rules found, and raise it only where configured: neither support nor the gap of what
    the rules flag gets better by it. What it said that does not parse changes no score, and flags the claim (S4-17).
    """
    said = opinion.support if opinion else None
    support = draft.support
    if said is not None:
        support = said if config.model_may_clear and not draft.phantom else min(support, said)
    prior = opinion.prior if opinion and opinion.prior is not None else config.prior_support
    measured = said is not None and opinion is not None and opinion.prior is not None
    dependence = abs(said - prior) if measured and said is not None else draft.held
    independent = measured and dependence < config.dependence_threshold
    bits = evidence_gap_bits(support, prior, target)
    if not config.model_may_clear and draft.support < config.support_threshold:
        # what a model believes without evidence does not shrink the gap of what the rules flag
        bits = max(bits, evidence_gap_bits(draft.support, config.prior_support, target))
    reason = _flag_reason(draft, support, config, opinion, independent=independent)
    # what the rules merely doubt is soft; what they contradict, and what a model says, is not
    soft = draft.support < config.support_threshold and support == draft.support
    soft = soft and draft.cost is not None and not (draft.hard or draft.phantom)
    return ClaimVerification(
        claim_id=draft.claim_id,
        claim_text=draft.text,
        evidence_ids=list(draft.evidence_ids),
        evidence_support=support,
        evidence_dependence=dependence,
        consistency_score=1.0 if said is None else 1 - abs(said - draft.support),
        confidence_justified=bits <= 0 and reason is None,
        evidence_gap_bits=bits,
        is_flagged=reason is not None,
        severity=None if reason is None else "soft" if soft else "hard",
        flag_reason=reason,
        method="deterministic" if said is None else "model",
        prior_support=prior,
        start=draft.start,
        end=draft.end,
        uncovered=[UncoveredWord(text=word.text, start=word.start, end=word.end) for word in draft.uncovered],
    )


def _flag_reason(
    draft: ClaimDraft,
    support: float,
    config: VerificationConfig,
    opinion: ModelOpinion | None,
    *,
    independent: bool,
) -> str | None:
    if draft.phantom:
        return "phantom_citation"
    if support < config.support_threshold:
        # the rules' verdict, or the model's where the rules found nothing
        said = opinion.verdict if opinion and draft.support >= config.support_threshold else None
        verdicts = (said, draft.verdict, SupportVerdict.PARTIAL)
        return next(one.value for one in verdicts if one and one is not SupportVerdict.SUPPORTED)
    if draft.hard:
        hard = draft.verdict is not SupportVerdict.SUPPORTED
        return (draft.verdict if hard else SupportVerdict.CONTRADICTED).value
    if opinion is not None and opinion.fault:
        return opinion.fault
    return "evidence_independent" if independent else None


def gap_of(claim: ClaimVerification) -> EpistemicGap | None:
    for kind, action in ACTIONS.items():
        if kind == claim.flag_reason:
            return EpistemicGap(
                claim_id=claim.claim_id,
                claim_text=claim.claim_text,
                gap_type=kind,
                gap_bits=claim.evidence_gap_bits,
                suggested_action=action,
            )
    return None


def claims_to_ask(drafts: Iterable[ClaimDraft], config: VerificationConfig) -> tuple[list[ClaimDraft], int]:
    """Return the claims about which a model is asked, and how many more were due beyond the limit (S4-33, S4-35)."""
    due = [draft for draft in drafts if _is_due(draft, config)]
    return due[: config.max_claims_per_response], max(0, len(due) - config.max_claims_per_response)


def _is_due(draft: ClaimDraft, config: VerificationConfig) -> bool:
    if draft.phantom:
        return False  # known to be wrong without a question (S4-24)
    if config.model_scope == "doubtful" and not is_doubtful(draft, config):
        return False
    if config.mode == "full":
        return True
    if config.mode == "sample":
        return is_sampled(draft.claim_id, config.sample_rate, config.sample_seed)
    return draft.critical or is_critical_text(draft.text)


def is_doubtful(draft: ClaimDraft, config: VerificationConfig) -> bool:
    """Tell whether rules leave a claim open: no hard fault, and less support than it should have.

    Where one doubtful claim flags the answer, and no model may clear it, those that rules flag are decided too.
    """
    decided = config.operating_point == "strict" and not config.model_may_clear
    least = config.support_threshold if decided else 0.0
    return not draft.hard and least <= round(draft.support, 4) < TARGET


def is_sampled(claim_id: str, rate: float, seed: str = "") -> bool:
    """Tell whether a claim belongs to the sample: always the same for the same id and seed (S4-44, C-61)."""
    digest = blake2b(f"{seed}\0{claim_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) < rate * 2**64


def is_critical_text(claim: str) -> bool:
    """Tell whether a claim has an uncertainty marker, a number, a citation or a negation (S4-45, C-60, C-62, C-63)."""
    return bool(_CITED.search(claim) or negations(tokenize(claim)) or _hedges.find(claim))
