"""Quotes in their source: the normal form, near matches, negations before them, and what is told of them.

Requirements S1-08..S1-44, C-36..C-41.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz import fuzz

from groundwire.checks import quote_text, quotes
from groundwire.checks.quote_text import (
    OutOfSteps,
    Steps,
    best_windows,
    comparison_form,
    mark_words,
    normalize_for_quote_match,
    standing,
)
from groundwire.checks.quotes import (
    EvidenceSchemaError,
    QuoteRules,
    ground_quotes,
    threshold_advice,
    validate_evidence_schema,
)
from groundwire.text import negation
from groundwire.text.negation import FULL, WEAK, Clauses, negated_stems, negation_of
from groundwire.text.stems import words_of
from tests.unit.checks.tables import differing, failing

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


def test_what_copying_changes_is_folded_and_nothing_else():
    # what copying changes is folded
    cases = [
        ("a\u200bb\u200cc\u200dd\ufeffe", "abcde"),
        ("<ma> so </i> it ＜cough＞ goes<clears throat>", "so it goes"), ("H\u0331", "ẖ"),
        ("a \t\n b ", "a b"), ("im\u00adpor\u2060tant", "im\u00adpor\u2060tant"),
    ]  # fmt: skip
    assert differing(normalize_for_quote_match, cases) == []
    assert normalize_for_quote_match("im\u00adpor\u2060tant", remove_soft=True) == "important"
    no_tags = [
        "latency < 5 ms and load > 3", "a<b and c>d", "if a <= b then c >= d", "1 <2> 3", "<" + "a" * 41 + ">",
    ]  # fmt: skip
    assert [text for text in no_tags if normalize_for_quote_match(text) != text] == []

    # a tag that appears once an inner one is gone is a tag too
    def check(depth):
        form = normalize_for_quote_match("x " + "<a" * depth + ">" * depth + " y")
        assert form == "x y"

    assert failing(check, [1, 2, 30, 200]) == []
    # raised digits beside digits stay in the comparison
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
    assert list(standing(quotes, source)) == [(quote, quote in source) for quote in dict.fromkeys(quotes)]


PLENTY = 10**12


@given(st.data(), st.sampled_from([0.01, 0.5, 0.7, 0.85, 0.95]))
def test_the_best_window_scores_what_one_call_on_everything_scores(data, least):
    """Whether a quote is read in calls on stretches or by halving, and wherever stretches end."""
    source = data.draw(st.text(alphabet="abc é", min_size=1, max_size=60))
    quote = data.draw(st.text(alphabet="abc é", min_size=1, max_size=min(12, len(source))))
    for stretch, short in product([2000, 7], [64, 2]):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quote_text, "_STRETCH", stretch)
            patch.setattr(quote_text, "SHORT", short)
            windows = list(best_windows(quote, source, least, Steps(PLENTY)))
        best = max((window.score for window in windows), default=0.0)
        whole = fuzz.partial_ratio(quote, source) / 100
        assert best == pytest.approx(whole if whole >= least or windows else 0.0), (stretch, short)


@given(
    st.text(alphabet="abcd ", min_size=65, max_size=90), st.text(alphabet="abcd ", min_size=91, max_size=300)
)
def test_long_quotes_score_the_same_too(quote, source):
    best = max(window.score for window in best_windows(quote, source, 0.01, Steps(PLENTY)))
    assert best == pytest.approx(fuzz.partial_ratio(quote, source) / 100)


def test_work_is_counted_and_ends(monkeypatch):
    with pytest.raises(OutOfSteps):
        list(best_windows("ab" * 50, "abb" * 1000, 0.7, Steps(10_000)))
    # what is left when the work is done is rejected and said
    many = ["ab" * 50 + str(number) for number in range(100)]
    found = ground_quotes({"d": many}, "abb" * 1000, QuoteRules(mode="fuzzy"))
    assert found.rejected[-1].why == "work_limit"
    assert found.stats.validated_count == 0
    # reading numbers and negations is counted too
    cases = [("limit 5 " * 7, "limit 6 "), ("limit 5 " * 15, "limit 6 ")]

    def check(quote, unit):
        steps, looks = Steps(PLENTY), []
        differs = quotes.differs
        monkeypatch.setattr(quotes, "Steps", lambda _: steps)
        monkeypatch.setattr(quotes, "differs", lambda *given: looks.append(1) or differs(*given))
        ground_quotes({"d": [quote]}, unit * 500, QuoteRules(mode="fuzzy"))
        assert looks
        assert PLENTY - steps._left > 2000 * len(quote.strip()) * len(looks)

    assert failing(check, cases) == []


def test_a_quote_matches_nearly_only_where_numbers_units_and_negations_are_the_same():
    def outcome(quote, source, threshold=0.85):
        found = ground_quotes({"d": [quote]}, source, QuoteRules(mode="fuzzy", fuzzy_threshold=threshold))
        return "accepted" if not found.rejected else found.rejected[0].why

    other = "the request limit is 80 per day. "
    cases = {
        "accepted": [  # drift in spacing and punctuation
            ("the timeout is 30 s", "config: the timeout, is 30 s. for all"),
            ("I feel tired and worthless every day", "well I feel tired, worthless every day, ok"),
            ("the records are kept for thirty days in all", "the records are, kept for 30 days in all cases"),
            ("the limit is not 5 but 10 per day", "(the limit is not 5, but 10, per day)"),
            ("retry the request after a short pause", "It will never. retry the request, after short pause"),
            # a place that says something else does not hide one that says the same
            ("the request limit is 30 per day", other * 20 + "the request,, limit is 30 per days " + other * 20),
        ],
        "number": [
            ("the timeout is 30 s", "the timeout is 300 s for all; 30 s elsewhere"),
            ("the timeout is 30 s", "the timeout is 30 ms"),
            ("the timeout of this operation is 30", "the timeout of this operation is 81"),
            ("up to 10⁹ records are kept here", "up to 109 records are kept here!"),
            ("it costs $1.2 million in all, they say", "it costs $1.2 billion in all, they say"),
            ("the request limit is 30 per day", other * 40),
        ],
        "negation": [
            ("I feel hopeless and lost these days", "I feel not hopeless and lost these days"),
            ("I feel not hopeless and lost these days", "I feel hopeless and lost these days, so much"),
            ("do retry it always with care", "we do not retry it always with care"),
            ("not fast but it is cheap enough", "fast but it is not cheap enough ok"),
            ("the worker is able to retry it", "the worker is unable to retry it"),
        ],
        "too_long": [("I feel tired and hopeless all day", "I feel tired"), ("x" * 10_001, "x," * 10_000)],
    }  # fmt: skip
    pairs = [(why, *pair) for why, pairs in cases.items() for pair in pairs]
    assert [
        (quote, source, got) for why, quote, source in pairs if (got := outcome(quote, source)) != why
    ] == []
    # the threshold is inclusive: 17 of 20 characters are shared: 0.85; at 1 only exact quotes count.
    nearly = ("abcdefghijklmnopqxyz", "-" * 20 + "abcdefghijklmnopq" + "-" * 20)
    cases = [
        (*nearly, 0.84, "accepted"), (*nearly, 0.85, "accepted"), (*nearly, 0.86, "not_found"),
        ("feel tired today", "I feel tired, today", 1.0, "not_found"),
        ("feel tired today", "I feel tired  TODAY", 1.0, "accepted"),
    ]  # fmt: skip
    assert differing(outcome, cases) == []
    assert (bool(threshold_advice(0.79)), threshold_advice(0.8)) == (True, None), (
        "lower ones accept paraphrases"
    )
    # a near miss carries its score and others carry none
    source = "blah I feel tired, worthless every day ok"
    evidence = {
        "d": ["I feel tidy, worth it every day", "entirely different words", "I feel tired, 5 worthless"]
    }
    found = ground_quotes(evidence, source, QuoteRules(mode="fuzzy", fuzzy_threshold=0.9))
    scores = [quote.score for quote in found.rejected]
    assert scores == [
        pytest.approx(fuzz.partial_ratio(evidence["d"][0].lower(), source.lower()) / 100, abs=1e-4),
        None,
        pytest.approx(fuzz.partial_ratio(evidence["d"][2].lower(), source.lower()) / 100, abs=1e-4),
    ]
    assert [event.payload.get("score") for event in found.events()[:-1]] == scores


def accepted(quote, source, **rules):
    return ground_quotes({"d": [quote]}, source, QuoteRules(**rules)).validated["d"] == [quote]


def test_a_quote_is_accepted_exactly_where_its_source_holds_its_normal_form():
    cases = [
        ("I   feel  tired", "I feel tired all the time", True), ("I CAN'T SLEEP", "i can’t sleep at all", True),
        ("I'm tired yeah", "I'm tired <laughter> yeah", True), ("has 10⁹ rec", "it has 10⁹ records", True),
        ("feeling tired all day", "I feel tired the whole day", False), ("10⁹ records", "109 records", False),
        ("109 records", "10⁹ records", False), ("latency 3", "latency < 5 ms and load > 3", False),
    ]  # fmt: skip
    assert differing(accepted, cases) == []


def test_unfit_quotes_are_rejected():
    # an empty quote is rejected in both modes
    def check(mode, quote):
        found = ground_quotes({"d": [quote]}, "text", QuoteRules(mode=mode))
        assert [rejected.why for rejected in found.rejected] == ["empty"]

    assert failing(check, product(["substring", "fuzzy"], ["", "  ", "\u200b", "<laughter>"])) == []
    # short quotes and parts of words are rejected only where asked
    assert accepted("ab", "ab cd")
    assert not accepted("ab", "ab cd", min_characters=3)
    assert not accepted("ab", "ab cd", min_words=2)
    assert accepted("ab cd", "ab cd", min_characters=5, min_words=2)
    assert not accepted("art", "party", word_boundaries=True)
    assert accepted("art", "party, art", word_boundaries=True)
    assert accepted("impor\u00adtant", "important", remove_soft=True)
    assert not accepted("impor\u00adtant", "important")


short_quotes = st.text(alphabet="ab <>¹1.", max_size=4)


@given(
    st.dictionaries(st.text(max_size=3), st.lists(short_quotes, max_size=4), max_size=3),
    st.text(alphabet="ab <>¹1."),
)
def test_counts_add_up_and_no_ungrounded_quote_is_validated(evidence, source):
    found = ground_quotes(evidence, source, QuoteRules())
    stats, form = found.stats, comparison_form(source)
    for domain, given_quotes in evidence.items():
        grounded = [q for q in given_quotes if comparison_form(q) and comparison_form(q) in form]
        assert found.validated[domain] == grounded
        assert stats.rejected_by_domain[domain] == len(given_quotes) - len(grounded)
    assert list(found.validated) == list(stats.rejected_by_domain) == list(evidence)
    assert stats.extracted_count == sum(map(len, evidence.values()))
    assert stats.rejected_count == stats.extracted_count - stats.validated_count == len(found.rejected)
    assert (found.failure is not None) == (stats.extracted_count > 0 == stats.validated_count)


def test_nothing_grounded_is_a_failure_with_its_counts_and_mode():
    found = ground_quotes({"a": ["q", "y"], "b": []}, "text", QuoteRules())
    assert found.failure == {
        "category": "EVIDENCE_HALLUCINATION",
        "severity": "ERROR",
        "stage": "evidence_extraction",
        "extracted_count": 2,
        "mode": "substring",
    }
    assert ground_quotes({"a": []}, "text", QuoteRules()).failure is None
    assert ground_quotes({"a": ["q", "text"]}, "text", QuoteRules()).failure is None


def test_each_rejection_is_an_event_and_all_together_are_one_bounded():
    # each rejection is an event and all together are one
    found = ground_quotes({"mood": ["I feel hopeless", "okay"], "sleep": []}, "I am okay", QuoteRules())
    rejection, summary = found.events()
    assert (rejection.name, rejection.level) == ("evidence_quote_rejected", "warning")
    assert rejection.payload == {
        "domain": "mood",
        "quote_hash": "8fcb07baa023",
        "quote_len": 15,
        "transcript_hash": found.transcript_hash,
        "transcript_len": 9,
        "mode": "substring",
    }
    assert (summary.name, summary.level) == ("evidence_grounding_complete", "info")
    assert summary.payload == {
        "extracted_count": 2,
        "validated_count": 1,
        "rejected_count": 1,
        "rejected_by_domain": {"mood": 1, "sleep": 0},
        "transcript_hash": found.transcript_hash,
    }
    assert ground_quotes({"mood": ["okay"]}, "I am okay", QuoteRules()).events() == []
    # events are bounded in number and size
    evidence = {f"{'d' * 500}{number}": ["q"] for number in range(1500)}
    events = ground_quotes(evidence, "text", QuoteRules()).events()
    assert len(events) == 1001
    assert max(len(event.payload["domain"]) for event in events[:-1]) == 100
    assert events[-1].payload["rejected_count"] == 1500
    assert events[-1].payload["truncated"] == 1400


def test_the_source_and_each_different_quote_are_normalised_once(monkeypatch):
    seen = []
    form = quotes.comparison_form
    monkeypatch.setattr(quotes, "comparison_form", lambda text, **how: seen.append(text) or form(text, **how))
    ground_quotes({"a": ["one", "two"] * 50, "b": ["one"]}, "one source", QuoteRules())
    assert sorted(seen) == ["one", "one source", "two"]


def test_rules_that_there_are_not_are_refused_and_substring_needs_no_rapidfuzz(monkeypatch):
    # rules that there are not are refused
    wrongs = [
        {"mode": "semantic"}, {"fuzzy_threshold": 0.49}, {"fuzzy_threshold": 1.01},
        {"fuzzy_threshold": float("nan")},
    ]  # fmt: skip

    def check(wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            QuoteRules(**wrong)

    assert failing(check, wrongs) == []
    # substring needs no rapidfuzz and fuzzy says what to install
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    assert accepted("text", "some text")
    with pytest.raises(RuntimeError, match="pip install rapidfuzz"):
        accepted("text", "some text", mode="fuzzy")


def test_evidence_of_another_shape_is_refused_by_the_domains_name():
    # the schema drops repeats and blanks and adds missing domains
    value = {"b": ["q1", "q1", " ", "", "q2", " q1 "], "a": []}
    assert validate_evidence_schema(value, ["a", "c"]) == {"a": [], "c": [], "b": ["q1", "q2"]}
    assert list(validate_evidence_schema(value, ["a", "c"])) == ["a", "c", "b"]
    # another shape is refused by the domains name without its text
    values = [{"k": "not a list"}, {"k": ["fine", 1]}, {"k": None}, {"k": {"secret": 1}}]

    def check(value):
        with pytest.raises(EvidenceSchemaError, match="'k'") as caught:
            validate_evidence_schema({"fine": ["secret"], **value})
        assert caught.value.domains == ("k",)
        assert not {"secret", "not a list", "fine"} & set(str(caught.value).replace("'", " ").split())

    assert failing(check, values) == []
    for value in (None, [], "secret", 5):
        with pytest.raises(EvidenceSchemaError, match=type(value).__name__) as caught:
            validate_evidence_schema(value)
        assert "secret" not in str(caught.value)
    # an error names few domains in short
    with pytest.raises(EvidenceSchemaError, match="and 90 more") as caught:
        validate_evidence_schema({f"{'k' * 500}{number}": 1 for number in range(100)})
    assert len(str(caught.value)) < 1200


def test_a_quote_that_stands_only_behind_a_negation_gets_a_note():
    def noted(quote, source, **rules):
        found = ground_quotes({"d": [quote]}, source, QuoteRules(**rules))
        assert found.validated == {"d": [quote]}
        return [(note.domain, note.index) for note in found.polarity] == [("d", 0)]

    tired, whole, party = "feel tired", {"word_boundaries": True}, "party. I don't like art"
    fuzzy = "I do not think so. He never, said the boss, will leave the old harbour town again"
    cases = [
        (tired, "I DON’T feel tired.", {}, True), (tired, "He is refusing to feel tired", {}, True),
        (tired, "You neednt feel tired", {}, True),
        (tired, "Nobody could feel tired here; she did not feel tired either.", {}, True),
        (tired, "I feel tired", {}, False), (tired, "No, I feel tired", {}, False),
        (tired, "Not only do I feel tired", {}, False),
        (tired, "I don't feel tired. Later I did feel tired.", {}, False),
        # a negation inside the quote is part of it
        ("don't feel tired", "I don't feel tired", {}, False), ("I don't feel tired", "I don't feel tired", {}, False),
        ("t feel tired", "I don't feel tired", {}, True),
        # one far off does not reach
        (tired, "i do not " + "know what to say about all of that and " * 10 + tired, {}, False),
        # places inside words do not count where words have to be whole
        ("art", party, {}, False), ("art", party, whole, True),
        (tired, "I feel tired. I don't feel tired.", whole, False),
        ("will leave the old harbor town again", fuzzy, {"mode": "fuzzy"}, True),
    ]  # fmt: skip
    assert differing(lambda quote, source, rules: noted(quote, source, **rules), cases) == []
    # the note names the place among the validated quotes
    evidence = {"a": ["I sleep"], "b": ["not there", "sleep well", "feel tired"]}
    found = ground_quotes(evidence, "I sleep well. I don't feel tired.", QuoteRules())
    assert [(note.domain, note.index) for note in found.polarity] == [("b", 1)]
    assert found.validated["b"][1] == "feel tired"
    # a word that negates tells what it negates
    cases = [
        ("rarely", WEAK, ()), ("invalid", FULL, ("valid",)), ("excluded", FULL, ("includ",)),
        ("unit", "", ("it",)),
    ]  # fmt: skip

    def check(word, kind, stems):
        assert negation_of(word) == kind
        assert not kind or negated_stems(word) == stems

    assert failing(check, cases) == []


def test_negations_are_read_in_pieces_and_twice_at_most(monkeypatch):
    # reading in pieces finds what reading the whole finds
    def check(piece, pattern):
        source = "i don't sleep. i feel tired, and i never, e.g. at no time, feel - but - hungry and so it failed to "
        expected = [found.span() for found in pattern.finditer(source * 3)]
        monkeypatch.setattr(negation, "_PIECE", piece)
        assert [found.span() for found in negation._all(pattern, source * 3, 0, 3 * len(source))] == expected

    assert failing(check, product([1, 7, 50_000], [negation._CLAUSE_END, negation._REACHING])) == []
    # a quote at very many places reads the source twice at most
    read = []
    marks = negation._marks
    monkeypatch.setattr(
        negation,
        "_marks",
        lambda source, start, place, beyond: (
            read.append(beyond - start) or marks(source, start, place, beyond)
        ),
    )
    source = "i never feel tired. " * 90
    clauses = Clauses(source)
    assert all(clauses.always_negates(quote) for quote in ("feel", "tired", "eel t"))
    assert sum(read) <= 2 * len(source)


WORDS = sorted(
    words_of(
        "i we not only no never none don't isnt rather than unable to lacks free of and or so but when dr. e.g. end. "
        "feel tired x n't - -- \u2014 \u2013 , ; ! \u2026 . ' )"
    )
)
GAPS = st.sampled_from((" ", " ", " ", "", ", "))
SPEECH = st.lists(st.tuples(st.sampled_from(WORDS) | st.just("feel"), GAPS), max_size=120)


@given(SPEECH, st.sampled_from(("", " - ", "! ")), st.integers(0, 100), st.integers(0, 30))
def test_what_is_read_around_a_place_says_of_it_what_the_whole_source_says(words, link, links, distance):
    spoken = link * links + "".join(word + gap for word, gap in words) + " not " + "feel " * distance
    source = " ".join((spoken + "tired feel tired").split())
    whole = Clauses(source)
    whole._whole = negation._marks(source, 0, len(source), len(source))
    for place in range(0, len(source), 1 + len(source) // 100):
        assert Clauses(source).negates(place) == whole.negates(place)
    for quote in ("feel", "tired", "d f", "n", " "):
        assert Clauses(source).always_negates(quote) == whole.always_negates(quote)
