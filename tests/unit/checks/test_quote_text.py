"""The normal form in which quotes are compared (S1-08..S1-16, C-36, C-39, C-40)."""

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks import quote_text
from groundwire.checks.quote_text import comparison_form, mark_words, normalize_for_quote_match, standing
from tests.unit.checks.tables import failing

# Letters alone rarely meet the rules; these characters do: brackets, joiners, marks, jamo, raised digits.
ODD = "aAb <>/\u200b\u200d\u2060\u00ad\u0301\u0331\u0316\u0344\u0f73\u09be\u1161ᄀㅏﾞHJΣİ⁹1½² '’“\u00a0¨ﬁﷺ\t\n"
texts = st.one_of(st.text(), st.text(alphabet=ODD))


@given(texts, st.booleans())
def test_normalising_the_normal_form_changes_nothing(text, remove_soft):
    form = normalize_for_quote_match(text, remove_soft=remove_soft)
    assert normalize_for_quote_match(form, remove_soft=remove_soft) == form


APART = "aAb <>/1é\u0130ßẞÉ＜Ａ㍘ﬁ½’”\u00a0\u2028\x85\x1c\u200b\u00ad\u2060¨中가\ud800\t\n"


@given(st.text(alphabet=APART) | st.text(alphabet="<>/ a1é\n") | texts, st.booleans())
def test_what_is_done_to_all_of_a_text_at_once_gives_what_is_done_character_by_character(text, remove_soft):
    ways = (normalize_for_quote_match, comparison_form)
    quick = [way(text, remove_soft=remove_soft) for way in ways]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.checks.quote_text._FEW", -1)
        assert quick == [way(text, remove_soft=remove_soft) for way in ways]


def test_a_tag_that_appears_once_an_inner_one_is_gone_is_a_tag_too():
    def check(depth):
        form = normalize_for_quote_match("x " + "<a" * depth + ">" * depth + " y")
        assert form == "x y"

    assert failing(check, [1, 2, 30, 200]) == []


@given(st.text(alphabet="aAbB cÉé.,'’“”\u00a0\u200b\ufeff1ﬁ\t"))
def test_without_brackets_and_strange_case_it_is_the_plain_rule(text):
    plain = unicodedata.normalize("NFKC", re.sub("[\u200b\ufeff]", "", text))
    plain = plain.replace("’", "'").replace("“", '"').replace("”", '"')
    assert normalize_for_quote_match(text) == " ".join(plain.split()).lower()


@given(
    st.text(
        alphabet="\u0344\u0316\u0301\u0f73\u0f72a\u0308é\u1100\u1161\u11a8ﾞｶㅏᄀㄱ\u09c7\u09beﷺ ", max_size=90
    )
)
def test_ordering_and_cutting_text_gives_what_unicode_says(text):
    expected = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.text.normalise._PIECE", 2)
        assert normalize_for_quote_match(text) == " ".join(expected.split())


def test_what_copying_changes_is_folded():
    cases = [
        ("a\u200bb\u200cc\u200dd\ufeffe", "abcde"),
        ("<ma> so </i> it ＜cough＞ goes<clears throat>", "so it goes"), ("H\u0331", "ẖ"),
        ("a \t\n b ", "a b"),
    ]  # fmt: skip
    assert [(text, got) for text, form in cases if (got := normalize_for_quote_match(text)) != form] == []


def test_comparisons_are_no_tags():
    texts = [
        "latency < 5 ms and load > 3", "a<b and c>d", "if a <= b then c >= d", "1 <2> 3",
        "<" + "a" * 41 + ">",
    ]  # fmt: skip
    assert [text for text in texts if normalize_for_quote_match(text) != text] == []


def test_soft_hyphens_and_word_joiners_go_only_where_asked():
    text = "im\u00adpor\u2060tant"
    assert normalize_for_quote_match(text) == text
    assert normalize_for_quote_match(text, remove_soft=True) == "important"


def test_raised_digits_beside_digits_stay_in_the_comparison():
    raiseds = ["5½", "10⁻⁹", "²5", "x₂5", "10\u200b⁹"]
    assert [
        raised
        for raised in raiseds
        if comparison_form(raised) == comparison_form(unicodedata.normalize("NFKC", raised))
    ] == []


@given(texts)
def test_without_raised_digits_beside_digits_the_comparison_is_the_normal_form(text):
    text = re.sub("[0-9]", "", text)
    assert comparison_form(text) == normalize_for_quote_match(text)


@given(
    st.text(alphabet="ab_1 .(é'", max_size=30), st.text(alphabet="ab_1 .(é'", max_size=6), st.integers(1, 9)
)
def test_a_marked_text_holds_a_marked_quote_where_no_word_is_cut(text, quote, piece):
    text, quote = normalize_for_quote_match(text), normalize_for_quote_match(quote)
    whole = [
        at
        for at in range(len(text))
        if quote
        and text.startswith(quote, at)
        and not re.match(r"\w\w", text[at - 1 : at + 1])
        and not re.match(r"\w\w", text[at + len(quote) - 1 : at + len(quote) + 1])
    ]
    assert (bool(quote) and mark_words(quote) in mark_words(text)) == bool(whole)


def test_words_are_marked_the_same_where_the_text_is_read_in_pieces(monkeypatch):
    text = "ab  (c) d, e " * 50
    expected = mark_words(text)
    monkeypatch.setattr("groundwire.checks.quote_text._PIECE", 5)
    assert mark_words(text) == expected == re.sub(r"\b", "\n", text)


words = st.text(alphabet="aab\u0301𝟗", min_size=1, max_size=6)


@given(st.lists(words), st.text(alphabet="aab\u0301𝟗", max_size=40))
def test_looking_for_all_at_once_finds_what_looking_for_each_finds(quotes, source):
    at_once = quote_text._at_once(list(dict.fromkeys(quotes)), source)
    assert at_once == {quote for quote in quotes if quote in source}
    assert dict(standing(quotes, source)) == {quote: quote in source for quote in quotes}


def test_each_different_quote_is_told_once():
    assert list(standing(["a", "b", "a"], "a")) == [("a", True), ("b", False)]
