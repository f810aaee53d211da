"""Entity grounding and relation preservation as stages of a pipeline, and as plain functions (S3-01..S3-33).

    guard = EntityGroundingGuard()
    result = guard.check([{"id": "act-7"}], {"act-7": {"confidence": 0.9}})

In a pipeline, run entity grounding between retrieval and the model, relation preservation on the draft answer:
either failing blocks what comes after it (S3-14, S3-32, C-56). Stageflow's contexts and sinks fit as they are. Events
carry ids and reasons; what `execute` hands back to the pipeline also holds the entities and claims that it put in.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal, Protocol

from groundwire.arguments import settled, takes
from groundwire.checks.entities import REQUIRED_CONFIDENCE, EntityGrounding, ground_entities, part
from groundwire.checks.relations import RelationIndex, RelationLike, RelationPreservation, preserve_each
from groundwire.library.events import Sink, emit
from groundwire.messages.events import Event
from groundwire.messages.records import Entity, IndexEntry, RelationClaim

DEFAULT_TENANT: Final = "default"


class StageKind(StrEnum):
    """What a stage does in its pipeline."""

    GUARD = "guard"


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What a stage hands on: data, or the error that stops the pipeline."""

    status: Literal["ok", "fail"]
    data: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    @classmethod
    def ok(cls, **data: Any) -> StageOutput:  # noqa: ANN401 - a stage hands on what it likes
        """Return the output of a stage that went well."""
        return cls("ok", data)

    @classmethod
    def fail(cls, *, error: str, data: Mapping[str, Any]) -> StageOutput:
        """Return the output of a stage that stops the pipeline."""
        return cls("fail", dict(data), error)


def _emit(events: Iterable[Event], ctx: object, sink: Sink | None) -> None:
    """Send events of a stage's context; a sink that breaks changes no output (S3-10)."""
    for event in events:
        emit(event, sink or getattr(ctx, "event_sink", None))


def _tenant_of(ctx: object) -> str:
    tenant = getattr(ctx, "tenant_id", None)
    return tenant if isinstance(tenant, str) else DEFAULT_TENANT


Index = Mapping[str, IndexEntry | Mapping[str, Any]]
EntityResolver = Index | Callable[[list[str]], "Index | Awaitable[Index]"]
"""An index of entities, or a function of entity ids that returns one, sync or async."""


class LookupResolver(Protocol):
    """Knows the ground truth of relations: a graph, a store of predicates (S3-16)."""

    def lookup(self, *, subject: str, relation: str, obj: str, timestamp: Any) -> Any:  # noqa: ANN401 - see below
        """Return what the sources say of subject and object in either direction; it may be a coroutine.

        Returns:
            A mapping `{relation, version?, timestamp?, qualifiers?, subject?, object?}`, a list of them, or
            None where the sources say nothing. Without subject and object, a truth is one of those asked for.
        """
        ...


RelationResolver = (
    LookupResolver
    | Callable[..., Any]
    | RelationIndex
    | Sequence[RelationLike]
    | Mapping[tuple[str, ...], RelationLike | Sequence[RelationLike]]
)
"""A resolver, its `lookup` alone, or the ground truth itself: an index or a list of truths, or a mapping of
(subject, object) or (subject, relation, object) to truths."""


def asking(resolver: RelationResolver) -> Callable[[RelationLike], Any]:
    """Return a function of a claim that gives what the resolver knows of it."""
    lookup = getattr(resolver, "lookup", None) or (resolver if callable(resolver) else None)
    if lookup is None:
        if not isinstance(resolver, RelationIndex | Iterable):
            raise TypeError(f"relation_resolver: knows no relations, got {type(resolver).__name__}")
        index = resolver if isinstance(resolver, RelationIndex) else RelationIndex(_written_out(resolver))
        return lambda _claim: index
    return lambda claim: lookup(
        subject=part(claim, "subject"),
        relation=part(claim, "relation"),
        obj=part(claim, "object"),
        timestamp=part(claim, "timestamp"),
    )


def _written_out(resolver: Any) -> Iterable[RelationLike]:  # noqa: ANN401 - narrowed by what it holds
    if not isinstance(resolver, Mapping):
        yield from resolver
        return
    for (subject, *relation, obj), truths in resolver.items():
        names = {"subject": subject, "object": obj} | ({"relation": relation[0]} if relation else {})
        for truth in _several(truths):
            yield _completed(truth, names)


def truths_of(claim: RelationLike, answer: object) -> RelationIndex:
    """Return what a resolver answered of a claim as ground truth; one that names nobody is of the claim's own two."""
    if isinstance(answer, RelationIndex):
        return answer
    names = {"subject": part(claim, "subject"), "object": part(claim, "object")}
    return RelationIndex(_completed(truth, names) for truth in _several(answer))


def _several(answer: object) -> Iterable[object]:
    if not answer:
        return ()
    return (answer,) if isinstance(answer, Mapping | RelationClaim) else answer  # type: ignore[return-value] # else it is refused


def _completed(truth: object, names: Mapping[str, Any]) -> RelationLike:
    if isinstance(truth, RelationClaim):
        return truth
    if not isinstance(truth, Mapping):
        raise TypeError(f"a truth is a mapping with subject, relation and object, got {type(truth).__name__}")
    return {**names, **truth}


def at_once(answer: Any) -> Any:  # noqa: ANN401 - what a resolver gives
    """Return an answer that is there. Raises: TypeError for one that has to be awaited."""
    if not inspect.isawaitable(answer):
        return answer
    if inspect.iscoroutine(answer):
        answer.close()
    raise TypeError("the resolver is asynchronous: await execute() instead of calling check()")


class EntityGroundingGuard:
    """Stops what names entities that the corpus does not hold (S3-01).

    Args:
        required_confidence: Least confidence of an index entry, 0..1, inclusive.
        require_provenance: An entity needs a `provenance_id`, itself or in its entry (S3-13).
        entity_resolver: Where the index comes from, for input that carries none.
        sink: Where events go; by default to the context's `event_sink`, else to the process's own.

    Raises:
        ValueError: `required_confidence` is not from 0 to 1.
    """

    name = "entity_grounding_guard"
    kind = StageKind.GUARD

    @takes(required_confidence=float | int)
    def __init__(
        self,
        *,
        required_confidence: float = REQUIRED_CONFIDENCE,
        require_provenance: bool = False,
        entity_resolver: EntityResolver | None = None,
        sink: Sink | None = None,
    ) -> None:
        if not 0 <= required_confidence <= 1:
            raise ValueError(f"required_confidence must be from 0 to 1, got {required_confidence!r}")
        self._required_confidence = required_confidence
        self._require_provenance = require_provenance
        self._resolver: EntityResolver = {} if entity_resolver is None else entity_resolver
        self._sink = sink

    @takes(entities=Iterable)
    def check(
        self,
        entities: Iterable[Entity | Mapping[str, Any]],
        corpus_index: Index | None = None,
        *,
        tenant_id: str = DEFAULT_TENANT,
    ) -> EntityGrounding:
        """Look entities up and emit `knowledge.eg.failed` where one is missing.

        Args:
            entities: `{id, name?, role?, provenance_id?}`.
            corpus_index: Entity id to `{confidence, role?, ...}`; None: the resolver's.
            tenant_id: Named in the event.

        Raises:
            TypeError: The index is none, or the resolver is asynchronous; then await `execute`.
            Exception: Whatever the resolver raises.
        """
        named = list(entities)
        grounding = self._ground(named, at_once(self._index(named, corpus_index)))
        _emit(grounding.events(tenant_id), None, self._sink)
        return grounding

    async def execute(self, ctx: Any) -> StageOutput:  # noqa: ANN401 - any pipeline's context
        """Check `entities` against `corpus_index`, both from the stage `retrieval` (S3-02).

        Returns:
            `grounded_entities`, the input (S3-08); or the error `entity_grounding_failed` with
            `missing_entities` (S3-07), or `entities_unavailable` where the index could not be asked.
        """
        try:
            entities = list(ctx.inputs.get_from("retrieval", "entities", default=[]) or [])
            given = ctx.inputs.get_from("retrieval", "corpus_index", default=None)
            grounding = self._ground(entities, await settled(self._index(entities, given)))
        except Exception as error:  # noqa: BLE001 - whatever broke, nothing is known to be grounded
            # the class of what was raised, never its text
            return StageOutput.fail(error="entities_unavailable", data={"error": type(error).__name__})
        _emit(grounding.events(_tenant_of(ctx)), ctx, self._sink)
        if not grounding.missing:
            return StageOutput.ok(grounded_entities=entities)
        missing = [{"entity": entities[one.position], **one.as_dict()} for one in grounding.missing]
        return StageOutput.fail(error="entity_grounding_failed", data={"missing_entities": missing})

    def _index(self, entities: Sequence[object], given: Index | None) -> Any:  # noqa: ANN401 - what a resolver gives
        if given is not None or not callable(self._resolver):
            return self._resolver if given is None else given
        ids = dict.fromkeys(str(part(entity, "id")) for entity in entities if part(entity, "id") is not None)
        return self._resolver(list(ids))

    def _ground(self, entities: list[Entity | Mapping[str, Any]], index: object) -> EntityGrounding:
        if not isinstance(index, Mapping):
            raise TypeError(f"corpus_index: an index maps entity ids to entries, got {type(index).__name__}")
        return ground_entities(
            entities,
            index,
            required_confidence=self._required_confidence,
            require_provenance=self._require_provenance,
        )


class RelationPreservationGuard:
    """Stops what says other things of its entities than the sources do (S3-15).

    Args:
        relation_resolver: Where the ground truth comes from.
        strict_versions: A claim without a version, where the truth has one, is a violation (C-53).
        require_qualifiers: A claim needs every qualifier that the truth has (S3-26).
        sink: Where events go; by default to the context's `event_sink`, else to the process's own.
    """

    name = "relation_preservation_guard"
    kind = StageKind.GUARD

    def __init__(
        self,
        relation_resolver: RelationResolver,
        *,
        strict_versions: bool = False,
        require_qualifiers: bool = False,
        sink: Sink | None = None,
    ) -> None:
        self._ask = asking(relation_resolver)
        self._strict_versions = strict_versions
        self._require_qualifiers = require_qualifiers
        self._sink = sink

    @takes(claims=Iterable)
    def check(
        self, claims: Iterable[RelationLike], *, tenant_id: str = DEFAULT_TENANT
    ) -> RelationPreservation:
        """Compare claims with the ground truth and emit `knowledge.rp.violation` where one differs.

        Args:
            claims: `{subject, relation, object, timestamp?, version?, qualifiers?}`.
            tenant_id: Named in the event.

        Raises:
            TypeError: The resolver is asynchronous, then await `execute`; or what it gives is no ground truth.
            Exception: Whatever the resolver raises.
        """
        preservation = self._preserve(
            (claim, truths_of(claim, at_once(self._ask(claim)))) for claim in claims
        )
        _emit(preservation.events(tenant_id), None, self._sink)
        return preservation

    async def execute(self, ctx: Any) -> StageOutput:  # noqa: ANN401 - any pipeline's context
        """Check `claims` of the stage `draft_answer`, with `hop_results` of `multi_hop_retrieval` as evidence.

        Returns:
            `grounded_claims`, their number, and `hop_evidence` (S3-23), and `version_unspecified`, the places
            of claims without a version, where there are any; or the error `relation_preservation_failed` with
            `violations` (S3-22), or `relations_unavailable` where the resolver could not be asked.
        """
        try:
            hops = ctx.inputs.get_from("multi_hop_retrieval", "hop_results", default=[])
            claims = list(ctx.inputs.get_from("draft_answer", "claims", default=[]) or [])
            answers = [(claim, truths_of(claim, await settled(self._ask(claim)))) for claim in claims]
            preservation = self._preserve(answers)
        except Exception as error:  # noqa: BLE001 - whatever broke, nothing is known to hold
            # the class of what was raised, never its text
            return StageOutput.fail(error="relations_unavailable", data={"error": type(error).__name__})
        _emit(preservation.events(_tenant_of(ctx)), ctx, self._sink)
        if preservation.violations:
            violations = [{"claim": claims[one.index], **one.as_dict()} for one in preservation.violations]
            return StageOutput.fail(error="relation_preservation_failed", data={"violations": violations})
        unspecified = list(preservation.unspecified)
        more = {"version_unspecified": unspecified} if unspecified else {}
        return StageOutput.ok(grounded_claims=preservation.claim_count, hop_evidence=hops, **more)

    def _preserve(self, answers: Iterable[tuple[RelationLike, RelationIndex]]) -> RelationPreservation:
        return preserve_each(
            answers, strict_versions=self._strict_versions, require_qualifiers=self._require_qualifiers
        )
