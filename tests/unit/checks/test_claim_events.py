"""Which values make a claim one of another event, and what denies or affirms a whole claim."""

from groundwire.checks.dedup.form import read_form
from groundwire.checks.dedup.signature import Difference, Thresholds, compare, signature

THRESHOLDS = Thresholds(9200, 8500, 8000)


def between(one, other):
    found = compare(signature(read_form(one)), signature(read_form(other)), THRESHOLDS)
    return found and found.difference


def test_what_can_have_happened_again_is_another_event_with_another_date_or_ordinal():
    cases = [
        ("Nils toured Iceland in 2015.", "Nils toured Iceland in 2021."),
        ("The boiler was cleaned on 4 March.", "The boiler was cleaned on 9 June."),
        ("The siren sounded at 7:10.", "The siren sounded at 21:45."),
        ("In the first act the tenor sings twice.", "In the third act the tenor sings once."),
        ("Rainfall in the first quarter was 40 mm.", "Rainfall in the third quarter was 90 mm."),
    ]  # fmt: skip
    assert [(one, other) for one, other in cases if between(one, other) is not None] == []


def test_what_happens_once_or_is_so_conflicts_with_another_date():
    cases = [
        ("The brewery was founded in 1831.", "The brewery was founded in 1813."),
        ("The permit expires on 4 March.", "The permit expires on 9 June."),
        ("The hearing was on Monday.", "The hearing was on Friday."),
        ("Parcel 77 was weighed on Monday.", "Parcel 77 was weighed on Friday."),
    ]  # fmt: skip
    assert [(one, other) for one, other in cases if between(one, other) is not Difference.DATE] == []


def test_what_denies_a_whole_claim_or_turns_it_round_is_a_difference():
    cases = [
        ("Swifts breed in the barn.", "It is not the case that swifts breed in the barn.", "negation"),
        ("Entries close at noon.", "Entries close at midnight.", "number"),
        ("The beacon is on.", "The beacon is off.", "opposite"),
        ("The result was conclusive.", "The result was inconclusive.", "negation"),
        ("The smith shoes horses on Mondays.", "The smith has ceased shoeing horses on Mondays.", "negation"),
    ]  # fmt: skip
    assert [
        (one, other, difference)
        for one, other, difference in cases
        if between(one, other) != Difference(difference)
    ] == []


def test_what_says_the_same_in_other_words_does_not_differ():
    cases = [
        ("It is true that swifts breed in the barn.", "Swifts breed in the barn."),
        ("It is not false that swifts breed in the barn.", "Swifts breed in the barn."),
        ("Entries close at noon.", "Entries close at 12:00."),
        ("The counter is not open on Mondays.", "The counter is closed on Mondays."),
        ("The fence is forty metres long.", "The fence is 40 m long."),
    ]  # fmt: skip
    assert [(one, other) for one, other in cases if between(one, other) not in {None, Difference.NONE}] == []
