"""Compare the ways to find near-duplicates, in one process and one run, without Redis.

Every method indexes the same claims and then looks up the same new ones, half of them edits of indexed
claims at Jaccard 0.92 or more; exact Jaccard decides among the candidates. Times are the best of several
rounds per claim; the ratios say more than the microseconds, which depend on the machine and its load.
"""

from __future__ import annotations

import argparse
import random
import time
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from datasketch import MinHash, MinHashLSH

from groundwire.checks.dedup_keys import key_function
from groundwire.checks.difference import overlap, signature
from groundwire.checks.similarity import is_near

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

PARTS = 9200


def ours(
    method: str, claims: list[list[str]]
) -> tuple[Callable[[], None], Callable[[list[str]], Iterable[int]]]:
    """Return how to index all claims under keys of a method, and how to find candidates."""
    keys = key_function(method, PARTS)
    index: defaultdict[bytes, list[int]] = defaultdict(list)

    def fill() -> None:
        index.clear()
        for number, claim in enumerate(claims):
            for key in keys.stored(claim):
                index[key].append(number)

    return fill, lambda claim: {number for key in keys.probed(claim) for number in index.get(key, ())}


def library(
    params: tuple[int, int] | None, claims: list[list[str]]
) -> tuple[Callable[[], None], Callable[[list[str]], Iterable[int]]]:
    """Return the same for datasketch's own MinHashLSH: its choice of bands, or the given (bands, rows)."""
    indexes: list[MinHashLSH] = []

    def minhash(claim: list[str]) -> MinHash:
        made = MinHash(128, seed=1, scheme="affine32")
        made.update_batch(token.encode() for token in set(claim))
        return made

    def fill() -> None:
        indexes[:] = [MinHashLSH(threshold=PARTS / 10_000, num_perm=128, params=params)]
        for number, claim in enumerate(claims):
            indexes[0].insert(number, minhash(claim))

    def find(claim: list[str]) -> Iterable[int]:
        return [number for number in indexes[0].query(minhash(claim)) if isinstance(number, int)]

    return fill, find


def texts(rng: random.Random, count: int, words: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return claims to index, and as many new ones of which half are near-duplicates."""
    vocabulary = [f"{rng.getrandbits(32):x}" for _ in range(5000)]
    claims = [rng.choices(vocabulary, k=words) for _ in range(count)]
    news = []
    for claim in claims:
        edited = list(claim)
        for _ in range(max(1, words // 25)):
            edited[rng.randrange(words)] = rng.choice(vocabulary)
        news.append(edited if rng.random() < 0.5 else rng.choices(vocabulary, k=words))
    return claims, news


def best(rounds: int, run: Callable[[], object]) -> float:
    """Return the shortest time of several rounds, in seconds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python bench/dedup_keys.py --claims 2000 --words 25",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--claims", type=int, default=2000, help="claims to index, and to look up (default 2000)"
    )
    parser.add_argument("--words", type=int, default=25, help="words of a claim (default 25)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, of which the best counts (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the claims (default 1)")
    options = parser.parse_args()
    if min(options.claims, options.words, options.rounds) < 1:
        parser.error("--claims, --words and --rounds must be at least 1")
    claims, news = texts(random.Random(options.seed), options.claims, options.words)
    compare(claims, news, options.rounds)


def compare(claims: list[list[str]], news: list[list[str]], rounds: int) -> None:
    """Time every method on the same claims and print a line for each."""
    stored, asked = [signature(claim) for claim in claims], [signature(claim) for claim in news]
    methods = {
        "partition": ours("partition", claims),
        "minhash": ours("minhash", claims),
        "datasketch 16x8": library((16, 8), claims),
        "datasketch, its choice": library(None, claims),
    }

    def duplicates(find: Callable[[list[str]], Iterable[int]]) -> int:
        near = [
            any(is_near(*overlap(sign, stored[number]), PARTS) for number in find(claim))
            for claim, sign in zip(news, asked, strict=True)
        ]
        return sum(near)

    print(
        f"{len(claims)} claims of {len(claims[0])} words, threshold {PARTS / 10_000}, microseconds per claim"
    )
    print(f"{'method':24}{'index':>8}{'look up':>9}{'sum':>8}{'ratio':>8}{'found':>8}")
    first = most = 0.0
    for name, (fill, find) in methods.items():
        index = best(rounds, fill) / len(claims) * 1e6
        look = best(rounds, partial(duplicates, find)) / len(news) * 1e6
        found = duplicates(find)
        first, most = first or index + look, most or found  # partition comes first: it is exact
        share = found / most if most else 1.0
        print(f"{name:24}{index:8.1f}{look:9.1f}{index + look:8.1f}{(index + look) / first:8.1f}{share:8.1%}")


if __name__ == "__main__":
    main()
