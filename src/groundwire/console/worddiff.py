"""Two texts as one, word by word: what was taken out and what was put in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from rapidfuzz.distance import Indel

Operation = Literal["equal", "insert", "delete"]

_PARTS: Final = re.compile(r"\s+|\w+|[^\w\s]")
"""Runs of white space, words, and single signs: together they are the whole text."""


@dataclass(frozen=True, slots=True)
class Change:
    """A run of text that stands in both, in the new one alone, or in the old one alone."""

    operation: Operation
    text: str


def word_diff(old: str, new: str) -> list[Change]:
    """Return how `new` came of `old`; where something was put in place of something, the old comes first.

    The changes that are not `insert`, joined, give `old`; those that are not `delete` give `new`. Of texts of
    20,000 characters it takes some milliseconds: the common subsequence is found by bits, not by words.
    """
    before, after = _PARTS.findall(old), _PARTS.findall(new)
    changes: list[Change] = []
    taken = put = ""
    for code in Indel.opcodes(before, after):
        if code.tag != "equal":
            taken += "".join(before[code.src_start : code.src_end])
            put += "".join(after[code.dest_start : code.dest_end])
            continue
        changes += [Change("delete", taken), Change("insert", put)]
        changes.append(Change("equal", "".join(before[code.src_start : code.src_end])))
        taken = put = ""
    changes += [Change("delete", taken), Change("insert", put)]
    return [change for change in changes if change.text]
