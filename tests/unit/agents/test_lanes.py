"""Batches of a partition run one after the other, and none counts that was let go unfinished."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agents.lanes import Lanes
from agents.pauses import Pauses
from agents.tenure import Released


class Bench:
    """Lanes with a settling that the test steers by hand, and a consumer that takes notes."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.settled: list[int] = []
        self.abandoned: list[int] = []
        self.done: dict[int, asyncio.Future[None]] = {}
        self.tenures = {}
        self.pauses = Pauses()
        self.lanes = Lanes(self.settle, self.pauses)
        consumer = SimpleNamespace(
            settle=lambda message: self.settled.append(message.number),
            abandon=lambda message: self.abandoned.append(message.number),
        )
        self.app = SimpleNamespace(consumer=consumer, crashed=[])

        async def crash(exc):
            self.app.crashed.append(exc)

        self.app.crash = crash

    async def settle(self, records, tenure) -> None:
        number = records
        self.began.append(number)
        self.tenures[number] = tenure
        await self.done.setdefault(number, asyncio.get_running_loop().create_future())

    def submit(self, number: int, partition: int = 0) -> None:
        message = SimpleNamespace(topic="t", partition=partition, number=number)
        self.lanes.submit(SimpleNamespace(message=message, value=number, app=self.app))

    async def finish(self, number: int, error: BaseException | None = None) -> None:
        future = self.done.setdefault(number, asyncio.get_running_loop().create_future())
        future.set_exception(error) if error else future.set_result(None)
        await asyncio.sleep(0.01)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_partitions_batches_run_one_after_the_other(bench: Bench):
    bench.submit(1)
    bench.submit(2)
    await asyncio.sleep(0.01)
    assert bench.began == [1]
    await bench.finish(1)
    assert (bench.began, bench.settled) == ([1, 2], [1])


async def test_partitions_do_not_wait_for_each_other(bench: Bench):
    bench.submit(1, partition=0)
    bench.submit(2, partition=1)
    await asyncio.sleep(0.01)
    assert bench.began == [1, 2]


async def test_behind_a_batch_that_was_let_go_nothing_of_the_tenure_is_done(bench: Bench):
    for number in (1, 2):
        bench.submit(number)
    await asyncio.sleep(0.01)
    await bench.finish(1, Released())
    assert bench.began == [1]
    assert bench.abandoned == [1, 2]
    assert not bench.settled


async def test_whoever_holds_the_partition_next_begins_anew(bench: Bench):
    bench.submit(1)
    await asyncio.sleep(0.01)
    await bench.finish(1, Released())
    bench.lanes.take_over()
    bench.submit(2)
    await bench.finish(2)
    assert bench.settled == [2]


async def test_a_release_ends_the_tenures_of_all_partitions(bench: Bench):
    bench.submit(1, partition=0)
    bench.submit(2, partition=1)
    await asyncio.sleep(0.01)
    bench.lanes.release()
    assert all(tenure.over for tenure in bench.tenures.values())


async def test_after_a_release_work_in_progress_ends_and_nothing_else_begins(bench: Bench):
    bench.submit(1)
    bench.submit(2)
    await asyncio.sleep(0.01)
    bench.lanes.release()
    await bench.finish(1)
    assert (bench.settled, bench.abandoned) == ([1], [2])


async def test_what_comes_after_the_stop_is_let_go(bench: Bench):
    bench.lanes.stop()
    bench.submit(1)
    await asyncio.sleep(0.01)
    assert (bench.began, bench.abandoned) == ([], [1])


async def test_an_error_that_no_batch_survives_brings_the_worker_down(bench: Bench):
    bench.submit(1)
    bench.submit(2)
    await asyncio.sleep(0.01)
    await bench.finish(1, MemoryError())
    assert [type(error) for error in bench.app.crashed] == [MemoryError]
    assert bench.abandoned == [1, 2]


async def test_work_under_way_is_counted_until_it_ends(bench: Bench):
    bench.submit(1)
    await asyncio.sleep(0.01)
    assert bench.pauses.under_way == 1
    await bench.finish(1)
    assert bench.pauses.under_way == 0
