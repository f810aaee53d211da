"""What becomes of a response at its bounds: a person's word, the queue, and each line of its lists of checks."""

from __future__ import annotations

import pytest

from groundwire.decide.response_checks import list_response_checks
from groundwire.decide.responses import ResponseCase, broken_checks
from groundwire.messages.decisions import Facts, Place
from tests.unit.decide.test_response_case import (
    clean_case,
    clean_reading,
    entities_of,
    index_of,
    quotes_of,
    relations_of,
    sources_of,
    tags_of,
    values_of,
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
