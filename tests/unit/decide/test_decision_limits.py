"""A decision stays within 256 kB and its lists within 100 entries, and loses no fact by it."""

import pytest

from groundwire.attestation import Keys
from groundwire.messages import Decision
from groundwire.policy import Policy
from groundwire.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from tests.unit.gate.world import World, adr_folder, summary, verifier

LIMIT = 256_000
CONTROL = "\x01"  # six bytes in JSON


def nasty_parents():
    return [f"{n:03}" + CONTROL * 197 for n in range(50)]


def nasty_metadata():
    return {"x": CONTROL * 2_660}


NASTY = {
    "control characters": CONTROL * 20_000,
    "one URL of control characters": "http://x" + CONTROL * 19_992,
    "a hundred long URLs": " ".join(f"http://{n:03}" + CONTROL * 189 for n in range(100)),
    "thousands of issues": " ".join(f"#{n}" for n in range(1, 4_000))[:20_000],
    "thousands of hedges": ("may " * 5_000)[:20_000],
    "hedges, issues and control characters": ("may #12 " * 100 + CONTROL * 20_000)[:20_000],
    "different hedges and citations": " ".join(f"may ADR-{n} maybe" for n in range(1_100))[:20_000],
    "one citation thousands of times": ("#7 " * 7_000)[:20_000],
}


async def nastiest(content):
    """Everything at its legal worst: ids, parents, metadata, a rejected source id, matches."""
    world = World(policy=Policy(verify_claim_relevance=True, version="v" * 100))
    long_id = CONTROL * 199
    fields = {
        "source": CONTROL * 100,
        "source_id": CONTROL * 100_000,
        "derived_from": nasty_parents(),
        "metadata": nasty_metadata(),
        "captured_at": "2026-01-01T00:00:00.123456Z",
        "validity_horizon": "2027-01-01T00:00:00.123456Z",
        "user_id": CONTROL * 200,
        "tenant_id": "t" * 100,
    }
    records = [world.claim(f"{n}" + long_id, content, **fields) for n in range(3)]
    return world, await world.decide(*records)


@pytest.mark.parametrize("content", NASTY.values(), ids=NASTY)
async def test_the_nastiest_legal_claim_gives_a_decision_below_256_kb(content):
    _, decisions = await nastiest(content)
    for decision in decisions:
        assert len(decision.to_bytes()) <= LIMIT
        assert decision.evidence.claim == content
        assert decision.derived_from == nasty_parents()
        assert len(decision.facts.parents) == 50


@pytest.mark.parametrize("content", NASTY.values(), ids=NASTY)
async def test_even_that_is_derived_again_byte_for_byte_after_a_rebuild(content):
    world, decisions = await nastiest(content)
    world.state = MemoryState()
    stored = [stored_outcome(decision.to_bytes(), world.policy) for decision in decisions]
    assert await world.state.reassert(stored) == len(decisions)
    world.offset = 0
    _, again = await nastiest(content)
    assert [d.to_bytes() for d in again] == [d.to_bytes() for d in decisions]
    world.offset = 50
    for n, decision in enumerate(decisions):
        claim = {name: getattr(decision, name) for name in ("tenant_id", "user_id", "source", "derived_from")}
        claim |= {"source_id": CONTROL * 100_000, "validity_horizon": "2027-01-01T00:00:00.123456Z"}
        record = world.claim(f"{n}" + CONTROL * 199, content, **claim)
        (result,) = await world.decide(record)
        assert result.to_bytes() == decision.to_bytes()


async def test_lists_hold_a_hundred_entries_of_five_hundred_characters_and_count_the_rest():
    content = " ".join(f"ADR-{n}" for n in range(1, 131)) + " https://x.example/" + "p" * 600
    decision = await World().one(content)
    assert len(decision.citations) == 100
    assert len(decision.checks_failed) == 100
    total = 131
    assert decision.truncated["citations"] == total - 100
    assert decision.truncated["checks_failed"] == total + 1 - 100  # and the source that is not trusted
    decision = await World().one("See https://x.example/" + "p" * 600)
    assert len(decision.citations[0].value) == 500
    assert max(map(len, decision.checks_failed)) == 500
    assert decision.truncated is None


async def test_only_the_first_hundred_citations_are_verified_and_give_credit(tmp_path):
    adrs = adr_folder(tmp_path / "adrs", **{f"ADR_{n:03}": "text" for n in range(1, 103)})
    many = " ".join(f"ADR-{n}" for n in range(201, 301))
    world = World(verifier=verifier(adrs))
    assert summary(await world.one(f"{many} ADR-001", "c1")) == ("tier_2", "citation_unverified")
    assert summary(await world.one(f"ADR-001 {many}", "c2")) == ("tier_1", "verified_citation")


async def test_a_citation_behind_the_hundredth_counts_as_failed(tmp_path):
    """Where a failed citation overrides trust, so does one that was never looked at."""
    adrs = adr_folder(tmp_path / "adrs", **{f"ADR_{n:03}": "text" for n in range(1, 102)})
    policy = Policy(failed_citation_overrides_trust=True, enable_dedup=False)
    world = World(policy=policy, verifier=verifier(adrs))
    all_verified = " ".join(f"ADR-{n}" for n in range(1, 101))
    assert summary(await world.one(all_verified, "c1")) == ("tier_1", "verified_citation")
    assert summary(await world.one(f"{all_verified} and ADR-101", "c2")) == ("tier_2", "citation_unverified")


async def test_a_citation_that_stands_again_behind_the_hundredth_is_the_same_citation(tmp_path):
    adrs = adr_folder(tmp_path / "adrs", ADR_001="text")
    content = "ADR-001 " + " ".join(f"ADR-{n}" for n in range(201, 300)) + " ADR-001"
    decision = await World(verifier=verifier(adrs)).one(content)
    assert "citation_verified: adr:001" in decision.checks_passed
    assert "citation_unverified: adr:001" not in decision.checks_failed


async def test_a_long_url_that_is_verified_is_still_verified_after_a_rebuild():
    """Its value is cut in the decision; its place in the text is not."""
    url = "https://docs.example.com/" + "p" * 900
    world = World(verifier=verifier(urls={url: 200}))
    decision = await world.one(f"See {url}")
    assert summary(decision) == ("tier_1", "verified_citation")
    world.state = MemoryState()
    await world.state.reassert([stored_outcome(decision.to_bytes(), world.policy)])
    assert (await world.one(f"See {url}")).to_bytes() == decision.to_bytes()


async def test_a_decision_is_compact_json_that_reads_back_as_itself():
    world = World(keys=Keys.empty())
    decision = await world.one("Per ADR-003 it may be 漢字 <&>", metadata={"é": [1, 2.5, 10**40]})
    written = decision.to_bytes()
    assert "漢字 <&>".encode() in written
    assert b": " not in written.replace(decision.reason.encode(), b"").split(b'"checks_passed"')[0]
    assert Decision.model_validate_json(written).to_bytes() == written
