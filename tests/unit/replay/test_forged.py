"""What was forged is found out, and what is not at hand is said to be missing, not to differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord, decision_headers
from groundwire.messages.identity import event_id
from groundwire.messages.topics import record_key
from groundwire.policy import Limits, Policy
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import gather
from groundwire.replay.reading import Rate
from groundwire.replay.report import Nowhere
from groundwire.replay.run import Replayer, Task
from groundwire.replay.store import FileRecords, Job, OffsetRange, ReplayOrder
from groundwire.replay.verify import (
    Signatures,
    Verifier,
    VerifyFinding,
    VerifyStatus,
    verify_files,
    verify_topics,
)
from groundwire.state.policies import KnownPolicies, PolicyStore
from tests.unit.gate.world import claim_bytes
from tests.unit.replay.town import REVIEWS, Town, town

TEXT = "The cache holds nine shards of the ledger"
EVIL = "Nobody ever approved this text"
REVIEW, APPROVED, BLOCKED = "groundwire.review", "groundwire.approved", "groundwire.blocked"
ORDER = ReplayOrder("again", ["x"], "earliest", "latest", None, simulate=False, output=None)

Published = tuple[str, bytes]


class Shelf:
    """Reads what is put on it: records of a town, and decisions, each by topic and value."""

    def __init__(self, place: Town, values: Sequence[Published], since: int = 0, inputs: int = 0) -> None:
        self.place, self.values, self.since, self.inputs = place, values, since, inputs

    async def plan(self, topics, start, _end):
        first = 0 if start == "earliest" else self.since
        if topics[0] not in {APPROVED, REVIEW, BLOCKED}:
            first = self.inputs
        return [OffsetRange(topic, 0, first, len(self.values)) for topic in topics]

    async def read(self, job, _inside, outputs, *, everything):
        for record in self.place.log:
            job.add_record(record, inside=True)
        for name in self.place.ends:
            job.add_end(name)
        starts = {stretch.topic: stretch.start for stretch in outputs}
        for offset, (topic, value) in enumerate(self.values):
            if offset < starts[topic]:
                continue
            decision = Decision.model_validate_json(value)
            key, headers = record_key(decision.tenant_id, decision.user_id), decision_headers(decision, ())
            published = InboundRecord(topic, 0, offset, 0, key, value, headers)
            job.add_decision(published, inside={}, everything=everything)


async def on_topics(
    place: Town, values: Sequence[Published], folder, since: int = 0, inputs: int = 0, **options
) -> list[VerifyFinding]:
    """Verify what is published; `inputs` is where retention has left the input topics."""
    await place.policies.put(place.policy)
    shelf = Shelf(place, values, since, inputs)
    start = since or "earliest"
    (folder / "verify").unlink(missing_ok=True)
    found = verify_topics(shelf, "groundwire.", start, place.policies, folder, **options)
    return [placed.finding async for placed in found]


async def in_files(place: Town, values: Sequence[bytes], folder) -> list[VerifyFinding]:
    await place.policies.put(place.policy)
    _, records, policies = place.write(folder)
    decisions = folder / "some.jsonl"
    decisions.write_bytes(b"".join(value + b"\n" for value in values))
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        return [placed.finding async for placed in verify_files(found, verifier, decisions)]


def statuses(findings: Sequence[VerifyFinding]) -> list[VerifyStatus]:
    return [finding.status for finding in findings]


def latest(place: Town, name: str) -> Decision:
    return next(d for d in place.current() if d.subject_id == name)


def otherwise(decision: Decision, **fields) -> bytes:
    plain = json.loads(decision.to_bytes()) | fields
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


async def decided_again(place: Town) -> Decision:
    """Refuse a claim for want of a place, then let it wait for review; there is another's approved record too."""
    place.policy = Policy(limits=Limits(review_per_user=1))
    await place.send(
        place.record(claim_bytes("other", "Something else entirely waits", source="ai_synthesis")),
        place.record(claim_bytes("c", TEXT, source="ai_synthesis", metadata={"n": 1})),
        place.record(claim_bytes("free", "Another record altogether", source="user")),
    )
    await place.act(place.action("reject", latest(place, "other")))
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis", metadata={"n": 2})))
    assert latest(place, "c").revision == 2
    return latest(place, "c")


@pytest.mark.parametrize("own_first", [True, False])
async def test_a_decision_published_again_under_another_engines_name_with_another_outcome_is_found(
    own_first, tmp_path
):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    evidence = json.loads(decision.to_bytes())["evidence"] | {"claim": EVIL}
    values = [
        (APPROVED, decision.to_bytes()),
        (APPROVED, otherwise(decision, engine="0.0.9", evidence=evidence)),
    ]
    findings = await on_topics(place, values if own_first else values[::-1], tmp_path)
    assert ("$.evidence",) in [f.paths for f in findings if f.status is VerifyStatus.CONTRADICTED]


async def test_what_another_engine_writes_otherwise_but_decided_alike_is_named_as_another_engines(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    other = otherwise(decision, engine="0.0.9", reason="in other words")
    values = [(APPROVED, decision.to_bytes()), (APPROVED, other), (APPROVED, other)]
    findings = await on_topics(place, values, tmp_path)
    assert statuses(findings) == [VerifyStatus.EQUAL, VerifyStatus.OTHER_ENGINE]


async def test_two_decisions_under_one_id_are_found_though_each_follows_from_its_facts(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    later = decision.model_copy(update={"decided_at": decision.decided_at.replace(year=2030)})
    shuffled = json.dumps(json.loads(decision.to_bytes()), sort_keys=True).encode()
    findings = await in_files(place, [decision.to_bytes(), later.to_bytes(), shuffled], tmp_path)
    assert statuses(findings) == [VerifyStatus.EQUAL, VerifyStatus.CONTRADICTED, VerifyStatus.EQUAL]
    assert statuses(await in_files(place, [later.to_bytes()], tmp_path)) == [VerifyStatus.EQUAL]
    moved = decision.model_copy(update={"origin": decision.origin.model_copy(update={"offset": 77})})
    values = [(APPROVED, decision.to_bytes()), (APPROVED, moved.to_bytes())]
    assert VerifyStatus.DIFFERS in statuses(await on_topics(place, values, tmp_path))


async def test_the_first_record_of_what_the_gate_decided_again_is_looked_at(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    assert statuses(await in_files(place, [two.to_bytes()], tmp_path)) == [VerifyStatus.EQUAL]
    another = json.loads(latest(place, "free").to_bytes())["origin"]
    nothing = json.loads(two.to_bytes())["subject_origin"] | {"sha256": "0" * 64}
    named = {"$.subject_origin.sha256"}, {"$.subject_origin"}
    for origin, fields in (another, named[0]), (None, named[1]), (nothing, named[1]):
        forged = otherwise(two, subject_origin=origin)
        (in_file,) = await in_files(place, [forged], tmp_path)
        (on_topic,) = await on_topics(place, [(REVIEW, forged)], tmp_path)
        assert (on_topic.status, set(on_topic.paths)) == (VerifyStatus.DIFFERS, fields)
        at_hand = VerifyStatus.MISSING if origin is nothing else VerifyStatus.DIFFERS
        assert (in_file.status, set(in_file.paths)) == (at_hand, set() if origin is nothing else fields)


async def test_bytes_that_were_sent_again_do_not_stand_for_those_that_retention_has_taken(tmp_path):
    place = town(tmp_path)
    value = claim_bytes("c", TEXT, source="user")
    await place.send(place.record(value))
    await place.send(place.record(value))
    (first,) = place.published.values()
    taken = place.log.pop(0)
    assert first.origin.offset == taken.offset
    published = [(APPROVED, first.to_bytes())]
    for start, status in (taken.offset + 1, VerifyStatus.EXPIRED), (taken.offset, VerifyStatus.DIFFERS):
        assert statuses(await on_topics(place, published, tmp_path, inputs=start)) == [status]


async def test_of_two_decisions_under_one_id_neither_is_believed_once_retention_has_taken_their_record(
    tmp_path,
):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    (decision,) = place.published.values()
    evidence = json.loads(decision.to_bytes())["evidence"] | {"claim": EVIL}
    values = [(APPROVED, decision.to_bytes()), (APPROVED, otherwise(decision, evidence=evidence))]
    assert VerifyStatus.EQUAL in statuses(await on_topics(place, values, tmp_path))
    place.log.clear()
    later = decision.origin.offset + 1
    assert statuses(await on_topics(place, values[:1], tmp_path, inputs=later)) == [VerifyStatus.EXPIRED]
    found = await on_topics(place, values, tmp_path, inputs=later)
    assert statuses(found) == [VerifyStatus.CONTRADICTED] * 2


@pytest.mark.parametrize("final", [True, False])
async def test_an_approval_that_stands_though_audit_says_that_its_action_was_refused_is_contradicted(
    final, tmp_path
):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis")))
    await place.act(place.action("approve", latest(place, "c")))
    first, two = sorted(place.published.values(), key=lambda decision: decision.revision)
    values = [(REVIEW, first.to_bytes()), (APPROVED, two.to_bytes())]
    assert statuses(await on_topics(place, values, tmp_path)) == [VerifyStatus.EQUAL] * 2
    place.ends = [
        event_id(
            "refused_action", two.facts.review["action_id"] if final else two.origin.model_dump(mode="json")
        )
    ]
    found = await on_topics(place, values, tmp_path)
    assert [(f.status, f.paths) for f in found] == [
        (VerifyStatus.EQUAL, ()),
        (VerifyStatus.CONTRADICTED, ("$.facts.review",)),
    ]


async def test_a_decision_that_says_that_it_superseded_itself_holds_nobody_up(tmp_path):
    place = town(tmp_path)
    again = await decided_again(place)
    forged = otherwise(again, supersedes=again.decision_id)
    with Job(tmp_path / "job", ORDER) as job:
        headers, key = decision_headers(again, ()), record_key(again.tenant_id, again.user_id)
        published = InboundRecord(REVIEW, 0, 0, 0, key, forged, headers)
        inside = {(again.origin.topic, 0): OffsetRange(str(again.origin.topic), 0, 0, 1_000)}
        job.add_decision(published, inside=inside, everything=True)
        assert len(job.missing_places()) == 1  # the record that the subject began with


@pytest.mark.parametrize("number", [2**53, 2**63, -(10**30)])
async def test_a_revision_that_no_canonical_form_has_is_found_in_a_file_and_on_topics(number, tmp_path):
    place = town(tmp_path)
    again = await decided_again(place)
    forged = otherwise(again, revision=number)
    for (finding,) in (
        await in_files(place, [forged], tmp_path),
        await on_topics(place, [(REVIEW, forged)], tmp_path),
    ):
        assert finding.status is VerifyStatus.DIFFERS
        assert "$.revision" in finding.paths


async def test_a_first_record_of_the_same_subject_with_another_text_is_found(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    place.record(claim_bytes("c", EVIL, source="ai_synthesis"))
    origin = place.log[-1].origin.model_dump(mode="json")
    (finding,) = await in_files(place, [otherwise(two, subject_origin=origin)], tmp_path)
    assert (finding.status, finding.paths) == (VerifyStatus.DIFFERS, ("$.subject_origin.sha256",))


async def test_the_text_of_a_retraction_is_that_of_the_edit_that_stood_not_of_one_that_was_refused(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis")))
    first = latest(place, "c")
    unsigned = json.loads(place.action("edit", first, content=EVIL).value)
    refused = place.record(json.dumps(unsigned | {"action_id": "a" * 8}).encode(), topic=REVIEWS)
    await place.act(refused)
    await place.act(place.action("edit", first, content="The cache holds ten shards of the ledger"))
    two = latest(place, "c")
    await place.act(place.action("retract", two, reason="wrong"))
    three = latest(place, "c")
    assert (first.revision, two.revision, three.revision) == (1, 2, 3)

    fake = three.model_copy(update={"evidence": replace(three.evidence, claim=EVIL)})
    true, forged = await in_files(place, [two.to_bytes(), fake.to_bytes()], tmp_path)
    assert (true.status, forged.status, forged.paths) == (
        VerifyStatus.EQUAL,
        VerifyStatus.DIFFERS,
        ("$.evidence.claim",),
    )
    unedited = json.loads(three.to_bytes())
    unedited["facts"]["review"]["edited"] = False
    unedited["evidence"]["claim"] = TEXT
    _, forged = await in_files(place, [two.to_bytes(), json.dumps(unedited).encode()], tmp_path)
    assert forged.status is VerifyStatus.DIFFERS
    (alone,) = await in_files(place, [three.to_bytes()], tmp_path)
    assert (alone.status, alone.detail) == (VerifyStatus.MISSING, "decision of revision 2")


async def test_what_rests_on_an_earlier_revision_that_is_not_at_hand_is_missing(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    await place.act(place.action("approve", two))
    three = latest(place, "c")
    (alone,) = await in_files(place, [three.to_bytes()], tmp_path)
    assert (alone.status, alone.detail) == (VerifyStatus.MISSING, "decision of revision 2")
    both = [two.to_bytes(), three.to_bytes()]
    assert statuses(await in_files(place, both, tmp_path)) == [VerifyStatus.EQUAL] * 2
    await place.act(place.action("retract", three))
    four = latest(place, "c")
    (_, last) = await in_files(place, [three.to_bytes(), four.to_bytes()], tmp_path)
    assert (last.status, last.detail) == (VerifyStatus.MISSING, "decision of revision 2")


async def test_on_topics_a_time_to_begin_at_says_what_is_verified_not_what_is_known(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    await place.act(place.action("approve", two))
    three = latest(place, "c")
    broken = (REVIEW, otherwise(two, tier="tier_1"))
    values = [(REVIEW, two.to_bytes()), broken, (APPROVED, three.to_bytes())]
    assert statuses(await on_topics(place, values, tmp_path, since=2)) == [VerifyStatus.EQUAL]
    assert VerifyStatus.CONTRADICTED in statuses(await on_topics(place, values, tmp_path))
    again = [(REVIEW, two.to_bytes()), (REVIEW, two.to_bytes())]
    assert statuses(await on_topics(place, again, tmp_path, since=1)) == [VerifyStatus.EQUAL]


async def test_a_refusal_that_does_not_stand_counts_as_refused(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis")))
    signed = place.action("approve", latest(place, "c"))
    await place.act(place.record(signed.value, topic=REVIEWS))
    await place.act(signed)
    with Job(tmp_path / "job", ORDER) as job:
        place.store_in(job)
        task = Task("again", KnownPolicies([place.policy], PolicyStore(None, None)))
        summary = await Replayer(job, task, Nowhere(), Rate(None), lambda *_: None).run()
    assert summary.statuses == {"equal": 2, "refused": 1}


async def test_the_edit_between_is_what_a_retraction_is_derived_with(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis")))
    await place.act(place.action("edit", latest(place, "c"), content="The cache holds ten shards"))
    await place.act(place.action("retract", latest(place, "c"), reason="wrong"))
    decisions, records, _ = place.write(tmp_path)
    three = latest(place, "c")
    with FileRecords(records, decisions) as found:
        inputs = gather(three, found)
        assert inputs.edit == "The cache holds ten shards"
        assert rederive(three, inputs, place.policy).to_bytes() == three.to_bytes()


@pytest.mark.parametrize("action_id", [2**60, 1.5, ["x"], {"a": 1}, True])
async def test_an_action_that_no_id_can_name_ends_neither_verification_nor_what_is_behind_it(
    tmp_path, action_id
):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    facts = json.loads(decision.to_bytes())["facts"] | {"review": {"action_id": action_id, "key_id": "k"}}
    forged = otherwise(decision, engine="9.9", facts=facts, decision_id="0" * 36)
    findings = await on_topics(place, [(APPROVED, forged), (APPROVED, decision.to_bytes())], tmp_path)
    assert VerifyStatus.EQUAL in statuses(findings)


async def test_a_decision_of_the_first_day_there_is_ends_no_check_of_signatures(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    facts = json.loads(decision.to_bytes())["facts"] | {"review": {"action_id": "a", "key_id": "k"}}
    first = otherwise(decision, engine="9.9", facts=facts, decided_at="0001-01-01T00:00:00Z")
    findings = await on_topics(place, [(APPROVED, first)], tmp_path, signatures=Signatures(keys=Keys.empty()))
    assert statuses(findings) == [VerifyStatus.UNATTESTED]
