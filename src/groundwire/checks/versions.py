"""Several versions of one document among what was retrieved: an answer may mix them (S3-30, S3-31)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from groundwire.checks.grounding import MAX_ID, MAX_ITEMS, part
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.messages.events import Event
from groundwire.messages.responses import Chunk

MAX_VERSIONS: Final = 20
"""Most versions that a warning or an event names."""


@dataclass(frozen=True, slots=True)
class VersionConflict:
    """A document of which the chunks hold more than one version, in the order in which they first came."""

    document_id: str
    versions: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The document and its versions, bounded, with the number of those left out (S3-29, S3-31)."""
        shown = [version[:MAX_ID] for version in self.versions[:MAX_VERSIONS]]
        left_out = len(self.versions) - len(shown)
        truncated = {"truncated": left_out} if left_out else {}
        return {"document_id": self.document_id[:MAX_ID], "versions": shown, **truncated}


@dataclass(frozen=True, slots=True)
class VersionConflicts:
    """What comparing the versions of the chunks gave, a conflict for each document that has one."""

    conflicts: tuple[VersionConflict, ...]

    @property
    def warnings(self) -> tuple[ReportWarning, ...]:
        """A `VERSION_CONFLICT` for each conflict."""
        return tuple(_warning(conflict.as_dict(), len(conflict.versions)) for conflict in self.conflicts)

    def events(self, tenant_id: str) -> list[Event]:
        """Return `enrich.version_conflict` for each conflict, at most 100 of them (S3-29..S3-31)."""
        return [
            Event("enrich.version_conflict", {**conflict.as_dict(), "tenant_id": tenant_id})
            for conflict in self.conflicts[:MAX_ITEMS]
        ]


def version_conflicts(chunks: Iterable[Chunk | Mapping[str, Any]]) -> VersionConflicts:
    """Find documents of which several versions were retrieved; the time is linear in the number of chunks.

    Args:
        chunks: `{document_id?, version?, ...}`; a chunk without either says nothing. Versions are compared as
            they are written.
    """
    versions: dict[str, dict[str, None]] = {}
    for chunk in chunks:
        document, version = part(chunk, "document_id"), part(chunk, "version")
        if document is not None and version is not None:
            versions.setdefault(str(document), {})[str(version)] = None
    found = (
        VersionConflict(document, tuple(kinds)) for document, kinds in versions.items() if len(kinds) > 1
    )
    return VersionConflicts(tuple(found))


def _warning(details: dict[str, Any], count: int) -> ReportWarning:
    message = f"{count} versions of document {details['document_id']} were retrieved"
    return ReportWarning(WarningType.VERSION_CONFLICT, message, details)
