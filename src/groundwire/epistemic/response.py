"""The checkpoint behind a generator: verify an answer, ask for another one, or say what is uncertain (S4-38..S4-43)."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.model import Client
from groundwire.epistemic.opinions import opinions
from groundwire.epistemic.plan import LEAST_CHARACTERS, has_evidence, is_simple, plan_response, settle_plan
from groundwire.epistemic.types import ClaimVerification, HallucinationReport, VerifiedResponse

Regenerate = Callable[[str, Sequence[ClaimVerification]], Awaitable[str | None] | str | None]


class _Checked(NamedTuple):
    report: HallucinationReport | None
    skipped: str | None


async def verify_response(
    query: str,
    answer: str | None,
    context: Mapping[str, str],
    *,
    client: Client | None = None,
    config: VerificationConfig | None = None,
    regenerate: Regenerate | None = None,
) -> VerifiedResponse:
    """Verify an answer before it is given (S4-38).

    Where no model is to be asked, `skipped` says why; a short answer is checked by the rules all the same (S4-41).
    Critical gaps under `retry`: `regenerate` is awaited with the query and the flagged claims, at most `max_retries`
    times, until an answer has none; of several answers that have, the last is given (S4-39). Under `flag`, and where
    retries did not help, flagged claims are annotated in the text (S4-40). Under `ask` the answer comes back as it is,
    for a person to look at the report.

    Args:
        query: what was asked; one that begins with `/simple` bypasses verification.
        answer: what the generator says, or None.
        context: evidence, id -> text.
        client: a model to ask as well.
        config: thresholds, mode, what becomes of failures.
        regenerate: gives another answer; a plain function will do too. An exception of it is the caller's.
    """
    config = config or VerificationConfig()
    retries = 0
    checked = await _check(query, answer, context, client, config)
    while checked.report and checked.report.should_retry and regenerate and retries < config.max_retries:
        flagged = [claim for claim in checked.report.claims if claim.is_flagged]
        given = regenerate(query, flagged)
        answer = await given if inspect.isawaitable(given) else given
        retries += 1
        checked = await _check(query, answer, context, client, config)
    report = checked.report
    if answer and report and report.flagged_claims and config.on_failure != "ask":
        answer = annotate(answer, report)
    return VerifiedResponse(answer=answer, report=report, retries=retries, skipped=checked.skipped)


def annotate(answer: str, report: HallucinationReport) -> str:
    """Put a mark behind each flagged claim of an answer that says what is wrong with it (S4-40)."""
    pieces: list[str] = []
    done = 0
    for claim in report.claims:
        if claim.is_flagged:
            pieces += [answer[done : claim.end], f" [{str(claim.flag_reason).replace('_', ' ')}]"]
            done = claim.end
    return "".join((*pieces, answer[done:]))


async def _check(
    query: str,
    answer: str | None,
    context: Mapping[str, str],
    client: Client | None,
    config: VerificationConfig,
) -> _Checked:
    why = _skipped(query, answer, context, config)
    if why not in {None, "too_short"} or answer is None:
        return _Checked(None, why)
    plan = plan_response(answer, context, config, ask=client is not None)
    asked = await opinions(plan.due, plan.evidence, client, config) if client is not None and plan.due else {}
    return _Checked(settle_plan(plan, asked, config), why)


def _skipped(
    query: str, answer: str | None, context: Mapping[str, str], config: VerificationConfig
) -> str | None:
    if not config.enabled:
        return "disabled"
    if is_simple(query):
        return "bypassed"
    if not answer or not answer.strip():
        return "no_answer"
    if not has_evidence(context):
        return "no_evidence"
    return "too_short" if len(answer) < LEAST_CHARACTERS else None
