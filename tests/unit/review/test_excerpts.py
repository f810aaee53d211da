"""An excerpt that does not say that it was cut is the whole text, in one line."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from groundwire.review.records import in_one_line

_WORDS = st.lists(st.text("ab\u00e9\u200b.", min_size=1, max_size=30), max_size=60)
_GAPS = st.sampled_from([" ", "\n", "\n" * 300, "\t" * 900, "\u2003" * 700])


@st.composite
def texts(draw: st.DrawFn) -> str:
    return "".join(draw(_GAPS) + word for word in draw(_WORDS))


@given(texts())
@example("Water is wet." + "\n" * 900 + "And so on.")
@example("a" * 200)
@example("a" * 201)
def test_what_does_not_end_with_an_ellipsis_holds_every_word(text: str) -> None:
    excerpt = in_one_line(text)
    assert len(excerpt) <= 200
    assert excerpt.endswith("…") or excerpt.split() == text.split()
