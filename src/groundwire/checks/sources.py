"""What an answer cites and mentions, compared with what was retrieved (S2-01 to S2-18, S2-37).

Two texts are the same passage if they are the same sequence of tokens: words, numbers, runs of operators, other signs.
White space, curly quotes and Unicode dashes make no difference, and nothing else is forgiven (S2-05): "retries = 3" is
not found in "max_retries = 30". Chunks of one file that overlap or follow one another are read as one passage.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from groundwire.arguments import takes
from groundwire.checks import ReportWarning, WarningType
from groundwire.messages.records import Chunk, Source
from groundwire.text.lists import words_in
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

    A chunk whose lines make no sense (start below 1, end before start) covers no line; its text counts all the same.
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
        return len(self._text) + _PASSAGE_COST * len(self._passages)

    @cached_property
    def _pairs(self) -> set[tuple[str, str]]:
        return set(pairwise(self._text.split("\0")))

    def covers(self, start: int, end: int) -> bool:
        index = bisect_right(self._ranges, (start, float("inf"))) - 1
        return 0 < start <= end and index >= 0 and end <= self._ranges[index][1]

    def holds(self, tokens: str) -> bool:
        """Return whether the file holds an encoded snippet; a blank one is never held."""
        return tokens != "" and "\0" + tokens in self._text

    def holds_within(self, tokens: str, start: int, end: int) -> bool:
        """Return whether lines start to end hold an encoded snippet, in any passage that has them.

        A chunk that has not as many lines as it says is read as a whole.
        """
        for passage, offsets in zip(self._passages, self._offsets, strict=True):
            low, high = bisect_left(passage.last, start), bisect_right(passage.first, end)
            if low < high and self._text.find("\0" + tokens, offsets[low] - 1, offsets[high]) >= 0:
                return True
        return False

    def similarity(self, tokens: str) -> float:
        """Return the share, 0 to 1, of a snippet's pairs of neighbours that the file holds (S2-44)."""
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
    """Which parts of one source hold (S2-02): the file, the snippet, the lines; None where a part was not given.

    `confidence` is parts that hold ÷ parts given, 0 to 1.
    """

    exists: bool
    snippet_valid: bool | None
    lines_match: bool | None
    confidence: float


@dataclass(frozen=True, slots=True)
class SourceReport:
    """Which parts of an answer's sources hold.

    `confidence` is the mean of the results, 1.0 where there is no source. There is at most one warning a source, in
    order. `phantom_files` were not retrieved; of `mismatched_files` the snippet or lines do not hold; as cited, each
    once.
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
        return self._check(Source.model_validate(source), _SearchBudget())[0]

    @takes(file=str, snippet=str)
    def verify_snippet(self, file: str, snippet: str) -> bool:
        """Return whether what was retrieved of a file holds a snippet (S2-05, S2-08)."""
        passages = self._files.get(canonical_file(file))
        return passages is not None and passages.holds(encode(snippet))

    @takes(file=str, start=int, end=int)
    def verify_lines(self, file: str, start: int, end: int) -> bool:
        """Return whether lines start to end, from 1 and both included, were all retrieved of a file (S2-07)."""
        passages = self._files.get(canonical_file(file))
        return passages is not None and passages.covers(start, end)

    @takes(sources=Iterable)
    def verify_sources(self, sources: Iterable[Source | Mapping[str, Any]]) -> SourceReport:
        """Check all sources of an answer (S2-03).

        Raises:
            pydantic.ValidationError: for a mapping that is no source.
        """
        budget = _SearchBudget()
        given = [*map(Source.model_validate, sources)]
        checked = [(source.file, *self._check(source, budget)) for source in given]
        results = tuple((file, result) for file, result, _ in checked)
        total = sum(result.confidence for _, result in results)
        failed = [(file, result.exists) for file, result, warning in checked if warning]
        return SourceReport(
            results=results,
            confidence=total / len(results) if results else 1.0,
            warnings=tuple(warning for _, _, warning in checked if warning),
            phantom_files=tuple(dict.fromkeys(file for file, exists in failed if not exists)),
            mismatched_files=tuple(dict.fromkeys(file for file, exists in failed if exists)),
        )

    def _check(
        self, source: Source, budget: _SearchBudget
    ) -> tuple[SourceVerificationResult, ReportWarning | None]:
        passages = self._files.get(canonical_file(source.file))
        tokens = None if source.snippet is None else encode(source.snippet)
        start, end = source.start_line, source.end_line
        start, end = (end if start is None else start), (start if end is None else end)
        lines = None if start is None or end is None else (start, end)
        searched = passages is None or tokens is None or budget.spend(2 * passages.size)
        snippet = passages is not None and tokens is not None and searched and passages.holds(tokens)
        covered = passages is not None and lines is not None and passages.covers(*lines)
        if covered and snippet and passages and tokens and lines:
            covered = passages.holds_within(tokens, *lines)
        parts = {"file": passages is not None}
        parts |= {"snippet": snippet} if tokens is not None else {}
        parts |= {"lines": covered} if lines else {}
        failed = [part for part, held in parts.items() if not held]
        result = SourceVerificationResult(
            parts["file"], parts.get("snippet"), parts.get("lines"), (len(parts) - len(failed)) / len(parts)
        )
        details: dict[str, Any] = {"file": source.file, "failed": failed}
        if tokens and not snippet and not searched:
            details["not_searched"] = True
        elif tokens and not snippet:  # how near it comes, and which other files hold it (S2-08, S2-44)
            if passages is not None:
                details["similarity"] = passages.similarity(tokens)
            elsewhere = self._files.items() if budget.spend(self._size) else ()
            if found := [self._names[file] for file, other in elsewhere if other.holds(tokens)]:
                details["found_in"] = found[:_FILES_SHOWN]
        if "lines" in failed and lines:
            details["lines"] = list(lines)
        if not failed:
            return result, None
        if not result.exists:
            message = f"A file is cited that was not retrieved: {source.file}"
            return result, ReportWarning(WarningType.PHANTOM_FILE, message, details)
        what = " and ".join(f"cited {part}" for part in failed)
        message = f"Not found in what was retrieved of {source.file}: {what}"
        return result, ReportWarning(WarningType.SNIPPET_MISMATCH, message, details)


def verify_sources(
    sources: Iterable[Source | Mapping[str, Any]], chunks: Iterable[Chunk | Mapping[str, Any]]
) -> SourceReport:
    return SourceVerifier(chunks).verify_sources(sources)


@dataclass(slots=True)
class _SearchBudget:
    left: int = SEARCH_BUDGET

    def spend(self, units: int) -> bool:
        """What was refused once stays refused."""
        self.left = self.left - units if units <= self.left else -1
        return self.left >= 0


# Each starts at the start of a word or at a sign, so that no run of letters is read more than once.
# A plain word may occur before a type or after "option" too ("a field is", "Note: string"); it is no field (C-50).
_CODE_SPAN = re.compile(r"`(\w+)`")
_CALL = re.compile(r"\.(\w+)\(")
_TYPED = re.compile(r"(?<!\w)(\w+):\s*(?:string|number|boolean)(?!\w)")
# The name is looked at, not consumed: in "the parameter field topK" the second word leads to the name.
_NAMED = re.compile(r"(?<!\w)(?:parameter|field|option)(?=\s+(?:(?:named|called)\s+)?(\w+))", re.IGNORECASE)
_NAME = re.compile(r"\w+")


_PLAIN_WORDS = words_in(__package__, "plain_words")
# What a writer puts before a colon, with a type behind it: "Type: string", "one of: string or number"
_LABELS = words_in(__package__, "labels")
_PATTERNS = (
    (_CODE_SPAN, frozenset[str]()), (_CALL, frozenset[str]()), (_TYPED, _LABELS), (_NAMED, _PLAIN_WORDS),
)  # fmt: skip


class FieldCheckResult(NamedTuple):
    """Which fields a chunk holds, in order, each once; `confidence` is 1.0 where none was mentioned (S2-14)."""

    verified: list[str]
    unverified: list[str]
    confidence: float

    @property
    def message(self) -> str:
        return f"Unverified fields: [{', '.join(self.unverified)}]"


class FieldChecker:
    """Finds the fields of an answer and looks for them in chunks. It holds no state: one instance serves all."""

    @takes(answer=str)
    def extract_mentioned_fields(self, answer: str) -> list[str]:
        """Return the fields that an answer mentions: first mention first, each once, exact case.

        Args:
            answer: any text; all fields are returned, however many (S2-18).
        """
        # "option 2" counts options; a plain word is none in any case ("Option To"), "toName" is a name.
        found = [
            (match.start(1), match[1])
            for pattern, stopped in _PATTERNS
            for match in pattern.finditer(answer)
            if not (stopped and (match[1].isdecimal() or match[1].lower() in stopped))
        ]
        return list(dict.fromkeys(name for _, name in sorted(found)))

    @takes(fields=Iterable, chunks=Iterable)
    def verify_fields(
        self, fields: Iterable[str], chunks: Iterable[Chunk | Mapping[str, Any]]
    ) -> FieldCheckResult:
        """Look for fields in the contents of chunks, as whole names in exact case (S2-13).

        Args:
            fields: names; a repeated one counts once.
            chunks: what was retrieved, as models or as mappings of the contract's shape.

        Raises:
            TypeError: a single name instead of several.
            pydantic.ValidationError: for a mapping that is no chunk.
        """
        if isinstance(fields, str):
            raise TypeError("fields: a list of names, not one name")
        names = list(dict.fromkeys(fields))
        known: set[str] = set()
        for chunk in map(Chunk.model_validate, chunks) if names else ():
            known.update(found[0] for found in _NAME.finditer(chunk.content))
        verified = [name for name in names if name in known]
        unverified = [name for name in names if name not in known]
        return FieldCheckResult(verified, unverified, len(verified) / len(names) if names else 1.0)


_REVISIONS_SHOWN = 5


@dataclass(frozen=True, slots=True)
class IndexReport:
    """Files indexed at another revision than their current one, of all those of which both revisions are known."""

    stale: tuple[str, ...]
    checked: tuple[str, ...]
    warnings: tuple[ReportWarning, ...]


def check_index(
    chunks: Iterable[Chunk | Mapping[str, Any]], current_revisions: Mapping[str, str]
) -> IndexReport:
    """Compare the revision of each chunk with its file's current one, exactly.

    A chunk without a revision, and a file without a current one, is not checked. One chunk of another revision makes
    its file stale.
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
    stale = {file: name for file, name in names.items() if file in others}
    warnings = [
        ReportWarning(
            WarningType.STALE_INDEX,
            f"The index holds another revision than the current one of {name}",
            {
                "file": name,
                "indexed": list(others[file])[:_REVISIONS_SHOWN],
                "current": ", ".join(sorted(current[file])),
            },
        )
        for file, name in stale.items()
    ]
    return IndexReport(tuple(stale.values()), tuple(names.values()), tuple(warnings))
