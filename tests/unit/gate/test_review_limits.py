"""What people's actions may add to records: no Decision grows past its limit, no event takes another's id, no text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agents.outputs import outputs
from groundwire.gate.reviews import Finder
from groundwire.gate.types import DecisionQuery, Result
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import header
from groundwire.messages.identity import event_id
from groundwire.messages.topics import TopicName
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from tests.unit.gate.office import ASKING, TEXT, Office
from tests.unit.gate.world import chunk

LIMIT = 256_000
CONTROL = "\x01"  # six bytes in JSON
LONGEST = {"reason": "r" * 64, "action_id": CONTROL * 200}


def events(result: Result) -> list[dict[str, Any]]:
    audited = [output for output in outputs([result]) if output.topic is TopicName.AUDIT]
    values = [json.loads(output.value or b"") for output in audited]
    assert [header(output.headers, "ce_id") for output in audited] == [v["event_id"] for v in values]
    return values


# Size


async def large_response(office: Office) -> Decision:
    """Return a response in review whose Decision has hardly any room left."""
    office.policy = ASKING
    name = CONTROL * 60
    chunks = [chunk("one line here", file=f"{name}{n}") | {"chunk_id": str(n)} for n in range(100)]
    cited = [{"file": f"{name}{n}", "snippet": "nothing like it"} for n in range(150)]
    fields = {"sources": cited, "chunks": chunks, "user_id": CONTROL * 200}
    (pending,) = await office.decide(office.response(CONTROL * 190, "Yes, it is.", **fields))
    assert pending.facts.place == "free"
    report = dict(pending.report or {})
    room = LIMIT - len(pending.to_bytes())
    report["warnings"] = [*report["warnings"][:98], {"type": "SNIPPET_MISMATCH", "message": ""}]
    for warning in report["warnings"]:  # as large as messages of 500 characters may be
        warning["message"] = CONTROL * min(500, max(0, room // 6))
        room = LIMIT - len(pending.model_copy(update={"report": report}).to_bytes()) - 10
    pending = pending.model_copy(update={"report": report})
    assert LIMIT - 20 < len(pending.to_bytes()) <= LIMIT
    office.publish(pending)
    return pending


def counted(decision: Decision, name: str, entries: Sequence[Any]) -> int:
    return len(entries) + (decision.truncated or {}).get(name, 0)


async def test_no_revision_of_a_response_grows_past_the_limit_and_what_is_left_out_is_counted(office):
    pending = await large_response(office)
    approved = (await office.act("approve", pending, **LONGEST)).decision
    retracted = (
        await office.act("retract", approved, **LONGEST | {"action_id": "x" + CONTROL * 199})
    ).decision
    for decision in (approved, retracted):
        assert len(decision.to_bytes()) <= LIMIT
        for name in ("checks_passed", "checks_failed", "checks_skipped"):
            before = [check for check in getattr(pending, name) if check != "review_place"]
            assert counted(decision, name, getattr(decision, name)) == counted(pending, name, before)
        for name, of in (("sources.results", "sources"), ("warnings", None)):
            was, now = pending.report[of or name], decision.report[of or name]
            was, now = (was["results"], now["results"]) if of else (was, now)
            assert counted(decision, f"report.{name}", now) == counted(pending, f"report.{name}", was)
        kept = ("report", "reply_to", "attestation", "entities", "relations", "extraction")
        assert {n: getattr(decision.facts, n, 0) for n in kept} == {
            n: getattr(pending.facts, n, 0) for n in kept
        }
        assert decision.report["confidence"] == pending.report["confidence"]


async def test_a_response_cut_to_its_limit_is_the_same_when_its_action_comes_again(office):
    pending = await large_response(office)
    record = office.action("approve", pending, **LONGEST)
    (first,) = await office.carry_out(record)
    del office.published[Verdict.APPROVED, first.decision.decision_id]
    (again,) = await office.carry_out(record)
    assert again.decision.to_bytes() == first.decision.to_bytes()
    office.state = MemoryState()
    office.publish(first.decision)
    await office.state.reassert([stored_outcome(first.decision.to_bytes(), office.policy)])
    (rebuilt,) = await office.carry_out(record)
    assert rebuilt.decision.to_bytes() == first.decision.to_bytes()


# Names of events


async def test_the_event_of_an_action_is_named_by_its_id_however_often_it_comes(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    for action, kind in (("retract", "refused_action"), ("approve", "review_action")):
        results = [await office.carry_out(office.action(action, pending, action_id=action)) for _ in range(2)]
        told = [event for (result,) in results for event in events(result)]
        assert told[0] == told[1]
        assert told[0]["event_id"] == event_id(kind, action)


async def test_a_record_that_nobody_answers_for_takes_no_name_from_an_event_to_come():
    for forged in (
        {"key": None},
        {"key": "docs"},
        {"reviewer": "eve"},
        {"reviewer": "groundwire"},
        {"reason": "not a code"},
    ):
        office = Office()
        (pending,) = await office.decide(office.claim("a", TEXT))
        false = office.action("retract", pending, **{"action_id": "next", "reviewer": "lead"} | forged)
        results = [(await office.carry_out(false))[0] for _ in range(2)]
        results.append(await office.refused("retract", pending, action_id="next"))
        names = [events(result)[0]["event_id"] for result in results]
        assert names[0] == names[1] == event_id("refused_action", false.origin.model_dump(mode="json"))
        assert names[2] == event_id("refused_action", "next") != names[0]


async def test_two_attempts_to_use_an_action_id_for_something_else_are_two_events(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    await office.act("approve", pending, action_id="one")
    refused = [await office.refused("reject", pending, action_id="one") for _ in range(2)]
    assert {result.code for result in refused} == {"action_id_reused"}
    assert len({events(result)[0]["event_id"] for result in refused}) == 2


async def test_a_reason_that_is_no_code_is_refused_and_stands_in_no_event(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    for reason in ("a b", "", "ä", "a\n", "-a", "r" * 65, "<b>", "a\x7f"):
        refused = await office.refused("reject", pending, reason=reason)
        assert (refused.code, events(refused)[0]["detail"]["reason"]) == ("invalid_reason", None)
    unsigned = await office.refused("reject", pending, key=None, reason="she said so")
    assert (unsigned.code, events(unsigned)[0]["detail"]["reason"]) == ("unattested", None)


async def test_a_code_is_a_reason_and_stands_in_decision_event_and_retraction(office):
    (base,) = await office.decide(office.claim("a", TEXT, source="user"))
    result = await office.act("retract", base, reason="Not-True.2")
    told = [result.decision.facts.review["reason"], events(result)[0]["detail"]["reason"]]
    assert [*told, result.retraction.reason] == ["Not-True.2"] * 3


# Searches


async def test_a_search_in_vain_is_made_once_for_a_batch_however_often_it_is_settled_and_again_for_the_next():
    asked: list[str] = []

    async def search(wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        asked.extend(one.decision_id for one in wanted)
        return {}

    gone, lost = (DecisionQuery(Verdict.APPROVED, name, None) for name in ("gone", "lost"))
    find = Finder(search)
    for _ in range(3):  # in two portions, each asking for its own
        assert (await find([gone]), await find([lost])) == ({}, {})
    assert asked == ["gone", "lost"]
    find.begin()
    assert await find([gone]) == {}
    assert asked == ["gone", "lost", "gone"]
