"""What asks the network waits on `deferred`, and nothing else waits for it (X-14, S0-76)."""

from __future__ import annotations

import asyncio

import pytest

from tests.stream.harness import Deployment, assert_one_truth, good, until
from tests.stream.site import Site

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@pytest.mark.smoke
async def test_a_users_claims_are_decided_in_order_behind_one_that_waits(deployment: Deployment, site: Site):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    first = good(5, claim_id="first", user_id="ann", content=f"Ports are closed, see {site.url}/hang/1")
    await deployment.produce([first])
    await deployment.produce([good(5 * n + 10, claim_id=f"next{n}", user_id="ann") for n in range(5)])
    await deployment.settled(6)
    order = [
        seen.json["subject_id"]
        for seen in sorted(deployment.decisions, key=lambda seen: seen.json["decided_at"])
    ]
    assert order == ["first", *(f"next{n}" for n in range(5))]
    deferred = deployment.seen["deferred"]
    assert len(deferred) == 6
    assert {letter.header("gw-origin-topic") for letter in deferred} == {deployment.prefix + "claims"}
    assert {seen.json["origin"]["topic"] for seen in deployment.decisions} == {deployment.prefix + "claims"}


async def test_a_host_that_fails_for_a_moment_sends_nobody_a_claim_and_holds_up_no_other(
    deployment: Deployment, site: Site
):
    """The claims go round on `deferred`; one of the same users that needs no network is decided meanwhile."""
    deployment.environment |= site.settings | {"GROUNDWIRE_CITATION_PATIENCE": "60"}
    await deployment.start_workers("claims", "deferred")
    ill = [
        {
            "claim_id": f"ill{n}",
            "user_id": f"u{n}",
            "content": f"Rule {n} of the harbour, see {site.url}/ill/{n}",
        }
        for n in range(3)
    ]
    await deployment.produce(ill)
    await until(lambda: len(deployment.seen["deferred"]) > 3, lambda: "they are deferred again")
    await deployment.produce(
        [good(5 * n, claim_id=f"next{n}", user_id=f"u{n}", source="user") for n in range(3)]
    )
    for n in range(3):
        await deployment.decision(f"next{n}")
    assert not any(deployment.decided(f"ill{n}") for n in range(3))
    site.is_well = True
    for n in range(3):
        assert (await deployment.decision(f"ill{n}")).json["reason_code"] == "verified_citation"
    assert_one_truth(deployment.decisions)


async def test_an_outage_with_a_backlog_does_not_flood_deferred(deployment: Deployment, site: Site):
    """A claim comes to `deferred`, again after its first look-up, and then three times a minute at most."""
    deployment.verified = False  # nothing is decided yet
    deployment.environment |= site.settings | {"GROUNDWIRE_CITATION_PATIENCE": "600"}
    await deployment.start_workers("claims", "deferred")
    ill = [
        {
            "claim_id": f"ill{n}",
            "user_id": f"u{n}",
            "content": f"Rule {n} of the harbour, see {site.url}/ill/{n}",
        }
        for n in range(600)
    ]
    await deployment.produce(ill)
    await asyncio.sleep(30)
    assert not deployment.decisions
    assert 600 <= sum((await deployment.ends("deferred")).values()) <= 600 * 4


async def test_a_site_that_never_answers_holds_up_no_other_user(deployment: Deployment, site: Site):
    deployment.environment |= site.settings
    await deployment.start_workers("claims", "deferred")
    slow = [
        good(n, claim_id=f"slow{n}", user_id=f"slow{n}", content=f"Fact {n}, see {site.url}/hang/{n}")
        for n in range(20)
    ]
    await deployment.produce(slow)
    others = [good(n) for n in range(200)]
    await deployment.produce(others)

    def decided() -> set[str]:
        return {seen.json["subject_id"] for seen in deployment.decisions}

    await until(
        lambda: decided() >= {claim["claim_id"] for claim in others}, lambda: "the others are decided"
    )
    assert not decided() & {claim["claim_id"] for claim in slow}, (
        "they did not wait for a budget to be used up"
    )
    await deployment.settled(220)
    for n in range(20):
        (citation,) = deployment.decided(f"slow{n}")[0].json["citations"]
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
