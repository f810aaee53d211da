"""Epistemic verification for callers: four plain functions (S4-01..S4-04), and the check of an answer (S4-38..S4-43).

The plain functions run coroutines in one event loop on a thread of its own, so they are callable anywhere.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from groundwire.arguments import settled, takes
from groundwire.checks.support.verify import check_answer, similarity
from groundwire.epistemic.asking import ask, ask_about, assess
from groundwire.epistemic.claims import claims_to_ask, verification_of, whole_claim
from groundwire.epistemic.model import Client
from groundwire.epistemic.plan import (
    LEAST_CHARACTERS,
    PlanStep,
    audit_steps,
    has_evidence,
    is_simple,
    plan_response,
    report_of,
    response_id_of,
)
from groundwire.epistemic.prompts import answer_prompt
from groundwire.epistemic.types import (
    TARGET,
    ClaimVerification,
    HallucinationReport,
    VerificationConfig,
    VerifiedResponse,
)

_T = TypeVar("_T")


class _Runner:
    """The event loop: started lazily and kept, as connections and limits of clients belong to a loop."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = loop = asyncio.new_event_loop()

                def run_forever() -> None:
                    # an interrupt is raised to the caller of the coroutine, and does not end the loop
                    while True:
                        with suppress(KeyboardInterrupt, SystemExit):
                            loop.run_forever()

                threading.Thread(target=run_forever, name="groundwire-verifier", daemon=True).start()
            return self._loop


_runner = _Runner()


def _start_afresh() -> None:
    global _runner  # noqa: PLW0603 - a child process has the parent's loop, but not its thread
    _runner = _Runner()


os.register_at_fork(after_in_child=_start_afresh)


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, and wait for it, inside a running loop too.

    Raises:
        RuntimeError: called from that loop itself: it would wait for itself.
    """
    loop, running = _runner.loop(), None
    with suppress(RuntimeError):
        running = asyncio.get_running_loop()
    if running is loop:
        coroutine.close()
        raise RuntimeError("a client of a verification must not wait for another verification: await it")
    job = asyncio.run_coroutine_threadsafe(coroutine, loop)
    try:
        return job.result()
    except BaseException:
        job.cancel()  # the caller was interrupted
        raise


_DEFAULTS = VerificationConfig()


def verify_claim(
    claim: str,
    evidence: str | list[str] | Mapping[str, str],
    threshold: float = TARGET,
    *,
    client: Client | None = None,
    config: VerificationConfig | None = None,
) -> ClaimVerification:
    """Verify a claim against evidence (S4-01).

    Args:
        claim: what is claimed; everything in it counts.
        evidence: a text, or several, whose ids are "1", "2", ..., or a mapping of ids to texts.
        threshold: reliability that the claim should have, 0..1; the gap is measured from there (C-57).
        client: a model to ask as well; it can lower the verdict.
        config: thresholds and model.

    Raises:
        ValueError: `threshold` is out of range.
        TypeError: an argument is of another type; it is named.

    Example:
        >>> verify_claim("The gate retries 5 times.", "The gate retries 3 times.").flag_reason
        'contradicted'
    """
    config = config or _DEFAULTS
    if isinstance(evidence, Mapping):
        _require_evidence("evidence", evidence)
        sources = dict(evidence)
    else:
        texts = [evidence] if isinstance(evidence, str) else _listed("evidence", evidence)
        _require_texts(**{f"evidence {number}": text for number, text in enumerate(texts, start=1)})
        sources = {str(number): text for number, text in enumerate(texts, start=1)}
    _require_texts(claim=claim)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be a number from 0 to 1, got {threshold!r}")
    check = check_answer(claim, sources, declared=True)
    bound = dict.fromkeys(name for found in check.claims for name in found.evidence_ids)
    whole = whole_claim(f"{response_id_of(claim)}#1", claim, check, tuple(bound))
    if client is None or not (config.enabled and has_evidence(sources) and claim.strip()):
        return verification_of(whole, config, target=threshold)
    facts = run(ask_about([whole], [sources], client, config))
    return verification_of(whole, config, facts.opinions[0], target=threshold, scored=facts.scored_by(config))


def audit_reasoning(
    steps: list[dict[str, Any]],
    sources: dict[str, str],
    *,
    client: Client | None = None,
    config: VerificationConfig | None = None,
) -> list[ClaimVerification]:
    """Audit a chain of reasoning: each step against the sources that it cites, and only these (S4-02).

    A step that cites a source that does not exist is flagged `phantom_citation`, without asking a model (S4-24); one
    that cites nothing is supported by nothing.

    Args:
        steps: `{"claim": text, "cites": [source id, ...]}`, in order; with `"critical": True`, mode `critical_only`
            asks about the step whatever its words are (C-62).
        sources: id -> text.
        client: a model to ask as well about the steps that `config` chooses.
        config: thresholds, mode and limits.

    Returns:
        One verification a step, in order.

    Raises:
        ValueError: a step has no such shape; names the step and the field.
        TypeError: `steps` is no list, or `sources` maps no ids to texts.
    """
    config = config or _DEFAULTS
    read = [_step(number, step) for number, step in enumerate(_listed("steps", steps), start=1)]
    _require_evidence("sources", sources)
    name = response_id_of("\0".join(step.claim for step in read))
    audited = audit_steps(name, read, sources)
    evidence = {
        step.claim_id: {key: sources[key] for key in step.evidence_ids if key in sources} for step in audited
    }
    opinions, scored = {}, False
    if client is not None and config.enabled:
        due = [step for step in claims_to_ask(audited, config)[0] if has_evidence(evidence[step.claim_id])]
        if due:
            facts = run(ask_about(due, [evidence[step.claim_id] for step in due], client, config))
            opinions = {opinion.claim_id: opinion for opinion in facts.opinions}
            scored = facts.scored_by(config)
    return [verification_of(step, config, opinions.get(step.claim_id), scored=scored) for step in audited]


def evidence_dependence(
    question: str,
    answer: str,
    evidence: str,
    *,
    client: Client | None = None,
    config: VerificationConfig | None = None,
) -> float:
    """Return how much an answer depends on its evidence: 0.0 not at all, 1.0 entirely (S4-03, S4-18).

    With a client the question is asked again without the evidence, and the result is 1 less the similarity of the two
    answers. Without one it is the share of what the answer says beyond the question that the evidence holds.

    Raises:
        TypeError: an argument is no text.
        RuntimeError: the model gave no answer: what was not measured is no number.
        ModelFault: the question is too long for one.
    """
    config = config or _DEFAULTS
    _require_texts(question=question, answer=answer, evidence=evidence)
    if client is not None and config.enabled:
        name = response_id_of(answer)
        reply = run(ask(client, answer_prompt(question), config, claim_id=name))
        if reply.text is None:
            raise RuntimeError("the verification model gave no answer")
        return 1 - similarity(answer, reply.text)
    asked = _held(answer, question)
    given = _held(answer, question, evidence)
    return (given - asked) / (1 - asked) if given > asked else 0.0


def detect_hallucinations(
    response: str,
    context: dict[str, str],
    *,
    client: Client | None = None,
    config: VerificationConfig | None = None,
) -> HallucinationReport:
    """Split a response into claims and verify each against the context (S4-04).

    Args:
        response: what a model wrote, Markdown included.
        context: evidence, id -> text; without any, nothing is supported.
        client: a model to ask as well about the claims that `config` chooses. None is asked about a response of fewer
            than 100 characters, without evidence, or where verification is not enabled (S4-41).
        config: thresholds, mode and limits.

    Raises:
        TypeError: `response` is no text, or `context` maps no ids to texts.

    Example:
        >>> report = detect_hallucinations("It retries 5 times.", {"a": "It retries 3 times."})
        >>> report.flagged_claims, report.gaps[0].gap_type
        (1, 'contradicted')
    """
    config = config or _DEFAULTS
    _require_texts(response=response)
    _require_evidence("context", context)
    plan = plan_response(response, context, config, ask=client is not None)
    facts = run(assess(plan, client, config)) if client is not None and plan.due else None
    return report_of(plan, facts, config)


def _held(answer: str, *texts: str) -> float:
    claims = check_answer(answer, texts, declared=True).claims
    size = sum(len(claim.text) for claim in claims)
    return sum(claim.held * len(claim.text) for claim in claims) / size if size else 0.0


def _step(number: int, step: object) -> PlanStep:
    if not isinstance(step, Mapping):
        raise ValueError(f"step {number}: must be a mapping, got {type(step).__name__}")  # noqa: TRY004 - as documented
    claim, cites, critical = step.get("claim"), step.get("cites", ()), step.get("critical", False)
    if not isinstance(claim, str):
        raise ValueError(f"step {number}: claim: must be text, got {type(claim).__name__}")  # noqa: TRY004 - the same
    if (
        isinstance(cites, str)
        or not isinstance(cites, Sequence)
        or not all(isinstance(key, str) for key in cites)
    ):
        raise ValueError(f"step {number}: cites: must be a list of source ids")
    if not isinstance(critical, bool):
        raise ValueError(f"step {number}: critical: must be true or false")  # noqa: TRY004 - the same
    return PlanStep(claim, tuple(cites), critical)


def _listed(name: str, given: object) -> list[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise TypeError(f"{name}: must be a list, got {type(given).__name__}")
    return list(given)


def _require_evidence(name: str, given: object) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(f"{name}: must be a mapping of ids to texts, got {type(given).__name__}")
    for key, text in given.items():
        _require_texts(**{f"id {key!r} of {name}": key, f"{name} {key!r}": text})


def _require_texts(**given: object) -> None:
    for name, value in given.items():
        if not isinstance(value, str):
            raise TypeError(f"{name}: must be text, got {type(value).__name__}")


Regenerate = Callable[[str, Sequence[ClaimVerification]], Awaitable[str | None] | str | None]


@takes(query=str, answer=str | None, context=Mapping)
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
    report, skipped = await _check(query, answer, context, client, config)
    while report and report.should_retry and regenerate and retries < config.max_retries:
        answer = await settled(regenerate(query, [claim for claim in report.claims if claim.is_flagged]))
        retries += 1
        report, skipped = await _check(query, answer, context, client, config)
    if answer and report and report.flagged_claims and config.on_failure != "ask":
        answer = annotate(answer, report)
    return VerifiedResponse(answer=answer, report=report, retries=retries, skipped=skipped)


@takes(answer=str, report=HallucinationReport)
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
) -> tuple[HallucinationReport | None, str | None]:
    """Return the report of an answer, and why no model was asked."""
    if not config.enabled:
        return None, "disabled"
    if is_simple(query):
        return None, "bypassed"
    if not answer or not answer.strip():
        return None, "no_answer"
    if not has_evidence(context):
        return None, "no_evidence"
    plan = plan_response(answer, context, config, ask=client is not None)
    facts = await assess(plan, client, config) if client is not None else None
    return report_of(plan, facts, config), "too_short" if len(answer) < LEAST_CHARACTERS else None
