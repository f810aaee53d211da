"""Claims are compared whatever the order in which they say things, and in some other words."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.parts import in_place
from groundwire.checks.dedup.signature import Thresholds, compare, signature
from groundwire.text.tokens import tokenize

THRESHOLDS = Thresholds(9200, 8500, 8000)


def compared(one, other):
    """Return in what two claims differ, None where neither repeats nor contradicts the other; it is symmetric."""
    signs = [signature(read_form(text)) for text in (one, other)]
    found = {compare(*pair, THRESHOLDS) for pair in (signs, signs[::-1])}
    assert len(found) == 1
    match = found.pop()
    return match and match.difference.value


def test_what_stands_at_another_place_of_a_claim_is_compared_with_its_like():
    cases = [
        ("number", "On Fridays the bank closes at 15:00.", "The bank closes at 16:00 on Fridays."),
        ("date", "The mill was sold by Anders in 2017.", "In 2019 Anders sold the mill."),
        ("unit", "The sync call's timeout is 30 s.", "The timeout of the sync call is 30 min."),
        ("date", "4 June is the deadline for bids.", "The deadline for bids is 14 June."),
    ]  # fmt: skip
    assert [
        (one, other, got) for difference, one, other in cases if (got := compared(one, other)) != difference
    ] == []


def test_the_same_at_another_place_is_no_conflict():
    cases = [
        ("In winter the pass is shut.", "The pass is shut in winter."),
        ("Within 14 days shoes may come back.", "Shoes may come back within two weeks."),
        ("The kiln's weight limit is 8 kg.", "The weight limit of the kiln is 8 kg."),
        ("The baker feeds the oven every morning.", "The oven is fed by the baker every morning."),
        ("The inn has a heated pool.", "The pool of the inn is heated."),
    ]  # fmt: skip
    assert [(one, other) for one, other in cases if compared(one, other) not in {None, "none"}] == []


def test_another_value_under_another_condition_is_no_conflict():
    cases = [
        ("On weekdays the lift runs every 8 minutes.", "The lift runs every 15 minutes on Sundays."),
        ("In the east hall the lamp is on.", "The lamp is off in the west hall."),
        ("From 3 May the cable car runs daily.", "From 10 May the cable car runs daily."),
        ("In room 12 the heater is set to 20.", "The heater is set to 22 in room 14."),
        ("The tram leaves at 7:30.", "On Sundays the tram leaves at 8:30."),
    ]  # fmt: skip
    assert [(one, other) for one, other in cases if compared(one, other) is not None] == []


def test_the_side_that_names_a_thing_is_held_against_the_side_that_is_said_of_it():
    cases = [
        ("opposite", "Each build runs the mandatory scan.", "The scan is optional for each build."),
        ("opposite", "The firm uses an internal mail server.", "The firm's mail server is external."),
        (None, "The inn has a heated pool.", "The pool of the inn is not unheated."),
        (None, "We tested the internal server.", "We tested the external server."),
        (None, "The inn has a heated pool of 20 metres.", "The pool is heated to 28 degrees."),
    ]  # fmt: skip
    assert [
        (one, other, got) for difference, one, other in cases if (got := compared(one, other)) != difference
    ] == []


def test_a_measure_a_place_and_an_owner_are_known_in_other_words():
    cases = [
        ("number", "The ticket costs 12 euros.", "The price of the ticket is 15 euros."),
        ("number", "The tower is 38 metres tall.", "The height of the tower is 42 metres."),
        ("value", "Ingrid owns the bakery.", "The owner of the bakery is Matteo."),
        (None, "The bakery was owned by Ingrid.", "The owner of the bakery is Matteo."),
    ]  # fmt: skip
    assert [
        (one, other, got) for difference, one, other in cases if (got := compared(one, other)) != difference
    ] == []


WORDS = st.sampled_from(
    ("after", "in", "every", "when", "14", "days", "may", "the", "hall", "is", "dry", ",", ".")
)


@given(st.lists(WORDS))
def test_moving_a_phrase_loses_no_word_and_moves_none_of_another_sentence(words):
    text = " ".join(words)
    tokens = tokenize(text)
    first = tokenize(text.partition(". ")[0])
    moved, phrase = in_place(tokens, text.partition(". ")[0], len(first))
    assert sorted(moved) == sorted(tokens)
    assert moved[len(first) :] == tokens[len(first) :]
    assert [moved[place] for place in phrase] == tokens[: len(phrase)]
