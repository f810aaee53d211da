"""The ground that agents/faust_patches.py stands on: Faust and aiokafka in one process, on a real broker.

Whoever upgrades either of them wants these tests to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agents import faust_patches
from agents.app import build_app
from agents.faust_patches import BatchApp, BatchConsumer, check_versions
from groundwire.config import Settings
from groundwire.errors import UsageError
from tests.stream.harness import SESSION, Deployment, until
from topics.wire import raw_topic

pytestmark = [pytest.mark.stream, pytest.mark.slow]


class Member:
    """An app whose agent keeps every event for the test to settle."""

    def __init__(self, deployment: Deployment) -> None:
        settings = Settings(
            brokers=deployment.broker.bootstrap,
            group_prefix=deployment.prefix,
            session_timeout=SESSION,
        )
        self.events: list[Any] = []
        self.held: set[int] = set()
        self.app: BatchApp = build_app("claims", settings)
        self.app.before_revocation = lambda _: self.revoked()
        self.app.before_assignment = lambda _: None
        self.app.after_assignment = lambda tps: self.assigned({tp.partition for tp in tps})

        @self.app.agent(raw_topic(self.app, deployment.prefix + "claims"), name="claims")
        async def claims(stream: Any) -> None:
            async for event in stream.noack().events():
                self.events.append(event)

    @property
    def consumer(self) -> BatchConsumer:
        consumer: BatchConsumer = self.app.consumer
        return consumer

    @property
    def offsets(self) -> list[int]:
        return [record.offset for event in self.events for record in event.value]

    def mark_done(self, *events: Any) -> None:
        for event in events:
            self.consumer.mark_done(event.message)

    def assigned(self, partitions: set[int]) -> None:
        self.held = partitions

    def revoked(self) -> None:
        """Let a revocation pass: everything that nobody settles is abandoned."""
        for event in self.events:
            self.consumer.give_back(event.message)

    async def start(self) -> None:
        await self.app.start()
        await until(lambda: bool(self.held), lambda: "partitions are assigned")


@pytest.fixture(autouse=True)
def two_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have as many batches of a partition on their way as large records may leave behind, and more."""
    monkeypatch.setattr(BatchConsumer, "depth", 2)


@pytest.fixture
async def member(deployment: Deployment) -> AsyncIterator[Member]:
    made = Member(deployment)
    await made.start()
    yield made
    made.revoked()
    await made.app.stop()


async def arrive(member: Member, deployment: Deployment, count: int) -> list[Any]:
    """Produce one record after another to partition 0, so that each is a batch of its own."""
    for number in range(count):
        known = len(member.events)
        await (await deployment.send(b"%d" % number, key=b"", partition=0))
        await until(lambda known=known: len(member.events) > known, lambda: "the batch arrives")  # type: ignore[misc]
    return member.events


async def test_a_fetch_is_one_event_that_holds_its_records_in_order(member: Member, deployment: Deployment):
    await asyncio.gather(
        *[await deployment.send(b"%d" % n, key=b"k", partition=0, headers=[("h", b"1")]) for n in range(300)]
    )

    async def finish_all() -> None:
        while len(member.offsets) < 300:
            member.mark_done(*member.events)
            await asyncio.sleep(0.01)

    await asyncio.wait_for(finish_all(), 60)
    assert member.offsets == list(range(300))
    assert len(member.events) < 150
    record = member.events[0].value[0]
    assert (record.key, record.value, record.headers) == (b"k", b"0", (("h", b"1"),))
    assert record.topic == deployment.prefix + "claims"


@pytest.mark.smoke
async def test_a_settled_batch_never_commits_past_one_that_is_not(member: Member, deployment: Deployment):
    first, second = await arrive(member, deployment, 2)
    member.mark_done(second)
    await member.consumer.commit()
    assert (await deployment.committed("claims"))[0] == 0
    member.mark_done(first)
    await member.consumer.commit()
    assert (await deployment.committed("claims"))[0] == 2


async def test_an_abandoned_batch_is_never_committed_past(member: Member, deployment: Deployment):
    first, second = await arrive(member, deployment, 2)
    member.consumer.give_back(first.message)
    member.mark_done(second)
    await member.consumer.commit()
    assert (await deployment.committed("claims"))[0] == 0


async def test_no_more_than_two_batches_of_a_partition_are_on_their_way(
    member: Member, deployment: Deployment
):
    await arrive(member, deployment, 2)
    await deployment.produce([b"more"] * 5, key=b"", partition=0)
    await deployment.produce([b"other"], key=b"", partition=1)
    await until(lambda: len(member.events) == 3, lambda: "the other partition goes on")
    await asyncio.sleep(0.3)
    assert len(member.events) == 3
    member.mark_done(member.events[0])
    await until(lambda: len(member.offsets) == 8, lambda: "the partition goes on")


async def test_a_commit_that_began_too_early_does_not_stand_for_the_last_one(
    member: Member, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    (event,) = await arrive(member, deployment, 1)
    commit_offsets = member.consumer.force_commit

    async def slow(*arguments: Any, **options: Any) -> bool:
        result: bool = await commit_offsets(*arguments, **options)
        await asyncio.sleep(0.5)
        return result

    monkeypatch.setattr(member.consumer, "force_commit", slow)
    early = asyncio.create_task(member.consumer.commit())
    await asyncio.sleep(0.1)
    member.mark_done(event)
    await member.consumer.wait_empty()
    await early
    assert (await deployment.committed("claims"))[0] == 1


async def test_a_graceful_stop_commits_what_is_settled(deployment: Deployment):
    member = Member(deployment)
    await member.start()
    await arrive(member, deployment, 2)
    member.mark_done(member.events[0])
    stopping = asyncio.create_task(member.app.stop())
    await asyncio.sleep(0.5)
    assert not stopping.done(), "it waits for the second batch"
    member.mark_done(member.events[1])
    await stopping
    assert (await deployment.committed("claims"))[0] == 2


@pytest.mark.smoke
async def test_a_revocation_commits_what_is_settled_and_nothing_fetched_around_it_is_lost(
    deployment: Deployment,
):
    first, second = Member(deployment), Member(deployment)
    await first.start()
    seen: set[tuple[int, int]] = set()
    running = True

    async def work() -> None:
        while running:
            for member in (first, second):
                for event in member.events:
                    seen.update((record.partition, record.offset) for record in event.value)
                if member.events:
                    member.mark_done(*member.events)
                    member.events.clear()
            await asyncio.sleep(0.005)

    async def feed() -> None:
        for number in range(400):
            await deployment.send(b"%d" % number, key=b"", partition=number % deployment.partitions)
            await asyncio.sleep(0.005)

    working, feeding = asyncio.create_task(work()), asyncio.create_task(feed())
    await asyncio.sleep(0.3)
    await second.start()
    await until(lambda: len(first.held) == 2, lambda: "they share the partitions")
    await asyncio.sleep(0.3)
    await second.app.stop()
    await until(lambda: len(first.held) == 4, lambda: "the first has them all again")
    await feeding
    try:
        await until(lambda: len(seen) == 400, lambda: f"all are seen, not {len(seen)}")
        await until(lambda: not any(first.consumer._under_way.values()), lambda: "all are settled")
        await first.consumer.commit()
        assert await deployment.committed("claims") == await deployment.ends("claims")
    finally:
        running = False
        await working
        await first.app.stop()


async def test_what_is_settled_while_partitions_are_given_away_is_committed_first(deployment: Deployment):
    first, second = Member(deployment), Member(deployment)
    await first.start()
    (event,) = await arrive(first, deployment, 1)
    loop = asyncio.get_running_loop()
    first.app.before_revocation = lambda _: loop.call_later(0.3, first.mark_done, event)  # type: ignore[assignment, return-value]
    await second.start()
    try:
        await until(lambda: len(first.held) == 2, lambda: "they share the partitions")
        assert (await deployment.committed("claims"))[0] == 1
        await asyncio.sleep(0.5)
        assert first.offsets + second.offsets == [0], "it is not read again"
    finally:
        for member in (first, second):
            await member.app.stop()


async def test_records_that_come_to_a_fetch_begun_before_a_rebalance_are_not_lost(deployment: Deployment):
    first, second = Member(deployment), Member(deployment)
    await first.start()
    await asyncio.sleep(0.2)  # its fetch waits for records, a second at most
    await second.start()
    await until(lambda: len(first.held) == 2, lambda: "they share the partitions")
    for number in range(deployment.partitions):
        await deployment.send(b"early", key=b"", partition=number)
    try:
        await until(
            lambda: sum(map(len, (first.offsets, second.offsets))) == deployment.partitions,
            lambda: f"all records arrive, not only {first.offsets} and {second.offsets}",
        )
    finally:
        for member in (first, second):
            member.revoked()
            await member.app.stop()


async def test_what_a_fetch_brings_before_partitions_are_resumed_is_handed_out_once(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    first, second = Member(deployment), Member(deployment)
    fetch, resume = first.consumer._fetch_for, first.consumer.perform_seek
    long = 4.0  # seconds: the fetch outlasts the rebalance
    monkeypatch.setattr(first.consumer, "_fetch_for", lambda tps, _: fetch(tps, long))
    await first.start()
    for number in range(deployment.partitions):
        await (await deployment.send(b"before", key=b"", partition=number))
    await until(lambda: len(first.offsets) == deployment.partitions, lambda: "the records arrive")
    first.mark_done(*first.events)
    await first.consumer.commit()  # there is something to go back to
    fetched = asyncio.Event()

    async def late() -> None:
        await fetched.wait()
        await resume()

    monkeypatch.setattr(first.consumer, "perform_seek", late)
    await second.start()
    await until(lambda: len(first.held) == 2, lambda: "they share the partitions")
    for number in range(deployment.partitions):
        await (await deployment.send(b"around", key=b"", partition=number))
    await asyncio.sleep(0.3)
    fetched.set()
    try:
        expected = sorted([0, 1] * deployment.partitions)
        await until(
            lambda: len(first.offsets + second.offsets) >= len(expected), lambda: "the records arrive"
        )
        await asyncio.sleep(0.5)
        assert sorted(first.offsets + second.offsets) == expected
    finally:
        for member in (first, second):
            member.revoked()
            await member.app.stop()


async def test_a_resumption_that_comes_late_does_not_open_partitions_that_are_given_away(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
):
    first, second = Member(deployment), Member(deployment)
    await first.start()
    settled, flowed = first.consumer.wait_empty, []

    async def resumed() -> None:
        await settled()
        first.consumer.resume_flow()
        flowed.append(first.consumer.flow_active)

    monkeypatch.setattr(first.consumer, "wait_empty", resumed)
    await second.start()
    try:
        await until(lambda: len(first.held) == 2, lambda: "they share the partitions")
        assert flowed
        assert not any(flowed)
        await until(lambda: first.consumer.flow_active, lambda: "the new assignment is resumed")
    finally:
        for member in (first, second):
            await member.app.stop()


@pytest.mark.parametrize("package", sorted(faust_patches.VERSIONS))
def test_another_version_of_what_batches_stand_on_is_refused(monkeypatch: pytest.MonkeyPatch, package: str):
    check_versions()
    monkeypatch.setitem(faust_patches.VERSIONS, package, "0.0.1")
    with pytest.raises(UsageError, match=package):
        check_versions()
