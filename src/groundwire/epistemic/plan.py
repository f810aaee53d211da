"""What the rules find in a response, what a model is to be asked, and the report once it was (S4-20): pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.epistemic.verify import check_answer
from groundwire.checks.values_statements import Read, read_statements
from groundwire.epistemic.cited import Citable
from groundwire.epistemic.claims import Draft, draft, settle, whole
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.report import build_report, response_id_of
from groundwire.epistemic.sampling import chosen
from groundwire.epistemic.types import HallucinationReport

if TYPE_CHECKING:  # the gate loads no client
    from groundwire.epistemic.opinions import Asked

LEAST_CHARACTERS: Final = 100
"""Of a response, below which no model is asked (S4-41)."""

AUDITED: Final = 900_000
"""Characters of steps and of what they cite that are read for one response: a hundred steps may cite one long text."""

BYPASS: Final = "/simple"
"""A query that begins with it asks for no verification (S4-37)."""


def is_simple(query: str) -> bool:
    """Tell whether a query asks for no verification (S4-37)."""
    return query.split(maxsplit=1)[:1] == [BYPASS]


def has_evidence(context: Mapping[str, str]) -> bool:
    """Tell whether there is anything to rest on: without it no model is asked (S4-41)."""
    return any(text.strip() for text in context.values())


class Step(NamedTuple):
    """A step of reasoning, the ids of the sources that it cites, and whether its author calls it critical."""

    claim: str
    cites: Sequence[str]
    critical: bool = False


class Plan(NamedTuple):
    """A response as the rules see it, and what a model is to be asked."""

    response_id: str
    drafts: Sequence[Draft]
    answer_support: float
    left_out: int
    due: Sequence[Draft]
    evidence: Sequence[Mapping[str, str]]
    truncated: int


def plan_response(
    response: str,
    context: Mapping[str, str],
    config: VerificationConfig,
    *,
    ask: bool,
    response_id: str | None = None,
    steps: Sequence[Step] = (),
    read: Read | None = None,
    citable: Citable | None = None,
) -> Plan:
    """Check a response by the rules, and choose what a model is asked (S4-20, S4-33, S4-35, S4-41).

    Args:
        response: the text.
        context: evidence, id -> text.
        config: mode and limits.
        ask: whether there is a model.
        response_id: of the response; its claims are `<response_id>/claim#<n>` then, so that none has the id of a
            claim that is fanned out. Without one the hash of the text.
        steps: the reasoning behind it, audited too: claims of the report behind those of the text. Those past
            `AUDITED` are not looked at, and supported by nothing.
        read: reads a text's statements, and remembers them.
        citable: what the text may cite in brackets; the ids of the evidence where nothing else is said.
    """
    read = read or cache(read_statements)
    found = check_answer(response, context, read=read)
    name = response_id or response_id_of(response)
    prefix = f"{name}/claim" if response_id else name
    drafts = [draft(f"{prefix}#{number}", claim) for number, claim in enumerate(found.claims, start=1)]
    citable = citable or Citable(context, len(context))
    drafts = [_with_phantoms(claim, citable) for claim in drafts]
    within = _readable(steps, context)
    audited = audit_steps(f"{name}/step", steps[:within], context, read)
    ask = ask and config.enabled and len(response) >= LEAST_CHARACTERS and has_evidence(context)
    # a step that cites nothing is supported by nothing, whatever a model knows
    askable = [*drafts, *(step for step in audited if not context.keys().isdisjoint(step.evidence_ids))]
    due, truncated = chosen(askable, config) if ask else ([], 0)
    evidence = [_of(claim, context) for claim in due]
    left_out = found.left_out + len(steps) - within
    return Plan(name, [*drafts, *audited], found.support, left_out, due, evidence, truncated)


def audit_steps(
    name: str, steps: Sequence[Step], sources: Mapping[str, str], read: Read | None = None
) -> list[Draft]:
    """Hold each step of a reasoning against the sources that it cites, and only these (S4-02, S4-24, S4-25).

    Args:
        name: what the steps' ids begin with.
        steps: in order.
        sources: id -> text.
        read: reads a text's statements, and remembers them.
    """
    read = read or cache(read_statements)
    drafts = []
    for number, (claim, cites, critical) in enumerate(steps, start=1):
        cited = {key: sources[key] for key in cites if key in sources}
        check = check_answer(claim, cited, declared=True, read=read)
        phantom = any(key not in sources for key in cites)
        step = whole(f"{name}#{number}", claim, check, cites, phantom=phantom)
        drafts.append(step._replace(critical=critical))
    return drafts


def settle_plan(plan: Plan, asked: Mapping[str, Asked], config: VerificationConfig) -> HallucinationReport:
    """Return the report of a response, once the model was asked."""
    claims = [
        settle(claim, config, asked[claim.claim_id].opinion if claim.claim_id in asked else None)
        for claim in plan.drafts
    ]
    return build_report(
        plan.response_id,
        claims,
        config,
        answer_support=plan.answer_support,
        unverified=plan.left_out,
        asked=len(asked),
        truncated=plan.truncated,
        calls=[call for found in asked.values() for call in found.calls],
    )


def _with_phantoms(claim: Draft, citable: Citable) -> Draft:
    """Return a claim with what it cites and is not there (S4-06, S4-24)."""
    missing = citable.not_there(claim.text)
    return claim._replace(phantom=True, evidence_ids=(*claim.evidence_ids, *missing)) if missing else claim


def _readable(steps: Sequence[Step], sources: Mapping[str, str]) -> int:
    """Return how many steps, from the first on, can be audited in the time that a response has."""
    total = 0
    for number, (claim, cites, _) in enumerate(steps):
        total += len(claim) + sum(len(sources[key]) for key in {*cites} if key in sources)
        if total > AUDITED:
            return number
    return len(steps)


def _of(claim: Draft, context: Mapping[str, str]) -> Mapping[str, str]:
    """Return the passages that bind a claim's words; all of them where none does."""
    return {name: context[name] for name in claim.evidence_ids if name in context} or context
