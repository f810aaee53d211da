"""What a response's decision lists: its checks line by line, its warnings and its report."""

from __future__ import annotations

from itertools import product
from typing import Any

from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate.response_case import ResponseCase, list_response_checks, report_of
from groundwire.gate.response_checks import (
    DISABLED,
    NOT_PROVIDED,
    Broken,
    CheckInputs,
    ClaimReport,
    read_again,
    read_response,
    result_of,
)
from groundwire.messages.decisions import Facts, Place
from groundwire.messages.records import Chunk, LlmResponse
from groundwire.policy import Policy
from tests.unit.gate.builders import (
    WHOLE,
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


def with_facts(case: ResponseCase, **facts: object) -> ResponseCase:
    case.facts = Facts.model_validate({"clock": NOW, **facts})
    return case


def test_a_persons_decision_of_a_response_outranks_its_checks_and_the_queue() -> None:
    for action, code in (
        ("approve", "human_approved"),
        ("reject", "human_rejected"),
        ("retract", "retracted"),
    ):
        for confidence in (0.1, 0.5, 1.0):
            case = clean_case(confidence=confidence)
            assert with_facts(case, review={"action": action}, place=Place.TOTAL_FULL).outcome().code == code


def test_a_full_queue_refuses_a_response_that_needs_review_and_no_other() -> None:
    for place in Place:
        found = [with_facts(clean_case(confidence=c), place=place).outcome().code for c in (0.1, 0.5, 1.0)]
        reviewed = "review_queue_full" if place.endswith("_full") else "low_confidence"
        assert found == ["low_confidence", reviewed, "grounded"]


def test_where_every_check_holds_none_is_told_as_failed() -> None:
    clean = {
        "sources": sources_of([("a", 3, 3)]),
        "index": index_of([], ["a"]),
        "source_tags": tags_of([1], 1, 0),
        "quotes": quotes_of(1, 0, 0),
        "entities": entities_of(0, 1),
        "relations": relations_of(0, 0, 1),
        "values": values_of(0, 1, 0),
    }
    checks = list_response_checks(clean_case(reading=clean_reading(**clean)))
    assert checks.failed == []
    assert "entities_grounded" in checks.passed


def test_the_fan_out_is_told_as_skipped_only_where_it_was_wanted_and_nobody_looked_for_claims() -> None:
    for extraction in (None, [], ["It retries 5 times."]):
        for wanted in (True, False):
            case = with_facts(clean_case(), extraction=extraction)
            case.response = case.response.model_copy(update={"fan_out": wanted})
            skipped = "fan_out_skipped: disabled" in list_response_checks(case).skipped
            assert skipped is (wanted and extraction is None)


def test_why_quotes_failed_is_told_only_where_they_did() -> None:
    held = report_of(clean_case(reading=clean_reading(quotes=quotes_of(1, 0, 0))))["quotes"]
    assert held is not None
    assert "failure" not in held
    failed = quotes_of(0, 1, 0)
    told = report_of(clean_case(reading=clean_reading(quotes=failed)))["quotes"]
    assert told["failure"] == failed.failure
    assert failed.failure


def test_claims_are_told_with_numbers_of_four_decimals_and_without_the_text_of_what_holds() -> None:
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
    told = [warning.as_dict() for warning in clean_case(reading=reading).warnings]
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
    assert not clean_case().warnings


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


# --- which checks run


def test_a_check_is_skipped_where_one_of_its_parts_is_not_given_and_runs_where_all_are() -> None:
    needs = {
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
    for missing in (None, *sorted(set().union(*needs.values()))):
        fields = {name: value for name, value in WHOLE.items() if name != missing}
        response = LlmResponse.model_validate({"answer": None, **fields})
        reading = read_response(response, Policy())
        skipped = {check for check in needs if getattr(reading, check) == NOT_PROVIDED}
        assert skipped == {check for check, parts in needs.items() if missing in parts}, missing
        assert dict(reading.broken) == {}
        resolved = read_response(response, Policy(), CheckInputs(WHOLE["corpus_index"], WHOLE["relations"]))
        assert (resolved.entities == NOT_PROVIDED) == (missing == "entities")
        assert (resolved.relations == NOT_PROVIDED) == (missing == "claims")


def test_the_policy_switches_checks_off_and_requires_tags() -> None:
    off = Policy(evidence_quote_validation_enabled=False, check_values=False)
    for fields in (WHOLE, {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": "Yes."}):
        reading = read_response(LlmResponse.model_validate(fields), off)
        assert (reading.quotes, reading.values) == (DISABLED, DISABLED)
    untagged = LlmResponse.model_validate(WHOLE | {"answer": "It calls `f()`."})
    assert read_response(untagged, Policy()).source_tags == NOT_PROVIDED
    required = result_of(read_response(untagged, Policy(require_source_tags=True)).source_tags)
    assert required is not None
    assert required.missing


def test_a_response_can_only_lower_what_the_corpus_says() -> None:
    for own, corpus in product([True, False], repeat=2):
        given = {} if own else {"corpus_index": {}, "relations": []}
        answered = (WHOLE["corpus_index"], WHOLE["relations"]) if corpus else ({}, [])
        reading = read_response(LlmResponse.model_validate(WHOLE | given), Policy(), CheckInputs(*answered))
        entities, relations = result_of(reading.entities), result_of(reading.relations)
        assert entities is not None
        assert relations is not None
        assert (bool(entities.missing), bool(relations.violations)) == ((not (own and corpus),) * 2)


def test_a_check_that_is_known_to_have_broken_does_not_run_and_keeps_its_error() -> None:
    response = LlmResponse.model_validate(WHOLE)
    reading = read_response(response, Policy(), CheckInputs(error="fields=KeyError"))
    assert dict(reading.broken) == {"fields": Broken("KeyError")}
    inputs = CheckInputs({}, [], error="relations=StateUnavailable")
    again = read_again(reading, ("entities", "relations"), response, Policy(), inputs)
    assert dict(again.broken) == {"fields": Broken("KeyError"), "relations": Broken("StateUnavailable")}


def test_a_check_has_compared_something_whether_that_held_or_not_and_freshness_compares_nothing() -> None:
    table: dict[str, tuple[list[Any], Any]] = {
        "sources": ([sources_of([("p", 1, 0)]), sources_of([("a", 1, 1)])], sources_of([])),
        "fields": ([fields_of(0, 1), fields_of(1, 0)], fields_of(0, 0)),
        "source_tags": ([tags_of([7], 1, 0), tags_of([1], 1, 0)], tags_of([], 1, 1)),
        "quotes": ([quotes_of(0, 1, 0), quotes_of(1, 0, 0)], quotes_of(0, 0, 0)),
        "entities": ([entities_of(1, 0), entities_of(0, 1)], entities_of(0, 0)),
        "relations": ([relations_of(1, 0, 0), relations_of(0, 0, 1)], relations_of(0, 0, 0)),
        "values": ([values_of(1, 0, 0), values_of(0, 1, 0)], values_of(0, 0, 0)),
        "claims": ([claims_of(0, 1, 0), claims_of(1, 0, 0)], claims_of(0, 0, 0)),
        "index": ([], index_of(["a"], ["b"])),
        "versions": ([], versions_of(["d"])),
    }
    for check, (something, nothing) in table.items():
        found = [
            clean_reading(**{"fields": NOT_PROVIDED, check: section}).grounded_on_something
            for section in (*something, nothing, Broken("KeyError"))
        ]
        assert found == [*[True] * len(something), False, False], check


def test_where_no_file_has_both_revisions_the_index_is_not_told_as_current() -> None:
    response = LlmResponse.model_validate(WHOLE | {"current_revisions": {"other.py": "a1"}})
    assert read_response(response, Policy()).index == NOT_PROVIDED


def test_an_answer_may_cite_the_file_of_a_source_beside_its_context() -> None:
    text = "The gateway retries failed requests 3 times"
    for file, reason in (("lib/s9.py", None), ("lib/s8.py", "phantom_citation")):
        given = {"context": {"span": f"{text}."}, "sources": [{"file": "lib/s9.py"}]}
        record = {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": f"{text} [ref: {file}]."}
        claims = result_of(read_response(LlmResponse.model_validate(record | given), Policy()).claims)
        assert claims is not None
        assert [claim.flag_reason for claim in claims.report.claims] == [reason]
