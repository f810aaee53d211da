"""The lexicon of scientific hedges: what it adds, and that nothing is added unasked."""

import pytest

from groundwire.checks.hedge_lexicon import LEXICONS, hedge_lexicon
from groundwire.checks.hedges import HedgeAction, HedgeDetector
from groundwire.decide.reading import read
from groundwire.policy import Policy

SCIENTIFIC = HedgeDetector(review=hedge_lexicon("scientific"))
HEDGED = [
    "These data suggest that the factor binds the promoter.",
    "The gene is hypothesized to be silenced.",
    "Whether the receptor is active is unclear.",
    "The protein could play a part in repair.",
    "A putative binding site was found.",
]


@pytest.mark.parametrize("sentence", HEDGED)
def test_a_scientific_hedge_sends_a_claim_to_review_where_the_lexicon_is_asked_for(sentence):
    assert SCIENTIFIC.analyze(sentence).action is HedgeAction.REVIEW
    assert HedgeDetector().analyze(sentence).action is HedgeAction.CONTINUE


@pytest.mark.parametrize(
    "sentence",
    [
        "The factor binds the promoter.",
        "The antibody could not be detected.",
        "Cells were grown in May 2019.",
    ],
)
def test_what_was_found_is_no_hedge_with_the_lexicon_either(sentence):
    assert SCIENTIFIC.analyze(sentence).action is HedgeAction.CONTINUE


def test_the_lexicon_takes_no_strictness_from_what_is_built_in():
    assert SCIENTIFIC.analyze("I think it may bind.").action is HedgeAction.BLOCK


@pytest.mark.parametrize("name", LEXICONS)
def test_a_lexicon_holds_each_phrase_once_in_lower_case(name):
    phrases = hedge_lexicon(name)
    assert len(phrases) == len(set(phrases)) > 0
    assert all(phrase == phrase.lower() and not phrase.startswith("#") for phrase in phrases)


def test_no_lexicon_is_empty_and_an_unknown_one_is_named():
    assert hedge_lexicon("none") == ()
    with pytest.raises(ValueError, match="hedge_lexicon must be none or scientific, got 'poetic'"):
        hedge_lexicon("poetic")


def test_a_policy_adds_a_lexicon_to_its_own_words_and_only_where_it_names_one():
    said = "These findings indicate that the kinase binds."
    assert not read(said, Policy()).hedges
    policy = Policy.model_validate({"hedges": {"lexicon": "scientific", "review": ["gut feeling"]}})
    assert read(said, policy).hedges
    assert read("A gut feeling says so.", policy).hedges
