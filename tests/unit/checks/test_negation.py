"""Words that negate, and quotes that stand only behind a negation (C-41)."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.quotes import QuoteRules, ground_quotes
from groundwire.text import negation
from groundwire.text.negation import FULL, WEAK, Clauses, negated_stems, negation_of
from groundwire.text.stems import words_of
from tests.unit.checks.tables import failing


def test_a_word_that_negates_tells_what_it_negates():
    cases = [
        ("rarely", WEAK, ()), ("invalid", FULL, ("valid",)), ("excluded", FULL, ("includ",)),
        ("unit", "", ("it",)),
    ]  # fmt: skip

    def check(word, kind, stems):
        assert negation_of(word) == kind
        assert not kind or negated_stems(word) == stems

    assert failing(check, cases) == []


def noted(quote, source, **rules):
    found = ground_quotes({"d": [quote]}, source, QuoteRules(**rules))
    assert found.validated == {"d": [quote]}
    return [(note.domain, note.index) for note in found.polarity] == [("d", 0)]


def test_a_quote_that_stands_only_behind_a_negation_gets_a_note():
    sources = [
        "I DON’T feel tired.", "He is refusing to feel tired", "You neednt feel tired",
        "Nobody could feel tired here; she did not feel tired either.",
    ]  # fmt: skip
    assert [source for source in sources if not noted("feel tired", source)] == []


def test_a_quote_that_stands_somewhere_without_a_negation_before_it_gets_none():
    sources = [
        "I feel tired", "No, I feel tired", "Not only do I feel tired",
        "I don't feel tired. Later I did feel tired.",
    ]  # fmt: skip
    assert [source for source in sources if noted("feel tired", source)] == []


def test_a_negation_inside_the_quote_is_part_of_it():
    assert not noted("don't feel tired", "I don't feel tired")
    assert not noted("I don't feel tired", "I don't feel tired")
    assert noted("t feel tired", "I don't feel tired")


def test_a_negation_far_off_in_text_without_full_stops_does_not_reach():
    assert not noted(
        "feel tired", "i do not " + "know what to say about all of that and " * 10 + "feel tired"
    )


def test_places_inside_words_do_not_count_where_words_have_to_be_whole():
    source = "party. I don't like art"
    assert not noted("art", source)
    assert noted("art", source, word_boundaries=True)
    assert not noted("feel tired", "I feel tired. I don't feel tired.", word_boundaries=True)


def test_the_note_names_the_place_among_the_validated_quotes():
    evidence = {"a": ["I sleep"], "b": ["not there", "sleep well", "feel tired"]}
    found = ground_quotes(evidence, "I sleep well. I don't feel tired.", QuoteRules())
    assert [(note.domain, note.index) for note in found.polarity] == [("b", 1)]
    assert found.validated["b"][1] == "feel tired"


def test_a_fuzzy_match_behind_a_negation_gets_a_note():
    source = "I do not think so. He never, said the boss, will leave the old harbour town again"
    assert noted("will leave the old harbor town again", source, mode="fuzzy")


def test_reading_in_pieces_finds_what_reading_the_whole_finds(monkeypatch):
    def check(piece, pattern):
        source = "i don't sleep. i feel tired, and i never, e.g. at no time, feel - but - hungry and so it failed to "
        expected = [found.span() for found in pattern.finditer(source * 3)]
        monkeypatch.setattr(negation, "_PIECE", piece)
        assert [found.span() for found in negation._all(pattern, source * 3, 0, 3 * len(source))] == expected

    assert failing(check, product([1, 7, 50_000], [negation._CLAUSE_END, negation._REACHING])) == []


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


def test_a_quote_at_very_many_places_reads_the_source_twice_at_most(monkeypatch):
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
