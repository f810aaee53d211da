"""`groundwire erase` takes a person out of state and of what consumers hold (X-19)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from redis.asyncio import Redis

from groundwire.client import ApprovedTable, Change, Decision, changes
from groundwire.messages.decisions import Kind
from groundwire.messages.erasure import Erasure
from groundwire.messages.identity import Subject
from groundwire.messages.records import Retraction
from groundwire.replay.erase import retraction_of
from groundwire.state.codec import short
from tests.stream.harness import Deployment, Seen, until
from tests.stream.test_reviews import Office

pytestmark = [pytest.mark.stream, pytest.mark.slow]

SAID = {
    "claim_id": "m1",
    "user_id": "maria",
    "source": "user",
    "content": "I prefer tabs over spaces in all files",
}
KEPT = {"claim_id": "a1", "user_id": "ann", "source": "user", "content": "The nightly backup runs at two"}
WAITS = {"claim_id": "m2", "user_id": "maria", "content": "The service uses PostgreSQL 15 for storage"}


async def followed(deployment: Deployment) -> tuple[ApprovedTable, list[Change]]:
    table = ApprovedTable()
    where = {"brokers": deployment.broker.bootstrap, "topic_prefix": deployment.prefix}
    return table, [change async for change in changes(table, **where, until_end=True)]


def stored(table: ApprovedTable, user: str) -> list[str]:
    return [memory.subject.subject_id for memory in table.memories("default", user)]


async def keys_of(deployment: Deployment, user: str, claim_id: str) -> list[bytes]:
    """Keys of state that are named after a subject."""
    digest = short(Subject("default", user, Kind.CLAIM, claim_id).digest)
    async with Redis.from_url(deployment.redis.url) as redis:
        found: list[bytes] = await redis.keys(f"{deployment.prefix}*")
    return [key for key in found if digest.encode() in key]


async def test_an_erased_user_is_gone_from_state_and_consumers_and_a_rebuild_does_not_bring_them_back(
    deployment: Deployment,
) -> None:
    deployment.verified = False  # an erasure withdraws without a decision that could be derived
    await deployment.start_worker("claims").ready()
    await deployment.produce([SAID, KEPT, WAITS])
    await deployment.settled(3)
    table, _ = await followed(deployment)
    assert (stored(table, "maria"), stored(table, "ann")) == (["m1"], ["a1"])
    assert await keys_of(deployment, "maria", "m1")

    status, said, errors = await deployment.command(
        "erase", "--tenant", "default", "--user", "maria", "--yes"
    )
    assert status == 0, errors
    assert said.startswith("1 approvals withdrawn, tombstone written")
    assert re.search(r"^claims +2 records, gone by 20\d\d-\d\d-\d\d$", said, re.MULTILINE)
    assert re.search(r"^approved +1 records, kept for ever: delete it by hand$", said, re.MULTILINE)

    for _ in range(2):
        assert await keys_of(deployment, "maria", "m1") == await keys_of(deployment, "maria", "m2") == []
        assert await keys_of(deployment, "ann", "a1")
        table, _ = await followed(deployment)
        assert (stored(table, "maria"), stored(table, "ann")) == ([], ["a1"])
        status, _, errors = await deployment.command("rebuild", "--yes")
        assert status == 0, errors

    await deployment.produce([{**SAID, "claim_id": "m3"}])
    again = await deployment.decision("m3")
    assert again.json["verdict"] == "approved", "nothing is left that it could repeat"
    table, _ = await followed(deployment)
    assert stored(table, "maria") == ["m3"], "what is said after the tombstone is the user's again"


async def test_consumers_that_know_no_tombstone_follow_the_retractions(deployment: Deployment) -> None:
    deployment.verified = False
    await deployment.start_worker("claims").ready()
    await deployment.produce([SAID])
    approved = await deployment.decision("m1")
    status, _, errors = await deployment.command("erase", "--tenant", "default", "--user", "maria", "--yes")
    assert status == 0, errors
    await deployment.quiet()
    tombstone, retracted = deployment.seen["retractions"]
    assert Retraction.from_record(retracted).supersedes == approved.json["decision_id"]
    assert (tombstone.key, tombstone.value) == (b"default:maria", None)


async def test_what_is_decided_anew_under_an_erased_id_verifies_and_no_old_action_closes_it(
    deployment: Deployment, tmp_path: Path
) -> None:
    office = Office(deployment, tmp_path)
    await deployment.start_workers("claims", "reviews")
    deployment.environment["GROUNDWIRE_HASH_KEY"] = "k"
    pending = await office.pending(1)
    await office.act("reject", pending, reason="incorrect")
    await deployment.decision("c1", revision=2)
    user, claim = pending.json["user_id"], pending.json["evidence"]["claim"]
    status, _, errors = await deployment.command("erase", "--tenant", "default", "--user", user, "--yes")
    assert status == 0, errors

    await until(lambda: len(erasures(deployment)) == 1, lambda: "the erasure is on audit")
    (event,) = erasures(deployment)
    (tombstone,) = deployment.seen["retractions"]
    assert event.json["detail"]["tombstone"] == tombstone.header("ce_id")
    assert (event.json["actor"], event.json["detail"]["withdrawn"]) == ("operator", 0)
    assert re.fullmatch("[0-9a-f]{12}", event.json["detail"]["user"])
    assert user.encode() not in event.value
    assert claim.encode() not in event.value

    await office.pending(1)
    await until(lambda: len(first_lives(deployment)) == 2, lambda: "it is decided anew")
    status, _, errors = await deployment.command("rebuild", "--yes")
    assert status == 0, errors
    await office.pending(1)
    await until(lambda: len(first_lives(deployment)) == 3, lambda: "it is the same decision again")
    old, new, *again = first_lives(deployment)
    assert old.json["decision_id"] == new.json["decision_id"]
    assert {seen.value for seen in again} == {new.value}, "nobody has rejected what is said now"

    status, out, errors = await deployment.command("verify", "--from-topics")
    assert (status, out) == (0, ""), errors


def erasures(deployment: Deployment) -> list[Seen]:
    return [seen for seen in deployment.seen["audit"] if seen.json["detail"].get("action") == "erase"]


def first_lives(deployment: Deployment) -> list[Seen]:
    """The decisions of revision 1 in order; the same user's stand on one partition."""
    return [seen for seen in deployment.seen["review"] if seen.json["revision"] == 1]


async def test_a_retraction_that_no_audit_event_tells_of_any_more_is_kept_by_a_rebuild(
    deployment: Deployment,
) -> None:
    """Audit is kept for a year, retractions for ever."""
    deployment.verified = False
    await deployment.start_worker("claims").ready()
    await deployment.produce([SAID])
    approved = Decision.from_record(await deployment.decision("m1"))
    retraction = retraction_of(approved, Erasure("default", "maria", approved.decided_at), "maria")
    value = retraction.model_dump_json().encode()
    await (await deployment.send(value, key=b"default:maria", topic="retractions"))
    status, _, errors = await deployment.command("rebuild", "--yes")
    assert status == 0, errors
    await deployment.produce([{**SAID, "claim_id": "m3"}])
    assert (await deployment.decision("m3")).json["reason_code"] == "previously_rejected"
