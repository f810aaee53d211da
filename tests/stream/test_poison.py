"""Records that cannot be decided, published or survived, or wait for the network, stop nobody else (X-14, S0-76)."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.stream.faulty import MAGIC
from tests.stream.harness import Deployment, assert_one_truth, good, until
from tests.stream.site import Site

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@pytest.mark.smoke
async def test_a_record_that_kills_its_worker_is_a_dead_letter_at_the_third_crash(deployment: Deployment):
    claims = [good(number, user_id="one") for number in range(60)]
    claims[30] = good(30, user_id="one", content=f"The magic word is {MAGIC}")
    await deployment.produce(claims)
    deaths = 0
    worker = deployment.start_worker("claims", faulty="die", GROUNDWIRE_INSTANCE_ID="fixed")
    while not deployment.dead:
        await until(lambda w=worker: deployment.dead or not w.alive, "it dies or gives up")  # type: ignore[misc]
        if not worker.alive:
            deaths += 1
            assert deaths <= 3
            worker = deployment.start_worker("claims", faulty="die", GROUNDWIRE_INSTANCE_ID="fixed")
    assert deaths == 3
    await deployment.settled(59, 1)
    (letter,) = deployment.dead_places().values()
    assert letter.header("gw-error") == "worker_crash"
    assert MAGIC.encode() in (letter.value or b"")
    assert "c30" not in {seen.json["subject_id"] for seen in deployment.decisions}
    assert_one_truth(deployment.decisions)
    await deployment.produce([good(61, user_id="one")])
    await deployment.settled(60, 1)


async def test_internal_errors_send_claims_to_review_and_a_hundred_in_a_row_pause_the_worker(
    deployment: Deployment,
):
    worker = await deployment.start_worker("claims", faulty="raise").ready()
    await deployment.produce(
        [good(5, source="user", content=f"A secret {MAGIC} text"), good(10, source="user")], partition=0
    )
    held = (await deployment.decision("c5")).json
    assert (held["verdict"], held["reason_code"]) == ("review", "internal_error")
    assert (await deployment.decision("c10")).topic == "approved"
    assert "claim.unreadable" in worker.text
    assert (await worker.get("/ready"))[0] == 200
    secrets = [
        good(n, claim_id=f"m{n}", user_id=f"u{n % 20}", content=f"A secret {MAGIC} {n}") for n in range(101)
    ]
    await deployment.produce(secrets[:100], partition=0)
    await deployment.settled(102)
    await deployment.produce(secrets[100:], partition=0)
    await worker.says("worker.paused")
    status, text = await worker.get("/ready")
    assert (status, "internal_errors" in text) == (503, True)
    assert (await worker.get("/live"))[0] == 200
    assert await worker.metric("groundwire_paused", dependency="internal_errors") == 1
    await deployment.produce([b"no claim"] * 50 + [good(101)], partition=0)
    await deployment.decision("c101")
    await deployment.settled(104, 50)
    await worker.says("resumed.*internal_errors")
    assert worker.text.count("worker.paused") == 1
    assert MAGIC not in worker.text, "not even the variables of a traceback tell a claim's text"


@pytest.mark.parametrize("source", ["claims", "deferred"])
async def test_a_record_whose_result_the_broker_cannot_take_is_a_dead_letter(
    deployment: Deployment, source: str
):
    deployment.verified = source == "claims"  # records put on `deferred` by hand are on no input topic
    await deployment.start_workers("claims", "deferred")
    # its decision passes the header on, and does not fit beside it; the second hardly fits on its own topic
    huge = b"0" * 1_046_500
    huger = b"0" * 1_047_800
    await deployment.produce([good(1, user_id="one")], headers=[("traceparent", huge)], topic=source)
    await deployment.produce([b"{"], key=b"default:one", headers=[("other", huger)], topic=source)
    await deployment.produce([good(2, user_id="one")], topic=source)
    await deployment.settled(1, 2)
    await deployment.decision("c2")
    assert [letter.header("gw-error") for letter in deployment.dead] == ["unpublishable", "invalid_json"]
    assert {letter.value for letter in deployment.dead} == {json.dumps(good(1, user_id="one")).encode(), b"{"}


@pytest.mark.parametrize("role", ["claims", "responses"])
async def test_broken_records_of_many_keys_become_letters_while_all_others_are_decided(
    deployment: Deployment, role: str
):
    topic = {"claims": "claims", "responses": "llm-responses"}[role]
    broken = [
        *(b'{"claim_id": "x"', b"[1]", b'{"user_id": "ann"}', b"\xff", b"null"),
        b'{"claim_id": "1", "response_id": "1", "user_id": "ann", "content": "x", "answer": "x", "x": 1}',
        b'{"claim_id": "1", "response_id": "1", "user_id": "ann", "schema_version": "9"}',
    ]
    sent: list[dict[str, object] | bytes] = []
    for number in range(150):
        one = good(number)
        if role == "responses":
            one = {"response_id": one["claim_id"], "user_id": one["user_id"], "answer": one["content"]}
        sent += [*broken * 2, one]  # 2,100 of them
    sent += [*broken * 20, b'"' + b"x" * 900_000 + b'"']
    places = [
        await deployment.send(one, topic=topic, key=b"default:u%d" % (n % 50)) for n, one in enumerate(sent)
    ]
    await asyncio.gather(*places)
    worker = await deployment.start_worker(role).ready()
    await deployment.settled(150, len(sent) - 150)
    assert "paused" not in worker.text
    assert await worker.metric("groundwire_paused") == 0
    codes = {letter.header("gw-error") for letter in deployment.dead}
    assert codes == {"invalid_json", "invalid_record", "unsupported_version", "too_large"}


async def test_metrics_count_decisions_checks_latency_and_dead_letters(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce([good(number) for number in range(50)])
    await deployment.produce([b"{", b"{}"])
    await deployment.settled(50, 2)
    await deployment.produce([good(0)])
    await until(lambda: len(deployment.decisions) == 51, "the repeat")
    decided = [seen.json for seen in deployment.first_decisions().values()]

    async def value(name: str, **labels: str) -> float:
        return await worker.metric(f"groundwire_{name}", **labels)

    assert await value("build_info", role="claims") == 1
    for tier in ("tier_1", "tier_2", "tier_3"):
        expected = sum(decision["tier"] == tier for decision in decided)
        assert await value("decisions_total", tier=tier, kind="claim") == expected
    assert await value("repeats_total") == 1
    assert await value("dead_letters_total", code="invalid_json") == 1
    assert await value("dead_letters_total", code="invalid_record") == 1
    for result in ("passed", "failed", "skipped"):
        names = [check.partition(":")[0] for decision in decided for check in decision[f"checks_{result}"]]
        for name in set(names):
            assert await value("checks_total", check=name, result=result) == names.count(name)
    assert await value("latency_seconds_count", input="claims") == 50
    assert await value("partitions") == deployment.partitions
    waiting = sum(decision["verdict"] == "review" for decision in decided)
    async with asyncio.timeout(60):  # the queue is measured every second
        while await value("review_queue_entries") != waiting:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.2)
    _, page = await worker.get("/metrics")
    assert re.search(r"^groundwire_event_loop_lag_seconds ", page, re.MULTILINE)


@pytest.mark.smoke
async def test_a_users_claims_are_decided_in_order_behind_one_that_waits(deployment: Deployment, site: Site):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    first = good(5, claim_id="first", user_id="ann", content=f"Ports are closed, see {site.url}/hang/1")
    await deployment.produce([first])
    await deployment.produce([good(5 * n + 10, claim_id=f"next{n}", user_id="ann") for n in range(5)])
    await deployment.settled(6)
    decided = sorted(deployment.decisions, key=lambda seen: seen.json["decided_at"])
    assert [seen.json["subject_id"] for seen in decided] == ["first", *(f"next{n}" for n in range(5))]
    deferred = deployment.seen["deferred"]
    assert len(deferred) == 6
    assert {letter.header("gw-origin-topic") for letter in deferred} == {deployment.prefix + "claims"}
    assert {seen.json["origin"]["topic"] for seen in deployment.decisions} == {deployment.prefix + "claims"}


@pytest.mark.parametrize("patience", ["60", "600"])
async def test_claims_that_cite_a_failing_host_wait_without_flooding_deferred_or_holding_up_others(
    deployment: Deployment, site: Site, patience: str
):
    """A claim comes to `deferred`, again after its first look-up, and then three times a minute at most."""
    count = {"60": 3, "600": 600}[patience]
    deployment.environment |= site.settings | {"GROUNDWIRE_CITATION_PATIENCE": patience}
    await deployment.start_workers("claims", "deferred")
    content = f"Rule {{n}} of the harbour, see {site.url}/ill/{{n}}"
    ill = [{"claim_id": f"ill{n}", "user_id": f"u{n}", "content": content.format(n=n)} for n in range(count)]
    await deployment.produce(ill)
    await until(lambda: len(deployment.seen["deferred"]) >= 2 * count, "claims are deferred again")
    others = [good(5 * n, claim_id=f"next{n}", user_id=f"u{n}", source="user") for n in range(3)]
    await deployment.produce(others)
    for n in range(3):
        await deployment.decision(f"next{n}")
    assert not any(deployment.decided(f"ill{n}") for n in range(count))
    assert count <= sum((await deployment.ends("deferred")).values()) <= count * 4
    if count == 3:
        site.is_well = True
        for n in range(count):
            assert (await deployment.decision(f"ill{n}")).json["reason_code"] == "verified_citation"
    else:
        deployment.verified = False  # they are not decided yet
    assert_one_truth(deployment.decisions)


async def test_a_site_that_never_answers_holds_up_no_other_user(deployment: Deployment, site: Site):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    slow = [
        good(n, claim_id=f"slow{n}", user_id=f"slow{n}", content=f"Fact {n}, see {site.url}/hang/{n}")
        for n in range(20)
    ]
    await deployment.produce(slow)
    await deployment.produce([good(n) for n in range(200)])
    names, others = {f"slow{n}" for n in range(20)}, {f"c{n}" for n in range(200)}

    def decided() -> set[str]:
        return {seen.json["subject_id"] for seen in deployment.decisions}

    await until(lambda: decided() >= others, "the others are decided")
    assert not decided() & names, "they did not wait until a budget was used up"
    await deployment.settled(220)
    for name in names:
        (citation,) = deployment.decided(name)[0].json["citations"]
        assert citation["state"] == "unknown"
    assert_one_truth(deployment.decisions)


async def test_a_citation_that_was_looked_up_is_not_asked_for_again(deployment: Deployment, site: Site):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    for page, state in (("/ok/page", "verified"), ("/gone/page", "not_found")):
        for number in range(2):
            name = f"{state}{number}"
            text = f"The {name} rule is described on page {number}, see {site.url}{page}"
            await deployment.produce([{"claim_id": name, "user_id": name, "content": text}])
            (citation,) = (await deployment.decision(name)).json["citations"]
            assert citation["state"] == state
            if number == 0:
                asked = site.requests[page]
                assert asked
    assert site.requests["/gone/page"] == asked
    assert len(deployment.seen["deferred"]) == 2, "the second of each was decided at once"
