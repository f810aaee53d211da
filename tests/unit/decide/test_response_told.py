"""What the report of a response tells of each check, part by part."""

from __future__ import annotations

from groundwire.decide.report import report_of
from groundwire.decide.response_claims import ClaimReport
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.report import build_report
from groundwire.messages.responses import Chunk
from tests.unit.decide.test_response_case import claim_of, clean_case, clean_reading, quotes_of


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
