"""How much two answers say the same: shared content, less what contradicts (S4-18)."""

from __future__ import annotations

from collections import Counter

from groundwire.checks.negations import negations
from groundwire.checks.tokens import tokenize
from groundwire.checks.values_statements import statements


def similarity(one: str, other: str) -> float:
    """Return a number from 0.0 (nothing in common, or the opposite) to 1.0 (the same words and values).

    It is the share of words and values that both have, as often as they have them. Where one denies and the other does
    not, or where both give values and share none, they do not say the same: at most half of it counts.
    """
    (words, values), (others, other_values) = _content(one), _content(other)
    total = words.total() + values.total() + others.total() + other_values.total()
    if not total:
        return float(tokenize(one) == tokenize(other))
    common = (words & others).total() + (values & other_values).total()
    share = 2 * common / total
    denied = len(negations(tokenize(one))) % 2 != len(negations(tokenize(other))) % 2
    differ = bool(values and other_values and not values & other_values)
    return share / 2 if denied or differ else share


def _content(text: str) -> tuple[Counter[str], Counter[str]]:
    words: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for statement in statements(text):
        for token in statement.tokens:
            if token.value and not token.value.implied:
                values[min(token.value.keys)] += 1
            elif not token.mark:
                words.update(token.stems)
    return words, values
