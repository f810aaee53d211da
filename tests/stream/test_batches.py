"""What agents/faust_patches.py assumes about Faust and aiokafka, on a real broker: an upgrade must fail here."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from faust.types import TP

from agents import faust_patches
from agents.app import build_app, declare_agent
from agents.book import PartitionBook
from agents.faust_patches import FetchConsumer, WorkerApp, check_versions
from agents.hooks import Commits
from groundwire.config import Settings
from groundwire.errors import UsageError
from tests.stream.harness import SESSION, Deployment, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


class Member:
    """An app whose agent keeps every event for the test to mark done."""

    new_book = PartitionBook

    def __init__(self, deployment: Deployment) -> None:
        where = {"brokers": deployment.broker.bootstrap, "group_prefix": deployment.prefix}
        settings = Settings(**where, session_timeout=SESSION)
        self.events: list[Any] = []
        self.held: set[int] = set()
        self.app: WorkerApp = build_app("claims", settings)
        self.app.partitions = self  # type: ignore[assignment]
        self.app.broker_answered = lambda: None
        self.finishing = asyncio.Event()
        self.finishing.set()
        self.release: Callable[[], Any] = lambda: None
        declare_agent(self.app, "claims", deployment.prefix, self.events.append)

    @property
    def consumer(self) -> FetchConsumer:
        consumer: FetchConsumer = self.app.consumer
        return consumer

    @property
    def offsets(self) -> list[int]:
        return [record.offset for event in self.events for record in event.value]

    def mark_done(self, *events: Any) -> None:
        for event in events:
            offsets = {record.offset for record in event.value}
            book = self.consumer.books.get(event.message.tp)
            if book is not None:
                book.done([entry for entry in list(book.undone) if entry.record.offset in offsets])
                self.consumer.note_room(event.message.tp)

    def read_on(self, event: Any) -> None:
        """Have a partition read on while its records run."""
        book = self.consumer.books[event.message.tp]
        for entry in book.undone:
            entry.due = math.inf
        assert book.take(large=False) == []
        self.consumer.note_room(event.message.tp)

    async def finish(self) -> None:
        self.release()
        await self.finishing.wait()

    def before_assignment(self) -> None: ...

    def after_assignment(self, tps: set[TP]) -> None:
        self.held = {tp.partition for tp in tps}

    async def before_commit(self, commits: Commits) -> Commits:
        return commits

    async def start(self) -> None:
        await self.app.start()
        await until(lambda: bool(self.held), "partitions are assigned")


@pytest.fixture
async def member(deployment: Deployment) -> AsyncIterator[Member]:
    made = Member(deployment)
    await made.start()
    yield made
    await made.app.stop()


async def arrive(member: Member, deployment: Deployment, count: int) -> list[Any]:
    """Produce one record after another to partition 0, so that each is a batch of its own."""
    for number in range(count):
        known = len(member.events)
        await (await deployment.send(b"%d" % number, key=b"", partition=0))
        await until(lambda known=known: len(member.events) > known, "the batch arrives")  # type: ignore[misc]
        member.read_on(member.events[-1])
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
    _third, fourth = (await arrive(member, deployment, 2))[2:]
    member.mark_done(fourth)
    await member.consumer.commit()
    assert (await deployment.committed("claims"))[0] == 2, "nothing is committed past an unfinished batch"


async def test_a_partition_is_not_read_past_what_can_start(member: Member, deployment: Deployment):
    await (await deployment.send(b"first", key=b"", partition=0))
    await until(lambda: len(member.events) == 1, "the batch arrives")
    await deployment.produce([b"more"] * 5, key=b"", partition=0)
    await deployment.produce([b"other"], key=b"", partition=1)
    await until(lambda: len(member.events) == 2, "the other partition goes on")
    assert len(member.offsets) == 2
    member.mark_done(member.events[0])
    await until(lambda: len(member.offsets) == 7, "the partition goes on")


async def test_a_graceful_stop_commits_what_is_settled(deployment: Deployment):
    member = Member(deployment)
    await member.start()
    await arrive(member, deployment, 2)
    member.mark_done(member.events[0])
    member.finishing.clear()
    stopping = asyncio.create_task(member.app.stop())
    await until(lambda: member.app.should_stop, "it is stopping")
    assert not stopping.done(), "it waits for the second batch"
    member.mark_done(member.events[1])
    member.finishing.set()
    await stopping
    assert (await deployment.committed("claims"))[0] == 2


@pytest.mark.smoke
async def test_a_revocation_commits_what_is_settled_and_nothing_fetched_around_it_is_lost(
    deployment: Deployment,
):
    first, second = Member(deployment), Member(deployment)
    await first.start()
    seen: set[tuple[int, int]] = set()
    sent: list[asyncio.Future[Any]] = []
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
        while running:
            sent.append(await deployment.send(b"x", key=b"", partition=len(sent) % deployment.partitions))
            await asyncio.sleep(0.005)

    working, feeding = asyncio.create_task(work()), asyncio.create_task(feed())
    try:
        await until(lambda: len(seen) > 20, "the first reads")
        await second.start()
        await until(lambda: len(first.held) == 2, "they share the partitions")
        known = len(seen)
        await until(lambda: len(seen) > known + 20, "both read")
        await second.app.stop()
        await until(lambda: len(first.held) == 4, "the first has them all again")
        feeding.cancel()
        await asyncio.gather(*sent)
        await until(lambda: len(seen) == len(sent), lambda: f"all {len(sent)} are seen, not {len(seen)}")
        async with asyncio.timeout(60):
            while await deployment.committed("claims") != await deployment.ends("claims"):
                await first.consumer.commit()
    finally:
        running = False
        await working
        await first.app.stop()


async def test_what_is_settled_while_partitions_are_given_away_is_committed_first(deployment: Deployment):
    first, second = Member(deployment), Member(deployment)
    await first.start()
    (event,) = await arrive(first, deployment, 1)
    loop = asyncio.get_running_loop()
    first.finishing.clear()

    def finish() -> None:
        first.mark_done(event)
        first.finishing.set()

    first.release = lambda: loop.call_later(0.3, finish)
    await second.start()
    try:
        await until(lambda: len(first.held) == 2, "they share the partitions")
        assert (await deployment.committed("claims"))[0] == 1
        await (await deployment.send(b"next", key=b"", partition=0))
        await until(lambda: 1 in first.offsets + second.offsets, "the next record")
        assert first.offsets + second.offsets == [0, 1], "the first is not read again"
    finally:
        for member in (first, second):
            await member.app.stop()


async def test_records_that_come_to_a_fetch_begun_before_a_rebalance_are_not_lost(deployment: Deployment):
    first, second = Member(deployment), Member(deployment)
    await first.start()  # its fetch waits for records, a second at most
    await second.start()
    await until(lambda: len(first.held) == 2, "they share the partitions")
    for number in range(deployment.partitions):
        await deployment.send(b"early", key=b"", partition=number)
    try:
        await until(
            lambda: sum(map(len, (first.offsets, second.offsets))) == deployment.partitions,
            lambda: f"all records arrive, not only {first.offsets} and {second.offsets}",
        )
    finally:
        for member in (first, second):
            await member.app.stop()


def test_another_version_of_a_patched_package_is_refused(monkeypatch: pytest.MonkeyPatch):
    check_versions()
    for package in faust_patches.VERSIONS:
        with monkeypatch.context() as changed:
            changed.setitem(faust_patches.VERSIONS, package, "0.0.1")
            with pytest.raises(UsageError, match=package):
                check_versions()
