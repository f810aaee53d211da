"""People's decisions on the stream: each brings its subject's one next revision, whatever happens to workers."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.messages.identity import expire_id
from tests.stream.faulty import MAGIC, STAGES
from tests.stream.harness import Deployment, Seen, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.three_nodes, pytest.mark.slow]

KEYS = """
[keys.console]
secret = "of the console"
tenants = ["default"]
roles = ["reviewer"]

[keys.gate]
secret = "of the gate"
tenants = ["default"]
roles = ["reviewer"]

[reviewers]
default = ["lead"]
"""


class Office:
    """A deployment whose reviewers sign what they decide."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        path = folder / "keys.toml"
        path.write_text(KEYS)
        path.chmod(0o600)
        self.keys = Keys.load(path)
        self.deployment = deployment
        deployment.environment = {
            **deployment.environment,
            "GROUNDWIRE_KEYS_FILE": str(path),
            "GROUNDWIRE_REVIEW_KEY": "gate",
        }

    async def pending(self, number: int, **fields: object) -> Seen:
        """Produce a claim that needs review, and wait for it."""
        claim = good(number, **{"content": f"Service {number} keeps {number * 7919} sessions", **fields})
        await self.deployment.produce([{**claim, "source": fields.get("source", "ai_synthesis")}])
        return await self.deployment.decision(str(claim["claim_id"]))

    async def act(self, action: str, seen: Seen, *, key: str | None = "console", **fields: Any) -> str:
        """Send what a person decided of a decision; return the action's id."""
        decision = seen.json
        review = {
            "action_id": str(uuid.uuid4()),
            "tenant_id": decision["tenant_id"],
            "user_id": decision["user_id"],
            "kind": decision["kind"],
            "subject_id": decision["subject_id"],
            "expected_revision": decision["revision"],
            "action": action,
            "reviewer": decision["user_id"],
            **fields,
        }
        value = json.dumps(review).encode()
        headers = [("gw-attestation", self.keys.sign(key, value))] if key else []
        place = f"{review['tenant_id']}:{review['user_id']}".encode()
        sent = await self.deployment.send(value, key=place, topic="review-decisions", headers=headers)
        await sent
        return str(review["action_id"])

    def audited(self, action_id: str) -> list[Seen]:
        """What the audit topic says of an action."""
        return [
            seen
            for seen in self.deployment.seen["audit"]
            if seen.json["detail"].get("action_id") == action_id
        ]

    async def outcome(self, action_id: str) -> dict[str, Any]:
        """Wait for what became of an action."""
        await until(lambda: bool(self.audited(action_id)), lambda: f"action {action_id} is audited")
        return self.audited(action_id)[0].json


@pytest.fixture
async def office(deployment: Deployment, tmp_path: Path) -> Office:
    return Office(deployment, tmp_path)


@pytest.mark.smoke
async def test_each_action_brings_the_next_revision_its_audit_event_and_what_follows(
    office: Office, deployment: Deployment
):
    reviews, claims = await deployment.start_workers("reviews", "claims")
    a, b, c = [await office.pending(number) for number in (1, 2, 3)]
    d = await office.pending(4, source="user")
    assert [seen.topic for seen in (a, b, c, d)] == ["review", "review", "review", "approved"]
    child = good(5, source="user", user_id=d.json["user_id"], derived_from=["c4"])
    await deployment.produce([child])
    assert (await deployment.decision("c5")).topic == "approved"

    await office.act("approve", a, reviewer="lead")
    await office.act("edit", b, content="Service 2 keeps two sessions")
    rejected = await office.act("reject", c, reason="incorrect", note="It keeps none.")
    await office.act("retract", d, reason="outdated")
    approved, edited, blocked, retracted = [
        await deployment.decision(name, revision=2) for name in ("c1", "c2", "c3", "c4")
    ]
    assert [seen.topic for seen in (approved, edited, blocked, retracted)] == [
        *("approved", "approved"),
        *("blocked", "blocked"),
    ]
    assert edited.json["evidence"]["claim"] == "Service 2 keeps two sessions"
    await until(lambda: bool(deployment.seen["retractions"]), lambda: "the retraction is published")
    (retraction,) = deployment.seen["retractions"]
    assert retraction.json["affected"] == ["c5"]
    assert retraction.key == retracted.key
    audit = await office.outcome(rejected)
    assert (audit["type"], audit["actor"], audit["decision_id"]) == (
        "review_action",
        c.json["user_id"],
        blocked.json["decision_id"],
    )
    assert audit["detail"]["outcome"] == "human_rejected"
    assert "It keeps none." not in "".join(str(seen.value) for seen in deployment.seen["audit"])

    stale = await office.outcome(await office.act("approve", c))
    assert (stale["type"], stale["detail"]["outcome"], stale["detail"]["revision"]) == (
        "refused_action",
        "stale",
        2,
    )
    for fields, code in (({"key": None}, "unattested"), ({"reviewer": "eve"}, "unauthorized")):
        refused = await office.outcome(await office.act("retract", approved, **fields))
        assert refused["detail"]["outcome"] == code
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert (
        await reviews.metric("groundwire_review_actions_total", action="edit", outcome="human_approved") == 1
    )
    assert [await reviews.stop(), await claims.stop()] == [0, 0]
    assert await deployment.committed("reviews", "review-decisions") == await deployment.ends(
        "review-decisions"
    )


@pytest.mark.parametrize("stage", STAGES)
async def test_a_worker_that_dies_between_two_steps_of_an_approval_leaves_exactly_one_next_revision(
    office: Office, deployment: Deployment, stage: str
):
    await deployment.start_workers("claims")
    pending = await office.pending(1)
    dying = await deployment.start_worker("reviews", faulty=stage).ready()
    action = await office.act("approve", pending, action_id=f"{MAGIC}-{uuid.uuid4()}")
    await dying.ended()
    other = await office.act("reject", pending)
    await deployment.start_workers("reviews")
    assert (await office.outcome(action, 60))["detail"]["outcome"] == "human_approved"
    assert (await office.outcome(other))["detail"]["outcome"] == "stale"
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert {(seen.json["revision"], seen.topic) for seen in deployment.decided("c1")} == {
        (1, "review"),
        (2, "approved"),
    }


async def test_reviewers_who_race_under_kill_9_leave_one_next_revision_for_each_claim(
    office: Office, deployment: Deployment
):
    total, rng = 120, random.Random(7)
    await deployment.start_workers("claims")
    worker = await deployment.start_worker("reviews").ready()
    texts = [
        good(n, source="ai_synthesis", content=f"Depot {n} holds {n * 7919} crates of kind {n}")
        for n in range(total)
    ]
    await deployment.produce(texts)
    await deployment.settled(total)
    actions: list[str] = []
    for number, seen in enumerate(deployment.first_decisions().values()):
        both = rng.sample(["approve", "reject"], 2)
        actions += [await office.act(action, seen, reviewer="lead") for action in both]
        if number in {30, 80}:
            await asyncio.sleep(rng.random() / 3)
            await worker.kill()
            worker = await deployment.start_worker("reviews").ready()
    for action in actions:
        await office.outcome(action, 60)
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    revisions = Counter(
        seen.subject for seen in {s.header("ce_id"): s for s in deployment.decisions}.values()
    )
    assert set(revisions.values()) == {2}
    outcomes = Counter(office.audited(action)[0].json["detail"]["outcome"] for action in actions)
    assert outcomes["stale"] == total
    assert outcomes["human_approved"] + outcomes["human_rejected"] == total
    assert not deployment.dead


async def test_what_people_decide_waits_for_state_and_nothing_is_published_meanwhile(
    office: Office, deployment: Deployment
):
    reviews, _ = await deployment.start_workers("reviews", "claims")
    pending = await office.pending(1)
    deployment.redis.kill()
    try:
        action = await office.act("approve", pending)
        await until(lambda: "state" in reviews.text, lambda: "the worker says that it waits")
        await asyncio.sleep(2)
        assert not office.audited(action)
    finally:
        deployment.redis.start()
    assert (await office.outcome(action))["detail"]["outcome"] == "human_approved"


async def test_after_state_is_lost_people_go_on_where_they_were(office: Office, deployment: Deployment):
    await deployment.start_workers("reviews", "claims")
    a, b = await office.pending(1), await office.pending(2)
    await office.act("approve", a)
    approved = await deployment.decision("c1", revision=2)
    redis = Redis.from_url(deployment.redis.url)
    await redis.flushall()
    await redis.aclose()
    rejected = await office.act("reject", b)
    retracted = await office.act("retract", approved)
    assert (await office.outcome(rejected, 60))["detail"]["outcome"] == "human_rejected"
    assert (await office.outcome(retracted, 60))["detail"]["outcome"] == "retracted"
    await deployment.quiet()
    assert_one_truth(deployment.decisions)


@pytest.mark.parametrize("deployment", [{"environment": {"GROUNDWIRE_REVIEW_TTL": "0.00003"}}], indirect=True)
async def test_what_nobody_reviews_in_time_is_expired_by_the_gate(office: Office, deployment: Deployment):
    await deployment.start_workers("reviews", "claims")
    pending = await office.pending(1)
    expired = await deployment.decision("c1", revision=2)
    assert (expired.topic, expired.json["reason_code"]) == ("blocked", "review_expired")
    assert (await office.outcome(expire_id(pending.json["decision_id"])))["actor"] == "groundwire"
    foreign = await office.act("expire", await office.pending(2, source="user"), reviewer="groundwire")
    assert (await office.outcome(foreign))["detail"]["outcome"] == "reserved"


async def test_a_worker_that_holds_the_public_half_alone_carries_out_what_its_reviewer_signs_and_no_hmac_of_it(
    office: Office, deployment: Deployment, tmp_path: Path
):
    private = tmp_path / "console.toml"
    public_key = new_key(private, "desk", tenants=["default"], roles=["reviewer"], asymmetric=True)
    with (tmp_path / "keys.toml").open("ab") as file:
        file.write(b"\n" + public_keys(Keys.load(private))[0])
    await deployment.start_workers("reviews", "claims")
    a, b = await office.pending(1), await office.pending(2)
    office.keys = Keys.load(private)
    approved = await office.act("approve", a, key="desk")
    shared = f'[keys.desk]\nsecret = "{public_key}"\ntenants = ["default"]\nroles = ["reviewer"]\n'
    office.keys = Keys.parse(shared.encode(), private)
    forged = await office.act("approve", b, key="desk")
    assert (await office.outcome(approved))["detail"]["outcome"] == "human_approved"
    assert (await deployment.decision("c1", revision=2)).topic == "approved"
    assert (await office.outcome(forged))["detail"]["outcome"] == "unattested"
    assert [seen.topic for seen in deployment.decisions if seen.json["subject_id"] == "c2"] == ["review"]


async def test_what_is_no_review_decision_is_a_dead_letter(office: Office, deployment: Deployment):
    await deployment.start_workers("reviews")
    await (await deployment.send(b'{"action": "approve"}', key=b"k", topic="review-decisions"))
    await until(lambda: bool(deployment.dead), lambda: "the dead letter is published")
    assert deployment.dead[0].header("gw-error") == "invalid_record"
