"""Quote grounding: what is accepted, what is rejected, and what is said about it (S1-16..S1-44)."""

import dataclasses
import sys
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks import quotes as module
from groundwire.checks.quote_text import comparison_form
from groundwire.checks.quotes import (
    EvidenceSchemaError,
    QuoteRules,
    ground_quotes,
    threshold_advice,
    validate_evidence_schema,
)
from tests.unit.checks.tables import failing


def accepted(quote, source, **rules):
    return ground_quotes({"d": [quote]}, source, QuoteRules(**rules)).validated["d"] == [quote]


def test_what_stands_there_after_normalising_is_accepted():
    cases = [
        ("I   feel  tired", "I feel tired all the time"), ("I CAN'T SLEEP", "i can’t sleep at all"),
        ("I'm tired yeah", "I'm tired <laughter> yeah"), ("has 10⁹ rec", "it has 10⁹ records"),
    ]  # fmt: skip
    assert [(quote, source) for quote, source in cases if not accepted(quote, source)] == []


def test_what_does_not_stand_there_is_rejected():
    cases = [
        ("feeling tired all day", "I feel tired the whole day"), ("10⁹ records", "109 records"),
        ("109 records", "10⁹ records"), ("latency 3", "latency < 5 ms and load > 3"),
    ]  # fmt: skip
    assert [(quote, source) for quote, source in cases if accepted(quote, source)] == []


def test_an_empty_quote_is_rejected_in_both_modes():
    def check(mode, quote):
        found = ground_quotes({"d": [quote]}, "text", QuoteRules(mode=mode))
        assert [rejected.why for rejected in found.rejected] == ["empty"]

    assert failing(check, product(["substring", "fuzzy"], ["", "  ", "\u200b", "<laughter>"])) == []


def test_short_quotes_and_parts_of_words_are_rejected_only_where_asked():
    assert accepted("ab", "ab cd")
    assert not accepted("ab", "ab cd", min_characters=3)
    assert not accepted("ab", "ab cd", min_words=2)
    assert accepted("ab cd", "ab cd", min_characters=5, min_words=2)
    assert not accepted("art", "party", word_boundaries=True)
    assert accepted("art", "party, art", word_boundaries=True)
    assert accepted("impor\u00adtant", "important", remove_soft=True)
    assert not accepted("impor\u00adtant", "important")


quotes = st.text(alphabet="ab <>¹1.", max_size=4)


@given(
    st.dictionaries(st.text(max_size=3), st.lists(quotes, max_size=4), max_size=3),
    st.text(alphabet="ab <>¹1."),
)
def test_counts_add_up_and_no_ungrounded_quote_is_validated(evidence, source):
    found = ground_quotes(evidence, source, QuoteRules())
    stats, form = found.stats, comparison_form(source)
    for domain, given_quotes in evidence.items():
        grounded = [q for q in given_quotes if comparison_form(q) and comparison_form(q) in form]
        assert found.validated[domain] == grounded
        assert stats.rejected_by_domain[domain] == len(given_quotes) - len(grounded)
    assert list(found.validated) == list(stats.rejected_by_domain) == list(evidence)
    assert stats.extracted_count == sum(map(len, evidence.values()))
    assert stats.rejected_count == stats.extracted_count - stats.validated_count == len(found.rejected)
    assert (found.failure is not None) == (stats.extracted_count > 0 == stats.validated_count)


def test_results_are_frozen():
    found = ground_quotes({"d": ["x"]}, "y", QuoteRules())
    for part in (found, found.stats, found.rejected[0], QuoteRules()):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(part, dataclasses.fields(part)[0].name, None)


def test_nothing_grounded_is_a_failure_with_its_counts_and_mode():
    found = ground_quotes({"a": ["q", "y"], "b": []}, "text", QuoteRules())
    assert found.failure == {
        "category": "EVIDENCE_HALLUCINATION",
        "severity": "ERROR",
        "stage": "evidence_extraction",
        "extracted_count": 2,
        "mode": "substring",
    }
    assert ground_quotes({"a": []}, "text", QuoteRules()).failure is None
    assert ground_quotes({"a": ["q", "text"]}, "text", QuoteRules()).failure is None


def test_each_rejection_is_an_event_and_all_together_are_one():
    found = ground_quotes({"mood": ["I feel hopeless", "okay"], "sleep": []}, "I am okay", QuoteRules())
    rejection, summary = found.events()
    assert (rejection.name, rejection.level) == ("evidence_quote_rejected", "warning")
    assert rejection.payload == {
        "domain": "mood",
        "quote_hash": "8fcb07baa023",
        "quote_len": 15,
        "transcript_hash": found.transcript_hash,
        "transcript_len": 9,
        "mode": "substring",
    }
    assert (summary.name, summary.level) == ("evidence_grounding_complete", "info")
    assert summary.payload == {
        "extracted_count": 2,
        "validated_count": 1,
        "rejected_count": 1,
        "rejected_by_domain": {"mood": 1, "sleep": 0},
        "transcript_hash": found.transcript_hash,
    }
    assert ground_quotes({"mood": ["okay"]}, "I am okay", QuoteRules()).events() == []


def test_events_are_bounded_in_number_and_size():
    evidence = {f"{'d' * 500}{number}": ["q"] for number in range(1500)}
    events = ground_quotes(evidence, "text", QuoteRules()).events()
    assert len(events) == 1001
    assert max(len(event.payload["domain"]) for event in events[:-1]) == 100
    assert events[-1].payload["rejected_count"] == 1500
    assert events[-1].payload["truncated"] == 1400


def test_the_source_and_each_different_quote_are_normalised_once(monkeypatch):
    seen = []
    form = module.comparison_form
    monkeypatch.setattr(module, "comparison_form", lambda text, **how: seen.append(text) or form(text, **how))
    ground_quotes({"a": ["one", "two"] * 50, "b": ["one"]}, "one source", QuoteRules())
    assert sorted(seen) == ["one", "one source", "two"]


def test_substring_needs_no_rapidfuzz_and_fuzzy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    assert accepted("text", "some text")
    with pytest.raises(RuntimeError, match="pip install rapidfuzz"):
        accepted("text", "some text", mode="fuzzy")


def test_rules_that_there_are_not_are_refused():
    wrongs = [
        {"mode": "semantic"}, {"fuzzy_threshold": 0.49}, {"fuzzy_threshold": 1.01},
        {"fuzzy_threshold": float("nan")},
    ]  # fmt: skip

    def check(wrong):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            QuoteRules(**wrong)

    assert failing(check, wrongs) == []


def test_a_threshold_that_accepts_paraphrases_is_advised_against():
    assert threshold_advice(0.79)
    assert threshold_advice(0.8) is None
    assert QuoteRules().mode == "substring"


def test_the_schema_drops_repeats_and_blanks_and_adds_missing_domains():
    value = {"b": ["q1", "q1", " ", "", "q2", " q1 "], "a": []}
    assert validate_evidence_schema(value, ["a", "c"]) == {"a": [], "c": [], "b": ["q1", "q2"]}
    assert list(validate_evidence_schema(value, ["a", "c"])) == ["a", "c", "b"]


def test_another_shape_is_refused_by_the_domains_name_without_its_text():
    values = [{"k": "not a list"}, {"k": ["fine", 1]}, {"k": None}, {"k": {"secret": 1}}]

    def check(value):
        with pytest.raises(EvidenceSchemaError, match="'k'") as caught:
            validate_evidence_schema({"fine": ["secret"], **value})
        assert caught.value.domains == ("k",)
        assert not {"secret", "not a list", "fine"} & set(str(caught.value).replace("'", " ").split())

    assert failing(check, values) == []


def test_what_is_no_object_is_refused():
    def check(value):
        with pytest.raises(EvidenceSchemaError, match=type(value).__name__) as caught:
            validate_evidence_schema(value)
        assert "secret" not in str(caught.value)

    assert failing(check, [None, [], "secret", 5]) == []


def test_an_error_names_few_domains_in_short():
    with pytest.raises(EvidenceSchemaError, match="and 90 more") as caught:
        validate_evidence_schema({f"{'k' * 500}{number}": 1 for number in range(100)})
    assert len(str(caught.value)) < 1200
