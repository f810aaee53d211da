"""Whatever happens to workers, every record ends as its subject's decision or as a dead letter.

Records that cannot be decided, published or survived, or wait for the network, stop nobody else.
Requirements S0-02, S0-76, X-01, X-03, X-09, X-14.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter

import pytest

from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from tests.stream.faulty import MAGIC
from tests.stream.harness import BAD, PATIENCE, Deployment, Site, assert_one_truth, good, until

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


@pytest.mark.smoke
@pytest.mark.slow
async def test_the_same_claim_again_gets_its_decision_again_and_other_content_is_a_dead_letter(
    deployment: Deployment,
):
    await deployment.start_workers("claims")
    claim = good(1, metadata={"run": 1})
    trace = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await deployment.produce([claim], headers=[("traceparent", trace), ("tracestate", b"vendor=1")])
    first = await deployment.decision("c1")
    assert (first.header("traceparent"), first.header("tracestate")) == (trace.decode(), "vendor=1")

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
async def test_two_equal_claims_that_race_under_different_keys_have_one_approval_even_if_one_waits(
    deployment: Deployment, site: Site
):
    deployment.environment |= site.settings
    workers = await deployment.start_workers("claims", "claims", "deferred")
    rounds = 60
    for number in range(rounds):
        one = good(5 * number + 5, claim_id=f"race{number}")
        # and two texts that say the same under two ids
        twins = [
            {**one, "claim_id": f"twin{number}-{side}", "user_id": "t", "source": "user"} for side in (0, 1)
        ]
        racing = enumerate((one, one, *twins))
        await asyncio.gather(*[await deployment.send(each, key=b"", partition=at) for at, each in racing])
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

    text = f"The queue of module seven holds nine items, see {site.url}/ok/twin"
    waits = {"claim_id": "waits", "user_id": "u", "content": text, "source": "user"}
    await deployment.send(waits, partition=0)
    await deployment.send({**waits, "claim_id": "other"}, partition=1)
    await deployment.send(waits, partition=2)
    await deployment.settled(3 * rounds + 2)
    await deployment.quiet()
    found = {seen.json["verdict"] for name in ("waits", "other") for seen in deployment.decided(name)}
    assert found == {"approved", "blocked"}
    assert_one_truth(deployment.decisions)


@pytest.mark.slow
async def test_only_what_a_key_vouches_for_counts_as_its_source(deployment: Deployment):
    file = deployment.folder / "keys.toml"
    new_key(file, "sync", tenants=["default"], sources=["documentation"])
    deployment.environment |= {"GROUNDWIRE_KEYS_FILE": str(file), "GROUNDWIRE_ATTESTATION": "hmac"}
    await deployment.start_workers("claims")
    signed, unsigned = (
        good(2, claim_id=name, user_id=name, content=f"The {name} page is complete")
        for name in ("signed", "unsigned")
    )
    signature = Keys.load(file).sign("sync", json.dumps(signed).encode())
    await deployment.produce([signed], headers=[("gw-attestation", signature)])
    await deployment.produce([unsigned])
    assert (await deployment.decision("signed")).json["verdict"] == "approved"
    held = (await deployment.decision("unsigned")).json
    assert held["verdict"] != "approved"
    assert "source_unattested: documentation" in held["checks_failed"]


@pytest.mark.smoke
@pytest.mark.slow
async def test_a_record_that_kills_its_worker_is_a_dead_letter_at_the_third_crash(deployment: Deployment):
    claims = [good(number, user_id="one") for number in range(60)]
    claims[30] = good(30, user_id="one", content=f"The magic word is {MAGIC}")
    await deployment.produce(claims)
    deaths = -1
    while not deployment.dead:
        deaths += 1
        assert deaths <= 3
        worker = deployment.start_worker("claims", faulty="die", GROUNDWIRE_INSTANCE_ID="fixed")
        await until(lambda w=worker: deployment.dead or not w.alive, "it dies or gives up")  # type: ignore[misc]
    assert deaths == 3
    await deployment.settled(59, 1)
    (letter,) = deployment.dead_places().values()
    assert letter.header("gw-error") == "worker_crash"
    assert MAGIC.encode() in (letter.value or b"")
    assert "c30" not in {seen.json["subject_id"] for seen in deployment.decisions}
    assert_one_truth(deployment.decisions)
    await deployment.produce([good(61, user_id="one")])
    await deployment.settled(60, 1)


@pytest.mark.slow
async def test_internal_errors_send_claims_to_review_and_a_hundred_in_a_row_pause_the_worker(
    deployment: Deployment,
):
    worker = await deployment.start_worker("claims", faulty="raise").ready()
    secret = good(5, source="user", content=f"A secret {MAGIC} text")
    await deployment.produce([secret, good(10, source="user")], partition=0)
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
@pytest.mark.slow
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


@pytest.mark.slow
async def test_metrics_count_decisions_checks_latency_and_dead_letters(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce([good(number) for number in range(50)])
    await deployment.produce([b"{", b"{}"])
    await deployment.settled(50, 2)
    await deployment.produce([good(0)])
    await until(lambda: len(deployment.decisions) == 51, "the repeat")
    decided = [seen.json for seen in deployment.first_decisions().values()]

    expected = {
        'build_info{role="claims"}': 1,
        "repeats_total": 1,
        'dead_letters_total{code="invalid_json"}': 1,
        'dead_letters_total{code="invalid_record"}': 1,
        'latency_seconds_count{input="claims"}': 50,
        "partitions": deployment.partitions,
    }
    for tier, number in Counter(decision["tier"] for decision in decided).items():
        expected[f'decisions_total{{tier="{tier}",kind="claim"}}'] = number
    for result in ("passed", "failed", "skipped"):
        names = (check.partition(":")[0] for decision in decided for check in decision[f"checks_{result}"])
        for name, number in Counter(names).items():
            expected[f'checks_total{{check="{name}",result="{result}"}}'] = number
    found = {}
    for sample in expected:
        labels = dict(re.findall(r'(\w+)="(.*?)"', sample))
        found[sample] = await worker.metric(f"groundwire_{sample.partition('{')[0]}", **labels)
    assert found == expected
    waiting = sum(decision["verdict"] == "review" for decision in decided)
    async with asyncio.timeout(PATIENCE):  # the queue is measured every second
        while await worker.metric("groundwire_review_queue_entries") != waiting:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.2)


@pytest.mark.smoke
@pytest.mark.slow
async def test_a_users_claims_are_decided_in_order_behind_one_that_waits(deployment: Deployment, site: Site):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    first = good(5, claim_id="first", user_id="ann", content=f"Ports are closed, see {site.url}/hang/1")
    await deployment.produce([first])
    await deployment.produce([good(5 * n + 10, claim_id=f"next{n}", user_id="ann") for n in range(5)])
    others = [good(n) for n in range(100, 140)]
    await deployment.produce(others)
    await until(lambda: len(deployment.first_decisions()) >= 40, "other users are decided")
    assert not deployment.decided("first"), "they did not wait for the site"
    await deployment.settled(46)
    mine = [seen for seen in deployment.decisions if seen.json["user_id"] == "ann"]
    decided = sorted(mine, key=lambda seen: seen.json["decided_at"])
    assert [seen.json["subject_id"] for seen in decided] == ["first", *(f"next{n}" for n in range(5))]
    assert decided[0].json["citations"][0]["state"] == "unknown", "the site never answers"
    deferred = deployment.seen["deferred"]
    assert len(deferred) == 6
    assert {letter.header("gw-origin-topic") for letter in deferred} == {deployment.prefix + "claims"}
    assert {seen.json["origin"]["topic"] for seen in deployment.decisions} == {deployment.prefix + "claims"}


@pytest.mark.slow
async def test_claims_that_cite_a_failing_host_wait_without_flooding_deferred_or_holding_up_others(
    deployment: Deployment, site: Site
):
    """A claim comes to `deferred`, again after its first look-up, and then three times a minute at most."""
    count = 3
    deployment.environment |= site.settings | {"GROUNDWIRE_CITATION_PATIENCE": "60"}
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
    site.is_well = True
    for n in range(count):
        assert (await deployment.decision(f"ill{n}")).json["reason_code"] == "verified_citation"
    assert_one_truth(deployment.decisions)


@pytest.mark.slow
@pytest.mark.parametrize("deployment", [{"partitions": 1}], indirect=True)
async def test_claims_that_cite_hosts_which_never_answer_hold_up_no_other_key(
    deployment: Deployment, site: Site
):
    """Another tenant's claims are behind 900 of them on the same partition, and wait for their own look-ups alone."""
    deployment.environment |= site.settings | {"GROUNDWIRE_CITATION_PATIENCE": "600"}
    await deployment.start_workers("claims")
    hostile = [
        {"claim_id": f"bad{n}", "tenant_id": "mallory", "user_id": f"u{n}", "content": text}
        for n in range(900)
        for text in [
            f"Rule {n} of the harbour, see http://127.1.{n // 200}.{n % 200 + 1}:{site.port}/hang/{n}"
        ]
    ]
    await deployment.produce(hostile)
    await until(lambda: len(deployment.seen["deferred"]) == 900, "all wait")
    for n in range(10):
        text = f"Page {n} is described in the manual, see {site.url}/ok/{n}"
        await deployment.produce([good(5 * n, claim_id=f"cites{n}", user_id=f"v{n}", content=text)])
        await deployment.produce([good(5 * n, claim_id=f"plain{n}", user_id=f"v{n}", source="user")])
    await until(lambda: len(deployment.seen["deferred"]) == 920, "theirs are behind")
    await deployment.start_workers("deferred")
    await deployment.settled(20)
    decided = sorted(deployment.decisions, key=lambda seen: str(seen.json["decided_at"]))
    order = [str(seen.json["subject_id"]) for seen in decided]
    assert all(order.index(f"cites{n}") < order.index(f"plain{n}") for n in range(10)), "of a key, in order"
    assert {seen.json["citations"][0]["state"] for seen in decided if seen.json["citations"]} == {"verified"}
    asked = sum(path.startswith("/hang") for path in site.requests)
    assert asked < 450, "they did not wait until the hosts of the others were asked"


@pytest.mark.slow
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
