"""The checks of a response: each runs by itself, and one that breaks takes no other along.

The claims of an answer are held against its evidence by rules, without a model and without a network (S4-04, S4-38,
C-64). What a model says of them is asked for before state is, and a fact of the decision then: `facts.verifier`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, reduce
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeVar

from groundwire.checks import ReportWarning, WarningType
from groundwire.checks.entities import EntityGrounding, VersionConflicts, ground_entities, version_conflicts
from groundwire.checks.marks import Citable, without_marks
from groundwire.checks.quotes import QuoteGrounding, QuoteRules, ground_quotes, validate_evidence_schema
from groundwire.checks.reading.statements import StatementReader, read_statements
from groundwire.checks.relations import RelationIndex, RelationPreservation, preserve_relations
from groundwire.checks.source_tags import TagReport, check_tags
from groundwire.checks.sources import (
    FieldChecker,
    FieldCheckResult,
    IndexReport,
    SourceReport,
    check_index,
    verify_sources,
)
from groundwire.checks.values.answer import ValueReport, check_values
from groundwire.epistemic.plan import (
    Plan,
    PlanStep,
    VerifierFacts,
    is_critical,
    is_simple,
    plan_response,
    report_of,
)
from groundwire.epistemic.types import ClaimVerification, HallucinationReport, VerificationConfig
from groundwire.messages.decisions import IngestionTier, ReasonCode
from groundwire.messages.events import Event
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.text.stems import content_words
from groundwire.text.work import OverBudget, bounded

SkipReason = Literal["not_provided", "disabled", "bypassed"]

_DIGITS: Final = 4

WORK: Final = 1_500_000
"""Units of work (`groundwire.text.work`) that the checks of one response have together: two seconds of a processor.

Fewer are spent where some of them are run again, so that what was within its budget once is so whenever it is derived.
"""


class Skipped(NamedTuple):
    """A check that did not run, because of what the response carries or the policy says."""

    why: SkipReason


@dataclass(frozen=True, slots=True)
class Broken:
    """A check that broke: it counts as failed, never as skipped. `cause` is for the log alone."""

    error: str
    cause: Exception | None = None


NOT_PROVIDED: Final = Skipped("not_provided")
DISABLED: Final = Skipped("disabled")

_T = TypeVar("_T")


def result_of(section: _T | Skipped | Broken) -> _T | None:
    return None if isinstance(section, Skipped | Broken) else section


@dataclass(frozen=True, slots=True)
class ClaimReport:
    """What rules and, where one was asked, a model found of the claims of a response."""

    report: HallucinationReport
    critical: int  # gaps above the policy's threshold
    # a model's budget did not reach: the check is unavailable, whatever the rules found
    over_budget: bool = False
    # beside evidence, the answer only frames, greets, or tells what the sources lack
    claims_nothing: bool = False

    @property
    def flagged(self) -> list[ClaimVerification]:
        """The claims with which something is wrong, those of the text in its order, then those of steps."""
        return [claim for claim in self.report.claims if claim.is_flagged]

    @property
    def unheld(self) -> int:
        """Claims for which the answer is flagged, or which nobody looked at: all that are doubted, at least one."""
        doubted = self.report.flagged_claims + self.report.unverified_claims
        return max(1, doubted) if self.report.is_flagged else 0

    def as_report(self) -> dict[str, Any]:
        """Return `report.epistemic`.

        Claims that hold are listed by their place alone: a decision does not repeat the answer.
        """
        section = self.report.model_dump(mode="json")
        for claim in section["claims"]:
            if not claim["is_flagged"]:
                claim["claim_text"] = ""
        rounded: dict[str, Any] = _rounded(section)
        return rounded


@dataclass(frozen=True, slots=True)
class ResponseReading:
    """What each check found, or why it did not run; the attributes' names are those of the checks."""

    sources: SourceReport | Skipped | Broken
    index: IndexReport | Skipped | Broken
    versions: VersionConflicts | Skipped | Broken
    fields: FieldCheckResult | Skipped | Broken
    source_tags: TagReport | Skipped | Broken
    quotes: QuoteGrounding | Skipped | Broken
    entities: EntityGrounding | Skipped | Broken
    relations: RelationPreservation | Skipped | Broken
    values: ValueReport | Skipped | Broken
    claims: ClaimReport | Skipped | Broken

    @classmethod
    def failed(cls, error: Exception) -> tuple[ResponseReading, str | None]:
        """Return what is known where something but a check broke, and what `facts.error` says of it."""
        name = type(error).__name__
        said = list_broken({INTERNAL: name} | dict.fromkeys(CHECKS, name))
        return cls(**{check: Broken(name) for check in CHECKS}), said

    @property
    def broken(self) -> Iterator[tuple[str, Broken]]:
        for name in CHECKS:
            section = getattr(self, name)
            if isinstance(section, Broken):
                yield name, section

    @property
    def results(self) -> Iterator[tuple[Check, Any]]:
        """The checks that ran, each with its result, in the order of the reports."""
        for check in RESPONSE_CHECKS:
            if (result := result_of(getattr(self, check.name))) is not None:
                yield check, result

    @property
    def grounded_on_something(self) -> bool:
        """Whether any check compared something of the response with what it was given.

        A result without a source, field, tag, quote, entity, relation, value or claim compared nothing, and how fresh
        the index is says nothing of the answer. Neither does a quote of a word or two.
        """
        return any(check.compared(result) for check, result in self.results)


class CheckInputs(NamedTuple):
    """What the checks of a response rest on beside record and policy: the facts of these names."""

    entities: dict[str, Any] | None = None  # a resolver's entries of the corpus by id
    relations: list[dict[str, Any]] | None = None  # a resolver's ground truth
    verifier: dict[str, Any] | None = None  # what a model said of its claims
    error: str | None = None  # the checks that broke, which are not run, as `list_broken` writes them
    attestation: dict[str, Any] | None = None  # of the record's signature; the verdict rests on it, no check

    @property
    def broken(self) -> dict[str, str]:
        return broken_checks(self.error)

    def with_broken(self, broken: Mapping[str, str]) -> CheckInputs:
        return self._replace(error=list_broken({**self.broken, **broken}))

    def differing(self, other: CheckInputs) -> set[str]:
        """Name the checks that may come to something else with the other inputs."""
        changed = {name for name in ("entities", "relations") if getattr(self, name) != getattr(other, name)}
        if self.verifier != other.verifier:
            changed.add("claims")
        mine, theirs = self.broken, other.broken
        return changed | {name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name)}


INTERNAL: Final = "internal"
"""In `facts.error`: what broke was no single check."""

NO_INPUTS: Final = CheckInputs()
"""The inputs where nobody was asked and nothing broke."""


def list_broken(broken: Mapping[str, str]) -> str | None:
    return ",".join(f"{check}={name}" for check, name in broken.items()) or None


def broken_checks(error: str | None) -> dict[str, str]:
    pairs = (part.partition("=") for part in (error or "").split(",") if part)
    return {check: name for check, _, name in pairs}


class _Run(NamedTuple):
    response: LlmResponse
    policy: Policy
    inputs: CheckInputs
    broken: Mapping[str, str]
    read: StatementReader


def read_response(response: LlmResponse, policy: Policy, inputs: CheckInputs = NO_INPUTS) -> ResponseReading:
    return ResponseReading(**_results(CHECKS, response, policy, inputs))


def read_again(
    reading: ResponseReading,
    checks: Collection[str],
    response: LlmResponse,
    policy: Policy,
    inputs: CheckInputs,
) -> ResponseReading:
    """Return a reading with some checks run again, whose inputs are others now."""
    again = [name for name in CHECKS if name in checks]
    return replace(reading, **_results(again, response, policy, inputs))


def _results(
    checks: Sequence[str], response: LlmResponse, policy: Policy, inputs: CheckInputs
) -> dict[str, Any]:
    """Run checks within one budget: a check that exceeds it is unavailable, and so are those after it."""
    # two checks read the same texts
    run = _Run(response, policy, inputs, inputs.broken, cache(read_statements))
    with bounded(WORK):
        return {name: _run(name, run) for name in checks}


def _run(name: str, run: _Run) -> Any:  # noqa: ANN401 - what the check of that name gives
    if name in run.broken:
        return Broken(run.broken[name])
    try:
        return _BY_NAME[name].run(run)
    except OverBudget as exc:
        return Broken(type(exc).__name__)
    except Exception as exc:  # noqa: BLE001 - fails closed: a check that broke is a review
        return Broken(type(exc).__name__, exc)


def _sources(run: _Run) -> SourceReport | Skipped:
    response = run.response
    if response.sources is None or response.chunks is None:
        return NOT_PROVIDED
    return verify_sources(response.sources, response.chunks)


def _index(run: _Run) -> IndexReport | Skipped:
    response = run.response
    if response.chunks is None or response.current_revisions is None:
        return NOT_PROVIDED
    report = check_index(response.chunks, response.current_revisions)
    return report if report.checked else NOT_PROVIDED


def _fields(run: _Run) -> FieldCheckResult | Skipped:
    answer, chunks = run.response.answer, run.response.chunks
    if answer is None or chunks is None:
        return NOT_PROVIDED
    checker = FieldChecker()
    shown = without_marks(answer, citable_by(run.response))
    return checker.verify_fields(checker.extract_mentioned_fields(shown), chunks)


def _source_tags(run: _Run) -> TagReport | Skipped:
    answer, chunks, required = run.response.answer, run.response.chunks, run.policy.require_source_tags
    if answer is None or chunks is None:
        return NOT_PROVIDED
    report = check_tags(answer, citable_by(run.response), required=required)
    return report if report.present or required else NOT_PROVIDED


def _quotes(run: _Run) -> QuoteGrounding | Skipped:
    response, policy = run.response, run.policy
    if not policy.evidence_quote_validation_enabled:
        return DISABLED
    if response.evidence is None or response.transcript is None:
        return NOT_PROVIDED
    rules = QuoteRules(
        mode=policy.evidence_quote_validation_mode,
        fuzzy_threshold=policy.evidence_quote_fuzzy_threshold,
        min_characters=policy.evidence_quote_min_characters,
        min_words=policy.evidence_quote_min_words,
        word_boundaries=policy.evidence_quote_word_boundaries,
        remove_soft=policy.evidence_quote_remove_soft,
    )
    return ground_quotes(validate_evidence_schema(response.evidence), response.transcript, rules)


def _entities(run: _Run) -> EntityGrounding | Skipped:
    """Look entities up in the corpus, where one is asked; the response's own index can only lower what it says."""
    known = [index for index in (run.inputs.entities, run.response.corpus_index) if index is not None]
    if run.response.entities is None or not known:
        return NOT_PROVIDED
    return ground_entities(
        run.response.entities,
        known[0],
        also=known[-1] if len(known) > 1 else None,
        required_confidence=run.policy.entity_required_confidence,
        require_provenance=run.policy.require_provenance,
    )


def _relations(run: _Run) -> RelationPreservation | Skipped:
    """Compare relations with the corpus, where one is asked; the response's own truths can only lower what it says."""
    claims, policy = run.response.claims, run.policy
    known = [truths for truths in (run.inputs.relations, run.response.relations) if truths is not None]
    if claims is None or not known:
        return NOT_PROVIDED
    found = (
        preserve_relations(
            claims,
            RelationIndex(truths),
            strict_versions=policy.strict_versions,
            require_qualifiers=policy.require_qualifiers,
        )
        for truths in known
    )
    return reduce(RelationPreservation.stricter, found)


def _values(run: _Run) -> ValueReport | Skipped:
    answer, chunks = run.response.answer, run.response.chunks
    if not run.policy.check_values:
        return DISABLED
    if answer is None or chunks is None:
        return NOT_PROVIDED
    question = run.response.query or ""
    passages = [chunk.content for chunk in chunks]
    return check_values(answer, passages, question=question, read=run.read, citable=citable_by(run.response))


def _claims(run: _Run) -> ClaimReport | Skipped:
    config = run.policy.verification
    if why := why_skipped(run.response, config):
        return Skipped(why)
    return check_claims(run.response, evidence_of(run.response), config, run.inputs.verifier, read=run.read)


def _tag_failures(found: TagReport) -> Iterator[str]:
    if found.missing:
        yield f"source_tags_missing: {len(found.missing)}"
    yield from (f"source_tag_phantom: {tag}" for tag in dict.fromkeys(found.phantom))


def _quote_failures(found: QuoteGrounding) -> Iterator[str]:
    if found.stats.rejected_count:
        yield f"quotes_rejected: {found.stats.rejected_count} of {found.stats.extracted_count}"
    yield from (
        f"quote_polarity: {domain}" for domain in dict.fromkeys(note.domain for note in found.polarity)
    )


_LEAST_QUOTE: Final = 3  # content words of a quote that an answer can rest on


def _rests_on_quotes(found: QuoteGrounding) -> bool:
    held = chain.from_iterable(found.validated.values())
    words = (sum(bool(content_words(word)) for word in quote.split()) for quote in held)
    return bool(found.rejected) or any(count >= _LEAST_QUOTE for count in words)


def _claim_failures(found: ClaimReport) -> Iterator[str]:
    if found.unheld:
        yield f"flagged_claims: {found.unheld}"
    if found.critical:
        yield f"critical_gap: {found.critical}"
    if found.over_budget:
        yield "claims_unavailable"


def _field_warnings(found: FieldCheckResult) -> Iterator[ReportWarning]:
    if found.unverified:
        names, details = ", ".join(found.unverified), {"fields": list(found.unverified)}
        yield ReportWarning(WarningType.UNVERIFIED_FIELDS, f"Unverified fields: [{names}]", details)


def _quote_warnings(found: QuoteGrounding) -> Iterator[ReportWarning]:
    for note in found.polarity:
        message = f"A quote of {note.domain} stands behind a negation in the transcript"
        details = {"domain": note.domain, "index": note.index}
        yield ReportWarning(WarningType.QUOTE_POLARITY, message, details)


def _relation_warnings(found: RelationPreservation) -> Iterator[ReportWarning]:
    for index in found.unspecified:
        message = f"Relation {index} names no version, and its source has one"
        yield ReportWarning(WarningType.VERSION_UNSPECIFIED, message, {"index": index})


def _source_section(found: SourceReport, _: LlmResponse) -> dict[str, Any]:
    results = [
        {
            "file": file,
            "exists": result.exists,
            "snippet_valid": result.snippet_valid,
            "lines_match": result.lines_match,
            "confidence": round(result.confidence, 4),
        }
        for file, result in found.results
    ]
    return {"results": results, "confidence": round(found.confidence, 4)}


_BLOCK, _REVIEW = IngestionTier.BLOCK, IngestionTier.FLAG_REVIEW

VERDICTS: Final[Sequence[tuple[IngestionTier, ReasonCode]]] = (
    (_BLOCK, ReasonCode.ENTITY_GROUNDING_FAILED),
    (_BLOCK, ReasonCode.RELATION_PRESERVATION_FAILED),
    (_BLOCK, ReasonCode.QUOTES_REJECTED),
    (_BLOCK, ReasonCode.CRITICAL_GAP),
    (_BLOCK, ReasonCode.LOW_CONFIDENCE),
    (_REVIEW, ReasonCode.INTERNAL_ERROR),
    (_REVIEW, ReasonCode.CHECK_UNAVAILABLE),
    (_REVIEW, ReasonCode.GROUNDING_UNATTESTED),
    (_REVIEW, ReasonCode.PHANTOM_SOURCE),
    (_REVIEW, ReasonCode.SNIPPET_MISMATCH),
    (_REVIEW, ReasonCode.UNVERIFIED_FIELDS),
    (_REVIEW, ReasonCode.STALE_INDEX),
    (_REVIEW, ReasonCode.QUOTES_REJECTED),
    (_REVIEW, ReasonCode.QUOTE_POLARITY),
    (_REVIEW, ReasonCode.FLAGGED_CLAIMS),
    (_REVIEW, ReasonCode.SOURCE_TAGS_MISSING),
    (_REVIEW, ReasonCode.WARNINGS),
    (_REVIEW, ReasonCode.VERIFICATION_BYPASSED),
    (_REVIEW, ReasonCode.LOW_CONFIDENCE),
    (_REVIEW, ReasonCode.NOTHING_TO_GROUND_ON),
)
"""Every verdict that lowers a response, in the order of the contract: of those that apply the first decides."""


class Rule(NamedTuple):
    """A verdict, and whether a check's result leads to it under a policy."""

    tier: IngestionTier
    code: ReasonCode
    applies: Callable[[Any, Policy], object]


def _nothing(*_: object) -> tuple[()]:
    return ()


class Check(NamedTuple):
    """A check of responses: all that the gate says of it stands in its row. A warning is a review by itself.

    Attributes:
        name: of the attribute of a reading, and of the check in `facts.error`.
        run: returns the result, or why there is none.
        passed: how it is listed where it passed; empty: it is not listed by itself.
        failures: how it is listed where it failed.
        warnings: of the report.
        rules: the verdicts that its result can lead to, beside that of warnings.
        compared: whether it compared something of the response with what it was given.
        section: its name in the report, and what stands there; an empty name: none.
        events: what it reports of a tenant's response.
    """

    name: str
    run: Callable[[_Run], Any]
    passed: str
    failures: Callable[[Any], Iterable[str]] = _nothing
    warnings: Callable[[Any], Iterable[ReportWarning]] = _nothing
    rules: tuple[Rule, ...] = ()
    compared: Callable[[Any], object] = _nothing
    section: tuple[str, Callable[[Any, LlmResponse], dict[str, Any]]] = ("", lambda _result, _response: {})
    events: Callable[[Any, str, Policy], Iterable[Event]] = _nothing


RESPONSE_CHECKS: Final[Sequence[Check]] = (
    Check(
        "sources",
        _sources,
        "sources_verified",
        failures=lambda found: (
            *(f"phantom_file: {file}" for file in dict.fromkeys(found.phantom_files)),
            *(f"snippet_mismatch: {file}" for file in dict.fromkeys(found.mismatched_files)),
        ),
        warnings=lambda found: found.warnings,
        rules=(
            Rule(_REVIEW, ReasonCode.PHANTOM_SOURCE, lambda found, _: found.phantom_files),
            Rule(_REVIEW, ReasonCode.SNIPPET_MISMATCH, lambda found, _: found.mismatched_files),
        ),
        compared=lambda found: found.results,
        section=("sources", _source_section),
    ),
    Check(
        "index",
        _index,
        "index_current",
        failures=lambda found: (f"stale_index: {file}" for file in found.stale),
        warnings=lambda found: found.warnings,
        rules=(Rule(_REVIEW, ReasonCode.STALE_INDEX, lambda found, _: found.stale),),
    ),
    Check(
        "fields",
        _fields,
        "fields_verified",
        failures=lambda found: (
            [f"unverified_fields: {', '.join(found.unverified)}"] if found.unverified else ()
        ),
        warnings=_field_warnings,
        rules=(Rule(_REVIEW, ReasonCode.UNVERIFIED_FIELDS, lambda found, _: found.unverified),),
        compared=lambda found: found.verified or found.unverified,
        section=(
            "fields",
            lambda found, _: {
                "verified": list(found.verified),
                "unverified": list(found.unverified),
                "confidence": round(found.confidence, 4),
            },
        ),
    ),
    Check(
        "source_tags",
        _source_tags,
        "source_tags_present",
        failures=_tag_failures,
        warnings=lambda found: found.warnings,
        rules=(
            Rule(_REVIEW, ReasonCode.PHANTOM_SOURCE, lambda found, _: found.phantom),
            Rule(_REVIEW, ReasonCode.SOURCE_TAGS_MISSING, lambda found, _: found.missing),
        ),
        compared=lambda found: found.tags,
    ),
    Check(
        "quotes",
        _quotes,
        "quotes_grounded",
        failures=_quote_failures,
        warnings=_quote_warnings,
        rules=(
            Rule(
                _BLOCK,
                ReasonCode.QUOTES_REJECTED,
                lambda found, policy: policy.evidence_quote_fail_on_all_rejected and found.failure,
            ),
            Rule(_REVIEW, ReasonCode.QUOTES_REJECTED, lambda found, _: found.stats.rejected_count),
            Rule(_REVIEW, ReasonCode.QUOTE_POLARITY, lambda found, _: found.polarity),
        ),
        compared=_rests_on_quotes,
        section=(
            "quotes",
            lambda found, _: {
                **dataclasses.asdict(found.stats),
                "validated": found.validated,
                **({"failure": found.failure} if found.failure else {}),
            },
        ),
        events=lambda found, _, policy: found.events() if policy.evidence_quote_log_rejections else (),
    ),
    Check(
        "entities",
        _entities,
        "entities_grounded",
        failures=lambda found: [f"entity_grounding_failed: {len(found.missing)}"] if found.missing else (),
        rules=(Rule(_BLOCK, ReasonCode.ENTITY_GROUNDING_FAILED, lambda found, _: found.missing),),
        compared=lambda found: found.entity_count,
        section=("entities", lambda found, _: found.as_report()),
        events=lambda found, tenant, _: found.events(tenant),
    ),
    Check(
        "relations",
        _relations,
        "relations_preserved",
        failures=lambda found: (
            [f"relation_preservation_failed: {len(found.violations)}"] if found.violations else ()
        ),
        warnings=_relation_warnings,
        rules=(Rule(_BLOCK, ReasonCode.RELATION_PRESERVATION_FAILED, lambda found, _: found.violations),),
        compared=lambda found: found.claim_count,
        section=("relations", lambda found, response: found.as_report(response.hop_results or [])),
        events=lambda found, tenant, _: found.events(tenant),
    ),
    Check(
        "values",
        _values,
        "values_supported",
        failures=lambda found: [f"values_unsupported: {found.faults}"] if found.faults else (),
        warnings=lambda found: found.warnings,
        rules=(Rule(_REVIEW, ReasonCode.FLAGGED_CLAIMS, lambda found, _: found.faults),),
        compared=lambda found: found.found,
    ),
    Check(
        "claims",
        _claims,
        "claims_supported",
        failures=_claim_failures,
        rules=(
            Rule(
                _BLOCK,
                ReasonCode.CRITICAL_GAP,
                lambda found, policy: policy.on_critical == "block" and found.critical,
            ),
            Rule(_REVIEW, ReasonCode.CHECK_UNAVAILABLE, lambda found, _: found.over_budget),
            Rule(_REVIEW, ReasonCode.FLAGGED_CLAIMS, lambda found, _: found.unheld),
        ),
        compared=lambda found: found.report.claims or found.claims_nothing,
        section=("epistemic", lambda found, _: found.as_report()),
    ),
    Check(
        "versions",
        lambda run: NOT_PROVIDED if run.response.chunks is None else version_conflicts(run.response.chunks),
        "",
        warnings=lambda found: found.warnings,
        events=lambda found, tenant, _: found.events(tenant),
    ),
)
"""In the order of lists and reports; that in which they run is the order of a reading's attributes."""
_BY_NAME: Final = {check.name: check for check in RESPONSE_CHECKS}
CHECKS: Final = tuple(attribute.name for attribute in dataclasses.fields(ResponseReading))
"""The names of the checks, in the order in which they run."""


def why_skipped(response: LlmResponse, config: VerificationConfig) -> SkipReason | None:
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
    read: StatementReader | None = None,
) -> Plan:
    """Return what the rules find in answer and steps, and, where there is a model, what it is to be asked."""
    steps = [PlanStep(step.claim, step.cites) for step in response.steps or ()]
    return plan_response(
        response.answer or "",
        evidence,
        config,
        ask=ask,
        response_id=response.response_id,
        question=response.query or "",
        steps=steps,
        read=read,
        citable=citable_by(response),
    )


def check_claims(
    response: LlmResponse,
    evidence: Mapping[str, str],
    config: VerificationConfig,
    verifier: Mapping[str, Any] | None = None,
    *,
    read: StatementReader | None = None,
) -> ClaimReport:
    """Compare the claims of a response, and the steps behind it, with its evidence.

    ValueError where `verifier` is not what a verifier says.
    """
    facts = VerifierFacts.model_validate(verifier) if verifier is not None else None
    plan = plan_claims(response, evidence, config, read=read)
    report = report_of(plan, facts, config)
    critical = sum(is_critical(gap, config) for gap in report.gaps) if report.is_flagged else 0
    over_budget = facts is not None and facts.over_budget
    return ClaimReport(report, critical, over_budget=over_budget, claims_nothing=plan.claims_nothing)


def citable_by(response: LlmResponse) -> Citable:
    """Return what the answer of a response may cite: its chunks, their files and its sources', and its context."""
    chunks, context = response.chunks or (), response.context or {}
    names = [*context, *(chunk.chunk_id for chunk in chunks)]
    names += [part.file for part in (*chunks, *(response.sources or ()))]
    texts = (*context.values(), *(chunk.content for chunk in chunks))
    return Citable(names, len(context) if response.chunks is None else len(chunks), texts)


def _rounded(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, float):
        return round(value, _DIGITS) + 0.0  # never -0.0
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
