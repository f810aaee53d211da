"""Print what the verifier takes for answers of 700 characters against 1,400 of evidence: `python -m bench.epistemic`.

"read plainly" is the baseline in the same run: cutting the same texts into words, and nothing else. Times are processor
time of this process, of each answer the least of several: what else a machine does only adds to it. The ratio is what
compares between machines. "evidence read before" is what each further answer held against the same evidence takes.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from functools import cache

from groundwire.checks.support.verify import check_answer
from groundwire.checks.values.statements import read_statements
from groundwire.text.tokens import tokenize

NAMES = (
    "Dublin",
    "Ada Byron",
    "the gateway",
    "the scheduler",
    "Redis",
    "the export job",
    "Kafka",
    "the cache",
)
DONE = ("retries", "does not store", "increased", "encrypts", "moved", "never deletes", "limits", "was given")
WHAT = (
    "failed requests",
    "all tokens on disk",
    "the memory limit",
    "every payload",
    "old records",
    "its offsets",
)
WHEN = (
    "after 30 s",
    "3 times a day",
    "since March 2021",
    "in version 2.4",
    "for 12 % of users",
    "at night",
    "again",
)


def text(rng: random.Random, characters: int) -> str:
    """Return sentences with names, values and denials, about as many as answers hold."""
    said: list[str] = []
    while sum(map(len, said)) < characters:
        parts = [" ".join(map(rng.choice, (NAMES, DONE, WHAT, WHEN))) for _ in range(rng.randint(1, 2))]
        said.append(f"{', and '.join(parts)}. ".capitalize())
    return "".join(said)[:characters]


def measure(work: Callable[[str, str], object], pairs: list[tuple[str, str]], repeat: int = 1) -> list[float]:
    """Return the sorted times of each pair, in milliseconds; the least of so many."""
    times = []
    for answer, evidence in pairs:
        least = math.inf
        for _ in range(repeat):
            start = time.process_time_ns()
            work(answer, evidence)
            least = min(least, (time.process_time_ns() - start) / 1e6)
        times.append(least)
    return sorted(times)


def main() -> None:
    """Measure plain reading, the verifier, and the verifier with evidence that was read before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=300)
    parser.add_argument(
        "--repeat", type=int, default=3, help="times that each answer is held against its evidence"
    )
    parser.add_argument("--scale", type=int, default=1, help="so many times the length of both")
    args = parser.parse_args()
    rng = random.Random(0)
    pairs = [(text(rng, 700 * args.scale), text(rng, 1_400 * args.scale)) for _ in range(args.answers)]
    read = cache(read_statements)
    for _, evidence in pairs:
        read(evidence)
    ways: dict[str, Callable[[str, str], object]] = {
        "read plainly": lambda answer, evidence: (tokenize(answer), tokenize(evidence)),
        "verifier": lambda answer, evidence: check_answer(answer, [evidence]),
        "verifier, evidence read before": lambda answer, evidence: check_answer(
            answer, [evidence], read=read
        ),
    }
    print("| work | p50 ms | p95 ms | p95 to plain p95 |\n|---|---|---|---|")
    plain = 0.0
    for name, work in ways.items():
        measure(work, pairs[:20])  # fills what is remembered of words
        times = measure(work, pairs, args.repeat)
        p50, p95 = (times[int(share * (len(times) - 1))] for share in (0.5, 0.95))
        plain = plain or p95
        print(f"| {name} | {p50:.2f} | {p95:.2f} | {p95 / plain:.1f} |", flush=True)


if __name__ == "__main__":
    main()
