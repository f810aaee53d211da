"""The library: the published names, validating without services, deduplication, and arguments that are refused."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import inspect
import subprocess
import sys
from dataclasses import fields, replace
from datetime import UTC
from unittest.mock import AsyncMock

import pytest
from hypothesis import given
from hypothesis import strategies as st

import groundwire
from groundwire import (
    DedupChecker,
    GroundedIngestionConfig,
    HedgeAction,
    IngestionTier,
    IngestionValidator,
    QueryCache,
    ReviewQueue,
    SourceVerifier,
    Tier,
    ValidationResult,
    VerificationConfig,
    detect_hallucinations,
    determine_tier,
    verify_claim,
)
from tests.unit.gate.world import World, adr_folder, verifier

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"
SECRET = "Ann lives in Cork"


class Memories:
    """A provider that remembers what it was asked."""

    def __init__(self, *contents, error=None):
        self.contents = contents
        self.error = error
        self.asked = []

    async def memories(self, user_id, memory_type):
        self.asked.append((user_id, memory_type))
        if self.error:
            raise self.error
        return [(f"m{number}", content) for number, content in enumerate(self.contents, 1)]


# --- names


def test_every_public_name_is_documented_and_the_contract_names_are_exported():
    """C-33."""
    for name in groundwire.__all__:
        value = getattr(groundwire, name)
        assert name in dir(groundwire)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value)
    names = """IngestionValidator IngestionTier Tier GroundedIngestionConfig determine_tier HedgeDetector HedgeAction
    CitationDetector verify_citation DedupChecker jaccard_similarity EvidenceObject ValidationResult
    Citation VerificationResult HedgeResult ReviewEvent ReviewOvertaken StateUnavailable"""
    assert set(names.split()) <= set(groundwire.__all__)
    assert Tier is IngestionTier
    assert [action.value for action in HedgeAction] == ["block", "review", "none"]
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = groundwire.NoSuchName


@pytest.mark.slow
def test_importing_the_package_imports_nothing_else_and_checking_a_claim_no_logs_settings_or_network():
    """They take as long to import as all that the check needs."""
    code = (
        "import asyncio, sys, groundwire; assert not {'httpx', 'pydantic'} & sys.modules.keys();"
        "from groundwire import IngestionValidator;"
        "claim = dict(content='It is 5', memory_type='fact', source='user', user_id='a');"
        "asyncio.run(IngestionValidator(enable_dedup=False).validate(**claim));"
        "sys.exit(', '.join({'structlog', 'rich', 'pydantic_settings', 'httpx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, check=False)
    assert done.stderr.strip() == b""


def test_the_examples_in_the_documentation_run():
    for name in ("dedup", "validator", "fallback", "query_cache", "quotes", "review_queue.queue"):
        result = doctest.testmod(importlib.import_module(f"groundwire.library.{name}"))
        assert (name, result.failed, result.attempted > 0) == (name, 0, True)


def test_signatures_are_the_published_ones():
    """S0-04, S0-107, S0-108, S0-151."""
    for function, names in [
        (determine_tier, "hedge_result is_duplicate dedup_failed has_verified_citation source memory_type"),
        (IngestionValidator, "provider enable_dedup"),
        (IngestionValidator.validate, "self content memory_type source user_id"),
        (DedupChecker.check_duplicate, "self content user_id memory_type"),
    ]:
        assert " ".join(inspect.signature(function).parameters).startswith(names)
    assert inspect.signature(IngestionValidator).parameters["enable_dedup"].default is True
    assert inspect.signature(DedupChecker).parameters["threshold"].default == 0.92
    assert " ".join(field.name for field in fields(ValidationResult)).startswith(  # S0-147
        "tier approved reason evidence checks_passed checks_failed similarity_score conflicting_memory_id"
    )


# --- validate


async def validate(content, source="ai_synthesis", memory_type="fact", provider=None, **options):
    options.setdefault("verifier", verifier())
    validator = IngestionValidator(provider or Memories(), **options)
    return await validator.validate(content=content, memory_type=memory_type, source=source, user_id="ada")


async def test_the_library_decides_as_the_stream_does(tmp_path):
    """Same tier, reason, checks and evidence as the gate, with the same memories stored."""
    cases = [
        ("Maybe we could try GraphQL", "user", "fact"),
        ("It may fail", "user", "fact"),
        ("Snow is white", "ai_synthesis", "fact"),
        ("We decided to use PostgreSQL", "conversation", "decision"),
        ("I like tabs", "chat", "preference"),
        ("Per ADR-003 we use PostgreSQL", "ai_synthesis", "fact"),
        ("Per ADR-999 we use magic and #12", "documentation", "fact"),
        (TEXT, "user", "fact"),
        (TEXT + " never", "user", "fact"),
    ]
    for config in [
        GroundedIngestionConfig(),
        GroundedIngestionConfig(verify_claim_relevance=True),
        GroundedIngestionConfig(auto_approve_ai_synthesis=False, failed_citation_overrides_trust=True),
        GroundedIngestionConfig(enable_dedup=False),
    ]:
        for content, source, memory_type in cases:
            sound = verifier(adr_folder(tmp_path / "adrs", ADR_003="PostgreSQL"))
            world = World(policy=config, verifier=sound)
            await world.one(TEXT, "m1", source="user")
            decision = await world.one(content, "c", source=source, memory_type=memory_type)
            provider = Memories(*([TEXT] if memory_type == "fact" else []))
            result = await validate(content, source, memory_type, provider, config=config, verifier=sound)
            for name in ("tier", "approved", "reason", "checks_failed", "checks_skipped"):
                assert getattr(result, name) == getattr(decision, name)
            assert result.checks_passed == [one for one in decision.checks_passed if one != "review_place"]
            assert result.similarity_score == decision.similarity_score
            assert result.conflicting_memory_id == decision.conflicting_memory_id
            assert result.evidence.source_id == decision.evidence.source_id
            assert result.evidence.confidence == decision.evidence.confidence
            assert result.evidence.capture_time.tzinfo is UTC


async def test_every_memory_of_the_user_and_type_is_compared_and_those_of_all_types_where_the_scope_is_the_user():
    """S0-124: not only the first hundred."""
    others = [f"thing{'abcdefghij'[n % 10]}{'klmnopqrstu'[n // 10]} exists" for n in range(100)]
    provider = Memories(*others, TEXT)
    result = await validate(TEXT, provider=provider)
    assert (result.tier, result.conflicting_memory_id, result.similarity_score) == ("tier_3", "m101", 1.0)
    assert provider.asked == [("ada", "fact")]
    provider = Memories(TEXT)
    config = GroundedIngestionConfig(dedup_scope="user")
    assert (await validate(TEXT, provider=provider, config=config)).tier == "tier_3"
    assert sorted(provider.asked) == [("ada", "decision"), ("ada", "fact"), ("ada", "preference")]


async def test_a_provider_that_fails_or_answers_nonsense_sends_everything_to_review():
    """S0-45, S0-110; speculation stays blocked (C-27)."""
    for error in [RuntimeError("down"), TimeoutError(), KeyError("y")]:
        result = await validate("Snow is white", source="user", provider=Memories(error=error))
        assert result.tier == "tier_2"
        assert result.reason == "Dedup check failed - cannot verify uniqueness"
        assert "dedup_check_failed" in result.checks_failed
        assert (await validate("Maybe", provider=Memories(error=error))).tier == "tier_3"
    provider = Memories()
    for answer in (None, [("m1",)], [("m1", None)], 5, ["abc"]):
        provider.memories = AsyncMock(return_value=answer)
        assert not (await validate("Snow is white", source="user", provider=provider)).approved


async def test_what_cannot_work_is_refused_when_it_is_made_and_an_argument_that_no_claim_holds_is_named():
    with pytest.raises(ValueError, match="provider"):
        IngestionValidator()
    with pytest.raises(ValueError, match="embedder"):
        IngestionValidator(Memories(), config=GroundedIngestionConfig(dedup_method="vector"))
    with pytest.raises(ValueError, match="threshold"):
        DedupChecker(Memories(), threshold=0)
    for name, value in [
        *(("content", text) for text in ("", "x" * 20_001, "a\0b", "\ud800", None)),
        *(("memory_type", "rumour"), ("source", ""), ("user_id", "")),
    ]:
        arguments = {"content": "x", "memory_type": "fact", "source": "user", "user_id": "ada", name: value}
        with pytest.raises(ValueError, match=name):
            await IngestionValidator(enable_dedup=False, verifier=verifier()).validate(**arguments)


def test_without_a_verifier_the_working_directory_is_looked_at(tmp_path, monkeypatch):
    adr_folder(tmp_path / "docs")
    adr_folder(tmp_path / "docs/adrs", ADR_003="x")
    monkeypatch.chdir(tmp_path)
    validator = IngestionValidator(enable_dedup=False)
    for _ in range(2):  # in one event loop after the other
        result = asyncio.run(validator.validate("Per ADR-003 it holds", "fact", "ai_synthesis", "ada"))
        assert (result.approved, result.evidence.source_id) == (True, "ADR-003")


# --- DedupChecker


async def test_a_text_is_compared_with_every_memory():
    """S0-109, S0-110, S0-121."""
    for stored, content, *expected in [
        ([], TEXT, False, 0.0, None, "none"),
        (["Something else", TEXT], TEXT, True, 1.0, "m2", "none"),
        ([TEXT], TEXT + " never", False, 0.9444, "m1", "negation"),
        (["a b c d"], "a b c e", False, 0.6, None, "none"),
    ]:
        found = await DedupChecker(Memories(*stored)).check_duplicate(content, "ada", "fact")
        told = [found.is_duplicate, found.similarity, found.existing_memory_id, found.difference]
        assert (told, found.dedup_failed, found.error) == (expected, False, None)
    checker = DedupChecker(Memories(TEXT), material_difference=False)
    assert (await checker.check_duplicate(TEXT + " never", "ada", "fact")).is_duplicate
    result = await DedupChecker(Memories(error=OSError("x"))).check_duplicate(TEXT, "ada", "fact")
    assert (result.dedup_failed, result.error) == (True, "OSError")
    assert (result.is_duplicate, result.existing_memory_id) == (False, None)


words = st.lists(
    st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"]), min_size=1
)


@given(stored=words, content=words)
def test_the_similarity_is_that_of_the_two_sets_of_words(stored, content):
    """S0-104: intersection ÷ union, and a duplicate from 92 in a hundred (in the same order)."""
    both, either = len({*content} & {*stored}), len({*content} | {*stored})
    checker = DedupChecker(Memories(" ".join(stored)), material_difference=False)
    result = asyncio.run(checker.check_duplicate(" ".join(content), "ada", "fact"))
    assert result.similarity == round(both / either, 4)
    assert result.is_duplicate == (100 * both >= 92 * either)


async def test_with_an_embedder_meanings_are_compared_and_one_that_fails_is_a_failed_deduplication():
    """S0-116."""
    vectors = {
        "cats purr": (1.0, 0.0),
        "felines make a low sound": (0.97, 0.243),
        "dogs bark": (0.0, 2.0),
        "cats never purr": (0.99, 0.141),
        "cats purr when they are happy": (1.0, 0.0),
        "when happy, most cats purr": (1.0, 0.01),
        "nothing": (0.0, 0.0),
        "broken": (float("nan"), 1.0),
        "short": (1.0,),
    }

    async def later(text):
        return vectors[text]

    class Embedder:
        embed = staticmethod(later)

    options = {
        "source": "user",
        "config": GroundedIngestionConfig(dedup_method="vector", dedup_threshold=0.95),
    }
    for embedder in [Embedder(), vectors.__getitem__, later]:
        options["embedder"] = embedder
        provider = Memories("dogs bark", "cats purr")
        same = await validate("felines make a low sound", provider=provider, **options)
        assert (same.tier, same.conflicting_memory_id, same.similarity_score) == ("tier_3", "m2", 0.97)
        assert (await validate("dogs bark", provider=Memories("cats purr"), **options)).approved
        conflict = await validate("cats never purr", provider=Memories("cats purr"), **options)
        assert conflict.tier == "tier_2"
        assert conflict.checks_failed[0] == "conflicting_near_duplicate: m1: negation"
    stored = Memories("cats purr when they are happy")
    paraphrase = await validate("when happy, most cats purr", provider=stored, **options)
    assert (paraphrase.tier, paraphrase.conflicting_memory_id) == ("tier_3", "m1")
    for content in ["nothing", "broken", "short", "not in the table"]:
        result = await validate(content, provider=Memories("cats purr"), **options)
        assert (result.tier, result.reason) == ("tier_2", "Dedup check failed - cannot verify uniqueness")
    checker = DedupChecker(Memories("a"), 1.0, embedder=lambda _: (0.1, 0.2, 0.3))
    equal = await checker.check_duplicate("b", "ada", "fact")
    assert equal.is_duplicate, "equal vectors, at a threshold of 1"


# --- arguments


async def test_every_public_callable_names_an_argument_that_is_none_or_of_a_wrong_type():
    claim = {"content": TEXT, "memory_type": "fact", "source": "ai_synthesis", "user_id": "ada"}
    chunk = {"chunk_id": "1", "file": "a.md", "content": TEXT, "start_line": 1, "end_line": 1}
    sources, g = {"1": TEXT}, groundwire
    result = await IngestionValidator(enable_dedup=False).validate(**claim)
    queue, cache, traces = ReviewQueue(lambda evidence: evidence.claim), QueryCache(), g.ReasoningTraces()
    place, relation = {"file": "a.md"}, {"subject": "a", "relation": "calls", "object": "b"}
    kept, item = {"confidence": 0.9}, {"queue_id": "q", "reviewer": "ada"}
    quotes = {"evidence": {"a": [TEXT]}, "transcript_text": TEXT}
    tier = {"is_duplicate": False, "dedup_failed": False, "has_verified_citation": False}
    calls = [
        (g.CitationDetector().detect, {"text": TEXT}),
        (g.CitationDetector().summary, {"text": TEXT}),
        (DedupChecker, {"provider": Memories(), "threshold": 0.9}),
        (
            DedupChecker(Memories()).check_duplicate,
            {"content": TEXT, "user_id": "ada", "memory_type": "fact"},
        ),
        (g.EntityGroundingGuard, {"required_confidence": 0.5}),
        (g.EntityGroundingGuard().check, {"entities": [{"id": "a"}], "corpus_index": {}}),
        (g.FieldChecker().extract_mentioned_fields, {"answer": TEXT}),
        (g.FieldChecker().verify_fields, {"fields": ["a"], "chunks": [chunk]}),
        (GroundedIngestionConfig, {"dedup_threshold": 0.9}),
        (g.HedgeDetector, {"block": ["x"], "review": ["y"]}),
        (g.HedgeDetector().analyze, {"text": TEXT}),
        (g.HedgeDetector().find, {"text": TEXT}),
        (IngestionValidator, {"provider": Memories(), "config": GroundedIngestionConfig()}),
        (IngestionValidator(enable_dedup=False).validate, claim),
        (QueryCache, {"max_entries": 5}),
        (cache.get, {"key": "k"}),
        (cache.invalidate_scope, {"scope": "s"}),
        (cache.set, {"key": "k", "response": kept, "mode": "auto", "scope": "s"}),
        (cache.why_refused, {"response": kept}),
        (traces.add_node, {"decision_type": "goal", "content": TEXT}),
        (traces.verify_claim, {"claim_id": "x"}),
        (g.RelationPreservationGuard, {"relation_resolver": lambda *_: []}),
        (g.RelationPreservationGuard(lambda *_: []).check, {"claims": [relation]}),
        (ReviewQueue, {"store_callback": lambda _: "1", "max_per_user": 3}),
        (queue.approve, item),
        (queue.enqueue, {**claim, "evidence": result.evidence, "validation_result": result}),
        (queue.get_by_id, {"queue_id": "q", "user_id": "ada"}),
        (queue.get_pending, {"user_id": "ada", "limit": 3}),
        (queue.history, {"user_id": "ada", "limit": 3}),
        (queue.reject, {**item, "reason": "x"}),
        (SourceVerifier, {"chunks": [chunk]}),
        (SourceVerifier([chunk]).verify_lines, {**place, "start": 1, "end": 1}),
        (SourceVerifier([chunk]).verify_snippet, {**place, "snippet": TEXT}),
        (SourceVerifier([chunk]).verify_source, {"source": place}),
        (SourceVerifier([chunk]).verify_sources, {"sources": [place]}),
        (VerificationConfig, {"sample_rate": 0.5}),
        (g.annotate, {"answer": TEXT, "report": detect_hallucinations(TEXT, sources)}),
        (g.audit_reasoning, {"steps": [{"claim": TEXT, "cites": ["1"]}], "sources": sources}),
        (detect_hallucinations, {"response": TEXT, "context": sources}),
        (
            determine_tier,
            {"hedge_result": HedgeAction.CONTINUE, **tier, "source": "a", "memory_type": "fact"},
        ),
        (g.evidence_dependence, {"question": "?", "answer": TEXT, "evidence": TEXT}),
        (g.evidence_gap_bits, {"p1": 0.5, "p0": 0.1, "tau": 0.9}),
        (g.gap_band, {"bits": 1.0}),
        (g.grounded_prompt, {"query": "?", "chunks": [chunk]}),
        (g.jaccard_similarity, {"text1": "a", "text2": "b"}),
        (g.normalize_for_quote_match, {"text": TEXT}),
        (g.validate_evidence_grounding, {**quotes, "mode": "substring", "fuzzy_threshold": 0.9}),
        (g.verify_citation, {"citation": g.CitationDetector().detect("ADR-003")[0]}),
        (verify_claim, {"claim": TEXT, "evidence": [TEXT], "threshold": 0.9}),
        (g.verify_response, {"query": "?", "answer": TEXT, "context": sources}),
    ]
    records = """
    Citation ClaimVerification DuplicateResult EpistemicGap EvidenceGroundingError EvidenceGroundingStats
    EvidenceObject HallucinationReport HedgeAction HedgeResult IngestionTier MemoryReviewStore ModelCall
    PendingMemory RedisQueryCache RedisReviewStore ReviewEvent ReviewNotFound ReviewOvertaken ReviewQueueFull
    ReviewStoreFailed ReviewUnauthorized StateUnavailable Tier UncoveredWord ValidationResult
    VerificationResult VerifiedResponse
    """  # what calls return and raise, and stores that are handed to others
    never_raises = {"execute_with_fallback"}  # except for the mode, whatever its parts do (S2-27)
    called = {function.__qualname__.partition(".")[0] for function, _ in calls} - {"Policy"}
    called |= {"GroundedIngestionConfig", *records.split()} | never_raises
    assert called == set(groundwire.__all__) - {"__version__"}
    wrong = []
    for function, given_ in calls:
        for argument in given_:
            parameter = inspect.signature(function).parameters[argument]
            takes_none = parameter.default is None or "None" in str(parameter.annotation)
            for value in (object(),) if takes_none else (object(), None):
                try:
                    answer = function(**{**given_, argument: value})
                    if inspect.isawaitable(answer):
                        await answer
                except (TypeError, ValueError) as refused:
                    if argument.removesuffix("s") in str(refused):
                        continue
                wrong.append((function, argument, value))
    assert wrong == []


async def test_a_text_that_differs_from_its_evidence_and_a_blocked_claim_are_not_taken_in():
    async def enqueue(text, evidence_text=None):
        claim = {"content": text, "memory_type": "fact", "source": "ai_synthesis"}
        result = await IngestionValidator(enable_dedup=False).validate(**claim, user_id="ada")
        claim |= {"evidence": replace(result.evidence, claim=evidence_text or text)}
        queue = ReviewQueue(lambda evidence: evidence.claim)
        return await queue.enqueue("ada", **claim, validation_result=result)

    assert await enqueue("The API uses OAuth2")
    with pytest.raises(ValueError, match="evidence: its claim is another text") as found:
        await enqueue("The API uses OAuth2", SECRET)
    assert SECRET not in str(found.value)
    with pytest.raises(ValueError, match="validation_result: the claim is blocked"):
        await enqueue("I think that the API uses OAuth2")


def test_errors_name_the_argument_and_hold_no_text_and_evidence_may_be_a_mapping():
    found = verify_claim("The gate retries 5 times.", {"doc-7": "The gate retries 5 times."})
    assert found.evidence_ids == ["doc-7"]
    for evidence, named in ((None, "evidence"), ({"doc-7": None}, "doc-7"), ([SECRET, None], "evidence 2")):
        with pytest.raises(TypeError, match=named) as wrong:
            verify_claim("The gate retries 5 times.", evidence)
        assert SECRET not in str(wrong.value)
    for call in [
        lambda: GroundedIngestionConfig(dedup_threshold=SECRET),
        lambda: SourceVerifier([{"file": "a", "content": [SECRET]}]),
    ]:
        with pytest.raises(ValueError, match=r"dedup_threshold|content") as found:
            call()
        assert SECRET not in str(found.value)


@pytest.mark.slow
def test_events_of_a_program_that_has_configured_no_logs_leave_its_standard_output_alone():
    program = (
        "from groundwire import validate_evidence_grounding\n"
        "validate_evidence_grounding({'a': ['was never said']}, 'We spoke of something else')\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == ""
    assert "evidence_quote_rejected" in ended.stderr
