"""The public quote functions: settings, events, metrics and failure policy.

Requirements S1-01..S1-07, S1-35..S1-48, C-42, C-43.
"""

import logging

import pytest
from prometheus_client import REGISTRY, generate_latest
from pydantic import ValidationError
from structlog.testing import capture_logs

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


def test_settings_come_from_the_environment_and_are_validation_by_substring_that_does_not_raise(monkeypatch):
    names = (
        "validation_enabled",
        "validation_mode",
        "fuzzy_threshold",
        "fail_on_all_rejected",
        "log_rejections",
    )

    def values():
        found = EvidenceQuoteSettings()
        return [getattr(found, f"evidence_quote_{name}") for name in names]

    assert values() == [True, "substring", 0.85, False, True]
    for name, value in zip(names, ("false", "fuzzy", "0.9", "1", "0"), strict=True):
        monkeypatch.setenv(f"GROUNDWIRE_EVIDENCE_QUOTE_{name.upper()}", value)
    monkeypatch.setenv("GROUNDWIRE_EVIDENCE_QUOTE_MIN_WORDS", "2")
    assert values() == [False, "fuzzy", 0.9, True, False]
    rules = EvidenceQuoteSettings().rules
    assert (rules.mode, rules.fuzzy_threshold, rules.min_words) == ("fuzzy", 0.9, 2)
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


def test_validating_keeps_what_stands_there_and_says_what_does_not_at_its_level():
    sink, silent = Recorder(), Recorder()
    evidence = {"mood": ["I am OKAY", "I feel hopeless"], "other": ["x"]}
    kept, stats = validate_evidence_grounding(evidence, "I am okay", sink=sink)
    assert kept == {"mood": ["I am OKAY"], "other": []}
    assert stats == EvidenceGroundingStats(3, 1, 2, {"mood": 1, "other": 1})
    assert sink.names == ["evidence_quote_rejected"] * 2 + ["evidence_grounding_complete"]
    validate_evidence_grounding(INVENTED, TRANSCRIPT, log_rejections=False, sink=silent)
    assert silent.events == []
    with capture_logs() as logs:
        validate_evidence_grounding(INVENTED, TRANSCRIPT)
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [
        ("evidence_quote_rejected", "warning"),
        ("evidence_grounding_complete", "info"),
    ]
    for mode, threshold in (("fuzzy", 0.79), ("fuzzy", 0.8), ("substring", 0.5)):
        options = {"mode": mode, "fuzzy_threshold": threshold, "sink": silent}
        validate_evidence_grounding({"d": ["okay"]}, "okay", **options)
        assert silent.names == ["evidence_quote_threshold_low"], "in fuzzy mode below 0.8 only"


def test_evidence_that_holds_in_part_is_handed_on_with_its_counts():
    evidence = {"mood": ["I am okay", "I am okay", "I am well"]}
    found = ground_evidence(evidence, TRANSCRIPT, settings(), domains=["sleep"], sink=Recorder())
    assert found.evidence == {"sleep": [], "mood": ["I am okay"]}
    assert (found.validated, found.failure) == (True, None)
    assert (found.llm_evidence_extracted_count, found.llm_evidence_rejected_count) == (2, 1)
    assert found.stats.rejected_by_domain == {"sleep": 0, "mood": 1}


def test_nothing_grounded_is_seen_whatever_is_logged_and_though_the_sink_breaks():
    class Broken:
        def try_emit(self, *_event):
            raise OSError

    for log_rejections in (True, False):
        sink, before = Recorder(), metric("groundwire_quote_failures_total", mode="substring")
        found = ground_evidence(INVENTED, TRANSCRIPT, settings(log_rejections=log_rejections), sink=sink)
        assert found.evidence == {"mood": []}
        assert found.failure["category"] == "EVIDENCE_HALLUCINATION"
        assert dict(sink.events)["evidence_failure"].items() >= found.failure.items()
        assert ("evidence_quote_rejected" in sink.names) == log_rejections
        assert metric("groundwire_quote_failures_total", mode="substring") == before + 1
    assert ground_evidence(INVENTED, TRANSCRIPT, settings(), sink=Broken()).evidence == {"mood": []}
    sink, strict = Recorder(), settings(fail_on_all_rejected=True)
    with pytest.raises(EvidenceGroundingError) as caught:
        ground_evidence(INVENTED, TRANSCRIPT, strict, sink=sink)
    assert isinstance(caught.value, ValueError)
    assert "evidence_failure" in sink.names
    ground_evidence({"mood": []}, TRANSCRIPT, strict)
    ground_evidence({"mood": ["okay", "no"]}, TRANSCRIPT, strict, sink=sink)


def test_without_validation_evidence_is_untouched_and_marked_but_its_schema_is_checked():
    sink, off = Recorder(), settings(validation_enabled=False)
    evidence = {"mood": ["I feel hopeless", "I feel hopeless", " "]}
    found = ground_evidence(evidence, TRANSCRIPT, off, sink=sink)
    assert (found.evidence, found.validated) == (evidence, False)
    assert (found.stats, found.llm_evidence_rejected_count, sink.events) == (None, None, [])
    for each in (off, settings()):
        with pytest.raises(EvidenceSchemaError, match="mood"):
            ground_evidence({"mood": "hopelessmarker"}, TRANSCRIPT, each)


def test_rejections_domains_and_quotes_of_a_domain_are_counted():
    def counts():
        quotes = [metric("groundwire_quotes_total", result=one) for one in ("validated", "rejected")]
        items = [metric("groundwire_quote_items_total", result=one) for one in ("empty", "supported")]
        return [*quotes, *items, *(metric(f"groundwire_quotes_per_item_{one}") for one in ("count", "sum"))]

    before = counts()
    validate_evidence_grounding({"a": ["I am", "okay", "no"], "b": ["no"]}, "I am okay", log_rejections=False)
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [2, 2, 1, 1, 2, 2]


def test_no_text_of_quote_or_transcript_gets_out(capsys, caplog):
    caplog.set_level(logging.DEBUG)
    for mode in ("substring", "fuzzy"):
        sink, caught = Recorder(), []
        strict = settings(validation_mode=mode, fail_on_all_rejected=True)
        near = {"mood": ["the transcriptmarker says I is okay 5"]}
        for raw in (INVENTED, {"mood": "hopelessmarker"}, near):
            for target in (None, sink):
                with pytest.raises((EvidenceGroundingError, EvidenceSchemaError)) as raised:
                    ground_evidence(raw, TRANSCRIPT, strict, sink=target)
                caught += [str(raised.value), repr(raised.value)]
        out = capsys.readouterr()
        everything = [*caught, repr(sink.events), out.out, out.err, caplog.text, generate_latest().decode()]
        assert not [one for one in everything if "hopelessmarker" in one or "transcriptmarker" in one.lower()]
