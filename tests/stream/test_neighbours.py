"""A tenant beside one that sends whatever costs most: in one partition, at one worker, on one queue."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.stream.harness import Deployment, until
from tests.stream.site import Site

pytestmark = [pytest.mark.stream, pytest.mark.slow]

LARGE, SMALL = 12, 20
"""Of 820 kB and of 200 bytes; a fetch brings four of the large ones."""

GOOD = 10
"""Records of each kind that the good tenant sends behind a flood."""


def claim(tenant: str, name: str, text: str) -> dict[str, Any]:
    return {"claim_id": name, "tenant_id": tenant, "user_id": name, "content": text}


def response(tenant: str, name: str, answer: str, evidence: str) -> dict[str, Any]:
    chunk = {"chunk_id": "c", "file": "f", "content": evidence, "start_line": 1, "end_line": 1}
    return {
        "response_id": name, "tenant_id": tenant, "user_id": "u", "answer": answer, "chunks": [chunk],
    }  # fmt: skip


async def test_small_responses_wait_for_two_large_ones_of_their_partition_at_most(deployment: Deployment):
    (worker,) = await deployment.start_workers("responses")
    prose = " ".join(f"Part {n} of the gateway waits for part {n + 1}." for n in range(9_000))
    large = [response("hooli", f"large-{n}", prose, prose) for n in range(LARGE)]
    fact = "The gateway waits for 30 s."
    small = [response("acme", f"small-{n}", fact, fact) for n in range(SMALL)]
    await deployment.produce([*large, *small], topic="llm-responses", partition=0)
    await deployment.settled(LARGE + SMALL)
    found = deployment.first_decisions().values()
    done = {seen.json["subject_id"]: seen.timestamp for seen in found}
    last = max(done[record["response_id"]] for record in small)
    assert sum(done[record["response_id"]] < last for record in large) <= 2
    assert {seen.json["verdict"] for seen in found if seen.json["tenant_id"] == "acme"} == {"approved"}
    assert not deployment.dead
    assert await worker.stop() == 0


async def test_a_tenant_that_floods_everything_takes_no_place_and_pauses_no_citation_of_another(
    deployment: Deployment, site: Site, tmp_path: Path
):
    policy = tmp_path / "policy.toml"
    policy.write_text("[limits]\nreview_per_user = 30\nreview_per_tenant = 30\nreview_total = 60\n")
    deployment.environment |= site.settings | {"GROUNDWIRE_POLICY_FILE": str(policy)}
    workers = await deployment.start_workers("claims", "deferred", "responses")
    prose = " ".join(f"Part {n} of the gateway waits for part {n + 1}." for n in range(9_000))
    flood = [claim("hooli", f"flood-{n}", f"Rule {n} of the mill has {n} parts.") for n in range(100)]
    flood += [
        claim("hooli", f"ill-{n}", f"Rule {n} of the harbour, see {site.url}/ill/{n}") for n in range(30)
    ]
    flood += [
        claim("hooli", f"hang-{n}", f"Gate {n} of the harbour, see {site.url}/hang/{n}") for n in range(30)
    ]
    await deployment.produce(flood, partition=0)
    await deployment.produce(
        [response("hooli", f"large-{n}", prose, prose) for n in range(4)], topic="llm-responses", partition=0
    )
    waiting = [claim("acme", f"wait-{n}", f"Order {n} of the bakery has {n} loaves.") for n in range(GOOD)]
    citing = [
        claim("acme", f"cite-{n}", f"Oven {n} of the bakery, see {site.url}/ok/{n}") for n in range(GOOD)
    ]
    await deployment.produce([*waiting, *citing], partition=0)
    fact = "The gateway waits for 30 s."
    answers = [response("acme", f"small-{n}", fact, fact) for n in range(GOOD)]
    await deployment.produce(answers, topic="llm-responses", partition=0)

    def good() -> list[dict[str, Any]]:
        return [
            seen.json for seen in deployment.first_decisions().values() if seen.json["tenant_id"] == "acme"
        ]

    await until(lambda: len(good()) == 3 * GOOD, lambda: f"{len(good())} of the good tenant's are decided")
    reasons = Counter(decision["reason_code"] for decision in good())
    assert reasons == {"ungrounded": GOOD, "verified_citation": GOOD, "grounded": GOOD}
    places = [d["facts"]["place"] for d in good() if d["reason_code"] == "ungrounded"]
    assert places == ["free"] * GOOD
    refused = [d for d in deployment.decisions if d.json["reason_code"] == "review_queue_full"]
    assert {d.json["tenant_id"] for d in refused} == {"hooli"}
    assert await workers[0].metric("groundwire_tenant_refusals_total", limit="review") > 0
    assert not deployment.dead
