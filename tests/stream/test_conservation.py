"""Whatever happens to workers, every record ends as its subject's decision or as a dead letter.

Requirements S0-02, X-01, X-03, X-09.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from groundwire.keys.attestation import Keys
from tests.stream.harness import BAD, Deployment, assert_one_truth, good, until
from tests.stream.site import Site

pytestmark = pytest.mark.stream


@pytest.mark.smoke
@pytest.mark.three_nodes
async def test_every_record_ends_as_one_decision_or_as_a_dead_letter_with_its_original_bytes(
    deployment: Deployment,
):
    await deployment.start_workers("claims", "claims", "deferred")
    waiting = []
    for number in range(1000):
        if number % 25 == 7:
            kind = (number // 25) % len(BAD)
            headers = [("trace", b"\x00\xffbytes"), ("gw-attempts", str(kind).encode())]
            sent = await deployment.send(BAD[kind][0], key=b"k%d" % number, headers=headers)
            waiting.append((kind, sent))
        else:
            waiting.append((None, await deployment.send(good(number))))
    placed = [(kind, await sent) for kind, sent in waiting]
    count = sum(kind is None for kind, _ in placed)
    bad = {(at.topic, str(at.partition), str(at.offset)): kind for kind, at in placed if kind is not None}
    await deployment.settled(count, len(bad))
    await deployment.quiet()

    audit = deployment.seen["audit"]
    loaded = [seen.json for seen in audit if seen.json["type"] == "policy_loaded"]
    assert {(one["tenant_id"], len(one["detail"]["sha256"])) for one in loaded} == {("", 64)}

    decided = deployment.first_decisions()
    assert len(decided) == count
    assert_one_truth(deployment.decisions)
    assert all(seen.json["revision"] == 1 for seen in deployment.decisions)
    for seen in deployment.decisions:
        assert seen.key == f"default:{seen.json['user_id']}".encode()
        assert seen.topic == seen.json["verdict"]
        headers = {key: value.decode() for key, value in seen.headers}
        assert headers["ce_type"] == "groundwire.decision.v1"
        assert headers["ce_specversion"] == "1.0"
        assert headers["ce_subject"] == seen.json["subject_id"]
        assert headers["ce_time"] == seen.json["decided_at"]
        assert headers["content-type"] == "application/json"

    dead = deployment.dead_places()
    assert set(dead) == set(bad)
    for place, kind in bad.items():
        value, code = BAD[kind]
        letter = dead[place]
        assert letter.value == value
        assert letter.key is not None
        assert letter.key.startswith(b"k")
        assert ("trace", b"\x00\xffbytes") in letter.headers
        assert letter.header("gw-error") == code
        assert letter.header("gw-attempts") == str(kind + 1)
        assert letter.header("__connect.errors.exception.message")
        assert letter.header("__connect.errors.exception.class.name")
    assert {
        seen.json["detail"]["code"] for seen in deployment.seen["audit"] if seen.json["type"] == "dead_letter"
    }


@pytest.mark.smoke
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["claims", "deferred"])
@pytest.mark.three_nodes
async def test_a_worker_killed_in_the_middle_loses_nothing_and_repeats_only_byte_for_byte(
    deployment: Deployment, site: Site, victim: str
):
    deployment.environment |= {**site.settings, "GROUNDWIRE_SESSION_TIMEOUT": "3"}
    roles = ("claims", "deferred")
    workers = dict(zip(roles, await deployment.start_workers(*roles), strict=True))
    total = 1000

    def claim(number: int) -> dict[str, object]:
        plain = good(number)
        cited = f"{plain['content']}, see {site.url}/ok/{number % 10}"
        return {**plain, "content": cited} if victim == "deferred" else plain

    async def feed() -> None:
        for first in range(0, total, 50):
            await deployment.produce([claim(number) for number in range(first, first + 50)])

    feeding = asyncio.create_task(feed())
    await deployment.settled(total // 4)
    await workers[victim].kill()
    deployment.start_worker(victim)
    await feeding
    await deployment.settled(total)
    await deployment.quiet()
    assert len(deployment.first_decisions()) == total
    assert not deployment.dead
    assert_one_truth(deployment.decisions)
    if victim == "deferred":
        assert deployment.seen["deferred"]


@pytest.mark.slow
@pytest.mark.three_nodes
async def test_a_worker_that_joins_and_leaves_under_load_loses_nothing_and_ends_with_0(
    deployment: Deployment,
):
    (first,) = await deployment.start_workers("claims")
    total = 1500
    stopped: list[int] = []

    async def come_and_go() -> None:
        second = await deployment.start_worker("claims").ready()
        known = len(deployment.decisions)
        await until(lambda: len(deployment.decisions) > known + 100, "both decide")
        stopped.append(await second.stop())

    going = asyncio.create_task(come_and_go())
    number = 0
    while not going.done() or number < total:
        if number - len(deployment.decisions) < 1000:  # a load, not a flood: what one worker can follow
            await deployment.produce([good(n) for n in range(number, number + 50)])
            number += 50
        await asyncio.sleep(0.02 if number < total else 0.3)
    await going
    await deployment.settled(number)
    assert stopped == [0]
    assert await first.stop() == 0
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert len(deployment.decisions) == number, "a graceful rebalance repeats nothing"
    assert await deployment.committed("claims") == await deployment.ends("claims")


@pytest.mark.smoke
@pytest.mark.slow
async def test_the_same_claim_again_gets_its_decision_again_and_other_content_is_a_dead_letter(
    deployment: Deployment,
):
    await deployment.start_workers("claims")
    claim = good(1, metadata={"run": 1})
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await deployment.produce([claim], headers=[("traceparent", trace)])
    first = await deployment.decision("c1")
    assert first.header("traceparent") == trace.decode()

    again = {**claim, "metadata": {"run": 2}, "captured_at": "2020-01-01T00:00:00Z"}
    await deployment.produce([again, {**claim, "content": "Something else altogether"}, good(2)])
    await deployment.decision("c2")
    await deployment.settled(2, 1)
    await deployment.quiet()

    repeats = deployment.decided("c1")
    assert len(repeats) == 2
    assert_one_truth(repeats)
    assert repeats[1].header("traceparent") is None
    (letter,) = deployment.dead
    assert letter.header("gw-error") == "claim_id_conflict"
    assert json.loads(letter.value or b"")["content"] == "Something else altogether"


@pytest.mark.smoke
@pytest.mark.slow
async def test_two_equal_claims_that_race_under_different_keys_have_one_approval(deployment: Deployment):
    workers = await deployment.start_workers("claims", "claims")
    rounds = 60
    for number in range(rounds):
        pair = [
            await deployment.send(
                good(5 * number + 5, claim_id=f"race{number}"), key=b"", partition=partition
            )
            for partition in (0, 1)
        ]
        # and two texts that say the same under two ids
        twins = [
            await deployment.send(
                good(5 * number + 5, claim_id=f"twin{number}-{side}", user_id="t", source="user"),
                key=b"",
                partition=side + 2,
            )
            for side in (0, 1)
        ]
        await asyncio.gather(*pair, *twins)
    await deployment.settled(3 * rounds)
    await deployment.quiet()

    assert_one_truth(deployment.decisions)
    for number in range(rounds):
        assert len({seen.header("ce_id") for seen in deployment.decided(f"race{number}")}) == 1
        twins_seen = [deployment.decided(f"twin{number}-{side}")[0].json for side in (0, 1)]
        if not any("maybe" in str(twin["hedges"]).lower() for twin in twins_seen):
            assert sorted(twin["verdict"] for twin in twins_seen) == ["approved", "blocked"]
            assert {twin["reason_code"] for twin in twins_seen} >= {"duplicate"}
    assert sum([await worker.metric("groundwire_miskeyed_total") for worker in workers]) >= 3 * rounds


@pytest.mark.slow
async def test_a_claim_that_waits_and_its_twin_that_does_not_have_one_approval(
    deployment: Deployment, site: Site
):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    text = f"The queue of module seven holds nine items, see {site.url}/ok/twin"
    waits = {"claim_id": "waits", "user_id": "u", "content": text, "source": "user"}
    await asyncio.gather(
        await deployment.send(waits, partition=0),
        await deployment.send({**waits, "claim_id": "other"}, partition=1),
        await deployment.send(waits, partition=2),
    )
    await deployment.settled(2)
    await deployment.quiet()
    verdicts = {seen.json["subject_id"]: seen.json["verdict"] for seen in deployment.decisions}
    assert sorted(verdicts.values()) == ["approved", "blocked"]
    assert_one_truth(deployment.decisions)


@pytest.mark.slow
async def test_only_what_a_key_vouches_for_counts_as_its_source(deployment: Deployment):
    file = deployment.folder / "keys.toml"
    file.write_text(
        "[keys.sync]\n"
        f'secret = "{"s" * 40}"\ntenants = ["default"]\nsources = ["documentation"]\nroles = []\n'
    )
    deployment.environment |= {"GROUNDWIRE_KEYS_FILE": str(file), "GROUNDWIRE_ATTESTATION": "hmac"}
    await deployment.start_workers("claims")
    signed, unsigned = (
        {
            "claim_id": name,
            "user_id": name,
            "content": f"The {name} page is complete",
            "source": "documentation",
        }
        for name in ("signed", "unsigned")
    )
    signature = Keys.load(file).sign("sync", json.dumps(signed).encode())
    await deployment.produce([signed], headers=[("gw-attestation", signature)])
    await deployment.produce([unsigned])
    assert (await deployment.decision("signed")).json["verdict"] == "approved"
    held = (await deployment.decision("unsigned")).json
    assert held["verdict"] != "approved"
    assert "source_unattested: documentation" in held["checks_failed"]
