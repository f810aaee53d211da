"""Marks of citation of an answer, and its source tags: what they cite is there, and each paragraph has one.

A mark of any form (`checks.marks`) that names nothing that was retrieved is a phantom. `[source:N]` is the form that
the gate asks for: where an answer has one, or has to, each paragraph of technical claims needs a mark (S2-20 to S2-23,
C-51). One serves its paragraph, a lead-in's what it introduces, and a closing list the whole answer; a code block is
served by its neighbours too. What a technical claim is says `text.refusals`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import NamedTuple

from groundwire.checks.marks import Citable, Mark, Reference, blanked, marks
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.text.refusals import is_claim, is_table_rule
from groundwire.text.sentences import TextSpan, sentences

_SHOWN = 100  # places in a warning's details
_BREAK = re.compile(r"\n[ \t\r]*\n")


@dataclass(frozen=True, slots=True)
class TagReport:
    """The marks of citation of an answer, and the claims that lack one.

    Attributes:
        tags: what all marks refer to, as they come: numbers of passages, and names.
        phantom: those that name nothing that was retrieved, each once (S2-23).
        missing: (start, end), in characters of the answer, of each claim in a paragraph without any mark. Empty where
            the answer has no `[source:N]` and none is required.
        claims: how many technical claims there are.
        coverage: claims served by a mark of what was retrieved ÷ claims, 0 to 1; 1.0 where there is no claim.
        present: there is a mark.
        warnings: SOURCE_TAG_MISSING for the claims without one, PHANTOM_FILE for what is not there.
    """

    tags: tuple[Reference, ...]
    phantom: tuple[Reference, ...]
    missing: tuple[tuple[int, int], ...]
    claims: int
    coverage: float
    present: bool
    warnings: tuple[ReportWarning, ...]


def check_tags(answer: str, citable: Citable, *, required: bool) -> TagReport:
    """Check the marks of citation of an answer."""
    found = marks(answer, citable)
    tags = tuple(name for mark in found for name in mark.references)
    phantom = tuple(dict.fromkeys(name for mark in found for name in mark.missing))
    claims = [*_served(blanked(answer, found), found)]
    bare = tuple((claim.span.start, claim.span.end) for claim in claims if not claim.marked)
    missing = bare if required or any(mark.tag for mark in found) else ()
    return TagReport(
        tags=tags,
        phantom=phantom,
        missing=missing,
        claims=len(claims),
        coverage=sum(claim.held for claim in claims) / len(claims) if claims else 1.0,
        present=bool(found),
        warnings=tuple(_warnings(phantom, missing, len(claims), citable.count)),
    )


class _Claim(NamedTuple):
    """A technical claim; whether a mark serves it, and whether one of what was retrieved does."""

    span: TextSpan
    marked: bool
    held: bool


def _served(shown: str, found: Sequence[Mark]) -> Iterator[_Claim]:
    spans = sentences(shown)
    code = [edge for span in spans if span.code for edge in (span.start, span.end)]
    ends = [gap.start() for gap in _BREAK.finditer(shown) if bisect_right(code, gap.start()) % 2 == 0]
    everywhere = any(mark.closing for mark in found)
    marked = {bisect_right(ends, mark.start): False for mark in found}
    for mark in found:
        if len(mark.missing) < len(mark.references):
            marked[bisect_right(ends, mark.start)] = True
    for end, span in enumerate(spans, 1):
        paragraph = bisect_right(ends, span.start)
        last = end == len(spans) or bisect_right(ends, spans[end].start) > paragraph
        if last and span.text.rstrip("*_ ").endswith(":") and paragraph in marked:
            marked.setdefault(paragraph + 1, marked[paragraph])  # what a lead-in introduces
    for span, following in zip_longest(spans, spans[1:]):
        head = following is not None and is_table_rule(following.text)  # the row above names the columns
        if head or not is_claim(span.text, code=span.code):
            continue
        paragraph = bisect_right(ends, span.start)
        near = (paragraph, paragraph - 1, paragraph + 1) if span.code else (paragraph,)
        serving = [marked[place] for place in near if place in marked]
        yield _Claim(span, everywhere or bool(serving), everywhere or any(serving))


def _warnings(
    phantom: tuple[Reference, ...], missing: tuple[tuple[int, int], ...], claims: int, chunk_count: int
) -> Iterator[ReportWarning]:
    if phantom:
        numbers = ", ".join(map(str, phantom[:_SHOWN]))
        details = {"tags": list(phantom[:_SHOWN]), "chunks": chunk_count}
        yield ReportWarning(
            WarningType.PHANTOM_FILE, f"Citations of what was not retrieved: [{numbers}]", details
        )
    if missing:
        places = [{"start": start, "end": end} for start, end in missing[:_SHOWN]]
        message = f"{len(missing)} of {claims} technical claims carry no source tag"
        yield ReportWarning(
            WarningType.SOURCE_TAG_MISSING, message, {"missing": len(missing), "places": places}
        )
