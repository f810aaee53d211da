"""Entity grounding: what an answer names has to stand in the corpus, with enough confidence (S3-01..S3-14)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from numbers import Real
from typing import Any, Final

from groundwire.checks.grounding import bounded, comparable, part
from groundwire.messages.events import Event
from groundwire.messages.responses import Entity, IndexEntry

REQUIRED_CONFIDENCE: Final = 0.6


class MissingReason(StrEnum):
    """Why an entity is not grounded; of an entity the first that applies, in this order, is reported."""

    NOT_FOUND = "not_found"
    LOW_CONFIDENCE = "low_confidence"
    ROLE_MISMATCH = "role_mismatch"
    MISSING_PROVENANCE = "missing_provenance"


@dataclass(frozen=True, slots=True)
class MissingEntity:
    """An entity that is not grounded.

    Attributes:
        entity_id: Its id, empty where it has none.
        reason: A member of `MissingReason`.
        position: Its place among the entities, from 0.
    """

    entity_id: str
    reason: str
    position: int = 0

    def as_dict(self) -> dict[str, str]:
        """The entry of report and event: id and reason, never text (C-43)."""
        return {"entity_id": self.entity_id, "reason": str(self.reason)}


@dataclass(frozen=True, slots=True)
class EntityGrounding:
    """What looking entities up gave.

    Attributes:
        missing: Entities that are not grounded, in the order in which they came.
        grounded: Ids of the others, in that order.
        required_confidence: What an index entry needed at least.
    """

    missing: tuple[MissingEntity, ...]
    grounded: tuple[str, ...]
    required_confidence: float = REQUIRED_CONFIDENCE

    @property
    def entity_count(self) -> int:
        """How many entities there were."""
        return len(self.missing) + len(self.grounded)

    def as_report(self) -> dict[str, Any]:
        """The section `entities` of a response's report."""
        return {
            "missing_entities": [entity.as_dict() for entity in self.missing],
            "grounded_entities": list(self.grounded),
        }

    def events(self, tenant_id: str) -> list[Event]:
        """Return `knowledge.eg.failed`, bounded, where an entity is missing (S3-05, S3-06, S3-29)."""
        if not self.missing:
            return []
        missing, truncated = bounded([entity.as_dict() for entity in self.missing])
        payload = {
            "missing_entities": missing,
            "required_confidence": self.required_confidence,
            "entity_count": self.entity_count,
            "tenant_id": tenant_id,
            **truncated,
        }
        return [Event("knowledge.eg.failed", payload)]


def ground_entities(
    entities: Iterable[Entity | Mapping[str, Any]],
    index: Mapping[str, IndexEntry | Mapping[str, Any]],
    *,
    required_confidence: float = REQUIRED_CONFIDENCE,
    require_provenance: bool = False,
) -> EntityGrounding:
    """Look every entity up in an index; what cannot be confirmed is missing, never an error.

    Roles are compared where both the entity and its entry have one, without regard to case, white space and
    Unicode form (S3-12). The time is linear in the number of entities (S3-28).

    Args:
        entities: `{id, name?, role?, provenance_id?}`.
        index: Entity id to `{confidence, role?, provenance_id?, ...}`; an empty entry is none (S3-03).
        required_confidence: Least confidence of an entry, 0..1, inclusive (S3-04). A confidence that is missing
            or no number from 0 to 1 is too low.
        require_provenance: An entity that has no `provenance_id`, neither itself nor in its entry, is missing
            (S3-13).
    """
    missing: list[MissingEntity] = []
    grounded: list[str] = []
    for position, entity in enumerate(entities):
        key = part(entity, "id")
        entry = _entry(index, key)
        reason = _reason(entity, entry, required_confidence, require_provenance=require_provenance)
        name = "" if key is None else str(key)
        if reason is None:
            grounded.append(name)
        else:
            missing.append(MissingEntity(name, reason, position))
    return EntityGrounding(tuple(missing), tuple(grounded), required_confidence)


def _entry(index: Mapping[str, Any], key: Any) -> object:  # noqa: ANN401 - a plain mapping may hold any id
    try:
        return index.get(key)
    except TypeError:  # an id that no mapping can hold
        return None


def _reason(
    entity: object, entry: object, required: float, *, require_provenance: bool
) -> MissingReason | None:
    if not (entry if isinstance(entry, Mapping) else hasattr(entry, "confidence")):
        return MissingReason.NOT_FOUND
    if not _reaches(part(entry, "confidence"), required):
        return MissingReason.LOW_CONFIDENCE
    role, known = comparable(part(entity, "role")), comparable(part(entry, "role"))
    if role and known and role != known:
        return MissingReason.ROLE_MISMATCH
    if require_provenance and not (_given(entity) or _given(entry)):
        return MissingReason.MISSING_PROVENANCE
    return None


def _reaches(confidence: Any, required: float) -> bool:  # noqa: ANN401 - a plain mapping may hold anything
    number = isinstance(confidence, Real) and not isinstance(confidence, bool)
    return number and bool(required <= confidence <= 1)  # never of NaN


def _given(record: object) -> bool:
    return bool(comparable(part(record, "provenance_id")))
