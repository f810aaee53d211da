"""What a response's decision lists: its checks line by line, its warnings and its report."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from groundwire.checks.sources import FieldCheckResult
from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate import response_case
from groundwire.gate.response_case import (
    STATE,
    ResponseCase,
    extract,
    json_size,
    regenerate_request,
    report_of,
)
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
from groundwire.messages.decisions import Decision, Facts
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
from tests.unit.gate.world import NOW, World


def with_facts(case: ResponseCase, **facts: object) -> ResponseCase:
    case.facts = Facts.model_validate({"clock": NOW, **facts})
    return case


def test_the_report_holds_failures_of_quotes_evidence_of_hops_and_fallback_only_where_there_are_any() -> None:
    held = report_of(clean_case(reading=clean_reading(quotes=quotes_of(1, 0, 0))))["quotes"]
    assert held is not None
    assert "failure" not in held
    failed = quotes_of(0, 1, 0)
    told = report_of(clean_case(reading=clean_reading(quotes=failed)))["quotes"]
    assert told["failure"] == failed.failure
    assert failed.failure
    # S3-23
    for given, told in (([{"hop": 1}, "two"], [{"hop": 1}, "two"]), (None, [])):
        case = clean_case(reading=clean_reading(relations=relations_of(0, 0, 1)))
        case.response = case.response.model_copy(update={"hop_results": given})
        assert report_of(case)["relations"]["hop_evidence"] == told
    chunks = [Chunk(chunk_id=f"k{n}", file="a.py", content="x", start_line=1, end_line=1) for n in range(3)]
    for confidence, given, named in ((0.4, chunks, ["k0", "k1", "k2"]), (0.4, None, []), (0.9, chunks, None)):
        case = clean_case(confidence=confidence)
        case.response = case.response.model_copy(update={"mode": "instant", "chunks": given})
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


def test_an_answer_may_cite_the_file_of_a_source_beside_its_context() -> None:
    text = "The gateway retries failed requests 3 times"
    for file, reason in (("lib/s9.py", None), ("lib/s8.py", "phantom_citation")):
        given = {"context": {"span": f"{text}."}, "sources": [{"file": "lib/s9.py"}]}
        record = {"response_id": "r", "user_id": "u", "confidence": 1.0, "answer": f"{text} [ref: {file}]."}
        claims = result_of(read_response(LlmResponse.model_validate(record | given), Policy()).claims)
        assert claims is not None
        assert [claim.flag_reason for claim in claims.report.claims] == [reason]


async def a_decision() -> Decision:
    world = World()
    (decision,) = await world.decide(world.response())
    return decision


def asking(*, confidence: float = 0.45, **changed: Any) -> ResponseCase:
    """An answer that does not hold, of which no check says anything else."""
    case = clean_case(confidence=confidence)
    case.response = case.response.model_copy(update=changed)
    return case


def chunk_of(name: str, text: str) -> Chunk:
    return Chunk(chunk_id=name, file="a.py", content=text, start_line=3, end_line=3)


async def test_a_request_names_what_is_wrong_claims_first_and_a_hundred_things_at_most() -> None:
    decision = await a_decision()

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
    case = clean_case(reading=clean_reading(fields=FieldCheckResult(["a"], ["x" * 600], 0.4)))
    request = regenerate_request(case, await a_decision())
    assert request is not None
    assert request.flagged == [f"Unverified fields: [{'x' * 600}"[:500]]
    case = clean_case(reading=clean_reading(claims=claims_of(0, 0, 120)), confidence=0.45)
    request = regenerate_request(case, await a_decision())
    assert request is not None
    assert "It has 100 parts." in request.prompt
    assert "It has 101 parts." not in request.prompt


async def test_a_request_is_cut_to_its_limit_chunks_from_the_last_one_on_and_shows_file_and_lines(
    monkeypatch: pytest.MonkeyPatch,
):
    decision = await a_decision()
    case = clean_case(reading=clean_reading(claims=claims_of(0, 1, 1)), confidence=0.45)
    case.response = LlmResponse.model_validate(WHOLE | {"confidence": 0.45})
    whole = regenerate_request(case, decision)
    assert whole is not None
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", len(whole.model_dump_json().encode()))
    assert regenerate_request(case, decision) == whole
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", len(whole.model_dump_json().encode()) - 1)
    assert regenerate_request(case, decision) != whole
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", 1)
    request = regenerate_request(case, decision)
    assert request is not None
    assert "user.name" not in request.prompt
    assert "It has" not in request.prompt
    assert len(request.flagged) == 2
    chunks = [chunk_of(f"k{n}", f"This is passage {n}.") for n in range(8)]
    case = asking(chunks=chunks)
    decision = await a_decision()
    whole = regenerate_request(case, decision)
    assert whole is not None
    limit = len(whole.model_dump_json().encode()) - 1
    monkeypatch.setattr(response_case, "MAX_REQUEST_BYTES", limit)
    request = regenerate_request(case, decision)
    assert request is not None
    assert len(request.model_dump_json().encode()) <= limit
    assert "This is passage 0." in request.prompt
    assert "This is passage 7." not in request.prompt
    monkeypatch.undo()
    case = asking(chunks=[chunk_of("k", "This is the passage.")], context={"span": "This is the context."})
    request = regenerate_request(case, await a_decision())
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
