"""One claim: what the rules found, whether a model is asked about it, and its verification (C-49)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import exp, log
from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.support.score import ClaimCheck, SupportVerdict
from groundwire.checks.support.verify import AnswerCheck
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
_SCORED: Final = 100  # claims of a response that an entailment model is asked about
_MOST: Final = 20.0  # log-odds, beyond which rounding leaves nothing
_CERTAIN: Final = 0.001  # certainty counts as that much less
_CITED: Final = re.compile(r"\d|\[[^\]]{1,200}\]|https?://", re.IGNORECASE)
_hedges = HedgeDetector()


class Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelOpinion(Fact):
    """What a model says of a claim: one reply of it, or all of them together.

    `support` is the probability that the evidence states the claim: measured where there are log-probabilities, else as
    stated; None where no answer counts.
    """

    claim_id: str  # empty in a single reply, which other claims may share
    support: Score | None = None
    prior: Score | None = None  # the same without the evidence; None where it was not measured
    verdict: SupportVerdict | None = None  # where it gave one and saw the evidence
    reason: Annotated[str, Field(max_length=300)] = ""
    fault: str = ""  # `verifier_unavailable` or `verifier_unparseable` where an answer does not count


class ScoredClaim(NamedTuple):
    """A claim as an entailment model and the rules see it."""

    score: float  # of the model, 0..1
    rules: float  # support by the rules
    hard: bool  # a hard fault by the rules

    def support(self, head: Sequence[float]) -> float:
        """Return what a head makes of it (`VerificationConfig.entailment_head`), rounded."""
        odds = sum(weight * feature for weight, feature in zip(head, self.features, strict=True))
        return round(1 / (1 + exp(-max(-_MOST, min(_MOST, odds)))), 4)

    @property
    def features(self) -> tuple[float, float, float, float]:
        return 1.0, _log_odds(self.score), _log_odds(self.rules), float(self.hard)


def _log_odds(share: float) -> float:
    share = min(max(share, _CERTAIN), 1 - _CERTAIN)
    return log(share / (1 - share))


def whole_claim(
    claim_id: str,
    text: str,
    check: AnswerCheck,
    cited: Sequence[str],
    *,
    phantom: bool = False,
    critical: bool = False,
) -> ClaimCheck:
    """Return the check of a text that was given as one claim: its worst part names what is wrong.

    A text that claims nothing is supported by nothing.
    """
    parts = check.claims
    worst = max(parts, key=lambda part: part.cost).verdict if parts else SupportVerdict.UNSUPPORTED
    held = sum(part.held * len(part.text) for part in parts)
    return ClaimCheck(
        text,
        0,
        len(text),
        check.support if parts else 0.0,
        sum(part.cost for part in parts),
        SupportVerdict.PARTIAL if worst is SupportVerdict.SUPPORTED else worst,
        tuple(cited),
        held / sum(len(part.text) for part in parts) if parts else 0.0,
        uncovered=tuple(word for part in parts for word in part.uncovered),
        faults=tuple(fault for part in parts for fault in part.faults),
        misplaced=any(part.misplaced for part in parts),
        invented=any(part.invented for part in parts),
        force=next((part.force for part in parts if part.force), None),
        quoted=bool(parts) and all(part.quoted for part in parts),
        places=tuple(place for part in parts for place in part.places),
        claim_id=claim_id,
        phantom=phantom,
        critical=critical,
        declared=True,
    )


def verification_of(
    claim: ClaimCheck,
    config: VerificationConfig,
    opinion: ModelOpinion | None = None,
    *,
    target: float = TARGET,
    scored: bool = False,
) -> ClaimVerification:
    """Return the verification of a claim.

    A model can lower what the rules found, and raise it only where configured: neither support nor the gap of what
    the rules flag gets better by it. What it said that does not parse changes no score, and flags the claim (S4-17).
    What an entailment model `scored` goes through the head, and there may outweigh a hard fault; its doubts add up.
    """
    said = opinion.support if opinion else None
    if said is not None and scored:
        said = ScoredClaim(said, claim.support, claim.hard).support(config.entailment_head)
    support = claim.support
    clears = said is not None and config.model_may_clear and not claim.phantom
    if said is not None:
        support = said if clears else min(support, said)
    hard = claim.hard and not (clears and scored)
    prior = opinion.prior if opinion and opinion.prior is not None else config.prior_support
    measured = said is not None and opinion is not None and opinion.prior is not None
    dependence = abs(said - prior) if measured and said is not None else claim.held
    independent = measured and dependence < config.dependence_threshold
    bits = evidence_gap_bits(support, prior, target)
    if not config.model_may_clear and claim.support < config.support_threshold:
        # what a model believes without evidence does not shrink the gap of what the rules flag
        bits = max(bits, evidence_gap_bits(claim.support, config.prior_support, target))
    reason = _flag_reason(claim, support, config, opinion, hard=hard, independent=independent)
    # what the rules merely doubt is soft; what they contradict, and what a language model says, is not
    soft = claim.support < config.support_threshold and support == claim.support
    soft = (soft or (scored and said is not None)) and not (claim.declared or hard or claim.phantom)
    return ClaimVerification(
        claim_id=claim.claim_id,
        claim_text=claim.text,
        evidence_ids=list(claim.evidence_ids),
        evidence_support=support,
        evidence_dependence=dependence,
        consistency_score=1.0 if said is None else 1 - abs(said - claim.support),
        confidence_justified=bits <= 0 and reason is None,
        evidence_gap_bits=bits,
        is_flagged=reason is not None,
        severity=None if reason is None else "soft" if soft else "hard",
        flag_reason=reason,
        method="deterministic" if said is None else "model",
        prior_support=prior,
        start=claim.start,
        end=claim.end,
        uncovered=[
            UncoveredWord(text=word.text, start=word.start, end=word.end)
            for word in claim.uncovered[:_LISTED]
        ],
    )


def _flag_reason(
    claim: ClaimCheck,
    support: float,
    config: VerificationConfig,
    opinion: ModelOpinion | None,
    *,
    hard: bool,
    independent: bool,
) -> str | None:
    if claim.phantom:
        return "phantom_citation"
    if support < config.support_threshold:
        # the rules' verdict, or the model's where the rules found nothing
        said = opinion.verdict if opinion and claim.support >= config.support_threshold else None
        verdicts = (said, claim.verdict, SupportVerdict.PARTIAL)
        return next(one.value for one in verdicts if one and one is not SupportVerdict.SUPPORTED)
    if hard:
        said_so = claim.verdict is not SupportVerdict.SUPPORTED
        return (claim.verdict if said_so else SupportVerdict.CONTRADICTED).value
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


def claims_to_ask(claims: Iterable[ClaimCheck], config: VerificationConfig) -> tuple[list[ClaimCheck], int]:
    """Return the claims about which a model is asked, and how many more were due beyond the limit (S4-33, S4-35).

    An entailment model costs no money and little time: no sample is drawn of what it is asked.
    """
    due = []
    for claim in claims:
        # a phantom is known to be wrong without a question (S4-24)
        if claim.phantom or (config.model_scope == "doubtful" and not is_doubtful(claim, config)):
            continue
        if config.entailment_model:
            wanted = True
        elif config.mode == "sample":
            wanted = is_sampled(claim.claim_id, config.sample_rate, config.sample_seed)
        else:
            wanted = config.mode == "full" or claim.critical or is_critical_text(claim.text)
        if wanted:
            due.append(claim)
    most = _SCORED if config.entailment_model else config.max_claims_per_response
    return due[:most], max(0, len(due) - most)


def is_doubtful(claim: ClaimCheck, config: VerificationConfig) -> bool:
    """Return whether rules leave a claim open, however sure they are: they know words, not what is said with them.

    Decided is what a passage asserts in the same words, and a hard fault that no model may outweigh. Where one doubtful
    claim flags the answer, and no model may clear it, those that rules flag are decided too.
    """
    if claim.hard:
        return bool(config.entailment_model) and config.model_may_clear
    strict = config.operating_point == "strict" and not config.model_may_clear
    return not (claim.quoted or (strict and round(claim.support, 4) < config.support_threshold))


def is_sampled(claim_id: str, rate: float, seed: str = "") -> bool:
    """Return whether a claim belongs to the sample: always the same for the same id and seed (S4-44, C-61)."""
    digest = blake2b(f"{seed}\0{claim_id}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) < rate * 2**64


def is_critical_text(claim: str) -> bool:
    """Return whether a claim has an uncertainty marker, number, citation or negation (S4-45, C-60, C-62, C-63)."""
    return bool(_CITED.search(claim) or negations(tokenize(claim)) or _hedges.find(claim))
