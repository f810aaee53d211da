"""Which of many quotes stand in one source: by one search each, or all at once where there are very many."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

SEARCHES_WORTH: Final = 3000
"""Characters that a search reads in the time in which the machine of `_at_once` takes one step."""

_LETTERS: Final = 21  # bits of a code point


def standing(quotes: Iterable[str], source: str) -> Iterator[tuple[str, bool]]:
    """Yield each different quote and whether it stands in a source (S1-16).

    The time grows in proportion to the text of source and quotes, however many quotes there are.

    Args:
        quotes: In the form in which they are compared, none of them empty; repeats are yielded once.
        source: In that form too.
    """
    different = list(dict.fromkeys(quotes))
    size = len(source) + sum(map(len, different))
    if len(different) * len(source) > SEARCHES_WORTH * size:
        found = _at_once(different, source)
        yield from ((quote, quote in found) for quote in different)
    else:
        yield from ((quote, quote in source) for quote in different)


def _at_once(quotes: list[str], source: str) -> set[str]:
    """Return the quotes that stand in a source, by the automaton of Aho and Corasick."""
    steps, ends = _tree(quotes)
    fallback, order = _fallbacks(steps, len(ends))
    seen = bytearray(len(ends))
    state = 0
    for char in map(ord, source):
        while (following := steps.get(state << _LETTERS | char)) is None and state:
            state = fallback[state]
        state = following or 0
        seen[state] = 1
    for state in reversed(order):  # what ends in a longer match stands there too
        if seen[state]:
            seen[fallback[state]] = 1
    return {quote for state, quote in enumerate(ends) if quote and seen[state]}


def _tree(quotes: list[str]) -> tuple[dict[int, int], list[str]]:
    """Return the steps of the tree of all quotes, and for each state the quote that ends there."""
    steps: dict[int, int] = {}
    ends = [""]
    for quote in quotes:
        state = 0
        for char in map(ord, quote):
            following = steps.setdefault(state << _LETTERS | char, len(ends))
            if following == len(ends):
                ends.append("")
            state = following
        ends[state] = quote
    return steps, ends


def _fallbacks(steps: dict[int, int], states: int) -> tuple[list[int], list[int]]:
    """Return for each state that of its longest proper suffix, and the states from shortest to longest."""
    children: list[list[tuple[int, int]]] = [[] for _ in range(states)]
    for step, following in steps.items():
        children[step >> _LETTERS].append((step & (1 << _LETTERS) - 1, following))
    fallback = [0] * states
    order: list[int] = []
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        order.append(state)
        for char, following in children[state]:
            waiting.append(following)
            suffix = fallback[state]
            while state and (back := steps.get(suffix << _LETTERS | char)) is None and suffix:
                suffix = fallback[suffix]
            fallback[following] = (back or 0) if state else 0
    return fallback, order
