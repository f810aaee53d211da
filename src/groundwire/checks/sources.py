"""Sources that an answer cites, held against what was retrieved (S2-01 to S2-08).

A source names a file, and may give a snippet and lines. Each part that is given holds or does not: the file
was retrieved; the snippet stands in it, whole tokens in the same order; the lines were retrieved, and the
snippet, where there is one, stands in them. A part that is not given never counts, and shows as None: it was
not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from groundwire.checks.passages import FilePassages, canonical_file, encode
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.messages.responses import Chunk, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SEARCH_BUDGET = 100_000_000
"""Characters that the searches of one response may read. Thousands of sources over hundreds of kilobytes would
hold a worker for minutes: past the budget a snippet is not found, and its warning says that it was not searched."""

_FILES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SourceVerificationResult:
    """What held of one source (S2-02).

    Attributes:
        exists: the file was retrieved.
        snippet_valid: the snippet stands in that file; None where none was given. A blank one stands nowhere.
        lines_match: the lines were retrieved, and hold the snippet where one was given and stands in the file;
            None where none were given.
        confidence: parts that hold ÷ parts given, 0 to 1; the file is always given.
    """

    exists: bool
    snippet_valid: bool | None
    lines_match: bool | None
    confidence: float


@dataclass(frozen=True, slots=True)
class SourceReport:
    """What held of all sources of an answer.

    Attributes:
        results: (file as cited, result) of each source, in order.
        confidence: mean of the results' confidences; 1.0 where there is no source.
        warnings: PHANTOM_FILE or SNIPPET_MISMATCH (wrong lines too), at most one a source, in order.
        phantom_files: files cited that were not retrieved, as cited, each once.
        mismatched_files: files retrieved whose snippet or lines do not hold, as cited, each once.
    """

    results: tuple[tuple[str, SourceVerificationResult], ...]
    confidence: float
    warnings: tuple[ReportWarning, ...]
    phantom_files: tuple[str, ...]
    mismatched_files: tuple[str, ...]


class SourceVerifier:
    """Holds sources against chunks.

    Args:
        chunks: what was retrieved, as models or as mappings of the contract's shape. Nothing needs to be
            indexed for it (S2-39).

    Raises:
        pydantic.ValidationError: for a mapping that is no chunk.
    """

    def __init__(self, chunks: Iterable[Chunk | Mapping[str, Any]]) -> None:
        by_file: dict[str, list[Chunk]] = {}
        for chunk in map(Chunk.model_validate, chunks):
            by_file.setdefault(canonical_file(chunk.file), []).append(chunk)
        self._names = {file: found[0].file for file, found in by_file.items()}
        self._files = {file: FilePassages(found) for file, found in by_file.items()}
        self._size = sum(file.size for file in self._files.values())

    def verify_source(self, source: Source | Mapping[str, Any]) -> SourceVerificationResult:
        """Check each part that a source gives; where one end of its lines is missing, the other is both.

        Raises:
            pydantic.ValidationError: for a mapping that is no source.
        """
        return self._check(Source.model_validate(source), _Budget()).result

    def verify_snippet(self, file: str, snippet: str) -> bool:
        """Tell whether a snippet stands in what was retrieved of a file (S2-05, S2-08)."""
        passages = self._files.get(canonical_file(file))
        return passages is not None and passages.holds(encode(snippet))

    def verify_lines(self, file: str, start: int, end: int) -> bool:
        """Tell whether lines start to end, from 1 and both included, were all retrieved of a file (S2-07)."""
        passages = self._files.get(canonical_file(file))
        return passages is not None and passages.covers(start, end)

    def verify_sources(self, sources: Iterable[Source | Mapping[str, Any]]) -> SourceReport:
        """Check all sources of an answer (S2-03).

        Raises:
            pydantic.ValidationError: for a mapping that is no source.
        """
        budget = _Budget()
        checked = [self._check(Source.model_validate(source), budget) for source in sources]
        results = [(found.source.file, found.result) for found in checked]
        total = sum(result.confidence for _, result in results)
        failed = [found for found in checked if found.failed]
        return SourceReport(
            results=tuple(results),
            confidence=total / len(results) if results else 1.0,
            warnings=tuple(_warning(found) for found in failed),
            phantom_files=tuple(dict.fromkeys(f.source.file for f in failed if not f.result.exists)),
            mismatched_files=tuple(dict.fromkeys(f.source.file for f in failed if f.result.exists)),
        )

    def _check(self, source: Source, budget: _Budget) -> _Checked:
        passages = self._files.get(canonical_file(source.file))
        tokens = None if source.snippet is None else encode(source.snippet)
        lines = _lines(source)
        searched = passages is None or tokens is None or budget.spend(2 * passages.size)
        snippet = passages is not None and tokens is not None and searched and passages.holds(tokens)
        covered = passages is not None and lines is not None and passages.covers(*lines)
        if covered and snippet and passages and tokens and lines:
            covered = passages.holds_within(tokens, *lines)
        parts = {"file": passages is not None}
        parts |= {"snippet": snippet} if tokens is not None else {}
        parts |= {"lines": covered} if lines else {}
        failed = tuple(part for part, held in parts.items() if not held)
        result = SourceVerificationResult(
            parts["file"], parts.get("snippet"), parts.get("lines"), (len(parts) - len(failed)) / len(parts)
        )
        details: dict[str, Any] = {"failed": list(failed)}
        if tokens and not snippet:
            details |= dict(self._near(tokens, passages, budget)) if searched else {"not_searched": True}
        return _Checked(source, result, failed, details)

    def _near(self, tokens: str, passages: FilePassages | None, budget: _Budget) -> Iterator[tuple[str, Any]]:
        """Tell how near a snippet comes in its file, and where else it stands (S2-08, S2-44)."""
        if passages is not None:
            yield "similarity", passages.similarity(tokens)
        if budget.spend(self._size):
            elsewhere = [self._names[file] for file, found in self._files.items() if found.holds(tokens)]
            if elsewhere:
                yield "found_in", elsewhere[:_FILES_SHOWN]


def verify_sources(
    sources: Iterable[Source | Mapping[str, Any]], chunks: Iterable[Chunk | Mapping[str, Any]]
) -> SourceReport:
    """Check all sources of an answer against what was retrieved (S2-03).

    Raises:
        pydantic.ValidationError: for a mapping that is no source, or no chunk.
    """
    return SourceVerifier(chunks).verify_sources(sources)


@dataclass(slots=True)
class _Budget:
    """What is left to be searched for one response."""

    left: int = SEARCH_BUDGET

    def spend(self, units: int) -> bool:
        """Take units if there are as many; what was refused once stays refused."""
        self.left = self.left - units if units <= self.left else -1
        return self.left >= 0


@dataclass(frozen=True, slots=True)
class _Checked:
    """A source with what held, which parts failed, and what a warning says of them."""

    source: Source
    result: SourceVerificationResult
    failed: tuple[str, ...]
    details: dict[str, Any]


def _lines(source: Source) -> tuple[int, int] | None:
    start, end = source.start_line, source.end_line
    if start is None:
        return None if end is None else (end, end)
    return start, start if end is None else end


def _warning(found: _Checked) -> ReportWarning:
    file, lines = found.source.file, _lines(found.source)
    details = {"file": file, **found.details}
    if "lines" in found.failed and lines:
        details["lines"] = list(lines)
    if not found.result.exists:
        return ReportWarning(
            WarningType.PHANTOM_FILE, f"A file is cited that was not retrieved: {file}", details
        )
    what = " and ".join(f"cited {part}" for part in found.failed)
    return ReportWarning(
        WarningType.SNIPPET_MISMATCH, f"Not found in what was retrieved of {file}: {what}", details
    )
