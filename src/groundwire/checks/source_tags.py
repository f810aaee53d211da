"""Source tags: does each technical claim of an answer name the source it rests on (S2-20 to S2-23, C-51).

A tag stands for its own sentence; right after the full stop, or alone in a paragraph, for the sentence before.
A code block need not carry one of its own: that of the last claim before it, or of the next one behind it, counts.
What a technical claim is says `checks.claim_sentences`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.text.refusals import is_claim, is_table_rule, says_nothing
from groundwire.text.sentences import TextSpan, sentences

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LARGEST_TAG = 10**9
"""A number beyond it is reported as this one: it is out of range in any case."""

_DIGITS = 10
_SHOWN = 100  # places in a warning's details

_TAG = re.compile(r"\[\s*sources?\s*[:\uff1a]([^\[\]]*)\]", re.IGNORECASE)
_ENTRY = re.compile(r"\s*(?:sources?\s*:\s*)?#?([-\u2212]?)([0-9]+)\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"[,;&]|(?<=[0-9])\s{0,3}[-\u2013]|\band\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TagReport:
    """The tags of an answer, and the claims that lack one.

    Attributes:
        tags: the numbers of all tags, as they come; a number beyond `LARGEST_TAG` as that one.
        phantom: those that count no chunk, each once (S2-23).
        missing: (start, end), in characters of the answer, of each claim without any tag. Empty where the
            answer holds no tag at all and none is required.
        claims: how many technical claims there are.
        coverage: claims with a tag that counts a chunk ÷ claims, 0 to 1; 1.0 where there is no claim.
        present: there is a tag, readable or not ("[source:config.py]" is none that counts anything).
        warnings: SOURCE_TAG_MISSING for the claims without a tag, PHANTOM_FILE for tags out of range.
    """

    tags: tuple[int, ...]
    phantom: tuple[int, ...]
    missing: tuple[tuple[int, int], ...]
    claims: int
    coverage: float
    present: bool
    warnings: tuple[ReportWarning, ...]


def check_tags(answer: str, chunk_count: int, *, required: bool) -> TagReport:
    """Check the source tags of an answer.

    Args:
        answer: the answer, with tags like `[source:2]` or `[source:1,3]`; numbers count chunks from 1.
        chunk_count: how many chunks there were.
        required: claims need a tag even where the answer holds none at all.
    """
    read = _read(answer)
    tags = tuple(chain.from_iterable(sentence.tags for sentence in read))
    phantom = tuple(dict.fromkeys(tag for tag in tags if not 0 < tag <= chunk_count))
    present = any(sentence.tagged for sentence in read)
    claims = [(sentence.span, found) for sentence, found in _with_neighbours(read) if sentence.claim]
    bare = tuple((span.start, span.end) for span, found in claims if not found)
    missing = bare if present or required else ()
    held = sum(any(0 < tag <= chunk_count for tag in found) for _, found in claims)
    return TagReport(
        tags=tags,
        phantom=phantom,
        missing=missing,
        claims=len(claims),
        coverage=held / len(claims) if claims else 1.0,
        present=present,
        warnings=tuple(_warnings(phantom, missing, len(claims), chunk_count)),
    )


@dataclass(slots=True)
class _Sentence:
    """A sentence or a code block, with the numbers of its tags; `tagged` counts unreadable tags too."""

    span: TextSpan
    claim: bool
    tagged: bool
    tags: list[int]


def _read(answer: str) -> list[_Sentence]:
    read: list[_Sentence] = []
    for span in sentences(answer):
        bodies = _TAG.findall(span.text)
        tags = list(chain.from_iterable(map(_numbers, bodies)))
        bare = _TAG.sub(" ", span.text) if bodies else span.text
        if is_table_rule(bare) and read:
            read[-1].claim = False  # the row above it names the columns
        if bodies and read and says_nothing(bare):
            read[-1].tagged = True
            read[-1].tags += tags
        else:
            read.append(_Sentence(span, is_claim(bare, code=span.code), bool(bodies), tags))
    return read


def _numbers(body: str) -> Iterator[int]:
    """Yield the numbers of a tag: of "1, 3", "1-3" and "1, source:3" both."""
    for entry in _BETWEEN.split(body):
        found = _ENTRY.fullmatch(entry)
        if found:
            digits = found[2].lstrip("0") or "0"
            number = int(digits) if len(digits) < _DIGITS else LARGEST_TAG
            yield -number if found[1] else number


def _with_neighbours(read: Sequence[_Sentence]) -> Iterator[tuple[_Sentence, list[int]]]:
    """Yield each sentence with its tags; a code block without any with its neighbours'."""
    before, behind = _nearest(read), reversed(list(_nearest(read[::-1])))
    for sentence, earlier, later in zip(read, before, behind, strict=True):
        yield sentence, sentence.tags or ((earlier or later) if sentence.span.code else [])


def _nearest(read: Sequence[_Sentence]) -> Iterator[list[int]]:
    """Yield, for each sentence, the tags of the last one before it that is a claim or tagged, and no code."""
    last: list[int] = []
    for sentence in read:
        yield last
        if (sentence.claim or sentence.tagged) and not sentence.span.code:
            last = sentence.tags


def _warnings(
    phantom: tuple[int, ...], missing: tuple[tuple[int, int], ...], claims: int, chunk_count: int
) -> Iterator[ReportWarning]:
    if phantom:
        numbers = ", ".join(map(str, phantom[:_SHOWN]))
        details = {"tags": list(phantom[:_SHOWN]), "chunks": chunk_count}
        yield ReportWarning(
            WarningType.PHANTOM_FILE, f"Source tags that count no chunk: [{numbers}]", details
        )
    if missing:
        places = [{"start": start, "end": end} for start, end in missing[:_SHOWN]]
        message = f"{len(missing)} of {claims} technical claims carry no source tag"
        yield ReportWarning(
            WarningType.SOURCE_TAG_MISSING, message, {"missing": len(missing), "places": places}
        )
