"""State is lost under load, between people's decisions: what follows is decided as without the loss."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from groundwire.replay.reading import INPUTS, OUTPUTS, Rate, ReplayReader
from groundwire.replay.report import Nowhere, Summary
from groundwire.replay.run import Replayer, Simulation, Task
from groundwire.replay.store import Job, ReplayOrder
from tests.stream.harness import FULL, Deployment, assert_one_truth, good
from tests.stream.test_outages import flush
from tests.stream.test_reviews import Office
from tests.stream.verified import policies_of

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 600)]

FOLLOWING = 10_000 if FULL else 800
"""Claims that come after the loss."""
USERS = 8
"""People whose claims come before it, each with one of every kind."""
KINDS = ("approved", "pending", "rejected", "retracted", "edited", "confirmed")


def before() -> list[dict[str, Any]]:
    """Claims that people act on, or that stay as they are: six a user."""
    return [
        {
            "claim_id": f"{kind}{user}",
            "user_id": f"u{user}",
            "content": said(user, kind),
            "source": "user" if kind in {"approved", "retracted"} else "ai_synthesis",
        }
        for user in range(USERS)
        for kind in KINDS
    ]


def said(user: int, kind: str) -> str:
    rng = random.Random(f"{user}{kind}")
    return f"Service {kind} of {user} keeps {' '.join(f'w{rng.randrange(10**6)}' for _ in range(26))} for 30 days"


def following(count: int) -> Iterator[dict[str, Any]]:
    """Yield claims that say again what was decided: word for word, nearly, with another number, or resting on it."""
    for number in range(count):
        rng = random.Random(number)
        user, kind = rng.randrange(USERS), rng.choice(KINDS)
        text = said(user, kind) if kind != "edited" or rng.random() < 0.5 else said(user, "changed")
        fields: dict[str, Any] = {"source": rng.choice(["user", "ai_synthesis", "conversation"])}
        match number % 5:
            case 0:
                text = text.replace("30 days", f"{rng.randrange(31, 34)} days")
            case 1:
                text = text.replace("keeps", rng.choice(["holds", "stores"]))
            case 2:
                text = f"Module {number} is {' '.join(f'v{rng.randrange(10**6)}' for _ in range(8))}"
                fields["derived_from"] = [f"{kind}{user}"]
            case 3:
                fields["memory_type"] = rng.choice(["fact", "preference", "decision"])
        yield {"claim_id": f"f{number}", "user_id": f"u{user}", "content": text, **fields}


async def undisturbed(deployment: Deployment, folder: Path) -> Summary:
    """Have the library decide all that stands on the topics, in memory, where nothing is ever lost."""
    prefix = deployment.prefix
    policies = policies_of(deployment.settings(**deployment.policies))
    reader = ReplayReader(deployment.broker.bootstrap, prefix, Rate(None), lambda *_: None)
    topics = [prefix + name for name in INPUTS]
    order = ReplayOrder("undisturbed", topics, "earliest", "latest", policy=None, simulate=True, output=None)
    with Job(folder / "undisturbed", order) as job:
        inside = await reader.plan(topics, "earliest", "latest")
        outputs = await reader.plan([prefix + name for name in OUTPUTS], "earliest", "latest")
        await reader.read(job, inside, outputs, everything=True)
        task = Task("undisturbed", policies, None, Simulation(job, policies, None))
        return await Replayer(job, task, Nowhere(), Rate(None), lambda *_: None).run()


async def act(office: Office, users: range) -> None:
    """Reject, retract, edit and approve what the users said; return when all of it is decided."""
    deployment = office.deployment
    for user in users:
        for kind, action in (("rejected", "reject"), ("retracted", "retract"), ("confirmed", "approve")):
            await office.act(action, await deployment.decision(f"{kind}{user}"))
        await office.act("edit", await deployment.decision(f"edited{user}"), content=said(user, "changed"))
    for user in users:
        for kind in KINDS[2:]:
            await deployment.decision(f"{kind}{user}", revision=2)


async def test_claims_after_a_loss_under_load_are_decided_as_if_nothing_had_been_lost(
    deployment: Deployment, tmp_path: Path
) -> None:
    office = Office(deployment, tmp_path)
    await deployment.start_workers("claims", "claims", "reviews")
    await deployment.produce(before())
    await deployment.settled(len(before()))
    await act(office, range(USERS // 2))
    load = [good(number, user_id=f"load{number % 9}") for number in range(200)]
    loading = asyncio.create_task(deployment.produce(load[:100]))
    await flush(deployment)
    await asyncio.gather(loading, deployment.produce(load[100:]))
    await act(office, range(USERS // 2, USERS))
    await deployment.produce(following(FOLLOWING))
    await deployment.settled(len(before()) + len(load) + FOLLOWING, seconds=FOLLOWING / 10)
    await deployment.quiet()

    assert_one_truth(deployment.decisions)
    assert any("state.lost" in worker.text for worker in deployment.workers)
    assert any("state.rebuilt" in worker.text for worker in deployment.workers)
    found = {seen.json["reason_code"] for seen in deployment.first_decisions().values()}
    assert found >= {"duplicate", "conflicting_near_duplicate", "previously_rejected", "pending_duplicate"}
    summary = await undisturbed(deployment, tmp_path)
    assert summary.statuses == {"equal": summary.records}, summary.as_json()
