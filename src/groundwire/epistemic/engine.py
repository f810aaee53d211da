"""The pipeline of verification: rules on every claim, then a model on those that are due, then the report (S4-20)."""

from __future__ import annotations

from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.model import Client
from groundwire.epistemic.opinions import Asked, opinions
from groundwire.epistemic.plan import Plan


async def ask_plan(plan: Plan, client: Client, config: VerificationConfig) -> dict[str, Asked]:
    """Ask the model what the plan asks."""
    return await opinions(plan.due, plan.evidence, client, config)
