"""Ground a thousand quotes in a transcript of 200 kB, and say how long other threads had to wait.

"as specified" is the plain reading of the rule beside it, in the same run: every quote is looked for as it
comes and the transcript is brought into normal form for each. It runs for a part of the quotes; the ratio is
per quote. The longest stall is the longest time in which a second thread did not get the interpreter: with
one thread that only waits, that is how long an event loop would have stood still.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from collections.abc import Callable
from functools import partial

from rapidfuzz import fuzz

from groundwire.checks.quote_text import normalize_for_quote_match
from groundwire.checks.quotes import QuoteRules, ground_quotes

TICK = 0.001  # seconds
NAIVE_QUOTES = 20
_SOUNDS = random.Random(0)
WORDS = ["".join(_SOUNDS.choices("aeioustnrlmdk", k=_SOUNDS.randint(2, 9))) for _ in range(2000)]
HOSTILE = {"marks": "\u0344\u0316", "ligatures": "\ufdfa", "brackets": "<a", "repeats": "ab", "clauses": ". "}


def transcript(rng: random.Random, characters: int) -> str:
    """Return sentences of about the size of speech, with what transcripts hold beside words."""
    parts: list[str] = []
    size = 0
    while size < characters:
        words = rng.choices(WORDS, k=rng.randint(4, 16))
        words.insert(
            rng.randrange(len(words)), rng.choice(["don\u2019t", "30 s", "<laughter>", "caf\u00e9", "5"])
        )
        parts.append(" ".join(words).capitalize() + ".")
        size += len(parts[-1]) + 1
    return "\n".join(parts)[:characters]


def quotes(rng: random.Random, text: str, count: int) -> dict[str, list[str]]:
    """Return quotes by kind: as they stand, with letters changed, and invented."""
    found: dict[str, list[str]] = {"exact": [], "near": [], "invented": []}
    for _ in range(count):
        start, length = rng.randrange(len(text) - 300), rng.randint(30, 200)
        exact = text[start : start + length]
        near = list(exact)
        for _ in range(length // 30):
            near[rng.randrange(length)] = rng.choice(",-xz")
        found["exact"].append(exact)
        found["near"].append("".join(near))
        found["invented"].append(" ".join(rng.choices(WORDS, k=length // 6 + 1)))
    return found


def as_specified(given: list[str], text: str, rules: QuoteRules) -> None:
    """Look for each quote by the plain rule."""
    for quote in given:
        source, form = normalize_for_quote_match(text), normalize_for_quote_match(quote)
        if form not in source and rules.mode == "fuzzy":
            fuzz.partial_ratio(form, source)


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Return how long something took and the longest time a second thread waited for its turn, in seconds."""
    stalls: list[float] = []
    done = threading.Event()

    def tick() -> None:
        last = time.perf_counter()
        while not done.is_set():
            time.sleep(TICK)
            now = time.perf_counter()
            stalls.append(now - last - TICK)
            last = now

    ticker = threading.Thread(target=tick)
    ticker.start()
    start = time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    done.set()
    ticker.join()
    return seconds, max(stalls)


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog="example: python bench/quotes.py --quotes 1000 --characters 200000",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quotes", type=int, default=1000, help="quotes of each kind (default 1000)")
    parser.add_argument("--characters", type=int, default=200_000, help="of the transcript (default 200000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of transcript and quotes (default 1)")
    options = parser.parse_args()
    if options.quotes < 1 or options.characters < 1000:
        parser.error("--quotes must be at least 1 and --characters at least 1000")
    rng = random.Random(options.seed)
    text = transcript(rng, options.characters)
    compare(quotes(rng, text, options.quotes), text)


def compare(kinds: dict[str, list[str]], text: str) -> None:
    """Time every mode on every kind of quotes and print a line for each."""
    print(f"{len(kinds['exact'])} quotes of each kind in {len(text)} characters")
    columns = f"{'mode':10} {'quotes':10} {'found':>6} {'total s':>8} {'longest stall ms':>17}"
    print(f"{columns} {'ms/quote':>9} {'as specified':>13} {'ratio':>7}")
    for rules in (QuoteRules(), QuoteRules(mode="fuzzy")):
        for kind, given in kinds.items():
            each = 1e3 * line(kind, given, text, rules) / len(given)
            part = given[:NAIVE_QUOTES]
            naive = 1e3 * timed(partial(as_specified, part, text, rules))[0] / len(part)
            print(f" {each:9.3f} {naive:13.2f} {naive / each:6.0f}x")
    print("hostile text: the same number of characters or, where these are long, of bytes")
    for name, unit in HOSTILE.items():
        source = unit * (len(text) // len(unit.encode()))
        given = [source[:99] + str(number) for number in range(50)]
        line(name, given, source, QuoteRules(mode="fuzzy"))
        print()


def line(kind: str, given: list[str], text: str, rules: QuoteRules) -> float:
    """Ground quotes, print what that gave, and return how long it took in seconds."""
    found = ground_quotes({kind: given}, text, rules).stats.validated_count  # warms what is cached, too
    seconds, stall = timed(partial(ground_quotes, {kind: given}, text, rules))
    print(f"{rules.mode:10} {kind:10} {found:6} {seconds:8.2f} {1e3 * stall:17.1f}", end="")
    return seconds


if __name__ == "__main__":
    main()
