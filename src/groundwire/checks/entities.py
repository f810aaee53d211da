"""Entity grounding: what an answer names has to stand in the corpus, with enough confidence (S3-01..S3-14, C-55).

`comparable`, `part` and `bounded` serve relation preservation too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from numbers import Real
from typing import Any, Final
from unicodedata import normalize

from groundwire.messages.events import Event
from groundwire.messages.records import Entity, IndexEntry

MAX_ITEMS: Final = 100
"""Most entries of a list in an event; how many more there were stands beside it (S3-29)."""
MAX_ID: Final = 200
"""Most characters of an id or a version in an event."""

# Sorting combining marks takes quadratic time, so what is no name any more is compared without composing it.
_COMPOSED: Final = 256


def comparable(name: object) -> str:
    """Return a name as it is compared: NFKC, without case, one space for each run of white space."""
    if name is None:
        return ""
    text = name if isinstance(name, str) else str(name)
    if text.isascii():
        return " ".join(text.lower().split())
    composing = len(text) <= _COMPOSED
    folded = (normalize("NFKC", text) if composing else text).casefold()
    return " ".join((normalize("NFKC", folded) if composing else folded).split())


def part(record: object, name: str) -> Any:  # noqa: ANN401 - a plain mapping may hold anything
    """Return a field of a record or of a plain mapping of the same shape; None where it has none."""
    if type(record) is dict:  # what most are; the question whether it is a mapping costs more than the rest
        return record.get(name)
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def bounded(items: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Cut a list for an event (S3-29).

    Returns:
        At most `MAX_ITEMS` entries, their strings cut to `MAX_ID` characters; and how many were left out, as
        `{"truncated": n}`, empty where none was.
    """
    shown = [
        {key: value[:MAX_ID] if isinstance(value, str) else value for key, value in item.items()}
        for item in islice(items, MAX_ITEMS)
    ]
    left_out = len(items) - len(shown)
    return shown, {"truncated": left_out} if left_out else {}


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
    also: Mapping[str, IndexEntry | Mapping[str, Any]] | None = None,
    required_confidence: float = REQUIRED_CONFIDENCE,
    require_provenance: bool = False,
) -> EntityGrounding:
    """Look every entity up in an index; what cannot be confirmed is missing, never an error.

    Roles are compared where both the entity and its entry have one, without regard to case, white space and
    Unicode form (S3-12). The time is linear in the number of entities (S3-28).

    Args:
        entities: `{id, name?, role?, provenance_id?}`.
        index: Entity id to `{confidence, role?, provenance_id?, ...}`; an empty entry is none (S3-03).
        also: Another one, which can only lower: an entity has to be in both.
        required_confidence: Least confidence of an entry, 0..1, inclusive (S3-04). A confidence that is missing
            or no number from 0 to 1 is too low.
        require_provenance: An entity that has no `provenance_id`, neither itself nor in its entry, is missing
            (S3-13).
    """
    missing: list[MissingEntity] = []
    grounded: list[str] = []
    for position, entity in enumerate(entities):
        key = part(entity, "id")
        reasons = (
            _reason(entity, _entry(known, key), required_confidence, require_provenance=require_provenance)
            for known in (index, also)
            if known is not None
        )
        reason = next(filter(None, reasons), None)
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
