"""Chains of seals verify whatever happens to workers and keys, and a rebuild takes in nothing that none covers."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.outputs import of_seal
from groundwire.gate.claim_case import dedup_scheme
from groundwire.keys import ed25519
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.seals import Seal, SealedOutput, SealHead, root_of
from groundwire.policy import load_policy
from groundwire.state.model import SubjectState
from tests.state.conftest import state_at
from tests.stream.harness import Deployment, good, until
from tests.stream.office import Office

pytestmark = [pytest.mark.stream, pytest.mark.slow]


def chains(deployment: Deployment) -> dict[tuple[str, int], list[Seal]]:
    """The seals of each input partition, as they stand."""
    found: defaultdict[tuple[str, int], list[Seal]] = defaultdict(list)
    for seen in deployment.seen["audit"]:
        if seen.json["type"] == "seal":
            seal = Seal.of(AuditEvent.model_validate_json(seen.value or b""))
            found[seal.head.topic, seal.head.partition].append(seal)
    return dict(found)


def named(deployment: Deployment) -> set[str]:
    """The ids of all that is sealed."""
    return {each.id for seals in chains(deployment).values() for seal in seals for each in seal.outputs}


async def end(deployment: Deployment) -> None:
    """Stop workers in good order, so that nothing is left to seal."""
    stopped = [worker.stop() for worker in deployment.workers if worker.alive]
    assert set(await asyncio.gather(*stopped)) == {0}
    await deployment.quiet()


async def test_what_a_killed_worker_published_and_did_not_seal_verifies_though_a_person_decided_it_meanwhile(
    office: Office, deployment: Deployment
):
    dying = deployment.start_worker("claims", faulty="before-sealing")
    await deployment.start_workers("reviews")
    pending, other = await office.pending(1), await office.pending(2)
    assert await dying.ended() == -9
    assert chains(deployment) == {}
    await office.act("approve", pending)
    approved = await deployment.decision("c1", revision=2)
    await deployment.start_workers("claims")
    await deployment.caught_up("claims")
    await end(deployment)
    assert {approved.json["decision_id"], other.json["decision_id"]} <= named(deployment)
    assert pending.json["decision_id"] not in named(deployment), (
        "what was superseded is read again as what it is now"
    )
    await deployment.verify()


@pytest.mark.smoke
async def test_a_worker_that_joins_and_leaves_goes_on_with_each_partitions_chain(deployment: Deployment):
    await deployment.start_workers("claims")
    await deployment.produce([good(number) for number in range(60)])
    await deployment.caught_up("claims")
    (second,) = await deployment.start_workers("claims")
    await deployment.produce([good(number) for number in range(60, 120)])
    await deployment.settled(120)
    assert await second.stop() == 0
    await deployment.produce([good(number) for number in range(120, 180)])
    await deployment.settled(180)
    await end(deployment)
    found = chains(deployment)
    assert len(found) == len([end for end in (await deployment.ends("claims")).values() if end])
    for seals in found.values():
        heads = [seal.head for seal in seals]
        assert [head.before for head in heads] == [None, *(head.sha256 for head in heads[:-1])]
        assert [head.first for head in heads[1:]] == [head.end for head in heads[:-1]]
    assert {seen.json["decision_id"] for seen in deployment.decisions} <= named(deployment)


async def test_a_key_that_ends_holds_offsets_back_until_its_successor_stands_in_the_file(
    deployment: Deployment, tmp_path: Path
):
    path = deployment.seal_key = tmp_path / "ending.toml"
    public = new_key(path, "first", tenants=[], roles=["seal"], asymmetric=True)
    assert public
    (worker,) = await deployment.start_workers("claims")
    await deployment.produce([good(number) for number in range(5)])
    await deployment.caught_up("claims")
    end_of_key = datetime.now(UTC) + timedelta(seconds=4)  # the worker has read the file by then
    path.write_text(f"{path.read_text()}not_after = {end_of_key.isoformat()}\n")
    path.chmod(0o600)
    await until(lambda: datetime.now(UTC) > end_of_key, "the key ends")
    before = await deployment.committed("claims")
    await deployment.produce([good(number) for number in range(5, 10)])
    assert "seal" in await worker.answers("/ready", 503)
    assert await worker.metric("groundwire_paused", dependency="seal") == 1
    await deployment.settled(10)
    await deployment.quiet()
    assert await deployment.committed("claims") == before
    new_key(path, "second", tenants=[], roles=["seal"], asymmetric=True)
    await worker.answers("/ready", 200)
    await deployment.caught_up("claims")
    await end(deployment)
    assert {seal.head.key for seals in chains(deployment).values() for seal in seals} == {"first", "second"}
    assert {seen.json["decision_id"] for seen in deployment.decisions} <= named(deployment)


async def test_a_command_seals_with_a_key_that_the_worker_never_holds(deployment: Deployment, tmp_path: Path):
    signer = """
import base64, sys
from groundwire.keys import ed25519
print(base64.b64encode(ed25519.sign(open({key!r}).read(), sys.stdin.buffer.read())).decode())
"""
    private = ed25519.new_private_key()
    (tmp_path / "kms.key").write_text(private)
    script = tmp_path / "kms.py"
    script.write_text(signer.format(key=str(tmp_path / "kms.key")))
    path = deployment.seal_key = tmp_path / "command.toml"
    path.write_text(
        f"[keys.kms]\ncommand = {json.dumps([sys.executable, str(script)])}\n"
        f'public_key = "{ed25519.public_key_of(private)}"\ntenants = []\nroles = ["seal"]\n'
    )
    path.chmod(0o600)
    await deployment.start_workers("claims")
    await deployment.produce([good(number) for number in range(20)])
    await deployment.settled(20)
    await end(deployment)
    assert {seal.head.key for seals in chains(deployment).values() for seal in seals} == {"kms"}
    assert {seen.json["decision_id"] for seen in deployment.decisions} <= named(deployment)


@pytest.mark.smoke
async def test_a_rebuild_that_requires_seals_leaves_out_forgeries_that_follow_and_takes_in_all_that_is_sealed(
    office: Office, deployment: Deployment
):
    deployment.verified = False  # what is forged is not sealed
    await deployment.start_workers("claims", "reviews")
    sealed = [await office.pending(number) for number in range(1, 5)]
    await deployment.produce([good(number, source="user") for number in range(10, 30)])
    await office.act("approve", sealed[0])
    await office.act("approve", sealed[1])
    gone, kept = [await deployment.decision(name, revision=2) for name in ("c1", "c2")]
    await office.act("retract", gone)
    await deployment.decision("c1", revision=3)
    await deployment.settled(24)
    await end(deployment)
    # an approval that derives, by somebody who runs the gate without its key
    await deployment.start_workers("claims", GROUNDWIRE_SEAL_KEY="")
    await deployment.produce([good(100, source="user")])
    forged = await deployment.decision("c100")
    assert forged.topic == "approved"
    await end(deployment)
    # a Retraction and its audit event in the shape of genuine ones, about the other approval
    retraction = deployment.seen["retractions"][0].json
    audit = next(s for s in deployment.seen["audit"] if s.json["detail"].get("outcome") == "retracted")
    event = audit.json
    tenant, user, subject_id = kept.subject
    name, action_id = decision_id(Subject(tenant, user, Kind.CLAIM, subject_id), 3), str(uuid.uuid4())
    audited = event_id("review_action", action_id)
    own = {"user_id": user, "subject_id": subject_id}
    detail = {**event["detail"], "user_id": user, "action_id": action_id}
    event |= {"event_id": audited, "subject_id": subject_id, "decision_id": name, "detail": detail}
    retraction |= {**own, "decision_id": name, "supersedes": kept.json["decision_id"]}
    retracted = deployment.seen["retractions"][0]
    for genuine, ce_id, value in ((retracted, name, retraction), (audit, audited, event)):
        headers = list((dict(genuine.headers) | {"ce_id": ce_id.encode()}).items())
        sent = json.dumps(value).encode()
        await (await deployment.send(sent, key=kept.key, topic=genuine.topic, headers=headers))
    status, _, told = await deployment.command(
        "rebuild", "--yes", "--require-seals", "--seal-keys", str(deployment.seal_key)
    )
    assert (status, "1 unsealed, left out" in told) == (0, True), told
    standings = await stored(deployment)
    assert standings.pop("c100") is None
    assert standings.pop("c2") is SubjectState.APPROVED, "a forged retraction closes nothing"
    assert standings.pop("c1") is SubjectState.BLOCKED
    assert {standings.pop(name) for name in ("c3", "c4")} == {SubjectState.PENDING}
    expected = {seen.json["subject_id"]: seen.topic for seen in deployment.first_decisions().values()}
    assert {name: state is SubjectState.APPROVED for name, state in standings.items()} == {
        name: topic == "approved" for name, topic in expected.items() if name in standings
    }
    await deployment.command("rebuild", "--yes")
    standings = await stored(deployment)
    assert standings["c100"] is SubjectState.APPROVED, "without seals it follows, and comes back"
    assert standings["c2"] is not SubjectState.APPROVED, "and so does what nobody retracted"


async def test_what_a_stolen_key_seals_on_an_empty_partition_of_audit_after_its_end_counts_for_nothing(
    deployment: Deployment, tmp_path: Path
):
    deployment.verified = False
    path = deployment.seal_key = tmp_path / "gates.toml"
    stolen_at = datetime.now(UTC) - timedelta(days=1)
    for name, ends in (("gate", None), ("stolen", stolen_at)):
        new_key(path, name, tenants=[], roles=["seal"], asymmetric=True, not_after=ends)
    await deployment.start_workers("claims")
    await deployment.produce([good(number, source="user") for number in range(1, 11)])
    await deployment.settled(10)
    await end(deployment)
    # an approval that derives, by somebody who runs the gate without its key
    await deployment.start_workers("claims", GROUNDWIRE_SEAL_KEY="")
    await deployment.produce([good(100, source="user")])
    forged = await deployment.decision("c100")
    await end(deployment)
    (home,) = {seen.partition for seen in deployment.seen["audit"] if seen.json["type"] == "seal"}
    origin = forged.json["origin"]
    outputs = [
        SealedOutput(
            origin["offset"], forged.topic, forged.json["decision_id"], sha256_hex(forged.value or b"")
        )
    ]
    head = SealHead(
        at=stolen_at - timedelta(days=1),
        before=None,
        count=len(outputs),
        end=origin["offset"] + 1,
        first=origin["offset"],
        key="stolen",
        partition=origin["partition"],
        root=root_of(outputs),
        topic=origin["topic"],
    )
    seal = of_seal(Seal(head, dict(Keys.load(path))["stolen"].sign(head.to_bytes()), tuple(outputs)))
    sent = await deployment.send(
        seal.value,
        key=seal.key,
        topic="audit",
        headers=list(seal.headers),
        partition=(home + 1) % deployment.partitions,
    )
    await sent
    keys = ("--seal-keys", str(path))
    status, told, _ = await deployment.command("verify", "--from-topics", *keys)
    assert status == 1, told
    assert re.search(r"bad_seal .*elsewhere", told), told
    assert re.search(rf"{forged.json['decision_id']} +unsealed", told), told
    status, _, told = await deployment.command("rebuild", "--yes", "--require-seals", *keys)
    assert (status, "1 unsealed, left out" in told) == (0, True), told
    assert (await stored(deployment))["c100"] is None


async def stored(deployment: Deployment) -> dict[str, SubjectState | None]:
    """Where state has each claim."""
    where = (deployment.redis.url, deployment.prefix)
    state = state_at(*where, scheme=dedup_scheme(load_policy(None, {})), require_aof=False)
    await state.open()
    try:
        subjects = [
            Subject(tenant, user, Kind.CLAIM, name) for tenant, user, name in deployment.first_decisions()
        ]
        found = await state.statuses(subjects)
    finally:
        await state.close()
    return {
        subject.subject_id: status and status.state for subject, status in zip(subjects, found, strict=True)
    }
