from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.verify.results import CitationCheck, CitationState, VerificationResult

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_result_is_the_pair_of_valid_and_reason():
    assert VerificationResult(valid=False, reason="HTTP 404") == (False, "HTTP 404")


def test_result_says_that_it_proves_existence_only():
    assert VerificationResult(valid=True, reason="").kind == "existence"


@pytest.mark.parametrize("state", list(CitationState))
def test_only_verified_is_valid(state):
    assert CitationCheck(state, "", NOW).valid is (state == "verified")


@given(st.text(max_size=3000))
def test_detail_is_one_printable_line_of_at_most_500_characters(text):
    detail = CitationCheck(CitationState.UNKNOWN, text, NOW).detail
    assert len(detail) <= 500
    assert detail.isprintable()


def test_text_is_bounded():
    text = CitationCheck(CitationState.VERIFIED, "", NOW, "x" * 50_000).text
    assert text is not None
    assert len(text) == 20_000


def test_checked_at_is_in_utc():
    here = NOW.astimezone(timezone(timedelta(hours=5)))
    assert (
        CitationCheck(CitationState.UNKNOWN, "", here).checked_at.isoformat() == "2026-01-02T00:00:00+00:00"
    )


def test_naive_checked_at_is_refused():
    with pytest.raises(ValueError, match="offset"):
        CitationCheck(CitationState.UNKNOWN, "", datetime(2026, 1, 2))  # noqa: DTZ001 - the naive time is the test
