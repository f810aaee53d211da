"""Relevance: whether what a claim cites supports it, by the verifier of responses."""

from hypothesis import given
from hypothesis import strategies as st

from groundwire.policy import Policy
from groundwire.verify.relevance import MAX_SOURCES, relevance

LEAST = Policy().relevance_minimum
ADR = """# ADR-003: Storage engine
We decided to use PostgreSQL for persistent storage because transactions matter. Backups run nightly and are kept
for 30 days. Attachments are not stored in the database."""


def support(claim, *sources):
    return relevance(claim, sources or [ADR])[0]


def test_a_source_supports_what_it_says_and_nothing_that_it_says_otherwise_or_not_at_all():
    expected = {
        "Per ADR-003, we use PostgreSQL for persistent storage.": True,
        "Backups run nightly (ADR-003).": True,
        "ADR-003 says that backups are kept for thirty days.": True,
        "Attachments are not stored in the database, see ADR-003.": True,
        "PostgreSQL is used for storage [ADR-003].": True,
        "Per ADR-003, the frontend framework is React with TypeScript.": False,
        "Per ADR-003, we do not use PostgreSQL for persistent storage.": False,
        "Attachments are stored in the database, see ADR-003.": False,
        "Backups are kept for 60 days (ADR-003).": False,
        "Per ADR-003, we use MongoDB for persistent storage.": False,
        "Backups never run nightly (ADR-003).": False,
    }
    assert {claim: support(claim) >= LEAST for claim in expected} == expected


def test_sources_support_a_claim_together_and_one_beside_the_point_does_not():
    claim = "Backups run nightly (ADR-003), and the office closes at noon (ADR-005)."
    scores = relevance(claim, [ADR, "The office closes at noon.", "Cats purr."])
    assert min(scores[:2]) >= LEAST > scores[2] == 0.0
    assert support(claim) < LEAST


def test_a_citation_is_no_part_of_what_a_claim_says():
    for citation in (
        *("ADR-003", "[ADR 3]", "https://e.example/postgres/x", "issue #123", "GH-45"),
        *("deadbeef1", "a1b2c3d"),
    ):
        assert support(f"Redis keeps sessions {citation}", "Redis keeps sessions.") >= LEAST, citation
        assert support(f"Redis keeps sessions {citation}", f"about {citation}") < LEAST, citation
    assert support("See ADR-003.", "it is") == support("ADR-003", ADR) == 0.0, "no content word"


def test_sources_beyond_the_limit_are_not_looked_at():
    long = "Cats purr. " * (MAX_SOURCES // 11)
    assert relevance("Backups run nightly", [long, ADR]) == [0.0, 0.0]
    assert relevance("Backups run nightly", [ADR, long])[0] >= LEAST


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=3))
def test_the_measure_is_one_number_a_source_of_0_to_1_rounded_to_four_decimals(claim, sources):
    values = relevance(claim, sources)
    assert len(values) == len(sources)
    assert all(0.0 <= value <= 1.0 and value == round(value, 4) for value in values)
