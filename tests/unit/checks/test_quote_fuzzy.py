"""Fuzzy matching and its guards (S1-25..S1-29, C-37, C-38)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rapidfuzz import fuzz

from groundwire.checks import quote_text, quotes
from groundwire.checks.quote_text import OutOfSteps, Steps, best_windows
from groundwire.checks.quotes import QuoteRules, ground_quotes
from tests.unit.checks.tables import failing

PLENTY = 10**12


def outcome(quote, source, threshold=0.85):
    found = ground_quotes({"d": [quote]}, source, QuoteRules(mode="fuzzy", fuzzy_threshold=threshold))
    return "accepted" if not found.rejected else found.rejected[0].why


@pytest.mark.parametrize("stretch", [2000, 7])
@pytest.mark.parametrize("short", [64, 2])
@given(data=st.data(), least=st.sampled_from([0.01, 0.5, 0.7, 0.85, 0.95]))
def test_the_best_window_scores_what_one_call_on_everything_scores(stretch, short, data, least):
    """Whether a quote is read in calls on stretches or by halving, and wherever stretches end."""
    source = data.draw(st.text(alphabet="abc é", min_size=1, max_size=60))
    quote = data.draw(st.text(alphabet="abc é", min_size=1, max_size=min(12, len(source))))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quote_text, "_STRETCH", stretch)
        patch.setattr(quote_text, "SHORT", short)
        windows = list(best_windows(quote, source, least, Steps(PLENTY)))
    best = max((window.score for window in windows), default=0.0)
    whole = fuzz.partial_ratio(quote, source) / 100
    assert best == pytest.approx(whole if whole >= least or windows else 0.0)


@settings(max_examples=30)
@given(
    st.text(alphabet="abcd ", min_size=65, max_size=90), st.text(alphabet="abcd ", min_size=91, max_size=300)
)
def test_long_quotes_score_the_same_too(quote, source):
    best = max(window.score for window in best_windows(quote, source, 0.01, Steps(PLENTY)))
    assert best == pytest.approx(fuzz.partial_ratio(quote, source) / 100)


def test_work_is_counted_and_ends():
    with pytest.raises(OutOfSteps):
        list(best_windows("ab" * 50, "abb" * 1000, 0.7, Steps(10_000)))


def test_the_threshold_is_inclusive():
    """17 of 20 characters are shared: 0.85."""
    cases = [(0.84, "accepted"), (0.85, "accepted"), (0.86, "not_found")]
    assert [
        (threshold, got)
        for threshold, result in cases
        if (got := outcome("abcdefghijklmnopqxyz", "-" * 20 + "abcdefghijklmnopq" + "-" * 20, threshold))
        != result
    ] == []


def test_at_a_threshold_of_one_only_exact_quotes_count():
    assert outcome("feel tired today", "I feel tired, today", 1.0) == "not_found"
    assert outcome("feel tired today", "I feel tired  TODAY", 1.0) == "accepted"


def test_drift_in_spacing_and_punctuation_is_accepted():
    cases = [
        ("the timeout is 30 s", "config: the timeout, is 30 s. for all"),
        ("I feel tired and worthless every day", "well I feel tired, worthless every day, ok"),
        ("the records are kept for thirty days in all", "the records are, kept for 30 days in all cases"),
        ("the limit is not 5 but 10 per day", "(the limit is not 5, but 10, per day)"),
        ("retry the request after a short pause", "It will never. retry the request, after short pause"),
    ]  # fmt: skip
    assert [(quote, source) for quote, source in cases if outcome(quote, source) != "accepted"] == []


def test_another_number_or_unit_is_no_match_whatever_the_score():
    cases = [
        ("the timeout is 30 s", "the timeout is 300 s for all; 30 s elsewhere"),
        ("the timeout is 30 s", "the timeout is 30 ms"),
        ("the timeout of this operation is 30", "the timeout of this operation is 81"),
        ("up to 10⁹ records are kept here", "up to 109 records are kept here!"),
        ("it costs $1.2 million in all, they say", "it costs $1.2 billion in all, they say"),
    ]  # fmt: skip
    assert [(quote, source) for quote, source in cases if outcome(quote, source) != "number"] == []


def test_another_negation_is_no_match_whatever_the_score():
    cases = [
        ("I feel hopeless and lost these days", "I feel not hopeless and lost these days"),
        ("I feel not hopeless and lost these days", "I feel hopeless and lost these days, so much"),
        ("do retry it always with care", "we do not retry it always with care"),
        ("not fast but it is cheap enough", "fast but it is not cheap enough ok"),
        ("the worker is able to retry it", "the worker is unable to retry it"),
    ]  # fmt: skip
    assert [(quote, source) for quote, source in cases if outcome(quote, source) != "negation"] == []


def test_a_place_that_says_something_else_does_not_hide_one_that_says_the_same():
    other = "the request limit is 80 per day. "
    assert (
        outcome(
            "the request limit is 30 per day", other * 20 + "the request,, limit is 30 per days " + other * 20
        )
        == "accepted"
    )
    assert outcome("the request limit is 30 per day", other * 40) == "number"


def test_a_quote_longer_than_its_source_is_no_quote():
    assert outcome("I feel tired and hopeless all day", "I feel tired") == "too_long"
    assert outcome("x" * 10_001, "x," * 10_000) == "too_long"


def test_a_near_miss_carries_its_score_and_others_carry_none():
    source = "blah I feel tired, worthless every day ok"
    evidence = {
        "d": ["I feel tidy, worth it every day", "entirely different words", "I feel tired, 5 worthless"]
    }
    found = ground_quotes(evidence, source, QuoteRules(mode="fuzzy", fuzzy_threshold=0.9))
    scores = [quote.score for quote in found.rejected]
    assert scores == [
        pytest.approx(fuzz.partial_ratio(evidence["d"][0].lower(), source.lower()) / 100, abs=1e-4),
        None,
        pytest.approx(fuzz.partial_ratio(evidence["d"][2].lower(), source.lower()) / 100, abs=1e-4),
    ]
    assert [event.payload.get("score") for event in found.events()[:-1]] == scores


def test_reading_numbers_and_negations_is_counted_too(monkeypatch):
    cases = [("limit 5 " * 7, "limit 6 "), ("limit 5 " * 15, "limit 6 ")]

    def check(quote, unit):
        steps, looks = Steps(PLENTY), []
        differs = quotes.differs
        monkeypatch.setattr(quotes, "Steps", lambda _: steps)
        monkeypatch.setattr(quotes, "differs", lambda *given: looks.append(1) or differs(*given))
        ground_quotes({"d": [quote]}, unit * 500, QuoteRules(mode="fuzzy"))
        assert looks
        assert PLENTY - steps._left > 2000 * len(quote.strip()) * len(looks)

    assert failing(check, cases) == []


def test_what_is_left_when_the_work_is_done_is_rejected_and_said():
    many = ["ab" * 50 + str(number) for number in range(100)]
    found = ground_quotes({"d": many}, "abb" * 1000, QuoteRules(mode="fuzzy"))
    assert found.rejected[-1].why == "work_limit"
    assert found.stats.validated_count == 0
