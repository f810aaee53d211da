"""How the time of a check grows with its text, in processor time: other work on the machine does not count."""

import gc
import time
from collections.abc import Callable


def assert_linear(check: Callable[[str], object], unit: str, up_to: int = 300_000) -> None:
    """From 1 kB on time grows in proportion, with room for caches and a busy machine; not with the square.

    A check that is quadratic from the start does not get as far as `up_to`, of which it takes three hundred times its
    share: it is stopped at 30 kB, where it takes thirty times that.
    """
    smallest = max(_seconds(check, unit, 1_000, 3), 0.0005)
    for length in (30_000, up_to):
        limit = 10 * length / 1_000 * smallest
        assert _seconds(check, unit, length, 1) < limit, f"{length} characters of {unit!r}"


def assert_tenfold(run: Callable[[int], Callable[[], object]], count: int) -> None:
    """Ten times as many take ten times as long, with room up to forty; a nested loop takes a hundred times."""
    limit = 40 * max(best(run(count), 3), 0.0005)
    many = best(run(10 * count), 1)
    assert many < limit, f"{many:.4f} s for ten times {count}, where {limit:.4f} s are four times their share"


def _seconds(check: Callable[[str], object], unit: str, length: int, times: int) -> float:
    text = (unit * (length // len(unit) + 1))[:length]
    return best(lambda: check(text), times)


def best(run: Callable[[], object], times: int) -> float:
    """Return the shortest processor time of several runs, in seconds."""
    shortest = float("inf")
    gc.collect()
    gc.disable()  # it looks at all that other tests have left
    try:
        for _ in range(times):
            start = time.process_time()
            run()
            shortest = min(shortest, time.process_time() - start)
    finally:
        gc.enable()
    return shortest
