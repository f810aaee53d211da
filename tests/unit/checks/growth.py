"""How the time of a check grows with its text, in processor time: other work on the machine does not count."""

import gc
import time
from collections.abc import Callable


def assert_linear(check: Callable[[str], object], unit: str, up_to: int = 1_000_000) -> None:
    """From 1 kB on time grows in proportion, with room for caches and a busy machine; not with the square.

    A check that is quadratic from the start does not get as far as 1 MB: it is stopped at 30 kB, where it takes
    thirty times its share.
    """
    smallest = max(_seconds(check, unit, 1_000, 3), 0.0005)
    for length in (30_000, 100_000, up_to):
        limit = 10 * length / 1_000 * smallest
        assert _seconds(check, unit, length, 1) < limit, f"{length} characters of {unit!r}"


def _seconds(check: Callable[[str], object], unit: str, length: int, times: int) -> float:
    text = (unit * (length // len(unit) + 1))[:length]
    best = float("inf")
    gc.collect()
    gc.disable()  # it looks at all that other tests have left
    try:
        for _ in range(times):
            start = time.process_time()
            check(text)
            best = min(best, time.process_time() - start)
    finally:
        gc.enable()
    return best
