"""How the work of a check grows with its text: counted in lines of Python run, so the same on every machine.

A call into C counts as its line; `test_patterns_linear.py` shows that regular expressions are linear.
"""

import sys
from collections.abc import Callable


def assert_linear(check: Callable[[str], object], unit: str, up_to: int = 10_000) -> None:
    """Ten times the text takes ten times the work, with room up to twenty; a quadratic check takes a hundred times."""

    def run(length: int) -> Callable[[], object]:
        text = (unit * (length // len(unit) + 1))[:length]
        return lambda: check(text)

    assert_tenfold(run, min(up_to, 10_000) // 10)


def assert_tenfold(run: Callable[[int], Callable[[], object]], count: int) -> None:
    run(count)()  # fills caches
    few, many = lines_run(run(count)), lines_run(run(10 * count))
    assert many < 20 * max(few, 200), f"{many} lines run for ten times {count}, {few} for {count}"


def lines_run(run: Callable[[], object]) -> int:
    count = 0

    def trace(_frame: object, event: str, _argument: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
    return count
