"""Whatever happens to workers, every record ends as its subject's decision or as a dead letter.

Requirements S0-02, X-01, X-03, X-09.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.stream.harness import Deployment, assert_one_truth, good
from tests.stream.site import Site

pytestmark = [pytest.mark.stream, pytest.mark.three_nodes]

BAD = (
    (b"{", "invalid_json"),
    (b'{"claim_id": "x", "claim_id": "y"}', "invalid_json"),
    (None, "invalid_json"),
    (b"\xff\xfe", "invalid_json"),
    (b'{"claim_id": "x", "user_id": "u", "content": "c", "colour": "red"}', "invalid_record"),
    (b'{"claim_id": "x", "user_id": "u"}', "invalid_record"),
    (b'{"claim_id": "x", "user_id": "u", "content": "c", "schema_version": "9.0"}', "unsupported_version"),
    (b'{"claim_id": "x", "user_id": "u", "content": "' + b"a" * 900_000 + b'"}', "too_large"),
)


async def produce_mixed(deployment: Deployment, total: int) -> tuple[int, dict[tuple[str, str, str], int]]:
    """Produce good and bad records in turns; return how many are good, and which bad one stands where."""
    places = {}
    waiting = []
    for number in range(total):
        if number % 25 == 7:
            kind = (number // 25) % len(BAD)
            value, _ = BAD[kind]
            headers = [("trace", b"\x00\xffbytes"), ("gw-attempts", str(kind).encode())]
            waiting.append((kind, await deployment.send(value, key=b"k%d" % number, headers=headers)))
        else:
            waiting.append((None, await deployment.send(good(number))))
    for kind, future in waiting:
        at = await future
        if kind is not None:
            places[at.topic, str(at.partition), str(at.offset)] = kind
    return sum(kind is None for kind, _ in waiting), places


@pytest.mark.smoke
async def test_every_record_ends_as_one_decision_or_as_a_dead_letter_with_its_original_bytes(
    deployment: Deployment,
):
    total = 1000
    await deployment.start_workers("claims", "claims", "deferred")
    count, bad = await produce_mixed(deployment, total)
    await deployment.settled(count, len(bad))
    await deployment.quiet()

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
async def test_a_worker_that_joins_and_leaves_under_load_loses_nothing_and_ends_with_0(
    deployment: Deployment,
):
    (first,) = await deployment.start_workers("claims")
    total = 1500
    stopped: list[int] = []

    async def come_and_go() -> None:
        second = await deployment.start_worker("claims").ready()
        await asyncio.sleep(0.5)
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
