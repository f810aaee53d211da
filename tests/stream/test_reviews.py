"""People's decisions on the stream: each brings its subject's one next revision, whatever happens to workers."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from pathlib import Path

import pytest

from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key, public_keys
from groundwire.messages.identity import expire_id
from tests.stream.faulty import MAGIC, STAGES
from tests.stream.harness import Deployment, Office, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.three_nodes, pytest.mark.slow]


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
    names = ("c1", "c2", "c3", "c4")
    after = [await deployment.decision(name, revision=2) for name in names]
    assert [seen.topic for seen in after] == ["approved", "approved", "blocked", "blocked"]
    approved, edited, blocked, retracted = after
    assert edited.json["evidence"]["claim"] == "Service 2 keeps two sessions"
    await until(lambda: deployment.seen["retractions"], "the retraction is published")
    (retraction,) = deployment.seen["retractions"]
    assert (retraction.json["affected"], retraction.key) == (["c5"], retracted.key)
    audit = await office.outcome(rejected)
    recorded = (audit["type"], audit["actor"], audit["decision_id"], audit["detail"]["outcome"])
    assert recorded == ("review_action", c.json["user_id"], blocked.json["decision_id"], "human_rejected")
    assert "It keeps none." not in "".join(str(seen.value) for seen in deployment.seen["audit"])

    stale = await office.outcome(await office.act("approve", c))
    recorded = (stale["type"], stale["detail"]["outcome"], stale["detail"]["revision"])
    assert recorded == ("refused_action", "stale", 2)
    for fields, code in (({"key": None}, "unattested"), ({"reviewer": "eve"}, "unauthorized")):
        refused = await office.outcome(await office.act("retract", approved, **fields))
        assert refused["detail"]["outcome"] == code
    await (await deployment.send(b'{"action": "approve"}', key=b"k", topic="review-decisions"))
    await until(lambda: deployment.dead, "the dead letter of a broken action")
    assert deployment.dead[0].header("gw-error") == "invalid_record"
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    edits = {"action": "edit", "outcome": "human_approved"}
    assert await reviews.metric("groundwire_review_actions_total", **edits) == 1
    assert [await reviews.stop(), await claims.stop()] == [0, 0]
    ends = await deployment.ends("review-decisions")
    assert await deployment.committed("reviews", "review-decisions") == ends


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
    assert (await office.outcome(action))["detail"]["outcome"] == "human_approved"
    assert (await office.outcome(other))["detail"]["outcome"] == "stale"
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    found = {(seen.json["revision"], seen.topic) for seen in deployment.decided("c1")}
    assert found == {(1, "review"), (2, "approved")}


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
            await worker.kill()
            worker = await deployment.start_worker("reviews").ready()
    for action in actions:
        await office.outcome(action)
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    by_id = {seen.header("ce_id"): seen for seen in deployment.decisions}
    assert set(Counter(seen.subject for seen in by_id.values()).values()) == {2}
    outcomes = Counter(office.audited(action)[0].json["detail"]["outcome"] for action in actions)
    assert outcomes["stale"] == outcomes["human_approved"] + outcomes["human_rejected"] == total
    assert not deployment.dead


async def test_people_s_decisions_wait_for_state_and_go_on_after_it_was_lost(
    office: Office, deployment: Deployment
):
    reviews, _ = await deployment.start_workers("reviews", "claims")
    a, b = await office.pending(1), await office.pending(2)
    deployment.redis.kill()
    try:
        action = await office.act("approve", a)
        await until(lambda: "state" in reviews.text, "the worker reports the outage")
        await deployment.quiet()
        assert not office.audited(action)
    finally:
        deployment.redis.start()
    assert (await office.outcome(action))["detail"]["outcome"] == "human_approved"
    approved = await deployment.decision("c1", revision=2)
    await deployment.flush()
    rejected = await office.act("reject", b)
    retracted = await office.act("retract", approved)
    assert (await office.outcome(rejected))["detail"]["outcome"] == "human_rejected"
    assert (await office.outcome(retracted))["detail"]["outcome"] == "retracted"
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


async def test_a_worker_with_only_the_public_key_accepts_its_reviewer_s_signature_and_no_hmac_of_that_key(
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
    assert [seen.topic for seen in deployment.decided("c2")] == ["review"]
