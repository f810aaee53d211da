"""Forgeries by whoever may write to topics, but holds no key of a gate: `verify` names each of them.

Real workers publish and seal; after they stop, a forger deletes topics and fills them anew.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from agents.outputs import of_seal
from groundwire.config import Settings
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import sha256_hex
from groundwire.messages.identity import event_id, retraction_id
from groundwire.messages.seals import Seal, SealedOutput, SealHead, root_of
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.seals import read_heads, read_seals
from groundwire.replay.verify import Placed, Signatures, VerifyStatus, verify_topics
from tests.stream.harness import ROOT, Deployment, Seen, good
from tests.stream.office import Office
from tests.stream.verified import policies_of

pytestmark = [pytest.mark.stream, pytest.mark.slow]

OUTPUTS = ("approved", "review", "blocked", "retractions", "audit", "regenerate")
Topics = dict[str, list[Seen]]


@dataclass
class Published:
    """The topics of a stopped deployment, and how they are verified."""

    environment: dict[str, str]
    partitions: int
    replication: int
    topics: Topics
    public: Path
    gate: Keys
    keys: Path
    heads: Path

    @property
    def settings(self) -> Settings:
        return Settings(
            brokers=self.environment["GROUNDWIRE_BROKERS"],
            topic_prefix=self.environment["GROUNDWIRE_TOPIC_PREFIX"],
            group_prefix=self.environment["GROUNDWIRE_GROUP_PREFIX"],
        )

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

    async def verify(self, *, heads: Path | None = None) -> list[Placed]:
        settings, prefix = self.settings, self.settings.topic_prefix
        reader = ReplayReader(settings.brokers, prefix, Rate(None), lambda *_: None)
        signatures = Signatures(
            partial(read_seals, settings, SealKeys(self.public)),
            read_heads(heads) if heads else (),
            Keys.load(self.keys),
        )
        known = policies_of(self.environment)
        with TemporaryDirectory(prefix="verified-") as scratch:
            more = {"signatures": signatures}
            findings = verify_topics(reader, prefix, "earliest", known, Path(scratch), **more)
            async with aclosing(findings):
                return [p async for p in findings if p.finding.status is not VerifyStatus.EQUAL]

    async def write(self, topics: Topics) -> None:
        """Delete topics, and fill them with records."""
        prefix, brokers = self.settings.topic_prefix, self.settings.brokers
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers)
        await admin.start()
        try:
            names = [prefix + name for name in topics]
            await admin.delete_topics(names)
            while set(names) & set(await admin.list_topics()):  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.1)
            new = [NewTopic(name, self.partitions, self.replication) for name in names]
            while any(code for _, code, *_ in (await admin.create_topics(new)).topic_errors):  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.2)
        finally:
            await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=brokers, enable_idempotence=True)
        await producer.start()
        try:
            for name, records in topics.items():
                for each in records:
                    place = {"partition": each.partition, "timestamp_ms": each.timestamp}
                    headers = list(each.headers)
                    await producer.send(prefix + name, each.value, key=each.key, headers=headers, **place)
            await producer.flush()
        finally:
            await producer.stop()

    async def named(self, topic: str, *records: Seen) -> set[tuple[str | None, str]]:
        """Verify with records more on a topic; returns which ids are named as what."""
        found = await self.rewritten({topic: [*self.topics[topic], *records]})
        return {(placed.finding.decision_id, placed.finding.status.value) for placed in found}

    async def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return await run([sys.executable, "-m", "groundwire", *arguments], env=self.environment)


async def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    options |= {"cwd": ROOT, "capture_output": True, "text": True, "check": False}
    return await asyncio.to_thread(subprocess.run, command, **options)


async def publish(broker: Any, redis_server: Any, folder: Path) -> Published:
    """Let workers decide claims and people's actions, and stop them in good order."""
    private, public = folder / "gate.toml", folder / "public.toml"
    for name, role, more in (
        ("gate-1", "seal", {}),
        ("old", "seal", {"not_after": datetime(2026, 1, 1, tzinfo=UTC)}),
        ("ann", "reviewer", {"tenants": ["default"]}),
    ):
        new_key(private, name, **{"tenants": [], "roles": [role], "asymmetric": True, **more})
    public.write_bytes(public_keys(Keys.load(private))[0])
    sealing = {"GROUNDWIRE_SEAL_KEY": str(private)}
    async with Deployment(broker, redis_server, folder, partitions=2, environment=sealing) as deployment:
        office = Office(deployment, folder)
        workers = await deployment.start_workers("claims", "reviews")
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
        assert [await worker.stop() for worker in workers] == [0, 0]
        await deployment.quiet()
        environment = deployment.settings(**deployment.policies)
        made = Published(
            environment,
            deployment.partitions,
            broker.replication,
            {name: list(deployment.seen[name]) for name in OUTPUTS},
            public,
            Keys.load(private),
            folder / "keys.toml",
            folder / "heads.jsonl",
        )
    told = await made.command("seals", "head", "--seal-keys", str(public), "--format", "json")
    assert told.returncode == 0, told.stderr
    made.heads.write_text(told.stdout)
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

    arguments = ("--seal-keys", str(published.public), "--keys", str(published.keys))
    told = await published.command("verify", "--from-topics", *arguments)
    assert told.returncode == 0, told.stdout + told.stderr
    name = published.decided().json["decision_id"]
    proof = tmp_path / "proof.json"
    told = await published.command("verify", "--decision", name, *arguments[:2])
    assert told.returncode == 0, told.stderr
    proof.write_text(told.stdout)
    script = [sys.executable, "-I", str(ROOT / "examples/check_proof.py"), str(proof), str(published.public)]
    checked = await run(script)
    assert (checked.returncode, name in checked.stdout) == (0, True), checked.stdout + checked.stderr
    other = json.loads(told.stdout)
    other["decision"] = other["decision"].replace('"approved":true', '"approved":false')
    proof.write_text(json.dumps(other))
    assert (await run(script)).returncode == 1
    told = await published.command("verify", "--decision", "0" * 36, *arguments[:2])
    assert (told.returncode, "no seal covers" in told.stderr) == (1, True)


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
        found = await published.rewritten({topic: [*published.topics[topic], forged]})
        assert true.json["decision_id"] in ids(found)


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
        assert expected or any("stands behind it" in placed.finding.detail for placed in found), found


async def test_a_seal_by_an_expired_key_a_back_dated_one_or_a_reviewers_covers_nothing(published):
    last = published.seals()[-1]
    true = SealHead(**last.json["detail"]["seal"])
    forged = with_other_value(published.decided("blocked"), lambda told: told.update(APPROVED))
    name = forged.json["decision_id"]
    outputs = (SealedOutput(0, "approved", name, sha256_hex(forged.value or b"")),)
    behind = {"before": true.sha256, "first": true.end, "end": true.end + 1}
    for key_id, at, why in (
        ("old", timedelta(), "outside"),
        ("old", timedelta(days=-700), "back-dated"),
        ("ann", timedelta(), "may not seal"),
    ):
        changes = {"key": key_id, "at": true.at + at, "root": root_of(outputs), "count": 1, **behind}
        head = SealHead(**true.model_dump() | changes)
        made = of_seal(Seal(head, dict(published.gate)[key_id].sign(head.to_bytes()), outputs))
        seal = replace(last, key=made.key, value=made.value, headers=tuple(made.headers))
        new = {"approved": forged, "audit": seal}
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
    found = await replace(published, keys=strange).verify()
    assert statuses(found) == {"unattested"}
    assert ids(found) == {
        seen.json["decision_id"]
        for name in ("approved", "blocked")
        for seen in published.topics[name]
        if seen.json["facts"]["review"]
    }
