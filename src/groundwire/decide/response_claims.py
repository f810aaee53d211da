"""Each claim of a response held against what it was given (S4-04, S4-38): evidence, verification, report.

Rules decide here, without a model and without a network: the report follows from record and policy. What a model says
of claims is asked for before state is, and a fact of the decision then, `facts.verifier`: nobody is asked here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from groundwire.checks.values_statements import Read
from groundwire.epistemic.cited import Citable
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.facts import VerifierFacts, settle_facts
from groundwire.epistemic.plan import Plan, Step, is_simple, plan_response
from groundwire.epistemic.report import is_critical
from groundwire.epistemic.types import ClaimVerification, HallucinationReport
from groundwire.messages.responses import LlmResponse

_DIGITS: Final = 4


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """What became of the claims of a response.

    Attributes:
        found: the whole report.
        critical: gaps above the policy's threshold.
        over_budget: whether a model was to be asked more than its budget reached for: the check is unavailable then,
            whatever the rules found.
    """

    found: HallucinationReport
    critical: int
    over_budget: bool = False

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


def why_skipped(
    response: LlmResponse, config: VerificationConfig
) -> Literal["bypassed", "disabled", "not_provided"] | None:
    """Return why the claims of a response are not held against anything; None where they are.

    A response bypasses verification where `verify` is false, or its query begins with `/simple` (S4-37).
    """
    if not response.verify or is_simple(response.query or ""):
        return "bypassed"
    if not config.enabled:
        return "disabled"
    given = (response.context, response.chunks), (response.answer, response.steps)
    return "not_provided" if any(parts == (None, None) for parts in given) else None


def evidence_of(response: LlmResponse) -> dict[str, str]:
    """Return what a response has to rest on, id -> text: its context, else its chunks.

    Chunks of one id are one text. Where nothing was retrieved there is no evidence, and nothing rests on it.
    """
    if response.context is not None:
        return response.context
    texts: dict[str, list[str]] = {}
    for chunk in response.chunks or ():
        texts.setdefault(chunk.chunk_id, []).append(chunk.content)
    return {name: "\n\n".join(parts) for name, parts in texts.items()}


def plan_claims(
    response: LlmResponse,
    evidence: Mapping[str, str],
    config: VerificationConfig,
    *,
    ask: bool = False,
    read: Read | None = None,
) -> Plan:
    """Return what the rules find in answer and steps, and, where there is a model, what it is to be asked."""
    steps = [Step(step.claim, step.cites) for step in response.steps or ()]
    return plan_response(
        response.answer or "",
        evidence,
        config,
        ask=ask,
        response_id=response.response_id,
        steps=steps,
        read=read,
        citable=_citable(response, evidence),
    )


def check_claims(
    response: LlmResponse,
    evidence: Mapping[str, str],
    config: VerificationConfig,
    verifier: Mapping[str, Any] | None = None,
    *,
    read: Read | None = None,
) -> ClaimReport:
    """Hold the claims of a response, and the steps behind it, against its evidence.

    Args:
        response: the record.
        evidence: from `evidence_of`.
        config: thresholds.
        verifier: `facts.verifier`: what a model said, as JSON; None where none was asked.
        read: reads a text's statements, and remembers them: other checks read the same texts.

    Raises:
        ValueError: `verifier` is not what a verifier says.
    """
    facts = VerifierFacts.model_validate(verifier) if verifier is not None else None
    report = settle_facts(plan_claims(response, evidence, config, read=read), facts, config)
    critical = sum(is_critical(gap, config) for gap in report.gaps)
    return ClaimReport(report, critical, over_budget=facts is not None and facts.over_budget)


def _citable(response: LlmResponse, evidence: Mapping[str, str]) -> Citable:
    """Return what an answer may cite by name. Numbers count chunks, and the check of source tags looks at these."""
    chunks, sources = response.chunks or (), response.sources or ()
    files = {part.file for part in (*chunks, *sources)}
    names = {*evidence, *files, *(chunk.chunk_id for chunk in chunks)}
    return Citable(names, len(evidence) if response.chunks is None else None)


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Round the numbers of a report: what the last digits are is the machine's."""
    if isinstance(value, float):
        return round(value, _DIGITS) + 0.0  # never -0.0
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
