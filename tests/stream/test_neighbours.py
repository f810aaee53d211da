"""A tenant beside one that sends whatever costs most: in one partition, at one worker, on one queue."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream.harness import Deployment

pytestmark = [pytest.mark.stream, pytest.mark.slow]

LARGE, SMALL = 12, 20
"""Of 820 kB and of 200 bytes; a fetch brings four of the large ones."""


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
    await deployment.settled(LARGE + SMALL, seconds=120)
    found = deployment.first_decisions().values()
    done = {seen.json["subject_id"]: seen.timestamp for seen in found}
    last = max(done[record["response_id"]] for record in small)
    assert sum(done[record["response_id"]] < last for record in large) <= 2
    assert {seen.json["verdict"] for seen in found if seen.json["tenant_id"] == "acme"} == {"approved"}
    assert not deployment.dead
    assert await worker.stop() == 0
