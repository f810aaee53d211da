"""What a model said of a response, as a fact that a decision records: whoever has it asks nobody again.

A report follows from the response, the configuration and these facts alone; pure, and loads no client.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from groundwire.checks.epistemic.score import Verdict
from groundwire.epistemic.claims import Opinion
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.plan import Plan, settle_plan
from groundwire.epistemic.types import Count, HallucinationReport, ModelCall, Score

OVER_BUDGET: Final = "over_budget"
"""Fault of a question that was not asked, as it might have cost more than there was left."""


class Asked(NamedTuple):
    """What a model said of a claim, and what that cost."""

    opinion: Opinion
    calls: tuple[ModelCall, ...]


class _Fact(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class ModelOpinion(_Fact):
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
    verdict: Verdict | None = None
    reason: Annotated[str, Field(max_length=300)] = ""
    fault: str = ""


class VerifierFacts(_Fact):
    """All that a model was asked about a response (S4-33, S4-47).

    Attributes:
        model: its name, as configured.
        opinions: one for each claim that it was asked about, in the order of the claims.
        calls: what was asked, in the order of the claims, and what that cost.
        truncated: claims that were due but beyond the limit.
    """

    model: str
    opinions: list[ModelOpinion] = Field(default_factory=list)
    calls: list[ModelCall] = Field(default_factory=list)
    truncated: Count = 0

    @property
    def over_budget(self) -> bool:
        """Whether the budget did not reach for all that was to be asked."""
        return any(call.fault == OVER_BUDGET for call in self.calls)

    def asked(self) -> dict[str, Asked]:
        """Return claim id -> what a model said of it and what that cost, as `settle_plan` takes it."""
        return {
            one.claim_id: Asked(
                Opinion(one.support, one.prior, one.fault, one.verdict, one.reason),
                tuple(call for call in self.calls if call.claim_id == one.claim_id),
            )
            for one in self.opinions
        }


def settle_facts(plan: Plan, facts: VerifierFacts | None, config: VerificationConfig) -> HallucinationReport:
    """Return the report of a response from what the rules found and what a model said; pure.

    Args:
        plan: of the response; whether it was made to ask a model does not matter.
        facts: as recorded; None where no model was asked.
        config: the one that the facts were made with.
    """
    if facts is None:
        return settle_plan(plan, {}, config)
    return settle_plan(plan._replace(truncated=facts.truncated), facts.asked(), config)
