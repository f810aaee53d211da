"""Everything that workers publish can be proven and replayed while they go on working (X-07, X-08)."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from groundwire.messages.base import format_time, parse_time
from tests.stream.harness import FULL, Deployment, Office, good, until

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 600)]


@asynccontextmanager
async def live(deployment: Deployment) -> AsyncIterator[None]:
    """Go on producing claims `live...`."""

    async def flow() -> None:
        number = 5000
        while True:
            number += 1
            await deployment.produce([good(number, claim_id=f"live{number}", source="user")])
            await asyncio.sleep(0.05)

    flowing = asyncio.create_task(flow())
    try:
        yield
    finally:
        flowing.cancel()


@pytest.mark.smoke
async def test_what_workers_published_verifies_and_a_replay_beside_them_gives_the_same(
    office: Office, deployment: Deployment, tmp_path: Path
):
    await deployment.start_workers("claims", "responses", "deferred", "reviews")
    await deployment.produce([good(number) for number in range(300)])
    chunk = {"chunk_id": "1", "file": "a.py", "content": "x is 5", "start_line": 1, "end_line": 1}
    response = {"response_id": "r1", "user_id": "ann", "answer": "x is 5. y is 6.", "fan_out": True}
    await deployment.produce([{**response, "chunks": [chunk]}], topic="llm-responses")
    await deployment.produce([b"{", good(1)])  # a dead letter and a repeat
    pending = [await office.pending(number) for number in range(1000, 1003)]
    await office.act("approve", pending[0])
    await office.act("reject", pending[1])
    await office.act("edit", pending[2], content="Sessions are kept")
    await office.act("retract", await deployment.decision("c1002", revision=2))
    await deployment.decision("c1002", revision=3)
    await deployment.quiet()

    output, report = tmp_path / "out.jsonl", tmp_path / "report.html"
    replaying = ("replay", "--output", str(output), "--format", "json", "--html", str(report))
    async with live(deployment):
        assert (await deployment.succeeds("verify", "--from-topics", **deployment.policies))[0] == ""
        out, _ = await deployment.succeeds(*replaying, **deployment.policies)
    summary = json.loads(out)
    assert summary["changed"] == []
    assert summary["statuses"]["equal"] >= 305
    assert summary["statuses"]["dead_letter"] == summary["statuses"]["repeat"] == 1
    published = {seen.json["decision_id"]: seen.value for seen in deployment.decisions}
    for decision in map(json.loads, output.read_bytes().splitlines()):
        assert decision.pop("replay") == "replay"
        before = json.loads(published[decision["decision_id"]] or b"")
        assert before.pop("replay") is None
        assert decision == before

    out, _ = await deployment.succeeds("report", "--since", "1h", "--format", "json")
    counted = json.loads(out)
    total = counted["total"]
    assert (total["people_approved"], total["people_edited"], total["people_rejected"]) == (1, 1, 1)
    assert total["approved"] + total["review"] + total["blocked"] >= 304
    assert counted["dead_letters"] == {"invalid_json": 1}

    # under another policy users are not trusted, and nothing goes to a live topic
    strict = tmp_path / "strict.toml"
    strict.write_text('trusted_sources = ["documentation"]\n')
    replaying = ("replay", "--to", "200", "--topic", "claims", "--policy", str(strict), "--format", "json")
    out, _ = await deployment.succeeds(*replaying, "--output-topic", "replay.strict", **deployment.policies)
    diff = json.loads(out)
    trusted = {
        seen.json["subject_id"]
        for seen in deployment.first_decisions().values()
        if (seen.json["reason_code"], seen.json["source"]) == ("trusted_source", "user")
        and seen.json["origin"]["offset"] < 200
    }
    assert {change["before"]["subject_id"] for change in diff["changed"]} == trusted != set()
    status, _, err = await deployment.command("replay", "--output-topic", "approved")
    assert (status, "replay.<name>" in err) == (2, True)
    ends = await deployment.ends("replay.strict")
    assert sum(ends.values()) == sum(row["count"] for row in diff["reasons"])


@pytest.mark.parametrize("deployment", [{"verified": False}], indirect=True)  # a replay derives all of it too
async def test_a_long_replay_beside_live_traffic_differs_in_nothing_and_another_threshold_in_what_it_should(
    deployment: Deployment, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """It is killed while it reads and while it decides, and keeps within 400 MB."""
    records = 50_000 if FULL else 4_000
    percent = 97  # the other threshold; that of the policy that decides first is 92
    command = """
import os, sys
from groundwire.cli.main import main
from groundwire.replay import store
def dies(owner, method, times):  # after so many calls
    done, left = getattr(owner, method), iter(range(times))
    def dying(*given, **named):
        return done(*given, **named) if next(left, None) is not None else os._exit(139)
    setattr(owner, method, dying)
{fault}
try:
    main()
finally:  # not `ru_maxrss`: what the test itself holds when it starts this process would count
    with open("/proc/self/status") as status:
        (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
    sys.stderr.write(f"peak {{peak}}\\n")
"""
    faults = (
        'dies(store.RecordStore, "set_next", 4)',  # a page is kept, and not noted
        f'dies(store.Job, "note", {records // 1_000})',  # a decision is written, and not noted
    )

    def claims() -> Iterator[dict[str, Any]]:
        """Ten a user, of which most resemble an earlier one by more or less than the other threshold."""
        for number in range(records):
            group, kind = divmod(number, 10)
            rng = random.Random(group)
            # without digits, which would be values
            words = ["".join(rng.choices("bcdfgklmnprt", k=9)) for _ in range(60)]
            trusted, other = words[:28], words[28:56]
            text, source = (
                (f"Store {group} keeps {' '.join(trusted)} for 30 days", "user"),
                (f"Store {group} keeps {' '.join(trusted)} for 30 days", "user"),
                (f"Store {group} keeps {' '.join([*trusted[1:], words[56]])} for 30 days", "user"),
                (f"Store {group} keeps {' '.join([*trusted[2:], *words[57:59]])} for 30 days", "agent-7"),
                (f"Store {group} keeps {' '.join(trusted)} for 40 days", "user"),
                (f"Shard {group} drops {' '.join(other)} at night", "ai_synthesis"),
                (f"Shard {group} drops {' '.join(other)} at night", "ai_synthesis"),
                (f"Shard {group} drops {' '.join([*other[1:], words[59]])} at night", "agent-7"),
                (f"Maybe store {group} keeps {' '.join(trusted)} for 30 days", "user"),
                (f"Shard {group} has {' '.join(words[20:40])} by day", "ai_synthesis"),
            )[kind]
            yield {"claim_id": f"n{number}", "user_id": f"g{group}", "content": text, "source": source}

    async def replay(*arguments: str, fault: str = "") -> tuple[int, str, str]:
        return await deployment.command("replay", *arguments, program=command.format(fault=fault))

    limits = "[limits]\nreview_per_user = 1\n"
    policy = tmp_path / "policy.toml"
    policy.write_text(limits)
    deployment.environment["GROUNDWIRE_POLICY_FILE"] = str(policy)
    await deployment.start_workers("claims")
    await deployment.produce(claims())
    await until(lambda: len(deployment.decisions) >= records, "all are decided", records / 10)
    published = {seen.json["decision_id"]: seen for seen in deployment.decisions}
    assert len(published) == records
    last = max(parse_time(seen.json["origin"]["timestamp"]) for seen in published.values())
    end = format_time(last + timedelta(milliseconds=1))
    stretch = ("--to", end, "--topic", "claims", "--format", "json")

    async with live(deployment):
        output = tmp_path / "out.jsonl"
        same = (*stretch, "--output", str(output), "--job", str(tmp_path / "job"))
        for fault in faults:
            status, _, err = await replay(*same, fault=fault)
            assert status == 139, err
        assert 0 < len(output.read_bytes().splitlines()) < records, "it died amid its decisions"
        status, out, err = await replay(*same)
        assert status == 0, err
        found = json.loads(out)
        assert (found["records"], found["statuses"], found["changed"]) == (records, {"equal": records}, [])
        again = output.read_bytes().splitlines()
        assert len(again) == records, "what was written before it died is not written twice"
        for line in again:
            unmarked = line.replace(b'"replay":"replay"}', b'"replay":null}')
            assert published[json.loads(line)["decision_id"]].value == unmarked

        other = tmp_path / "other.toml"
        other.write_text(f"dedup_threshold = {percent / 100}\n{limits}")
        status, out, other_err = await replay(*stretch, "--policy", str(other))
        assert status == 0, other_err
        diff = json.loads(out)

    assert len(diff["changed"]) > records / 12
    assert any(seen.json["subject_id"].startswith("live") for seen in deployment.decisions)
    assert all(seen.json["replay"] is None for seen in deployment.decisions)
    peaks = [int(text.rsplit("peak ", 1)[1]) // 1024 for text in (err, other_err)]
    record_property("told", f"replayed {records} records at a peak of {peaks[0]} and {peaks[1]} MB")
    assert max(peaks) < 400
