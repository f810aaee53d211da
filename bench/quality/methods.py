"""What is measured: the verifier and the baselines that it has to beat. A score is higher where less is supported."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from bench.quality.data import Row
from groundwire.checks.support.score import ENOUGH
from groundwire.checks.support.verify import check_answer
from groundwire.text.stems import lexeme
from groundwire.text.tokens import tokenize

Method = Callable[[Row], float]


def all_positive(_: Row) -> float:
    return 1.0


def length(row: Row) -> float:
    return float(len(row.answer))


def absent_words(row: Row) -> float:
    """Count the content words of the answer that neither evidence nor question holds."""
    given = {
        stem
        for text in (*row.evidence, row.question)
        for word in tokenize(text)
        for stem in lexeme(word).stems
    }
    return float(sum(stem not in given for word in tokenize(row.answer) for stem in lexeme(word).stems))


@lru_cache(1 << 13)
def verifier(row: Row) -> float:
    """Ask the deterministic verifier; what claims nothing is just good enough."""
    check = check_answer(row.answer, row.evidence, question=row.question)
    return 1 - (check.support if check.claims else ENOUGH)


METHODS: Final[dict[str, Method]] = {
    "all positive": all_positive,
    "length": length,
    "absent words": absent_words,
    "verifier": verifier,
}
"""Methods by name, baselines first."""
