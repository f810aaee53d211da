"""What the checks find in a response; each runs by itself, and one that breaks takes no other along."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

from groundwire.checks.entities import EntityGrounding, ground_entities
from groundwire.checks.fields import FieldChecker, FieldCheckResult
from groundwire.checks.quotes import QuoteGrounding, QuoteRules, ground_quotes, validate_evidence_schema
from groundwire.checks.relations import RelationIndex, RelationPreservation, preserve_relations
from groundwire.checks.source_tags import TagReport, check_tags
from groundwire.checks.sources import SourceReport, verify_sources
from groundwire.checks.stale_index import IndexReport, check_index
from groundwire.checks.values import ValueReport, check_values
from groundwire.checks.values_statements import Read, read_statements
from groundwire.checks.versions import VersionConflicts, version_conflicts
from groundwire.decide.response_claims import ClaimReport, check_claims, evidence_of, why_skipped
from groundwire.messages.responses import Chunk, LlmResponse
from groundwire.policy import Policy

Why = Literal["not_provided", "disabled", "bypassed"]


class Skipped(NamedTuple):
    """A check that did not run, because of what the response carries or the policy says."""

    why: Why


@dataclass(frozen=True, slots=True)
class Broken:
    """A check that broke: it counts as failed, never as skipped. `cause` is for the log alone."""

    error: str
    cause: Exception | None = None


NOT_PROVIDED: Final = Skipped("not_provided")
DISABLED: Final = Skipped("disabled")

_T = TypeVar("_T")


def found(section: _T | Skipped | Broken) -> _T | None:
    """Return what a check found; None where it did not run, or broke."""
    return None if isinstance(section, Skipped | Broken) else section


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

    @property
    def broken(self) -> Iterator[tuple[str, Broken]]:
        """The checks that broke."""
        for attribute in dataclasses.fields(self):
            found = getattr(self, attribute.name)
            if isinstance(found, Broken):
                yield attribute.name, found

    @property
    def grounded_on_something(self) -> bool:
        """Whether any check compared something of the response with what it was given.

        What holds no source, field, tag, quote, entity, relation, value or claim leaves nothing compared, and
        how fresh the index is says nothing of the answer.
        """
        sources, fields, tags = found(self.sources), found(self.fields), found(self.source_tags)
        quotes, values = found(self.quotes), found(self.values)
        entities, relations = found(self.entities), found(self.relations)
        claims = found(self.claims)
        return any(
            (
                sources and sources.results,
                fields and (fields.verified or fields.unverified),
                tags and tags.tags,
                quotes and quotes.stats.extracted_count,
                entities and entities.entity_count,
                relations and relations.claim_count,
                values and values.found,
                claims and claims.found.claims,
            )
        )


def read_response(
    response: LlmResponse,
    policy: Policy,
    *,
    entities: Mapping[str, Any] | None = None,
    relations: Sequence[Mapping[str, Any]] | None = None,
    verifier: Mapping[str, Any] | None = None,
    broken: Mapping[str, str] | None = None,
) -> ResponseReading:
    """Run every check on a response; pure, linear in its size.

    Args:
        response: the record.
        policy: what is switched on, and how strictly.
        entities: a resolver's index, for a response that carries none.
        relations: a resolver's ground truth, for a response that carries none.
        verifier: what a model said of the claims, as `facts.verifier` has it.
        broken: checks that are known to have broken when the response was first read, with the error's class.
    """
    run = partial(_run, broken or {})
    chunks, answer = response.chunks, response.answer
    read = cache(read_statements)  # two checks read the same texts
    return ResponseReading(
        sources=run("sources", lambda: _sources(response)),
        index=run("index", lambda: _index(response)),
        versions=run("versions", lambda: NOT_PROVIDED if chunks is None else version_conflicts(chunks)),
        fields=run("fields", lambda: _fields(answer, chunks)),
        source_tags=run("source_tags", lambda: _source_tags(answer, chunks, policy)),
        quotes=run("quotes", lambda: _quotes(response, policy)),
        entities=run("entities", lambda: _entities(response, policy, entities)),
        relations=run("relations", lambda: _relations(response, policy, relations)),
        values=run("values", lambda: _values(answer, chunks, policy, read)),
        claims=run("claims", lambda: _claims(response, policy, verifier, read)),
    )


def with_corpus(
    reading: ResponseReading,
    response: LlmResponse,
    policy: Policy,
    *,
    entities: Mapping[str, Any] | None,
    relations: Sequence[Mapping[str, Any]] | None,
    broken: Mapping[str, str],
) -> ResponseReading:
    """Return a reading with the two checks run again that a resolver answers; see `read_response`."""
    run = partial(_run, broken)
    return replace(
        reading,
        entities=run("entities", lambda: _entities(response, policy, entities)),
        relations=run("relations", lambda: _relations(response, policy, relations)),
    )


def with_verifier(
    reading: ResponseReading, response: LlmResponse, policy: Policy, *, verifier: Mapping[str, Any]
) -> ResponseReading:
    """Return a reading with the claims held against their evidence again, once a model was asked about them."""
    claims = _run({}, "claims", lambda: _claims(response, policy, verifier, cache(read_statements)))
    return replace(reading, claims=claims)


def without_claims(reading: ResponseReading, error: str) -> ResponseReading:
    """Return a reading of which the check of claims broke, with the error's class."""
    return replace(reading, claims=Broken(error))


def _run(known: Mapping[str, str], name: str, check: Callable[[], _T | Skipped]) -> _T | Skipped | Broken:
    """Run a check, unless it is known to have broken."""
    if name in known:
        return Broken(known[name])
    try:
        return check()
    except Exception as exc:  # noqa: BLE001 - fails closed: a check that broke is a review
        return Broken(type(exc).__name__, exc)


def _sources(response: LlmResponse) -> SourceReport | Skipped:
    if response.sources is None or response.chunks is None:
        return NOT_PROVIDED
    return verify_sources(response.sources, response.chunks)


def _index(response: LlmResponse) -> IndexReport | Skipped:
    if response.chunks is None or response.current_revisions is None:
        return NOT_PROVIDED
    report = check_index(response.chunks, response.current_revisions)
    return report if report.checked else NOT_PROVIDED


def _fields(answer: str | None, chunks: Sequence[Chunk] | None) -> FieldCheckResult | Skipped:
    if answer is None or chunks is None:
        return NOT_PROVIDED
    checker = FieldChecker()
    return checker.verify_fields(checker.extract_mentioned_fields(answer), chunks)


def _source_tags(answer: str | None, chunks: Sequence[Chunk] | None, policy: Policy) -> TagReport | Skipped:
    if answer is None or chunks is None:
        return NOT_PROVIDED
    report = check_tags(answer, len(chunks), required=policy.require_source_tags)
    return report if report.present or policy.require_source_tags else NOT_PROVIDED


def _quotes(response: LlmResponse, policy: Policy) -> QuoteGrounding | Skipped:
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


def _entities(
    response: LlmResponse, policy: Policy, resolved: Mapping[str, Any] | None
) -> EntityGrounding | Skipped:
    index = response.corpus_index if response.corpus_index is not None else resolved
    if response.entities is None or index is None:
        return NOT_PROVIDED
    return ground_entities(
        response.entities,
        index,
        required_confidence=policy.entity_required_confidence,
        require_provenance=policy.require_provenance,
    )


def _relations(
    response: LlmResponse, policy: Policy, resolved: Sequence[Mapping[str, Any]] | None
) -> RelationPreservation | Skipped:
    truths = response.relations if response.relations is not None else resolved
    if response.claims is None or truths is None:
        return NOT_PROVIDED
    return preserve_relations(
        response.claims,
        RelationIndex(truths),
        strict_versions=policy.strict_versions,
        require_qualifiers=policy.require_qualifiers,
    )


def _values(
    answer: str | None, chunks: Sequence[Chunk] | None, policy: Policy, read: Read
) -> ValueReport | Skipped:
    if not policy.check_values:
        return DISABLED
    if answer is None or chunks is None:
        return NOT_PROVIDED
    return check_values(answer, [chunk.content for chunk in chunks], read=read)


def _claims(
    response: LlmResponse, policy: Policy, verifier: Mapping[str, Any] | None, read: Read
) -> ClaimReport | Skipped:
    if why := why_skipped(response, policy.verification):
        return Skipped(why)
    return check_claims(response, evidence_of(response), policy.verification, verifier, read=read)
