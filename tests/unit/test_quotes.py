"""The public quote functions: settings, events, metrics and failure policy.

Requirements S1-01..S1-07, S1-35..S1-48, C-42, C-43.
"""

import doctest
import logging

import pytest
from prometheus_client import REGISTRY, generate_latest
from pydantic import ValidationError
from structlog.testing import capture_logs

from groundwire.library import quotes
from groundwire.library.quotes import (
    EvidenceGroundingError,
    EvidenceGroundingStats,
    EvidenceQuoteSettings,
    EvidenceSchemaError,
    ground_evidence,
    validate_evidence_grounding,
)
from tests.unit.checks.tables import failing

INVENTED = {"mood": ["I feel hopelessmarker"]}
TRANSCRIPT = "the transcriptmarker says I am okay"


class Recorder:
    def __init__(self):
        self.events = []

    def try_emit(self, event, payload):
        self.events.append((event, payload))

    @property
    def names(self):
        return [name for name, _ in self.events]


def metric(name, **labels):
    return REGISTRY.get_sample_value(name, labels) or 0.0


def settings(**values):
    return EvidenceQuoteSettings(**{f"evidence_quote_{name}": value for name, value in values.items()})


def test_defaults_are_validation_by_substring_that_logs_and_does_not_raise():
    found = EvidenceQuoteSettings()
    assert found.evidence_quote_validation_enabled is True
    assert found.evidence_quote_validation_mode == "substring"
    assert found.evidence_quote_fuzzy_threshold == 0.85
    assert found.evidence_quote_fail_on_all_rejected is False
    assert found.evidence_quote_log_rejections is True


def test_settings_come_from_the_environment(monkeypatch):
    for name, value in (
        ("VALIDATION_ENABLED", "false"),
        ("VALIDATION_MODE", "fuzzy"),
        ("FUZZY_THRESHOLD", "0.9"),
        ("FAIL_ON_ALL_REJECTED", "1"),
        ("LOG_REJECTIONS", "0"),
        ("MIN_WORDS", "2"),
    ):
        monkeypatch.setenv(f"GROUNDWIRE_EVIDENCE_QUOTE_{name}", value)
    found = EvidenceQuoteSettings()
    assert found.evidence_quote_validation_enabled is False
    assert found.evidence_quote_fail_on_all_rejected is True
    assert found.evidence_quote_log_rejections is False
    assert (found.rules.mode, found.rules.fuzzy_threshold, found.rules.min_words) == ("fuzzy", 0.9, 2)
    monkeypatch.setenv("GROUNDWIRE_EVIDENCE_QUOTE_VALIDATION_ENABLED", "true")
    with pytest.raises(EvidenceGroundingError):
        ground_evidence(INVENTED, TRANSCRIPT, sink=Recorder())


def test_settings_and_arguments_out_of_range_are_refused_and_the_ends_are_in_it():
    def check(name, value):
        with pytest.raises(ValidationError):
            settings(**{name: value})
        with pytest.raises(ValueError, match=name.removeprefix("validation_")):
            validate_evidence_grounding({}, "", **{name.removeprefix("validation_"): value})

    wrong = [("validation_mode", "semantic"), ("fuzzy_threshold", 0.49), ("fuzzy_threshold", 1.01)]
    assert failing(check, wrong) == []
    for end in (0.5, 1.0):
        assert settings(fuzzy_threshold=end).rules.fuzzy_threshold == end


def test_validating_keeps_what_stands_there_and_says_what_does_not():
    sink = Recorder()
    evidence = {"mood": ["I am OKAY", "I feel hopeless"], "other": ["x"]}
    kept, stats = validate_evidence_grounding(evidence, "I am okay", sink=sink)
    assert kept == {"mood": ["I am OKAY"], "other": []}
    assert stats == EvidenceGroundingStats(3, 1, 2, {"mood": 1, "other": 1})
    assert sink.names == ["evidence_quote_rejected"] * 2 + ["evidence_grounding_complete"]
    silent = Recorder()
    validate_evidence_grounding(INVENTED, TRANSCRIPT, log_rejections=False, sink=silent)
    assert silent.events == []


def test_events_go_to_the_log_at_their_levels_by_default():
    with capture_logs() as logs:
        validate_evidence_grounding(INVENTED, TRANSCRIPT)
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("evidence_quote_rejected", "warning"),
        ("evidence_grounding_complete", "info"),
    ]


def test_a_low_threshold_is_warned_of_in_fuzzy_mode_only():
    sink = Recorder()
    validate_evidence_grounding({"d": ["okay"]}, "okay", mode="fuzzy", fuzzy_threshold=0.79, sink=sink)
    assert sink.names == ["evidence_quote_threshold_low"]
    validate_evidence_grounding({"d": ["okay"]}, "okay", mode="fuzzy", fuzzy_threshold=0.8, sink=sink)
    validate_evidence_grounding({"d": ["okay"]}, "okay", fuzzy_threshold=0.5, sink=sink)
    assert len(sink.events) == 1


def test_a_sink_that_breaks_changes_nothing():
    class Broken:
        def try_emit(self, *_event):
            raise OSError

    found = ground_evidence(INVENTED, TRANSCRIPT, settings(), sink=Broken())
    assert found.evidence == {"mood": []}


def test_evidence_that_holds_in_part_is_handed_on_with_its_counts():
    evidence = {"mood": ["I am okay", "I am okay", "I am well"]}
    found = ground_evidence(evidence, TRANSCRIPT, settings(), domains=["sleep"], sink=Recorder())
    assert found.evidence == {"sleep": [], "mood": ["I am okay"]}
    assert (found.validated, found.failure) == (True, None)
    assert (found.llm_evidence_extracted_count, found.llm_evidence_rejected_count) == (2, 1)
    assert found.stats.rejected_by_domain == {"sleep": 0, "mood": 1}


def test_nothing_grounded_is_seen_whatever_is_logged():
    def check(log_rejections):
        sink = Recorder()
        before = metric("groundwire_quote_failures_total", mode="substring")
        found = ground_evidence(INVENTED, TRANSCRIPT, settings(log_rejections=log_rejections), sink=sink)
        assert found.evidence == {"mood": []}
        assert found.failure["category"] == "EVIDENCE_HALLUCINATION"
        assert dict(sink.events)["evidence_failure"].items() >= found.failure.items()
        assert ("evidence_quote_rejected" in sink.names) == log_rejections
        assert metric("groundwire_quote_failures_total", mode="substring") == before + 1

    assert failing(check, [True, False]) == []


def test_strict_evidence_raises_after_it_was_seen():
    sink = Recorder()
    with pytest.raises(EvidenceGroundingError) as caught:
        ground_evidence(INVENTED, TRANSCRIPT, settings(fail_on_all_rejected=True), sink=sink)
    assert isinstance(caught.value, ValueError)
    assert "evidence_failure" in sink.names
    ground_evidence({"mood": []}, TRANSCRIPT, settings(fail_on_all_rejected=True))
    ground_evidence({"mood": ["okay", "no"]}, TRANSCRIPT, settings(fail_on_all_rejected=True), sink=sink)


def test_without_validation_evidence_is_untouched_and_marked():
    sink = Recorder()
    evidence = {"mood": ["I feel hopeless", "I feel hopeless", " "]}
    found = ground_evidence(evidence, TRANSCRIPT, settings(validation_enabled=False), sink=sink)
    assert found.evidence == evidence
    assert found.validated is False
    assert (found.stats, found.llm_evidence_rejected_count, sink.events) == (None, None, [])


def test_the_schema_comes_first():
    def check(enabled):
        with pytest.raises(EvidenceSchemaError, match="mood"):
            ground_evidence({"mood": "hopelessmarker"}, TRANSCRIPT, settings(validation_enabled=enabled))

    assert failing(check, [True, False]) == []


def test_rejections_domains_and_quotes_of_a_domain_are_counted():
    def counts():
        return [
            metric("groundwire_quotes_total", result="validated"),
            metric("groundwire_quotes_total", result="rejected"),
            metric("groundwire_quote_items_total", result="empty"),
            metric("groundwire_quote_items_total", result="supported"),
            metric("groundwire_quotes_per_item_count"),
            metric("groundwire_quotes_per_item_sum"),
        ]

    before = counts()
    validate_evidence_grounding({"a": ["I am", "okay", "no"], "b": ["no"]}, "I am okay", log_rejections=False)
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [2, 2, 1, 1, 2, 2]


def test_no_text_of_quote_or_transcript_gets_out(capsys, caplog):
    secrets = ("hopelessmarker", "transcriptmarker")

    def check(mode):
        caplog.set_level(logging.DEBUG)
        sink = Recorder()
        caught = []
        for raw in (
            INVENTED,
            {"mood": "hopelessmarker"},
            {"mood": ["the transcriptmarker says I is okay 5"]},
        ):
            for target in (None, sink):
                try:
                    ground_evidence(
                        raw,
                        TRANSCRIPT,
                        settings(validation_mode=mode, fail_on_all_rejected=True),
                        sink=target,
                    )
                except ValueError as exc:
                    caught += [str(exc), repr(exc)]
        assert len(caught) == 12
        out = capsys.readouterr()
        everything = [*caught, repr(sink.events), out.out, out.err, caplog.text, generate_latest().decode()]
        assert not [place for place in everything for secret in secrets if secret in place.lower()]

    assert failing(check, ["substring", "fuzzy"]) == []


def test_the_examples_of_the_documentation_hold():
    assert doctest.testmod(quotes).failed == 0
