"""What users of the library met: what is refused says so, errors hold no text, and standard output stays theirs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace

import pytest

from groundwire import (
    GroundedIngestionConfig,
    IngestionValidator,
    QueryCache,
    ReviewQueue,
    SourceVerifier,
    verify_claim,
)

SECRET = "Ann lives in Cork"
GOOD = {
    "answer": "5",
    "confidence": 0.9,
    "warnings": [],
    "validation": {"sourcesVerified": 1, "sourcesTotal": 1, "fieldsVerified": 0, "fieldsTotal": 0},
}


async def enqueue(text: str, evidence_text: str | None = None) -> str:
    claim = {"content": text, "memory_type": "fact", "source": "ai_synthesis"}
    result = await IngestionValidator(enable_dedup=False).validate(**claim, user_id="ada")
    evidence = replace(result.evidence, claim=evidence_text or text)
    queue = ReviewQueue(lambda evidence: evidence.claim)
    return await queue.enqueue("ada", **claim, evidence=evidence, validation_result=result)


def test_a_text_that_differs_from_its_evidence_and_a_blocked_claim_are_not_taken_in() -> None:
    assert asyncio.run(enqueue("The API uses OAuth2"))
    with pytest.raises(ValueError, match="evidence: its claim is another text") as found:
        asyncio.run(enqueue("The API uses OAuth2", SECRET))
    assert SECRET not in str(found.value)
    with pytest.raises(ValueError, match="validation_result: the claim is blocked"):
        asyncio.run(enqueue("I think that the API uses OAuth2"))


def test_evidence_may_be_a_mapping_and_none_is_named() -> None:
    found = verify_claim("The gate retries 5 times.", {"doc-7": "The gate retries 5 times."})
    assert found.evidence_ids == ["doc-7"]
    for evidence, named in ((None, "evidence"), ({"doc-7": None}, "doc-7"), ([SECRET, None], "evidence 2")):
        with pytest.raises(TypeError, match=named) as wrong:
            verify_claim("The gate retries 5 times.", evidence)  # type: ignore[arg-type]
        assert SECRET not in str(wrong.value)


def test_errors_of_the_library_are_value_errors_without_the_text() -> None:
    for call in [
        lambda: GroundedIngestionConfig(dedup_threshold=SECRET),  # type: ignore[arg-type]
        lambda: SourceVerifier([{"file": "a", "content": [SECRET]}]),
    ]:
        with pytest.raises(ValueError, match=r"dedup_threshold|content") as found:
            call()
        assert SECRET not in str(found.value)


def test_a_cache_keeps_only_what_held_and_says_why_it_refuses() -> None:
    for changed, why in [
        ({}, None),
        ({"confidence": 0.2}, "low_confidence"),
        ({"warnings": [{"type": "UNSUPPORTED_VALUE"}]}, "unsupported"),
        ({"validation": {"sourcesVerified": 1, "sourcesTotal": 2}}, "unsupported"),
        ({"validation": {"fieldsVerified": 0, "fieldsTotal": 1}}, "unsupported"),
        ({"validation": None}, "unvalidated"),
        ({"answer": (n for n in "ab")}, "unstorable"),
    ]:
        cache = QueryCache()
        assert cache.set("k", GOOD | changed) is (why is None)
        assert cache.why_refused(GOOD | changed) == why


@pytest.mark.slow
def test_events_of_a_program_that_has_configured_no_logs_leave_its_standard_output_alone() -> None:
    program = (
        "from groundwire import validate_evidence_grounding\n"
        "validate_evidence_grounding({'a': ['was never said']}, 'We spoke of something else')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert "evidence_quote_rejected" in ended.stderr
