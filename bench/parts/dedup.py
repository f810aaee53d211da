"""Near-duplicates: what is missed against brute force, and what finding them takes beside datasketch's own index.

Planted pairs are claims and edits of them that are duplicates or conflicts, compared exactly. A pair is missed where
the two share no key, because then nobody ever compares them.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from typing import Final

from datasketch import MinHash, MinHashLSH

from bench.measure import MICROSECONDS, Figure, Options, Part, Race, Target
from groundwire.checks.dedup.form import ClaimForm, read_form
from groundwire.checks.dedup.keys import key_function
from groundwire.checks.dedup.signature import Thresholds, compare, signature

THRESHOLDS: Final = Thresholds(9200, 8500)
Find = Callable[[list[str]], Iterable[int]]


async def run(options: Options) -> AsyncIterator[Figure]:
    pairs = list(planted(random.Random(2), options.of(8_000, 80_000)))
    for method, least in (("partition", 1.0), ("minhash", 0.99)):
        share = recall(method, pairs)
        missed = round((1 - share) * len(pairs))
        yield Figure(
            f"recall of {len(pairs):,} planted pairs, {method}: {missed} missed",
            "",
            [share],
            (),
            Target(">=", least),
        )
    rng = random.Random(1)
    claims, news = texts(rng, options.of(500, 2_000), 25)
    race = Race("µs/claim", higher=False)
    race.add("datasketch's MinHashLSH, 16 bands of 8", lambda: _library((16, 8), claims, news))
    race.add("datasketch's MinHashLSH, its own choice of bands", lambda: _library(None, claims, news))
    race.add("brute force over all claims", lambda: _brute(claims, news))
    for method in ("minhash", "partition"):
        race.add(f"keys of {method}", partial(_ours, method, claims, news), key=f"dedup.{method}")
    for figure in await race.figures(options.rounds):
        yield figure


def planted(rng: random.Random, count: int) -> Iterator[tuple[ClaimForm, ClaimForm]]:
    """Yield pairs of claims that repeat or contradict each other: edits of sentences of 5 to 60 words."""
    vocabulary = [_word(rng) for _ in range(20_000)]
    made = 0
    while made < count:
        first = _sentence(rng, vocabulary)
        second = list(first)
        for _ in range(rng.randint(0, 4)):
            place = rng.randrange(len(second) + 1)
            second[place : place + rng.randint(0, 1)] = rng.choices(
                [*_LITTLE, rng.choice(vocabulary)], k=rng.randint(0, 1)
            )
        one, other = read_form(" ".join(first)), read_form(" ".join(second))
        if compare(signature(one), signature(other), THRESHOLDS):
            made += 1
            yield one, other


_LITTLE: Final = [
    *(
        "the",
        "a",
        "of",
        "in",
        "to",
        "is",
        "are",
        "not",
        "never",
        "no",
        "longer",
        "keeps",
        "at",
        "30",
        "forty",
    ),
    *("ms", "days", "monday", "2024-05-01", "vm-7", "open", "closed"),
]


def _word(rng: random.Random) -> str:
    return (
        "".join(rng.choices("bcdfgklmnprtvz", k=3))
        + "".join(rng.choices("aeiou", k=2))
        + rng.choice("bdgkmnrt")
    )


def _sentence(rng: random.Random, vocabulary: list[str]) -> list[str]:
    """Return words of which a third are function words, values and the like."""
    return [rng.choice(_LITTLE if rng.random() < 1 / 3 else vocabulary) for _ in range(rng.randint(5, 60))]


def recall(method: str, pairs: Iterable[tuple[ClaimForm, ClaimForm]]) -> float:
    """Return the share of pairs that share a key, whichever of the two came first."""
    keys = key_function(method, THRESHOLDS)
    found = total = 0
    for first, second in pairs:
        total += 2
        found += not set(keys.of(first).stored).isdisjoint(keys.of(second).probed)
        found += not set(keys.of(second).stored).isdisjoint(keys.of(first).probed)
    return found / total


def texts(rng: random.Random, count: int, words: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return claims to index, and as many new ones of which half are near-duplicates."""
    vocabulary = [_word(rng) for _ in range(5000)]
    claims = [rng.choices(vocabulary, k=words) for _ in range(count)]
    news = []
    for claim in claims:
        edited = list(claim)
        for _ in range(max(1, words // 25)):
            edited[rng.randrange(words)] = rng.choice(vocabulary)
        news.append(edited if rng.random() < 0.5 else rng.choices(vocabulary, k=words))
    return claims, news


def _timed(claims: list[list[str]], news: list[list[str]], fill: Callable[[], None], find: Find) -> float:
    """Return microseconds a claim for indexing all claims and looking all new ones up, compared exactly."""
    stored = [signature(_form(claim)) for claim in claims]
    asked = [signature(_form(claim)) for claim in news]
    began = time.perf_counter()
    fill()
    for claim, sign in zip(news, asked, strict=True):
        any(compare(sign, stored[number], THRESHOLDS) for number in find(claim))
    return (time.perf_counter() - began) / len(claims) * MICROSECONDS


def _form(claim: list[str]) -> ClaimForm:
    return read_form(" ".join(claim))


def _ours(method: str, claims: list[list[str]], news: list[list[str]]) -> float:
    keys = key_function(method, THRESHOLDS)
    index: defaultdict[bytes, list[int]] = defaultdict(list)

    def fill() -> None:
        for number, claim in enumerate(claims):
            for key in keys.of(_form(claim)).stored:
                index[key].append(number)

    return _timed(
        claims,
        news,
        fill,
        lambda claim: {n for key in keys.of(_form(claim)).probed for n in index.get(key, ())},
    )


def _library(params: tuple[int, int] | None, claims: list[list[str]], news: list[list[str]]) -> float:
    index = MinHashLSH(threshold=THRESHOLDS.duplicate / 10_000, num_perm=128, params=params)

    def minhash(claim: list[str]) -> MinHash:
        made = MinHash(128, seed=1, scheme="affine32")
        made.update_batch(token.encode() for token in set(claim))
        return made

    def fill() -> None:
        for number, claim in enumerate(claims):
            index.insert(number, minhash(claim))

    def find(claim: list[str]) -> Iterable[int]:
        return [number for number in index.query(minhash(claim)) if isinstance(number, int)]

    return _timed(claims, news, fill, find)


def _brute(claims: list[list[str]], news: list[list[str]]) -> float:
    some = news[:20]  # of so many claims each
    whole = _timed(claims[: len(some)], some, lambda: None, lambda _: range(len(claims[: len(some)])))
    return whole * len(claims) / len(some)


PART = Part("dedup", "near-duplicates: misses against brute force, time beside datasketch", run)
