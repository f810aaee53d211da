"""The smallest benchmark, for continuous integration: a few ratios in one process, beside what is stated of them.

Both sides of a ratio do their work in turns, in this process, and only processor time counts, of the best round: what
else a machine has to do changes little. A ratio below half of what is stated means that something has become slow in
earnest. Nothing here is measured in seconds.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from bench.claims import claims, text
from bench.inside import batches, decide, new_gate
from bench.naive import MINHASH_PERMUTATIONS, naive_minhash, phrases
from bench.parts.quotes import naive, quotes, transcript
from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.keys import key_function
from groundwire.checks.dedup.signature import Thresholds
from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.quotes import QuoteRules, ground_quotes
from groundwire.messages.decode import decode_claim
from groundwire.policy import Policy

ROUNDS: Final = 5
TOLERANCE: Final = 0.5
"""A ratio may fall to so much of what is stated."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A ratio that must not fall.

    Attributes:
        name: what stands beside what.
        stated: how many times as quick as the baseline the gate is, on a quiet machine.
        baseline: what one would write first.
        ours: the gate's way, with the same outcome.
    """

    name: str
    stated: float
    baseline: Callable[[], object]
    ours: Callable[[], object]

    def ratio(self, rounds: int = ROUNDS) -> float:
        """Run both sides in turns, and compare the best round of each."""
        self.baseline()
        self.ours()
        best = [float("inf"), float("inf")]
        for _ in range(rounds):
            for side, work in enumerate((self.baseline, self.ours)):
                began = time.process_time_ns()
                work()
                best[side] = min(best[side], time.process_time_ns() - began)
        return best[0] / max(1.0, best[1])

    def holds(self, ratio: float) -> bool:
        """Whether a ratio is not well below what is stated."""
        return ratio >= TOLERANCE * self.stated


def guarded() -> Iterator[Guarded]:
    """Yield what is guarded, ready to run."""
    rng = random.Random(5)
    values = [value for _, value in claims(300)]
    contents = [decode_claim(value).content for value in values]
    yield Guarded(
        "decoding a claim, beside json.loads and json.dumps",
        0.6,
        lambda: [json.dumps(json.loads(value)) for value in values],
        lambda: [decode_claim(value) for value in values],
    )
    patterns, detector = phrases(), HedgeDetector()
    yield Guarded(
        "hedges in one pass, beside a regex a phrase",
        7.5,
        lambda: [[one.pattern for one in patterns if one.search(content)] for content in contents],
        lambda: [detector.analyze(content) for content in contents],
    )
    words = [sorted(set(text(rng).lower().split())) for _ in range(60)]
    for method, stated in (("minhash", 24.0), ("partition", 14.0)):
        forms = [read_form(" ".join(tokens)) for tokens in words]
        keys = key_function(method, Thresholds(9200, 8500))
        yield Guarded(
            f"dedup keys by {method}, beside {MINHASH_PERMUTATIONS} permutations word by word",
            stated,
            lambda: [naive_minhash(tokens) for tokens in words],
            lambda keys=keys, forms=forms: [keys.of(form).stored for form in forms],  # type: ignore[misc]
        )
    source = transcript(rng, 10_000)
    given = quotes(rng, source, 50)["invented"]
    yield Guarded(
        "fifty quotes in 10 kB, beside the transcript brought into normal form for each",
        40.0,
        partial(naive, given, source, QuoteRules()),
        partial(ground_quotes, {"guard": given}, source, QuoteRules()),
    )
    batch = next(batches(claims(200), 200))
    yield Guarded(
        "the whole gate without servers, beside json.loads and json.dumps",
        0.018,
        lambda: [json.dumps(json.loads(record.value or b"")) for record in batch],
        lambda: asyncio.run(decide(new_gate(Policy()), batch)),
    )


def failures() -> Iterator[str]:
    """Print every guarded ratio; yield each that has fallen, twice in a row."""
    for what in guarded():
        ratio = what.ratio()
        if not what.holds(ratio):
            ratio = what.ratio(4 * ROUNDS)
        fate = "holds" if what.holds(ratio) else f"FELL below {TOLERANCE:g} of it"
        line = f"{what.name}: {ratio:.3g} times, stated {what.stated:g}: {fate}"
        print(line, flush=True)
        if not what.holds(ratio):
            yield line
