"""The normal form of text, and NFKC in linear time."""

import re
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from groundwire.text.normalise import nfkc, normalise
from tests.unit.checks.any_text import ANY_TEXT

MARKS = "\u0301\u0323\u0334\u0345\u0f73\uff9e"


@given(
    st.text(st.one_of(st.characters(), st.sampled_from(MARKS + "aA\u1100\u1161\u11a8\ud7b0")), max_size=200)
)
def test_it_is_what_the_standard_library_says(text):
    assert nfkc(text) == unicodedata.normalize("NFKC", text)


@given(st.text(st.sampled_from(MARKS), min_size=40, max_size=300))
def test_a_crowd_of_marks_is_put_into_the_same_order(marks):
    assert nfkc("a" + marks + "b") == unicodedata.normalize("NFKC", "a" + marks + "b")


@given(ANY_TEXT, st.booleans())
def test_a_reading_is_idempotent_and_maps_every_character_to_the_original(text, split):
    reading = normalise(text, split=split)
    assert normalise(reading.text).text == reading.text
    assert normalise(reading.text, split=True).text == reading.text
    assert len(reading.starts) == len(reading.ends) == len(reading.text)
    assert all(0 <= start < end <= len(text) for start, end in zip(reading.starts, reading.ends, strict=True))
    assert list(reading.starts) == sorted(reading.starts)
    assert list(reading.ends) == sorted(reading.ends)


@given(ANY_TEXT)
def test_a_span_of_a_reading_reads_the_same_on_its_own(text):
    reading = normalise(text)
    for i, character in enumerate(reading.text):
        start, end = reading.span(i, i + 1)
        assert character in normalise(text[start:end]).text


@given(st.text(alphabet="ab'_ \t\n\x1c\u2028é字"))
def test_white_space_is_one_space_read_from_all_of_it_and_each_other_character_is_itself(text):
    found = [(m.group() if m.group().strip() else " ", *m.span()) for m in re.finditer(r"\s+|\S", text)]
    reading = normalise(text)
    assert list(zip(reading.text, reading.starts, reading.ends, strict=True)) == found


def test_the_normal_form_folds_what_looks_the_same():
    cases = [
        ("don’t", "don't"), ("a\u00a0\n b", "a b"), ("e\u200d\u0301", "é"), ("ｋｇ ㎏", "kg kg"),
        (" x ", " x "),
    ]  # fmt: skip
    assert [(text, got) for text, read in cases if (got := normalise(text).text) != read] == []


def test_every_character_with_a_compatible_form_reads_the_same_twice():
    for code in range(0x110000):
        if not unicodedata.is_normalized("NFKC", chr(code)):
            read = normalise(chr(code)).text
            assert unicodedata.is_normalized("NFKC", read)
            assert normalise(read).text == read
