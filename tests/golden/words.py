"""Seeded choice, and the words that the generators put into their sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


class Draw:
    """Chance that stays the same: of Python's generator only `random()` is promised to."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, number: int) -> int:
        return int(self._random.random() * number)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def one(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], most: int) -> list[T]:
        return [self.one(items) for _ in range(self.below(most + 1))]


@cache
def samples(name: str) -> Any:
    return json.loads(Path(__file__).with_name("samples.json").read_text("utf-8"))[name]


def sections() -> dict[str, str]:
    text = Path(__file__).with_name("words.txt").read_text("utf-8")
    parts = [part.partition("]\n") for part in text.split("\n[")[1:]]
    return {name: " ".join(words.split()) for name, _, words in parts}


def words(*names: str) -> list[str]:
    every = sections()
    return [word for name in names for word in every[name].split()]


def neighbours(name: str) -> list[tuple[str, str]]:
    groups = [group.split() for group in sections()[name].split(";")]
    return [pair for group in groups for pair in pairwise(group)]


def packs(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
