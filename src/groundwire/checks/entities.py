"""What the corpus has to hold: the entities that an answer names, and one version of each document.

S3-01..S3-14, C-55; S3-30, S3-31.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from numbers import Real
from typing import Any, Final
from unicodedata import normalize

from groundwire.checks import ReportWarning, WarningType
from groundwire.messages.events import Event
from groundwire.messages.records import Chunk, Entity, IndexEntry

MAX_ITEMS: Final = 100
"""Most entries of a list in an event; the number of the others is beside it (S3-29)."""
MAX_ID: Final = 200
"""Most characters of an id or a version in an event."""

MAX_VERSIONS: Final = 20
"""Most versions that a warning or an event names."""

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
    if type(record) is dict:  # what most are; the question whether it is a mapping costs more than the rest
        return record.get(name)
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def bounded(items: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Cut a list for an event (S3-29): at most `MAX_ITEMS` entries with strings of at most `MAX_ID` characters.

    The second result is `{"truncated": n}`, empty where nothing was left out.
    """
    shown = [
        {key: value[:MAX_ID] if isinstance(value, str) else value for key, value in item.items()}
        for item in islice(items, MAX_ITEMS)
    ]
    left_out = len(items) - len(shown)
    return shown, {"truncated": left_out} if left_out else {}


REQUIRED_CONFIDENCE: Final = 0.6


class MissingReason(StrEnum):
    """Why an entity is not grounded; the first that applies, in this order, is reported."""

    NOT_FOUND = "not_found"
    LOW_CONFIDENCE = "low_confidence"
    ROLE_MISMATCH = "role_mismatch"
    MISSING_PROVENANCE = "missing_provenance"


@dataclass(frozen=True, slots=True)
class MissingEntity:
    """An entity, by its place among the entities, that is not grounded; its id is empty where it has none."""

    entity_id: str
    reason: str
    position: int = 0

    def as_dict(self) -> dict[str, str]:
        """The entry of report and event: id and reason, never text (C-43)."""
        return {"entity_id": self.entity_id, "reason": str(self.reason)}


@dataclass(frozen=True, slots=True)
class EntityGrounding:
    missing: tuple[MissingEntity, ...]
    grounded: tuple[str, ...]
    required_confidence: float = REQUIRED_CONFIDENCE

    @property
    def entity_count(self) -> int:
        return len(self.missing) + len(self.grounded)

    def as_report(self) -> dict[str, Any]:
        return {
            "missing_entities": [entity.as_dict() for entity in self.missing],
            "grounded_entities": list(self.grounded),
        }

    def events(self, tenant_id: str) -> list[Event]:
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
    Unicode form (S3-12). An empty entry is none (S3-03); a confidence that is missing, or no number from 0 to 1, is too
    low (S3-04). `also` is a second index: an entity has to be in both. With `require_provenance` an entity needs a
    `provenance_id`, its own or its entry's (S3-13). The time is linear in the number of entities (S3-28).
    """
    missing: list[MissingEntity] = []
    grounded: list[str] = []
    for position, entity in enumerate(entities):
        key = part(entity, "id")
        reason = None
        for known in (index, also) if also is not None else (index,):
            try:
                entry = known.get(key)
            except TypeError:  # an id that no mapping can hold
                entry = None
            reason = reason or _reason(
                entity, entry, required_confidence, require_provenance=require_provenance
            )
        name = "" if key is None else str(key)
        if reason is None:
            grounded.append(name)
        else:
            missing.append(MissingEntity(name, reason, position))
    return EntityGrounding(tuple(missing), tuple(grounded), required_confidence)


def _reason(
    entity: object, entry: object, required: float, *, require_provenance: bool
) -> MissingReason | None:
    if not (entry if isinstance(entry, Mapping) else hasattr(entry, "confidence")):
        return MissingReason.NOT_FOUND
    confidence = part(entry, "confidence")
    number = isinstance(confidence, Real) and not isinstance(confidence, bool)
    if not (number and bool(required <= confidence <= 1)):
        return MissingReason.LOW_CONFIDENCE
    role, known = comparable(part(entity, "role")), comparable(part(entry, "role"))
    if role and known and role != known:
        return MissingReason.ROLE_MISMATCH
    if require_provenance and not (_given(entity) or _given(entry)):
        return MissingReason.MISSING_PROVENANCE
    return None


def _given(record: object) -> bool:
    return bool(comparable(part(record, "provenance_id")))


@dataclass(frozen=True, slots=True)
class VersionConflict:
    """A document of which the chunks hold more than one version, in the order in which they first occur."""

    document_id: str
    versions: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        shown = [version[:MAX_ID] for version in self.versions[:MAX_VERSIONS]]
        left_out = len(self.versions) - len(shown)
        truncated = {"truncated": left_out} if left_out else {}
        return {"document_id": self.document_id[:MAX_ID], "versions": shown, **truncated}


@dataclass(frozen=True, slots=True)
class VersionConflicts:
    conflicts: tuple[VersionConflict, ...]

    @property
    def warnings(self) -> tuple[ReportWarning, ...]:
        found = []
        for conflict in self.conflicts:
            details = conflict.as_dict()
            message = f"{len(conflict.versions)} versions of document {details['document_id']} were retrieved"
            found.append(ReportWarning(WarningType.VERSION_CONFLICT, message, details))
        return tuple(found)

    def events(self, tenant_id: str) -> list[Event]:
        return [
            Event("enrich.version_conflict", {**conflict.as_dict(), "tenant_id": tenant_id})
            for conflict in self.conflicts[:MAX_ITEMS]
        ]


def version_conflicts(chunks: Iterable[Chunk | Mapping[str, Any]]) -> VersionConflicts:
    versions: dict[str, dict[str, None]] = {}
    for chunk in chunks:
        document, version = part(chunk, "document_id"), part(chunk, "version")
        if document is not None and version is not None:
            versions.setdefault(str(document), {})[str(version)] = None
    found = (
        VersionConflict(document, tuple(kinds)) for document, kinds in versions.items() if len(kinds) > 1
    )
    return VersionConflicts(tuple(found))
