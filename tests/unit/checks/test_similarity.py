"""Word-set Jaccard similarity and its threshold (S0-104..S0-106, S0-115, C-06)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.dedup.similarity import basis_points, is_near, jaccard_similarity
from tests.unit.checks.tables import differing, failing

words = st.lists(st.sampled_from(["a", "B", "b", "c,", "c", "ADR-003", "7", "é"]), max_size=12)


def brute_force(words1, words2):
    set1, set2 = {w.lower() for w in words1}, {w.lower() for w in words2}
    every = [*set1, *(w for w in set2 if w not in set1)]
    return sum(w in set1 and w in set2 for w in every) / len(every) if every else 0.0


@given(words, words)
def test_jaccard_is_common_words_over_all_words(words1, words2):
    assert jaccard_similarity(" ".join(words1), "\n".join(words2)) == brute_force(words1, words2)


@given(st.text(), st.text())
def test_jaccard_is_symmetric_and_between_0_and_1(text1, text2):
    assert jaccard_similarity(text1, text2) == jaccard_similarity(text2, text1)
    assert 0.0 <= jaccard_similarity(text1, text2) <= 1.0


@given(st.text())
def test_a_text_with_words_is_identical_to_itself(text):
    assert jaccard_similarity(text, text) == (1.0 if text.split() else 0.0)


def test_two_empty_texts_are_not_similar():
    assert jaccard_similarity("", "") == 0.0
    assert jaccard_similarity(" \n", "") == 0.0


def test_the_published_function_splits_on_white_space_alone():
    assert jaccard_similarity("per ADR-003, done", "per adr-003 done") == 2 / 4


def test_a_paraphrase_is_a_documented_miss():
    claim, paraphrase = (
        "Pixeltable stores all embeddings of the pipeline",
        "Every pipeline vector is kept in Pixeltable",
    )
    assert jaccard_similarity(claim, paraphrase) < 0.92


def test_the_default_threshold_is_inclusive():
    cases = [(23, 25, True), (11, 12, False), (91, 99, False), (92, 100, True), (0, 0, False)]
    assert differing(lambda inter, union: is_near(inter, union, basis_points(0.92)), cases) == []


@given(st.integers(1, 10_000), st.integers(0, 10**6), st.integers(1, 10**6))
def test_near_means_the_exact_fraction_reaches_the_threshold(parts, inter, union):
    assert is_near(inter, union, parts) == (Fraction(inter, union) >= Fraction(parts, 10_000))


@given(st.integers(1, 10_000))
def test_every_threshold_of_four_decimals_is_met_exactly(parts):
    assert basis_points(parts / 10_000) == parts


def test_a_threshold_that_cannot_be_is_refused_by_its_name():
    thresholds = [0, 1.0001, 92, 0.00001, float("nan")]

    def check(threshold):
        with pytest.raises(ValueError, match="dedup_threshold"):
            basis_points(threshold)

    assert failing(check, thresholds) == []
