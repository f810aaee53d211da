"""The four functions (S4-01..S4-04): plain, without a model by default, callable anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from groundwire.checks.epistemic.similarity import similarity
from groundwire.checks.epistemic.verify import check_answer
from groundwire.epistemic.asking import ask
from groundwire.epistemic.claims import settle, whole
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.model import Client
from groundwire.epistemic.opinions import Asked, opinions
from groundwire.epistemic.plan import Step, audit_steps, has_evidence, plan_response, settle_plan
from groundwire.epistemic.prompts import answer_prompt
from groundwire.epistemic.report import response_id_of
from groundwire.epistemic.running import run
from groundwire.epistemic.sampling import chosen
from groundwire.epistemic.scale import TARGET
from groundwire.epistemic.types import ClaimVerification, HallucinationReport

_DEFAULTS = VerificationConfig()


def verify_claim(
    claim: str,
    evidence: str | list[str],
    threshold: float = TARGET,
    *,
    client: Client | None = None,
    config: VerificationConfig | None = None,
) -> ClaimVerification:
    """Verify a claim against evidence (S4-01).

    Args:
        claim: what is claimed; everything in it counts.
        evidence: a text, or several, whose ids are "1", "2", ...
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
    texts = [evidence] if isinstance(evidence, str) else _listed("evidence", evidence)
    _require_texts(claim=claim, **{f"evidence {number}": text for number, text in enumerate(texts, start=1)})
    _require_share("threshold", threshold)
    sources = {str(number): text for number, text in enumerate(texts, start=1)}
    check = check_answer(claim, sources, declared=True)
    bound = dict.fromkeys(name for found in check.claims for name in found.evidence_ids)
    found = whole(f"{response_id_of(claim)}#1", claim, check, tuple(bound))
    asked = (
        run(opinions([found], [sources], client, config))
        if client is not None and config.enabled and has_evidence(sources) and claim.strip()
        else {}
    )
    opinion = asked[found.claim_id].opinion if asked else None
    return settle(found, config, opinion, target=threshold)


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
    drafts = audit_steps(name, read, sources)
    evidence = {
        draft.claim_id: {key: sources[key] for key in draft.evidence_ids if key in sources}
        for draft in drafts
    }
    due = (
        [draft for draft in chosen(drafts, config)[0] if has_evidence(evidence[draft.claim_id])]
        if client is not None and config.enabled
        else []
    )
    asked: dict[str, Asked] = {}
    if client is not None and due:
        asked = run(opinions(due, [evidence[draft.claim_id] for draft in due], client, config))
    return [
        settle(draft, config, asked[draft.claim_id].opinion if draft.claim_id in asked else None)
        for draft in drafts
    ]


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
    answers. Without one it is the share of what the answer says beyond the question that stands in the evidence.

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
    asked = run(opinions(plan.due, plan.evidence, client, config)) if client is not None and plan.due else {}
    return settle_plan(plan, asked, config)


def _held(answer: str, *texts: str) -> float:
    """Return the share of an answer's words that stand in texts, 0..1."""
    claims = check_answer(answer, texts, declared=True).claims
    size = sum(len(claim.text) for claim in claims)
    return sum(claim.held * len(claim.text) for claim in claims) / size if size else 0.0


def _step(number: int, step: object) -> Step:
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
    return Step(claim, tuple(cites), critical)


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


def _require_share(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
