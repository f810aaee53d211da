"""What a decision holds of its case beside the checks, and what is cut where it is too large."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.gate.build import (
    Envelope,
    Stamp,
    build_decision,
    shorten,
)
from groundwire.gate.claim_case import CheckFinding, ClaimCase, primary_source, read_claim
from groundwire.gate.record import PublishedCase
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import CitationState, Decision, DedupFacts, Facts, Origin
from groundwire.messages.identity import decision_id
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from tests.unit.gate.builders import clean_case, clean_reading, index_of, match
from tests.unit.gate.world import NOW, World, adr_folder, summary, verifier


def envelope(revision: int = 1) -> Envelope:
    return Envelope(
        revision=revision,
        fingerprint="f" * 64,
        origin=Origin(topic="t", partition=0, offset=1, timestamp=NOW, sha256="0" * 64),
        subject_origin=None,
        stamp=Stamp(NOW, "1", "0" * 64, "v"),
    )


def test_a_decision_names_the_one_before_it_its_match_its_source_and_its_citations() -> None:
    def case_of(content: str, findings: dict[str, CheckFinding] | None = None, **facts: Any) -> ClaimCase:
        claim = Claim(claim_id="c1", user_id="ada", content=content)
        policy = Policy()
        return ClaimCase(
            claim, read_claim(content, policy), policy, Facts(clock=NOW, **facts), findings or {}
        )

    def built(case: ClaimCase, revision: int = 1) -> Decision:
        return build_decision(case, envelope(revision), case.outcome())

    case = case_of("The API returns JSON")
    found = [built(case, revision).supersedes for revision in (1, 2, 3)]
    assert found == [None, decision_id(case.claim.subject, 1), decision_id(case.claim.subject, 2)]
    for matches, named in (([match("m", inter=23)], ("m", 0.92)), ([], (None, None))):
        found = built(case_of("It is so", dedup=DedupFacts(status="ok", scheme="s", matches=matches)))
        assert (found.conflicting_memory_id, found.similarity_score) == named
    text, verified = "Per ADR-003 and ADR-004, we use it", CheckFinding(CitationState.VERIFIED, "", NOW)
    assert primary_source(case_of(text)) == "ADR-003"
    assert primary_source(case_of(text, {"adr:004": verified})) == "ADR-004"
    assert primary_source(case_of("The API returns JSON")) is None
    finding = CheckFinding(CitationState.UNKNOWN, "d" * 501, NOW)
    (citation,) = built(case_of("Per ADR-003, we use it", {"adr:003": finding})).citations
    assert citation.detail == "d" * 500


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
    for stale, left_out in ((100, None), (103, {"report.warnings": 3, "checks_failed": 3})):
        case = clean_case(reading=clean_reading(index=index_of([f"f{n}" for n in range(stale)], [])))
        decision = build_decision(case, envelope(), case.outcome())
        assert decision.truncated == left_out


LIMIT = 256_000


@pytest.mark.slow
async def test_the_nastiest_legal_claims_decision_is_below_256_kb_and_derived_again_after_a_rebuild():
    control = "\x01"  # six bytes in JSON
    parents_ = [f"{n:03}" + control * 197 for n in range(50)]
    nasty = {
        "control characters": "a" + control * 19_999,
        "one URL of control characters": "http://x" + control * 19_992,
        "a hundred long URLs": " ".join(f"http://{n:03}" + control * 189 for n in range(100)),
        "thousands of issues": " ".join(f"#{n}" for n in range(1, 4_000))[:20_000],
        "thousands of hedges": ("may " * 5_000)[:20_000],
        "hedges, issues and control characters": ("may #12 " * 100 + control * 20_000)[:20_000],
        "different hedges and citations": " ".join(f"may ADR-{n} maybe" for n in range(1_100))[:20_000],
        "one citation thousands of times": ("#7 " * 7_000)[:20_000],
    }

    async def nastiest(content):
        """Everything at its legal worst: ids, parents, metadata, a rejected source id, matches."""
        world = World(policy=Policy(verify_claim_relevance=True, version="v" * 100))
        long_id = control * 199
        fields = {
            "source": control * 100,
            "source_id": control * 100_000,
            "derived_from": parents_,
            "metadata": {"x": control * 2_660},
            "captured_at": "2026-01-01T00:00:00.123456Z",
            "validity_horizon": "2027-01-01T00:00:00.123456Z",
            "user_id": control * 200,
            "tenant_id": "t" * 100,
        }
        records = [world.claim(f"{n}" + long_id, content, **fields) for n in range(3)]
        return world, await world.decide(*records)

    for content in nasty.values():
        world, decisions = await nastiest(content)
        for decision in decisions:
            assert len(decision.to_bytes()) <= LIMIT
            assert (decision.evidence.claim, decision.derived_from) == (content, parents_)
            assert len(decision.facts.parents) == 50
        world.state = MemoryState()
        stored = [stored_outcome(decision.to_bytes(), world.policy) for decision in decisions]
        assert await world.state.reassert(stored) == len(decisions)
        _, again = await nastiest(content)
        assert [d.to_bytes() for d in again] == [d.to_bytes() for d in decisions]
        world.offset = 50
        for n, decision in enumerate(decisions):
            names = ("tenant_id", "user_id", "source", "derived_from")
            claim = {name: getattr(decision, name) for name in names}
            claim |= {"source_id": control * 100_000, "validity_horizon": "2027-01-01T00:00:00.123456Z"}
            (result,) = await world.decide(world.claim(f"{n}" + control * 199, content, **claim))
            assert result.to_bytes() == decision.to_bytes()


async def test_only_the_first_hundred_citations_are_verified_and_one_behind_them_counts_as_failed(tmp_path):
    adrs = adr_folder(tmp_path / "adrs", **{f"ADR_{n:03}": "text" for n in range(1, 103)})
    many = " ".join(f"ADR-{n}" for n in range(201, 301))
    world = World(verifier=verifier(adrs))
    assert summary(await world.one(f"{many} ADR-001", "c1")) == ("tier_2", "citation_unverified")
    assert summary(await world.one(f"ADR-001 {many}", "c2")) == ("tier_1", "verified_citation")
    again = await world.one(f"ADR-001 {many.rpartition(' ')[0]} ADR-001", "c3")
    assert "citation_verified: adr:001" in again.checks_passed
    assert "citation_unverified: adr:001" not in again.checks_failed, "it is the same citation"
    strict = World(
        policy=Policy(failed_citation_overrides_trust=True, enable_dedup=False), verifier=world.verifier
    )
    verified = " ".join(f"ADR-{n}" for n in range(1, 101))
    assert summary(await strict.one(verified, "c1")) == ("tier_1", "verified_citation")
    assert summary(await strict.one(f"{verified} and ADR-101", "c2")) == ("tier_2", "citation_unverified")


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


async def test_a_decision_above_the_limit_has_its_lists_cut_as_far_as_it_must_and_counts_what_is_left_out() -> (
    None
):
    lists_ = 8

    async def a_decision(**changed: Any) -> Decision:
        world = World()
        (decision,) = await world.decide(world.response())
        return decision.model_copy(update={"truncated": None, **changed})

    def report_of(entries: int = 100) -> dict[str, Any]:
        """A report of eight lists of long strings, and room for what is missing."""
        lists = {f"list{n}": ["x" * 300] * entries for n in range(lists_)}
        return {**lists, "confidence": 0.5, "filler": [""]}

    async def exactly(size: int, **changed: Any) -> Decision:
        """A decision of so many bytes."""
        empty = await a_decision(report=report_of(), **changed)
        missing = size - len(empty.to_bytes())
        entries = missing // (300 + len('"",'))
        rest = missing - entries * (300 + len('"",'))
        report = report_of() | {"filler": ["y" * rest, *["z" * 300] * entries]}
        decision = empty.model_copy(update={"report": report})
        assert len(decision.to_bytes()) == size
        return decision

    def built_again(decision: Decision) -> Decision:
        stamp = Stamp(decision.decided_at, decision.engine, decision.policy.sha256, decision.policy.version)
        again = Envelope(
            revision=decision.revision,
            fingerprint=decision.fingerprint,
            origin=decision.origin,
            subject_origin=None,
            stamp=stamp,
        )
        case = PublishedCase(decision)
        return build_decision(case, again, case.judged())

    whole = await exactly(LIMIT)
    assert built_again(whole).to_bytes() == whole.to_bytes()
    larger = await exactly(LIMIT + 1)
    cut = built_again(larger)
    assert len(cut.to_bytes()) < LIMIT
    assert cut.report is not None
    assert set(cut.report["list0"]) == {"x" * 200}, "the next room has strings of 200 characters"
    assert [len(cut.report[f"list{n}"]) for n in range(lists_)] == [100] * lists_
    # what fits once its long lists are cut is not cut further
    just = await exactly(LIMIT)
    assert just.report is not None
    long = just.report | {"list0": [*just.report["list0"], "one more, and long enough"]}
    counted = len(b'"truncated":{"report.list0":1}') - len(b'"truncated":null')
    shorter = [just.report["list1"][0][:-counted], *just.report["list1"][1:]]
    cut = built_again(just.model_copy(update={"report": long | {"list1": shorter}}))
    assert len(cut.to_bytes()) == LIMIT
    assert cut.report == just.report | {"list1": shorter}
    assert cut.truncated == {"report.list0": 1}
    # what was left out before is counted too
    big = report_of(130)
    decision = await a_decision(
        report=big | {"filler": ["z" * 400] * 150}, truncated={"report.list0": 7, "checks_failed": 2}
    )
    cut = built_again(decision)
    assert cut.truncated == {
        "checks_failed": 2,
        "report.list0": 37,
        **{f"report.list{n}": 30 for n in range(1, lists_)},
        "report.filler": 50,
    }
    # without a report
    plain = await a_decision(report=None, checks_failed=["x" * 600] * 100, reason="r" * (LIMIT - 40_000))
    assert len(plain.to_bytes()) > LIMIT
    cut = built_again(plain)
    assert (cut.report, cut.truncated) == ({}, None)
    assert set(cut.checks_failed) == {"x" * 200}


def test_a_report_is_cut_by_the_kind_of_its_parts():
    """One that nests without end in lists or keys keeps a hundred values an entry."""
    key, small = "k" * 41, {"a": {str(n): ["q"] * 3 for n in range(5)}, "b": "s" * 9}
    ours = ("type", "reason", "gap_type", "suggested_action", "fallback")
    table: list[tuple[dict[str, Any], tuple[int, int], dict[str, Any], dict[str, int]]] = [
        # a part with the record's own keys is cut in breadth, at any depth
        (
            {"quotes": {"validated": small}},
            (2, 4),
            {"quotes": {"validated": {"a": {"0": ["q", "q"], "1": ["q", "q"]}, "b": "ssss"}}},
            {"report.quotes.validated": 3 + 1 + 1},
        ),
        # of two keys that begin alike the first is kept and the other counted
        (
            {"hop_evidence": {"abcde": 1, "abcdf": 2, "b": 3}},
            (5, 4),
            {"hop_evidence": {"abcd": 1, "b": 3}},
            {"report.hop_evidence": 1},
        ),
        # keys of details keep forty characters, however little room there is
        (
            {"warnings": [{"details": {key: "v" * 50}}]},
            (5, 12),
            {"warnings": [{"details": {key[:40]: "v" * 12}}]},
            {},
        ),
        ({"warnings": [{"details": {key: "v"}}]}, (5, 50), {"warnings": [{"details": {key: "v"}}]}, {}),
        # our own codes are never cut, text of a record always
        *(
            (
                {"part": [{n: "w" * 99, "text": "w" * 99}]},
                (1, 9),
                {"part": [{n: "w" * 99, "text": "w" * 9}]},
                {},
            )
            for n in ours
        ),
    ]
    for report, limits, short, left_out in table:
        assert shorten(report, *limits) == (short, left_out)

    def nested(depth: int) -> Any:
        return [nested(depth - 1)] * 3 if depth else "x"

    def values(part: Any) -> int:
        return 1 + sum(map(values, part)) if isinstance(part, list) else 1

    short, left_out = shorten({"details": nested(6)}, 3, 9)
    assert values(short["details"]) == 300
    assert values(nested(6)) == 1093
    assert set(left_out) == {"report.details"}
    small, nothing = shorten({"details": nested(5)}, 4, 9)
    assert (small, nothing) == ({"details": nested(5)}, {})
    keyed = {str(n): {str(m): "x" for m in range(3)} for n in range(200)}
    held, _ = shorten({"details": keyed}, 200, 9)
    assert held == {"details": keyed}

    def depth(part: Any) -> int:
        return 1 + depth(next(iter(part.values()))) if isinstance(part, dict) and part else 0

    chain: Any = "x"
    for _ in range(150):
        chain = {"k": chain}
    short, left_out = shorten({"details": chain}, 1, 9)
    assert depth(short["details"]) == 99
    assert left_out == {"report.details": 1}
