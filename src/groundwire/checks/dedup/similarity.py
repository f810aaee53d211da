"""How similar two sets of words are, and the thresholds for it (S0-104..S0-106, S0-111, C-05, C-06)."""

from __future__ import annotations

from typing import Final

from groundwire.arguments import takes

WHOLE: Final = 10_000
"""Basis points of a whole: thresholds are compared as whole numbers of them, so that no rounding decides (C-05)."""


@takes(text1=str, text2=str)
def jaccard_similarity(text1: str, text2: str) -> float:
    """Return words in common ÷ words in either, of the lower-case words between white space (S0-104, S0-105).

    The gate itself compares tokens without edge punctuation, see `groundwire.text.tokens` (C-07).
    Paraphrases are a known miss of any word overlap (S0-115).

    Args:
        text1: One text.
        text2: The other; the order makes no difference.

    Returns:
        A number from 0.0 to 1.0; 0.0 when neither text has a word.
    """
    words1, words2 = set(text1.lower().split()), set(text2.lower().split())
    union = len(words1 | words2)
    return len(words1 & words2) / union if union else 0.0


def basis_points(threshold: float) -> int:
    """Return a threshold in basis points: 0.92 is 9200.

    Args:
        threshold: Above 0, at most 1; rounded to four decimals.

    Raises:
        ValueError: The threshold is outside that range, or rounds to nothing.
    """
    points = round(threshold * WHOLE) if 0 < threshold <= 1 else 0
    if not points:
        raise ValueError(f"dedup_threshold must be above 0 and at most 1 (four decimals), got {threshold!r}")
    return points


def is_near(inter: int, union: int, points: int) -> bool:
    """Tell whether inter ÷ union reaches a threshold, inclusive and in whole numbers (S0-106, C-05).

    Args:
        inter: Number of tokens in both claims.
        union: Number of tokens in either; 0 is near to nothing.
        points: The threshold, from `basis_points`.
    """
    return union > 0 and WHOLE * inter >= points * union
