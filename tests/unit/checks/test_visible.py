"""What a reader sees: markup, invisible characters, and what hides text."""

import re
import unicodedata
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.hedges import HedgeAction, HedgeDetector
from groundwire.checks.quote_text import comparison_form, normalize_for_quote_match
from groundwire.text.tokens import tokenize
from groundwire.text.visible import INVISIBLE, hidden, seen, splits_words, visible
from tests.unit.checks.any_text import ANY_TEXT
from tests.unit.checks.tables import failing

# Of each kind some: soft hyphen, joiners, marks of direction, a selector, a tag, controls, blank glyphs.
SOME = "\u00ad\u200b\u200d\u2060\u200e\u2067\ufe0f\U000e0061\x00\x08\x7f\u2800\u3164\ufeff"
HEDGES = {
    "I think it ends": HedgeAction.BLOCK,
    "maybe it ends": HedgeAction.BLOCK,
    "it probably ends": HedgeAction.REVIEW,
    "it appears that it ends": HedgeAction.REVIEW,
    "chances are it ends": HedgeAction.REVIEW,
}
FIRM = ["The mayor ends it", "Members may invite guests", "The shoulder is cut thoroughly"]


@pytest.mark.slow
def test_invisible_are_all_controls_and_format_characters_but_white_space():
    nothing = re.compile(f"[{INVISIBLE}]")
    kinds = {"Cc", "Cf"}
    missed = [
        code
        for code in range(0x110000)
        if unicodedata.category(chr(code)) in kinds
        and not chr(code).isspace()
        and not nothing.match(chr(code))
    ]
    assert missed == []
    assert not any(nothing.match(chr(code)) for code in range(0x110000) if chr(code).isspace())


def test_markup_is_read_and_what_only_looks_like_it_stays():
    cases = [
        ("I <b>think</b> so", "I think so"), ("<CODE class='x'>may</CODE>", "`may`"),
        ("th&#105;nk &amp; &shy;so", "think & so"), ("may**be** and ***m*ay", "maybe and ***m*ay"),
        ("2**3, a < b and c > d, Vec<T>, R&D", "2**3, a < b and c > d, Vec<T>, R&D"),
    ]  # fmt: skip
    assert [(text, got) for text, shown in cases if (got := visible(text)) != shown] == []


@given(ANY_TEXT | st.text(alphabet="<b>/&#;amp x\u200b*"), st.booleans())
def test_each_character_that_is_seen_has_its_place_in_the_text(text, split):
    shown, starts, ends = seen(text, split=split)
    assert shown == visible(text, split=split)
    assert len(shown) == len(starts) == len(ends)
    assert all(0 <= start < end <= len(text) for start, end in zip(starts, ends, strict=True))
    assert list(starts) == sorted(starts)


@given(st.sampled_from(sorted(HEDGES)), st.sampled_from(SOME), st.data())
def test_no_invisible_character_hides_a_hedge_inside_its_words_or_between_them(hedge, char, data):
    at = data.draw(st.integers(0, len(hedge)))
    inserted = hedge[:at] + char + hedge[at:]
    blank = hedge.find(" ", at)
    between = hedge[:blank] + char + hedge[blank + 1 :] if blank >= 0 else inserted
    for text in (inserted, between):
        assert HedgeDetector().analyze(text).action is HEDGES[hedge], ascii(text)


@given(st.sampled_from(SOME), st.integers(0, 12))
def test_no_invisible_character_hides_a_quote_or_a_word_of_a_claim(char, at):
    text = "we use redis"
    inserted = text[:at] + char + text[at:]
    assert normalize_for_quote_match(inserted, remove_soft=True) == text
    assert comparison_form(inserted, remove_soft=True) == text
    assert tokenize(inserted) == tokenize(text)
    kept = char in "\u00ad\u2060"  # S1-15: only where it is asked for
    assert (normalize_for_quote_match(inserted) == text) is not kept


@given(st.sampled_from(FIRM), st.sampled_from(SOME), st.data())
def test_no_invisible_character_beside_a_word_makes_a_hedge(text, char, data):
    at = data.draw(st.sampled_from([match.start() for match in re.finditer(r"\b", text)]))
    assert HedgeDetector().analyze(text[:at] + char + text[at:]).action is HedgeAction.CONTINUE


def test_markup_and_marks_around_a_word_hide_no_hedge():
    words_ = ["**{}**", "<i>{}</i>", "({})", "`{}`"]

    def check(word, hedge):
        words = hedge.split()
        for at in range(len(words)):
            text = " ".join([*words[:at], word.format(words[at]), *words[at + 1 :]])
            assert HedgeDetector().analyze(text).action is HEDGES[hedge], text

    assert failing(check, product(words_, sorted(HEDGES))) == []


@given(st.sampled_from(sorted(HEDGES)), st.data())
def test_letters_written_as_entities_hide_no_hedge(hedge, data):
    at = data.draw(st.integers(0, len(hedge) - 1))
    text = f"{hedge[:at]}&#{ord(hedge[at])};{hedge[at + 1 :]}"
    assert HedgeDetector().analyze(text).action is HEDGES[hedge]
    assert tokenize(text) == tokenize(hedge)


def test_hidden_are_overrides_and_what_stands_inside_words_that_need_it_not():
    cases = [
        ("pass\u202eword\u202c", ["U+202E"]), ("a&#8203;b", ["U+200B"]), ("plain, \u00e9t\u00e9", []),
        (" \n", ["U+0020", "U+000A"]),
    ]  # fmt: skip
    assert [(text, got) for text, codes in cases if (got := hidden(text)) != codes] == []


@given(ANY_TEXT)
def test_a_text_is_read_both_ways_only_where_that_differs_in_a_word(text):
    if visible(text).split() != visible(text, split=True).split() and not splits_words(text):
        words = re.findall(r"[^\W_]+", visible(text))
        assert words == re.findall(r"[^\W_]+", visible(text, split=True))
