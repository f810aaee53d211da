"""The table of opposites, which claims and answers share, and the stems by which its words are found."""

from groundwire.checks.support.atoms import OPPOSITES
from groundwire.text.clauses import stem_of
from groundwire.text.opposites import opposite_words, side_of
from groundwire.text.stems import stem
from tests.unit.checks.tables import failing


def test_the_forms_of_opposite_verbs_and_what_a_prefix_denies_are_on_two_sides_of_one_pair():
    cases = [
        ("passes", "failed"), ("accepts", "rejecting"), ("safe", "unsafe"), ("approves", "disapproves"),
        ("active", "inactive"),
    ]  # fmt: skip

    def check(one, other):
        mine, theirs = side_of(one), side_of(other)
        assert mine
        assert theirs
        assert (mine.pair, mine.first) == (theirs.pair, not theirs.first)

    assert failing(check, cases) == []


def test_no_word_is_on_both_sides_of_its_pair():
    for one, other in opposite_words():
        mine, theirs = side_of(one), side_of(other)
        assert not mine or mine != theirs, (one, other)


def test_answers_know_the_irregular_forms_of_the_table():
    assert stem("sold") in OPPOSITES[stem("bought")]
    assert stem("fell") in OPPOSITES[stem("rose")]


def test_the_forms_of_a_verb_are_one_word():
    formses = [
        "deny denies denied denying", "agree agrees agreed agreeing",
        "succeed succeeds succeeded succeeding", "need needs needed needing", "age ages aged aging",
    ]  # fmt: skip
    assert [forms for forms in formses if len({stem_of(form) for form in forms.split()}) != 1] == []


def test_what_only_looks_like_an_ending_stays():
    words = ["bed", "thing", "king", "e", "class"]
    assert [word for word in words if stem_of(word)[:2] != word[:2]] == []
