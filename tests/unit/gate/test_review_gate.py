"""What people decide: who may, what the decision is, and that it is the same however often it is asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from agents.outputs import followers, outputs
from groundwire.gate import claim_case
from groundwire.gate import claims as claims_module
from groundwire.gate.reviews import Finder
from groundwire.gate.types import Acted, Commented, DeadLetter, DecisionQuery, Refused, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import header
from groundwire.messages.identity import Subject, event_id, expire_id, retraction_id
from groundwire.messages.topics import TopicName
from groundwire.policy import Limits
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from tests.unit.gate.office import ASKING, KEYS, TEXT, Office
from tests.unit.gate.world import NOW, chunk

EDIT = {"content": "Uploads are retried twice"}
FULL = ASKING.model_copy(update={"limits": Limits(review_per_user=0)})


async def pending_claim(office, **fields):
    (pending,) = await office.decide(office.claim("a", TEXT, **fields))
    return pending


async def asked_response(office):
    office.policy = ASKING
    (pending,) = await office.decide(office.response("r1", "Yes, it is."))
    return pending


async def test_an_approval_is_the_next_revision_with_everything_that_tells_where_it_comes_from():
    office = Office()
    pending = await pending_claim(office)
    assert pending.verdict == "review"
    action = office.action("approve", pending, reason="checked")
    (result,) = await office.carry_out(action)
    decision = result.decision
    assert (decision.verdict, decision.reason_code, decision.approved) == ("approved", "human_approved", True)
    assert (decision.revision, decision.supersedes) == (2, pending.decision_id)
    assert (decision.evidence.claim, decision.evidence.confidence) == (TEXT, "high")
    assert (decision.origin, decision.subject_origin) == (action.origin, pending.origin)
    assert decision.fingerprint == pending.fingerprint
    assert decision.facts.clock == action.origin.timestamp
    assert decision.facts.place == "not_needed"
    assert "review_place" not in decision.checks_passed
    review = decision.facts.review
    assert (review["reviewer"], review["key_id"], result.fresh) == ("ada", "console", True)


async def test_an_action_or_a_claim_that_comes_again_gets_the_same_bytes_from_state_and_from_a_rebuild():
    given = {"approve": {}, "edit": EDIT, "reject": {"reason": "incorrect"}, "retract": {}, "overrule": {}}
    for action, fields in given.items():
        office = Office()
        source = "user" if action in {"retract", "overrule"} else "ai_synthesis"
        if action == "overrule":
            await office.decide(office.claim("same", TEXT, source=source))
        before = await pending_claim(office, metadata={"n": 1}, source=source)
        record = office.action(action, before, **fields)
        (first,) = await office.carry_out(record)
        office.now = lambda: NOW + timedelta(days=1)
        (again,) = await office.carry_out(record)
        assert again.decision.to_bytes() == first.decision.to_bytes()
        assert (again.fresh, again.retraction) == (False, first.retraction)
        resent = await pending_claim(office, metadata={"n": 2}, source=source)
        assert resent.to_bytes() == first.decision.to_bytes()
        assert (await office.refused("retract", before)).code == "stale"
        office.state = MemoryState()
        await office.state.reassert([stored_outcome(first.decision.to_bytes(), office.policy)])
        rebuilt = await pending_claim(office, metadata={"n": 1}, source=source)
        assert rebuilt.to_bytes() == first.decision.to_bytes()


async def test_a_person_puts_back_for_review_what_the_gate_blocked_and_decides_it():
    for reason, text, source in (
        ("duplicate", TEXT, "user"),
        ("personal_speculation", f"I guess that {TEXT}", "user"),
    ):
        office = Office()
        await office.decide(office.claim("same", TEXT, source=source))
        (blocked,) = await office.decide(office.claim("a", text, source=source))
        assert (blocked.verdict, blocked.reason_code) == ("blocked", reason)
        action = office.action("overrule", blocked, reason="outdated")
        (result,) = await office.carry_out(action)
        decision = result.decision
        assert (decision.verdict, decision.reason_code, decision.facts.place) == (
            "review",
            "overruled",
            "free",
        )
        assert (decision.revision, decision.supersedes) == (2, blocked.decision_id)
        assert decision.facts.dedup == blocked.facts.dedup, "as the gate saw it"
        assert (decision.origin, decision.subject_origin) == (action.origin, blocked.origin)
        assert [event["type"] for event in events(result)] == ["review_action", "enqueue"]
        edited = await office.act("edit", decision, **EDIT)
        assert (edited.decision.verdict, edited.decision.revision) == ("approved", 3)


async def test_only_a_block_of_the_gate_is_overruled_and_never_by_who_signs_claims():
    office = Office()
    pending = await pending_claim(office)
    assert (await office.refused("overrule", pending)).code == "not_overrulable"
    rejected = (await office.act("reject", pending, reason="incorrect")).decision
    assert (await office.refused("overrule", rejected)).code == "not_overrulable"
    (speculative,) = await office.decide(office.claim("b", "I guess that it retries", source="user"))
    assert (await office.refused("overrule", speculative, reviewer="eve")).code == "unauthorized"
    both = KEYS.replace('sources = ["documentation"]', 'sources = ["documentation"]\nroles = ["reviewer"]')
    office.keys = Keys.parse(both.encode(), __file__)
    assert (await office.refused("overrule", speculative, key="docs")).code == "producer_key"
    office.policy = FULL
    assert (await office.refused("overrule", speculative)).code == "review_queue_full"


async def test_a_text_that_the_gate_did_not_block_is_not_put_back_for_review_in_the_place_of_one_that_it_did():
    office = Office()
    (blocked,) = await office.decide(office.claim("a", f"I guess that {TEXT}", source="user"))
    evidence = replace(blocked.evidence, claim="Uploads are never checked")
    for published, code in (
        (blocked.model_copy(update={"evidence": evidence}), "not_published"),
        (blocked, ""),
    ):
        office.published[blocked.verdict, blocked.decision_id] = published
        (result,) = await office.carry_out(office.action("overrule", blocked, action_id="one"))
        assert getattr(result, "code", "") == code


async def test_a_comment_is_audited_without_its_text_and_changes_nothing():
    office = Office()
    pending = await pending_claim(office)
    for action, outcome in (("comment", "commented"), ("pass", "passed")):
        record = office.action(action, pending, note="who wrote this?")
        (first,), (again,) = [await office.carry_out(record) for _ in range(2)]
        assert isinstance(first, Commented)
        assert events(first) == events(again)
        (event,) = events(first)
        assert (event["type"], event["detail"]["outcome"]) == ("review_action", outcome)
        assert event["decision_id"] == pending.decision_id
        assert "who wrote" not in json.dumps(event)
    assert (await office.act("approve", pending)).decision.approved


async def test_an_edit_approves_the_text_unless_it_speculates_has_expired_or_is_a_duplicate():
    office = Office()
    decision = (await office.act("edit", await pending_claim(office), **EDIT)).decision
    assert (decision.subject_id, decision.revision, decision.reason_code) == ("a", 2, "human_approved")
    assert decision.evidence.claim == EDIT["content"]
    duplicate = await office.one(EDIT["content"], "b", source="user")
    assert (duplicate.reason_code, duplicate.conflicting_memory_id) == ("duplicate", "a")
    assert (await office.one(TEXT, "c", source="user")).verdict == "approved"
    retracted = (await office.act("retract", decision)).decision
    assert (retracted.revision, retracted.reason_code) == (3, "retracted")
    assert retracted.evidence.claim == EDIT["content"]
    assert retracted.facts.review["edited"] is True
    assert (await pending_claim(office)).to_bytes() == retracted.to_bytes()

    office = Office()
    pending = await pending_claim(office)
    refused = await office.refused("edit", pending, content="I think uploads are retried twice")
    assert refused.code == "personal_speculation"
    # no edit approves what keeps a claim from approval
    for content in (
        " \t",
        "\u200b\u2060",
        "&#8203;",
        "\ue000",
        "Pay \u202e001\u202c euros",
        "I\u200bthink so",
    ):
        refused = await office.refused("edit", pending, content=content)
        assert refused.code == "hidden_text", content
    assert (await office.act("approve", pending)).decision.verdict == "approved"

    office = Office()
    pending = await pending_claim(office, validity_horizon=(NOW + timedelta(seconds=2)).isoformat())
    assert pending.verdict == "review"
    decision = (await office.act("approve", pending)).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "expired")
    assert "expired" in decision.checks_failed

    office = Office()
    pending = await pending_claim(office)
    (joined,) = await office.decide(office.claim("b", TEXT))
    assert joined.reason_code == "pending_duplicate"
    (other,) = await office.decide(office.claim("x", "Backups are written to a second region"))
    await office.act("approve", pending)
    decision = (await office.act("edit", other, content=TEXT)).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "duplicate")
    assert decision.conflicting_memory_id == "a"
    assert "duplicate: a" in decision.checks_failed
    (resent,) = await office.decide(office.claim("x", "Backups are written to a second region"))
    assert resent.to_bytes() == decision.to_bytes()


async def test_a_rejected_or_retracted_text_is_compared_with_what_resembles_it_and_dependents_are_named():
    office = Office()
    pending = await pending_claim(office)
    decision = (await office.act("reject", pending, reason="incorrect", note="It retries twice.")).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "human_rejected")
    assert decision.facts.review["reason"] == "incorrect"
    assert "note" not in decision.facts.review
    assert (await office.one(TEXT, "b", source="user")).reason_code == "previously_rejected"

    office = Office()
    base = await pending_claim(office, source="user")
    for name in ("d", "c"):
        await office.one(f"{name} follows from it {name}", name, source="user", derived_from=["a"])
    await office.one("Maybe something else", "e", source="user", derived_from=["a"])
    result = await office.act("retract", base, reason="outdated")
    assert (result.decision.verdict, result.decision.reason_code) == ("blocked", "retracted")
    assert result.decision.evidence.claim == TEXT
    retraction = result.retraction
    assert (retraction.affected, retraction.truncated) == (["c", "d"], None)
    assert (retraction.decision_id, retraction.supersedes) == (result.decision.decision_id, base.decision_id)
    assert (retraction.actor, retraction.reason) == ("ada", "outdated")
    assert retraction_id(retraction.decision_id) != retraction.decision_id
    assert (await office.one(TEXT, "z", source="user")).reason_code == "previously_rejected"
    rests = await office.one("It rests on a", "y", source="user", derived_from=["a"])
    assert rests.reason_code == "derived_from_unapproved"

    office = Office()
    base = await pending_claim(office, source="user")
    published, office.published = office.published, {}
    record = office.action("retract", base)
    assert (await office.carry_out(record))[0].code == "not_published"
    office.published = published
    assert (await office.carry_out(record))[0].decision.reason_code == "retracted"


async def test_whoever_may_not_act_changes_nothing():
    """The gate alone expires a claim, and nobody can use up its action id."""
    office = Office()
    pending = await pending_claim(office)
    (foreign,) = await office.decide(office.claim("f", TEXT, tenant_id="acme"))
    assert (await office.refused("approve", foreign, reviewer="lead")).code == "unauthorized"
    for action, fields, code in (
        ("approve", {"key": None}, "unattested"),
        ("approve", {"key": "docs"}, "unattested"),
        ("approve", {"key": "late"}, "unattested"),
        ("approve", {"key": "gate"}, "unattested"),
        ("approve", {"reviewer": "eve"}, "unauthorized"),
        ("approve", {"reviewer": "groundwire"}, "reserved"),
        ("expire", {}, "reserved"),
        ("expire", {"reviewer": "groundwire"}, "reserved"),
        ("expire", {"key": "gate"}, "reserved"),
        ("approve", {"expected_revision": 2}, "stale"),
        ("approve", {"subject_id": "other"}, "unknown"),
        ("approve", {"user_id": "bob", "reviewer": "bob"}, "unknown"),
        ("retract", {}, "not_approved"),
    ):
        assert (await office.refused(action, pending, **fields)).code == code, fields
    backdated = replace(office.action("approve", pending, key="late"), timestamp=1)
    assert (await office.carry_out(backdated))[0].code == "unattested"
    signed = office.action("approve", pending)
    for old, new in ((b'"approve"', b'"retract"'), (b'"a"', b'"b"')):  # the signature is of other bytes
        tampered = replace(signed, value=signed.value.replace(old, new))
        assert tampered.value != signed.value
        assert (await office.carry_out(tampered))[0].code == "unattested"
    delegated = (await office.act("approve", pending, reviewer="lead")).decision
    assert (delegated.revision, delegated.facts.review["reviewer"]) == (2, "lead")
    office = Office()
    pending = await pending_claim(office)
    own = expire_id(pending.decision_id)
    await office.refused("retract", pending, action_id=own)
    await office.refused("approve", pending, action_id=own, user_id="bob", reviewer="bob")
    expired = await office.act("expire", pending, key="gate", reviewer="groundwire", action_id=own)
    assert (expired.decision.verdict, expired.decision.reason_code) == ("blocked", "review_expired")
    assert (await office.one(TEXT, "b", source="user")).verdict == "approved"


async def test_actions_of_a_batch_rest_on_each_other_and_each_revision_is_published_though_a_worker_died():
    office = Office()
    pending = await pending_claim(office)
    results = await office.carry_out(office.action("reject", pending), office.action("approve", pending))
    assert [type(result) for result in results] == [Acted, Refused]
    assert (results[1].code, results[1].current.revision) == ("stale", 2)
    office = Office(policy=ASKING)
    claim, response = office.claim("a", TEXT), office.response("r1", "Yes, it is.")
    for pending in await office.decide(claim, response):
        batch = [office.action("approve", pending), office.action("retract", pending, expected_revision=2)]
        gate = office.reviews
        first = await gate.apply_step(await gate.prepare(batch))
        again = await office.carry_out(*batch)  # by another worker, which has only state and the topics
        assert [result.decision.revision for result in again] == [2, 3]
        assert [r.decision.to_bytes() for r in again] == [r.decision.to_bytes() for r in first]
        assert [r.retraction for r in again] == [r.retraction for r in first]
        assert again[1].decision.supersedes == again[0].decision.decision_id


async def test_an_action_id_has_one_outcome_and_what_is_no_review_decision_is_a_dead_letter():
    office = Office()
    pending = await pending_claim(office)
    early = office.action("retract", pending, expected_revision=2)
    assert (await office.carry_out(early))[0].code == "stale"
    await office.act("approve", pending)
    assert (await office.carry_out(early))[0].code == "stale"

    office = Office()
    pending = await pending_claim(office)
    fields = {"action_id": "one", **EDIT}
    await office.act("edit", pending, **fields)
    for other in ({"content": "Uploads are retried once"}, {"reviewer": "lead"}, {"reason": "typo"}):
        assert (await office.refused("edit", pending, **{**fields, **other})).code == "action_id_reused"
    assert (await office.act("edit", pending, **fields, note="Sent again")).revision == 2

    office = Office()
    for value in (None, b"{", b"[]", b'{"action": "approve"}', b"\xff"):
        (result,) = await office.carry_out(office.record(value, topic="groundwire.review-decisions"))
        assert isinstance(result, DeadLetter)


async def test_what_a_person_decided_of_a_claim_that_breaks_the_gate_is_so_and_so_is_what_others_did(
    monkeypatch,
):
    office = Office()
    claims = await office.decide(office.claim("a", TEXT), office.claim("poor", "The API returns XML"))
    records = [office.action("approve", claim) for claim in claims]
    listed = claim_case.list_checks

    def broken(case, **given):
        if case.subject.subject_id == "poor" and not case.facts.error:
            raise KeyError("text")
        return listed(case, **given)

    monkeypatch.setattr(claim_case, "list_checks", broken)
    decisions = [result.decision for result in await office.carry_out(*records)]
    assert [(each.reason_code, each.facts.error) for each in decisions] == [
        ("human_approved", None),
        ("human_approved", "KeyError"),
    ]


async def test_a_claim_that_would_be_refused_today_is_decided_by_who_finds_it_in_the_queue_also_after_a_rebuild(
    monkeypatch,
):
    blank = "<!-- nothing to see -->"
    for action, verdict in (("approve", "approved"), ("edit", "approved"), ("reject", "blocked")):
        office = Office()
        with monkeypatch.context() as before:
            before.setattr("groundwire.messages.decode.is_blank", lambda _: False)
            (pending,) = await office.decide(office.claim("a", blank))
        assert (pending.verdict, pending.facts.place) == ("review", "free")
        stored = stored_outcome(pending.to_bytes(), office.policy)
        for state in (office.state, MemoryState()):
            office.state = state
            await state.reassert([stored])
            content = {"content": TEXT} if action == "edit" else {}
            decided = (await office.act(action, pending, **content)).decision
            assert (decided.verdict, decided.revision) == (verdict, 2)
            assert (await office.refused("retract", pending)).code == "stale"


async def test_a_response_that_asks_is_decided_by_a_person_from_its_published_decision():
    for action, verdict in (("approve", "approved"), ("reject", "blocked")):
        office = Office()
        pending = await asked_response(office)
        assert (pending.verdict, pending.facts.place) == ("review", "free")
        record = office.action(action, pending)
        (result,) = await office.carry_out(record)
        decision = result.decision
        assert (decision.verdict, decision.revision, decision.supersedes) == (verdict, 2, pending.decision_id)
        assert decision.report == pending.report
        (again,) = await office.carry_out(record)
        resent = await asked_response(office)
        office.state = MemoryState()
        await office.state.reassert([stored_outcome(decision.to_bytes(), office.policy)])
        rebuilt = await asked_response(office)
        assert {one.to_bytes() for one in (again.decision, resent, rebuilt)} == {decision.to_bytes()}


async def test_a_response_that_is_sent_again_asks_for_what_it_first_asked_for_whoever_decided_it_since():
    """The request may be on its topic and in no seal: the worker was killed before that was published."""
    for refused_first in (False, True):
        office = Office(policy=FULL if refused_first else ASKING)
        weak = {"answer": "Yes, it is.", "confidence": 0.4, "query": "Is it?"}
        records = [office.response("r1", **weak)]
        asked = [followers(await office.results(*records))]
        if refused_first:
            office.policy = ASKING
            records.append(office.response("r1", **weak))
            asked.append(followers(await office.results(records[1])))
        (current,) = await office.decide(records[-1])
        for action in ("approve", "retract"):
            office.now = lambda: NOW + timedelta(days=1)
            current = (await office.act(action, current)).decision
            assert [result.decision for result in await office.results(records[-1])] == [current]
            assert [followers(await office.results(record)) for record in records] == asked
        assert [output.topic for outputs_ in asked for output in outputs_] == ["regenerate"] * len(records)
        office.state = MemoryState()
        await office.state.reassert([stored_outcome(current.to_bytes(), office.policy)])
        (rebuilt,) = followers(await office.results(records[-1]))
        assert rebuilt.value == asked[-1][0].value


async def test_a_response_can_be_withdrawn_but_not_edited_and_is_looked_up_once():
    office = Office()
    approved = (await office.act("approve", await asked_response(office))).decision
    await office.one("It rests on it", "a", source="user", derived_from=["response:r1"])
    result = await office.act("retract", approved)
    assert (result.decision.revision, result.decision.reason_code) == (3, "retracted")
    assert result.retraction.affected == ["a"]
    assert (await asked_response(office)).to_bytes() == result.decision.to_bytes()

    office = Office()
    (final,) = await office.decide(office.response("r0", "Yes, it is."))
    assert (await office.refused("approve", final)).code == "not_pending"
    assert (await office.refused("edit", await asked_response(office), content="No.")).code == "not_editable"

    office = Office()
    gate, record = office.reviews, office.action("approve", await asked_response(office))
    batch = await gate.prepare([record])
    for _ in range(2):
        await gate.apply_step(batch)
        assert len(office.asked) == 1
    # without a topic's record an action that comes again has the same outcome, or waits for it
    for kept in ("own", "superseded", "neither"):
        office = Office()
        pending = await asked_response(office)
        record = office.action("approve", pending)
        (first,) = await office.carry_out(record)
        gone = {"own": [pending], "superseded": [first.decision], "neither": [pending, first.decision]}[kept]
        for decision in gone:
            del office.published[decision.verdict, decision.decision_id]
        (again,) = await office.carry_out(record)
        if kept == "neither":
            assert again.code == "not_published"
        else:
            assert again.decision.to_bytes() == first.decision.to_bytes()


async def test_rights_count_at_the_time_of_the_first_outcome_and_an_action_is_given_up_before_it_only(
    monkeypatch,
):
    """A refusal for want of a right is not final, a decision is; nor does a text that no longer parses stop it."""
    office = Office()
    for keys in ("", KEYS.replace("lead", "another")):
        office = Office()
        record = office.action("approve", await pending_claim(office), reviewer="lead")
        (first,) = await office.carry_out(record)
        office.keys = Keys.parse(keys.encode(), __file__)
        (again,) = await office.carry_out(record)
        assert again.decision.to_bytes() == first.decision.to_bytes()

    office = Office()
    record = office.action("approve", await pending_claim(office), reviewer="lead")
    office.keys = Keys.empty()
    assert (await office.carry_out(record))[0].code == "unattested"
    office.keys = Keys.parse(KEYS.encode(), __file__)
    assert (await office.carry_out(record))[0].decision.approved

    office = Office()
    pending = await pending_claim(office)
    record = office.action("approve", pending)

    async def give_up(subject: Subject) -> bool:
        raise AssertionError(subject)

    assert await office.reviews.abandon(record, give_up)
    assert await office.reviews.abandon(record, give_up), "giving up changes nothing"

    def broken(content, _policy):
        raise ValueError(content)

    monkeypatch.setattr(claims_module, "read_claim", broken)
    assert (await office.carry_out(record))[0].decision.approved
    assert not await office.reviews.abandon(record, give_up)


def events(result: Result) -> list[dict[str, Any]]:
    audited = [output for output in outputs([result]) if output.topic is TopicName.AUDIT]
    values = [json.loads(output.value or b"") for output in audited]
    assert [header(output.headers, "ce_id") for output in audited] == [v["event_id"] for v in values]
    return values


async def test_no_revision_of_a_response_grows_past_the_limit_or_changes_when_its_action_comes_again():
    """What is left out is counted."""
    limit, control = 256_000, "\x01"  # six bytes in JSON
    longest = {"reason": "r" * 64, "action_id": control * 200}
    office = Office(policy=ASKING)
    name = control * 60
    chunks = [chunk("one line here", file=f"{name}{n}") | {"chunk_id": str(n)} for n in range(100)]
    cited = [{"file": f"{name}{n}", "snippet": "nothing like it"} for n in range(150)]
    fields = {"sources": cited, "chunks": chunks, "user_id": control * 200}
    (pending,) = await office.decide(office.response(control * 190, "Yes, it is.", **fields))
    assert pending.facts.place == "free"
    report = dict(pending.report or {})
    room = limit - len(pending.to_bytes())
    report["warnings"] = [*report["warnings"][:98], {"type": "SNIPPET_MISMATCH", "message": ""}]
    for warning in report["warnings"]:  # as large as messages of 500 characters may be
        warning["message"] = control * min(500, max(0, room // 6))
        room = limit - len(pending.model_copy(update={"report": report}).to_bytes()) - 10
    pending = pending.model_copy(update={"report": report})
    assert limit - 20 < len(pending.to_bytes()) <= limit
    office.publish(pending)

    def counted(decision: Decision, name: str, entries: Sequence[Any]) -> int:
        return len(entries) + (decision.truncated or {}).get(name, 0)

    record = office.action("approve", pending, **longest)
    (first,) = await office.carry_out(record)
    approved = first.decision
    second = longest | {"action_id": "x" + control * 199}
    retracted = (await office.act("retract", approved, **second)).decision
    for decision in (approved, retracted):
        assert len(decision.to_bytes()) <= limit
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
    del office.published[Verdict.APPROVED, approved.decision_id]
    (again,) = await office.carry_out(record)
    assert again.decision.to_bytes() == approved.to_bytes()
    office.state = MemoryState()
    office.publish(approved)
    await office.state.reassert([stored_outcome(approved.to_bytes(), office.policy)])
    (rebuilt,) = await office.carry_out(record)
    assert rebuilt.decision.to_bytes() == approved.to_bytes()


async def test_the_event_of_an_action_is_named_by_its_id_however_often_it_comes_and_no_forged_record_takes_it():
    office = Office()
    (pending,) = await office.decide(office.claim("a", TEXT))
    for action, kind in (("retract", "refused_action"), ("approve", "review_action")):
        results = [await office.carry_out(office.action(action, pending, action_id=action)) for _ in range(2)]
        found = [event for (result,) in results for event in events(result)]
        assert found[0] == found[1]
        assert found[0]["event_id"] == event_id(kind, action)

    office = Office()
    (pending,) = await office.decide(office.claim("a", TEXT))
    await office.act("approve", pending, action_id="one")
    refused = [await office.refused("reject", pending, action_id="one") for _ in range(2)]
    assert {result.code for result in refused} == {"action_id_reused"}
    assert len({events(result)[0]["event_id"] for result in refused}) == 2

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


async def test_a_reason_is_a_code_in_decision_event_and_retraction_and_refused_otherwise():
    office = Office()
    (pending,) = await office.decide(office.claim("a", TEXT))
    for reason in ("a b", "", "ä", "a\n", "-a", "r" * 65, "<b>", "a\x7f"):
        refused = await office.refused("reject", pending, reason=reason)
        assert (refused.code, events(refused)[0]["detail"]["reason"]) == ("invalid_reason", None)
    unsigned = await office.refused("reject", pending, key=None, reason="she said so")
    assert (unsigned.code, events(unsigned)[0]["detail"]["reason"]) == ("unattested", None)

    office = Office()
    (base,) = await office.decide(office.claim("a", TEXT, source="user"))
    result = await office.act("retract", base, reason="Not-True.2")
    reasons = [result.decision.facts.review["reason"], events(result)[0]["detail"]["reason"]]
    assert [*reasons, result.retraction.reason] == ["Not-True.2"] * 3


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
