"""Dead letters of a real deployment: listed, shown, and sent again once their cause is mended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from click.testing import CliRunner

from groundwire.cli.main import main
from groundwire.dead_letters.letters import KafkaLog, RedriveRecord, Selection, Stands, kafka_log
from groundwire.dead_letters.redrive import Redrive, Rules
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.connection import producer
from groundwire.policy import Policy
from groundwire.state.model import InFlightMark
from tests.state.conftest import state_at
from tests.stream.harness import Deployment, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


async def groundwire(deployment: Deployment, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run `groundwire dead-letters`: exit status, JSON lines, standard error."""
    where = ["--brokers", deployment.broker.bootstrap, "--prefix", deployment.prefix, "--format", "json"]
    command = ["dead-letters", *arguments, *where, "--timeout", "60"]
    result = await asyncio.to_thread(CliRunner().invoke, main, command, catch_exceptions=False)
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr


class Killed(KafkaLog):
    """Dies once the records are sent, before that is noted."""

    async def publish(self, records: Sequence[RedriveRecord]) -> list[tuple[int, int]]:
        places = await super().publish(records)
        if any(record.topic.endswith("claims") for record in records):
            raise KeyboardInterrupt
        return places


async def killed_redrive(deployment: Deployment, code: str) -> None:
    """Send letters back, and be killed over it."""
    where = (deployment.broker.bootstrap, deployment.prefix, 60.0)
    async with producer(where[0], where[2]) as sender:
        redrive = Redrive(Killed(*where, sender), Selection(codes={code}), Rules(deployment.prefix, "op"))
        with pytest.raises(KeyboardInterrupt):
            _ = [step async for step in redrive.run()]


async def worker_died_twice(deployment: Deployment, topic: str) -> None:
    """Leave what a worker leaves that died over the first record of every partition."""
    state = state_at(deployment.redis.url, deployment.prefix, scheme=dedup_scheme(Policy()))
    for partition in range(deployment.partitions):
        await state.mark(deployment.prefix + topic, partition, InFlightMark(0, 0, 2))
    await state.close()


@pytest.mark.smoke
@pytest.mark.parametrize("deployment", [{"partitions": 2}], indirect=True)
async def test_a_dead_letter_is_decided_after_its_cause_is_mended_and_one_that_fails_again_does_not_loop(
    deployment: Deployment,
):
    await worker_died_twice(deployment, "claims")
    crashing = good(1, tenant_id="acme", user_id="ann")
    headers = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("raw", b"\xff")]
    await deployment.produce([crashing], headers=headers, partition=0)
    await deployment.produce([b'{"claim_id": "\x1b[2J'], key=b"acme:bob", partition=1)
    await deployment.start_worker("claims").ready()
    await until(lambda: len(deployment.dead) == 2, lambda: "two dead letters")
    before = await deployment.ends("claims")

    status, letters, _ = await groundwire(deployment, "list", "--tenant", "acme")
    assert status == 0
    assert {(one["error"], one["state"]) for one in letters} == {
        ("worker_crash", "open"),
        ("invalid_json", "open"),
    }
    crash = max(letters, key=lambda one: one["error"])
    status, (shown,), _ = await groundwire(deployment, "show", crash["letter"], "--value")
    assert (status, json.loads(shown["value"])) == (0, crashing)
    assert [header["name"] for header in shown["headers"]] == ["traceparent", "raw"]

    status, planned, said = await groundwire(deployment, "redrive")
    assert (status, [one["outcome"] for one in planned]) == (0, ["redrive"] * 2)
    assert "2 would be redriven; --yes does it" in said
    assert await deployment.ends("claims") == before, "a dry run sends nothing"

    # no worker dies of it any more
    await killed_redrive(deployment, "worker_crash")
    status, (done,), _ = await groundwire(deployment, "redrive", "--code", "worker_crash", "--yes")
    assert (status, done["outcome"], done["why"]) == (0, "skipped", "already_redriven")
    place = done["redriven"]
    decided = await deployment.decision(str(crashing["claim_id"]))
    assert {name: decided.json["origin"][name] for name in ("topic", "partition", "offset")} == {
        name: place[name] for name in ("topic", "partition", "offset")
    }
    assert decided.header("traceparent") == headers[0][1].decode()
    _first, copy = [seen for seen in deployment.seen["claims"] if seen.key == b"acme:ann"]
    assert (copy.partition, copy.offset) == (place["partition"], place["offset"])
    assert (json.loads(copy.value or b""), copy.key) == (crashing, b"acme:ann")
    assert list(copy.headers) == [*headers, ("gw-attempts", b"1")]

    async with (
        kafka_log(deployment.broker.bootstrap, deployment.prefix, 60, sends=False, on_read=int) as log,
        log.failing(datetime(2026, 1, 1, tzinfo=UTC)) as failing,
    ):
        for attempts in (2, 3):
            status, again, _ = await groundwire(deployment, "redrive", "--code", "invalid_json", "--yes")
            assert (status, again[-1]["outcome"], again[-1]["attempts"]) == (0, "redriven", attempts - 1)
            now = again[-1]["redriven"]
            stands = Stands(now["topic"], now["partition"], now["offset"])
            await until(lambda s=stands: s in failing, lambda: "a run sees that it fails again")  # type: ignore[misc]
            await until(lambda n=attempts: len(deployment.dead) == n + 1, lambda: "it is a dead letter")  # type: ignore[misc]
            assert deployment.dead[-1].header("gw-attempts") == str(attempts)
            assert deployment.dead[-1].value == b'{"claim_id": "\x1b[2J'
    ends = await deployment.ends("claims")
    status, rest, said = await groundwire(deployment, "redrive", "--yes")
    assert status == 1
    assert {(one["why"], one["attempts"]) for one in rest} == {
        ("already_redriven", 1),
        ("already_redriven", 2),
        ("too_many_attempts", 3),
    }
    assert "1 refused (too_many_attempts 1)" in said
    assert await deployment.ends("claims") == ends
    events = [
        seen.json for seen in deployment.seen["audit"] if seen.json["detail"].get("action") == "redriven"
    ]
    assert [event["detail"]["code"] for event in events] == ["worker_crash", "invalid_json", "invalid_json"]
    assert events[0]["actor"] == "op", "whoever sent it, though another noted that"
    assert_one_truth(deployment.decisions)
