"""What becomes of a worker's state and policy stands on the audit topic."""

from __future__ import annotations

import pytest

from tests.stream.harness import Deployment, until

pytestmark = pytest.mark.stream


async def test_a_worker_that_starts_tells_by_which_policy_it_decides(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    audit = deployment.seen["audit"]
    await until(lambda: bool(audit), lambda: "the policy is audited")
    assert await worker.stop() == 0
    (event,) = [seen.json for seen in audit]
    assert (event["type"], event["tenant_id"]) == ("policy_loaded", "")
    assert len(event["detail"]["sha256"]) == 64
