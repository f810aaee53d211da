"""Claims at the gate: duplicates, parents, citations and failing hosts, signatures, faults that only lower a tier."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import uuid
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
import rfc8785
from hypothesis import assume, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from agents.outputs import outputs
from groundwire.checks.dedup.form import read_form
from groundwire.errors import UsageError
from groundwire.gate.types import AlreadyDeferred, DeadLetter, Decided, Deferred
from groundwire.keys.attestation import Keys
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import CitationState, EvidenceObject
from groundwire.messages.headers import InboundRecord, LookupRetry, deferred_headers, deferred_record
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Inputs, read_record
from groundwire.text.visible import is_blank
from groundwire.verify.citations import CitationVerifier
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.url import UrlChecker
from tests.unit.gate.world import NOW, World, adr_folder, claim_bytes, summary, verifier

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"
WORDS = [f"{a}{b}" for a in "bcdfg" for b in ("al", "em", "in", "or", "ut")]  # 25 words


def words(count, others=0):
    return " ".join([*WORDS[:count], *(f"zz{'abcdefgh'[n]}" for n in range(others))])


async def test_a_duplicate_begins_at_ninety_two_in_a_hundred():
    """S0-106, S0-118, C-05."""
    for first, second, duplicate in (
        (words(25), words(23), True),  # 23/25 is the threshold itself
        (words(12), words(11), False),  # 11/12
        (words(13), words(12), True),  # 12/13
        (words(5), words(5), True),
        (words(5), words(4, 1), False),
    ):
        world = World()
        await world.one(first, "a", source="user")
        decision = await world.one(second, "b", source="user")
        found = (decision.reason_code == "duplicate", decision.conflicting_memory_id == "a")
        assert found == (duplicate, duplicate), second


async def test_another_user_tenant_or_type_is_another_scope_and_deduplication_can_be_disabled():
    """S0-114, C-11; S0-116: deduplication by vectors is for the library."""
    trusted_table = ("tier_1", "trusted_source")
    world = World()
    await world.one(TEXT, "a", source="user")
    for fields in ({"user_id": "bob"}, {"tenant_id": "other"}, {"memory_type": "decision"}):
        assert summary(await world.one(TEXT, str(fields), source="user", **fields)) == trusted_table
    wide = World(policy=Policy(dedup_scope="user"))
    await wide.one(TEXT, "a", source="user")
    across = await wide.one(TEXT, "b", source="user", memory_type="decision")
    assert across.reason_code == "duplicate"
    # S0-113
    world = World(policy=Policy(enable_dedup=False))
    await world.one(TEXT, "a", source="user")
    decision = await world.one(TEXT, "b", source="user")
    assert decision.approved
    assert {"dedup_skipped", "previously_rejected_skipped"} <= set(decision.checks_skipped)
    assert decision.facts.dedup.status == "disabled"
    with pytest.raises(UsageError, match="dedup_method"):
        _ = World(policy=Policy(dedup_method="vector", dedup_threshold=0.95)).gate


async def test_a_near_duplicate_that_says_something_else_is_a_conflict_for_review():
    """S0-121."""
    for stored, claimed, difference in (
        (TEXT, TEXT + " never", "negation"),
        (words(25) + " 30 days", words(25) + " 365 days", "number"),
        ("Acme sued Globex", "Globex sued Acme", "order"),
    ):
        world = World()
        await world.one(stored, "a", source="user")
        decision = await world.one(claimed, "b", source="user")
        assert summary(decision) == ("tier_2", "conflicting_near_duplicate")
        assert f"conflicting_near_duplicate: a: {difference}" in decision.checks_failed
        assert decision.conflicting_memory_id == "a"


async def test_of_two_equal_claims_in_one_batch_one_is_approved():
    """S0-123, in one process; and S0-122, C-10: a claim is not its own duplicate."""
    world = World()
    first, second = await world.decide(*[world.claim(name, TEXT, source="user") for name in "ab"])
    assert (first.approved, second.approved) == (True, False)
    assert (await world.one(TEXT, "a", source="user")).to_bytes() == first.to_bytes()
    # S0-115
    world = World()
    await world.one("We store all sessions in Redis", "a", source="user")
    assert (await world.one("Redis is where every session is kept", "b", source="user")).approved
    # S0-124
    world = World()
    names = [f"item{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{'uv'[n // 100]}" for n in range(150)]
    records = [world.claim(f"m{n}", f"{name} exists", source="user") for n, name in enumerate(names)]
    assert all(decision.approved for decision in await world.decide(*records))
    assert (await world.one("itemalv exists", "again", source="user")).conflicting_memory_id == "m110"


async def test_the_write_back_loop_is_broken():
    """S0-162: a claim that rests on something not approved is not approved because of it."""
    world = World()
    await world.one("The API uses OAuth2", "c1")
    decision = await world.one("Since we use OAuth2, we need refresh tokens", "c2", derived_from=["c1"])
    assert decision.tier == "tier_2"
    assert "derived_from_unapproved: c1" in decision.checks_failed
    trusted = await world.one("We rotate the refresh tokens", "c3", source="user", derived_from=["c1"])
    assert summary(trusted) == ("tier_2", "derived_from_unapproved")
    for parent in ("c9", "response:r1", "response:c1", "c3"):
        world = World()
        await world.one("Snow is white", "c1", source="user")
        decision = await world.one("Grass is green", "c3", source="user", derived_from=["c1", parent])
        assert summary(decision) == ("tier_2", "derived_from_unapproved")
        assert decision.facts.parents[0].state == "approved"


# --- evidence of every decision


async def test_an_approved_record_says_where_it_comes_from_and_why_it_was_trusted(tmp_path):
    """S0-146, S0-153; C-70, S0-144, S0-148: confidence follows the tier, and approval is tier one."""
    adrs = adr_folder(tmp_path / "adrs", ADR_003="PostgreSQL")
    decision = await World(verifier=verifier(adrs)).one(
        "Per ADR-003 and issue #12, we use PostgreSQL",
        captured_at="2026-01-01T02:00:00+02:00",
        metadata={"a": 1},
    )
    evidence = decision.evidence
    assert (decision.approved, decision.reason) == (True, "Has verified citation")
    assert (evidence.confidence, evidence.source_id, evidence.metadata) == ("high", "ADR-003", {"a": 1})
    assert evidence.capture_time == datetime(2026, 1, 1, tzinfo=UTC)
    cited = [(c.type, c.value, str(c.state)) for c in decision.citations]
    assert cited == [("adr", "003", "verified"), ("issue", "12", "unknown")]
    # C-32, S0-143, S0-145
    one, other = EvidenceObject("a", NOW, "high"), EvidenceObject("b", NOW, "low")
    one.metadata["x"] = 1
    assert (other.metadata, other.source_id, other.validity_horizon) == ({}, None, None)
    until = dataclasses.replace(one, validity_horizon=NOW)
    assert (until.is_expired(NOW), one.is_expired(NOW)) == (True, False)
    world = World()
    for text, tier, confidence in (
        ("Snow is white", "tier_1", "high"),
        ("It may snow", "tier_2", "medium"),
        ("Maybe it snows", "tier_3", "low"),
    ):
        decision = await world.one(text, text, source="user")
        assert (str(decision.tier), decision.evidence.confidence) == (tier, confidence)
        assert decision.approved == (decision.verdict == "approved") == (tier == "tier_1")
    decision = await World().one("See ADR-003", source_id="wiki/42")
    assert decision.evidence.source_id == "wiki/42"
    assert decision.evidence.capture_time == decision.origin.timestamp == decision.facts.clock


async def test_a_citation_that_is_not_cached_waits_and_the_users_next_claims_behind_it():
    world = World(verifier=verifier(urls={"https://a.example/": 200}))
    cited, plain, other = (
        world.claim("a", "See https://a.example/"),
        world.claim("b", "Snow is white"),
        world.claim("c", "Grass is green", user_id="bob"),
    )
    results = await world.results(cited, plain, other, deferred=False)
    assert [type(result) for result in results] == [Deferred, Deferred, Decided]
    again = await world.results(cited, dataclasses.replace(cited, offset=99), deferred=False)
    assert [type(result) for result in again] == [Deferred, AlreadyDeferred]
    assert summary((await world.decide(cited))[0]) == ("tier_1", "verified_citation")
    cached = await world.results(world.claim("d", "Also https://a.example/"), deferred=False)
    assert isinstance(cached[0], Decided | Deferred)


async def test_a_source_beside_the_point_sends_an_approval_to_review(tmp_path):
    """S0-155; by default only existence is proved (S0-72)."""
    for text, tier in (("# Storage\nPixeltable stores all memory", "tier_1"), ("# Lunch\nAt noon", "tier_2")):
        adrs = adr_folder(tmp_path / "adrs", ADR_003=text)
        claim = "Per ADR-003, we use Pixeltable for memory storage"
        strict = World(policy=Policy(verify_claim_relevance=True), verifier=verifier(adrs))
        decision = await strict.one(claim)
        assert decision.tier == tier
        assert (decision.reason_code == "citation_irrelevant") == (tier == "tier_2")
        assert [entry["start"] for entry in decision.facts.relevance] == [4]
        assert b"noon" not in decision.to_bytes()  # never the source's text
        assert summary(await World(verifier=verifier(adrs)).one(claim)) == ("tier_1", "verified_citation")


async def test_under_hmac_a_trusted_source_needs_a_signature_of_a_key_that_has_not_expired(tmp_path):
    """C-34: by the wall clock and by the record's time, which its sender chooses; a first decision stays."""
    keys = """
    [keys.docs]
    secret = "s3cret"
    tenants = ["default"]
    sources = ["user"]
    not_after = 2026-06-01T00:00:00Z
    """
    keys = Keys.parse(keys.encode(), tmp_path)

    def signed(world, secret=b"s3cret", **fields):
        value = claim_bytes(content="Snow is white", source="user", **fields)
        header = b"docs:" + hmac.new(secret, value, hashlib.sha256).hexdigest().encode()
        return world.record(value, headers=(("gw-attestation", header),))

    for mode, expected in (("off", ["tier_1"] * 4), ("hmac", ["tier_1", "tier_2", "tier_2", "tier_2"])):
        world = World(policy=Policy(attestation=mode, enable_dedup=False), keys=keys)
        good, bad = signed(world, claim_id="a"), signed(world, b"other", claim_id="b")
        unsigned, twice = world.claim("c", "Snow is white", source="user"), signed(world, claim_id="d")
        twice = dataclasses.replace(twice, headers=(*bad.headers, *twice.headers))
        decisions = await world.decide(good, bad, unsigned, twice)
        assert [str(decision.tier) for decision in decisions] == expected
        states = [(d.facts.attestation or {}).get("state") for d in decisions]
        assert states == ["valid", "invalid", None, "invalid"]
    assert decisions[1].reason_code == "source_unattested"
    assert "source_unattested: user" in decisions[1].checks_failed
    late, world = (
        World(
            policy=Policy(attestation="hmac"),
            keys=keys,
            now=lambda year=year: datetime(year, 1, 1, tzinfo=UTC),
        )
        for year in (2030, 2026)
    )
    (decision,) = await late.decide(signed(late))
    assert decision.facts.attestation == {"key_id": "docs", "state": "expired"}
    assert decision.reason_code == "source_unattested"
    dated = to_milliseconds(datetime(2026, 7, 1, tzinfo=UTC))
    (decision,) = await world.decide(dataclasses.replace(signed(world, claim_id="late"), timestamp=dated))
    assert decision.facts.attestation["state"] == "expired"
    record = signed(world)
    (first,) = await world.decide(record)
    provisional = await world.provisional(record)
    world.now = late.now
    assert first.approved
    assert (await world.decide(record))[0].to_bytes() == first.to_bytes()
    assert (await world.provisional(record)).to_bytes() == provisional.to_bytes()


async def test_a_record_is_deferred_under_the_key_of_its_user_whatever_that_of_its_producer():
    world = World()
    record = dataclasses.replace(world.claim(user_id="bob"), key=b"by mistake")
    gate = world.gate
    decision, deferred = outputs(gate.provisional(await gate.prepare([record])))
    assert (deferred.topic, deferred.key) == (TopicName.DEFERRED, decision.key)
    assert deferred.cause.key == b"by mistake", "that of a dead letter"


async def test_without_state_a_claim_is_decided_provisionally_and_never_approved():
    """X-12."""
    user = {"source": "user"}
    for content, fields, tier, reason in (
        ("Snow is white", user, "tier_2", "dedup_unavailable"),
        ("See https://a.example/ and ADR-003", user, "tier_2", "dedup_unavailable"),
        ("It may snow", user, "tier_2", "technical_hedge"),
        ("Maybe it snows", user, "tier_3", "personal_speculation"),
        ("Snow is white", {"validity_horizon": "2020-01-01T00:00:00Z"}, "tier_3", "expired"),
        ("Snow is white", {"derived_from": ["p"]}, "tier_2", "dedup_unavailable"),
    ):
        world = World(verifier=verifier(urls={"https://a.example/": 200}))
        record = world.claim(content=content, **fields)
        decision = await world.provisional(record)
        assert summary(decision) == (tier, reason)
        assert (decision.revision, decision.supersedes, decision.approved) == (0, None, False)
        assert decision.decided_at == decision.facts.clock == decision.origin.timestamp
        assert decision.facts.dedup.status == "failed"
        assert {c.state for c in decision.citations} <= {CitationState.NOT_CHECKED}
        assert "dedup_check_failed" in decision.checks_failed
        assert ("parents_unavailable" in decision.checks_failed) == ("derived_from" in fields)
        place = [0, record.topic, 0, record.offset, decision.policy.sha256, decision.engine]
        hashed = rfc8785.dumps(["default", "ada", "claim", "c1", *place]).decode()
        space = uuid.uuid5(uuid.NAMESPACE_URL, "urn:groundwire:decision")
        assert decision.decision_id == str(uuid.uuid5(space, hashed))
        world.now = lambda: datetime(2030, 1, 1, tzinfo=UTC)
        assert (await world.provisional(record)).to_bytes() == decision.to_bytes()
        assert (await world.provisional(world.claim())).decision_id != decision.decision_id
    # S0-23: under no policy, and with no fault of the gate
    for options in ({"enable_dedup": False}, {"trusted_technical_hedges": "approve"}):
        world = World(policy=Policy(**options))
        assert not (await world.provisional(world.claim(content="It may snow", source="user"))).approved
    with patch("groundwire.gate.claim_case.evaluate_tree", side_effect=RuntimeError("swordfish")):
        decision = await World().provisional(World().claim(source="user"))
    assert summary(decision) == ("tier_2", "internal_error")


async def test_a_fault_can_only_take_approvals_away(tmp_path):
    """S0-21, S0-23."""
    claims_ = [
        ("Snow is white", {"source": "user"}),
        ("Per ADR-003 we use PostgreSQL", {}),
        ("See https://a.example/", {}),
        ("I like tabs", {"source": "chat", "memory_type": "preference"}),
        ("Grass is green", {"source": "user", "derived_from": ["c0"]}),
        ("The API returns JSON", {}),
        ("Maybe", {"source": "user"}),
    ]

    async def decided_with(tmp_path, fault, policy):
        """Decide claims_ with one part broken; none is dropped."""
        boom = RuntimeError("boom")
        broken = {
            "read": patch("groundwire.gate.claims.read_claim", side_effect=boom),
            "dedup": patch("groundwire.gate.claim_case.signature", side_effect=boom),
            "relevance": patch("groundwire.gate.claims.relevance", side_effect=boom),
            "tree": patch("groundwire.gate.claim_case.evaluate_tree", side_effect=boom),
            **{
                name: patch.object(CitationVerifier, name, side_effect=boom)
                for name in ("local", "cached", "remote")
            },
        }
        adrs = adr_folder(tmp_path / "adrs", ADR_003="PostgreSQL is what we use")
        urls = {"https://a.example/": 500 if fault == "status" else 200}
        world = World(policy=policy, verifier=verifier(adrs, urls=urls))
        records = [world.claim(f"c{n}", text, **fields) for n, (text, fields) in enumerate(claims_)]
        with ExitStack() as stack:
            if fault in broken:
                stack.enter_context(broken[fault])
            decisions = await world.decide(*records)
        assert len(decisions) == len(claims_)
        return {decision.subject_id for decision in decisions if decision.approved}, decisions

    for fault in ["local", "cached", "remote", "read", "dedup", "tree", "relevance", "status"]:
        for policy in (Policy(), Policy(verify_claim_relevance=True)):
            sound, _ = await decided_with(tmp_path, None, policy)
            found, decisions = await decided_with(tmp_path, fault, policy)
            assert found <= sound
            if fault in {"read", "dedup", "tree"}:
                assert not found
                assert {(str(d.reason_code), d.facts.error) for d in decisions} == {
                    ("internal_error", "RuntimeError")
                }
                assert all("dedup_check_failed" in d.checks_failed for d in decisions)
            else:
                assert {"c0", "c3", "c4"} <= found  # claims that do not depend on it are decided as before


async def test_a_claim_that_cannot_be_read_takes_no_other_along_and_is_logged_without_its_text():
    """S0-23."""

    def read(text):
        if "swordfish" in text:
            raise RuntimeError("boom")
        return read_form(text)

    world = World()
    texts = {"c0": "The gate is locked.", "c1": "The swordfish is blue.", "c2": "The pool is free."}
    with patch("groundwire.gate.claim_case.read_form", side_effect=read):
        decisions = await world.decide(*(world.claim(name, text) for name, text in texts.items()))
    errors = {decision.subject_id: decision.facts.error for decision in decisions}
    assert errors == {"c0": None, "c1": "RuntimeError", "c2": None}
    broken = patch("groundwire.gate.claims.read_claim", side_effect=RuntimeError("swordfish"))
    with broken, capture_logs() as logs:
        await World().one("swordfish")
    (line,) = logs
    assert (line["event"], line["error"]) == ("claim.unreadable", "RuntimeError")
    assert "swordfish" not in str(line)
    assert "claims.py:" in line["where"]


async def test_a_record_that_cannot_be_read_is_a_dead_letter_and_its_neighbours_are_decided():
    """S0-23."""
    world = World()
    bad = [None, b"", b"{", b"\xff", b'{"claim_id": "x"}', b"[]", b"{" * 100_000]
    records = [world.claim("a"), *(world.record(value) for value in bad), world.claim("b", "Snow is white")]
    results = await world.results(*records)
    assert [type(result) for result in results] == [Decided, *[DeadLetter] * len(bad), Decided]
    assert [result.record for result in results] == records
    assert (await world.results(*records[1:-1]))[0].error.code == "invalid_json"
    for timestamp in (2**62, -(2**62), 0):
        world = World()
        assert (await world.decide(dataclasses.replace(world.claim(), timestamp=timestamp)))[0].to_bytes()


async def test_the_evasions_that_are_documented_go_where_it_says(tmp_path):
    """S0-160, S0-161: what is caught, and what is known to pass."""
    adrs, user = adr_folder(tmp_path / "adrs", ADR_003="We use PostgreSQL"), {"source": "user"}
    table = [
        ("I  think we should use Redis", user, "tier_3"),  # spacing is seen through (S0-102)
        ("I\u200bthink we should use Redis", user, "tier_3"),
        ("I th1nk we should use Redis", user, "tier_1"),  # look-alikes are not
        ("I think we should use Redis, definitely", user, "tier_3"),  # no marker rescues
        ("Per ADR-999, we use magic", {}, "tier_2"),  # a citation that was made up
        ("We use Redis for sessions", {}, "tier_2"),  # an agent that was taught to drop hedges (S0-161)
        ("Per ADR-003, we use MongoDB", {}, "tier_1"),  # a real citation of a wrong claim (S0-72)
        ("!!!", user, "tier_1"),
    ]
    found = [(one, (await World(verifier=verifier(adrs)).one(one[0], **one[1])).tier) for one in table]
    assert [(one, tier) for one, tier in found if tier != one[-1]] == []


@given(
    content=st.text(
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=300
    )
)
async def test_any_text_gets_a_decision_with_positions_inside_it(content):
    assume(not is_blank(content))
    decision = await World().one(content)
    assert decision.facts.error is None
    for mark in [*decision.hedges, *decision.citations]:
        assert 0 <= mark.start < mark.end <= len(content)
    for hedge in decision.hedges:
        assert content[hedge.start : hedge.end] == hedge.text


URL = "https://docs.example/page"
CITING = f"The ledger keeps nine shards, see {URL}"
PATIENCE = 600.0


class Outage(World):
    """A host that fails for a moment sends no claim to a person: it is looked up again, for a while (S0-76, X-14)."""

    def __init__(self, status: int = 503) -> None:
        self.answers, self.seconds = {URL: status}, 0.0
        super().__init__(verifier=verifier(urls=self.answers), patience=PATIENCE)
        self.now = lambda: NOW + timedelta(seconds=self.seconds)

    async def look_up(self, record: InboundRecord, *, deferred: bool = True) -> Any:
        (result,) = await self.results(record, deferred=deferred)
        return result


def through_kafka(result: Deferred) -> InboundRecord:
    """The record as the next worker reads it from `deferred`."""
    record, headers = result.record, deferred_headers(result.record)
    return deferred_record(InboundRecord("groundwire.deferred", 3, 99, 1, record.key, record.value, headers))


def due(result: Deferred) -> float:
    """Seconds from the beginning of the test."""
    assert result.record.retry
    return (result.record.retry.due / 1000) - NOW.timestamp()


def assert_derived_again(result: Decided) -> None:
    value = result.record.value or b""
    derived = rederive(result.decision, Inputs(value, read_record(value)), Policy())
    assert derived.to_bytes() == result.decision.to_bytes()


async def test_a_claim_whose_host_failed_is_approved_once_the_host_answers_and_no_person_saw_it():
    world = Outage()
    first = await world.look_up(world.claim("c", CITING))
    assert isinstance(first, Deferred)
    again = through_kafka(first)
    assert (again.topic, again.offset, again.value) == ("groundwire.claims", 1, first.record.value)
    world.answers[URL], world.seconds = 200, due(first)
    result = await world.look_up(again)
    assert (result.decision.reason_code, result.decision.revision) == ("verified_citation", 1)
    assert_derived_again(result)


async def test_look_ups_are_spaced_and_at_the_end_of_the_patience_a_person_gets_the_claim():
    world, times = Outage(), []
    record = world.claim("c", CITING)
    while isinstance(result := await world.look_up(record), Deferred):
        times.append(due(result))
        world.seconds, record = due(result) - 1, through_kafka(result)
        assert await world.look_up(record) == Deferred(record), "it is not due yet, and nothing is asked"
        world.seconds += 1
    assert times == pytest.approx([30, 60, 120, 240, 480, 600], abs=0.01)
    assert result.decision.reason_code == "citation_unverified"
    assert [citation.state for citation in result.decision.citations] == ["unknown"]
    assert_derived_again(result)


async def test_a_claim_that_found_no_place_for_its_look_up_comes_back_at_even_intervals():
    world, times = Outage(), []
    pacer = Pacer(PacingLimits(waiting=0))
    world.verifier._urls = UrlChecker(pacer=pacer, clock=world.now)
    record = world.claim("c", CITING)
    while isinstance(result := await world.look_up(record), Deferred):
        times.append(due(result))
        world.seconds, record = due(result), through_kafka(result)
    assert times == pytest.approx(list(range(30, 601, 30)), abs=0.01)
    assert result.decision.reason_code == "citation_unverified"


async def test_nothing_waits_where_an_answer_is_there_or_would_change_nothing():
    for status, text, fields, patience in (
        (503, CITING, {"source": "user"}, PATIENCE),
        (503, f"I think the ledger keeps nine shards, see {URL}", {}, PATIENCE),
        (503, CITING, {"validity_horizon": "2026-01-31T12:00:00Z"}, PATIENCE),
        (403, CITING, {}, PATIENCE),
        (404, CITING, {}, PATIENCE),
        (503, CITING, {}, 0.0),
    ):
        world = Outage(status)
        world.patience = patience
        assert isinstance(await world.look_up(world.claim("c", text, **fields)), Decided), (status, text)
    world = Outage()
    assert isinstance(await world.look_up(world.claim("first", CITING)), Deferred)
    hedged = world.claim("hedged", f"I think the quay opens at dawn, see {URL}")
    assert isinstance(await world.look_up(hedged, deferred=False), Decided)
    world.patience = 0.0
    other = world.claim("other", f"The quay opens at dawn, see {URL}", user_id="bob")
    assert isinstance(await world.look_up(other, deferred=False), Decided)
    world = Outage()
    waits, other = world.claim("waits", CITING), world.claim("next", "The parser reads tokens", source="user")
    results: Any = await world.results(waits, other)
    assert [type(result) for result in results] == [Deferred, Decided]
    assert results[1].decision.reason_code == "trusted_source"


async def test_claims_that_cite_what_failed_a_moment_ago_wait_as_the_first_does():
    """What a cache knows of a failing host is no answer to the worker that asks nobody."""
    for status, reason in [(200, "verified_citation"), (503, "citation_unverified")]:
        world = Outage()
        assert isinstance(await world.look_up(world.claim("first", CITING)), Deferred)
        records = [
            world.claim(f"later{n}", f"Quay {n} opens at dawn {n}, see {URL}", user_id=f"u{n}")
            for n in range(5)
        ]
        assert await world.results(*records, deferred=False) == [
            Deferred(record, b"default:u%d" % n) for n, record in enumerate(records)
        ], "under the key of their users, whatever that of the producer"
        again = [await world.look_up(record) for record in records]
        assert all(isinstance(result, Deferred) for result in again), "looked up again later"
        world.answers[URL], world.seconds = status, PATIENCE
        decided = [await world.look_up(through_kafka(result)) for result in again]
        assert [result.decision.reason_code for result in decided] == [reason] * 5


def test_a_header_that_no_worker_wrote_makes_nothing_wait():
    """On an input topic it is passed to nobody, and on `deferred` only two numbers count."""
    forged = InboundRecord("groundwire.claims", 0, 1, 1, b"k", claim_bytes(), (("gw-origin-retry", b"1 9"),))
    assert forged.retry is None
    assert "gw-origin-retry" not in dict(deferred_headers(forged))
    place = [(f"gw-origin-{name}", b"1") for name in ("topic", "partition", "offset", "timestamp")]
    for value, read in ((b"1 9", LookupRetry(1, 9)), (b"1", None), (b"x 9", None), (b"1 9 9", None)):
        record = InboundRecord("d", 0, 1, 1, b"k", b"{}", (*place, ("gw-origin-retry", value)))
        assert deferred_record(record).retry == read
