"""Whether what was retrieved fits together: with the files as they are now, and with itself.

`check_index` finds files that were indexed at another revision than their current one (S2-37), `version_conflicts`
documents of which several versions were retrieved, which an answer may mix (S3-30, S3-31).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from groundwire.checks.entities import MAX_ID, MAX_ITEMS, part
from groundwire.checks.sources import canonical_file
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.messages.events import Event
from groundwire.messages.records import Chunk

MAX_VERSIONS: Final = 20
"""Most versions that a warning or an event names."""

_REVISIONS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Which files were indexed at another revision than their current one.

    Attributes:
        stale: such files, as their first chunk names them, in the order of the chunks, each once.
        checked: all files of which both revisions are known, in the same order.
        warnings: one STALE_INDEX for each stale file.
    """

    stale: tuple[str, ...]
    checked: tuple[str, ...]
    warnings: tuple[ReportWarning, ...]


def check_index(
    chunks: Iterable[Chunk | Mapping[str, Any]], current_revisions: Mapping[str, str]
) -> IndexReport:
    """Compare the revision of each chunk with its file's current one, exactly.

    A chunk without a revision, and a file without a current one, is not checked: it is neither current nor
    stale. One chunk of another revision makes its file stale.

    Raises:
        pydantic.ValidationError: for a mapping that is no chunk.
    """
    current: dict[str, set[str]] = {}
    for name, revision in current_revisions.items():
        current.setdefault(canonical_file(name), set()).add(revision)
    names: dict[str, str] = {}
    others: dict[str, dict[str, None]] = {}
    for chunk in map(Chunk.model_validate, chunks):
        file = canonical_file(chunk.file)
        if chunk.revision is None or file not in current:
            continue
        names.setdefault(file, chunk.file)
        if current[file] != {chunk.revision}:  # of a file under two names, both have to say the same
            others.setdefault(file, {})[chunk.revision] = None
    return IndexReport(
        stale=tuple(names[file] for file in names if file in others),
        checked=tuple(names.values()),
        warnings=tuple(
            _stale_warning(names[file], others[file], ", ".join(sorted(current[file])))
            for file in names
            if file in others
        ),
    )


def _stale_warning(file: str, indexed: Iterable[str], current: str) -> ReportWarning:
    details = {"file": file, "indexed": list(indexed)[:_REVISIONS_SHOWN], "current": current}
    return ReportWarning(
        WarningType.STALE_INDEX, f"The index holds another revision than the current one of {file}", details
    )


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
        return tuple(
            _conflict_warning(conflict.as_dict(), len(conflict.versions)) for conflict in self.conflicts
        )

    def events(self, tenant_id: str) -> list[Event]:
        """Return `enrich.version_conflict` for each conflict, at most 100 of them (S3-29..S3-31)."""
        return [
            Event("enrich.version_conflict", {**conflict.as_dict(), "tenant_id": tenant_id})
            for conflict in self.conflicts[:MAX_ITEMS]
        ]


def version_conflicts(chunks: Iterable[Chunk | Mapping[str, Any]]) -> VersionConflicts:
    """Find documents of which several versions were retrieved; the time is linear in the number of chunks."""
    versions: dict[str, dict[str, None]] = {}
    for chunk in chunks:
        document, version = part(chunk, "document_id"), part(chunk, "version")
        if document is not None and version is not None:
            versions.setdefault(str(document), {})[str(version)] = None
    found = (
        VersionConflict(document, tuple(kinds)) for document, kinds in versions.items() if len(kinds) > 1
    )
    return VersionConflicts(tuple(found))


def _conflict_warning(details: dict[str, Any], count: int) -> ReportWarning:
    message = f"{count} versions of document {details['document_id']} were retrieved"
    return ReportWarning(WarningType.VERSION_CONFLICT, message, details)
