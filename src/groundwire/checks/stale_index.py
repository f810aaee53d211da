"""Whether what was retrieved is still what the files say (S2-37)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groundwire.checks.passages import canonical_file
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.messages.responses import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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

    Args:
        chunks: what was retrieved.
        current_revisions: file -> revision.

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
            _warning(names[file], others[file], ", ".join(sorted(current[file])))
            for file in names
            if file in others
        ),
    )


def _warning(file: str, indexed: Iterable[str], current: str) -> ReportWarning:
    details = {"file": file, "indexed": list(indexed)[:_REVISIONS_SHOWN], "current": current}
    return ReportWarning(
        WarningType.STALE_INDEX, f"The index holds another revision than the current one of {file}", details
    )
