"""Chains of seals hold whatever happens to workers and keys, and `verify` names what somebody without a key forges.

The forger may write to all topics: after real workers have stopped, it deletes topics and fills them anew.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from asyncio.subprocess import PIPE
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from agents.outputs import of_seal
from groundwire.gate.claim_case import dedup_scheme
from groundwire.keys import ed25519
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.identity import Subject, decision_id, event_id, retraction_id
from groundwire.messages.seals import Seal, SealedOutput, SealHead, root_of
from groundwire.policy import load_policy
from groundwire.replay.seals import read_heads, read_seals
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
SEALED = ("approved", "review", "blocked", "retractions", "audit", "regenerate")


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


async def stored(deployment: Deployment) -> dict[str, SubjectState | None]:
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


def output_of(seen: Seen, offset: int) -> SealedOutput:
    return SealedOutput(offset, seen.topic, seen.json["decision_id"], sha256_hex(seen.value or b""))


@dataclass
class Published:
    """The topics of a stopped deployment, and how they are verified."""

    deployment: Deployment
    topics: Topics
    folder: Path

    def __post_init__(self) -> None:
        self.environment = self.deployment.settings(**self.deployment.policies)
        self.public, self.heads = self.folder / "public.toml", self.folder / "heads.jsonl"
        self.keys = self.folder / "keys.toml"

    def decided(self, verdict: str = "approved") -> Seen:
        """A decision that nothing has followed."""
        return self.topics[verdict][0]

    def seals(self, topic: str = "claims") -> list[Seen]:
        """The seals of the fullest partition of an input topic, in their order."""
        of: defaultdict[int, list[Seen]] = defaultdict(list)
        for seen in self.topics["audit"]:
            if seen.json["type"] == "seal" and seen.json["detail"]["seal"]["topic"].endswith(f".{topic}"):
                of[seen.json["detail"]["seal"]["partition"]].append(seen)
        return max(of.values(), key=len)

    async def rewritten(self, topics: Topics, *, heads: Path | None = None) -> list[Placed]:
        """Verify with other records on some topics, and put the true ones back."""
        try:
            await self.write(topics)
            return await self.verify(heads=heads)
        finally:
            await self.write({name: self.topics[name] for name in topics})

    async def verify(self, *, heads: Path | None = None, keys: Path | None = None) -> list[Placed]:
        seals = partial(read_seals, settings_of(self.environment), SealKeys(self.public))
        known = read_heads(heads) if heads else ()
        return await not_derived(self.environment, Signatures(seals, known, Keys.load(keys or self.keys)))

    async def write(self, topics: Topics) -> None:
        """Delete topics, and fill them with records."""
        prefix, brokers = self.deployment.prefix, self.deployment.broker.bootstrap
        names = [prefix + name for name in topics]
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
        await admin.start()
        try:
            await admin.delete_topics(names)
            while set(names) & set(await admin.list_topics()):  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.1)
            sizes = (self.deployment.partitions, self.deployment.broker.replication)
            new = [NewTopic(name, *sizes) for name in names]
            while any(code for _, code, *_ in (await admin.create_topics(new)).topic_errors):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.2)
        finally:
            await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=brokers, enable_idempotence=True) as producer:
            for each in (each for records in topics.values() for each in records):
                place = {"partition": each.partition, "timestamp_ms": each.timestamp}
                name, headers = prefix + each.topic, list(each.headers)
                await producer.send(name, each.value, key=each.key, headers=headers, **place)
            await producer.flush()

    async def named(self, topic: str, *records: Seen) -> set[tuple[str | None, str]]:
        """Verify with records more on a topic; returns which ids are named as what."""
        more = [replace(record, topic=topic) for record in records]
        found = await self.rewritten({topic: [*self.topics[topic], *more]})
        return {(placed.finding.decision_id, placed.finding.status.value) for placed in found}


def new_gate_key(path: Path, name: str, role: str = "seal", **more: Any) -> str | None:
    return new_key(path, name, **{"tenants": [], "roles": [role], "asymmetric": True, **more})


async def publish(broker: Any, redis_server: Any, folder: Path) -> Published:
    """Let workers decide claims and people's actions, and stop them in good order."""
    private = folder / "gate.toml"
    new_gate_key(private, "gate-1")
    new_gate_key(private, "old", not_after=datetime(2026, 1, 1, tzinfo=UTC))
    new_gate_key(private, "ann", "reviewer", tenants=["default"])
    sealing = {"GROUNDWIRE_SEAL_KEY": str(private)}
    async with Deployment(broker, redis_server, folder, partitions=2, environment=sealing) as deployment:
        office = Office(deployment, folder)
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
        made = Published(deployment, {name: list(deployment.seen[name]) for name in SEALED}, folder)
        made.public.write_bytes(public_keys(Keys.load(private))[0])
        head = ("seals", "head", "--seal-keys", str(made.public), "--format", "json")
        made.heads.write_text((await deployment.succeeds(*head))[0])
        return made


@pytest.fixture(scope="module")
def published(broker, redis_server, tmp_path_factory) -> Published:
    return asyncio.run(publish(broker, redis_server, tmp_path_factory.mktemp("forgeries")))


def with_other_value(
    seen: Seen, change: Callable[[dict[str, Any]], object], ce_id: str | None = None
) -> Seen:
    """A record with a field changed, and perhaps its id."""
    told = json.loads(seen.value or b"")
    change(told)
    made = replace(seen, value=json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode())
    return made if ce_id is None else with_header(made, "ce_id", ce_id.encode())


def with_header(seen: Seen, name: str, value: bytes) -> Seen:
    return replace(seen, headers=tuple((n, value if n == name else v) for n, v in seen.headers))


def statuses(found: list[Placed]) -> set[str]:
    return {placed.finding.status.value for placed in found}


def ids(found: list[Placed]) -> set[str | None]:
    return {placed.finding.decision_id for placed in found}


APPROVED = {"verdict": "approved", "approved": True, "tier": "tier_1"}


@pytest.mark.smoke
async def test_what_workers_published_and_sealed_verifies_and_one_decision_is_proven_to_a_stranger(
    published, tmp_path
):
    assert await published.verify(heads=published.heads) == []
    sealed = {
        text.split()[2]
        for seal in published.topics["audit"]
        if seal.json["type"] == "seal"
        for text in seal.json["detail"]["outputs"]
    }
    decided = ("approved", "review", "blocked", "retractions")
    assert sealed >= {seen.header("ce_id") for name in decided for seen in published.topics[name]}

    command, keys = published.deployment.command, ("--seal-keys", str(published.public))
    status, out, err = await command("verify", "--from-topics", *keys, "--keys", str(published.keys))
    assert status == 0, out + err
    name = published.decided().json["decision_id"]
    status, proof, err = await command("verify", "--decision", name, *keys)
    assert status == 0, err
    file, script = tmp_path / "proof.json", str(ROOT / "examples/check_proof.py")
    forged = json.loads(proof)
    forged["decision"] = forged["decision"].replace('"approved":true', '"approved":false')
    for text, expected in ((proof, 0), (json.dumps(forged), 1)):
        file.write_text(text)
        checking = [sys.executable, "-I", script, str(file), str(published.public)]
        checked = await asyncio.create_subprocess_exec(*checking, stdout=PIPE, stderr=PIPE)
        out, err = await checked.communicate()
        assert checked.returncode == expected, out + err
        assert expected or name.encode() in out
    status, _, err = await command("verify", "--decision", "0" * 36, *keys)
    assert (status, "no seal covers" in err) == (1, True)


@pytest.mark.smoke
async def test_an_inserted_decision_is_named(published):
    """Even one that derives: the decision itself, decided otherwise, at another time, or for another tenant."""
    blocked, twin, theirs = (published.decided(name) for name in ("blocked", "review", "approved"))
    trusted = {**APPROVED, "reason_code": "trusted_source"}
    time = "2026-11-24T00:00:00Z"
    later = with_other_value(twin, lambda told: told.update(decided_at=time))
    ours = with_other_value(theirs, lambda told: told.update(tenant_id="globex"))
    ours = replace(ours, key=b"globex:" + (theirs.key or b"").partition(b":")[2])
    for topic, true, forged in (
        ("approved", blocked, with_other_value(blocked, lambda told: told.update(trusted))),
        ("review", twin, with_header(later, "ce_time", time.encode())),
        ("approved", theirs, ours),
    ):
        assert true.json["decision_id"] in {name for name, _ in await published.named(topic, forged)}


async def test_a_decision_that_is_published_again_in_another_place_is_named(published):
    true = published.decided()
    for topic, copy in (
        ("review", true),
        ("approved", replace(true, key=b"default:somebody")),
        ("approved", with_header(true, "ce_id", b"0" * 36)),
        ("approved", with_header(true, "ce_time", b"2027-01-01T00:00:00Z")),
        ("approved", with_header(true, "ce_subject", b"another")),
    ):
        found = await published.named(topic, copy)
        assert (true.json["decision_id"], "differs") in found, (topic, copy)


async def test_records_that_follow_from_nothing_are_named_as_unsealed(published):
    """An approval under an unknown policy, a retraction that nobody asked for, a refusal of a true action."""
    name = "00000000-0000-5000-8000-000000000002"
    policy = {"decision_id": name, "policy": {"version": "x", "sha256": "0" * 64}}
    approval = with_other_value(published.decided(), lambda told: told.update(policy), name)
    assert await published.named("approved", approval) == {(name, "unsealed")}
    victim = published.decided().json
    fields = {"decision_id": name, "supersedes": victim["decision_id"], "subject_id": victim["subject_id"]}
    of_it = retraction_id(name)
    true = published.topics["retractions"][0]
    forged = with_other_value(true, lambda told: told.update(fields), of_it)
    assert await published.named("retractions", forged) == {(of_it, "unsealed")}
    true = next(seen for seen in published.topics["audit"] if seen.json["type"] == "review_action")
    refusal = event_id("refused_action", true.json["detail"]["action_id"])
    change = {"type": "refused_action", "event_id": refusal}
    invented = with_other_value(true, lambda told: told.update(change), refusal)
    assert (refusal, "unsealed") in await published.named("audit", invented)


async def test_a_removed_record_is_named(published):
    """Decisions, retractions and audit events; an event of another type under the id takes no event's place."""
    acted = next(seen for seen in published.topics["audit"] if seen.json["type"] == "review_action")
    refusal = event_id("refused_action", acted.json["detail"]["action_id"])
    change = {"type": "policy_loaded", "event_id": refusal, "detail": {"x": "refused_action"}}
    other = with_other_value(acted, lambda told: told.update(change), refusal)
    for topic, gone, more in (
        *((topic, published.topics[topic][0], ()) for topic in ("approved", "blocked", "retractions")),
        ("audit", acted, ()),
        ("audit", acted, (other,)),
    ):
        left = [seen for seen in published.topics[topic] if seen is not gone]
        found = await published.rewritten({topic: [*left, *more]})
        assert (gone.header("ce_id"), VerifyStatus.REMOVED) in {
            (placed.finding.decision_id, placed.finding.status) for placed in found
        }, (topic, more)
        assert not more or statuses(found) == {"removed"}


async def test_seals_in_another_order_are_named(published):
    """And an old seal in the place of a later one covers nothing."""
    seals = published.seals()
    first, second, last = seals[0], seals[1], seals[-1]
    for swapped, expected in (
        ({id(first): second, id(second): first}, set()),
        ({id(last): first}, {"unsealed", "broken_chain"}),
    ):
        records = [swapped.get(id(seen), seen) for seen in published.topics["audit"]]
        found = await published.rewritten({"audit": records})
        assert statuses(found) >= expected
        assert expected or any("comes after it" in placed.finding.detail for placed in found), found


async def test_a_seal_by_an_expired_key_a_back_dated_one_or_a_reviewers_covers_nothing(published):
    last = published.seals()[-1]
    true = SealHead(**last.json["detail"]["seal"])
    forged = with_other_value(published.decided("blocked"), lambda told: told.update(APPROVED))
    name = forged.json["decision_id"]
    outputs = (output_of(replace(forged, topic="approved"), 0),)
    keys = dict(Keys.load(published.folder / "gate.toml"))
    behind = {"before": true.sha256, "first": true.end, "end": true.end + 1}
    for key_id, at, why in (
        ("old", timedelta(), "outside"),
        ("old", timedelta(days=-700), "back-dated"),
        ("ann", timedelta(), "may not seal"),
    ):
        changes = {"key": key_id, "at": true.at + at, "root": root_of(outputs), "count": 1, **behind}
        head = SealHead(**true.model_dump() | changes)
        made = of_seal(Seal(head, keys[key_id].sign(head.to_bytes()), outputs))
        seal = replace(last, key=made.key, value=made.value, headers=tuple(made.headers))
        new = {"approved": replace(forged, topic="approved"), "audit": seal}
        topics = {topic: [*published.topics[topic], record] for topic, record in new.items()}
        found = await published.rewritten(topics)
        bad = [p.finding.detail for p in found if p.finding.status is VerifyStatus.BAD_SEAL]
        assert any(why in detail for detail in bad), found
        assert name in ids([p for p in found if p.finding.status is not VerifyStatus.BAD_SEAL])


async def test_a_partition_or_the_end_of_a_chain_that_is_cut_off_is_named(published):
    """All decisions and seals of an input partition are gone, or the last seal with all that it covers."""
    last = published.seals()[-1]
    detail = last.json["detail"]
    own = (detail["seal"]["topic"], detail["seal"]["partition"])
    covered = {text.split()[2] for text in detail["outputs"]}

    def is_of_it(seen: Seen) -> bool:
        told = seen.json
        place = told["detail"]["seal"] if told.get("type") == "seal" else told.get("origin") or {}
        return (place.get("topic"), place.get("partition")) == own

    def left(gone: Callable[[Seen], bool]) -> Topics:
        names = ("approved", "review", "blocked", "audit")
        return {name: [seen for seen in published.topics[name] if not gone(seen)] for name in names}

    found = await published.rewritten(left(is_of_it), heads=published.heads)
    details = [placed.finding.detail for placed in found if placed.where == "/".join(map(str, own))]
    assert any("anchored" in detail for detail in details), found
    assert any("committed last" in detail for detail in details), "the group's own offsets tell, too"
    found = await published.rewritten(left(lambda seen: seen is last or seen.header("ce_id") in covered))
    assert any("committed last" in placed.finding.detail for placed in found), found


async def test_a_person_who_never_signed_is_named(published, tmp_path):
    """The keys at verification are another key under the same name: the signature is valid under none."""
    strange = tmp_path / "strange.toml"
    new_key(strange, "console", tenants=["default"], roles=["reviewer"])
    found = await published.verify(keys=strange)
    assert statuses(found) == {"unattested"}
    assert ids(found) == {
        seen.json["decision_id"]
        for name in ("approved", "blocked")
        for seen in published.topics[name]
        if seen.json["facts"]["review"]
    }


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


async def test_a_key_that_ends_holds_offsets_back_until_its_successor_stands_in_the_file(
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
    new_gate_key(path, "second")
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
        new_gate_key(path, name, not_after=ends)
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
    outputs = (output_of(forged, origin["offset"]),)
    place = {name: origin[name] for name in ("topic", "partition")}
    rest = {"end": origin["offset"] + 1, "first": origin["offset"], "root": root_of(outputs)}
    at = stolen_at - timedelta(days=1)
    head = SealHead(at=at, before=None, count=1, key="stolen", **place, **rest)
    seal = of_seal(Seal(head, dict(Keys.load(path))["stolen"].sign(head.to_bytes()), outputs))
    elsewhere = {"topic": "audit", "partition": (home + 1) % deployment.partitions}
    await (await deployment.send(seal.value, key=seal.key, headers=seal.headers, **elsewhere))
    keys = ("--seal-keys", str(path))
    status, told, _ = await deployment.command("verify", "--from-topics", *keys)
    assert status == 1, told
    assert re.search(r"bad_seal .*elsewhere", told), told
    assert re.search(rf"{forged.json['decision_id']} +unsealed", told), told
    status, _, told = await deployment.command("rebuild", "--yes", "--require-seals", *keys)
    assert (status, "1 unsealed, left out" in told) == (0, True), told
    assert (await stored(deployment))["c100"] is None
