"""Rebuilt from what topics still hold, state keeps to what people decided, whatever is past its retention."""

from __future__ import annotations

from itertools import product

from groundwire.gate import claims as gate_claims
from groundwire.gate.record import claim_of
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.identity import expire_id
from groundwire.messages.topics import TopicName
from groundwire.replay.rebuild import PEOPLES_TOPICS, stored_outcome, stored_outcomes
from groundwire.replay.review_closures import ReviewClosures
from groundwire.state.memory import MemoryState
from groundwire.state.model import SubjectState
from tests.unit.gate.office import ASKING, TEXT, Office, Topics
from tests.unit.gate.world import NOW

CITING = "The service retries every upload five times, see ADR-999"


async def rebuild(office: Office, topics: Topics) -> None:
    closings = ReviewClosures()
    async for value in topics.read(topics=PEOPLES_TOPICS):
        closings.note(value)
    office.state = MemoryState()
    async for outcome in stored_outcomes(topics.read(), office.policy, closings):
        await office.state.reassert([outcome])


async def act(office: Office, topics: Topics, action: str, before: Decision, **fields: str) -> Decision:
    result = await office.act(action, before, **fields)
    topics.put(before, result)
    return result.decision


async def test_what_a_person_refused_stays_refused_and_is_the_same_decision_again():
    """Also where its retraction alone is left, and of a response."""
    gone_topics = (TopicName.BLOCKED, TopicName.RETRACTIONS, TopicName.AUDIT)
    for action, gone in product(("reject", "retract"), gone_topics):
        office, topics = Office(), Topics()
        claim = office.claim("a", TEXT, source="user" if action == "retract" else "ai_synthesis")
        (before,) = await office.decide(claim)
        refused = await act(office, topics, action, before, reason="incorrect")
        topics.pop(gone, None)
        await rebuild(office, topics)
        (again,) = await office.decide(claim)
        assert again.to_bytes() == refused.to_bytes()
        assert (await office.refused("approve", before)).code == "stale"
        child = await office.one("What follows from it", "b", source="user", derived_from=["a"])
        assert child.verdict == "review"
        like = await office.one(TEXT, "c", source="user")
        assert (like.reason_code, like.conflicting_memory_id) == ("previously_rejected", "a")

    office, topics = Office(), Topics()
    claim = office.claim("a", TEXT, source="user")
    (before,) = await office.decide(claim)
    retracted = await act(office, topics, "retract", before)
    del topics[TopicName.BLOCKED], topics[TopicName.AUDIT]
    await rebuild(office, topics)
    (again,) = await office.decide(claim)
    assert (again.decision_id, again.reason_code) == (retracted.decision_id, "retracted")
    assert again.facts.clock == NOW

    topics = Topics()
    office = Office(policy=ASKING)
    (before,) = await office.decide(office.response())
    assert before.facts.place == "free"
    rejected = await act(office, topics, "reject", before)
    del topics[TopicName.BLOCKED]
    await rebuild(office, topics)
    assert (await office.refused("approve", before)).code == "stale"
    (again,) = await office.decide(office.response())
    assert (again.decision_id, again.verdict) == (rejected.decision_id, Verdict.BLOCKED)


async def test_what_expired_came_too_late_or_was_edited_and_retracted_stays_blocked_with_its_text():
    """Of several earlier decisions the one that was acted on says what was refused."""
    office, topics = Office(), Topics()
    claim = office.claim("a", TEXT)
    (before,) = await office.decide(claim)
    own = {"key": "gate", "reviewer": "groundwire", "action_id": expire_id(before.decision_id)}
    expired = await act(office, topics, "expire", before, **own)
    del topics[TopicName.BLOCKED]
    await rebuild(office, topics)
    (again,) = await office.decide(claim)
    assert again.to_bytes() == expired.to_bytes()
    assert (await office.one(TEXT, "b", source="user")).verdict == "approved"

    office, topics = Office(), Topics()
    claim = office.claim("a", TEXT)
    (before,) = await office.decide(claim)
    (first,) = await office.decide(office.claim("b", TEXT, source="user"))
    topics.put(first)
    blocked = await act(office, topics, "approve", before)
    assert blocked.reason_code == "duplicate"
    del topics[TopicName.BLOCKED]
    await rebuild(office, topics)
    (again,) = await office.decide(claim)
    assert again.to_bytes() == blocked.to_bytes()

    office, topics = Office(), Topics()
    (before,) = await office.decide(office.claim("a", TEXT))
    edited = await act(office, topics, "edit", before, content="Backups are written every night at two")
    await act(office, topics, "retract", edited)
    del topics[TopicName.BLOCKED]
    await rebuild(office, topics)
    like = await office.one("Backups are written every night at two", "b", source="user")
    assert like.reason_code == "previously_rejected"
    assert (await office.one(TEXT, "c", source="user")).verdict == "approved"

    office, topics = Office(), Topics()
    (first,) = await office.decide(office.claim("p", TEXT))
    claim = office.claim("a", TEXT)
    (joined,) = await office.decide(claim)
    assert joined.reason_code == "pending_duplicate"
    topics.put(joined)
    await act(office, topics, "reject", first)
    later = office.claim("a", TEXT)
    (pending,) = await office.decide(later)
    assert (pending.revision, pending.facts.place) == (2, "free")
    rejected = await act(office, topics, "reject", pending)
    del topics[TopicName.BLOCKED]
    await rebuild(office, topics)
    (again,) = await office.decide(later)
    assert again.to_bytes() == rejected.to_bytes()


async def test_the_event_of_what_blocked_holds_no_text():
    office, topics = Office(), Topics()
    (before,) = await office.decide(office.claim("a", CITING, metadata={"note": "private remark"}))
    await act(office, topics, "reject", before, reason="outdated", note="Because I say so")
    (event,) = [value for value in topics[TopicName.AUDIT] if b"review_action" in value]
    assert b"retries" not in event
    assert b"private" not in event
    assert b"Because" not in event


async def test_a_record_without_an_action_or_with_an_impossible_revision_is_skipped():
    for value in (b"", b"null", b"[]", b'{"type":"review_action"}', b"\xff"):
        ReviewClosures().note(value)
        ReviewClosures().note(b'{"affected":1,"supersedes":' + value + b"}")
        ReviewClosures().note(b'{"type":"review_action","detail":' + value + b"}")
    for odd in (b'"2"', b"null", b"true", b"1", b"18446744073709551616"):
        office, topics = Office(), Topics()
        (before,) = await office.decide(office.claim("a", TEXT))
        await act(office, topics, "reject", before)
        del topics[TopicName.BLOCKED]
        topics[TopicName.AUDIT] = [
            v.replace(b'"revision":2', b'"revision":' + odd) for v in topics[TopicName.AUDIT]
        ]
        await rebuild(office, topics)
        assert (await office.act("reject", before)).decision.revision == 2


async def test_a_retraction_is_rebuilt_with_the_claims_that_it_affected():
    office, topics = Office(), Topics()
    (before,) = await office.decide(office.claim("a", TEXT, source="user"))
    await office.decide(office.claim("é", "What follows from it", source="user", derived_from=["a"]))
    retracted = await act(office, topics, "retract", before)
    for topic in (None, TopicName.BLOCKED):
        topics.pop(topic, None)
        closings = ReviewClosures()
        async for value in topics.read(topics=PEOPLES_TOPICS):
            closings.note(value)
        (outcome,) = [o async for o in stored_outcomes(topics.read(), office.policy, closings)][:1]
        assert outcome.outcome.revision == retracted.revision
        assert outcome.outcome.record == '[1,["é"]]'.encode()


async def test_what_a_person_decided_is_found_though_the_gate_could_not_read_it(monkeypatch):
    """A text that cannot be read at all does not keep others from coming back."""

    def broken(*_: object) -> None:
        raise RuntimeError

    for action in ("approve", "reject"):
        office, topics = Office(), Topics()
        with monkeypatch.context() as patch:
            patch.setattr(gate_claims, "read_claim", broken)
            (pending,) = await office.decide(office.claim("a", TEXT))
        assert pending.facts.error == "RuntimeError"
        assert stored_outcome(pending.to_bytes(), office.policy).dedup is None
        decided = await act(office, topics, action, pending)
        await rebuild(office, topics)
        found = await office.one(TEXT, "b", source="user")
        assert found.reason_code == ("duplicate" if action == "approve" else "previously_rejected")
        assert decided.decision_id
    office, topics = Office(), Topics()
    (before,) = await office.decide(office.claim("a", TEXT, source="user"))
    monkeypatch.setattr("groundwire.replay.rebuild.dedup_query", broken)
    outcome = stored_outcome(before.to_bytes(), office.policy)
    assert (outcome.outcome.state, outcome.dedup) == (SubjectState.APPROVED, None)


async def test_an_edit_after_a_rebuild_has_the_source_that_it_has_without():
    """A source derived from a citation too long for a decision is none of the claim's own."""
    for own in (None, "ADR-7", "ADR-999"):
        found = []
        for lost in (False, True):
            office, topics = Office(), Topics()
            fields = {"source_id": own} if own else {}
            (before,) = await office.decide(office.claim("a", CITING, **fields))
            if lost:
                topics.put(before)
                await rebuild(office, topics)
            record = office.action("edit", before, content="The service retries twice", action_id="z")
            (result,) = await office.carry_out(record)
            found.append(result.decision)
        assert found[0].to_bytes() == found[1].to_bytes()
        assert found[0].evidence.source_id == own
    office = Office()
    long = "https://example.org/" + "a" * 700
    decision = await office.one(f"The service retries every upload, see {long}", "a")
    assert decision.evidence.source_id == long
    assert decision.citations[0].value != long
    assert claim_of(decision).source_id is None
