"""The guard of what is named."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from groundwire.checks.entities import REQUIRED_CONFIDENCE, EntityGrounding, ground_entities
from groundwire.checks.grounding import part
from groundwire.guards.resolvers import EntityResolver, Index, at_once, settled
from groundwire.guards.stage import (
    DEFAULT_TENANT,
    StageKind,
    StageOutput,
    emit_all,
    sink_of,
    tenant_of,
    unavailable,
)
from groundwire.messages.responses import Entity
from groundwire.telemetry import Sink


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
        emit_all(grounding.events(tenant_id), self._sink)
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
            return unavailable("entities_unavailable", error)
        emit_all(grounding.events(tenant_of(ctx)), self._sink or sink_of(ctx))
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
            raise TypeError(f"an index maps entity ids to entries, got {type(index).__name__}")
        return ground_entities(
            entities,
            index,
            required_confidence=self._required_confidence,
            require_provenance=self._require_provenance,
        )
