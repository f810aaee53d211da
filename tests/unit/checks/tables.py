"""Tables of cases inside a test, of which a test shows all that are wrong, and text for tests of what reads text."""

from collections.abc import Callable, Iterable

from hypothesis import strategies as st

# Any string at all, lone surrogates included, rich in what the detector looks for.
_PIECES = [
    "I", "i", "we", "think", "maybe", "may", "May", "not", "sure", "don’t", "know", "perhaps", "could",
    "around",
    "5", "2024", "in", " ", "  ", "\t", "\n", "\u200b", "\u00ad", "\u0301", "_", "*", ",", "'", "`", ".",
    "ﷺ", "㎏",
    "\u00a8", "ŉ", "ﾞ", "カ", "https://x.io/", "seems", "to", "me", "ｉ", "𝐭𝐡𝐢𝐧𝐤", "İ", "ſ",
]  # fmt: skip
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(st.sampled_from(_PIECES)).map("".join)


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
