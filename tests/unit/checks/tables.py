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


_LAST = object()


def differing(function: Callable[..., object], cases: Iterable[object], to: object = _LAST) -> list[object]:
    """Return the cases whose result is not `to`, by default the case's last part, each with what it gives."""
    wrong = []
    for case in cases:
        arguments = case if isinstance(case, tuple) else (case,)
        expected = to
        if to is _LAST:
            *arguments, expected = arguments
        if (got := function(*arguments)) != expected:
            wrong.append((case, got))
    return wrong
