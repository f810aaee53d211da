"""`groundwire.client.Producer` against real workers (X-16)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from groundwire.client import ApprovedTable, Producer
from groundwire.errors import RecordError
from tests.stream.harness import Deployment, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]

CITED = "Search runs on PostgreSQL, see ADR-003."
GUESSED = "Maybe search runs on PostgreSQL."


@pytest.fixture
def producer(deployment: Deployment, tmp_path: Path) -> Producer:
    (tmp_path / "ADR-003-search.md").touch()
    deployment.environment["GROUNDWIRE_ADR_DIR"] = str(tmp_path)
    return Producer(brokers=deployment.broker.bootstrap, topic_prefix=deployment.prefix)


@pytest.mark.smoke
async def test_an_agent_repairs_what_was_blocked(deployment: Deployment, producer: Producer):
    await deployment.start_worker("claims").ready()
    async with producer as gate:
        blocked = await gate.decided(await gate.claim(GUESSED, user_id="maria"))
        assert (blocked.reason_code, [hedge.text for hedge in blocked.hedges]) == (
            "personal_speculation",
            ["Maybe"],
        )
        repaired = await gate.decided(await gate.claim(CITED, user_id="maria"))
        assert (repaired.verdict, repaired.reason_code) == ("approved", "verified_citation")


async def test_a_claim_sent_again_is_the_same_subject_and_gets_the_same_decision(
    deployment: Deployment, producer: Producer
):
    await deployment.start_worker("claims").ready()
    async with producer as gate:
        first, again = [await gate.claim(CITED, user_id="maria") for _ in range(2)]
        assert first.subject == again.subject
        assert await gate.decided(first) == await gate.decided(again)
        other = await gate.claim(CITED, user_id="maria", source="documentation")
        assert other.subject != first.subject, "other fields are another claim"


async def test_an_id_that_was_used_for_something_else_is_told_to_who_waits(
    deployment: Deployment, producer: Producer
):
    await deployment.start_worker("claims").ready()
    async with producer as gate:
        await gate.decided(await gate.claim(CITED, user_id="maria", claim_id="c1"))
        other = await gate.claim(GUESSED, user_id="maria", claim_id="c1")
        with pytest.raises(RecordError) as raised:
            await gate.decided(other)
        assert raised.value.code == "claim_id_conflict"


async def test_what_the_gate_could_not_read_is_refused_before_it_is_sent(producer: Producer):
    async with producer as gate:
        with pytest.raises(RecordError, match="content"):
            await gate.claim("", user_id="maria")


async def test_an_answer_is_decided_with_its_report(deployment: Deployment, producer: Producer):
    await deployment.start_worker("responses").ready()
    chunk = {
        "chunk_id": "1",
        "file": "a.md",
        "content": "Redis listens on 6379.",
        "start_line": 1,
        "end_line": 1,
    }
    async with producer as gate:
        sent = await gate.response("Redis listens on 6380 [source:1].", user_id="maria", chunks=[chunk])
        decision = await gate.decided(sent)
    assert not decision.approved
    assert decision.report is not None


async def test_nobody_waits_longer_than_asked_for_and_the_record_stands(
    deployment: Deployment, producer: Producer
):
    async with producer as gate:
        sent = await gate.claim(CITED, user_id="maria")
        with pytest.raises(TimeoutError):
            await gate.decided(sent, seconds=0.2)
        await deployment.start_worker("claims").ready()
        assert (await gate.decided(sent)).approved


async def test_the_status_of_a_subject_is_found_by_whoever_asks_later(
    deployment: Deployment, producer: Producer
):
    await deployment.start_worker("claims").ready()
    async with producer as gate:
        sent = await gate.claim(CITED, user_id="maria")
        decision = await gate.decided(sent)
    other = Producer(brokers=deployment.broker.bootstrap, topic_prefix=deployment.prefix)
    async with other as gate:
        assert await gate.status(sent.subject) == decision
        assert await gate.status(sent.subject._replace(subject_id="another")) is None


async def test_decisions_are_followed_on_after_the_broker_was_away(
    deployment: Deployment, producer: Producer
):
    await deployment.start_worker("claims").ready()
    async with producer as gate:
        await asyncio.to_thread(deployment.broker.stop)
        await asyncio.to_thread(deployment.broker.start)
        assert (await gate.decided(await gate.claim(CITED, user_id="maria"))).approved


async def test_the_table_follows_what_workers_publish(deployment: Deployment, producer: Producer):
    await deployment.start_worker("claims").ready()
    async with producer as gate:
        for text in (CITED, GUESSED, "I prefer tabs over spaces"):
            await gate.decided(await gate.claim(text, user_id="maria", source="user"))
    table = ApprovedTable()
    await until(lambda: len(deployment.decisions) == 3, lambda: "all are seen")
    for seen in deployment.decisions:
        table.apply(seen)
    stored = {memory.content for memory in table.memories("default", "maria")}
    assert stored == {CITED, "I prefer tabs over spaces"}
