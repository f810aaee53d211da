"""Text as it is read: what a reader sees, one spelling, tokens and sentences (C-07)."""

from __future__ import annotations

import re
import string
import sys
import unicodedata
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.hedges import HedgeAction, HedgeDetector
from groundwire.checks.quote_text import comparison_form, normalize_for_quote_match
from groundwire.text.normalise import nfkc, normalise
from groundwire.text.sentences import sentences
from groundwire.text.tokens import CACHED_LENGTH, TOKENIZER, PerToken, token_digest, tokenize
from groundwire.text.visible import INVISIBLE, hidden, seen, splits_words, visible
from tests.unit.checks.tables import ANY_TEXT, differing, failing

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
    assert differing(visible, cases) == []
    # hidden are overrides, and what stands inside words that need it not
    codes = [
        ("pass\u202eword\u202c", ["U+202E"]), ("a&#8203;b", ["U+200B"]), ("plain, \u00e9t\u00e9", []),
        (" \n", ["U+0020", "U+000A"]),
    ]  # fmt: skip
    assert differing(hidden, codes) == []


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


@given(ANY_TEXT)
def test_a_text_is_read_both_ways_only_where_that_differs_in_a_word(text):
    if visible(text).split() != visible(text, split=True).split() and not splits_words(text):
        words = re.findall(r"[^\W_]+", visible(text))
        assert words == re.findall(r"[^\W_]+", visible(text, split=True))


MARKS = "\u0301\u0323\u0334\u0345\u0f73\uff9e"


@given(
    st.text(st.one_of(st.characters(), st.sampled_from(MARKS + "aA\u1100\u1161\u11a8\ud7b0")), max_size=200)
)
def test_it_is_what_the_standard_library_says(text):
    assert nfkc(text) == unicodedata.normalize("NFKC", text)
    crowd = "a" + "".join(char for char in text if char in MARKS) * 40 + "b"
    assert nfkc(crowd) == unicodedata.normalize("NFKC", crowd)


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
    assert differing(lambda text: normalise(text).text, cases) == []
    for code in range(0x110000):
        if not unicodedata.is_normalized("NFKC", chr(code)):
            read = normalise(chr(code)).text
            assert unicodedata.is_normalized("NFKC", read)
            assert normalise(read).text == read


# Letters alone rarely meet the rules; these characters do.
ODD = "aZ5 .,-'’“”!?()[]#%$€+<>=~|`^*_:;/\\&@\u200b\u00ad\ufeff\u2014\u2212½²⁶İẞΣ´\u0301ﬁ①≠™é\t\n"
texts = st.one_of(st.text(), st.text(alphabet=ODD))


@given(texts)
def test_tokenising_the_joined_tokens_again_changes_nothing(text):
    tokens = tokenize(text)
    assert tokenize(" ".join(tokens)) == tokens
    assert all(token and token.split() == [token] for token in tokens), (
        "no token is empty or holds white space"
    )


@given(st.lists(st.from_regex(r"[a-z0-9]+", fullmatch=True)), st.randoms(use_true_random=False))
def test_plain_words_keep_text_order_and_repeats_whatever_case_and_punctuation_surround_them(words, random):
    dressed = [
        random.choice(["", '"', "(", "*", "“"]) + random.choice([w, w.upper()]) + random.choice(",.;:!?)”")
        for w in words
    ]
    assert (
        tokenize(random.choice([" ", "\n", " \t", "\u00a0", "\u3000", " — ", " - "]).join(dressed)) == words
    )


@given(st.text(alphabet=st.characters(exclude_categories=("Cs",))))
def test_ascii_needs_no_other_rules_than_the_rest_of_unicode(text):
    plain = text.encode("ascii", "ignore").decode()
    assert [*tokenize(plain), "é"] == tokenize(f"{plain} é")


def test_symbols_that_carry_meaning_stay_at_an_edge_and_other_punctuation_goes():
    cases = [
        ("-5 -.5 .5 –5 −5 (-5)", ["-5", "-.5", ".5", "-5", "-5", "-5"]),
        ("<100ms >100ms; >=5, =x", ["<100ms", ">100ms", ">=5", "=x"]),
        ("30% $30 €30, 30€. -$5", ["30%", "$30", "€30", "30€", "-$5"]),
        ("x != y, !ready !", ["x", "!=", "y", "!ready"]),
        ("issue #123 ## Title # C#", ["issue", "#123", "title", "c#"]),
        ("Per ADR-003, we use Pixeltable.", ["per", "adr-003", "we", "use", "pixeltable"]),
        ("**bold** `code` _it_ [a] {b} «c» „d“ ¿e? ~f|", ["bold", "code", "it", "a", "b", "c", "d", "e", "f"]),
        ("- item\n-- flag ... --", ["item", "flag"]), ("", []), (" .,;- \t", []),
    ]  # fmt: skip
    assert differing(tokenize, cases) == []
    # spellings that look alike give the same tokens
    cases = [
        ("I\u200b th\u00adink\u2060\ufeff", "I think"), ("ﬁle ＡＤＲ－003 ①", "file adr-003 1"),
        ("cafe\u0301 STRASSE", "café strasse"), ("non‑blocking 5–10 −3", "non-blocking 5-10 -3"),
        ("fast—and cheap", "fast and cheap"),
    ]  # fmt: skip
    assert [(one, other) for one, other in cases if tokenize(one) != tokenize(other)] == []
    numbers = [("10⁶ m²", "106 m2"), ("5½ h", "51/2 h"), (".5 s", "5 s"), ("-5", "5")]
    assert [(one, other) for one, other in numbers if tokenize(one) == tokenize(other)] == []


@pytest.mark.slow
def test_every_character_of_unicode_is_folded_once_and_for_all():
    changed = [
        char
        for char in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(char) not in {"Cs", "Cn", "Co"}
        and tokenize(" ".join(tokens := tokenize(f"a{char}b {char} x{char}"))) != tokens
    ]
    assert changed == []


@given(
    st.text(alphabet=sorted({*string.punctuation} - {*"-.!"})), st.text(alphabet=[*string.punctuation, "é"])
)
def test_what_a_word_keeps_at_its_edges_does_not_depend_on_whether_it_begins_with_a_letter(before, behind):
    (other,) = tokenize(f"{before}¬a¬{behind}")
    assert tokenize(f"{before}a{behind}") == [other.replace("¬", "")]


@given(st.lists(st.text(max_size=2 * CACHED_LENGTH)), st.integers(1, 5))
def test_a_value_is_that_of_its_token_and_no_more_short_tokens_are_remembered_than_may_be(tokens, kept):
    worked = []
    values = PerToken(lambda token: worked.append(token) or token.upper(), kept)
    assert values.of(tokens) == [token.upper() for token in tokens]
    long = "k" * (CACHED_LENGTH + 1)
    values.of(["kafka"])
    worked.clear()
    values.of(["kafka", long, "kafka", long])
    assert worked == [long, long], "worked out once for a short token and again for a long one"
    assert len(values) <= kept
    assert all(len(token) <= CACHED_LENGTH for token in values)


def test_tokens_and_digests_are_pinned():
    # the tokeniser is pinned under its id: If this fails because tokens changed, TOKENIZER must change with it.
    text = "Per ADR-003, the “retry” limit isn't <100ms — it's 5½ × $30.00/day (≈30 %)!"
    assert TOKENIZER == "words-2"
    assert tokenize(text) == [
        *(
            "per", "adr-003", "the", "retry", "limit", "isn't", "<100ms", "it's", "5", "1/2", "×", "$30.00/day",
        ),
        *("≈30", "%"),
    ]  # fmt: skip
    # the digest of a token is pinned for short and long tokens alike
    assert token_digest("kafka").hex() == "2717a2902c48f8b1"
    assert token_digest("k" * 1000).hex() == "417f101e5758d104"
    assert token_digest("k" * 1000) != token_digest("k" * 999)
    assert len(token_digest("\ud800")) == 8


def test_sentences_end_at_full_stops_and_where_the_page_divides():
    # a full stop ends a sentence and a point does not
    long = "a line as long as it can be is broken for want of room before\nKafka"
    cases = [
        ("One is 1. Two is 2! Three? Four", ["One is 1.", "Two is 2!", "Three?", "Four"]),
        ("By J. Doe. Lists etc. are one.", ["By J. Doe.", "Lists etc. are one."]),
        ("Wait... and see. Wait... And see", ["Wait... and see.", "Wait...", "And see"]), (" \n\t ", []),
        # no sentence crosses what the page divides
        ("# Head\nText here\n\nmore", ["# Head", "Text here", "more"]),
        ("the number is\n5. Then", ["the number is\n5.", "Then"]),
        ("The timeout is 30 s\nThe retries are 5", ["The timeout is 30 s", "The retries are 5"]),
        (long, [long]),
    ]  # fmt: skip
    assert differing(lambda text: [span.text for span in sentences(text)], cases) == []
    # a closed code block is one span and an open one is prose
    cases = [
        ("A.\n```py\nx. Y\n```\nB.", [("A.", False), ("```py\nx. Y\n```", True), ("B.", False)]),
        ("````\n```\na\n```\n````\nB", [("````\n```\na\n```\n````", True), ("B", False)]),
        ("````\na\n```\nb. C", [("````\na\n```\nb.", False), ("C", False)]),
        ("```a\n```b\n```", [("```a\n```b\n```", True)]),
    ]  # fmt: skip
    assert differing(lambda text: [(span.text, span.code) for span in sentences(text)], cases) == []


PIECES = [
    "A b", "a", ". ", ".", "! ", "e.g. ", "[source:1]", "\n", "\n\n", "- ", "1. ", "```", "```\n", "`",
    "~~~\n",
]  # fmt: skip


@given(
    st.lists(
        st.sampled_from([*PIECES, "# ", "| ", "5", ") ", "\u3002", "\u2026 ", "\t", "\r\n", "Dr. "]),
        max_size=20,
    )
)
def test_spans_are_exact_in_order_and_lose_no_letter(pieces):
    text = "".join(pieces)
    spans = sentences(text)
    last = 0
    for span in spans:
        assert last <= span.start < span.end
        assert text[span.start : span.end] == span.text == span.text.strip()
        lost = re.sub(r"\(?[A-Za-z]\)", "", text[last : span.start])  # the marker of a list item
        assert not any(char.isalpha() for char in lost), lost
        last = span.end
    assert not any(char.isalnum() for char in text[last:])
