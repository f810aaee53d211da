"""Sources that an answer cites, held against what was retrieved (S2-01 to S2-08).

A source names a file, and may give a snippet and lines. Each part that is given holds or does not: the file
was retrieved; the snippet stands in it; the lines were retrieved, and the snippet, where there is one, stands in
them. A part that is not given never counts, and shows as None: it was not looked at.

Two texts are the same passage if they are the same sequence of tokens: words, numbers, runs of operators,
other signs. White space, curly quotes and Unicode dashes make no difference, and nothing else is forgiven
(S2-05): a snippet matches whole tokens, so that "retries = 3" is not found in "max_retries = 30" or in
"retries = 3.5". Chunks of one file that overlap or follow one another are read as one passage.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from groundwire.arguments import takes
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.messages.records import Chunk, Source
from groundwire.text.normalise import tidy

SEARCH_BUDGET = 100_000_000
"""Characters that the searches of one response may read. Thousands of sources over hundreds of kilobytes would
hold a worker for minutes: past the budget a snippet is not found, and its warning says that it was not searched."""

_FILES_SHOWN = 5  # in a warning's details
_PASSAGE_COST = 200  # what looking at a passage costs beside its text
_NEWLINE = re.compile(r"\r\n|\r|\n")
_ALIKE = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | {"\0": "\ufffd"}  # the sign between tokens below
)
# A sign or a point before a number belongs to it, as do ".5" and ",000" within one: a number is never cut.
_OPERATORS = r"=<>!&|+*/%^~:?@$#\\.\-"
_TOKEN = re.compile(
    rf"[^\w\s{_OPERATORS}]|"
    r"(?:(?<![\w)\]])-(?=\.?[0-9]))?(?:(?<!\w)\.(?=[0-9]))?\w+(?:(?<=[0-9])(?:\.[0-9]\w*|,[0-9]{3}(?!\w)))*|"
    rf"[{_OPERATORS}]+"
)


def canonical_file(file: str) -> str:
    r"""Return the one spelling of a path: "./src//a.py" and "src\\a.py" are "src/a.py".

    Case counts, ".." is never resolved and a leading slash stays, so that no other file gains the name.
    """
    path = file.replace("\\", "/")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return "/" * path.startswith("/") + "/".join(parts)


def encode(text: str) -> str:
    """Return a text's tokens in a row, each followed by NUL; of two lines in a row, one after the other's."""
    plain = tidy(text).translate(_ALIKE)
    # One by one: a single call for a long text would hold the interpreter for too long.
    return "".join([found[0] + "\0" for found in _TOKEN.finditer(plain)])


class _Passage:
    """Chunks of one file and revision that overlap or follow one another, cut into pieces.

    A piece is a line, or the whole of a chunk whose text has not as many lines as it says.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.tokens, self.by_line = _pieces(chunk)
        self.first: list[int] = []
        self.last: list[int] = []
        self._number(chunk, len(self.tokens), by_line=self.by_line)
        self._revision = chunk.revision

    def take(self, chunk: Chunk) -> bool:
        """Add a chunk that starts no earlier; False where it does not fit, or says otherwise."""
        known = self.last[-1] + 1 - chunk.start_line
        in_order = 0 < self.first[0] <= chunk.start_line <= chunk.end_line
        if not in_order or known < 0 or chunk.revision != self._revision:
            return False
        tokens, by_line = _pieces(chunk)
        if known:
            start = chunk.start_line - self.first[0]
            same = tokens[:known] == self.tokens[start : start + len(tokens)]
            if not (self.by_line and by_line and same):
                return False
        self.tokens += tokens[known:]
        self._number(chunk, len(tokens[known:]), by_line=by_line)
        self.by_line = self.by_line and by_line
        return True

    def _number(self, chunk: Chunk, count: int, *, by_line: bool) -> None:
        lines = range(chunk.end_line - count + 1, chunk.end_line + 1)
        self.first += lines if by_line else [chunk.start_line]
        self.last += lines if by_line else [chunk.end_line]


def _pieces(chunk: Chunk) -> tuple[list[str], bool]:
    lines = _NEWLINE.split(chunk.content)
    count = chunk.end_line - chunk.start_line + 1
    if len(lines) == count + 1 and not lines[-1]:
        lines.pop()
    if chunk.start_line < 1 or len(lines) != count:
        return [encode(chunk.content)], False
    return [encode(line) if line else "" for line in lines], True


class FilePassages:
    """All that was retrieved of one file.

    Args:
        chunks: the file's chunks, in any order. One whose lines make no sense (start below 1, end before
            start) covers no line; its text counts all the same.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        ordered = sorted(chunks, key=lambda chunk: (chunk.start_line, chunk.end_line))
        ranges = ((c.start_line, c.end_line) for c in ordered if 0 < c.start_line <= c.end_line)
        joined: list[tuple[float, float]] = []
        for start, end in ranges:
            if joined and start <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(joined[-1][1], end))
            else:
                joined.append((start, end))
        self._ranges = joined
        self._passages: list[_Passage] = []
        for chunk in ordered:
            if not (self._passages and self._passages[-1].take(chunk)):
                self._passages.append(_Passage(chunk))
        self._text = "".join("\0" + "".join(passage.tokens) for passage in self._passages)
        self._offsets = list(_offsets(self._passages))

    @property
    def size(self) -> int:
        """What a search through the file costs, about a nanosecond a unit."""
        return len(self._text) + _PASSAGE_COST * len(self._passages)

    @cached_property
    def _pairs(self) -> set[tuple[str, str]]:
        return set(pairwise(self._text.split("\0")))

    def covers(self, start: int, end: int) -> bool:
        """Tell whether lines start to end, both included, were retrieved (S2-07)."""
        index = bisect_right(self._ranges, (start, float("inf"))) - 1
        return 0 < start <= end and index >= 0 and end <= self._ranges[index][1]

    def holds(self, tokens: str) -> bool:
        """Tell whether an encoded snippet stands in the file; a blank one does not."""
        return tokens != "" and "\0" + tokens in self._text

    def holds_within(self, tokens: str, start: int, end: int) -> bool:
        """Tell whether an encoded snippet stands in lines start to end, in any passage that has them.

        A chunk that has not as many lines as it says is looked at as a whole.
        """
        for passage, offsets in zip(self._passages, self._offsets, strict=True):
            low, high = bisect_left(passage.last, start), bisect_right(passage.first, end)
            if low < high and self._text.find("\0" + tokens, offsets[low] - 1, offsets[high]) >= 0:
                return True
        return False

    def similarity(self, tokens: str) -> float:
        """Return how near a snippet comes: the share, 0 to 1, of its pairs of neighbours that the file holds.

        A snippet with one word changed scores high, an invented one low (S2-44); 4 decimals.
        """
        pairs = list(pairwise(tokens.split("\0")[:-1]))
        return round(sum(pair in self._pairs for pair in pairs) / len(pairs), 4) if pairs else 0.0


def _offsets(passages: Iterable[_Passage]) -> Iterator[list[int]]:
    position = 0
    for passage in passages:
        starts = list(accumulate(map(len, passage.tokens), initial=position + 1))
        position = starts[-1]
        yield starts


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

    @takes(chunks=Iterable)
    def __init__(self, chunks: Iterable[Chunk | Mapping[str, Any]]) -> None:
        by_file: dict[str, list[Chunk]] = {}
        for chunk in map(Chunk.model_validate, chunks):
            by_file.setdefault(canonical_file(chunk.file), []).append(chunk)
        self._names = {file: found[0].file for file, found in by_file.items()}
        self._files = {file: FilePassages(found) for file, found in by_file.items()}
        self._size = sum(file.size for file in self._files.values())

    @takes(source=Source | Mapping)
    def verify_source(self, source: Source | Mapping[str, Any]) -> SourceVerificationResult:
        """Check each part that a source gives; where one end of its lines is missing, the other is both.

        Raises:
            pydantic.ValidationError: for a mapping that is no source.
        """
        return self._check(Source.model_validate(source), _SearchBudget()).result

    @takes(file=str, snippet=str)
    def verify_snippet(self, file: str, snippet: str) -> bool:
        """Tell whether a snippet stands in what was retrieved of a file (S2-05, S2-08)."""
        passages = self._files.get(canonical_file(file))
        return passages is not None and passages.holds(encode(snippet))

    @takes(file=str, start=int, end=int)
    def verify_lines(self, file: str, start: int, end: int) -> bool:
        """Tell whether lines start to end, from 1 and both included, were all retrieved of a file (S2-07)."""
        passages = self._files.get(canonical_file(file))
        return passages is not None and passages.covers(start, end)

    @takes(sources=Iterable)
    def verify_sources(self, sources: Iterable[Source | Mapping[str, Any]]) -> SourceReport:
        """Check all sources of an answer (S2-03).

        Raises:
            pydantic.ValidationError: for a mapping that is no source.
        """
        budget = _SearchBudget()
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

    def _check(self, source: Source, budget: _SearchBudget) -> _Checked:
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

    def _near(
        self, tokens: str, passages: FilePassages | None, budget: _SearchBudget
    ) -> Iterator[tuple[str, Any]]:
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
class _SearchBudget:
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
