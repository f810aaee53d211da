"""NFKC in linear time."""

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.difference import signature
from groundwire.checks.nfkc import nfkc
from groundwire.checks.text import normalise
from groundwire.checks.tokens import tokenize
from tests.unit.checks.growth import assert_linear

MARKS = "\u0301\u0323\u0334\u0345\u0f73\uff9e"


@given(
    st.text(st.one_of(st.characters(), st.sampled_from(MARKS + "aA\u1100\u1161\u11a8\ud7b0")), max_size=200)
)
def test_it_is_what_the_standard_library_says(text):
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@given(st.text(st.sampled_from(MARKS), min_size=40, max_size=300))
def test_a_crowd_of_marks_is_put_into_the_same_order(marks):
    assert nfkc("a" + marks + "b") == unicodedata.normalize("NFKC", "a" + marks + "b")


def test_marks_in_no_order_cost_no_more_than_others():
    """A claim of 20,000 marks used to hold its worker for seconds."""
    for check in (nfkc, normalise, tokenize, lambda text: signature(tokenize(text))):
        assert_linear(check, "\u0301\u0323\u0334", up_to=200_000)
