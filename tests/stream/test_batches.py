"""What agents/faust_patches.py assumes about Faust and aiokafka, on a real broker: an upgrade must fail here."""

from __future__ import annotations

import asyncio
from typing import Any, Self

import pytest

from agents import faust_patches
from agents.app import build_app
from agents.faust_patches import BatchApp, BatchConsumer, check_versions, raw_topic
from groundwire.config import Settings
from groundwire.errors import UsageError
from tests.stream.harness import SESSION, Deployment, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


class Member:
    """An app whose agent keeps every event for the test to settle."""

    def __init__(self, deployment: Deployment) -> None:
        where = {"brokers": deployment.broker.bootstrap, "group_prefix": deployment.prefix}
        settings = Settings(**where, session_timeout=SESSION)
        self.deployment = deployment
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

    async def __aenter__(self) -> Self:
        await self.app.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.revoked()
        await self.app.stop()

    async def holds(self, count: int) -> None:
        await until(lambda: len(self.held) == count, lambda: f"{count} partitions, not {self.held}")

    async def arrive(self, count: int) -> list[Any]:
        """Produce one record after another to partition 0, so that each is a batch of its own."""
        for number in range(count):
            known = len(self.events)
            await (await self.deployment.send(b"%d" % number, key=b"", partition=0))
            await until(lambda known=known: len(self.events) > known, "the batch arrives")  # type: ignore[misc]
        return self.events

    async def commits(self) -> int:
        """Commit what is done, and return the offset of partition 0."""
        await self.consumer.commit()
        return (await self.deployment.committed("claims"))[0]


@pytest.fixture(autouse=True)
def two_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have as many batches of a partition on their way as large records may leave behind, and more."""
    monkeypatch.setattr(BatchConsumer, "depth", 2)


async def test_a_fetch_is_one_event_and_a_partition_has_two_on_their_way(deployment: Deployment):
    async with Member(deployment) as member:
        await member.holds(4)
        sending = {"key": b"k", "partition": 0, "headers": [("h", b"1")]}
        await deployment.produce([b"%d" % n for n in range(300)], **sending)
        async with asyncio.timeout(60):
            while len(member.offsets) < 300:
                member.mark_done(*member.events)
                await asyncio.sleep(0.01)
        assert member.offsets == list(range(300))
        assert len(member.events) < 150
        record = member.events[0].value[0]
        assert (record.key, record.value, record.headers) == (b"k", b"0", (("h", b"1"),))
        assert record.topic == deployment.prefix + "claims"
        member.mark_done(*member.events)
        member.events.clear()

        await member.arrive(2)
        await deployment.produce([b"more"] * 5, key=b"", partition=0)
        await deployment.produce([b"other"], key=b"", partition=1)
        await until(lambda: len(member.events) == 3, "the other partition goes on")
        assert len(member.offsets) == 3
        member.mark_done(member.events[0])
        await until(lambda: len(member.offsets) == 8, "the partition goes on")


@pytest.mark.smoke
async def test_a_done_batch_never_commits_past_one_that_is_not_and_a_graceful_stop_waits_for_both(
    deployment: Deployment,
):
    async with Member(deployment) as member:
        first, second = await member.arrive(2)
        member.mark_done(second)
        assert await member.commits() == 0
        member.mark_done(first)
        assert await member.commits() == 2
        third, fourth = (await member.arrive(2))[2:]
        stopping = asyncio.create_task(member.app.stop())
        await until(lambda: member.app.should_stop, "it is stopping")
        assert not stopping.done(), "it waits for both batches"
        member.mark_done(fourth)
        assert (await deployment.committed("claims"))[0] == 2
        member.mark_done(third)
        await stopping
        assert (await deployment.committed("claims"))[0] == 4
    async with Member(deployment) as member:
        first, second = await member.arrive(2)
        member.consumer.give_back(first.message)
        member.mark_done(second)
        assert await member.commits() == 4, "an abandoned batch is not committed past"


@pytest.mark.smoke
async def test_a_revocation_commits_what_is_done_and_nothing_fetched_around_it_is_lost(
    deployment: Deployment,
):
    """A batch done while partitions are revoked is committed first; a fetch begun before loses no records."""
    async with Member(deployment) as first, Member(deployment) as second:
        await first.holds(2)
        for number in range(deployment.partitions):
            await deployment.send(b"early", key=b"", partition=number)
        await until(
            lambda: len(first.offsets + second.offsets) == deployment.partitions,
            lambda: f"all records arrive, not only {first.offsets} and {second.offsets}",
        )
        loop = asyncio.get_running_loop()
        first.app.before_revocation = lambda _: loop.call_later(0.3, first.mark_done, *first.events)  # type: ignore[assignment, return-value]
        second.mark_done(*second.events)
        await second.app.stop()
        await first.holds(4)
        committed = await deployment.committed("claims")
        assert set(committed.values()) == {1}, "what was done before the revocation is not read again"
        first.events.clear()

        seen: set[tuple[int, int]] = set()
        sent: list[asyncio.Future[Any]] = []
        running, third = True, Member(deployment)

        async def work() -> None:
            while running:
                for member in (first, third):
                    for event in member.events:
                        seen.update((record.partition, record.offset) for record in event.value)
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
            async with third:
                await first.holds(2)
                known = len(seen)
                await until(lambda: len(seen) > known + 20, "both read")
            await first.holds(4)
            feeding.cancel()
            await asyncio.gather(*sent)
            await until(lambda: len(seen) == len(sent), lambda: f"all {len(sent)} are seen, not {len(seen)}")
            async with asyncio.timeout(60):
                while await deployment.committed("claims") != await deployment.ends("claims"):
                    await first.consumer.commit()
        finally:
            running = False
            await working


def test_another_version_of_a_patched_package_is_refused(monkeypatch: pytest.MonkeyPatch):
    check_versions()
    for package in faust_patches.VERSIONS:
        with monkeypatch.context() as changed:
            changed.setitem(faust_patches.VERSIONS, package, "0.0.1")
            with pytest.raises(UsageError, match=package):
                check_versions()
