"""Arguments of the library: a wrong one is named by a TypeError or ValueError, and errors and events hold no text."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import groundwire
from groundwire import (
    CitationDetector,
    DedupChecker,
    EntityGroundingGuard,
    FieldChecker,
    GroundedIngestionConfig,
    HedgeAction,
    HedgeDetector,
    IngestionValidator,
    QueryCache,
    ReasoningTraces,
    RelationPreservationGuard,
    ReviewQueue,
    SourceVerifier,
    VerificationConfig,
    annotate,
    audit_reasoning,
    detect_hallucinations,
    determine_tier,
    evidence_dependence,
    evidence_gap_bits,
    gap_band,
    grounded_prompt,
    jaccard_similarity,
    normalize_for_quote_match,
    validate_evidence_grounding,
    verify_citation,
    verify_claim,
    verify_response,
)

TEXT = "The gate retries 5 times."
SOURCES = {"1": TEXT}
CHUNK = {"chunk_id": "1", "file": "a.md", "content": TEXT, "start_line": 1, "end_line": 1}
CLAIM = {"content": TEXT, "memory_type": "fact", "source": "ai_synthesis", "user_id": "ada"}


class Stored:
    async def memories(self, _user_id, _memory_type):
        return []


class Odd:
    """What no argument is."""


async def test_every_public_callable_names_an_argument_that_is_none_or_of_a_wrong_type() -> None:
    validator = IngestionValidator(enable_dedup=False)
    result = await validator.validate(**CLAIM)
    queue = ReviewQueue(lambda evidence: evidence.claim)
    verifier = SourceVerifier([CHUNK])
    relations = [{"subject": "a", "relation": "calls", "object": "b"}]

    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "CitationDetector.detect": (CitationDetector().detect, {"text": TEXT}),
        "CitationDetector.summary": (CitationDetector().summary, {"text": TEXT}),
        "DedupChecker": (DedupChecker, {"provider": Stored(), "threshold": 0.9}),
        "DedupChecker.check_duplicate": (
            DedupChecker(Stored()).check_duplicate,
            {"content": TEXT, "user_id": "ada", "memory_type": "fact"},
        ),
        "EntityGroundingGuard": (EntityGroundingGuard, {"required_confidence": 0.5}),
        "EntityGroundingGuard.check": (
            EntityGroundingGuard().check,
            {"entities": [{"id": "a"}], "corpus_index": {}},
        ),
        "FieldChecker.extract_mentioned_fields": (FieldChecker().extract_mentioned_fields, {"answer": TEXT}),
        "FieldChecker.verify_fields": (FieldChecker().verify_fields, {"fields": ["a"], "chunks": [CHUNK]}),
        "GroundedIngestionConfig": (GroundedIngestionConfig, {"dedup_threshold": 0.9}),
        "HedgeDetector": (HedgeDetector, {"block": ["x"], "review": ["y"]}),
        "HedgeDetector.analyze": (HedgeDetector().analyze, {"text": TEXT}),
        "HedgeDetector.find": (HedgeDetector().find, {"text": TEXT}),
        "IngestionValidator": (
            IngestionValidator,
            {"provider": Stored(), "config": GroundedIngestionConfig()},
        ),
        "IngestionValidator.validate": (validator.validate, CLAIM),
        "QueryCache": (QueryCache, {"max_entries": 5}),
        "QueryCache.get": (QueryCache().get, {"key": "k"}),
        "QueryCache.invalidate_scope": (QueryCache().invalidate_scope, {"scope": "s"}),
        "QueryCache.set": (
            QueryCache().set,
            {"key": "k", "response": {"confidence": 0.9}, "mode": "auto", "scope": "s"},
        ),
        "QueryCache.why_refused": (QueryCache.why_refused, {"response": {"confidence": 0.9}}),
        "ReasoningTraces.add_node": (ReasoningTraces().add_node, {"decision_type": "goal", "content": TEXT}),
        "ReasoningTraces.verify_claim": (ReasoningTraces().verify_claim, {"claim_id": "x"}),
        "RelationPreservationGuard": (RelationPreservationGuard, {"relation_resolver": lambda *_: []}),
        "RelationPreservationGuard.check": (
            RelationPreservationGuard(lambda *_: []).check,
            {"claims": relations},
        ),
        "ReviewQueue": (ReviewQueue, {"store_callback": lambda _: "1", "max_per_user": 3}),
        "ReviewQueue.approve": (queue.approve, {"queue_id": "q", "reviewer": "ada"}),
        "ReviewQueue.enqueue": (
            queue.enqueue,
            {**CLAIM, "evidence": result.evidence, "validation_result": result},
        ),
        "ReviewQueue.get_by_id": (queue.get_by_id, {"queue_id": "q", "user_id": "ada"}),
        "ReviewQueue.get_pending": (queue.get_pending, {"user_id": "ada", "limit": 3}),
        "ReviewQueue.history": (queue.history, {"user_id": "ada", "limit": 3}),
        "ReviewQueue.reject": (queue.reject, {"queue_id": "q", "reviewer": "ada", "reason": "x"}),
        "SourceVerifier": (SourceVerifier, {"chunks": [CHUNK]}),
        "SourceVerifier.verify_lines": (verifier.verify_lines, {"file": "a.md", "start": 1, "end": 1}),
        "SourceVerifier.verify_snippet": (verifier.verify_snippet, {"file": "a.md", "snippet": TEXT}),
        "SourceVerifier.verify_source": (verifier.verify_source, {"source": {"file": "a.md"}}),
        "SourceVerifier.verify_sources": (verifier.verify_sources, {"sources": [{"file": "a.md"}]}),
        "VerificationConfig": (VerificationConfig, {"sample_rate": 0.5}),
        "annotate": (annotate, {"answer": TEXT, "report": detect_hallucinations(TEXT, SOURCES)}),
        "audit_reasoning": (
            audit_reasoning,
            {"steps": [{"claim": TEXT, "cites": ["1"]}], "sources": SOURCES},
        ),
        "detect_hallucinations": (detect_hallucinations, {"response": TEXT, "context": SOURCES}),
        "determine_tier": (
            determine_tier,
            {
                "hedge_result": HedgeAction.CONTINUE,
                "is_duplicate": False,
                "dedup_failed": False,
                "has_verified_citation": False,
                "source": "user",
                "memory_type": "fact",
            },
        ),
        "evidence_dependence": (evidence_dependence, {"question": "?", "answer": TEXT, "evidence": TEXT}),
        "evidence_gap_bits": (evidence_gap_bits, {"p1": 0.5, "p0": 0.1, "tau": 0.9}),
        "gap_band": (gap_band, {"bits": 1.0}),
        "grounded_prompt": (grounded_prompt, {"query": "?", "chunks": [CHUNK]}),
        "jaccard_similarity": (jaccard_similarity, {"text1": "a", "text2": "b"}),
        "normalize_for_quote_match": (normalize_for_quote_match, {"text": TEXT}),
        "validate_evidence_grounding": (
            validate_evidence_grounding,
            {"evidence": {"a": [TEXT]}, "transcript_text": TEXT, "mode": "substring", "fuzzy_threshold": 0.9},
        ),
        "verify_citation": (verify_citation, {"citation": CitationDetector().detect("ADR-003")[0]}),
        "verify_claim": (verify_claim, {"claim": TEXT, "evidence": [TEXT], "threshold": 0.9}),
        "verify_response": (verify_response, {"query": "?", "answer": TEXT, "context": SOURCES}),
    }
    records = """
    Citation ClaimVerification DuplicateResult EpistemicGap EvidenceGroundingError EvidenceGroundingStats
    EvidenceObject HallucinationReport HedgeAction HedgeResult IngestionTier MemoryReviewStore ModelCall
    PendingMemory RedisQueryCache RedisReviewStore ReviewEvent ReviewNotFound ReviewOvertaken ReviewQueueFull
    ReviewStoreFailed ReviewUnauthorized StateUnavailable Tier UncoveredWord ValidationResult
    VerificationResult VerifiedResponse
    """  # what calls return and raise, and stores that are handed to others
    never_raises = {"execute_with_fallback"}  # except for the mode, whatever its parts do (S2-27)
    called = {name.partition(".")[0] for name in calls}
    assert called | {*records.split()} | never_raises == set(groundwire.__all__) - {"__version__"}
    wrong = []
    for name, (function, given) in calls.items():
        for argument in given:
            parameter = inspect.signature(function).parameters[argument]
            takes_none = parameter.default is None or "None" in str(parameter.annotation)
            for value in (Odd(),) if takes_none else (Odd(), None):
                try:
                    answer = function(**{**given, argument: value})
                    if inspect.isawaitable(answer):
                        await answer
                except (TypeError, ValueError) as refused:
                    if argument.removesuffix("s") in str(refused):
                        continue
                wrong.append((name, argument, value))
    assert wrong == []


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
