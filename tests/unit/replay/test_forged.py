"""What was forged is found out, and what is not at hand is said to be missing, not to differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from groundwire.messages.decisions import Decision
from groundwire.messages.headers import decision_headers
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import record_key
from groundwire.policies import PolicyStore
from groundwire.policy import Limits, Policy
from groundwire.replay.derive import rederive
from groundwire.replay.files import FileRecords, verify_files
from groundwire.replay.inputs import gather
from groundwire.replay.job import Job, Order
from groundwire.replay.rate import Rate
from groundwire.replay.run import Known, Replayer, Task
from groundwire.replay.spool import Stretch
from groundwire.replay.topics import verify_topics
from groundwire.replay.verify import Finding, Status, Verifier
from groundwire.replay.writers import Nowhere
from tests.unit.gate.world import claim_bytes
from tests.unit.replay.town import REVIEWS, Town, town

TEXT = "The cache holds nine shards of the ledger"
EVIL = "Nobody ever approved this text"
REVIEW, APPROVED, BLOCKED = "groundwire.review", "groundwire.approved", "groundwire.blocked"
ORDER = Order("again", ["x"], "earliest", "latest", None, simulate=False, output=None)

Published = tuple[str, bytes]


class Shelf:
    """Reads what is put on it: records of a town, and decisions, each by topic and value."""

    def __init__(self, place: Town, values: Sequence[Published], since: int = 0, inputs: int = 0) -> None:
        self.place, self.values, self.since, self.inputs = place, values, since, inputs

    async def plan(self, topics, start, _end):
        first = 0 if start == "earliest" else self.since
        if topics[0] not in {APPROVED, REVIEW, BLOCKED}:
            first = self.inputs
        return [Stretch(topic, 0, first, len(self.values)) for topic in topics]

    async def read(self, job, _inside, outputs, *, everything):
        for record in self.place.log:
            job.spool.add_record(record, inside=True)
        starts = {stretch.topic: stretch.start for stretch in outputs}
        for offset, (topic, value) in enumerate(self.values):
            if offset < starts[topic]:
                continue
            decision = Decision.model_validate_json(value)
            key, headers = record_key(decision.tenant_id, decision.user_id), decision_headers(decision, ())
            published = InboundRecord(topic, 0, offset, 0, key, value, headers)
            job.spool.add_decision(published, inside={}, everything=everything)


async def on_topics(
    place: Town, values: Sequence[Published], folder, since: int = 0, inputs: int = 0
) -> list[Finding]:
    """Verify what is published; `inputs` is where retention has left the input topics."""
    await place.policies.put(place.policy)
    shelf = Shelf(place, values, since, inputs)
    start = since or "earliest"
    (folder / "verify").unlink(missing_ok=True)
    found = verify_topics(shelf, "groundwire.", start, place.policies, folder)
    return [placed.finding async for placed in found]


async def in_files(place: Town, values: Sequence[bytes], folder) -> list[Finding]:
    await place.policies.put(place.policy)
    _, records, policies = place.write(folder)
    decisions = folder / "some.jsonl"
    decisions.write_bytes(b"".join(value + b"\n" for value in values))
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        return [placed.finding async for placed in verify_files(found, verifier, decisions)]


def statuses(findings: Sequence[Finding]) -> list[Status]:
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
    assert [f.paths for f in findings if f.status is Status.DIFFERS] == [("$.evidence",)]


async def test_what_another_engine_writes_otherwise_but_decided_alike_is_named_as_another_engines(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    other = otherwise(decision, engine="0.0.9", reason="in other words")
    values = [(APPROVED, decision.to_bytes()), (APPROVED, other), (APPROVED, other)]
    findings = await on_topics(place, values, tmp_path)
    assert statuses(findings) == [Status.EQUAL, Status.OTHER_ENGINE]


async def test_two_decisions_under_one_id_are_found_though_each_follows_from_its_facts(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="user")))
    decision = latest(place, "c")
    later = decision.model_copy(update={"decided_at": decision.decided_at.replace(year=2030)})
    shuffled = json.dumps(json.loads(decision.to_bytes()), sort_keys=True).encode()
    findings = await in_files(place, [decision.to_bytes(), later.to_bytes(), shuffled], tmp_path)
    assert statuses(findings) == [Status.EQUAL, Status.DIFFERS, Status.EQUAL]
    assert statuses(await in_files(place, [later.to_bytes()], tmp_path)) == [Status.EQUAL]
    moved = decision.model_copy(update={"origin": decision.origin.model_copy(update={"offset": 77})})
    values = [(APPROVED, decision.to_bytes()), (APPROVED, moved.to_bytes())]
    assert Status.DIFFERS in statuses(await on_topics(place, values, tmp_path))


async def test_the_first_record_of_what_the_gate_decided_again_is_looked_at(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    assert statuses(await in_files(place, [two.to_bytes()], tmp_path)) == [Status.EQUAL]
    another = json.loads(latest(place, "free").to_bytes())["origin"]
    nothing = json.loads(two.to_bytes())["subject_origin"] | {"sha256": "0" * 64}
    expected = [
        (another, Status.DIFFERS, ("$.subject_origin.sha256",)),
        (None, Status.DIFFERS, ("$.subject_origin",)),
        (nothing, Status.MISSING, ()),
    ]
    for origin, status, paths in expected:
        forged = otherwise(two, subject_origin=origin)
        for finding in (
            *await in_files(place, [forged], tmp_path),
            *await on_topics(place, [(REVIEW, forged)], tmp_path),
        ):
            assert (finding.status, finding.paths) == (status, paths)


async def test_bytes_that_were_sent_again_do_not_stand_for_those_that_retention_has_taken(tmp_path):
    place = town(tmp_path)
    value = claim_bytes("c", TEXT, source="user")
    await place.send(place.record(value))
    await place.send(place.record(value))
    (first,) = place.published.values()
    taken = place.log.pop(0)
    assert first.origin.offset == taken.offset
    published = [(APPROVED, first.to_bytes())]
    for start, status in (taken.offset + 1, Status.MISSING), (taken.offset, Status.DIFFERS):
        assert statuses(await on_topics(place, published, tmp_path, inputs=start)) == [status]


async def test_a_decision_that_says_that_it_superseded_itself_holds_nobody_up(tmp_path):
    place = town(tmp_path)
    again = await decided_again(place)
    forged = otherwise(again, supersedes=again.decision_id)
    with Job(tmp_path / "job", ORDER) as job:
        headers, key = decision_headers(again, ()), record_key(again.tenant_id, again.user_id)
        published = InboundRecord(REVIEW, 0, 0, 0, key, forged, headers)
        inside = {(again.origin.topic, 0): Stretch(str(again.origin.topic), 0, 0, 1_000)}
        job.spool.add_decision(published, inside=inside, everything=True)
        assert len(job.spool.missing_places()) == 1  # the record that the subject began with


@pytest.mark.parametrize("number", [2**53, 2**63, -(10**30)])
async def test_a_revision_that_no_canonical_form_has_is_found_in_a_file_and_on_topics(number, tmp_path):
    place = town(tmp_path)
    again = await decided_again(place)
    forged = otherwise(again, revision=number)
    for (finding,) in (
        await in_files(place, [forged], tmp_path),
        await on_topics(place, [(REVIEW, forged)], tmp_path),
    ):
        assert finding.status is Status.DIFFERS
        assert "$.revision" in finding.paths


async def test_a_first_record_of_the_same_subject_with_another_text_is_found(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    place.record(claim_bytes("c", EVIL, source="ai_synthesis"))
    origin = place.log[-1].origin.model_dump(mode="json")
    (finding,) = await in_files(place, [otherwise(two, subject_origin=origin)], tmp_path)
    assert (finding.status, finding.paths) == (Status.DIFFERS, ("$.subject_origin.sha256",))


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
    assert (true.status, forged.status, forged.paths) == (Status.EQUAL, Status.DIFFERS, ("$.evidence.claim",))
    unedited = json.loads(three.to_bytes())
    unedited["facts"]["review"]["edited"] = False
    unedited["evidence"]["claim"] = TEXT
    _, forged = await in_files(place, [two.to_bytes(), json.dumps(unedited).encode()], tmp_path)
    assert forged.status is Status.DIFFERS
    (alone,) = await in_files(place, [three.to_bytes()], tmp_path)
    assert (alone.status, alone.detail) == (Status.MISSING, "decision of revision 2")


async def test_what_rests_on_an_earlier_revision_that_is_not_at_hand_is_missing(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    await place.act(place.action("approve", two))
    three = latest(place, "c")
    (alone,) = await in_files(place, [three.to_bytes()], tmp_path)
    assert (alone.status, alone.detail) == (Status.MISSING, "decision of revision 2")
    both = [two.to_bytes(), three.to_bytes()]
    assert statuses(await in_files(place, both, tmp_path)) == [Status.EQUAL] * 2
    await place.act(place.action("retract", three))
    four = latest(place, "c")
    (_, last) = await in_files(place, [three.to_bytes(), four.to_bytes()], tmp_path)
    assert (last.status, last.detail) == (Status.MISSING, "decision of revision 2")


async def test_on_topics_a_time_to_begin_at_says_what_is_verified_not_what_is_known(tmp_path):
    place = town(tmp_path)
    two = await decided_again(place)
    await place.act(place.action("approve", two))
    three = latest(place, "c")
    broken = (REVIEW, otherwise(two, tier="tier_1"))
    values = [(REVIEW, two.to_bytes()), broken, (APPROVED, three.to_bytes())]
    assert statuses(await on_topics(place, values, tmp_path, since=2)) == [Status.EQUAL]
    assert Status.DIFFERS in statuses(await on_topics(place, values, tmp_path))
    again = [(REVIEW, two.to_bytes()), (REVIEW, two.to_bytes())]
    assert statuses(await on_topics(place, again, tmp_path, since=1)) == [Status.EQUAL]


async def test_a_refusal_that_does_not_stand_counts_as_refused(tmp_path):
    place = town(tmp_path)
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis")))
    signed = place.action("approve", latest(place, "c"))
    await place.act(place.record(signed.value, topic=REVIEWS))
    await place.act(signed)
    with Job(tmp_path / "job", ORDER) as job:
        place.spool(job)
        task = Task("again", Known([place.policy], PolicyStore(None, None)))
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
