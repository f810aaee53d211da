"""A long stretch of the log is decided again beside a worker that goes on, and nothing differs (X-08)."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from groundwire.messages.base import format_time, parse_time
from tests.stream.harness import FULL, Deployment, Seen, good, until

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.timeout(3600 if FULL else 600)]

RECORDS = 50_000 if FULL else 4_000
POLICY = "[limits]\nreview_per_user = 1\n"
PERCENT = 97
"""The other threshold; that of the policy that decides first is 92."""
MOST_MEMORY = 400
"""MB that a replay may hold at its peak, however long the stretch."""

COMMAND = """
import sys
from groundwire.cli.main import main
{fault}
try:
    main()
finally:  # not `ru_maxrss`: what the test itself holds when it starts this process would count
    with open("/proc/self/status") as status:
        (peak,) = (line.split()[1] for line in status if line.startswith("VmHWM"))
    sys.stderr.write(f"peak {{peak}}\\n")
"""
DIES = """
import os
from groundwire.replay.{module} import {owner}
done, left = {owner}.{method}, iter(range({times}))
def dying(*given, **named):
    return done(*given, **named) if next(left, None) is not None else os._exit(139)
{owner}.{method} = dying
"""
READING = DIES.format(module="store", owner="RecordStore", method="set_next", times=4)
"""Ends the process while it reads topics: a page is kept, and not noted."""
DECIDING = DIES.format(module="store", owner="Job", method="note", times=RECORDS // 1_000)
"""Ends it while it decides: what it wrote is in the file, and not noted."""


def claims(count: int) -> Iterator[dict[str, Any]]:
    """Yield claims, ten a user, of which most resemble an earlier one by more or less than the other threshold."""
    for number in range(count):
        group, kind = divmod(number, 10)
        rng = random.Random(group)
        words = [
            "".join(rng.choices("bcdfgklmnprt", k=9)) for _ in range(60)
        ]  # with digits they would be values
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


def under(decision: dict[str, Any], percent: int) -> tuple[str, str]:
    """Say by the contract's words, and from the recorded facts alone, what a claim comes to under a threshold."""
    if any(hedge["action"] == "block" for hedge in decision["hedges"]):
        return "blocked", "personal_speculation"
    facts = decision["facts"]
    near = [
        m
        for m in facts["dedup"]["matches"]
        if m["difference"] not in {"none", "word"} or 100 * m["inter"] >= percent * m["union"]
    ]
    plain = {m["class"] for m in near if m["difference"] == "none"}
    if "approved" in plain:
        return "blocked", "duplicate"
    conflict = any(m["class"] == "approved" for m in near)
    if decision["source"] == "user" and not conflict:
        return "approved", "trusted_source"
    if "pending" in plain and facts["place"] == "not_needed":
        return "review", "pending_duplicate"
    if facts["place"] not in {"free", "not_needed"}:
        return "blocked", "review_queue_full"
    return "review", "conflicting_near_duplicate" if decision["source"] == "user" else "ungrounded"


async def replay(deployment: Deployment, *arguments: str, fault: str = "") -> tuple[int, str, str]:
    """Run `groundwire replay`: status, standard output and error; the error ends with its peak of memory."""
    return await deployment.command("replay", *arguments, program=COMMAND.format(fault=fault))


async def record(deployment: Deployment) -> dict[str, Seen]:
    """Have a worker decide the claims; return its decisions by id."""
    todo = claims(RECORDS)
    while page := list(islice(todo, 2_000)):
        await deployment.produce(page)
    await until(lambda: len(deployment.decisions) >= RECORDS, lambda: "all are decided", RECORDS / 10)
    return {seen.json["decision_id"]: seen for seen in deployment.decisions}


@asynccontextmanager
async def live(deployment: Deployment) -> AsyncIterator[None]:
    """Go on producing; what was produced is decided, as ever."""

    async def flow() -> None:
        number = 0
        while True:
            number += 1
            await deployment.produce([good(number, claim_id=f"live{number}", source="user")])
            await asyncio.sleep(0.05)

    flowing = asyncio.create_task(flow())
    try:
        yield
    finally:
        flowing.cancel()


def end_of(published: dict[str, Seen]) -> str:
    """The time right behind the last record."""
    last = max(parse_time(seen.json["origin"]["timestamp"]) for seen in published.values())
    return format_time(last + timedelta(milliseconds=1))


@pytest.mark.parametrize("deployment", [{"verified": False}], indirect=True)  # a replay derives all of it too
async def test_a_long_replay_beside_live_traffic_differs_in_nothing_and_another_threshold_in_what_it_should(
    deployment: Deployment, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    deployment.environment["GROUNDWIRE_POLICY_FILE"] = str(policy)
    await deployment.start_workers("claims")
    published = await record(deployment)
    assert len(published) == RECORDS
    stretch = ("--to", end_of(published), "--topic", "claims", "--format", "json")

    async with live(deployment):
        output = tmp_path / "out.jsonl"
        same = (*stretch, "--output", str(output), "--job", str(tmp_path / "job"))
        for fault in (READING, DECIDING):
            status, _, err = await replay(deployment, *same, fault=fault)
            assert status == 139, err
        assert 0 < len(output.read_bytes().splitlines()) < RECORDS, "it died amid its decisions"
        status, out, err = await replay(deployment, *same)
        assert status == 0, err
        found = json.loads(out)
        assert (found["records"], found["statuses"], found["changed"]) == (RECORDS, {"equal": RECORDS}, [])
        again = output.read_bytes().splitlines()
        assert len(again) == RECORDS, "what was written before it died is not written twice"
        for line in again:
            unmarked = line.replace(b'"replay":"replay"}', b'"replay":null}')
            assert published[json.loads(line)["decision_id"]].value == unmarked

        other = tmp_path / "other.toml"
        other.write_text(f"dedup_threshold = {PERCENT / 100}\n{POLICY}")
        status, out, other_err = await replay(deployment, *stretch, "--policy", str(other))
        assert status == 0, other_err
        diff = json.loads(out)

    recorded = {name: seen.json for name, seen in published.items()}
    for decision in recorded.values():
        assert under(decision, 92) == (decision["verdict"], decision["reason_code"]), "the contract's words"
    expected = {name: under(decision, PERCENT) for name, decision in recorded.items()}
    moved = {
        n: to for n, to in expected.items() if to != (recorded[n]["verdict"], recorded[n]["reason_code"])
    }
    assert {
        change["before"]["decision_id"]: (change["after"]["verdict"], change["after"]["reason_code"])
        for change in diff["changed"]
    } == moved
    assert len(moved) > RECORDS / 12
    pairs = Counter((under(d, 92), expected[name]) for name, d in recorded.items())
    assert {(row["from"], row["to"]): row["count"] for row in diff["reasons"]} == {
        (" ".join(old), " ".join(new)): count for (old, new), count in pairs.items()
    }

    flow = [seen for seen in deployment.decisions if seen.json["subject_id"].startswith("live")]
    assert flow, "live traffic was decided meanwhile"
    assert all(seen.json["replay"] is None for seen in deployment.decisions)
    peaks = [int(text.rsplit("peak ", 1)[1]) // 1024 for text in (err, other_err)]
    record_property("told", f"replayed {RECORDS} records at a peak of {peaks[0]} and {peaks[1]} MB")
    assert max(peaks) < MOST_MEMORY
