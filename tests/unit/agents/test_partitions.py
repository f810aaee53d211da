"""A worker's partitions: isolation after crashes, order of batches and records; its health, and its start."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
import logging
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents import process
from agents.app import ROLES, build_app, declare_agent
from agents.observability import STALL_SECONDS
from agents.partitions import (
    LARGE,
    STATE_SECONDS,
    CrashGuard,
    Health,
    LeaseLost,
    PartitionLease,
    PartitionWorkers,
    parts_of,
    small_first,
)
from groundwire.config import Settings
from groundwire.errors import StateUnavailable, UsageError
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy
from groundwire.state.model import InFlightMark


class Marks:
    """State as the guard uses it; answers come once `answers` is set."""

    def __init__(self, left: InFlightMark | None = None, *, broken: bool = False) -> None:
        self.held = self.answered = left
        self.broken = broken
        self.answers = asyncio.Event()

    async def marks(self, topic, partition):
        if self.broken:
            raise StateUnavailable("gone")
        return self.held

    async def mark(self, topic, partition, mark):
        if self.broken:
            raise StateUnavailable("gone")
        self.held = mark
        return asyncio.ensure_future(self.answer(mark))

    async def answer(self, mark):
        await self.answers.wait()
        self.answered = mark


def batch(*rows: tuple[bytes | None, int]) -> list[InboundRecord]:
    return [InboundRecord("t", 0, offset, 0, key, b"x" * size) for offset, (key, size) in enumerate(rows)]


def records(first: int, last: int) -> list[InboundRecord]:
    return batch(*[(None, 0)] * (last + 1))[first:]


async def test_what_was_in_flight_at_a_crash_is_isolated():
    """Each row: the mark that was left, batches, and for each batch its portions with their crashes."""
    rows = [
        (None, [(0, 9)], [[(0, 9, 0)]]),
        (InFlightMark(0, 4, 0), [(0, 9)], [[(0, 9, 1)]]),
        (InFlightMark(3, 4, 1), [(0, 9)], [[(0, 2, 0), (3, 3, 2), (4, 4, 2), (5, 9, 0)]]),
        (
            InFlightMark(0, 5, 1),
            [(0, 3), (4, 5), (6, 8), (9, 9)],
            [[(n, n, 2) for n in range(4)], [(4, 4, 2), (5, 5, 2)], [(6, 8, 0)], [(9, 9, 0)]],
        ),
    ]
    for left, batches, expected in rows:
        guard = CrashGuard(Marks(left), "t", 0)
        await guard.load()
        found = [guard.portions(records(*each)) for each in batches]
        assert [[(of[0].offset, of[-1].offset, n) for of, n in each] for each in found] == expected


@given(*[st.integers(0, most) for most in (30, 30, 4)], st.lists(st.integers(1, 8), min_size=1, max_size=8))
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


async def test_a_mark_is_sent_before_the_work_and_its_answer_is_waited_for_only_after_a_crash():
    state = Marks()
    guard = CrashGuard(state, "t", 0)
    for first in (0, 2):  # no mark waits for the answer to the one before
        await guard.mark(records(first, first + 1), 0)
        assert (state.held, state.answered) == (InFlightMark(first, first + 1, 0), None)
        guard.unmark(records(first, first + 1))
    state.answers.set()
    await guard.mark(records(3, 7), 1)
    assert state.answered == InFlightMark(3, 7, 1)
    await guard.unmark_now(records(3, 7))
    assert state.answered is None, "a worker that exits cleanly leaves no mark"
    guard = CrashGuard(Marks(InFlightMark(0, 1, 2), broken=True), "t", 0)
    async with asyncio.timeout(60):  # state that takes no mark holds up nothing
        await guard.load()
        await guard.mark(records(0, 1), 0)
        await guard.unmark_now(records(0, 1))
    assert [(len(portion), crashes) for portion, crashes in guard.portions(records(0, 1))] == [(2, 0)]


def test_small_records_pass_large_ones_of_other_keys_alone():
    """Each row: keys and sizes, bytes that run together, keys held, offsets that go first and those behind."""
    a, b, none = (b"a", 1), (b"b", 1), (None, 1)
    large = (b"a", LARGE)
    sized = [(b"a", 60), (b"b", 30), (b"c", 30), (b"d", 30), (b"e", 10)]
    rows = [
        ([large, b, large, (b"c", LARGE - 1)], None, (), [[1, 3], [0, 2]]),
        ([a, none, b], None, (), [[0, 1, 2], []]),
        ([large, none, b], None, (), [[2], [0, 1]]),
        ([large, a, b], None, (), [[2], [0, 1]]),
        ([a, b, none], None, {b"a"}, [[1], [0, 2]]),
        (sized, 80, (), [[1, 2, 4], [0, 3]]),
    ]
    for given_rows, most, held, expected in rows:
        parts = small_first(batch(*given_rows), most, held)
        assert [[record.offset for record in part] for part in parts] == expected
    for most, expected in ((70, [[0], [1, 2], [3], [4]]), (0, [[0], [1], [2], [3], [4]])):
        parts = parts_of(batch(*sized[:3], (b"d", 90), (b"e", 10)), most)
        assert [[record.offset for record in part] for part in parts] == expected


ROW = st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.sampled_from([10, LARGE - 1, LARGE]))


@given(st.lists(ROW, min_size=1, max_size=20), st.sampled_from([None, 15, LARGE, 3 * LARGE]))
def test_every_record_is_processed_once_and_those_of_a_key_in_their_order(rows, most):
    first, behind = small_first(batch(*rows), most)
    done = [*first, *chain.from_iterable(parts_of(behind, most or 0))]
    assert sorted(record.offset for record in done) == list(range(len(rows)))
    for key in {key for key, _ in rows}:
        of_key = [record.offset for record in done if record.key == key]
        assert of_key == sorted(of_key)


class Office:
    """Partition workers whose batches end when the test says so, and a consumer that records."""

    def __init__(self) -> None:
        self.began: list[int] = []
        self.done: list[int] = []
        self.given_back: list[int] = []
        self.crashed: list[type[BaseException]] = []
        self.ends: dict[int, asyncio.Future[None]] = {}
        self.health = Health()
        self.workers = PartitionWorkers(self.process_batch, self.health)
        self.consumer = SimpleNamespace(
            mark_done=lambda message: self.done.append(message.number),
            read_on=lambda _message: None,
            give_back=lambda message: self.given_back.append(message.number),
        )

    async def crash(self, error: BaseException) -> None:
        self.crashed.append(type(error))

    async def process_batch(self, number: int, lease: PartitionLease, read_on) -> None:
        async with lease.first():
            self.began.append(number)
            self.lease = lease
            await self.ends.setdefault(number, asyncio.get_running_loop().create_future())

    async def submit(self, *batches: tuple[int, int]) -> None:
        app = SimpleNamespace(consumer=self.consumer, crash=self.crash)
        for number, partition in batches:
            message = SimpleNamespace(topic="t", partition=partition, number=number)
            self.workers.submit(SimpleNamespace(message=message, value=number, app=app))
        await self.turns()

    async def finish(self, number: int, error: BaseException | None = None) -> None:
        future = self.ends.setdefault(number, asyncio.get_running_loop().create_future())
        future.set_exception(error) if error else future.set_result(None)
        await self.turns()

    async def turns(self) -> None:
        for _ in range(50):
            await asyncio.sleep(0)


async def test_batches_of_a_partition_run_in_order_and_wait_for_no_other_partition():
    office = Office()
    await office.submit((1, 0), (2, 0), (3, 1))
    assert (office.began, office.health.under_way) == ([1, 3], 3)
    await office.finish(1)
    assert (office.began, office.done, office.health.under_way) == ([1, 3, 2], [1], 2)
    await office.submit((4, 0))
    office.workers.release()
    assert office.lease.over
    await office.finish(2)
    assert (office.began, office.done, office.given_back) == ([1, 3, 2], [1, 2], [4]), "nothing else begins"
    office.workers.stop()
    await office.submit((5, 2))
    assert (office.began, office.given_back) == ([1, 3, 2], [4, 5])
    for error, crashed in ((LeaseLost(), []), (MemoryError(), [MemoryError])):
        office = Office()
        await office.submit((1, 0), (2, 0))
        await office.finish(1, error)
        found = office.began, office.given_back, office.done, office.crashed
        assert found == ([1], [1, 2], [], crashed), "nothing behind an unfinished batch is committed"
        office.workers.take_over()
        await office.submit((3, 0))
        await office.finish(3)
        assert office.done == [3], "the next lease begins anew"


# Health


def test_a_worker_is_ready_while_it_waits_for_nothing_and_dead_when_it_stalls_for_no_known_reason():
    time = [1000.0]
    health = Health(lambda: time[0])
    health.state_answered()
    assert not health.ready()
    health.partitions = 0
    assert health.ready()
    time[0] += STATE_SECONDS + 1
    assert (health.waits_for, health.ready()) == ({"state"}, False)
    health.state_answered()
    health.begin("state")
    assert not health.ready()
    health.end("state")
    assert health.ready()
    health = Health(lambda: time[0])
    time[0] += 10 * STALL_SECONDS
    assert not health.alive(STALL_SECONDS), "its loop stalls"
    health.tick()
    assert health.alive(STALL_SECONDS), "an idle worker"
    health.start_batch()
    assert health.alive(STALL_SECONDS), "work that has only begun"
    time[0] += STALL_SECONDS + 1
    health.tick()
    assert not health.alive(STALL_SECONDS)
    health.begin("broker")
    assert health.alive(STALL_SECONDS)
    health.end("broker")
    health.progress()
    assert health.alive(STALL_SECONDS)


# The start of a worker


def test_where_checks_run_beside_the_event_loop_it_gets_its_turns_sooner(monkeypatch):
    for role in ("responses", "claims"):
        chosen: list[float] = []
        monkeypatch.setattr("sys.setswitchinterval", chosen.append)
        process.share_time(role)
        assert [seconds < 0.005 for seconds in chosen] == [True] * (role == "responses")


def test_agents_and_tasks_are_declared_without_reading_the_sources_of_all_modules(monkeypatch):
    def look(*_frame: object) -> None:
        raise AssertionError("the sources of all modules are read")

    async def task(*_batch: object) -> None: ...

    monkeypatch.setattr("inspect.getframeinfo", look)
    app = build_app("claims", Settings())
    declare_agent(app, "claims", "", PartitionWorkers(task, Health()))
    app.task(task)
    assert list(app.agents) == ["claims"]
    assert len(app._app_tasks) == 1


async def test_an_unreachable_broker_is_reported_once_and_its_client_is_muted(caplog):
    level = logging.getLogger("aiokafka").level
    with pytest.raises(UsageError, match=r"^GROUNDWIRE_BROKERS: no broker at 127\.0\.0\.1:1 answered"):
        await process.await_broker("127.0.0.1:1", 0.5)
    assert caplog.text == ""
    assert logging.getLogger("aiokafka").level == level


def test_advice_names_settings_that_are_valid_but_hardly_meant(tmp_path, monkeypatch):
    monkeypatch.setattr("os.environ", {"GROUNDWIRE_REDIS_ULR": "x", "GROUNDWIRE_REDIS_URL": "redis://x"})

    def advice(role, policy=None, **settings):
        return dict(process.advice(role, policy or Policy(), Settings(**settings)))

    here, mistyped = Path(__file__), tmp_path / "mistyped"
    strict, keyed = Policy(attestation="hmac"), {"keys_file": here}
    rows = [
        *[(role, strict, {}, "attestation.no_keys", True) for role in set(ROLES) - {"reviews"}],
        *[(role, strict, keyed, "attestation.no_keys", False) for role in ROLES],
        *[(role, None, {}, "attestation.no_keys", False) for role in ROLES],
        ("reviews", strict, {}, "review.no_keys", True),
        ("reviews", None, keyed, "review.no_keys", False),
        *[(role, None, {}, "sources.none", role in {"claims", "deferred"}) for role in ROLES],
        *[("claims", None, {n: here}, "sources.none", False) for n in ("adr_dir", "repo", "tenants_file")],
        *[("claims", None, {n: mistyped}, "path.missing", True) for n in ("adr_dir", "repo", "keys_file")],
    ]
    wrong = [row for row in rows if (row[3] in advice(row[0], row[1], **row[2])) is not row[4]]
    assert wrong == []
    sentence = advice("reviews")["review.no_keys"]
    assert "GROUNDWIRE_KEYS_FILE" in sentence
    assert "groundwire keys new" in sentence
    assert advice("claims", repo=mistyped)["path.missing"] == f"GROUNDWIRE_REPO: there is no {mistyped}"
    misspelt = "GROUNDWIRE_REDIS_ULR is no setting of Groundwire; did you mean GROUNDWIRE_REDIS_URL?"
    assert advice("responses", redis_url="redis://x") == {"setting.unknown": misspelt}
