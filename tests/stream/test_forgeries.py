"""Forgeries by whoever may write to topics, but holds no key of a gate: `verify` names each of them.

Real workers publish and seal; then they are gone, and somebody rewrites topics: deletes them and fills them anew.
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
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from groundwire.config import Settings
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time, sha256_hex
from groundwire.messages.identity import event_id
from groundwire.messages.seals import SealedOutput, SealHead, root_of
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.seals import read_heads, read_sealed_hashes, read_seals
from groundwire.replay.verify import Placed, Signatures, VerifyStatus, verify_topics
from tests.stream.harness import ROOT, Deployment, Seen, good
from tests.stream.test_reviews import Office
from tests.stream.verified import policies_of

pytestmark = [pytest.mark.stream, pytest.mark.slow]

OUTPUTS = ("approved", "review", "blocked", "retractions", "audit", "regenerate")
Topics = dict[str, list[Seen]]


@dataclass
class Published:
    """What a deployment has left behind, and how it is verified."""

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

    async def rewritten(self, topics: Topics, folder: Path, *, heads: Path | None = None) -> list[Placed]:
        """Verify with other records on some topics, and put the true ones back."""
        try:
            await self.write(topics)
            return await self.verify(folder, heads=heads)
        finally:
            await self.write({name: self.topics[name] for name in topics})

    async def verify(self, folder: Path, *, heads: Path | None = None) -> list[Placed]:
        settings = self.settings
        reader = ReplayReader(settings.brokers, settings.topic_prefix, Rate(None), lambda *_: None)
        signatures = Signatures(
            partial(read_seals, settings, SealKeys(self.public)),
            read_heads(heads) if heads else (),
            Keys.load(self.keys),
        )
        await asyncio.to_thread(folder.mkdir, exist_ok=True)
        findings = verify_topics(
            reader,
            settings.topic_prefix,
            "earliest",
            policies_of(self.environment),
            folder,
            signatures=signatures,
        )
        async with aclosing(findings):
            return [placed async for placed in findings if placed.finding.status is not VerifyStatus.EQUAL]

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
                    await producer.send(
                        prefix + name,
                        each.value,
                        key=each.key,
                        partition=each.partition,
                        timestamp_ms=each.timestamp,
                        headers=list(each.headers),
                    )
            await producer.flush()
        finally:
            await producer.stop()

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "groundwire", *arguments],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


async def publish(broker: Any, redis_server: Any, folder: Path) -> Published:
    """Let workers decide claims and what people do, and end them in good order."""
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
    told = await asyncio.to_thread(
        made.command, "seals", "head", "--seal-keys", str(public), "--format", "json"
    )
    assert told.returncode == 0, told.stderr
    made.heads.write_text(told.stdout)
    return made


@pytest.fixture(scope="module")
def published(broker, redis_server, tmp_path_factory) -> Published:
    return asyncio.run(publish(broker, redis_server, tmp_path_factory.mktemp("forgeries")))


def with_other_value(seen: Seen, change: Callable[[dict[str, Any]], object]) -> Seen:
    """A record with a field changed, and headers that fit."""
    told = json.loads(seen.value or b"")
    change(told)
    return replace(seen, value=json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode())


def statuses(found: list[Placed]) -> set[str]:
    return {placed.finding.status.value for placed in found}


def signed(gate: Keys, key_id: str, seen: Seen, **changes: Any) -> Seen:
    """A seal as somebody else signs it, with another head."""
    detail = seen.json["detail"]
    outputs = changes.pop("outputs", list(map(SealedOutput.parse, detail["outputs"])))
    head = SealHead(
        **{**detail["seal"], "key": key_id, "root": root_of(outputs), "count": len(outputs), **changes}
    )
    signature = dict(gate)[key_id].sign(head.to_bytes())
    event = {
        **seen.json,
        "event_id": event_id("seal", head.sha256),
        "at": format_time(head.at),
        "detail": {
            "seal": head.model_dump(mode="json"),
            "signature": signature.hex(),
            "outputs": list(map(str, outputs)),
        },
    }
    headers = [(name, event["event_id"].encode() if name == "ce_id" else text) for name, text in seen.headers]
    return replace(seen, value=json.dumps(event).encode(), headers=tuple(headers))


@pytest.mark.smoke
async def test_what_workers_published_and_sealed_verifies(published, tmp_path):
    assert await published.verify(tmp_path, heads=published.heads) == []
    sealed = {
        text.split()[2]
        for seal in published.topics["audit"]
        if seal.json["type"] == "seal"
        for text in seal.json["detail"]["outputs"]
    }
    assert sealed >= {
        seen.header("ce_id")
        for name in ("approved", "review", "blocked", "retractions")
        for seen in published.topics[name]
    }


async def test_the_command_says_so_and_proves_one_decision_to_a_stranger(published, tmp_path):
    arguments = ("--seal-keys", str(published.public), "--keys", str(published.keys))
    told = await asyncio.to_thread(published.command, "verify", "--from-topics", *arguments)
    assert told.returncode == 0, told.stdout + told.stderr
    name = published.decided().json["decision_id"]
    proof = tmp_path / "proof.json"
    told = await asyncio.to_thread(published.command, "verify", "--decision", name, *arguments[:2])
    assert told.returncode == 0, told.stderr
    proof.write_text(told.stdout)
    script = [sys.executable, "-I", str(ROOT / "examples/check_proof.py"), str(proof), str(published.public)]
    checked = await asyncio.to_thread(subprocess.run, script, capture_output=True, text=True, check=False)
    assert (checked.returncode, name in checked.stdout) == (0, True), checked.stdout + checked.stderr
    other = json.loads(told.stdout)
    other["decision"] = other["decision"].replace('"approved":true', '"approved":false')
    proof.write_text(json.dumps(other))
    checked = await asyncio.to_thread(subprocess.run, script, capture_output=True, text=True, check=False)
    assert checked.returncode == 1
    told = await asyncio.to_thread(published.command, "verify", "--decision", "0" * 36, *arguments[:2])
    assert (told.returncode, "no seal covers" in told.stderr) == (1, True)


@pytest.mark.smoke
async def test_an_inserted_decision_is_named(published, tmp_path):
    """It follows from a record and facts: it is the decision itself, under the next revision's id."""
    blocked = published.decided("blocked")
    forged = with_other_value(
        blocked,
        lambda told: told.update(
            verdict="approved", approved=True, tier="tier_1", reason_code="trusted_source"
        ),
    )
    found = await published.rewritten({"approved": [*published.topics["approved"], forged]}, tmp_path)
    assert blocked.json["decision_id"] in {placed.finding.decision_id for placed in found}
    twin = published.decided("review")
    copied = with_other_value(twin, lambda told: told.update(decided_at="2026-11-24T00:00:00Z"))
    copied = replace(
        copied, headers=tuple((n, b"2026-11-24T00:00:00Z" if n == "ce_time" else v) for n, v in twin.headers)
    )
    found = await published.rewritten({"review": [*published.topics["review"], copied]}, tmp_path / "b")
    assert twin.json["decision_id"] in {placed.finding.decision_id for placed in found}


async def test_a_changed_decision_is_named_as_such_and_the_true_one_as_gone(published, tmp_path):
    true = published.decided()
    changed = with_other_value(true, lambda told: told["evidence"]["metadata"].update(by="somebody"))
    records = [changed if seen is true else seen for seen in published.topics["approved"]]
    found = await published.rewritten({"approved": records}, tmp_path)
    named = {(placed.finding.decision_id, placed.finding.status.value) for placed in found}
    assert (true.json["decision_id"], "removed") in named
    assert {"differs", "unsealed"} & statuses(found)


@pytest.mark.parametrize("topic", ["approved", "blocked", "retractions"])
async def test_a_removed_record_is_named(published, tmp_path, topic):
    gone = published.topics[topic][0]
    found = await published.rewritten({topic: published.topics[topic][1:]}, tmp_path)
    assert gone.header("ce_id") in {
        placed.finding.decision_id for placed in found if placed.finding.status is VerifyStatus.REMOVED
    }


async def test_seals_in_another_order_are_named(published, tmp_path):
    first, second, *_ = published.seals()
    swapped = {id(first): second, id(second): first}
    records = [swapped.get(id(seen), seen) for seen in published.topics["audit"]]
    found = await published.rewritten({"audit": records}, tmp_path)
    assert any("stands behind it" in placed.finding.detail for placed in found), found


async def test_an_old_seal_in_the_place_of_a_later_one_covers_nothing(published, tmp_path):
    first, *_, last = published.seals()
    records = [first if seen is last else seen for seen in published.topics["audit"]]
    found = await published.rewritten({"audit": records}, tmp_path)
    assert {"unsealed", "broken_chain"} <= statuses(found)


async def test_another_tenants_approval_is_no_ones(published, tmp_path):
    """Another tenant's decision, under its seal, in the name of one's own."""
    theirs = published.decided()
    ours = with_other_value(theirs, lambda told: told.update(tenant_id="globex"))
    ours = replace(ours, key=b"globex:" + (theirs.key or b"").partition(b":")[2])
    found = await published.rewritten({"approved": [*published.topics["approved"], ours]}, tmp_path)
    assert theirs.json["decision_id"] in {placed.finding.decision_id for placed in found}


@pytest.mark.parametrize(
    ("key_id", "at", "why"),
    [
        ("old", timedelta(), "outside"),
        ("old", timedelta(days=-700), "back-dated"),
        ("ann", timedelta(), "may not seal"),
    ],
)
async def test_a_seal_by_an_expired_key_a_back_dated_one_or_a_reviewers_covers_nothing(
    published, tmp_path, key_id, at, why
):
    last = published.seals()[-1]
    head = SealHead(**last.json["detail"]["seal"])
    topics, name = forged_under_a_seal(published, key_id, at=head.at + at, before=head.sha256)
    found = await published.rewritten(topics, tmp_path)
    assert any(why in p.finding.detail for p in found if p.finding.status is VerifyStatus.BAD_SEAL), found
    assert name in {
        placed.finding.decision_id for placed in found if placed.finding.status is not VerifyStatus.BAD_SEAL
    }


@pytest.mark.parametrize("begins", [True, False], ids=["a start of a chain", "a continued chain"])
async def test_a_stolen_key_that_has_ended_seals_nothing_on_a_partition_of_audit_without_seals(
    published, tmp_path, begins
):
    last = published.seals()[-1]
    head = SealHead(**last.json["detail"]["seal"])
    topics, name = forged_under_a_seal(
        published,
        "old",
        at=head.at - timedelta(days=700),
        before=None if begins else head.sha256,
        audit=1 - last.partition,
    )
    assert {seen.partition for seen in published.topics["audit"] if seen.json["type"] == "seal"} == {
        last.partition
    }
    try:
        await published.write(topics)
        found = await published.verify(tmp_path)
        covered = await read_sealed_hashes(published.settings, SealKeys(published.public))
    finally:
        await published.write({topic: published.topics[topic] for topic in topics})
    assert any("stands elsewhere" in p.finding.detail for p in found), found
    assert name in {
        placed.finding.decision_id for placed in found if placed.finding.status is not VerifyStatus.BAD_SEAL
    }
    true, forged = published.topics["approved"][0], topics["approved"][-1]
    assert [bytes.fromhex(sha256_hex(seen.value or b"")) in covered for seen in (true, forged)] == [
        True,
        False,
    ], "what a rebuild that requires seals takes in"


def forged_under_a_seal(
    published: Published, key_id: str, *, at: datetime, before: str | None, audit: int | None = None
) -> tuple[Topics, str]:
    """Topics with a forged approval behind the last, under a seal behind the last seal, and the approval's id."""
    last = published.seals()[-1]
    forged = with_other_value(
        published.decided("blocked"),
        lambda told: told.update(verdict="approved", approved=True, tier="tier_1"),
    )
    name = forged.json["decision_id"]
    outputs = [SealedOutput(0, "approved", name, sha256_hex(forged.value or b""))]
    end = last.json["detail"]["seal"]["end"]
    seal = signed(published.gate, key_id, last, outputs=outputs, at=at, before=before, first=end, end=end + 1)
    if audit is not None:
        seal = replace(seal, partition=audit)
    topics = {
        "approved": [*published.topics["approved"], forged],
        "audit": [*published.topics["audit"], seal],
    }
    return topics, name


async def test_an_unknown_key_and_a_changed_seal_are_named(published, tmp_path):
    last = published.seals()[-1]
    changed = with_other_value(last, lambda told: told["detail"]["outputs"].pop())
    stranger = with_other_value(last, lambda told: told["detail"]["seal"].update(key="nobody"))
    for number, (seal, why) in enumerate(
        [(changed, "not those that were signed"), (stranger, "unknown key")]
    ):
        records = [seal if seen is last else seen for seen in published.topics["audit"]]
        found = await published.rewritten({"audit": records}, tmp_path / str(number))
        assert any(why in placed.finding.detail for placed in found), found
        assert {"bad_seal", "broken_chain"} <= statuses(found)


async def test_a_removed_audit_event_is_named(published, tmp_path):
    gone = next(seen for seen in published.topics["audit"] if seen.json["type"] == "review_action")
    records = [seen for seen in published.topics["audit"] if seen is not gone]
    found = await published.rewritten({"audit": records}, tmp_path)
    assert (gone.json["event_id"], VerifyStatus.REMOVED) in {
        (placed.finding.decision_id, placed.finding.status) for placed in found
    }


async def test_an_invented_refusal_of_an_action_is_named(published, tmp_path):
    true = next(seen for seen in published.topics["audit"] if seen.json["type"] == "review_action")
    invented = with_other_value(
        true,
        lambda told: told.update(
            type="refused_action", event_id=event_id("refused_action", told["detail"]["action_id"])
        ),
    )
    invented = replace(
        invented,
        headers=tuple(
            (n, invented.json["event_id"].encode() if n == "ce_id" else v) for n, v in true.headers
        ),
    )
    found = await published.rewritten({"audit": [*published.topics["audit"], invented]}, tmp_path)
    assert (invented.json["event_id"], VerifyStatus.UNSEALED) in {
        (placed.finding.decision_id, placed.finding.status) for placed in found
    }


async def test_a_partition_that_is_cut_off_is_named(published, tmp_path):
    """All decisions of an input partition are gone, and all seals of it."""
    head = published.seals()[-1].json["detail"]["seal"]
    own = (head["topic"], head["partition"])

    def is_of_it(seen: Seen) -> bool:
        told = seen.json
        if told.get("type") == "seal":
            return (told["detail"]["seal"]["topic"], told["detail"]["seal"]["partition"]) == own
        origin = told.get("origin") or {}
        return (origin.get("topic"), origin.get("partition")) == own

    topics = {
        name: [seen for seen in published.topics[name] if not is_of_it(seen)]
        for name in ("approved", "review", "blocked", "audit")
    }
    found = await published.rewritten(topics, tmp_path, heads=published.heads)
    details = [placed.finding.detail for placed in found if placed.where == "/".join(map(str, own))]
    assert any("anchored" in detail for detail in details), found
    assert any("committed last" in detail for detail in details), "the group's own offsets tell, too"


async def test_a_person_who_never_signed_is_named(published, tmp_path):
    """The keys of the day of verification are another key under the same name: the signature holds for none."""
    strange = tmp_path / "strange.toml"
    new_key(strange, "console", tenants=["default"], roles=["reviewer"])
    other = replace(published, keys=strange)
    found = await other.verify(tmp_path)
    assert statuses(found) == {"unattested"}
    acted = {
        seen.json["decision_id"]
        for name in ("approved", "blocked")
        for seen in published.topics[name]
        if seen.json["facts"]["review"]
    }
    assert {placed.finding.decision_id for placed in found} == acted
