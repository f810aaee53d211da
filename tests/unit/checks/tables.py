"""Tables of cases inside a test: every case is tried, and the test shows all that are wrong."""

from collections.abc import Callable, Iterable


def failing(check: Callable[..., object], cases: Iterable[object]) -> list[tuple[object, str]]:
    """Return the cases for which `check` fails an assertion, each with the reason."""
    wrong = []
    for case in cases:
        try:
            check(*case) if isinstance(case, tuple) else check(case)
        except AssertionError as error:
            wrong.append((case, str(error)[:300]))
    return wrong
