"""A response: what the rules find in it, what a model is asked, and the report that follows (S4-12..S4-15, S4-20).

A report follows from the response, the configuration and the recorded facts alone; nothing here loads a client.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from typing import Final, NamedTuple

from pydantic import Field

from groundwire.checks.marks import Citable, Mark, blanked, marks
from groundwire.checks.reading.statements import StatementReader, read_statements
from groundwire.checks.support.score import ClaimCheck
from groundwire.checks.support.verify import answer_support, check_answer
from groundwire.epistemic.claims import (
    Fact,
    ModelOpinion,
    ScoredClaim,
    claims_to_ask,
    gap_of,
    verification_of,
    whole_claim,
)
from groundwire.epistemic.types import (
    ClaimVerification,
    Count,
    EpistemicGap,
    HallucinationReport,
    ModelCall,
    VerificationConfig,
    is_doubted,
)
from groundwire.text.refusals import claims_nothing

LEAST_CHARACTERS: Final = 100
"""Of a response, below which no language model is asked (S4-41)."""

AUDITED: Final = 900_000
"""Characters of steps and of what they cite that are read for one response: a hundred steps may cite one long text."""

OVER_BUDGET: Final = "over_budget"
"""Fault of a question that was not asked, as it might have cost more than there was left."""


_LINK: Final = re.compile(r"(?:https?://|(?<![\w./@])www\.)[^\s()<>\[\]\"'`|]{3,}", re.IGNORECASE)
_SCHEME: Final = re.compile(r"https?://|www\.", re.IGNORECASE)


class PlanStep(NamedTuple):
    """A step of reasoning, the ids of the sources that it cites, and whether its author calls it critical."""

    claim: str
    cites: Sequence[str]
    critical: bool = False


class Plan(NamedTuple):
    """A response as the rules see it, and what a model is to be asked.

    `claims_nothing`: beside evidence the text only frames, greets, or tells what the sources lack.
    """

    response_id: str
    claims: Sequence[ClaimCheck]
    left_out: int
    due: Sequence[ClaimCheck]
    evidence: Sequence[Mapping[str, str]]
    truncated: int
    claims_nothing: bool = False


class VerifierFacts(Fact):
    """All that a model was asked about a response; recorded with the decision, so that it is asked once (S4-33, S4-47).

    Opinions and calls are in the order of the claims.
    """

    model: str  # its name, as configured
    opinions: list[ModelOpinion] = Field(default_factory=list)
    calls: list[ModelCall] = Field(default_factory=list)
    truncated: Count = 0  # claims that were due but beyond the limit

    def scored_by(self, config: VerificationConfig) -> bool:
        """Return whether the opinions are scores of the policy's entailment model."""
        return self.model == config.entailment_model

    @property
    def over_budget(self) -> bool:
        return any(call.fault == OVER_BUDGET for call in self.calls)


def response_id_of(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def build_report(
    response_id: str,
    claims: Sequence[ClaimVerification],
    config: VerificationConfig,
    *,
    answer_support: float | None = None,
    unverified: int = 0,
    asked: int = 0,
    truncated: int = 0,
    calls: Sequence[ModelCall] = (),
) -> HallucinationReport:
    gaps = [gap for claim in claims if (gap := gap_of(claim))]
    flagged = sum(claim.is_flagged for claim in claims)
    # by a hard fault, by what nobody looked at, or by doubts that add up
    weakest = min((claim.evidence_support for claim in claims), default=1.0)
    answer_support = weakest if answer_support is None else answer_support
    hard = unverified or any(claim.severity == "hard" for claim in claims)
    point, threshold = config.operating_point, config.support_threshold
    is_flagged = bool(hard) or is_doubted(weakest, answer_support, point, threshold)
    weights = [max(1, len(claim.claim_text.split())) for claim in claims]
    weighed = sum(weight * claim.evidence_support for weight, claim in zip(weights, claims, strict=True))
    # S4-39
    lines = (f"- {gap.suggested_action} ({gap.gap_type}) {gap.claim_text}" for gap in gaps)
    critical = is_flagged and any(is_critical(gap, config) for gap in gaps)
    return HallucinationReport(
        response_id=response_id,
        total_claims=len(claims) + unverified,
        verified_claims=len(claims) - flagged,
        flagged_claims=flagged,
        unverified_claims=unverified,
        is_flagged=is_flagged,
        claims=list(claims),
        gaps=gaps,
        overall_confidence=min(1.0, weighed / sum(weights)) if claims else 1.0,
        answer_support=answer_support,
        max_gap_bits=max((claim.evidence_gap_bits for claim in claims), default=0.0),
        has_critical_gaps=critical,
        should_retry=critical and config.on_failure == "retry",
        retry_guidance="\n".join(("Answer again from the evidence alone.", *lines)) if gaps else None,
        model_claims=asked,
        model_truncated=truncated,
        calls=list(calls),
        input_tokens=sum(call.input_tokens for call in calls),
        output_tokens=sum(call.output_tokens for call in calls),
        cost_usd=sum(call.cost_usd for call in calls),
    )


def is_critical(gap: EpistemicGap, config: VerificationConfig) -> bool:
    """Return whether a gap exceeds the threshold; independence of the evidence alone never does (S4-14, C-68)."""
    return gap.gap_type != "evidence_independent" and gap.gap_bits > config.gap_threshold_bits


def is_simple(query: str) -> bool:
    """Return whether a query asks for no verification: it begins with "/simple" (S4-37)."""
    return query.split(maxsplit=1)[:1] == ["/simple"]


def has_evidence(context: Mapping[str, str]) -> bool:
    return any(text.strip() for text in context.values())


def plan_response(  # noqa: PLR0913 - what a response is made of
    response: str,
    context: Mapping[str, str],
    config: VerificationConfig,
    *,
    ask: bool,
    response_id: str | None = None,
    question: str = "",
    steps: Sequence[PlanStep] = (),
    read: StatementReader | None = None,
    citable: Citable | None = None,
) -> Plan:
    """Check a response by the rules, and choose what a model is asked (S4-20, S4-33, S4-35, S4-41).

    Its claims are `<response_id>/claim#<n>`, so that none has the id of a claim that is fanned out. `steps` are audited
    too, as claims behind those of the text; those past `AUDITED` are supported by nothing.
    """
    read = read or cache(read_statements)
    citable = citable or Citable(context, len(context), context.values())
    found = check_answer(response, context, question=question, read=read, citable=citable)
    name = response_id or response_id_of(response)
    prefix = f"{name}/claim" if response_id else name
    claims = [
        replace(claim, claim_id=f"{prefix}#{number}") for number, claim in enumerate(found.claims, start=1)
    ]
    cited = marks(response, citable)
    shown = blanked(response, cited)
    claims, unclaimed = _with_phantoms(claims, [mark for mark in cited if mark.missing])
    unnamed = blanked(response, [mark for mark in cited if mark.references and not mark.missing])
    claims, invented = _with_links(claims, unnamed, (*context, *context.values(), question))
    unclaimed += invented
    within = room = 0  # steps, from the first on, that can be audited in the time that a response has
    for step, cites, _ in steps:
        room += len(step) + sum(len(context[key]) for key in {*cites} if key in context)
        if room > AUDITED:
            break
        within += 1
    audited = audit_steps(f"{name}/step", steps[:within], context, read)
    long_enough = bool(config.entailment_model) or len(response) >= LEAST_CHARACTERS
    ask = ask and config.enabled and long_enough and has_evidence(context)
    # a step that cites nothing is supported by nothing, whatever a model knows
    askable = [*claims, *(step for step in audited if not context.keys().isdisjoint(step.evidence_ids))]
    due, truncated = claims_to_ask(askable, config) if ask else ([], 0)
    # the passages that bind a claim's words; all of them where none does
    evidence = [
        {name: context[name] for name in claim.evidence_ids if name in context} or context for claim in due
    ]
    left_out = found.left_out + len(steps) - within + unclaimed
    said = (shown[statement.start : statement.end] for statement in read(shown))
    nothing = not (claims or steps) and has_evidence(context) and claims_nothing(said)
    return Plan(name, [*claims, *audited], left_out, due, evidence, truncated, nothing)


def audit_steps(
    name: str, steps: Sequence[PlanStep], sources: Mapping[str, str], read: StatementReader | None = None
) -> list[ClaimCheck]:
    """Check each step of a reasoning against the sources that it cites, and only these (S4-02, S4-24, S4-25).

    The ids of the checks begin with `name`; `read` reads a text's statements, and caches them.
    """
    read = read or cache(read_statements)
    audited = []
    for number, (claim, cites, critical) in enumerate(steps, start=1):
        cited = {key: sources[key] for key in cites if key in sources}
        check = check_answer(claim, cited, declared=True, read=read)
        phantom = any(key not in sources for key in cites)
        step = f"{name}#{number}"
        audited.append(whole_claim(step, claim, check, cites, phantom=phantom, critical=critical))
    return audited


def report_of(plan: Plan, facts: VerifierFacts | None, config: VerificationConfig) -> HallucinationReport:
    opinions = {opinion.claim_id: opinion for opinion in facts.opinions} if facts else {}
    scored = facts is not None and facts.scored_by(config)
    verified = [
        verification_of(claim, config, opinions.get(claim.claim_id), scored=scored) for claim in plan.claims
    ]
    doubted, weighed = [], 1.0
    for claim, said in zip(plan.claims, verified, strict=True):
        opinion = opinions.get(claim.claim_id)
        if claim.declared:
            continue
        if scored and opinion is not None and opinion.support is not None:
            scored_claim = ScoredClaim(opinion.support, claim.support, claim.hard)
            weighed *= scored_claim.support(config.entailment_head)
            if config.model_may_clear:
                continue  # the head has weighed what the rules found
        if said.evidence_support <= claim.support:  # what a model cleared is no doubt any more
            doubted.append(claim)
    return build_report(
        plan.response_id,
        verified,
        config,
        answer_support=0.0 if plan.left_out else answer_support(doubted) * weighed,
        unverified=plan.left_out,
        asked=len(opinions),
        truncated=facts.truncated if facts else plan.truncated,
        calls=[call for call in facts.calls if call.claim_id in opinions] if facts else (),
    )


def _with_phantoms(claims: Sequence[ClaimCheck], cited: Sequence[Mark]) -> tuple[list[ClaimCheck], int]:
    """Return claims, each with what its marks cite and is not there, and the number of marks beside claims.

    A mark belongs to the claim that contains it, or to the last one in front of it (S4-06, S4-24).
    """
    marked = list(claims)
    starts = [claim.start for claim in claims]
    unclaimed = 0
    for mark in cited:
        if at := bisect_right(starts, mark.start):
            claim = marked[at - 1]
            ids = dict.fromkeys((*claim.evidence_ids, *map(str, mark.missing)))
            marked[at - 1] = replace(claim, phantom=True, evidence_ids=tuple(ids))
        else:
            unclaimed += 1
    return marked, unclaimed


def _with_links(
    claims: Sequence[ClaimCheck], response: str, given: Iterable[str]
) -> tuple[list[ClaimCheck], int]:
    """Return claims, those with an invented link as citing what is not there, and the number of such beside claims.

    A link is invented where nothing given holds it, scheme and final marks aside.
    """
    spans = [
        (link.start(), link.start() + len(link[0].rstrip(".,;:!?*_~/"))) for link in _LINK.finditer(response)
    ]
    known = "\0".join(given).casefold() if spans else ""
    holders = [
        {claim.claim_id for claim in claims if claim.start < end and start < claim.end}
        for start, end in spans
        if _SCHEME.sub("", response[start:end]).casefold() not in known
    ]
    citing = set().union(*holders)
    marked = [replace(claim, phantom=True) if claim.claim_id in citing else claim for claim in claims]
    return marked, sum(not holding for holding in holders)
