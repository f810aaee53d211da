"""A response's case: its verdict against the contract's list, its lists of checks, its report, and its request."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given

from groundwire.checks.quotes import EvidenceGroundingStats
from groundwire.checks.sources import FieldCheckResult
from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate import response_case
from groundwire.gate.response_case import (
    STATE,
    ResponseCase,
    extract,
    json_size,
    list_response_checks,
    regenerate_request,
    report_of,
)
from groundwire.gate.response_checks import (
    DISABLED,
    INTERNAL,
    NOT_PROVIDED,
    Broken,
    CheckInputs,
    ClaimReport,
    ResponseReading,
    Skipped,
    broken_checks,
    list_broken,
    read_again,
    read_response,
    result_of,
)
from groundwire.messages.decisions import Facts
from groundwire.messages.records import Chunk, LlmResponse
from groundwire.policy import Policy
from tests.unit.gate.builders import (
    CHECKS,
    WHOLE,
    cases,
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


def ran(section: Any) -> Any:
    return None if isinstance(section, Skipped | Broken) else section


def compared(reading: ResponseReading) -> list[str]:
    """Name the grounding checks that held something of the response against what it was given."""
    r = {name: ran(getattr(reading, name)) for name in CHECKS}
    counted = {
        "sources": len(r["sources"].results) if r["sources"] else 0,
        "fields": len(r["fields"].verified + r["fields"].unverified) if r["fields"] else 0,
        "source_tags": len(r["source_tags"].tags) if r["source_tags"] else 0,
        "quotes": r["quotes"].stats.extracted_count if r["quotes"] else 0,
        "entities": len(r["entities"].missing + r["entities"].grounded) if r["entities"] else 0,
        "relations": r["relations"].claim_count if r["relations"] else 0,
        "values": r["values"].found if r["values"] else 0,
        "claims": len(r["claims"].report.claims) if r["claims"] else 0,
    }
    return [name for name, count in counted.items() if count]


@given(cases())
def test_verdict_and_confidence_are_those_of_the_contract_and_only_what_was_compared_is_approved(case):
    """S2-15, C-44: the confidence is what was reported, less what did not hold of sources and fields."""

    def plain_confidence(case: ResponseCase) -> Fraction:
        """clamp(reported - (1 - fields) - (1 - sources)), exactly; a part that did not run counts as 1."""
        fields_, sources = ran(case.reading.fields), ran(case.reading.sources)
        share = mean = Fraction(1)
        if fields_ is not None and fields_.verified + fields_.unverified:
            share = Fraction(len(fields_.verified), len(fields_.verified) + len(fields_.unverified))
        if sources is not None and sources.results:
            # up to three parts: the float that a result holds stands for a fraction of at most 3
            each = [Fraction(result.confidence).limit_denominator(3) for _, result in sources.results]
            mean = sum(each, Fraction(0)) / len(each)
        value = Fraction(case.response.confidence) - (1 - share) - (1 - mean)
        return min(max(value, Fraction(0)), Fraction(1))

    def is_a_tie(value: Fraction) -> bool:
        """Say whether a value lies so near to the middle of two roundings that either will do."""
        return abs((value * 10_000) % 1 - Fraction(1, 2)) < Fraction(1, 10**9)

    def contract(case: ResponseCase, confidence: float) -> tuple[str, str]:
        """Verdict and reason, first that applies."""
        r = {name: ran(getattr(case.reading, name)) for name in CHECKS}
        some_broke = any(isinstance(getattr(case.reading, name), Broken) for name in CHECKS)
        error = case.facts.error or ""
        if r["entities"] and r["entities"].missing:
            return "tier_3", "entity_grounding_failed"
        if r["relations"] and r["relations"].violations:
            return "tier_3", "relation_preservation_failed"
        stats = r["quotes"].stats if r["quotes"] else EvidenceGroundingStats(0, 0, 0, {})
        all_rejected = stats.rejected_count > 0 and stats.validated_count == 0
        if case.policy.evidence_quote_fail_on_all_rejected and all_rejected:
            return "tier_3", "quotes_rejected"
        claims = r["claims"].report if r["claims"] else None
        gaps = [gap.gap_bits for gap in claims.gaps] if claims else []
        if case.policy.on_critical == "block" and any(bits > 2 for bits in gaps):
            return "tier_3", "critical_gap"
        if confidence < 0.3:
            return "tier_3", "low_confidence"
        if "internal=" in error:
            return "tier_2", "internal_error"
        if some_broke or "state=" in error:
            return "tier_2", "check_unavailable"
        phantom_files = [
            file for file, found in (r["sources"].results if r["sources"] else ()) if not found.exists
        ]
        if phantom_files or (r["source_tags"] and r["source_tags"].phantom):
            return "tier_2", "phantom_source"
        if r["sources"] and any(found.confidence < 1 for _, found in r["sources"].results):
            return "tier_2", "snippet_mismatch"
        if r["fields"] and r["fields"].unverified:
            return "tier_2", "unverified_fields"
        if r["index"] and r["index"].stale:
            return "tier_2", "stale_index"
        if stats.rejected_count:
            return "tier_2", "quotes_rejected"
        if r["quotes"] and r["quotes"].polarity:
            return "tier_2", "quote_polarity"
        if (r["values"] and r["values"].faults) or (claims and claims.is_flagged):
            return "tier_2", "flagged_claims"
        if r["source_tags"] and r["source_tags"].missing:
            return "tier_2", "source_tags_missing"
        if (r["relations"] and r["relations"].unspecified) or (r["versions"] and r["versions"].conflicts):
            return "tier_2", "warnings"
        if confidence < 0.7:
            return "tier_2", "low_confidence"
        if not compared(case.reading):
            return "tier_2", "nothing_to_ground_on"
        return "tier_1", "grounded"

    standing = case.before_queue()
    assert (str(standing.tier), str(standing.code)) == contract(case, case.confidence)
    exact = plain_confidence(case)
    assert 0 <= case.confidence <= 1
    assert abs(Fraction(Decimal(str(case.confidence))) - exact) <= Fraction(1, 20_000) + Fraction(1, 10**9)
    if not is_a_tie(exact):
        assert Fraction(Decimal(str(case.confidence))) == round(exact, 4)
    # S2-43: and nothing but `grounded` approves a response
    approved = str(standing.tier) == "tier_1"
    assert approved == (standing.code == "grounded")
    if approved:
        assert compared(case.reading)
        assert not case.warnings
        claims = ran(case.reading.claims)
        assert not claims or not claims.report.is_flagged
        assert not list(case.reading.broken)
        assert case.confidence >= 0.7
    outcome = case.outcome()
    if str(standing.tier) == "tier_2" and str(case.facts.place).endswith("_full"):
        assert (str(outcome.tier), str(outcome.code)) == ("tier_3", "review_queue_full")
    else:
        assert outcome == standing


def test_a_score_is_rounded_before_it_is_compared():
    table = ((0.29994, 0.2999, "tier_3"), (0.29996, 0.3, "tier_2"), (0.69994, 0.6999, "tier_2"))
    for sent, confidence, tier in (*table, (0.69996, 0.7, "tier_1"), (1, 1.0, "tier_1")):
        case = clean_case(confidence=sent)
        assert (case.confidence, str(case.before_queue().tier)) == (confidence, tier)
        sufficient = confidence >= 0.7
        checks = list_response_checks(case)
        assert ("confidence_sufficient" in checks.passed) is sufficient
        assert checks.failed == ([] if sufficient else [f"low_confidence: {confidence:g}"])
    zero = clean_case(confidence=-0.0)
    assert str(zero.confidence) == "0.0"
    assert "low_confidence: 0" in list_response_checks(zero).failed


def test_each_failure_is_a_reason_and_is_listed_among_the_failed_checks():
    # what is found, the reason, and the check that names it
    failures: list[tuple[dict[str, Any], str, str]] = [
        ({"entities": entities_of(1, 1)}, "entity_grounding_failed", "entity_grounding_failed: 1"),
        (
            {"relations": relations_of(1, 0, 1)},
            "relation_preservation_failed",
            "relation_preservation_failed: 1",
        ),
        ({"fields": fields_of(0, 1)}, "low_confidence", "low_confidence: 0"),
        ({"values": Broken("KeyError")}, "check_unavailable", "values_unavailable"),
        ({"versions": Broken("KeyError")}, "check_unavailable", "index_unavailable"),
        (
            {"sources": sources_of([("p", 1, 0), ("a", 1, 1), ("b", 1, 1), ("c", 1, 1)])},
            "phantom_source",
            "phantom_file: p",
        ),
        ({"source_tags": tags_of([7], 1, 0)}, "phantom_source", "source_tag_phantom: 7"),
        ({"sources": sources_of([("a", 2, 1), ("b", 1, 1)])}, "snippet_mismatch", "snippet_mismatch: a"),
        ({"fields": fields_of(4, 1)}, "unverified_fields", "unverified_fields: u0"),
        ({"index": index_of(["a"], [])}, "stale_index", "stale_index: a"),
        ({"quotes": quotes_of(1, 1, 0)}, "quotes_rejected", "quotes_rejected: 1 of 2"),
        ({"quotes": quotes_of(1, 0, 1)}, "quote_polarity", "quote_polarity: d"),
        ({"source_tags": tags_of([1], 1, 1)}, "source_tags_missing", "source_tags_missing: 1"),
        ({"values": values_of(1, 1, 0)}, "flagged_claims", "values_unsupported: 1"),
        ({"relations": relations_of(0, 1, 0)}, "warnings", ""),
        ({"versions": versions_of(["d"])}, "warnings", ""),
        ({"claims": claims_of(1, 1, 0)}, "flagged_claims", "flagged_claims: 1"),
        ({"claims": claims_of(1, 0, 0, unverified=2)}, "flagged_claims", "flagged_claims: 2"),
    ]
    for found, code, check in failures:
        case = clean_case(reading=clean_reading(**found))
        listed = list_response_checks(case).failed
        failed = [name for name in listed if not name.startswith("low_confidence")]
        assert case.before_queue().code == code
        assert check in listed if check.startswith("low_confidence") else failed == ([check] if check else [])


@given(cases())
def test_every_check_is_listed_once_by_the_contracts_names_and_what_decided_is_among_the_failed(case):
    """X-02."""
    # the contract's table: check -> what it says where it passed, and where it failed
    table_ = {
        "sources": ("sources_verified", {"phantom_file", "snippet_mismatch"}),
        "index": ("index_current", {"stale_index"}),
        "fields": ("fields_verified", {"unverified_fields"}),
        "source_tags": ("source_tags_present", {"source_tags_missing", "source_tag_phantom"}),
        "quotes": ("quotes_grounded", {"quotes_rejected", "quote_polarity"}),
        "entities": ("entities_grounded", {"entity_grounding_failed"}),
        "relations": ("relations_preserved", {"relation_preservation_failed"}),
        "values": ("values_supported", {"values_unsupported"}),
        "claims": ("claims_supported", {"flagged_claims", "critical_gap"}),
    }

    def groups(case: ResponseCase, check: str) -> set[str]:
        checks = list_response_checks(case)
        passed, failed = table_[check]
        listed = {"passed": checks.passed, "failed": checks.failed, "skipped": checks.skipped}
        words = {
            "passed": {passed},
            "failed": {*failed, f"{check}_unavailable"},
            "skipped": {f"{check}_skipped"},
        }
        return {
            group
            for group, entries in listed.items()
            if words[group] & {entry.partition(":")[0] for entry in entries}
        }

    for check in table_:
        assert len(groups(case, check)) == 1, check
    checks = list_response_checks(case)
    assert {name.partition(":")[0] for name in checks.passed} <= {
        *(passed for passed, _ in table_.values()),
        "confidence_sufficient",
        "review_place",
    }
    assert {name.partition(":")[0] for name in checks.failed} <= {
        *(name for _, failed in table_.values() for name in failed),
        *(f"{check}_unavailable" for check in table_),
        "low_confidence",
        "review_queue_full",
    }
    for entry in checks.skipped:
        name, _, why = entry.partition(": ")
        assert name.removesuffix("_skipped") in {*table_, "fan_out"}, entry
        assert why in {"not_provided", "disabled", "bypassed"}, entry
    every = checks.passed + checks.failed + checks.skipped
    assert len(set(every)) == len(every)
    broke_ = {"index" if name == "versions" else name for name, _ in case.reading.broken}
    assert {name.removesuffix("_unavailable") for name in checks.failed if "_unavailable" in name} == broke_
    # A person who reads the lists finds the reason there, but for what no check finds
    code = str(case.before_queue().code)
    failed = {name.partition(":")[0] for name in list_response_checks(case).failed}
    told = {
        "phantom_source": {"phantom_file", "source_tag_phantom"},
        "flagged_claims": {"values_unsupported", "flagged_claims"},
        "check_unavailable": {f"{check}_unavailable" for check in table_},
    }.get(code, {code})
    silent = code in {"grounded", "nothing_to_ground_on", "internal_error", "warnings"}
    without_state = code == "check_unavailable" and STATE in case.broken
    assert silent or without_state or told & failed


@given(cases())
def test_another_answer_is_asked_for_in_a_simpler_mode_or_without_critical_gaps_and_twice_at_most(case):
    """S2-24, S2-25."""
    asked, fallback = case.regeneration, case.fallback
    assert not (asked and fallback)
    if case.confidence >= 0.5:
        assert asked is None or asked.why == "critical_gap"
        assert fallback is None
    elif case.mode == "instant" and STATE not in case.broken:
        assert fallback == "raw_sources"
    if asked and asked.why == "low_confidence":
        assert case.attempt is not None
        assert (case.mode, asked.mode) in {("thinking", "auto"), ("auto", "instant")}
        assert 1 <= asked.attempt <= 2
        sent = case.response.mode
        order = ["instant", "auto", "thinking"]
        assert order.index(asked.mode) < order.index(sent)
    # S2-17, S4-31, S4-39: at most twice, and `max_retries` times
    claims = ran(case.reading.claims)
    wanted = claims is not None and claims.critical > 0 and claims.report.should_retry
    attempts = min(2, case.policy.verification.max_retries)
    known = case.attempt is not None and STATE not in case.broken
    asked = case.regeneration
    assert (asked is not None and asked.why == "critical_gap") == (
        wanted and case.confidence >= 0.5 and known and case.attempt < attempts
    )
    if asked and asked.why == "critical_gap":
        assert asked.mode == case.mode
        assert asked.attempt == case.attempt + 1 <= attempts


def test_what_broke_is_read_back_as_it_was_written():
    for broken in ({}, {"fields": "KeyError"}, {INTERNAL: "E2", STATE: "KeyError", "claims": "KeyError"}):
        assert broken_checks(list_broken(broken)) == broken


def test_the_report_holds_failures_of_quotes_evidence_of_hops_and_fallback_only_where_there_are_any() -> None:
    held = report_of(clean_case(reading=clean_reading(quotes=quotes_of(1, 0, 0))))["quotes"]
    assert held is not None
    assert "failure" not in held
    failed = quotes_of(0, 1, 0)
    told = report_of(clean_case(reading=clean_reading(quotes=failed)))["quotes"]
    assert told["failure"] == failed.failure
    assert failed.failure
    # S3-23
    for hops in ([{"hop": 1}, "two"], None):
        case = clean_case(reading=clean_reading(relations=relations_of(0, 0, 1)))
        case.response = case.response.model_copy(update={"hop_results": hops})
        assert report_of(case)["relations"]["hop_evidence"] == (hops or [])
    chunks = [Chunk(chunk_id=f"k{n}", file="a.py", content="x", start_line=1, end_line=1) for n in range(3)]
    for confidence, there, named in ((0.4, chunks, ["k0", "k1", "k2"]), (0.4, None, []), (0.9, chunks, None)):
        case = clean_case(confidence=confidence)
        case.response = case.response.model_copy(update={"mode": "instant", "chunks": there})
        report = report_of(case)
        assert report["fallback_chunks"] == named
        assert report["fallback"] == (None if named is None else "raw_sources")


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


def test_checks_do_not_run_where_the_policy_says_so_nothing_can_be_compared_or_they_broke_before() -> None:
    off = Policy(evidence_quote_validation_enabled=False, check_values=False)
    for fields in (WHOLE, {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": "Yes."}):
        reading = read_response(LlmResponse.model_validate(fields), off)
        assert (reading.quotes, reading.values) == (DISABLED, DISABLED)
    untagged = LlmResponse.model_validate(WHOLE | {"answer": "It calls `f()`."})
    assert read_response(untagged, Policy()).source_tags == NOT_PROVIDED
    required = result_of(read_response(untagged, Policy(require_source_tags=True)).source_tags)
    assert required is not None
    assert required.missing
    response = LlmResponse.model_validate(WHOLE | {"current_revisions": {"other.py": "a1"}})
    assert read_response(response, Policy()).index == NOT_PROVIDED
    response = LlmResponse.model_validate(WHOLE)
    reading = read_response(response, Policy(), CheckInputs(error="fields=KeyError"))
    assert dict(reading.broken) == {"fields": Broken("KeyError")}
    inputs = CheckInputs({}, [], error="relations=StateUnavailable")
    again = read_again(reading, ("entities", "relations"), response, Policy(), inputs)
    assert dict(again.broken) == {"fields": Broken("KeyError"), "relations": Broken("StateUnavailable")}


def test_a_response_can_only_lower_what_the_corpus_says() -> None:
    for own, corpus in product([True, False], repeat=2):
        given = {} if own else {"corpus_index": {}, "relations": []}
        answered = (WHOLE["corpus_index"], WHOLE["relations"]) if corpus else ({}, [])
        reading = read_response(LlmResponse.model_validate(WHOLE | given), Policy(), CheckInputs(*answered))
        entities, relations = result_of(reading.entities), result_of(reading.relations)
        assert entities is not None
        assert relations is not None
        assert (bool(entities.missing), bool(relations.violations)) == ((not (own and corpus),) * 2)


def test_an_answer_may_cite_the_file_of_a_source_beside_its_context() -> None:
    text = "The gateway retries failed requests 3 times"
    for file, reason in (("lib/s9.py", None), ("lib/s8.py", "phantom_citation")):
        given = {"context": {"span": f"{text}."}, "sources": [{"file": "lib/s9.py"}]}
        record = {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": f"{text} [ref: {file}]."}
        claims = result_of(read_response(LlmResponse.model_validate(record | given), Policy()).claims)
        assert claims is not None
        assert [claim.flag_reason for claim in claims.report.claims] == [reason]


DECISION = "the id of a decision"


def asking(*, confidence: float = 0.45, **changed: Any) -> ResponseCase:
    """An answer that does not hold, of which no check says anything else."""
    case = clean_case(confidence=confidence)
    case.response = case.response.model_copy(update=changed)
    return case


def chunk_of(name: str, text: str) -> Chunk:
    return Chunk(chunk_id=name, file="a.py", content=text, start_line=3, end_line=3)


def test_a_request_names_what_is_wrong_claims_first_and_a_hundred_things_at_most() -> None:

    def asked(**found: Any) -> list[str]:
        case = clean_case(reading=clean_reading(**found), confidence=0.45)
        request = regenerate_request(case, DECISION)
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
    assert regenerate_request(clean_case(), DECISION) is None
    case = clean_case(reading=clean_reading(fields=FieldCheckResult(["a"], ["x" * 600], 0.4)))
    request = regenerate_request(case, DECISION)
    assert request is not None
    assert request.flagged == [f"Unverified fields: [{'x' * 600}"[:500]]
    case = clean_case(reading=clean_reading(claims=claims_of(0, 0, 120)), confidence=0.45)
    request = regenerate_request(case, DECISION)
    assert request is not None
    assert "It has 100 parts." in request.prompt
    assert "It has 101 parts." not in request.prompt


def test_a_request_is_cut_to_its_limit_chunks_from_the_last_one_on_and_shows_file_and_lines(
    monkeypatch: pytest.MonkeyPatch,
):
    case = clean_case(reading=clean_reading(claims=claims_of(0, 1, 1)), confidence=0.45)
    case.response = LlmResponse.model_validate(WHOLE | {"confidence": 0.45})
    whole = regenerate_request(case, DECISION)
    assert whole is not None
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", len(whole.model_dump_json().encode()))
    assert regenerate_request(case, DECISION) == whole
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", len(whole.model_dump_json().encode()) - 1)
    assert regenerate_request(case, DECISION) != whole
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", 1)
    request = regenerate_request(case, DECISION)
    assert request is not None
    assert "user.name" not in request.prompt
    assert "It has" not in request.prompt
    assert len(request.flagged) == 2
    monkeypatch.undo()
    chunks = [chunk_of(f"k{n}", f"This is passage {n}.") for n in range(8)]
    case = asking(chunks=chunks)
    whole = regenerate_request(case, DECISION)
    assert whole is not None
    limit = len(whole.model_dump_json().encode()) - 1
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", limit)
    request = regenerate_request(case, DECISION)
    assert request is not None
    assert len(request.model_dump_json().encode()) <= limit
    assert "This is passage 0." in request.prompt
    assert "This is passage 7." not in request.prompt
    monkeypatch.undo()
    case = asking(chunks=[chunk_of("k", "This is the passage.")], context={"span": "This is the context."})
    request = regenerate_request(case, DECISION)
    assert request is not None
    assert '"a.py", lines 3-3\n' in request.prompt
    assert "This is the passage." in request.prompt
    assert "This is the context." not in request.prompt


def test_another_answer_or_the_sources_alone_are_given_within_the_limits_of_query_confidence_and_state() -> (
    None
):
    signs = "\x01" * 10  # six bytes each
    for size in (300_000, 300_001):
        query = signs + "q" * (size - len('""') - 60)
        assert (asking(query=query).regeneration is not None) is (size == 300_000)
    for mode in ("thinking", "instant"):
        settled, provisional = asking(mode=mode), asking(mode=mode)
        assert settled.regeneration or settled.fallback
        provisional.facts = Facts(clock=NOW, error=f"{STATE}=StateUnavailable")
        assert (provisional.regeneration, provisional.fallback) == (None, None)
    for confidence, fallback in ((0.4999, "raw_sources"), (0.5, None)):
        assert asking(mode="instant", confidence=confidence).fallback == fallback


def test_the_first_claims_are_extracted_as_many_as_are_asked_for_and_fill_their_room() -> None:
    def sentence(number: int, size: int) -> str:
        """A claim of so many bytes as JSON."""
        start = f"The gateway of region {number} retries every "
        return start + "x" * (size - len(start) - len('"."')) + "."

    def answered(answer: str | None) -> LlmResponse:
        return LlmResponse.model_construct(response_id="r", user_id="u", answer=answer)

    room = 60_000
    assert extract(answered(None), 5) == extract(answered(""), 5) == []
    few = [sentence(number, 60) for number in range(5)]
    assert extract(answered(" ".join(few)), 3) == few[:3]
    for last, kept in ((600, 100), (601, 99)):
        said = [sentence(number, 600) for number in range(99)] + [sentence(99, last)]
        assert sum(map(json_size, said)) == room + last - 600
        assert extract(answered("\n\n".join(said)), 200) == said[:kept]
    around = len(b'{"text": }')
    for text in ("", "plain", '"quoted" \\ back', "\x01\n\t", "\u00e9\u4e2d\U0001f600"):
        assert json_size(text) == len(json.dumps({"text": text}, ensure_ascii=False).encode()) - around
