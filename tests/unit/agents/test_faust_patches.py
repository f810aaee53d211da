"""What replaces parts of Faust and aiokafka, without a broker; tests/stream/test_batches.py has it on one."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.producer import message_accumulator
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from agents import faust_patches
from agents.app import build_app
from agents.faust_patches import FETCH_WAIT, BatchConsumer, LoopConsumer, NoTables, PatientProducer
from groundwire.config import Settings

A, B = TP("claims", 0), TP("claims", 1)


# --- the records that are not done


def message(first: int, last: int, taken: float) -> Any:
    records = [SimpleNamespace(offset=offset) for offset in range(first, last + 1)]
    return SimpleNamespace(value=records, offset=last, time_in=taken)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer that holds partition A, which can be read to 100, and knows nothing of B."""
    monkeypatch.setattr(faust_patches.time, "monotonic", lambda: 1000.0)
    assignment = SimpleNamespace(state_value={A: SimpleNamespace(highwater=150, lso=100)}.get)
    subscription = SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    thread = SimpleNamespace(_ensure_consumer=lambda: SimpleNamespace(_subscription=subscription))
    made: Any = SimpleNamespace(_thread=thread, _under_way=defaultdict(deque), _done_until={}, _held=True)
    made.backlog = lambda: BatchConsumer.backlog(made)
    return made


def test_records_count_from_the_first_that_is_not_done_to_the_end_of_the_partition(consumer: Any):
    assert consumer.backlog() == (0, 0.0), "a worker that has read nothing is behind by nothing"
    consumer._under_way[A].append(message(40, 49, 990.0))
    assert consumer.backlog() == (60, 10.0)
    consumer._done_until[A] = 95
    assert consumer.backlog() == (5, 10.0)
    consumer._under_way[A].clear()
    assert consumer.backlog() == (5, 0.0)
    consumer._held = False
    assert consumer.backlog() == (0, 0.0), "partitions that were given away count for nothing"


def test_the_oldest_batch_of_all_partitions_gives_the_age(consumer: Any):
    consumer._under_way[A] += [message(0, 9, 980.0), message(10, 19, 999.0)]
    consumer._under_way[B].append(message(0, 9, 970.0))
    assert consumer.backlog() == (100, 30.0)


# --- the consumer in the event loop


class Client:
    closed = False

    async def close(self):
        self.closed = True


async def test_a_fetch_that_waits_for_a_node_that_is_away_does_not_keep_the_consumer_from_ending():
    waiting, idle = (asyncio.create_task(asyncio.sleep(3600)) for _ in range(2))
    await asyncio.sleep(0)
    fetcher = Fetcher.__new__(Fetcher)
    fetcher._fetch_task, fetcher._fetch_waiters, fetcher._pending_tasks = idle, set(), {waiting}
    consumer = AIOKafkaConsumer.__new__(AIOKafkaConsumer)
    consumer._closed, consumer._coordinator, consumer._fetcher = False, None, fetcher
    consumer._client, consumer._source_traceback = Client(), None
    thread = LoopConsumer.__new__(LoopConsumer)
    thread._consumer, thread.set_shutdown = consumer, Mock()
    await thread.on_stop()
    assert consumer._client.closed
    thread.set_shutdown.assert_called_once_with()
    assert waiting.cancelled()


async def test_what_faust_would_have_a_thread_do_is_done_at_once():
    consumer = LoopConsumer.__new__(LoopConsumer)
    assert await consumer.call_thread(AsyncMock(return_value=1), 2) == 1
    assert await consumer.call_thread(max, 2, 3) == 3, "Faust subscribes by a method that is not awaited"


def test_a_busy_partition_waits_a_tenth_of_a_second_at_most_for_a_fetch_of_silent_ones(monkeypatch):
    as_faust_makes_it: Any = SimpleNamespace(
        _fetch_max_wait_ms=1500, _client=SimpleNamespace(_metadata_update=None), commit=None
    )
    monkeypatch.setattr(AIOKafkaConsumerThread, "_create_worker_consumer", lambda *_: as_faust_makes_it)
    consumer = LoopConsumer.__new__(LoopConsumer)._create_worker_consumer(None)
    assert consumer._fetch_max_wait_ms == FETCH_WAIT == 100
    assert consumer._isolation_level == "read_committed"


async def test_a_fetch_that_waits_takes_the_records_of_a_partition_that_has_room_again(monkeypatch):
    monkeypatch.setattr(FetchResult, "getall", lambda _self, _most: ["a record"])
    monkeypatch.setattr(FetchResult, "has_more", lambda _self: False)
    fetcher = Fetcher.__new__(Fetcher)
    fetcher._subscriptions = SimpleNamespace(reassignment_in_progress=False, is_assigned=lambda _tp: True)
    fetcher._loop, fetcher._fetch_waiters = asyncio.get_running_loop(), set()
    fetcher._closed, fetcher._wait_consume_future = False, None
    fetcher._records = {A: FetchResult.__new__(FetchResult)}
    thread = LoopConsumer.__new__(LoopConsumer)
    thread._consumer = SimpleNamespace(_fetcher=fetcher)
    ready = {B}
    fetching = asyncio.create_task(fetcher.fetched_records(ready, timeout=60))
    await asyncio.sleep(0)
    assert fetcher._fetch_waiters
    ready.add(A)
    thread.wake()
    assert await asyncio.wait_for(fetching, 5) == {A: ["a record"]}


def test_a_broker_is_asked_to_answer_soon_while_records_of_a_partition_wait_here_for_a_moment():
    waits: list[int] = []
    fetcher: Any = SimpleNamespace(_records={}, _fetch_max_wait_ms=None)
    new, old = (SimpleNamespace(_created=time.monotonic() - age) for age in (0.1, 60))
    for records in ({A: old, B: new}, {A: old}, {}):
        fetcher._records = records
        faust_patches._actions(fetcher, lambda _: waits.append(fetcher._fetch_max_wait_ms), None)
    assert waits == [10, FETCH_WAIT, FETCH_WAIT], "one whose batches take for long is in no hurry"


def test_workers_have_such_a_consumer_and_no_tables(monkeypatch):
    app = build_app("claims", Settings())
    assert isinstance(app.tables, NoTables)
    assert app._new_transport().Consumer is BatchConsumer
    monkeypatch.setattr(LoopConsumer, "__init__", lambda *_made, **_options: None)
    consumer: Any = SimpleNamespace(loop=None, beacon=None)
    assert isinstance(BatchConsumer._new_consumer_thread(consumer), LoopConsumer)


# --- no tables


def tables(*names: str) -> tuple[NoTables, set[Any]]:
    """Return the tables of an app whose agents read topics, and what the app knows of them so far."""
    known: set[Any] = set()
    agents = {name: SimpleNamespace(get_topic_names=lambda name=name: [name]) for name in names}
    waiting = NoTables(SimpleNamespace(topics=known, agents=agents))  # type: ignore[arg-type]
    waiting._update_channels = AsyncMock()
    waiting._recovery = AsyncMock()
    return waiting, known


class Topic:
    def __init__(self, name: str) -> None:
        self.topics = [name]


async def test_topics_are_subscribed_when_those_of_every_agent_are_known_and_no_sooner() -> None:
    waiting, known = tables("a", "b")
    starting = asyncio.create_task(waiting.on_start())
    for name in ("a", "b"):
        await asyncio.sleep(0.03)
        waiting._update_channels.assert_not_awaited()
        known.add(Topic(name))
    await starting
    waiting._update_channels.assert_awaited_once()
    waiting.recovery.start.assert_awaited_once()


async def test_a_worker_that_is_told_to_end_while_it_waits_subscribes_to_nothing() -> None:
    waiting, _ = tables("a")
    starting = asyncio.create_task(waiting.on_start())
    await asyncio.sleep(0)
    waiting._stopped.set()
    await starting
    waiting._update_channels.assert_not_awaited()


# --- the producer


async def test_what_was_sent_is_kept_however_long_its_partition_has_no_leader(monkeypatch) -> None:
    producer = PatientProducer(bootstrap_servers="127.0.0.1:1", enable_idempotence=True, request_timeout_ms=1)
    accumulator = producer._message_accumulator
    sent = await accumulator.add_message(TopicPartition("approved", 0), b"t:u", b"{}", timeout=1)
    in_a_year = time.monotonic() + 365 * 86_400
    monkeypatch.setattr(message_accumulator.time, "monotonic", lambda: in_a_year)
    nodes, leaderless = accumulator.drain_by_nodes(ignore_nodes=[])
    assert (nodes, leaderless) == ({}, True)
    assert not sent.done()
    producer._closed = True  # was never started, and would flush


# --- how far a partition is read


def busy_consumer() -> Any:
    """A consumer with a fetch under way that leaves out every partition."""
    made = BatchConsumer.__new__(BatchConsumer)
    made._forget()
    made._ready, made._freed, made._thread = set(), asyncio.Event(), Mock()
    made._acked, made._unacked_messages, made._waiting_for_ack = {}, Mock(), None
    return made


def hand_out(made: Any, *batches: Any) -> None:
    for batch in batches:
        made._under_way[A].append(batch)
        made._undone[A][id(batch)] = batch


@pytest.mark.parametrize("let_go", [BatchConsumer.mark_done, BatchConsumer.read_on])
def test_the_fetch_under_way_takes_in_a_partition_once_it_has_room(let_go):
    made = busy_consumer()
    batch = Mock(serialized_value_size=1, tp=A, offset=0)
    hand_out(made, batch)
    assert not made._has_room(A)
    let_go(made, batch)
    assert made._ready == {A}
    assert made._freed.is_set()
    made._thread.wake.assert_called_once_with()


async def test_the_fetch_under_way_takes_in_partitions_that_are_newly_assigned(monkeypatch):
    monkeypatch.setattr(faust_patches.driver.Consumer, "on_partitions_assigned", AsyncMock())
    made = busy_consumer()
    made.app = Mock()
    hand_out(made, Mock(serialized_value_size=1, tp=A, offset=0))
    await BatchConsumer.on_partitions_assigned(made, {A, B})
    assert made._ready == {A, B}, "what was read before the rebalance is forgotten"
    made._thread.wake.assert_called()


def test_a_partition_is_read_past_batches_whose_small_records_are_done_up_to_so_many_bytes():
    made = busy_consumer()
    made.depth, made.read_ahead = 2, 1_000
    batches = [SimpleNamespace(serialized_value_size=400, tp=A, offset=at) for at in range(4)]

    def has_room() -> bool:
        return made._has_room(A)

    hand_out(made, *batches[:2])
    assert not has_room(), "two are on their way"
    BatchConsumer.read_on(made, batches[0])
    assert has_room()
    hand_out(made, batches[2])
    BatchConsumer.read_on(made, batches[1])
    assert not has_room(), "they hold more than is read ahead"
    BatchConsumer.mark_done(made, batches[1])
    assert has_room(), "what is done holds nothing"
    BatchConsumer.mark_done(made, batches[2])
    assert list(made._under_way[A]) == batches[:3], "the first is not done: nothing may be committed"
    BatchConsumer.mark_done(made, batches[0])
    assert (made._under_way[A], made._done_until) == (deque(), {A: batches[2].offset + 1})


# --- what could not be sealed


async def test_an_offset_that_could_not_be_sealed_is_tried_at_the_next_commit_though_nothing_new_is_done(
    monkeypatch,
):
    committed = AsyncMock(return_value=True)
    monkeypatch.setattr(faust_patches.driver.Consumer, "_commit_offsets", committed)
    seal = AsyncMock(side_effect=[{}, {A: (7, "0" * 64)}])
    app, thread = SimpleNamespace(seal=seal), SimpleNamespace()
    made: Any = object.__new__(BatchConsumer)
    made.__dict__.update(
        app=app, _thread=thread, _done_until={A: 7}, _acked={A: [6]}, _committed_offset={A: None}
    )
    assert made._filter_committable_offsets(list(made._filter_tps_with_pending_acks())) == {A: 7}
    assert not await made._commit_offsets({A: 7})
    assert list(made._filter_tps_with_pending_acks()) == [A]
    assert await made._commit_offsets({A: 7})
    assert committed.await_args.args[0] == {A: 7}
    assert list(made._filter_tps_with_pending_acks()) == []
