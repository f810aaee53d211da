"""The pipeline of verification: rules on every claim, then a model on those that are due, then the report (S4-20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from groundwire.checks.epistemic.verify import check_answer
from groundwire.epistemic.claims import Draft, draft, settle
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.model import Client
from groundwire.epistemic.opinions import Asked, opinions
from groundwire.epistemic.report import build_report, response_id_of
from groundwire.epistemic.sampling import chosen
from groundwire.epistemic.types import HallucinationReport

LEAST_CHARACTERS = 100
"""Of a response, below which no model is asked (S4-41)."""


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
    response: str, context: Mapping[str, str], config: VerificationConfig, *, ask: bool
) -> Plan:
    """Check a response by the rules, and choose what a model is asked (S4-20, S4-33, S4-35, S4-41).

    Args:
        response: the text.
        context: evidence, id -> text.
        config: mode and limits.
        ask: whether there is a model.
    """
    found = check_answer(response, context)
    name = response_id_of(response)
    drafts = [draft(f"{name}#{number}", claim) for number, claim in enumerate(found.claims, start=1)]
    ask = ask and len(response) >= LEAST_CHARACTERS and bool(context)
    due, truncated = chosen(drafts, config) if ask else ([], 0)
    evidence = [_of(claim, context) for claim in due]
    return Plan(name, drafts, found.support, found.left_out, due, evidence, truncated)


async def ask_plan(plan: Plan, client: Client, config: VerificationConfig) -> dict[str, Asked]:
    """Ask the model what the plan asks."""
    return await opinions(plan.due, plan.evidence, client, config)


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


def _of(claim: Draft, context: Mapping[str, str]) -> Mapping[str, str]:
    """Return the passages that bind a claim's words; all of them where none does."""
    return {name: context[name] for name in claim.evidence_ids if name in context} or context
