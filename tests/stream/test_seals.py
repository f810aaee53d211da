"""Chains of seals hold whatever happens to workers and keys, and `verify` names what somebody without a key forges.

The forger may write to all topics.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from groundwire.gate.claim_case import dedup_scheme
from groundwire.keys import ed25519
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.identity import Subject, decision_id, event_id, retraction_id
from groundwire.messages.seals import Seal
from groundwire.policy import load_policy
from groundwire.replay.sealed_topics import read_heads, read_seals
from groundwire.replay.verify import Placed, Signatures, VerifyStatus
from groundwire.state.model import SubjectState
from tests.state.conftest import state_at
from tests.stream.harness import (
    ROOT,
    Deployment,
    Office,
    Seen,
    assert_one_truth,
    good,
    not_derived,
    settings_of,
    until,
)

pytestmark = [pytest.mark.stream, pytest.mark.slow]

Topics = dict[str, list[Seen]]


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


def new_gate_key(path: Path, name: str, role: str = "seal", **more: Any) -> str | None:
    return new_key(path, name, **{"tenants": [], "roles": [role], "asymmetric": True, **more})


@pytest.mark.smoke
async def test_what_workers_sealed_verifies_one_decision_is_proven_to_a_stranger_and_every_forgery_is_named(
    broker: Any, redis_server: Any, tmp_path: Path
):
    private, public, head_file = (tmp_path / name for name in ("gate.toml", "public.toml", "heads.jsonl"))
    new_gate_key(private, "gate-1")
    new_gate_key(private, "old", not_after=datetime(2026, 1, 1, tzinfo=UTC))
    new_gate_key(private, "ann", "reviewer", tenants=["default"])
    sealing = {"GROUNDWIRE_SEAL_KEY": str(private)}
    async with Deployment(broker, redis_server, tmp_path, partitions=2, environment=sealing) as deployment:
        office = Office(deployment, tmp_path)
        await deployment.start_workers("claims", "reviews")
        await deployment.produce([good(number) for number in range(40)])
        pending = [await office.pending(number) for number in range(1000, 1004)]
        await office.act("approve", pending[0])
        approved = await deployment.decision("c1000", revision=2)
        await office.act("reject", pending[1])
        await deployment.decision("c1001", revision=2)
        await office.act("retract", approved)
        await deployment.decision("c1000", revision=3)
        await deployment.caught_up("claims")  # so that chains have several seals
        await deployment.produce([good(number) for number in range(40, 80)])
        await deployment.settled(84)
        await end(deployment)
        names = ("approved", "review", "blocked", "retractions", "audit", "regenerate")
        topics: Topics = {name: list(deployment.seen[name]) for name in names}
        topics["heads"] = await deployment.stored("heads")
        public.write_bytes(public_keys(Keys.load(private))[0])
        head = ("seals", "head", "--seal-keys", str(public), "--format", "json")
        head_file.write_text((await deployment.succeeds(*head))[0])
    environment = deployment.settings(**deployment.policies)
    office_keys = tmp_path / "keys.toml"

    async def verify(*, heads: bool = False, keys: Path = office_keys) -> list[Placed]:
        known = read_heads(head_file) if heads else ()
        seals = partial(read_seals, settings_of(environment), SealKeys(public), heads=known)
        return await not_derived(environment, Signatures(seals, Keys.load(keys)))

    async def rewritten(changed: Topics, *, heads: bool = False) -> list[Placed]:
        """Delete the topics, fill them with other records on some, and verify."""
        names = [deployment.prefix + name for name in topics]
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics(names)
            while set(names) & set(await admin.list_topics()):  # noqa: ASYNC110 - the broker reports no event
                await asyncio.sleep(0.1)
            new = [NewTopic(name, deployment.partitions, broker.replication) for name in names]
            while any(code for _, code, *_ in (await admin.create_topics(new)).topic_errors):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.2)
        finally:
            await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True) as producer:
            for each in (each for records in (topics | changed).values() for each in records):
                options = {"key": each.key, "headers": list(each.headers), "timestamp_ms": each.timestamp}
                name = deployment.prefix + each.topic
                await producer.send(name, each.value, partition=each.partition, **options)
            await producer.flush()
        return await verify(heads=heads)

    def named_in(found: list[Placed]) -> set[tuple[str | None, str]]:
        return {(placed.finding.decision_id, placed.finding.status.value) for placed in found}

    def details(found: list[Placed]) -> str:
        return "\n".join(placed.finding.detail for placed in found)

    def with_header(seen: Seen, name: str, value: bytes) -> Seen:
        return replace(seen, headers=tuple((n, value if n == name else v) for n, v in seen.headers))

    def forged(seen: Seen, topic: str, ce_id: str | None = None, **fields: Any) -> Seen:
        """A record on a topic with fields changed, and perhaps its id."""
        value = json.dumps(seen.json | fields, ensure_ascii=False, separators=(",", ":")).encode()
        made = replace(seen, topic=topic, value=value)
        return made if ce_id is None else with_header(made, "ce_id", ce_id.encode())

    assert await verify(heads=True) == []
    seals = [seen for seen in topics["audit"] if seen.json["type"] == "seal"]
    sealed = {text.split()[2] for seal in seals for text in seal.json["detail"]["outputs"]}
    decided = ("approved", "review", "blocked", "retractions")
    assert sealed >= {seen.header("ce_id") for name in decided for seen in topics[name]}

    command, keys = deployment.command, ("--seal-keys", str(public))
    status, out, err = await command("verify", "--from-topics", *keys, "--keys", str(office_keys))
    assert status == 0, out + err
    name = topics["approved"][0].json["decision_id"]
    status, proof, err = await command("verify", "--decision", name, *keys)
    assert status == 0, err
    file, script = tmp_path / "proof.json", str(ROOT / "examples/check_proof.py")
    other = json.loads(proof)
    other["decision"] = other["decision"].replace('"approved":true', '"approved":false')
    for text, expected in ((proof, 0), (json.dumps(other), 1)):
        file.write_text(text)
        checking = [sys.executable, "-I", script, str(file), str(public)]
        checked = await asyncio.create_subprocess_exec(*checking, stdout=PIPE, stderr=PIPE)
        shown, errors = await checked.communicate()
        assert checked.returncode == expected, shown + errors
        assert expected or name.encode() in shown
    status, _, err = await command("verify", "--decision", "0" * 36, *keys)
    assert (status, "no seal covers" in err) == (1, True)

    # keys of another console under the same name: its signatures are valid under none
    strange = tmp_path / "strange.toml"
    new_key(strange, "console", tenants=["default"], roles=["reviewer"])
    people = {seen.json["decision_id"] for topic in ("approved", "blocked") for seen in topics[topic]
              if seen.json["facts"]["review"]}  # fmt: skip
    assert named_in(await verify(keys=strange)) == {(person, "unattested") for person in people}

    acted = [seen for seen in topics["audit"] if seen.json["type"] == "review_action"]
    # inserted, published again in another place or under another key, and removed: a unit test has each way
    blocked, *copies = topics["blocked"][:1] + topics["approved"][1:4]
    approved_now = {
        "verdict": "approved",
        "approved": True,
        "tier": "tier_1",
        "reason_code": "trusted_source",
    }
    refusal = event_id("refused_action", acted[0].json["detail"]["action_id"])
    of_it = retraction_id(new := "00000000-0000-5000-8000-000000000003")
    withdrawn = {"decision_id": new, "supersedes": copies[0].json["decision_id"]}
    more = {
        "approved": [
            forged(blocked, "approved", **approved_now),
            replace(copies[0], partition=1 - copies[0].partition),
            replace(copies[1], key=b"default:somebody"),
            with_header(copies[2], "ce_subject", b"another"),
        ],
        "retractions": [forged(topics["retractions"][0], "retractions", of_it, **withdrawn)],
        "audit": [forged(acted[0], "audit", refusal, type="refused_action", event_id=refusal)],
    }
    gone = [topics["approved"][0], topics["blocked"][1], acted[1]]
    left = {
        name: [seen for seen in records if seen not in gone] + more.get(name, [])
        for name, records in topics.items()
    }
    found = named_in(await rewritten(left))
    assert {(seen.header("ce_id"), VerifyStatus.REMOVED.value) for seen in gone} <= found
    assert {(copies[0].header("ce_id"), "unsealed"), (of_it, "unsealed"), (refusal, "unsealed")} <= found
    assert {(seen.json["decision_id"], "differs") for seen in copies[1:]} <= found
    assert blocked.json["decision_id"] in {name for name, _ in found}
    claims = [seal for seal in seals if seal.json["detail"]["seal"]["topic"].endswith(".claims")]
    last = max(claims, key=lambda seal: seal.json["detail"]["seal"]["end"])

    # all decisions and seals of an input partition are gone, or the last seal with all that it covers
    detail = last.json["detail"]
    own = (detail["seal"]["topic"], detail["seal"]["partition"])
    covered = {text.split()[2] for text in detail["outputs"]}

    def is_of_it(seen: Seen) -> bool:
        value = seen.json
        place = value["detail"]["seal"] if value.get("type") == "seal" else value.get("origin") or {}
        return (place.get("topic"), place.get("partition")) == own

    def without(gone: Callable[[Seen], bool]) -> Topics:
        names = ("approved", "review", "blocked", "audit")
        return {name: [seen for seen in topics[name] if not gone(seen)] for name in names}

    emptied = without(is_of_it)
    placed = await rewritten(emptied)
    there = details([one for one in placed if one.where == "/".join(map(str, own))])
    assert "head is kept elsewhere" in there, placed
    assert "committed last" in there, "the committed offsets of the group reveal it, too"
    found = await rewritten(emptied | {"heads": []}, heads=True)
    assert "head is kept elsewhere" in details(found), "a file reveals what the topic does not any more"
    assert "no head is kept" in details(await rewritten({"heads": []}))
    placed = await rewritten(without(lambda seen: seen is last or seen.header("ce_id") in covered))
    assert "committed last" in details(placed), placed


async def test_what_a_killed_worker_published_and_did_not_seal_verifies_though_a_person_decided_it_meanwhile(
    office: Office, deployment: Deployment
):
    dying = deployment.start_worker("claims", faulty="before-sealing")
    await deployment.start_workers("reviews")
    pending, other = await asyncio.gather(office.pending(1), office.pending(2))  # before the worker commits
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
    leaving = asyncio.create_task(deployment.produce([good(number) for number in range(120, 600)]))
    assert await second.stop() == 0
    await leaving
    await deployment.settled(600)
    await deployment.caught_up("claims")
    await end(deployment)
    assert_one_truth(deployment.decisions)
    assert len(deployment.decisions) == 600, "a graceful rebalance loses and repeats nothing"
    found = chains(deployment)
    assert len(found) == len([end for end in (await deployment.ends("claims")).values() if end])
    for seals in found.values():
        heads = [seal.head for seal in seals]
        assert [head.before for head in heads] == [None, *(head.sha256 for head in heads[:-1])]
        assert [head.first for head in heads[1:]] == [head.end for head in heads[:-1]]
    assert {seen.json["decision_id"] for seen in deployment.decisions} <= named(deployment)


async def test_a_key_that_ends_holds_offsets_back_until_its_successor_a_command_s_is_in_the_file(
    deployment: Deployment, tmp_path: Path
):
    path = deployment.seal_key = tmp_path / "ending.toml"
    new_gate_key(path, "first")
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

    # the successor is a command's, whose key no worker holds
    private_key, signing = ed25519.new_private_key(), tmp_path / "kms.py"
    (tmp_path / "kms.key").write_text(private_key)
    signing.write_text(f"""
import base64, sys
from groundwire.keys import ed25519
private_key = open({str(tmp_path / "kms.key")!r}).read()
print(base64.b64encode(ed25519.sign(private_key, sys.stdin.buffer.read())).decode())
""")
    with path.open("a") as file:
        file.write(f"\n[keys.kms]\ncommand = {json.dumps([sys.executable, str(signing)])}\n")
        file.write(f'public_key = "{ed25519.public_key_of(private_key)}"\ntenants = []\nroles = ["seal"]\n')
    await worker.answers("/ready", 200)
    await deployment.caught_up("claims")
    await end(deployment)
    assert {seal.head.key for seals in chains(deployment).values() for seal in seals} == {"first", "kms"}
    assert {seen.json["decision_id"] for seen in deployment.decisions} <= named(deployment)


async def test_the_drill_of_the_page_rotates_the_seal_key_and_all_seals_verify_by_the_new_public_file(
    deployment: Deployment, tmp_path: Path
):
    path = deployment.seal_key = tmp_path / "gate.toml"
    new_gate_key(path, "gate-1")
    old = tmp_path / "old.toml"
    old.write_bytes(public_keys(Keys.load(path))[0])
    await deployment.start_workers("claims")
    await deployment.produce([good(number) for number in range(5)])
    await deployment.caught_up("claims")

    def keys() -> set[str]:
        return {seal.head.key for seals in chains(deployment).values() for seal in seals}

    rotating = (
        "--ed25519",
        "--role",
        "seal",
        "--not-before",
        datetime.now(UTC).isoformat(),
        "--file",
        str(path),
    )
    await deployment.succeeds("keys", "new", "gate-2", *rotating)
    for number in range(5, 200):  # until the worker has read the file
        await deployment.produce([good(number)])
        await deployment.caught_up("claims")
        if "gate-2" in keys():
            break
    ends = "--not-after", datetime.now(UTC).isoformat(), "--file", str(path)
    await deployment.succeeds("keys", "end", "gate-1", *ends)
    await deployment.produce([good(200)])
    await deployment.caught_up("claims")
    await end(deployment)
    assert keys() == {"gate-1", "gate-2"}
    path.write_bytes(public_keys(Keys.load(path))[0])  # the private halves are not needed
    await deployment.verify()
    deployment.seal_key = old
    with pytest.raises(AssertionError, match="unknown key"):
        await deployment.verify()
    deployment.seal_key = path


@pytest.mark.smoke
async def test_a_rebuild_that_requires_seals_leaves_out_forgeries_that_follow_and_takes_in_all_that_is_sealed(
    office: Office, deployment: Deployment
):
    async def stored() -> dict[str, SubjectState | None]:
        """Where state has each claim."""
        scheme = dedup_scheme(load_policy(None, {}))
        state = state_at(deployment.redis.url, deployment.prefix, scheme=scheme, require_aof=False)
        await state.open()
        try:
            names = list(deployment.first_decisions())
            found = await state.statuses([Subject(*owner, Kind.CLAIM, name) for *owner, name in names])
        finally:
            await state.close()
        return {name: status and status.state for (*_, name), status in zip(names, found, strict=True)}

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
    status, _, stderr = await deployment.command(
        "rebuild", "--yes", "--require-seals", "--seal-keys", str(deployment.seal_key)
    )
    assert (status, "1 unsealed, left out" in stderr) == (0, True), stderr
    standings = await stored()
    assert standings.pop("c100") is None
    assert standings.pop("c2") is SubjectState.APPROVED, "a forged retraction closes nothing"
    assert standings.pop("c1") is SubjectState.BLOCKED
    assert {standings.pop(name) for name in ("c3", "c4")} == {SubjectState.PENDING}
    expected = {seen.json["subject_id"]: seen.topic for seen in deployment.first_decisions().values()}
    assert {name: state is SubjectState.APPROVED for name, state in standings.items()} == {
        name: topic == "approved" for name, topic in expected.items() if name in standings
    }
    await deployment.command("rebuild", "--yes")
    standings = await stored()
    assert standings["c100"] is SubjectState.APPROVED, "without seals it follows, and comes back"
    assert standings["c2"] is not SubjectState.APPROVED, "and so does what nobody retracted"
