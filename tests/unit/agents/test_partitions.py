"""What runs alone after crashes, in which order batches of a partition run, and what readiness and liveness say."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.observability import STALL_SECONDS
from agents.partitions import STATE_SECONDS, CrashGuard, Health, LeaseLost, PartitionLease, PartitionWorkers
from groundwire.errors import StateUnavailable
from groundwire.messages.headers import InboundRecord
from groundwire.state.model import InFlightMark

# --- the crash guard


class Marks:
    """State, as far as the guard uses it; `delay`, seconds until something is sent, `answer`, until it is answered."""

    def __init__(self, left: InFlightMark | None = None, delay: float = 0.0, answer: float = 0.0) -> None:
        self.held = self.answered = left
        self.delay = delay
        self.answer = answer
        self.broken = False

    async def marks(self, topic, partition):
        if self.broken:
            raise StateUnavailable("gone")
        return self.held

    async def mark(self, topic, partition, mark):
        await asyncio.sleep(self.delay)
        if self.broken:
            raise StateUnavailable("gone")
        self.held = mark
        return asyncio.create_task(self._answer(mark))

    async def _answer(self, mark):
        await asyncio.sleep(self.answer)
        self.answered = mark


def records(first: int, last: int) -> list[InboundRecord]:
    return [InboundRecord("t", 0, offset, 0, None, b"") for offset in range(first, last + 1)]


def shape(portions):
    return [(portion[0].offset, portion[-1].offset, crashes) for portion, crashes in portions]


@pytest.mark.parametrize(
    ("left", "batches", "expected"),
    [
        pytest.param(None, [(0, 9)], [[(0, 9, 0)]], id="without a crash a batch runs as one"),
        pytest.param(InFlightMark(0, 4, 0), [(0, 9)], [[(0, 9, 1)]], id="after one crash as one, counted"),
        pytest.param(
            InFlightMark(3, 4, 1),
            [(0, 9)],
            [[(0, 2, 0), (3, 3, 2), (4, 4, 2), (5, 9, 0)]],
            id="after two crashes suspects run alone and the others in their place",
        ),
        pytest.param(
            InFlightMark(0, 5, 1),
            [(0, 3), (4, 5), (6, 8), (9, 9)],
            [[(n, n, 2) for n in range(4)], [(4, 4, 2), (5, 5, 2)], [(6, 8, 0)], [(9, 9, 0)]],
            id="suspects are remembered over several batches",
        ),
    ],
)
async def test_what_was_in_flight_at_a_crash_is_isolated(left, batches, expected):
    guard = CrashGuard(Marks(left), "t", 0)
    await guard.load()
    assert [shape(guard.portions(records(*batch))) for batch in batches] == expected


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 4),
    st.lists(st.integers(1, 8), min_size=1, max_size=8),
)
def test_portions_are_the_batch_in_its_order_and_every_suspect_carries_its_crashes(
    first, more, crashes, sizes
):
    left = InFlightMark(first, first + more, crashes)
    guard = CrashGuard(Marks(left), "t", 0)
    asyncio.run(guard.load())
    begin = 0
    for size in sizes:
        batch = records(begin, begin + size - 1)
        portions = guard.portions(batch)
        assert [record for portion, _ in portions for record in portion] == batch
        for portion, survived in portions:
            if any(left.first <= record.offset <= left.last for record in portion):
                assert survived == crashes + 1
                assert len(portion) == 1 or survived < 2
        begin += size


async def test_the_mark_is_sent_before_the_records_are_touched_and_its_answer_waited_for_after_a_crash():
    state = Marks(delay=0.01, answer=0.01)
    guard = CrashGuard(state, "t", 0)
    await guard.mark(records(3, 7), 0)
    assert (state.held, state.answered) == (InFlightMark(3, 7, 0), None)
    await guard.mark(records(3, 7), 1)
    assert state.answered == InFlightMark(3, 7, 1)
    await guard.unmark_now(records(3, 7))
    assert state.held is None, "a batch that is given up alive leaves no mark"


async def test_a_mark_is_not_held_up_by_the_answer_to_the_one_before():
    state = Marks(answer=60.0)
    guard = CrashGuard(state, "t", 0)
    async with asyncio.timeout(2):
        await guard.mark(records(0, 1), 0)
        guard.unmark(records(0, 1))
        await guard.mark(records(2, 3), 0)
    assert state.held == InFlightMark(2, 3, 0)


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_state_that_takes_no_mark_holds_up_nothing(delay):
    state = Marks(delay=delay)
    state.broken = True
    guard = CrashGuard(state, "t", 0)
    async with asyncio.timeout(2):
        await guard.load()
        await guard.mark(records(0, 1), 0)
        await guard.unmark_now(records(0, 1))
    assert shape(guard.portions(records(0, 1))) == [(0, 1, 0)]
    for sending in guard._sending:
        sending.cancel()


# --- the order of batches


class Bench:
    """Partition workers whose batches end when the test says so, and a consumer that takes notes."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.done: list[int] = []
        self.given_back: list[int] = []
        self.crashed: list[BaseException] = []
        self.ends: dict[int, asyncio.Future[None]] = {}
        self.leases: dict[int, PartitionLease] = {}
        self.health = Health()
        self.workers = PartitionWorkers(self.process_batch, self.health)
        consumer = SimpleNamespace(
            mark_done=lambda message: self.done.append(message.number),
            read_on=lambda _message: None,
            give_back=lambda message: self.given_back.append(message.number),
        )
        self.app = SimpleNamespace(consumer=consumer, crash=self.crash)

    async def crash(self, error: BaseException) -> None:
        self.crashed.append(error)

    async def process_batch(self, number: int, lease: PartitionLease, read_on) -> None:
        async with lease.first():
            await self.process_first(number, lease)

    async def process_first(self, number: int, lease: PartitionLease) -> None:
        self.began.append(number)
        self.leases[number] = lease
        await self.ends.setdefault(number, asyncio.get_running_loop().create_future())

    async def submit(self, *batches: tuple[int, int]) -> None:
        for number, partition in batches:
            message = SimpleNamespace(topic="t", partition=partition, number=number)
            self.workers.submit(SimpleNamespace(message=message, value=number, app=self.app))
        await asyncio.sleep(0.01)

    async def finish(self, number: int, error: BaseException | None = None) -> None:
        future = self.ends.setdefault(number, asyncio.get_running_loop().create_future())
        future.set_exception(error) if error else future.set_result(None)
        await asyncio.sleep(0.01)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_a_partitions_batches_run_one_after_the_other_and_wait_for_no_other_partition(bench: Bench):
    await bench.submit((1, 0), (2, 0), (3, 1))
    assert bench.began == [1, 3]
    assert bench.health.under_way == 3
    await bench.finish(1)
    assert (bench.began, bench.done, bench.health.under_way) == ([1, 3, 2], [1], 2)


async def test_behind_a_batch_that_was_let_go_nothing_of_the_lease_is_done_and_the_next_holder_begins_anew(
    bench: Bench,
):
    await bench.submit((1, 0), (2, 0))
    await bench.finish(1, LeaseLost())
    assert (bench.began, bench.given_back, bench.done) == ([1], [1, 2], [])
    bench.workers.take_over()
    await bench.submit((3, 0))
    await bench.finish(3)
    assert bench.done == [3]


async def test_after_a_release_work_in_progress_ends_and_nothing_else_begins(bench: Bench):
    await bench.submit((1, 0), (2, 0), (3, 1))
    bench.workers.release()
    assert all(lease.over for lease in bench.leases.values())
    await bench.finish(1)
    assert (bench.done, bench.given_back) == ([1], [2])


async def test_what_comes_after_the_stop_is_let_go(bench: Bench):
    bench.workers.stop()
    await bench.submit((1, 0))
    assert (bench.began, bench.given_back) == ([], [1])


async def test_an_error_that_no_batch_survives_brings_the_worker_down(bench: Bench):
    await bench.submit((1, 0), (2, 0))
    await bench.finish(1, MemoryError())
    assert [type(error) for error in bench.crashed] == [MemoryError]
    assert bench.given_back == [1, 2]


# --- health


@pytest.fixture
def time() -> list[float]:
    return [1000.0]


@pytest.fixture
def health(time: list[float]) -> Health:
    return Health(lambda: time[0])


def test_a_worker_is_ready_once_it_has_joined_and_while_it_waits_for_nothing(
    health: Health, time: list[float]
):
    health.state_answered()
    assert not health.ready()
    health.partitions = 0
    assert health.ready()
    time[0] += STATE_SECONDS + 1
    assert health.waits_for == {"state"}, "nothing was heard of it"
    assert not health.ready()
    health.state_answered()
    health.begin("state")
    assert not health.ready()
    health.end("state")
    assert health.ready()


def test_an_event_loop_that_stands_still_is_dead_and_an_idle_worker_is_alive(
    health: Health, time: list[float]
):
    time[0] += 10 * STALL_SECONDS
    assert not health.alive(STALL_SECONDS)
    health.tick()
    assert health.alive(STALL_SECONDS)
    health.start_batch()
    assert health.alive(STALL_SECONDS), "work that has only begun is given time"


def test_work_that_does_not_get_on_is_dead_unless_it_is_known_why(health: Health, time: list[float]):
    health.under_way = 1
    time[0] += STALL_SECONDS + 1
    health.tick()
    assert not health.alive(STALL_SECONDS)
    health.begin("broker")
    assert health.alive(STALL_SECONDS)
    health.end("broker")
    health.progress()
    assert health.alive(STALL_SECONDS)
