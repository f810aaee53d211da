"""What asks the network waits on `deferred`, and nothing else waits for it (X-14, S0-76)."""

from __future__ import annotations

import pytest

from tests.stream.harness import Deployment, assert_one_truth, good, until
from tests.stream.site import Site

pytestmark = pytest.mark.stream


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
        lambda: decided() >= {claim["claim_id"] for claim in others}, 30, lambda: "the others are decided"
    )
    assert not decided() & {claim["claim_id"] for claim in slow}, (
        "they did not wait for a budget to be used up"
    )
    await deployment.settled(220, seconds=60)
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
