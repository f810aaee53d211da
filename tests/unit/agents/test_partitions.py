"""Partitions of a worker: crash marks, leases, liveness and readiness."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from faust.types import TP
from prometheus_client import REGISTRY

from agents import health as health_module
from agents.book import PartitionBook
from agents.crash_marks import CrashMarks
from agents.health import STALL_SECONDS, Health
from agents.hooks import Batch, Hook
from agents.lease import LeaseLost
from agents.loop import PartitionLoop, Services
from agents.partitions import Partitions
from groundwire.errors import StateUnavailable
from groundwire.messages.headers import InboundRecord
from groundwire.state.model import InFlightMark
from groundwire.state.server import PATIENCE
from tests.unit.agents.standins import turns

# Crash marks


class Marks:
    """State as crash marks use it; answers come once `answers` is set."""

    def __init__(self, left: InFlightMark | None = None, *, broken: bool = False) -> None:
        self.held = self.answered = left
        self.broken = broken
        self.answers = asyncio.Event()

    async def marks(self, topic, partition):
        if self.broken:
            raise StateUnavailable("gone")
        return self.held

    async def mark(self, topic, partition, mark, *, answered):
        if self.broken:
            raise StateUnavailable("gone")
        self.held = mark
        if answered:
            await self.answers.wait()
            self.answered = mark


def batch_of(state: Marks, *offsets: int) -> tuple[CrashMarks, Batch]:
    """Return a batch whose loop's lease is over, and the marks that its hook writes."""
    loop: Any = SimpleNamespace(tp=TP("t", 0), book=PartitionBook(), lease=SimpleNamespace(over=True))
    loop.book.add([InboundRecord("t", 0, at, 0, b"%d" % at, b"") for at in offsets], offsets[-1] + 1)
    return CrashMarks(state), Batch(loop, loop.book.take(large=False), Mock())


async def test_a_mark_is_sent_before_the_work_and_its_answer_is_waited_for_only_on_request():
    state = Marks(InFlightMark(3, 7, 0))
    for first in (0, 2):  # no mark waits for the answer to the one before
        marks, batch = batch_of(state, first, first + 1)
        await marks.before_prepare(batch)
        assert (state.held, state.answered) == (InFlightMark(first, first + 1, 0), InFlightMark(3, 7, 0))
    state.answers.set()
    batch.loop.book.done(batch.entries)
    await marks.after_batch(batch)
    assert state.answered is None, "a worker that exits cleanly leaves no mark"


async def test_what_a_dead_worker_left_is_isolated_with_its_crash_and_state_that_is_away_holds_up_nothing():
    for broken, crashes in ((False, 3), (True, 0)):
        marks, batch = batch_of(Marks(InFlightMark(0, 1, 2), broken=broken), 0)
        async with asyncio.timeout(60):
            await marks.before_loop(batch.loop)
            assert batch.entries[0].crashes == crashes
            await marks.before_prepare(batch) if broken else None
            await marks.after_batch(batch)


# Leases


class Office(Hook):
    """Partitions whose batches end when the test says so, and a consumer that keeps their books."""

    def __init__(self) -> None:
        self.began: list[tuple[int, int]] = []
        self.crashed: list[type[BaseException]] = []
        self.ends: dict[tuple[int, int], asyncio.Future[None]] = {}
        self.health = Health()
        services: Any = Mock(spec=Services, hooks=[self.health, self], health=self.health)
        self.partitions = Partitions(services)
        self.books: dict[TP, PartitionBook] = {}
        self.rooms: list[int] = []
        self.consumer = SimpleNamespace(
            books=self.books, note_room=lambda tp: self.rooms.append(tp.partition)
        )

    async def crash(self, error: BaseException) -> None:
        self.crashed.append(type(error))

    async def before_batch(self, batch: Batch) -> None:
        first = batch.entries[0].record
        self.began.append((first.partition, first.offset))
        await self.ends.setdefault(self.began[-1], asyncio.get_running_loop().create_future())

    async def fetch(self, *offsets: tuple[int, int]) -> None:
        app = SimpleNamespace(consumer=self.consumer, crash=self.crash)
        for partition, offset in offsets:
            tp = TP("t", partition)
            book = self.books.setdefault(tp, PartitionBook())
            book.add([InboundRecord("t", partition, offset, 0, b"%d" % offset, b"")], offset + 1)
            self.partitions.submit(SimpleNamespace(message=SimpleNamespace(tp=tp), app=app))
        await turns()

    async def end(self, partition: int, offset: int, error: BaseException | None = None) -> None:
        future = self.ends.setdefault((partition, offset), asyncio.get_running_loop().create_future())
        future.set_exception(error) if error else future.set_result(None)
        await turns()

    def reached(self, partition: int) -> int | None:
        return self.books[TP("t", partition)].committable


@pytest.fixture(autouse=True)
def _batches_are_done_once_they_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLoop, "_prepare_step_publish", AsyncMock(return_value=True))


async def test_batches_of_a_partition_run_in_order_and_wait_for_no_other_partition():
    office = Office()
    await office.fetch((0, 1), (1, 3))
    await office.fetch((0, 2))
    assert (office.began, office.health.under_way, office.rooms) == ([(0, 1), (1, 3)], 2, [])
    await office.end(0, 1)
    assert (office.began[2:], office.reached(0), office.health.under_way) == ([(0, 2)], 2, 2)
    await office.end(0, 2)
    assert office.rooms == [0], "it is read on once nothing small is left"


async def test_nothing_behind_an_unfinished_batch_is_committed():
    """Each row: how the first batch ends, and whether the process ends."""
    for error, crashed in ((LeaseLost(), []), (MemoryError(), [MemoryError])):
        office = Office()
        await office.fetch((0, 1))
        await office.fetch((0, 2))
        if not crashed:
            office.partitions.release()
        await office.end(0, 1, error)
        assert (office.began, office.reached(0), office.crashed) == ([(0, 1)], 1, crashed)


async def test_at_a_revocation_and_after_a_crash_work_in_progress_ends_and_nothing_else_begins():
    office = Office()
    await office.fetch((0, 1), (1, 3))
    await office.fetch((0, 2))
    finishing = asyncio.create_task(office.partitions.finish())
    await office.end(0, 1)
    assert not finishing.done()
    await office.end(1, 3)
    await finishing
    assert (office.began, office.reached(0), office.reached(1)) == ([(0, 1), (1, 3)], 2, 4)
    office.partitions.before_assignment()
    office.books.clear()
    await office.fetch((0, 2))
    assert office.began[2:] == [(0, 2)], "the next lease begins anew"
    office.partitions.before_assignment()
    office.books.clear()
    await office.fetch((0, 2))
    assert len(office.began) == 3, "a lease waits for what still runs of the one before"
    await office.end(0, 2)
    assert office.began[3:] == [(0, 2)]
    office.partitions.stop()
    await office.fetch((2, 0))
    assert len(office.began) == 4


# Health


def test_an_idle_worker_is_ready_once_it_has_joined_and_while_broker_and_state_answer(monkeypatch):
    logged: list[tuple[str, dict[str, Any]]] = []
    said = SimpleNamespace(
        **dict.fromkeys(("warning", "info"), lambda event, **at: logged.append((event, at)))
    )
    monkeypatch.setattr(health_module, "log", said)
    time = [1000.0]
    health = Health(lambda: time[0])
    time[0] += 300
    assert health.unready() == "starting", "topics may be waited for, before anything is watched"
    health.tick()
    health.partitions = 0
    assert health.unready() == ""
    for dependency, other in (("broker", "state"), ("state", "broker")):
        logged.clear()
        pauses = REGISTRY.get_sample_value("groundwire_pauses_total", {"dependency": dependency})
        for _ in range(150):
            time[0] += 1
            health.answered(other)
            health.tick()
        assert health.unready() == f"paused: {dependency}"
        assert REGISTRY.get_sample_value("groundwire_paused", {"dependency": dependency}) == 1
        assert not health.waiters(dependency), "no partition does"
        assert logged == [
            ("paused", {"dependency": dependency, **more}) for more in ({}, {"seconds": 60}, {"seconds": 120})
        ]
        health.answered(dependency)
        assert health.unready() != "", "until the next tick"
        health.tick()
        assert health.unready() == ""
        assert logged[-1] == ("resumed", {"dependency": dependency})
        assert REGISTRY.get_sample_value("groundwire_pauses_total", {"dependency": dependency}) == pauses + 1
    time[0] += 10
    assert health.unready() == "paused: broker, state", "a loop that hangs does not tick"
    health.answered("state")
    time[0] += 1 + PATIENCE  # the next answer waits for a primary that is away
    health.answered("broker")
    assert health.unready() == ""


async def test_a_worker_is_dead_when_its_loop_or_its_work_stalls_for_no_known_reason():
    time = [1000.0]
    health = Health(lambda: time[0])
    time[0] += 10 * STALL_SECONDS
    assert not health.alive()
    health.tick()
    assert health.alive(), "an idle worker"
    await health.before_batch(Mock())
    assert health.alive(), "work that has only begun"
    time[0] += STALL_SECONDS + 1
    health.answered("broker")
    health.answered("state")
    health.tick()
    assert not health.alive()
    health.begin("broker")
    assert health.alive()
    health.end("broker")
    health.progress()
    assert health.alive()
