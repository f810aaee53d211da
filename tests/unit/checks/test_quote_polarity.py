"""Quotes that stand only behind a negation (C-41)."""

import pytest

from groundwire.checks import quote_polarity
from groundwire.checks.quotes import QuoteRules, ground_quotes


def noted(quote, source, **rules):
    found = ground_quotes({"d": [quote]}, source, QuoteRules(**rules))
    assert found.validated == {"d": [quote]}
    return [(note.domain, note.index) for note in found.polarity] == [("d", 0)]


@pytest.mark.parametrize(
    "source",
    [
        "I don't feel tired",
        "I DON’T feel tired.",
        "I do not, in any way, feel tired",
        "I don't, you know, feel tired",
        "I never feel tired and never feel tired at night",
        "I can't say that I feel tired",
        "Nobody could feel tired here; she did not feel tired either.",
        "He hardly began to feel tired",
        "The patient denies that they feel tired",
        "No reason to feel tired",
        "She failed to feel tired",
        "Without Dr. Smith I would feel tired",
    ],
)
def test_a_quote_that_stands_only_behind_a_negation_gets_a_note(source):
    assert noted("feel tired", source)


@pytest.mark.parametrize(
    "source",
    [
        "I feel tired",
        "I don't sleep. I feel tired",
        "I don't sleep, I feel tired",
        "I don't sleep! Feel tired too",
        "I don't sleep but feel tired",
        "I don't sleep and I feel tired",
        "No, I feel tired",
        "Not only do I feel tired",
        "No doubt I feel tired",
        "I don't feel tired. Later I did feel tired.",
        "I feel tired, not hungry",
        "A notable knot makes me feel tired",
    ],
)
def test_a_quote_that_stands_somewhere_without_a_negation_before_it_gets_none(source):
    assert not noted("feel tired", source)


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


@pytest.mark.parametrize("piece", [1, 7, 50_000])
@pytest.mark.parametrize("pattern", [quote_polarity._CLAUSE_END, quote_polarity._NEGATION])
def test_reading_in_pieces_finds_what_reading_the_whole_finds(pattern, piece, monkeypatch):
    source = (
        "i don't sleep. i feel tired, and i never, e.g. at no time, feel - but - hungry and so it failed to "
    )
    expected = [found.span() for found in pattern.finditer(source * 3)]
    monkeypatch.setattr(quote_polarity, "_PIECE", piece)
    assert [found.span() for found in quote_polarity._all(pattern, source * 3)] == expected
