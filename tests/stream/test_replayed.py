"""Everything that workers publish can be proven and replayed, while they go on working (X-07, X-08)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.stream.harness import Deployment, good, until
from tests.stream.test_reviews import Office

pytestmark = [pytest.mark.stream, pytest.mark.slow]

CHUNK = {"chunk_id": "1", "file": "a.py", "content": "x is 5", "start_line": 1, "end_line": 1}


def values(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.mark.smoke
async def test_what_workers_published_verifies_and_a_replay_beside_them_gives_the_same(
    broker, redis_server, tmp_path
):
    policies = tmp_path / "policies"
    async with Deployment(broker, redis_server, tmp_path) as deployment:
        office = Office(deployment, tmp_path)
        deployment.environment["GROUNDWIRE_POLICIES_DIR"] = str(policies)
        await deployment.start_workers("claims", "responses", "deferred", "reviews")

        await deployment.produce([good(number) for number in range(300)])
        await deployment.produce(
            [
                {
                    "response_id": "r1",
                    "user_id": "ann",
                    "answer": "x is 5. y is 6.",
                    "chunks": [CHUNK],
                    "fan_out": True,
                }
            ],
            topic="llm-responses",
        )
        await deployment.produce([b"{", good(1)])  # a dead letter and a repeat
        pending = [await office.pending(number) for number in range(1000, 1004)]
        for action, seen, fields in zip(
            ("approve", "reject", "edit"), pending, ({}, {}, {"content": "Sessions are kept"}), strict=False
        ):
            await office.act(action, seen, **fields)
        edited = await deployment.decision("c1002", revision=2)
        await office.act("retract", edited)
        await deployment.decision("c1002", revision=3)
        await deployment.quiet()

        live = asyncio.create_task(trickle(deployment))
        try:
            status, out, err = await deployment.command("verify", "--from-topics")
            assert (status, out) == (0, ""), err
            output, report = tmp_path / "out.jsonl", tmp_path / "report.html"
            arguments = ("replay", "--output", str(output), "--format", "json", "--html", str(report))
            status, out, err = await deployment.command(*arguments)
        finally:
            live.cancel()
        assert status == 0, err
        summary = json.loads(out)
        assert summary["changed"] == []
        assert summary["statuses"]["equal"] >= 310
        assert summary["statuses"]["dead_letter"] == 1
        assert summary["statuses"]["repeat"] == 1
        published = {seen.json["decision_id"]: seen.value for seen in deployment.decisions}
        for decision in values(output):
            assert decision.pop("replay") == "replay"
            before = json.loads(published[decision["decision_id"]] or b"")
            assert before.pop("replay") is None
            assert decision == before

        await interrupted(deployment, tmp_path, output)
        await under_another_policy(deployment, tmp_path)


async def interrupted(deployment: Deployment, folder: Path, output: Path) -> None:
    """Kill a replay and let it go on."""
    parts, job = folder / "parts.jsonl", folder / "job"
    arguments = ("replay", "--to", "60", "--output", str(parts), "--job", str(job))
    process = await deployment.start_command(*arguments, "--rate", "500")
    await until(parts.exists, lambda: "a replay decides")
    process.kill()
    await process.communicate()
    status, _, err = await deployment.command(*arguments)
    assert status == 0, err
    expected = [decision for decision in values(output) if decision["origin"]["offset"] < 60]
    places = {place(decision) for decision in expected}  # claims may have trickled in since
    assert [decision for decision in values(parts) if place(decision) in places] == expected


def place(decision: dict[str, Any]) -> tuple[str, int, int]:
    return tuple(decision["origin"][name] for name in ("topic", "partition", "offset"))


async def under_another_policy(deployment: Deployment, folder: Path) -> None:
    """See what becomes of claims of users who are not trusted any more; and nothing on a live topic."""
    strict = folder / "strict.toml"
    strict.write_text('trusted_sources = ["documentation"]\n')
    status, out, err = await deployment.command(
        *("replay", "--to", "200", "--topic", "claims", "--policy", str(strict)),
        *("--output-topic", "replay.strict", "--format", "json"),
    )
    assert status == 0, err
    diff = json.loads(out)
    held = {change["before"]["subject_id"] for change in diff["changed"]}
    trusted = {
        seen.json["subject_id"]
        for seen in deployment.first_decisions().values()
        if seen.json["reason_code"] == "trusted_source"
        and seen.json["source"] == "user"
        and seen.json["origin"]["offset"] < 200
    }
    assert held == trusted
    assert held
    status, _, err = await deployment.command("replay", "--output-topic", "approved")
    assert status == 2
    assert "replay.<name>" in err
    ends = await deployment.ends("replay.strict")
    assert sum(ends.values()) == sum(row["count"] for row in diff["reasons"])


async def trickle(deployment: Deployment) -> None:
    """Go on producing, slowly."""
    number = 5000
    while True:
        await deployment.produce([good(number)])
        number += 1
        await asyncio.sleep(0.05)
