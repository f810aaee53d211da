"""What the report of a response tells of each check, part by part."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.decide import regenerate
from groundwire.decide.regenerate import regenerate_request
from groundwire.decide.report import report_of
from groundwire.decide.response_claims import ClaimReport
from groundwire.decide.response_reading import (
    DISABLED,
    NOT_PROVIDED,
    Broken,
    found,
    read_response,
    with_corpus,
)
from groundwire.decide.response_warnings import list_warnings
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.report import build_report
from groundwire.messages.responses import Chunk, LlmResponse
from groundwire.policy import Policy
from tests.unit.decide.test_response_case import (
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
from tests.unit.gate.world import World


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
    assert list_warnings(clean_reading()) == []


WHOLE = {
    "response_id": "r",
    "user_id": "u",
    "confidence": 1.0,
    "answer": "`user.name` is 5 [source:1].",
    "chunks": [
        {
            "chunk_id": "k",
            "file": "a.py",
            "content": "user.name is 5",
            "start_line": 1,
            "end_line": 1,
            "revision": "a1",
        }
    ],
    "sources": [{"file": "a.py"}],
    "current_revisions": {"a.py": "a1"},
    "evidence": {"mood": ["I slept well"]},
    "transcript": "I slept well",
    "entities": [{"id": "Ada"}],
    "corpus_index": {"Ada": {"confidence": 0.9}},
    "claims": [{"subject": "a", "relation": "b", "object": "c"}],
    "relations": [{"subject": "a", "relation": "b", "object": "c"}],
}
NEEDS = {
    "sources": {"sources", "chunks"},
    "index": {"current_revisions", "chunks"},
    "versions": {"chunks"},
    "fields": {"answer", "chunks"},
    "source_tags": {"answer", "chunks"},
    "quotes": {"evidence", "transcript"},
    "entities": {"entities", "corpus_index"},
    "relations": {"claims", "relations"},
    "values": {"answer", "chunks"},
}
"""Check -> the fields without any one of which it does not run."""


@pytest.mark.parametrize("missing", [None, *sorted(set().union(*NEEDS.values()))])
def test_a_check_is_skipped_where_one_of_its_parts_is_not_given_and_runs_where_all_are(
    missing: str | None,
) -> None:
    fields = {name: value for name, value in WHOLE.items() if name != missing}
    if missing == "answer":
        fields["answer"] = None
    response = LlmResponse.model_validate(fields)
    reading = read_response(response, Policy())
    for check, needs in NEEDS.items():
        found = getattr(reading, check)
        assert (found == NOT_PROVIDED) == (missing in needs), check
        assert not isinstance(found, Broken), check
    resolved = read_response(response, Policy(), entities=WHOLE["corpus_index"], relations=WHOLE["relations"])
    assert (resolved.entities == NOT_PROVIDED) == (missing == "entities")
    assert (resolved.relations == NOT_PROVIDED) == (missing == "claims")


def test_what_the_policy_switches_off_is_skipped_as_that_whatever_is_given() -> None:
    off = Policy(evidence_quote_validation_enabled=False, check_values=False)
    for fields in (WHOLE, {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": "Yes."}):
        reading = read_response(LlmResponse.model_validate(fields), off)
        assert (reading.quotes, reading.values) == (DISABLED, DISABLED)


def test_tags_that_are_not_there_are_looked_for_only_where_the_policy_requires_them() -> None:
    response = LlmResponse.model_validate(WHOLE | {"answer": "It calls `f()`."})
    assert read_response(response, Policy()).source_tags == NOT_PROVIDED
    required = found(read_response(response, Policy(require_source_tags=True)).source_tags)
    assert required is not None
    assert required.missing


def test_what_a_response_carries_counts_before_what_a_resolver_gives() -> None:
    response = LlmResponse.model_validate(WHOLE)
    reading = read_response(response, Policy(), entities={}, relations=[])
    entities, relations = found(reading.entities), found(reading.relations)
    assert entities is not None
    assert relations is not None
    assert (entities.missing, relations.violations) == ((), ())


def test_a_check_that_is_known_to_have_broken_does_not_run_and_keeps_its_error() -> None:
    response = LlmResponse.model_validate(WHOLE)
    reading = read_response(response, Policy(), broken={"fields": "KeyError"})
    assert dict(reading.broken) == {"fields": Broken("KeyError")}
    again = with_corpus(
        reading, response, Policy(), entities={}, relations=[], broken={"relations": "StateUnavailable"}
    )
    assert dict(again.broken) == {"fields": Broken("KeyError"), "relations": Broken("StateUnavailable")}


def test_the_counts_of_the_validation_are_those_of_sources_and_fields() -> None:
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


async def test_another_answer_is_asked_for_with_what_is_wrong_of_the_claims_first_and_a_hundred_things_at_most() -> (
    None
):
    world = World()
    (decision,) = await world.decide(world.response())

    def asked(**found: Any) -> list[str]:
        case = clean_case(reading=clean_reading(**found), confidence=0.45)
        request = regenerate_request(case, decision)
        assert request is not None
        assert (request.mode, request.attempt, request.why) == ("instant", 1, "low_confidence")
        return request.flagged

    stale = index_of(["old.py"], [])
    assert asked(index=stale) == ["Something does not hold"]
    assert asked(index=stale, claims=claims_of(1, 1, 0)) == ["It has 2 parts.", "Something does not hold"]
    assert len(asked(index=index_of([f"f{n}" for n in range(120)], []))) == 100
    long = [claim_of(n, "contradicted", 4.9).model_copy(update={"claim_text": "x" * 600}) for n in range(3)]
    report = ClaimReport(build_report("r", long, VerificationConfig()), 3)
    assert asked(claims=report) == ["x" * 500] * 3
    assert regenerate_request(clean_case(), decision) is None


async def test_a_request_that_just_fits_is_whole_and_one_that_fits_nowhere_has_no_chunks_and_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    (decision,) = await world.decide(world.response())
    case = clean_case(reading=clean_reading(claims=claims_of(0, 1, 1)), confidence=0.45)
    case.response = LlmResponse.model_validate(WHOLE | {"confidence": 0.45})
    whole = regenerate_request(case, decision)
    assert whole is not None
    monkeypatch.setattr(regenerate, "MAX_BYTES", len(whole.model_dump_json().encode()))
    assert regenerate_request(case, decision) == whole
    monkeypatch.setattr(regenerate, "MAX_BYTES", len(whole.model_dump_json().encode()) - 1)
    assert regenerate_request(case, decision) != whole
    monkeypatch.setattr(regenerate, "MAX_BYTES", 1)
    request = regenerate_request(case, decision)
    assert request is not None
    assert "user.name" not in request.prompt
    assert "It has" not in request.prompt
    assert len(request.flagged) == 2


@pytest.mark.parametrize(
    ("check", "something", "nothing"),
    [
        ("sources", [sources_of([("p", 1, 0)]), sources_of([("a", 1, 1)])], sources_of([])),
        ("fields", [fields_of(0, 1), fields_of(1, 0)], fields_of(0, 0)),
        ("source_tags", [tags_of([7], 1, 0), tags_of([1], 1, 0)], tags_of([], 1, 1)),
        ("quotes", [quotes_of(0, 1, 0), quotes_of(1, 0, 0)], quotes_of(0, 0, 0)),
        ("entities", [entities_of(1, 0), entities_of(0, 1)], entities_of(0, 0)),
        ("relations", [relations_of(1, 0, 0), relations_of(0, 0, 1)], relations_of(0, 0, 0)),
        ("values", [values_of(1, 0, 0), values_of(0, 1, 0)], values_of(0, 0, 0)),
        ("claims", [claims_of(0, 1, 0), claims_of(1, 0, 0)], claims_of(0, 0, 0)),
        ("index", [], index_of(["a"], ["b"])),
        ("versions", [], versions_of(["d"])),
    ],
)
def test_a_check_has_compared_something_whether_that_held_or_not_and_freshness_compares_nothing(
    check: str, something: list[Any], nothing: Any
) -> None:
    for section in something:
        assert clean_reading(**{"fields": NOT_PROVIDED, check: section}).grounded_on_something
    assert not clean_reading(**{"fields": NOT_PROVIDED, check: nothing}).grounded_on_something
    assert not clean_reading(**{"fields": NOT_PROVIDED, check: Broken("KeyError")}).grounded_on_something


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
