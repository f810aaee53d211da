"""Each claim of a response held against what it was given (S4-04, S4-38): evidence, verification, report.

Rules decide here, without a model and without a network: the report follows from record and policy. What a model says
of claims is asked for before state is, and a fact of the decision then: `check_claims` takes it, and asks nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.plan import Plan, Step, is_simple, plan_response, settle_plan
from groundwire.epistemic.report import is_critical
from groundwire.epistemic.types import ClaimVerification, HallucinationReport
from groundwire.messages.responses import LlmResponse

if TYPE_CHECKING:  # the gate loads no client
    from groundwire.epistemic.opinions import Asked

_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """What became of the claims of a response.

    Attributes:
        found: the whole report.
        critical: gaps above the policy's threshold.
    """

    found: HallucinationReport
    critical: int

    @property
    def flagged(self) -> list[ClaimVerification]:
        """The claims with which something is wrong, those of the text in its order, then those of steps."""
        return [claim for claim in self.found.claims if claim.is_flagged]

    @property
    def unheld(self) -> int:
        """Claims of which nothing says that they hold: flagged, or not looked at as there are too many."""
        return self.found.flagged_claims + self.found.unverified_claims

    def as_report(self) -> dict[str, Any]:
        """Return `report.epistemic`.

        Claims that hold are told by their place alone: a decision does not repeat the answer.
        """
        section = self.found.model_dump(mode="json")
        for claim in section["claims"]:
            if not claim["is_flagged"]:
                claim["claim_text"] = ""
        rounded: dict[str, Any] = _rounded(section)
        return rounded


def is_bypassed(response: LlmResponse) -> bool:
    """Tell whether a response asks for no verification: `verify` is false, or the query begins so (S4-37)."""
    return not response.verify or is_simple(response.query or "")


def evidence_of(response: LlmResponse) -> dict[str, str] | None:
    """Return what a response has to rest on, id -> text: its context, else its chunks; None without either.

    Chunks of one id are one text. What was retrieved and found empty is evidence too: nothing rests on it.
    """
    if response.context is not None:
        return response.context
    if response.chunks is None:
        return None
    texts: dict[str, list[str]] = {}
    for chunk in response.chunks:
        texts.setdefault(chunk.chunk_id, []).append(chunk.content)
    return {name: "\n\n".join(parts) for name, parts in texts.items()}


def plan_claims(
    response: LlmResponse, evidence: Mapping[str, str], config: VerificationConfig, *, ask: bool = False
) -> Plan:
    """Return what the rules find in answer and steps, and, where there is a model, what it is to be asked."""
    steps = [Step(step.claim, step.cites) for step in response.steps or ()]
    return plan_response(
        response.answer or "", evidence, config, ask=ask, response_id=response.response_id, steps=steps
    )


def check_claims(
    response: LlmResponse,
    evidence: Mapping[str, str],
    config: VerificationConfig,
    asked: Mapping[str, Asked] | None = None,
) -> ClaimReport:
    """Hold the claims of a response, and the steps behind it, against its evidence.

    Args:
        response: the record.
        evidence: from `evidence_of`.
        config: thresholds.
        asked: id of a claim -> what a model said of it, as `facts.verifier` has it; None where none was asked.
    """
    report = settle_plan(plan_claims(response, evidence, config), asked or {}, config)
    return ClaimReport(report, sum(is_critical(gap, config) for gap in report.gaps))


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Round the numbers of a report: what the last digits are is the machine's."""
    if isinstance(value, float):
        return round(value, _DIGITS) + 0.0  # never -0.0
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
