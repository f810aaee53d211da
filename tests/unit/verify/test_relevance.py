import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.verify.relevance import MINIMUM_RELEVANCE, relevance

ADR = """# ADR-003: Storage engine
We decided to use PostgreSQL for persistent storage because transactions matter. Backups run nightly."""


def test_a_source_about_the_claim_is_relevant():
    assert (
        relevance("Per ADR-003, PostgreSQL stores persistent data in transactions", ADR) >= MINIMUM_RELEVANCE
    )


def test_a_source_about_something_else_is_not():
    assert relevance("Per ADR-003, the frontend framework is React with TypeScript", ADR) < MINIMUM_RELEVANCE


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("stores", "store"),
        ("stored", "storing"),
        ("migrations", "migrated"),
        ("policies", "policy"),
        ("planned", "plan"),
        ("calls", "called"),
        ("processes", "process"),
        ("Postgres", "PostgreSQL"),
        ("CAFÉ", "café"),
    ],
)
def test_inflections_of_a_word_agree(one, other):
    assert relevance(one, other) == relevance(other, one) == 1.0


@pytest.mark.parametrize(
    ("one", "other"), [("cache", "queue"), ("5432", "5433"), ("status", "state"), ("is", "is")]
)
def test_other_words_do_not_agree(one, other):
    assert relevance(one, other) == 0.0


@pytest.mark.parametrize(
    "citation",
    ["ADR-003", "[ADR 3]", "https://e.example/postgres/x", "#123", "GH-45", "deadbeef1", "a1b2c3d"],
)
def test_a_citation_is_no_vocabulary(citation):
    assert relevance(f"Redis caches {citation}", "redis caching") == 1.0
    assert relevance(f"Redis caches {citation}", f"about {citation}") == 0.0


def test_a_claim_without_content_words_shows_no_relevance():
    assert relevance("See ADR-003.", ADR) == 0.0


@given(st.text(), st.text())
def test_the_measure_is_a_share_rounded_to_four_decimals(claim, source):
    value = relevance(claim, source)
    assert 0.0 <= value <= 1.0
    assert value == round(value, 4)


@given(st.text(), st.text(), st.text())
def test_more_source_never_lowers_it(claim, source, more):
    assert relevance(claim, f"{source} {more}") >= relevance(claim, source)


@given(st.text())
def test_a_claim_is_relevant_to_itself_or_has_no_content(text):
    assert relevance(text, text) in {0.0, 1.0}
