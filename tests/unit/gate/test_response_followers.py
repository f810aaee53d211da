"""What follows a response's decision: a request for another answer, and the claims that are fanned out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groundwire.checks.sources import FieldCheckResult
from groundwire.epistemic.plan import build_report
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate import response_case
from groundwire.gate.response_case import STATE, ResponseCase, extract, fan_out, json_size, regenerate_request
from groundwire.gate.response_checks import ClaimReport
from groundwire.messages.decisions import Decision, Facts, IngestionTier
from groundwire.messages.records import Chunk, LlmResponse
from tests.unit.gate.builders import (
    WHOLE,
    claim_of,
    claims_of,
    clean_case,
    clean_reading,
    index_of,
)
from tests.unit.gate.world import NOW, World


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


async def test_a_request_that_just_fits_is_whole_and_one_that_fits_nowhere_has_no_chunks_and_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


async def test_a_long_warning_is_shown_by_its_first_five_hundred_characters() -> None:
    case = clean_case(reading=clean_reading(fields=FieldCheckResult(["a"], ["x" * 600], 0.4)))
    request = regenerate_request(case, await a_decision())
    assert request is not None
    assert request.flagged == [f"Unverified fields: [{'x' * 600}"[:500]]


async def test_of_more_than_a_hundred_claims_that_do_not_hold_the_prompt_names_the_first_hundred() -> None:
    case = clean_case(reading=clean_reading(claims=claims_of(0, 0, 120)), confidence=0.45)
    request = regenerate_request(case, await a_decision())
    assert request is not None
    assert "It has 100 parts." in request.prompt
    assert "It has 101 parts." not in request.prompt


async def test_chunks_alone_that_do_not_fit_are_cut_from_the_last_one_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


async def test_the_prompt_shows_chunks_with_file_and_lines_whatever_the_context() -> None:
    case = asking(chunks=[chunk_of("k", "This is the passage.")], context={"span": "This is the context."})
    request = regenerate_request(case, await a_decision())
    assert request is not None
    assert '"a.py", lines 3-3\n' in request.prompt
    assert "This is the passage." in request.prompt
    assert "This is the context." not in request.prompt


def test_a_query_is_asked_again_up_to_three_hundred_thousand_bytes_as_json() -> None:
    signs = "\x01" * 10  # six bytes each
    for size in (300_000, 300_001):
        query = signs + "q" * (size - len('""') - 60)
        assert (asking(query=query).regeneration is not None) is (size == 300_000)


def test_a_provisional_decision_asks_for_nothing_and_ends_nothing() -> None:
    for mode in ("thinking", "instant"):
        settled, provisional = asking(mode=mode), asking(mode=mode)
        assert settled.regeneration or settled.fallback
        provisional.facts = Facts(clock=NOW, error=f"{STATE}=StateUnavailable")
        assert (provisional.regeneration, provisional.fallback) == (None, None)


def test_the_sources_alone_are_given_only_below_half() -> None:
    for confidence, fallback in ((0.4999, "raw_sources"), (0.5, None)):
        assert asking(mode="instant", confidence=confidence).fallback == fallback


async def decision_of(tier: IngestionTier, extraction: list[str] | None) -> Decision:
    world = World()
    (decision,) = await world.decide(world.response(tenant_id="acme"))
    return decision.model_copy(update={"tier": tier, "facts": Facts(clock=NOW, extraction=extraction)})


def sentence(number: int, size: int) -> str:
    """A claim of so many bytes as JSON."""
    start = f"The gateway of region {number} retries every "
    return start + "x" * (size - len(start) - len('"."')) + "."


async def test_the_claims_of_a_response_are_sent_on_unless_it_is_blocked() -> None:
    said = ["It retries.", "It waits."]
    for tier in IngestionTier:
        claims = fan_out(await decision_of(tier, said))
        sent = [] if tier == IngestionTier.BLOCK else [("r1#1", said[0]), ("r1#2", said[1])]
        assert [(claim.claim_id, claim.content) for claim in claims] == sent
        for claim in claims:
            assert (claim.tenant_id, claim.user_id, claim.source) == ("acme", "ada", "ai_synthesis")
            assert (claim.source_id, claim.derived_from) == ("response:r1", ["response:r1"])
    for nothing in (None, []):
        assert [*fan_out(await decision_of(IngestionTier.AUTO_APPROVE, nothing))] == []


def answered(answer: str | None) -> LlmResponse:
    return LlmResponse.model_construct(response_id="r", user_id="u", answer=answer)


def test_the_first_claims_are_extracted_as_many_as_are_asked_for_and_fill_their_room() -> None:
    room = 60_000
    assert extract(answered(None), 5) == extract(answered(""), 5) == []
    few = [sentence(number, 60) for number in range(5)]
    assert extract(answered(" ".join(few)), 3) == few[:3]
    for last, kept in ((600, 100), (601, 99)):
        said = [sentence(number, 600) for number in range(99)] + [sentence(99, last)]
        assert sum(map(json_size, said)) == room + last - 600
        assert extract(answered("\n\n".join(said)), 200) == said[:kept]


def test_the_size_of_a_text_is_that_of_its_json_in_utf8_with_its_quotes() -> None:
    around = len(b'{"text": }')
    for text in ("", "plain", '"quoted" \\ back', "\x01\n\t", "\u00e9\u4e2d\U0001f600"):
        assert json_size(text) == len(json.dumps({"text": text}, ensure_ascii=False).encode()) - around
