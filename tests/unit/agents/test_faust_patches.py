"""What replaces parts of Faust and aiokafka, without a broker; tests/stream/test_batches.py has it on one."""

from __future__ import annotations

import asyncio
import inspect
import time
from hashlib import sha256
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher, FetchResult
from aiokafka.consumer.subscription_state import TopicPartitionState
from aiokafka.producer import message_accumulator
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.protocol.commit import OffsetCommitResponse_v3
from aiokafka.protocol.group import HeartbeatResponse_v1
from aiokafka.protocol.metadata import MetadataRequest_v4, MetadataResponse_v1
from aiokafka.structs import OffsetAndMetadata
from faust.app.base import App
from faust.tables.manager import TableManager
from faust.transport.consumer import Consumer
from faust.transport.drivers import aiokafka as driver
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread
from faust.types import TP

from agents import faust_patches
from agents.book import PartitionBook
from agents.faust_patches import FETCH_WAIT, FetchConsumer, LoopConsumer, NoTables, PatientProducer
from groundwire.messages.headers import InboundRecord

A, B = TP("claims", 0), TP("claims", 1)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer that holds partition A, which can be read to 100, with a fetch in flight that leaves out all."""
    assignment = SimpleNamespace(state_value={A: SimpleNamespace(highwater=150, lso=100)}.get)
    made = FetchConsumer.__new__(FetchConsumer)
    made.app = Mock(partitions=Mock(new_book=lambda: PartitionBook(clock=lambda: made.now)))
    made.books, made.positions, made.starts, made._recreated = {}, {}, {}, set()
    made._committed_offset = {A: 100}
    made._ready, made._freed, made._held, made._thread = set(), asyncio.Event(), True, Mock()
    subscription = made._thread._ensure_consumer.return_value._subscription.subscription
    subscription.assignment = assignment
    made.now = 1000.0
    monkeypatch.setattr(faust_patches.time, "monotonic", lambda: made.now)
    return made


READ = {
    AIOKafkaConsumer.stop: "bc5da9c9",
    AIOKafkaConsumerThread: "8ca70be3",
    Fetcher: "2b011d91",
    MessageAccumulator: "56253097",
    TopicPartitionState: "2b83334a",
    driver.Producer: "d160f20a",
    TableManager: "f6eed128",
    App: "d298eddf",
    Consumer: "2a6a3720",
}
"""What is replaced or relied upon in Faust and aiokafka, with the hash of its source when it was last read."""


def test_nothing_that_is_replaced_has_changed_since_it_was_read() -> None:
    """Where it has, read it again, with its row of `agents/faust_patches.py`."""
    found = {what: sha256(inspect.getsource(inspect.unwrap(what)).encode()).hexdigest()[:8] for what in READ}
    assert found == READ


def hand_out(made: Any, first: int, last: int, tp: TP = A) -> PartitionBook:
    book: PartitionBook = made._book(tp)
    book.add([InboundRecord(*tp, at, 0, b"%d" % at, b"") for at in range(first, last + 1)], last + 1)
    return book


def test_undone_records_count_from_the_first_one_to_the_end_of_the_partition(consumer: Any):
    assert consumer.backlog() == (0, 0.0), "a worker that has read nothing is behind by nothing"
    book = hand_out(consumer, 40, 49)
    first = book.take(large=False)
    consumer.now += 10
    hand_out(consumer, 50, 59)
    assert consumer.backlog() == (60, 10.0)
    book.done(first)
    assert consumer.backlog() == (50, 0.0)
    consumer.now += 5
    other = hand_out(consumer, 0, 9, B)
    assert consumer.backlog() == (50, 5.0), "the oldest fetch of all partitions gives the age"
    book.done(book.take(large=False))
    other.done(other.take(large=False))
    assert consumer.backlog() == (40, 0.0)
    consumer._held = False
    assert consumer.backlog() == (0, 0.0), "revoked partitions count for nothing"


async def test_a_fetch_that_ends_after_a_revocation_says_nothing_of_the_next_assignment(consumer: Any):
    """A book that began at an offset of an earlier assignment would have its seals begin a second chain."""

    async def fetch(position: int, *, held: bool) -> None:
        state = SimpleNamespace(position=position, has_valid_position=True)
        assignment = SimpleNamespace(active=True, state_value={A: state}.get)
        consumer._fetch, consumer._ready, consumer._held = AsyncMock(return_value=(assignment, {})), {A}, held
        assert [one async for one in consumer.getmany(1.0)] == []

    consumer.positions = {}
    await fetch(100, held=False)
    await fetch(200, held=True)
    assert not consumer.books
    await fetch(203, held=True)
    book = consumer.books[A]
    assert (book.first_offset, book.committable) == (200, 203), "transaction markers"


def test_records_that_are_gone_are_reported_and_passed_over_and_an_earlier_start_has_all_partitions_assigned_anew(
    consumer: Any,
):
    lost, rejoin = consumer.app.partitions.note_lost, consumer._thread._ensure_consumer()._coordinator
    consumer.starts[A] = OffsetAndMetadata(-1, "")
    consumer.note_start(A, 40)
    consumer.starts[B] = OffsetAndMetadata(100, "")
    consumer.note_start(B, 100)
    lost.assert_not_called()  # nothing was committed, and what was is where it goes on
    consumer.note_start(B, 130)
    lost.assert_called_once_with(B, 100, 130)
    assert consumer.books[B].committable == 130
    rejoin.request_rejoin.assert_not_called()
    hand_out(consumer, 40, 49)
    consumer.note_start(A, 3)
    rejoin.request_rejoin.assert_called_once_with()
    assert A not in consumer.books, "nothing of the other log is committed"
    assert not consumer._has_room(A)
    assert consumer._has_room(B)
    lost.assert_called_once()
    consumer.positions.clear()
    consumer.starts[A] = OffsetAndMetadata(
        100, ""
    )  # as the group still has it: anew it would be the same again
    consumer.note_start(A, 0)
    rejoin.request_rejoin.assert_called_once_with()


async def test_the_fetch_in_flight_takes_in_partitions_that_have_room_or_are_newly_assigned(
    consumer, monkeypatch
):
    book = hand_out(consumer, 0, 0)
    batch = book.take(large=False)
    consumer.note_room(A)
    assert consumer._ready == set()
    book.done(batch)
    consumer.note_room(A)
    assert consumer._ready == {A}
    assert consumer._freed.is_set()
    consumer._thread.wake.assert_called_once_with()
    consumer._ready.clear()
    monkeypatch.setattr(faust_patches.driver.Consumer, "on_partitions_assigned", AsyncMock())
    hand_out(consumer, 1, 1)
    await FetchConsumer.on_partitions_assigned(consumer, {A, B})
    assert consumer._ready == {A, B}, "what was read before the rebalance is forgotten"


async def test_a_fetch_that_waits_for_a_node_that_is_away_does_not_keep_the_consumer_from_ending():
    waiting, idle = (asyncio.create_task(asyncio.sleep(3600)) for _ in range(2))
    await asyncio.sleep(0)
    fetcher = Fetcher.__new__(Fetcher)
    fetcher._fetch_task, fetcher._fetch_waiters, fetcher._pending_tasks = idle, set(), {waiting}
    consumer = AIOKafkaConsumer.__new__(AIOKafkaConsumer)
    consumer._closed, consumer._coordinator, consumer._fetcher = False, None, fetcher
    consumer._client, consumer._source_traceback = AsyncMock(), None
    thread = LoopConsumer.__new__(LoopConsumer)
    thread._consumer, thread.set_shutdown = consumer, Mock()
    await thread.on_stop()
    consumer._client.close.assert_awaited()
    thread.set_shutdown.assert_called_once_with()
    assert waiting.cancelled()


async def test_a_busy_partition_waits_a_tenth_of_a_second_at_most_for_a_fetch_of_silent_ones(monkeypatch):
    """And the broker answers soon while records of a partition wait here for a moment."""
    as_faust_makes_it: Any = SimpleNamespace(
        _fetch_max_wait_ms=1500,
        _client=SimpleNamespace(_metadata_update=None, send=None),
        _group_instance_id=None,
        commit=None,
    )
    monkeypatch.setattr(AIOKafkaConsumerThread, "_create_worker_consumer", lambda *_: as_faust_makes_it)
    thread = LoopConsumer.__new__(LoopConsumer)
    thread.consumer = Mock()
    consumer = thread._create_worker_consumer(None)
    assert consumer._fetch_max_wait_ms == FETCH_WAIT == 100
    assert consumer._isolation_level == "read_committed"
    monkeypatch.setattr(AIOKafkaConsumerThread, "on_start", AsyncMock())
    waits: list[int] = []
    fetcher: Any = SimpleNamespace(_records={}, _fetch_max_wait_ms=None, _update_fetch_positions=None)
    fetcher._get_actions_per_node = lambda _: waits.append(fetcher._fetch_max_wait_ms)
    thread = LoopConsumer.__new__(LoopConsumer)
    thread._consumer = SimpleNamespace(_fetcher=fetcher)
    await thread.on_start()
    new, old = (SimpleNamespace(_created=time.monotonic() - age) for age in (0.1, 60))
    for fetcher._records in ({A: old, B: new}, {A: old}, {}):
        fetcher._get_actions_per_node(None)
    assert waits == [10, FETCH_WAIT, FETCH_WAIT], "one whose batches take for long is in no hurry"


async def test_a_worker_ends_if_another_replaces_it_again_and_again_under_its_instance_id(monkeypatch):
    now, answers = [1000.0], iter(())
    monkeypatch.setattr(faust_patches.random, "randint", lambda _least, _most: 2)
    monkeypatch.setattr(faust_patches.time, "monotonic", lambda: now[0])
    refused, fenced = HeartbeatResponse_v1(0, 25), OffsetCommitResponse_v3(0, [("claims", [(0, 0), (1, 82)])])
    good, unknown_topic = HeartbeatResponse_v1(0, 0), OffsetCommitResponse_v3(0, [("claims", [(0, 3)])])

    async def send(node, request, **_):
        return next(answers)

    def worker(instance_id: str | None) -> tuple[Any, Any]:
        coordinator = SimpleNamespace(member_id="m1")
        client = SimpleNamespace(_metadata_update=None, send=send)
        made: Any = SimpleNamespace(
            _client=client, _coordinator=coordinator, _group_instance_id=instance_id, commit=None
        )
        monkeypatch.setattr(AIOKafkaConsumerThread, "_create_worker_consumer", lambda *_: made)
        thread = LoopConsumer.__new__(LoopConsumer)
        thread.consumer = Mock()
        return thread._create_worker_consumer(None), thread.consumer.app

    made, app = worker("gate-0")
    answers = iter((good, refused, fenced, unknown_topic))
    for count in range(1, 5):  # the second says the same of the first member
        await made._client.send(0, None)
        assert app.broker_answered.call_count == count
    now[0] += 61
    made._coordinator.member_id = "m2"
    answers = iter((refused,))
    await made._client.send(0, None)
    app.give_up.assert_not_called()
    now[0] += 1
    made._coordinator.member_id = "m3"
    answers = iter((fenced,))
    await made._client.send(0, None)
    assert "GROUNDWIRE_INSTANCE_ID" in str(app.give_up.call_args.args[0])
    made, app = worker(None)
    for made._coordinator.member_id in ("m1", "m2"):
        answers = iter((refused,))
        await made._client.send(0, None)
    app.give_up.assert_not_called()


def test_faust_gives_no_advice_while_a_worker_waits():
    thread = LoopConsumer.__new__(LoopConsumer)
    thread._ensure_consumer = Mock(side_effect=AssertionError)  # type: ignore[method-assign]
    thread.verify_event_path(0.0, A)


async def test_what_another_worker_commits_later_is_not_where_an_assignment_began(monkeypatch):
    """A worker that was frozen beyond its lease would else take its first offset for that of a recreated topic."""
    began, later = OffsetAndMetadata(7, "a" * 64), OffsetAndMetadata(9, "b" * 64)
    state = TopicPartitionState(Mock())

    async def update(assignment, _node, tps) -> bool:
        for tp in tps:
            asyncio.get_running_loop().call_soon(state.update_committed, began)
            assert await assignment.state_value(tp).fetch_committed() == began
        return True

    monkeypatch.setattr(AIOKafkaConsumerThread, "on_start", AsyncMock())
    fetcher: Any = SimpleNamespace(_get_actions_per_node=None, _update_fetch_positions=update)
    thread = LoopConsumer.__new__(LoopConsumer)
    thread._consumer = SimpleNamespace(_fetcher=fetcher)
    thread.consumer = SimpleNamespace(positions={}, starts={})
    await thread.on_start()
    assert await fetcher._update_fetch_positions(SimpleNamespace(state_value=lambda _: state), 0, [A])
    state.update_committed(later)
    assert thread.consumer.starts == {A: began}


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


async def test_topics_are_subscribed_once_those_of_every_agent_are_known_unless_the_worker_ends() -> None:
    for ended in (False, True):
        known: list[Any] = []
        agents = {name: SimpleNamespace(get_topic_names=lambda name=name: [name]) for name in "ab"}
        waiting = NoTables(SimpleNamespace(topics=known, agents=agents))  # type: ignore[arg-type]
        waiting._update_channels, waiting._recovery = AsyncMock(), AsyncMock()
        starting = asyncio.create_task(waiting.on_start())
        for name in "ab":
            await asyncio.sleep(0.03)
            waiting._update_channels.assert_not_awaited()
            if ended:
                waiting._stopped.set()
            else:
                known.append(SimpleNamespace(topics=[name]))
        await starting
        assert waiting._update_channels.await_count == (not ended)


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


async def test_the_done_prefix_is_committed_once_and_what_could_not_be_sealed_at_the_next_commit(
    consumer: Any, monkeypatch
):
    committed: list[dict[TP, int]] = []

    async def commit(_consumer, offsets):
        committed.append(dict(offsets))
        consumer._committed_offset.update(offsets)
        return True

    monkeypatch.setattr(faust_patches.driver.Consumer, "_commit_offsets", commit)
    consumer._committed_offset = {}
    consumer.app.partitions.before_commit = AsyncMock(side_effect=lambda commits: commits)
    book = hand_out(consumer, 3, 6)
    assert not await consumer.force_commit(), "nothing is done"
    batch = book.take(large=False, most=2)
    hand_out(consumer, 0, 4, B)
    book.done(batch)
    assert await consumer.force_commit()
    assert not await consumer.force_commit()
    assert committed == [{A: 5}]
    book.done(book.take(large=False))
    consumer.app.partitions.before_commit.side_effect = [{}, {A: (7, "0" * 64)}]
    assert not await consumer.force_commit()
    assert await consumer.force_commit()
    assert committed == [{A: 5}, {A: 7}]
    assert consumer._thread.commits == {A: (7, "0" * 64)}


async def test_whether_topics_are_there_is_asked_of_these_alone_and_makes_none():
    asked = []

    async def send(_node, request):
        asked.append(request.build(MetadataRequest_v4))
        partitions = [(0, 0, 1, [1], [1])]
        topics = [(0, "claims", False, partitions), (3, "gone", False, [])]
        return MetadataResponse_v1([(1, "host", 9092, None)], 1, topics)

    client = SimpleNamespace(get_random_node=lambda: 1, send=send)
    consumer = SimpleNamespace(_client=client)
    thread = SimpleNamespace(_ensure_consumer=lambda: consumer)
    assert await FetchConsumer.missing(SimpleNamespace(_thread=thread), ["claims", "gone"]) == ["gone"]
    assert [(one.topics, one.allow_auto_topic_creation) for one in asked] == [(["claims", "gone"], False)]
