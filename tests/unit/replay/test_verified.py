"""What was forged is found out, wherever a decision rests on; what is not at hand is missing, and does not differ."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from agents.outputs import outputs
from groundwire import __version__
from groundwire.gate import claims as gate_module
from groundwire.keys.attestation import Keys
from groundwire.messages.erasure import Erasure, Erasures
from groundwire.messages.identity import event_id
from groundwire.policy import Policy
from groundwire.replay.report import as_json, as_table
from groundwire.replay.review_closures import is_erased_action
from groundwire.replay.run import Task
from groundwire.replay.store import Job, OffsetRange, RecordStore
from groundwire.replay.verify import Signatures, VerifyStatus, differences
from groundwire.state.policies import KnownPolicies, PolicyStore
from tests.unit.gate.test_review_gate import Office
from tests.unit.gate.world import TOPIC, adr_folder, claim_bytes, verifier
from tests.unit.replay.checking import (
    CONTRADICTED,
    DIFFERS,
    EQUAL,
    EVIL,
    MISSING,
    ORDER,
    TEXT,
    decided_again,
    in_files,
    latest,
    on_topics,
    one_claim,
    otherwise,
    run,
    statuses,
    with_text,
)
from tests.unit.replay.town import REVIEWS, published_record, town

AN_HOUR = timedelta(hours=1)


def test_two_json_values_differ_where_they_do():
    wrong = []
    for recorded, derived, paths in (
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1}, {"a": 1.0}, ["$.a"]),
        ({"a": True}, {"a": 1}, ["$.a"]),
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, ["$.a[1]", "$.a[2]"]),
        ({"a b": {"c": None}}, {"a b": {}}, ['$["a b"].c']),
        ({"x": 1}, {"y": 1}, ["$.y", "$.x"]),
        ([], {}, ["$"]),
    ):
        wrong += [(recorded, derived)] * (list(differences(recorded, derived)) != paths)
    assert wrong == []


# What a decision rests on ------------------------------------------------------------------------------------


async def test_a_claim_that_was_refused_and_came_again_is_followed_through_edit_and_retraction(tmp_path):
    place, two = await decided_again(tmp_path)
    await place.act(place.action("edit", two, content="Uploads are retried five times"))
    await place.act(place.action("retract", latest(place, "c"), reason="wrong"))
    last = latest(place, "c")
    assert (last.revision, last.evidence.metadata) == (4, {"n": 2})
    assert last.evidence.capture_time > last.subject_origin.timestamp
    assert set(statuses(await in_files(place, tmp_path))) == {EQUAL}


async def test_what_rests_on_a_record_or_a_revision_that_is_not_at_hand_is_missing(tmp_path):
    place, three = await one_claim(tmp_path / "a", "edit", "retract", source="ai_synthesis")
    (alone,) = await in_files(place, tmp_path / "a", [three.to_bytes()])
    assert (alone.status, alone.detail) == (MISSING, "decision of revision 2")
    place.log = [record for record in place.log if b'"edit"' not in record.value]
    *others, retraction = await in_files(place, tmp_path / "a")
    assert (statuses(others), retraction.status) == ([EQUAL, MISSING], MISSING)
    assert "edit" in retraction.detail

    place, two = await decided_again(tmp_path / "b")
    await place.act(place.action("approve", two))
    three = latest(place, "c")
    (alone,) = await in_files(place, tmp_path / "b", [three.to_bytes()])
    assert (alone.status, alone.detail) == (MISSING, "decision of revision 2")
    both = [two.to_bytes(), three.to_bytes()]
    assert statuses(await in_files(place, tmp_path / "b", both)) == [EQUAL] * 2
    await place.act(place.action("retract", three))
    (_, last) = await in_files(place, tmp_path / "b", [three.to_bytes(), latest(place, "c").to_bytes()])
    assert (last.status, last.detail) == (MISSING, "decision of revision 2")


async def test_the_text_of_a_retraction_is_that_of_the_edit_that_stood_not_of_one_that_was_refused(tmp_path):
    place, first = await one_claim(tmp_path, source="ai_synthesis")
    unsigned = json.loads(place.action("edit", first, content=EVIL).value)
    await place.act(place.record(json.dumps(unsigned | {"action_id": "a" * 8}).encode(), topic=REVIEWS))
    await place.act(place.action("edit", first, content="The cache holds ten shards of the ledger"))
    two = latest(place, "c")
    await place.act(place.action("retract", two, reason="wrong"))
    three = latest(place, "c")
    assert (first.revision, two.revision, three.revision) == (1, 2, 3)
    unedited = json.loads(three.to_bytes())["facts"]
    unedited["review"]["edited"] = False
    for forged, path in (
        (with_text(three, EVIL), "$.evidence.claim"),
        (with_text(three, TEXT, facts=unedited), "$.facts.review.edited"),
        (with_text(two, EVIL), "$.evidence.claim"),
    ):
        true, found = await in_files(place, tmp_path, [two.to_bytes(), forged])
        assert (true.status, path in found.paths) == (EQUAL, True)


async def test_a_claim_that_broke_the_gate_is_derived_without_breaking_again(tmp_path, monkeypatch):
    place = town(tmp_path)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(gate_module, "read_claim", broken)
        await place.send(place.claim("c", TEXT, derived_from=["x"]))
    assert latest(place, "c").reason_code == "internal_error"
    await place.act(place.action("approve", latest(place, "c")))
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    await place.send(place.record(claim_bytes("deep", TEXT, metadata={"d": deep}), topic=TOPIC))
    assert set(statuses(await in_files(place, tmp_path))) == {EQUAL}


async def test_the_first_record_of_what_the_gate_decided_again_is_looked_at(tmp_path):
    place, two = await decided_again(tmp_path)
    assert statuses(await in_files(place, tmp_path, [two.to_bytes()])) == [EQUAL]
    another = json.loads(latest(place, "free").to_bytes())["origin"]
    nothing = json.loads(two.to_bytes())["subject_origin"] | {"sha256": "0" * 64}
    named = {"$.subject_origin.sha256"}, {"$.subject_origin"}
    for origin, fields in (another, named[0]), (None, named[1]), (nothing, named[1]):
        forged = otherwise(two, subject_origin=origin)
        (in_file,) = await in_files(place, tmp_path, [forged])
        (on_topic,) = await on_topics(place, [forged], tmp_path)
        assert (on_topic.status, set(on_topic.paths)) == (DIFFERS, fields)
        expected = (MISSING, set()) if origin is nothing else (DIFFERS, fields)
        assert (in_file.status, set(in_file.paths)) == expected
    place.record(claim_bytes("c", EVIL, source="ai_synthesis"))
    origin = place.log[-1].origin.model_dump(mode="json")
    (finding,) = await in_files(place, tmp_path, [otherwise(two, subject_origin=origin)])
    assert (finding.status, set(finding.paths)) == (DIFFERS, named[0]), "the same subject with another text"


async def test_a_revision_that_no_canonical_form_has_is_found_in_a_file_and_on_topics(tmp_path):
    place, again = await decided_again(tmp_path)
    for number in (2**53, 2**63, -(10**30)):
        forged = otherwise(again, revision=number)
        for findings in await in_files(place, tmp_path, [forged]), await on_topics(place, [forged], tmp_path):
            assert [(f.status, "$.revision" in f.paths) for f in findings] == [(DIFFERS, True)], number


async def test_a_decision_that_says_that_it_superseded_itself_holds_nobody_up(tmp_path):
    _, again = await decided_again(tmp_path)
    forged = published_record(otherwise(again, supersedes=again.decision_id), 0)
    with Job(tmp_path / "job", ORDER) as job:
        inside = {(TOPIC, 0): OffsetRange(TOPIC, 0, 0, 1_000)}
        job.add_decision(forged, inside=inside, everything=True)
        assert len(job.missing_places()) == 1  # the record that the subject began with


# What stands on topics ---------------------------------------------------------------------------------------


async def test_on_topics_place_key_headers_and_repeats_are_verified_too(tmp_path):
    place, decision = await one_claim(tmp_path)
    true = published_record(decision.to_bytes(), 0)

    def moved(name, value):
        origin = json.loads(decision.to_bytes())["origin"] | {name: value}
        return [replace(true, value=otherwise(decision, origin=origin))]

    later = decision.model_copy(update={"decided_at": decision.decided_at + timedelta(milliseconds=1)})
    twice = [true, replace(true, offset=99, value=later.to_bytes())]
    wrong = []
    for published, named in (
        ([true], set()),
        (moved("offset", 77), {"$.origin"}),
        (moved("partition", 1), {"$.origin"}),
        (moved("topic", "elsewhere"), {"$.origin"}),
        (moved("offset", 10**30), {"$.origin.offset"}),
        (moved("partition", -(2**53)), {"$.origin.partition"}),
        ([replace(true, topic="groundwire.other")], {"topic"}),
        ([replace(true, key=b"eve")], {"key"}),
        ([replace(true, headers=())], {"header ce_id", "header ce_time", "header ce_subject"}),
        ([replace(true, value=b"{}")], {"$"}),
        ([replace(true, value=None)], {"$"}),
        (twice, {"$", "header ce_time"}),
    ):
        findings = await on_topics(place, published, tmp_path)
        paths = {path for finding in findings for path in finding.paths}
        apart = all((finding.status is EQUAL) is not bool(finding.paths) for finding in findings)
        other = [finding.paths for finding in findings if finding.status is CONTRADICTED]
        expected = named, True, [("$",)] if published is twice else []
        wrong += [(published, findings)] * ((paths, apart and bool(findings), other) != expected)
    assert wrong == []


async def test_a_decision_published_again_with_another_outcome_is_found_and_in_other_words_named(tmp_path):
    place, decision = await one_claim(tmp_path)
    values = [decision.to_bytes(), with_text(decision, EVIL, engine="0.0.9")]
    for published in (values, values[::-1]):
        findings = await on_topics(place, published, tmp_path)
        assert ("$.evidence",) in [f.paths for f in findings if f.status is CONTRADICTED]
    other = otherwise(decision, engine="0.0.9", reason="in other words")
    findings = await on_topics(place, [decision.to_bytes(), other, other], tmp_path)
    assert statuses(findings) == [EQUAL, VerifyStatus.OTHER_ENGINE]


async def test_two_decisions_under_one_id_are_found_though_each_follows_from_its_facts(tmp_path):
    place, decision = await one_claim(tmp_path)
    later = decision.model_copy(update={"decided_at": decision.decided_at.replace(year=2030)})
    shuffled = json.dumps(json.loads(decision.to_bytes()), sort_keys=True).encode()
    findings = await in_files(place, tmp_path, [decision.to_bytes(), later.to_bytes(), shuffled])
    assert statuses(findings) == [EQUAL, CONTRADICTED, EQUAL]
    assert findings[2].detail == "written otherwise"
    assert statuses(await in_files(place, tmp_path, [later.to_bytes()])) == [EQUAL]
    (on_topic,) = await on_topics(place, [shuffled], tmp_path)
    assert on_topic.status is DIFFERS, "on a topic every byte counts"
    moved = decision.model_copy(update={"origin": decision.origin.model_copy(update={"offset": 77})})
    assert DIFFERS in statuses(await on_topics(place, [decision.to_bytes(), moved.to_bytes()], tmp_path))


async def test_two_decisions_under_one_id_contradict_each_other_but_across_an_erasure_of_their_user(tmp_path):
    place, decision = await one_claim(tmp_path)
    later = decision.model_copy(update={"decided_at": decision.decided_at + timedelta(milliseconds=1)})
    user = decision.user_id
    for name, after, contradicted in (
        *((user, -AN_HOUR, True), (user, timedelta(), False), (user, AN_HOUR, True)),
        ("nobody", timedelta(), True),
    ):
        erasure = Erasure(decision.tenant_id, name, decision.decided_at + after)
        values = [decision.to_bytes(), later.to_bytes()]
        found = await on_topics(place, values, tmp_path, erasure=erasure)
        assert (CONTRADICTED in statuses(found)) is contradicted, (name, after)


async def test_a_revision_is_looked_for_on_its_own_side_of_an_erasure(tmp_path):
    """What people decide rests on the revisions before, whose numbers come again."""
    _, first = await one_claim(tmp_path)
    with RecordStore(None) as store:
        store.note_erasure(Erasure(first.tenant_id, first.user_id, first.decided_at))
        sides = []
        for side, at in (("b", first.decided_at), ("a", first.decided_at + AN_HOUR)):
            origin = first.origin.model_copy(update={"sha256": side * 64})
            sides.append(first.model_copy(update={"revision": 2, "decided_at": at, "origin": origin}))
            store.note_decision(sides[-1].to_bytes())
        assert [store.revision(one, 2).sha256 for one in sides] == ["b" * 64, "a" * 64]


async def test_an_action_closes_nothing_behind_the_erasure_of_its_user():
    office = Office()
    (before,) = await office.decide(office.claim("a", "The API returns JSON"))
    result = await office.act("reject", before, reason="incorrect")
    event = next(one.value for one in outputs([result]) if b'"review_action"' in (one.value or b""))
    decision = result.decision
    assert not is_erased_action(event, Erasures())
    for until, erased in ((decision.decided_at, True), (decision.decided_at - AN_HOUR, False)):
        erasures = Erasures()
        erasures._until[decision.tenant_id, decision.user_id] = until
        assert is_erased_action(event, erasures) is erased


async def test_bytes_that_were_sent_again_do_not_stand_for_those_that_retention_has_taken(tmp_path):
    place = town(tmp_path)
    value = claim_bytes("c", TEXT, source="user")
    await place.send(place.record(value))
    await place.send(place.record(value))
    (first,) = place.published.values()
    taken = place.log.pop(0)
    assert first.origin.offset == taken.offset
    for start, status in (taken.offset + 1, VerifyStatus.EXPIRED), (taken.offset, DIFFERS):
        assert statuses(await on_topics(place, [first.to_bytes()], tmp_path, inputs=start)) == [status]


async def test_of_two_decisions_under_one_id_neither_is_believed_once_retention_has_taken_their_record(
    tmp_path,
):
    place, decision = await one_claim(tmp_path)
    values = [decision.to_bytes(), with_text(decision, EVIL)]
    assert EQUAL in statuses(await on_topics(place, values, tmp_path))
    place.log.clear()
    later = decision.origin.offset + 1
    found = await on_topics(place, values[:1], tmp_path, inputs=later)
    assert statuses(found) == [VerifyStatus.EXPIRED]
    found = await on_topics(place, values, tmp_path, inputs=later)
    assert statuses(found) == [CONTRADICTED] * 2


async def test_an_approval_that_stands_though_audit_says_that_its_action_was_refused_is_contradicted(
    tmp_path,
):
    place, two = await one_claim(tmp_path, "approve", source="ai_synthesis")
    values = [d.to_bytes() for d in sorted(place.published.values(), key=lambda decision: decision.revision)]
    assert statuses(await on_topics(place, values, tmp_path)) == [EQUAL] * 2
    for cause in (two.facts.review["action_id"], two.origin.model_dump(mode="json")):
        place.ends = [event_id("refused_action", cause)]
        found = await on_topics(place, values, tmp_path)
        expected = [(EQUAL, ()), (CONTRADICTED, ("$.facts.review",))]
        assert [(f.status, f.paths) for f in found] == expected


async def test_on_topics_a_time_to_begin_at_says_what_is_verified_not_what_is_known(tmp_path):
    place, two = await decided_again(tmp_path)
    await place.act(place.action("approve", two))
    values = [two.to_bytes(), otherwise(two, tier="tier_1"), latest(place, "c").to_bytes()]
    assert statuses(await on_topics(place, values, tmp_path, since=2)) == [EQUAL]
    assert CONTRADICTED in statuses(await on_topics(place, values, tmp_path))
    assert statuses(await on_topics(place, [two.to_bytes()] * 2, tmp_path, since=1)) == [EQUAL]


async def test_facts_of_any_shape_and_decisions_of_the_first_day_end_no_verification(tmp_path):
    place, decision = await one_claim(tmp_path)
    facts = json.loads(decision.to_bytes())["facts"]
    for action_id in (2**60, 1.5, ["x"], {"a": 1}, True):
        review = facts | {"review": {"action_id": action_id, "key_id": "k"}}
        forged = otherwise(decision, engine="9.9", facts=review, decision_id="0" * 36)
        assert EQUAL in statuses(await on_topics(place, [forged, decision.to_bytes()], tmp_path)), action_id
    review = facts | {"review": {"action_id": "a", "key_id": "k"}}
    first = otherwise(decision, engine="9.9", facts=review, decided_at="0001-01-01T00:00:00Z")
    findings = await on_topics(place, [first], tmp_path, signatures=Signatures(keys=Keys.empty()))
    assert statuses(findings) == [VerifyStatus.UNATTESTED]


# Another engine ----------------------------------------------------------------------------------------------


async def test_decisions_of_an_engine_before_stay_and_a_replay_tells_what_new_rules_would_have_changed(
    tmp_path,
):
    """It knew nothing of denied citations, and its policy is not at hand."""
    before, place = "0.0.9", town(tmp_path)
    place.policy = Policy(version="of before")
    place.verifier = verifier(adr_folder(tmp_path / "own", ADR_003="# Redis"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groundwire.gate.record.__version__", before)
        patch.setattr("groundwire.gate.build.__version__", before)
        patch.setattr("groundwire.checks.citations.denied", lambda *_: False)
        await place.send(
            place.claim("kept", "Per ADR-003, sessions are in Redis"),
            place.claim("denied", "Unlike ADR-003, sessions are in cookies"),
        )
    findings = await in_files(place, tmp_path)
    detail = f"engine {before}, this is {__version__}"
    assert [(f.status, f.detail) for f in findings] == [(VerifyStatus.OTHER_ENGINE, detail)] * 2
    now = Policy(version="of now")
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        task = Task("again", KnownPolicies([now], PolicyStore(None, None)), now)
        summary = await run(job, tmp_path / "out", task)
        report = json.loads("".join(as_json(job, "again", summary)))
        table = "\n".join(as_table(job, summary))
    changes = [(change["before"], change["after"]) for change in report["changed"]]
    told = [(old["subject_id"], old["reason_code"], new["reason_code"]) for old, new in changes]
    assert told == [("denied", "verified_citation", "citation_unverified")]
    assert "2  of another engine" in table
