"""State is erased, lost under load and rebuilt, and dead letters are sent again (X-19)."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis.asyncio import Redis

from groundwire.cli.main import main
from groundwire.client import ApprovedTable, Decision, changes
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.connection import producer
from groundwire.kafka.reader import RecordPlace
from groundwire.messages.decisions import Kind
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.records import Retraction
from groundwire.policy import Policy
from groundwire.replay.erase import retraction_of
from groundwire.replay.reading import INPUTS, OUTPUTS, Rate, ReplayReader
from groundwire.replay.report import Nowhere, Summary
from groundwire.replay.run import Replayer, Simulation, Task
from groundwire.replay.store import Job, ReplayOrder
from groundwire.review.dead_letters import Log, Selection, redrive_letters
from groundwire.state.codec import short_bytes
from groundwire.state.model import InFlightMark
from tests.state.conftest import state_at
from tests.stream.harness import FULL, Deployment, Office, Seen, assert_one_truth, good, policies_of, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


async def test_an_erased_user_is_gone_from_state_and_consumers_and_a_rebuild_does_not_bring_them_back(
    deployment: Deployment,
) -> None:
    async def stored() -> dict[str, list[str]]:
        table = ApprovedTable()
        where = {"brokers": deployment.broker.bootstrap, "topic_prefix": deployment.prefix}
        async for _ in changes(table, **where, until_end=True):
            pass
        those = {user: table.memories("default", user) for user in ("maria", "ann")}
        return {user: [one.subject.subject_id for one in memories] for user, memories in those.items()}

    async def in_state() -> set[str]:
        """The claims that keys of state are named after."""
        async with Redis.from_url(deployment.redis.url) as redis:
            keys: list[bytes] = await redis.keys(f"{deployment.prefix}*")
        digests = {
            claim_id: short_bytes(Subject("default", user, Kind.CLAIM, claim_id).digest).decode()
            for claim_id, user in (("m1", "maria"), ("m2", "maria"), ("a1", "ann"))
        }
        return {name for name, digest in digests.items() if any(digest.encode() in key for key in keys)}

    deployment.verified = False  # an erasure withdraws without a decision that could be derived
    await deployment.start_worker("claims").ready()
    said = {"user_id": "maria", "source": "user", "content": "I prefer tabs over spaces in all files"}
    kept = {"user_id": "ann", "source": "user", "content": "The nightly backup runs at two"}
    waits = {"user_id": "maria", "content": "The service uses PostgreSQL 15 for storage"}
    claims = {"m1": said, "a1": kept, "m2": waits}
    await deployment.produce([{**claim, "claim_id": name} for name, claim in claims.items()])
    await deployment.settled(3)
    assert await stored() == {"maria": ["m1"], "ann": ["a1"]}
    assert await in_state() >= {"m1", "a1"}

    printed, _ = await deployment.succeeds("erase", "--tenant", "default", "--user", "maria", "--yes")
    assert printed.startswith("1 approvals withdrawn, tombstone written")
    assert re.search(r"^claims +2 records, gone by 20\d\d-\d\d-\d\d$", printed, re.MULTILINE)
    assert re.search(r"^approved +1 records, kept for ever: delete it by hand$", printed, re.MULTILINE)

    await until(lambda: len(deployment.seen["retractions"]) == 2, "a tombstone and a retraction")
    tombstone, retracted = deployment.seen["retractions"]
    assert (tombstone.key, tombstone.value) == (b"default:maria", None)
    approved = (await deployment.decision("m1")).json
    assert Retraction.from_record(retracted).supersedes == approved["decision_id"], "for older consumers"

    for _ in range(2):
        assert await in_state() == {"a1"}
        assert await stored() == {"maria": [], "ann": ["a1"]}
        await deployment.succeeds("rebuild", "--yes")

    await deployment.produce([{**said, "claim_id": "m3"}])
    again = Decision.from_record(await deployment.decision("m3"))
    assert again.verdict == "approved", "nothing is left that it could repeat"
    assert (await stored())["maria"] == ["m3"], "what is said after the tombstone is the user's again"

    # a retraction whose audit event is gone, after a year, is kept by a rebuild
    retraction = retraction_of(again, Erasure("default", "maria", again.decided_at), "maria")
    value = retraction.model_dump_json().encode()
    await (await deployment.send(value, key=b"default:maria", topic="retractions"))
    await deployment.succeeds("rebuild", "--yes")
    await deployment.produce([{**said, "claim_id": "m4"}])
    assert (await deployment.decision("m4")).json["reason_code"] == "previously_rejected"


async def test_what_is_decided_anew_under_an_erased_id_verifies_and_no_old_action_closes_it(
    office: Office, deployment: Deployment
) -> None:
    def erasures() -> list[Seen]:
        return [seen for seen in deployment.seen["audit"] if seen.json["detail"].get("action") == "erase"]

    def first_lives() -> list[Seen]:
        """The decisions of revision 1 in order: those of a user are on one partition."""
        return [seen for seen in deployment.seen["review"] if seen.json["revision"] == 1]

    await deployment.start_workers("claims", "reviews")
    deployment.environment["GROUNDWIRE_HASH_KEY"] = "k"
    pending = await office.pending(1)
    await office.act("reject", pending, reason="incorrect")
    await deployment.decision("c1", revision=2)
    user, claim = pending.json["user_id"], pending.json["evidence"]["claim"]
    await deployment.succeeds("erase", "--tenant", "default", "--user", user, "--yes")

    await until(lambda: len(erasures()) == 1, "the erasure is on audit")
    (event,) = erasures()
    (tombstone,) = deployment.seen["retractions"]
    assert event.json["detail"]["tombstone"] == tombstone.header("ce_id")
    assert (event.json["actor"], event.json["detail"]["withdrawn"]) == ("operator", 0)
    assert re.fullmatch("[0-9a-f]{12}", event.json["detail"]["user"])
    assert user.encode() not in event.value
    assert claim.encode() not in event.value

    await office.pending(1)
    await until(lambda: len(first_lives()) == 2, "it is decided anew")
    await deployment.succeeds("rebuild", "--yes")
    await office.pending(1)
    await until(lambda: len(first_lives()) == 3, "it is the same decision again")
    old, new, *again = first_lives()
    assert old.json["decision_id"] == new.json["decision_id"]
    assert {seen.value for seen in again} == {new.value}, "nobody has rejected what is said now"

    assert (await deployment.succeeds("verify", "--from-topics"))[0] == ""


@pytest.mark.smoke
@pytest.mark.timeout(3600 if FULL else 600)
async def test_claims_after_a_loss_under_load_are_decided_as_if_nothing_had_been_lost(
    office: Office, deployment: Deployment, tmp_path: Path
) -> None:
    """Half of people's actions come before the loss, half after it."""
    count = 10_000 if FULL else 800
    kinds = ("approved", "pending", "rejected", "retracted", "edited", "confirmed")
    people = 8  # users whose claims come before the loss, each with one of every kind

    def before() -> list[dict[str, Any]]:
        """Claims that people act on, or that stay as they are: six a user."""
        source = dict.fromkeys(kinds, "ai_synthesis") | {"approved": "user", "retracted": "user"}
        return [
            {"claim_id": f"{kind}{user}", "user_id": f"u{user}", "content": said(user, kind), "source": of}
            for user in range(people)
            for kind, of in source.items()
        ]

    def said(user: int, kind: str) -> str:
        rng = random.Random(f"{user}{kind}")
        return f"Service {kind} of {user} keeps {' '.join(f'w{rng.randrange(10**6)}' for _ in range(26))} for 30 days"

    def following(count: int) -> Iterator[dict[str, Any]]:
        """Yield claims that repeat decided ones: literally, nearly, with another number, or derived from them."""
        for number in range(count):
            rng = random.Random(number)
            user, kind = rng.randrange(people), rng.choice(kinds)
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

    async def act(users: range) -> None:
        """Reject, retract, edit and approve what the users said; return when all of it is decided."""
        for user in users:
            for kind, action in (("rejected", "reject"), ("retracted", "retract"), ("confirmed", "approve")):
                await office.act(action, await deployment.decision(f"{kind}{user}"))
            edited = await deployment.decision(f"edited{user}")
            await office.act("edit", edited, content=said(user, "changed"))
        for user in users:
            for kind in kinds[2:]:
                await deployment.decision(f"{kind}{user}", revision=2)

    async def undisturbed() -> Summary:
        """Have the library decide every record on the topics, in memory."""
        prefix = deployment.prefix
        policies = policies_of(deployment.settings(**deployment.policies))
        reader = ReplayReader(deployment.broker.bootstrap, prefix, Rate(None), lambda *_: None)
        topics = [prefix + name for name in INPUTS]
        span = ("undisturbed", topics, "earliest", "latest")
        order = ReplayOrder(*span, policy=None, simulate=True, output=None)
        with Job(tmp_path / "undisturbed", order) as job:
            inside = await reader.plan(topics, "earliest", "latest")
            outputs = await reader.plan([prefix + name for name in OUTPUTS], "earliest", "latest")
            await reader.read(job, inside, outputs, everything=True)
            task = Task("undisturbed", policies, None, Simulation(job, policies, None))
            return await Replayer(job, task, Nowhere(), Rate(None), lambda *_: None).run()

    await deployment.start_workers("claims", "claims", "reviews")
    await deployment.produce(before())
    await deployment.settled(len(before()))
    logs = "".join(worker.text for worker in deployment.workers)
    assert "state.lost" not in logs, "a new deployment starts without a warning"
    assert "paused" not in logs
    await act(range(people // 2))
    load = [good(number, user_id=f"load{number % 9}") for number in range(200)]
    loading = asyncio.create_task(deployment.produce(load[:100]))
    await deployment.flush()
    await asyncio.gather(loading, deployment.produce(load[100:]))
    await act(range(people // 2, people))
    await deployment.produce(following(count))
    await deployment.settled(len(before()) + len(load) + count, seconds=max(120, count / 10))
    await deployment.quiet()

    assert_one_truth(deployment.decisions)
    assert any("state.lost" in worker.text for worker in deployment.workers)
    assert any("state.rebuilt" in worker.text for worker in deployment.workers)
    found = {seen.json["reason_code"] for seen in deployment.first_decisions().values()}
    assert found >= {"duplicate", "conflicting_near_duplicate", "previously_rejected", "pending_duplicate"}
    summary = await undisturbed()
    assert summary.statuses == {"equal": summary.records}, summary.as_json()


@pytest.mark.smoke
@pytest.mark.parametrize("deployment", [{"partitions": 2}], indirect=True)
async def test_a_dead_letter_is_decided_after_its_cause_is_mended_and_one_that_fails_again_does_not_loop(
    deployment: Deployment,
):
    async def groundwire(*arguments: str) -> tuple[int, list[dict[str, Any]], str]:
        """Run `groundwire dead-letters`: exit status, JSON lines, standard error."""
        where = ["--brokers", deployment.broker.bootstrap, "--prefix", deployment.prefix, "--format", "json"]
        command = ["dead-letters", *arguments, *where, "--timeout", "60"]
        result = await asyncio.to_thread(CliRunner().invoke, main, command, catch_exceptions=False)
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()], result.stderr

    class Killed(Log):
        """Dies once the records are sent, before that is noted."""

        async def send(self, record: InboundRecord) -> RecordPlace | None:
            await super().send(record)
            raise KeyboardInterrupt

    async def killed_redrive(code: str) -> None:
        """Send letters back, and be killed over it."""
        brokers, rules = deployment.broker.bootstrap, {"most": 3, "rate": 50.0, "limit": None}
        async with producer(brokers, 60.0) as sender:
            log = Killed(brokers, deployment.prefix, 60.0, sender)
            with pytest.raises(KeyboardInterrupt):
                _ = [letter async for letter in redrive_letters(log, Selection(codes={code}), "op", **rules)]

    # as a worker leaves it that died over the first record of every partition
    state = state_at(deployment.redis.url, deployment.prefix, scheme=dedup_scheme(Policy()))
    for partition in range(deployment.partitions):
        await state.mark(deployment.prefix + "claims", partition, InFlightMark(0, 0, 2))
    await state.close()
    crashing = good(1, tenant_id="acme", user_id="ann")
    headers = [("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), ("raw", b"\xff")]
    await deployment.produce([crashing], headers=headers, partition=0)
    await deployment.produce([b'{"claim_id": "\x1b[2J'], key=b"acme:bob", partition=1)
    await deployment.start_worker("claims").ready()
    await until(lambda: len(deployment.dead) == 2, "two dead letters")
    before = await deployment.ends("claims")

    status, letters, _ = await groundwire("list", "--tenant", "acme")
    assert status == 0
    assert {one["error"]: one["state"] for one in letters} == {"worker_crash": "open", "invalid_json": "open"}
    crash = max(letters, key=lambda one: one["error"])
    status, (shown,), _ = await groundwire("show", crash["letter"], "--value")
    assert (status, json.loads(shown["value"])) == (0, crashing)
    assert [header["name"] for header in shown["headers"]] == ["traceparent", "raw"]

    status, planned, said = await groundwire("redrive")
    assert (status, [one["outcome"] for one in planned]) == (0, ["redrive"] * 2)
    assert "2 redrive; --yes sends them" in said
    assert await deployment.ends("claims") == before, "a dry run sends nothing"

    # no worker dies of it any more
    await killed_redrive("worker_crash")
    decided = await deployment.decision(str(crashing["claim_id"]))
    status, (done,), _ = await groundwire("redrive", "--code", "worker_crash", "--actor", "op", "--yes")
    assert (status, done["outcome"], done["why"]) == (0, "redriven", None), "it was not noted"
    place = done["redriven"]
    await until(lambda: len(deployment.decided(str(crashing["claim_id"]))) == 2, "the repeat")
    first, *copies = [seen for seen in deployment.seen["claims"] if seen.key == b"acme:ann"]
    assert (copies[-1].partition, copies[-1].offset) == (place["partition"], place["offset"])
    for copy in copies:
        assert (copy.partition, copy.timestamp) == (first.partition, first.timestamp)
        assert (copy.value, list(copy.headers)) == (first.value, [*headers, ("gw-attempts", b"1")])
    assert decided.json["facts"]["clock"] == decided.json["origin"]["timestamp"]
    assert decided.header("traceparent") == headers[0][1].decode()

    for attempts in (2, 3):
        status, again, _ = await groundwire("redrive", "--code", "invalid_json", "--yes")
        assert (status, again[-1]["outcome"], again[-1]["attempts"]) == (0, "redriven", attempts - 1)
        await until(lambda n=attempts: len(deployment.dead) == n + 1, "it is a dead letter")  # type: ignore[misc]
        assert deployment.dead[-1].header("gw-attempts") == str(attempts)
        assert deployment.dead[-1].value == b'{"claim_id": "\x1b[2J'
    ends = await deployment.ends("claims")
    status, rest, said = await groundwire("redrive", "--yes")
    assert status == 1
    refused = {("already_redriven", 1), ("already_redriven", 2), ("too_many_attempts", 3)}
    assert {(one["why"], one["attempts"]) for one in rest} == refused
    assert "1 refused (too_many_attempts)" in said
    assert await deployment.ends("claims") == ends
    events = [
        seen.json for seen in deployment.seen["audit"] if seen.json["detail"].get("action") == "redriven"
    ]
    assert [event["detail"]["code"] for event in events] == ["worker_crash", "invalid_json", "invalid_json"]
    assert events[0]["actor"] == "op"
    assert_one_truth(deployment.decisions)
