"""Asks a model what a plan asks, and returns what it said as facts."""

from __future__ import annotations

from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.facts import ModelOpinion, VerifierFacts
from groundwire.epistemic.model import Client
from groundwire.epistemic.opinions import opinions
from groundwire.epistemic.plan import Plan


async def assess(plan: Plan, client: Client, config: VerificationConfig) -> VerifierFacts | None:
    """Ask a model about a response; None where there is nothing to ask (S4-20, S4-42).

    It never raises for what a model or its service does: a claim without an answer that counts has a `fault`, and is
    flagged. It takes `config.budget_seconds` at most, and a second.

    Args:
        plan: from `plan_response(..., ask=True)`.
        client: the model.
        config: the one that the plan was made with.
    """
    if not plan.due and not plan.truncated:
        return None
    asked = await opinions(plan.due, plan.evidence, client, config)
    said = [
        ModelOpinion(
            claim_id=name,
            support=found.opinion.support,
            prior=found.opinion.prior,
            verdict=found.opinion.verdict,
            reason=found.opinion.reason,
            fault=found.opinion.fault,
        )
        for name, found in asked.items()
    ]
    calls = [call for found in asked.values() for call in found.calls]
    return VerifierFacts(
        model=config.verification_model, opinions=said, calls=calls, truncated=plan.truncated
    )
