"""The library: the published names, validating without services, and deduplication against a provider."""

import asyncio
import doctest
import inspect
import subprocess
import sys
from dataclasses import fields
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
    Tier,
    ValidationResult,
    determine_tier,
)
from groundwire.library import dedup as dedup_module
from groundwire.library import validator as validator_module
from groundwire.messages.decisions import Decision
from tests.unit.gate.world import World, adr_folder, verifier

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"


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


def test_every_public_name_is_there_and_documented():
    for name in groundwire.__all__:
        value = getattr(groundwire, name)
        assert name in dir(groundwire)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value)


def test_the_names_of_the_claim_part_of_the_contract_are_exported():
    """C-33."""
    names = """IngestionValidator IngestionTier Tier GroundedIngestionConfig determine_tier HedgeDetector HedgeAction
    CitationDetector verify_citation DedupChecker jaccard_similarity EvidenceObject ValidationResult"""
    assert set(names.split()) <= set(groundwire.__all__)
    given = """Citation VerificationResult HedgeResult ReviewEvent ReviewOvertaken StateUnavailable"""
    assert set(given.split()) <= set(groundwire.__all__), "what the names above return and raise"
    assert Tier is IngestionTier
    with pytest.raises(AttributeError, match="NoSuchName"):
        _ = groundwire.NoSuchName


@pytest.mark.slow
def test_importing_the_package_imports_nothing_else_until_a_name_is_asked_for():
    code = (
        "import sys, groundwire; light = 'httpx' not in sys.modules and 'pydantic' not in sys.modules;"
        "groundwire.IngestionValidator; sys.exit(not light)"
    )
    assert subprocess.run([sys.executable, "-W", "error", "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_checking_a_claim_imports_no_logs_settings_or_network():
    """They take as long to import as all that the check needs."""
    code = (
        "import asyncio, sys; from groundwire import IngestionValidator;"
        "claim = dict(content='It is 5', memory_type='fact', source='user', user_id='a');"
        "asyncio.run(IngestionValidator(enable_dedup=False).validate(**claim));"
        "sys.exit(', '.join({'structlog', 'rich', 'pydantic_settings', 'httpx'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


def test_the_examples_in_the_documentation_run():
    for module in [dedup_module, validator_module]:
        result = doctest.testmod(module)
        assert (result.failed, result.attempted > 0) == (0, True)


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
        ("Snow is white", "user", "fact"),
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
            adrs = adr_folder(tmp_path / "adrs", ADR_003="PostgreSQL")
            sound = verifier(adrs)
            world = World(policy=config, verifier=sound)
            await world.one(TEXT, "m1", source="user")
            decision: Decision = await world.one(content, "c", source=source, memory_type=memory_type)
            provider = Memories(*([TEXT] if memory_type == "fact" else []))
            result = await validate(content, source, memory_type, provider, config=config, verifier=sound)
            ours = (result.tier, result.approved, result.reason, result.checks_failed)
            assert ours == (decision.tier, decision.approved, decision.reason, decision.checks_failed)
            queue = {"review_place"}
            assert result.checks_passed == [check for check in decision.checks_passed if check not in queue]
            assert result.checks_skipped == decision.checks_skipped
            assert result.similarity_score == decision.similarity_score
            assert result.conflicting_memory_id == decision.conflicting_memory_id
            assert result.evidence.source_id == decision.evidence.source_id
            assert result.evidence.confidence == decision.evidence.confidence
            assert result.evidence.capture_time.tzinfo is UTC


async def test_every_memory_of_the_user_and_type_is_compared():
    """S0-124: not only the first hundred."""
    provider = Memories(
        *[f"thing{'abcdefghij'[n % 10]}{'klmnopqrstu'[n // 10]} exists" for n in range(100)], TEXT
    )
    result = await validate(TEXT, provider=provider)
    assert (result.tier, result.conflicting_memory_id, result.similarity_score) == ("tier_3", "m101", 1.0)
    assert provider.asked == [("ada", "fact")]


async def test_across_types_where_the_scope_is_the_user():
    provider = Memories(TEXT)
    config = GroundedIngestionConfig(dedup_scope="user")
    assert (await validate(TEXT, provider=provider, config=config)).tier == "tier_3"
    assert sorted(provider.asked) == [("ada", "decision"), ("ada", "fact"), ("ada", "preference")]


async def test_a_provider_that_fails_sends_everything_to_review():
    """S0-45, S0-110; speculation stays blocked (C-27)."""
    for error in [RuntimeError("down"), TimeoutError(), ValueError("x"), KeyError("y")]:
        result = await validate("Snow is white", source="user", provider=Memories(error=error))
        assert result.tier == "tier_2"
        assert result.reason == "Dedup check failed - cannot verify uniqueness"
        assert "dedup_check_failed" in result.checks_failed
        assert (await validate("Maybe", provider=Memories(error=error))).tier == "tier_3"


async def test_a_provider_that_answers_nonsense_has_failed():
    provider = Memories()
    for answer in (None, [("m1",)], [("m1", None)], 5, ["abc"]):
        provider.memories = AsyncMock(return_value=answer)
        result = await validate("Snow is white", source="user", provider=provider)
        assert not result.approved


def test_what_cannot_work_is_refused_when_it_is_made():
    with pytest.raises(ValueError, match="provider"):
        IngestionValidator()
    with pytest.raises(ValueError, match="embedder"):
        IngestionValidator(Memories(), config=GroundedIngestionConfig(dedup_method="vector"))
    with pytest.raises(ValueError, match="threshold"):
        DedupChecker(Memories(), threshold=0)


async def test_an_argument_that_no_claim_holds_is_named():
    for changes, name in [
        ({"content": ""}, "content"),
        ({"content": "x" * 20_001}, "content"),
        ({"content": "a\0b"}, "content"),
        ({"content": "\ud800"}, "content"),
        ({"content": None}, "content"),
        ({"memory_type": "rumour"}, "memory_type"),
        ({"source": ""}, "source"),
        ({"user_id": ""}, "user_id"),
    ]:
        arguments = {"content": "x", "memory_type": "fact", "source": "user", "user_id": "ada"} | changes
        validator = IngestionValidator(enable_dedup=False, verifier=verifier())
        with pytest.raises(ValueError, match=name):
            await validator.validate(**arguments)


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
    for stored, content, duplicate, similarity, found, difference in [
        ([], TEXT, False, 0.0, None, "none"),
        ([TEXT], TEXT, True, 1.0, "m1", "none"),
        ([TEXT.upper() + "!"], TEXT, True, 1.0, "m1", "none"),
        (["Something else", TEXT], TEXT, True, 1.0, "m2", "none"),
        ([TEXT], TEXT + " never", False, 0.9444, "m1", "negation"),
        (["a b c d"], "a b c e", False, 0.6, None, "none"),
    ]:
        result = await DedupChecker(Memories(*stored)).check_duplicate(content, "ada", "fact")
        assert (result.is_duplicate, result.similarity, result.existing_memory_id) == (
            duplicate,
            similarity,
            found,
        )
        assert (result.difference, result.dedup_failed, result.error) == (difference, False, None)
    checker = DedupChecker(Memories(TEXT), material_difference=False)
    assert (await checker.check_duplicate(TEXT + " never", "ada", "fact")).is_duplicate
    result = await DedupChecker(Memories(error=OSError("x"))).check_duplicate(TEXT, "ada", "fact")
    assert (result.dedup_failed, result.error) == (True, "OSError")
    assert (result.is_duplicate, result.existing_memory_id) == (False, None)


word = st.sampled_from(
    ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]
)
texts = st.lists(word, min_size=1, max_size=12).map(" ".join)


@given(stored=texts, content=texts)
def test_the_similarity_is_that_of_the_two_sets_of_words(stored, content):
    """S0-104: intersection ÷ union, and a duplicate from 92 in a hundred (in the same order)."""
    ours, theirs = set(content.split()), set(stored.split())
    exact = len(ours & theirs) / len(ours | theirs)
    checker = DedupChecker(Memories(stored), material_difference=False)
    result = asyncio.run(checker.check_duplicate(content, "ada", "fact"))
    assert result.similarity == round(exact, 4)
    assert result.is_duplicate == (100 * len(ours & theirs) >= 92 * len(ours | theirs))


# --- vectors

VECTORS = {
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


class Embedder:
    async def embed(self, text):
        return VECTORS[text]


def embed_now(text):
    return VECTORS[text]


async def embed_later(text):
    return VECTORS[text]


VECTOR = GroundedIngestionConfig(dedup_method="vector", dedup_threshold=0.95)


async def test_with_an_embedder_meanings_are_compared():
    """S0-116."""
    for embedder in [Embedder(), embed_now, embed_later]:
        options = {"source": "user", "config": VECTOR, "embedder": embedder}
        same = await validate(
            "felines make a low sound", provider=Memories("dogs bark", "cats purr"), **options
        )
        assert (same.tier, same.conflicting_memory_id, same.similarity_score) == ("tier_3", "m2", 0.97)
        other = await validate("dogs bark", provider=Memories("cats purr"), **options)
        assert other.approved
        conflict = await validate("cats never purr", provider=Memories("cats purr"), **options)
        assert (conflict.tier, conflict.checks_failed[0]) == (
            "tier_2",
            "conflicting_near_duplicate: m1: negation",
        )


async def test_a_paraphrase_is_a_duplicate_of_its_meaning_and_an_embedder_that_fails_a_failed_deduplication():
    options = {"config": VECTOR, "embedder": embed_now}
    stored = Memories("cats purr when they are happy")
    result = await validate("when happy, most cats purr", provider=stored, **options)
    assert (result.tier, result.conflicting_memory_id) == ("tier_3", "m1")
    for content in ["nothing", "broken", "short", "not in the table"]:
        result = await validate(content, source="user", provider=Memories("cats purr"), **options)
        assert (result.tier, result.reason) == ("tier_2", "Dedup check failed - cannot verify uniqueness")
    checker = DedupChecker(Memories("a"), 1.0, embedder=lambda _: (0.1, 0.2, 0.3))
    assert (await checker.check_duplicate("b", "ada", "fact")).is_duplicate, (
        "equal vectors, at a threshold of 1"
    )


def test_hedges_are_the_published_actions():
    assert [action.value for action in HedgeAction] == ["block", "review", "none"]
