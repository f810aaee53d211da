"""What a response's decision lists: its checks line by line, its warnings and its report."""

from __future__ import annotations

import pytest

from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate.report import list_response_checks, report_of
from groundwire.gate.response_case import ResponseCase, list_warnings
from groundwire.gate.response_checks import NOT_PROVIDED, ClaimReport, broken_checks
from groundwire.messages.decisions import Facts, Place
from groundwire.messages.records import Chunk
from tests.unit.gate.builders import (
    claim_of,
    claims_of,
    clean_case,
    clean_reading,
    entities_of,
    fields_of,
    index_of,
    quotes_of,
    relations_of,
    sources_of,
    tags_of,
    values_of,
    versions_of,
)
from tests.unit.gate.world import NOW

CLEAN = {
    "sources": sources_of([("a", 3, 3)]),
    "index": index_of([], ["a"]),
    "source_tags": tags_of([1], 1, 0),
    "quotes": quotes_of(1, 0, 0),
    "entities": entities_of(0, 1),
    "relations": relations_of(0, 0, 1),
    "values": values_of(0, 1, 0),
}


def with_facts(case: ResponseCase, **facts: object) -> ResponseCase:
    case.facts = Facts.model_validate({"clock": NOW, **facts})
    return case


@pytest.mark.parametrize(
    ("action", "code"),
    [("approve", "human_approved"), ("reject", "human_rejected"), ("retract", "retracted")],
)
def test_what_a_person_decided_of_a_response_stands_whatever_its_checks_and_the_queue_say(
    action: str, code: str
) -> None:
    for confidence in (0.1, 0.5, 1.0):
        case = with_facts(
            clean_case(confidence=confidence), review={"action": action}, place=Place.TOTAL_FULL
        )
        assert case.outcome().code == code


@pytest.mark.parametrize("place", Place)
def test_a_full_queue_refuses_a_response_that_needs_review_and_no_other(place: Place) -> None:
    def of(confidence: float) -> tuple[str, str]:
        standing = with_facts(clean_case(confidence=confidence), place=place).outcome()
        return standing.tier, standing.code

    full = place not in {Place.FREE, Place.NOT_NEEDED}
    assert of(0.5) == (("tier_3", "review_queue_full") if full else ("tier_2", "low_confidence"))
    assert of(1.0) == ("tier_1", "grounded")
    assert of(0.1) == ("tier_3", "low_confidence")


@pytest.mark.parametrize(("confidence", "failed"), [(0.7, []), (0.6999, ["low_confidence: 0.6999"])])
def test_a_confidence_of_seven_tenths_is_sufficient_and_less_is_not(
    confidence: float, failed: list[str]
) -> None:
    checks = list_response_checks(clean_case(confidence=confidence))
    assert checks.failed == failed
    assert ("confidence_sufficient" in checks.passed) is (not failed)


def test_where_every_check_holds_none_is_told_as_failed() -> None:
    checks = list_response_checks(clean_case(reading=clean_reading(**CLEAN)))
    assert checks.failed == []
    assert "entities_grounded" in checks.passed


@pytest.mark.parametrize("extraction", [None, [], ["It retries 5 times."]])
def test_the_fan_out_is_told_as_skipped_only_where_it_was_wanted_and_nobody_looked_for_claims(
    extraction: list[str] | None,
) -> None:
    for wanted in (True, False):
        case = with_facts(clean_case(), extraction=extraction)
        case.response = case.response.model_copy(update={"fan_out": wanted})
        skipped = "fan_out_skipped: disabled" in list_response_checks(case).skipped
        assert skipped is (wanted and extraction is None)


@pytest.mark.parametrize("error", [None, ""])
def test_where_nothing_broke_no_check_is_told_as_broken(error: str | None) -> None:
    assert broken_checks(error) == {}


def test_why_quotes_failed_is_told_only_where_they_did() -> None:
    held = report_of(clean_case(reading=clean_reading(quotes=quotes_of(1, 0, 0))))["quotes"]
    assert held is not None
    assert "failure" not in held
    failed = quotes_of(0, 1, 0)
    told = report_of(clean_case(reading=clean_reading(quotes=failed)))["quotes"]
    assert told["failure"] == failed.failure
    assert failed.failure


def test_numbers_of_claims_are_told_to_four_decimals_at_any_depth_and_a_claim_that_holds_without_its_text() -> (
    None
):
    third = 1 / 3
    claims = [
        claim_of(1, None, -1e-9).model_copy(update={"evidence_support": third}),
        claim_of(2, "contradicted", 2 + third).model_copy(update={"evidence_dependence": third}),
    ]
    section = ClaimReport(build_report("r", claims, VerificationConfig()), 1).as_report()
    held, flagged = section["claims"]
    assert (held["claim_text"], flagged["claim_text"]) == ("", "It has 2 parts.")
    assert (held["evidence_support"], flagged["evidence_dependence"]) == (0.3333, 0.3333)
    assert (str(held["evidence_gap_bits"]), flagged["evidence_gap_bits"]) == ("0.0", 2.3333)
    assert section["gaps"][0]["gap_bits"] == section["max_gap_bits"] == 2.3333
    assert section["total_claims"] == 2
    assert section["retry_guidance"] is None or isinstance(section["retry_guidance"], str)
    assert flagged["evidence_ids"] == ["k"]


def test_where_the_chain_ends_without_an_answer_the_report_names_the_chunks_and_else_none() -> None:
    chunks = [Chunk(chunk_id=f"k{n}", file="a.py", content="x", start_line=1, end_line=1) for n in range(3)]
    for confidence, given, named in ((0.4, chunks, ["k0", "k1", "k2"]), (0.4, None, []), (0.9, chunks, None)):
        case = clean_case(confidence=confidence)
        case.response = case.response.model_copy(update={"mode": "instant", "chunks": given})
        report = report_of(case)
        assert report["fallback_chunks"] == named
        assert report["fallback"] == (None if named is None else "raw_sources")


def test_the_warnings_of_all_checks_are_told_in_the_order_of_the_checks() -> None:
    """S2-35."""
    reading = clean_reading(
        sources=sources_of([("p", 1, 0)]),
        index=index_of(["old.py"], []),
        fields=fields_of(1, 2),
        source_tags=tags_of([1], 1, 1),
        quotes=quotes_of(1, 0, 1),
        relations=relations_of(0, 1, 1),
        values=values_of(1, 1, 0),
        versions=versions_of(["d"]),
    )
    told = [warning.as_dict() for warning in list_warnings(reading)]
    assert [warning["type"] for warning in told] == [
        "PHANTOM_FILE",
        "STALE_INDEX",
        "UNVERIFIED_FIELDS",
        "SOURCE_TAG_MISSING",
        "QUOTE_POLARITY",
        "VERSION_UNSPECIFIED",
        "UNSUPPORTED_VALUE",
        "VERSION_CONFLICT",
    ]
    assert (told[2]["message"], told[2]["details"]) == (
        "Unverified fields: [u0, u1]",
        {"fields": ["u0", "u1"]},
    )
    assert told[4]["details"] == {"domain": "d", "index": 0}
    assert told[5]["details"] == {"index": 0}
    assert not list(list_warnings(clean_reading()))


def test_the_counts_of_the_validation_are_those_of_sources_and_fields() -> None:
    """S2-36."""
    reading = clean_reading(
        sources=sources_of([("a", 1, 1), ("b", 2, 1), ("c", 3, 3)]), fields=fields_of(3, 1)
    )
    case = clean_case(reading=reading)
    assert report_of(case)["validation"] == {
        "sourcesVerified": 2,
        "sourcesTotal": 3,
        "fieldsVerified": 3,
        "fieldsTotal": 4,
        "confidence": case.confidence,
    }
    nothing = report_of(clean_case(reading=clean_reading(fields=NOT_PROVIDED)))["validation"]
    assert nothing == {**dict.fromkeys(nothing, 0), "confidence": 1.0}


def test_each_check_has_its_section_of_the_report_where_it_ran_and_none_where_it_did_not() -> None:
    ran = {
        "sources": sources_of([]),
        "fields": fields_of(0, 0),
        "quotes": quotes_of(0, 0, 0),
        "entities": entities_of(0, 0),
        "relations": relations_of(0, 0, 0),
        "claims": claims_of(0, 0, 0),
    }
    for name, section in ran.items():
        report = report_of(clean_case(reading=clean_reading(**{"fields": NOT_PROVIDED, name: section})))
        told = {"epistemic" if one == "claims" else one for one in ran}
        assert {one for one in told if report[one] is not None} == {"epistemic" if name == "claims" else name}


def test_the_evidence_of_hops_is_told_as_it_was_given_and_else_as_none() -> None:
    """S3-23."""
    for given, told in (([{"hop": 1}, "two"], [{"hop": 1}, "two"]), (None, [])):
        case = clean_case(reading=clean_reading(relations=relations_of(0, 0, 1)))
        case.response = case.response.model_copy(update={"hop_results": given})
        assert report_of(case)["relations"]["hop_evidence"] == told
