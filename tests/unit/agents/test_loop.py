"""A batch is settled whatever happens to state, broker and process."""

from __future__ import annotations

import asyncio
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from agents import loop as module
from agents.book import LARGE
from agents.crash_marks import GIVEN_UP
from agents.hooks import Decider, Hook
from agents.publisher import ProducerBroken
from groundwire.errors import BrokerUnavailable, StateLost, StateUnavailable, TopicsMissing
from groundwire.gate.types import DeadLetter, Decided, Deferred, Provisional
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import partition_of
from groundwire.state.model import InFlightMark
from tests.unit.agents.standins import Bench, record

AWAY = StateUnavailable("away")
CLAIM = json.dumps({"claim_id": "c", "user_id": "u", "content": "text"}).encode()


@pytest.fixture(autouse=True)
def _results_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "outputs", list)


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"groundwire_{name}_total", labels) or 0.0


# Publishing


async def test_an_answer_that_is_too_old_to_publish_is_asked_for_again():
    bench = Bench()
    bench.slow = module.STALE + 1
    await bench.begin(record())
    asked = bench.asked
    bench.slow = 0.0
    await bench.finish()
    assert bench.asked == asked + 1 > 1
    assert len(bench.published) == 1


async def test_after_a_failed_publication_state_is_asked_again_and_each_decision_counts_once():
    bench, labels = Bench(), {"kind": "claim", "tier": "tier_1", "reason_code": "grounded"}
    before = sample("decisions", **labels), sample("repeats")
    bench.publish_errors, bench.fresh = [BrokerUnavailable("away"), None], [True, False, False]
    await bench.run(record())
    assert (bench.asked, bench.health.current) == (2, frozenset())
    assert (sample("decisions", **labels), sample("repeats")) == (before[0] + 1, before[1])
    await bench.run(record(1))
    assert sample("repeats") == before[1] + 1, "a decision that another record brought about"


# State that is away


async def test_state_is_waited_for_within_the_grace_of_each_outage_and_then_decided_without():
    """Each row: seconds that a step takes, how often it fails, and what is published."""
    for slow, failures, expected in ((0.0, 3, Decided), (6.0, 2, Decided), (6.0, 9, Provisional)):
        bench = Bench()
        bench.slow, bench.state_errors = slow, [AWAY] * failures
        await bench.run(record())
        assert [type(result) for result in bench.published[0]] == [expected]
        assert bench.health.current == ({"state"} if expected is Provisional else set())
        bench.now += 100
        bench.state_errors = [AWAY, None]
        await bench.run(record(1))
        assert [type(result) for result in bench.published[1]] == [expected]


async def test_an_idle_worker_ends_the_outage_when_state_answers_and_the_next_batch_has_its_grace():
    bench = Bench()
    bench.slow, bench.state_errors = 6.0, [AWAY] * 3
    await bench.run(record())
    bench.partitions.state_answered({0})
    assert bench.health.current == {"state"}, "its primary does not answer, though others do"
    bench.partitions.state_answered()
    assert not bench.health.current
    bench.now += 100
    bench.state_errors = [AWAY, None]
    await bench.run(record(1))
    assert isinstance(bench.published[1][0], Decided)


async def test_what_runs_finds_out_itself_that_state_answers_and_a_released_partition_waits_for_nothing():
    bench = Bench(grace=None)
    bench.state_errors = [AWAY] * 10_000
    await bench.begin(record())
    bench.partitions.state_answered()
    assert bench.health.current == {"state"}
    bench.loop.end()
    await bench.finish()
    assert not bench.health.current


async def test_a_partition_whose_primary_is_away_holds_up_no_other_and_counts_as_paused_until_it_is_back():
    bench, away = Bench(grace=None), True
    step = bench.apply_step

    async def apply_step(batch, *, deferred):
        if batch[0].record.offset == 0 and away:
            raise AWAY
        return await step(batch, deferred=deferred)

    bench.apply_step = apply_step
    await bench.begin(record())
    stuck = bench.loop
    bench.take_partition()
    await bench.run(record(1))
    assert (bench.offsets, bench.health.current) == ([[1]], {"state"})
    away, bench.loop = False, stuck
    await bench.finish()
    assert (bench.offsets, bench.health.current) == ([[1], [0]], frozenset())


async def test_without_a_grace_state_is_waited_for_until_the_partition_is_released():
    bench = Bench("deferred", grace=None)
    bench.state_errors = [AWAY] * 10_000
    await bench.begin(record())
    bench.loop.end()
    await bench.finish()
    assert (bench.published, bench.marked[-1], bench.loop.book.committable) == ([], None, 0)


async def test_lost_state_is_recovered_and_outcomes_are_reasserted_before_every_step():
    bench = Bench()
    bench.state_errors = [StateLost("flushed"), None]
    await bench.run(record())
    assert (bench.recovered, bench.asked, bench.reasserted) == (1, 2, 2)


async def test_an_error_of_our_own_is_tried_again_and_never_raised():
    bench = Bench()
    bench.prepare_errors = [RuntimeError("ours"), KeyError("ours"), None]
    await bench.run(record())
    assert (bench.prepared, bench.health.current) == (3, frozenset())


async def test_what_a_batch_waits_for_ends_when_its_partition_is_revoked():
    """A worker without partitions would be reported as waiting for ever."""
    for dependency, error in (
        ("broker", BrokerUnavailable),
        ("topics", TopicsMissing),
        ("internal", KeyError),
    ):
        bench = Bench()
        bench.prepare_errors = [KeyError("ours")] * 10_000 * (dependency == "internal")
        bench.publish_errors = [BrokerUnavailable("at first"), *[error("away")] * 10_000]
        await bench.begin(record())
        assert bench.health.current == {dependency}
        bench.loop.end()
        await bench.finish()
        assert not bench.health.current


async def test_the_last_lease_s_batches_are_no_longer_running_once_they_are_done():
    """Else an idle partition would be said to find out itself that state answers."""
    bench = Bench()
    await bench.begin(record())
    earlier = asyncio.create_task(asyncio.sleep(0))
    bench.loop = type(bench.loop)(bench.loop.tp, bench.loop.book, bench.services, earlier=[earlier])
    bench.task = None
    await bench.run(record(1))
    assert not bench.loop.running


# Partitions of state


async def test_a_step_waits_for_the_servers_of_its_users_and_an_action_for_that_of_its_tenant_too():
    for role, value, names in (
        ("claims", b"{}", ("ada", "bob")),
        ("reviews", b"{}", ("ada", "bob", "")),
        ("claims", b"bad", ()),
    ):
        bench = Bench(role)
        await bench.run(record(0, "ada", value), record(1, "bob", value))
        assert bench.concerned == [{partition_of("t", name, 8) for name in names}]


async def test_a_record_on_another_partition_is_counted_and_in_a_cluster_a_claim_is_sent_to_its_own():
    users = [f"u{n}" for n in range(40)]
    elsewhere = [user for user in users if partition_of("t", user, 4)]
    for role, topic, is_cluster in (
        ("claims", "claims", False),
        ("claims", "claims", True),
        ("responses", "llm-responses", True),
        ("deferred", "deferred", True),
    ):
        sender = {"input": topic, "tenant": "unknown", "producer": "unknown"}
        bench, before = Bench(role, partitions_of=lambda _topic: 4), sample("misplaced_records", **sender)
        bench.is_cluster = is_cluster
        await bench.run(
            *[replace(record(at, user), key=b"wrong t:" + user.encode()) for at, user in enumerate(users)]
        )
        results = [result for batch in bench.published for result in batch]
        sent = [result.key.decode() for result in results if isinstance(result, Deferred)]
        found = len(results), sent, sample("misplaced_records", **sender) - before
        expected = [f"t:{user}" for user in elsewhere] if is_cluster and role == "claims" else []
        assert found == (40, expected, len(elsewhere) if role != "deferred" else 0)


# Internal errors in a row


def of_many_keys(value: bytes, first: int, end: int) -> list[InboundRecord]:
    return [record(n, str(n), value) for n in range(first, end)]


async def test_after_a_hundred_internal_errors_one_record_at_a_time_is_tried_until_one_is_decided():
    bench = Bench()
    bad = of_many_keys(b"internal", 0, 203)
    await bench.run(*bad[:99])
    await bench.run(record(99))
    await bench.run(*bad[100:200])
    assert not bench.lease.pauses
    before = len(bench.published)
    await bench.run(*bad[200:], record(203))
    assert bench.lease.pauses == [5, 10, 20, 40]
    assert bench.offsets[before:] == [[200], [201], [202], [203]]
    assert not bench.health.current, "it waits no longer once one is decided"
    await bench.run(record(204), record(205))
    assert bench.offsets[-1] == [204, 205]


async def test_broken_records_neither_pause_a_worker_nor_prolong_its_pause():
    bench = Bench()
    await bench.run(*of_many_keys(b"bad", 0, 500))
    assert (bench.lease.pauses, len(bench.published)) == ([], 1)
    await bench.run(*of_many_keys(b"internal", 0, 99), *of_many_keys(b"bad", 99, 200))
    await bench.run(*of_many_keys(b"internal", 200, 201))
    assert not bench.lease.pauses
    await bench.run(*of_many_keys(b"bad", 201, 301))
    assert (bench.lease.pauses, bench.health.current) == ([5], {"internal_errors"})
    await bench.run(*of_many_keys(b"internal", 301, 302), *of_many_keys(b"bad", 302, 303))
    assert bench.lease.pauses == [5, 10]


# Records that crash workers


async def test_what_becomes_of_a_record_at_its_crashes():
    """Each row: crashes before, whether state holds its outcome, how often it is prepared, the first marks."""
    rows = [
        (2, False, 0, [InFlightMark(5, 5, 3), InFlightMark(5, 5, 2)]),
        (2, True, 1, [InFlightMark(5, 5, 3), InFlightMark(5, 5, 2)]),
        (3, False, 0, [InFlightMark(5, 5, 4), InFlightMark(5, 5, 2)]),
    ]
    for crashes, held, prepared, marks in rows:
        bench = Bench()
        bench.left, bench.outcome_held = InFlightMark(5, 5, crashes), held
        await bench.run(record(5, value=CLAIM))
        assert (bench.prepared, bench.marked[:2]) == (prepared, marks)
        (result,) = bench.published[0]
        assert isinstance(result, Decided) if held else result.error.code == "worker_crash"


async def test_a_crash_over_the_identity_itself_counts_and_one_while_state_is_asked_does_not(monkeypatch):
    async def too_large(_record, _give_up):
        raise MemoryError

    async def away(_record, _give_up):
        bench.loop.end()
        raise AWAY

    for abandon, error, last in (
        (too_large, pytest.raises(MemoryError), InFlightMark(5, 5, 3)),
        (away, nullcontext(), InFlightMark(5, 5, 2)),
    ):
        bench = Bench()
        bench.left = InFlightMark(5, 5, 2)
        monkeypatch.setattr(bench, "abandon", abandon)
        with error:
            await bench.run(record(5, value=CLAIM))
        assert [mark for mark in bench.marked if mark][-1] == last


async def test_state_that_is_lost_or_away_when_a_record_is_given_up_is_recovered_or_waited_for(monkeypatch):
    bench, errors, paused = Bench(), [StateLost("flushed"), AWAY], []
    bench.left = InFlightMark(5, 5, 2)
    bench.lease.on_pause = lambda: paused.append(set(bench.health.current))

    async def abandon(_record, _give_up):
        if errors:
            raise errors.pop(0)
        return True

    monkeypatch.setattr(bench, "abandon", abandon)
    await bench.run(record(5, value=CLAIM))
    assert (bench.recovered, paused, bench.health.current) == (1, [{"state"}], frozenset())
    assert [type(result) for result in bench.published[0]] == [DeadLetter]


# A language model


async def test_the_model_is_asked_before_state_and_waits_for_state_that_is_away():
    errors, order = [StateUnavailable("1"), StateLost("2"), None], []

    async def ask_model(batch):
        order.append(bench.asked)
        bench.now += 2 * module.STALE  # makes no answer of state stale
        if error := errors.pop(0):
            raise error
        return batch

    bench = Bench("responses", 1e6, ask_model=ask_model)
    await bench.run(record())
    assert (errors, order, bench.asked, bench.recovered) == ([], [0, 0, 0], 1, 1)
    assert not bench.health.current


async def test_the_model_is_cancelled_when_the_partition_is_revoked_and_nothing_is_decided():
    cancelled = asyncio.Event()

    async def ask_model(_batch):
        bench.loop.end()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bench = Bench("responses", ask_model=ask_model)
    await bench.run(record())
    assert cancelled.is_set()
    assert (bench.asked, bench.published) == (0, [])


# Large records run beside later batches


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench that prepares large records no further until `enough` is set."""
    bench = Bench("responses")
    bench.enough, bench.preparing = asyncio.Event(), 0
    prepare = bench.prepare

    async def hold(records):
        if any(len(one.value) >= LARGE for one in records):
            bench.preparing += 1
            await bench.enough.wait()
            bench.preparing -= 1
        return await prepare(records)

    monkeypatch.setattr(bench, "prepare", hold)
    return bench


async def test_small_records_of_later_batches_pass_large_ones_and_those_of_their_key_wait(slow):
    large = b"x" * LARGE
    batches = [
        [record(0, "mallory", large), record(1, "ann"), record(2, "mallory", large)],
        [record(3, "ann"), record(4, "mallory")],
        [record(5, "bob"), record(6, "mallory")],
    ]
    for count, batch in enumerate(batches, 1):
        await slow.begin(*batch)
        assert slow.rooms >= count, "the partition is read on"
    assert slow.offsets == [[1], [3], [5]]
    assert slow.loop.book.committable == 0
    assert InFlightMark(0, 3, 0) in slow.marked, "the mark covers what is behind and what passes it"
    slow.enough.set()
    await slow.finish()
    assert slow.offsets[3:] == [[0], [2], [4, 6]]
    await slow.run(record(7, "mallory"))
    assert slow.offsets[-1] == [7], "no key is held longer than its records"
    assert slow.marked[-1] is None


async def test_large_records_that_have_not_begun_when_the_lease_ends_are_left(slow):
    await slow.begin(record(0, "mallory", b"x" * LARGE), record(1, "mallory", b"x" * LARGE))
    slow.loop.end()
    slow.enough.set()
    await slow.finish()
    assert (slow.offsets, slow.loop.book.committable) == ([[0]], 1)


async def test_nothing_runs_beside_what_was_in_flight_at_a_crash(slow):
    slow.left = InFlightMark(0, 1, 0)
    await slow.begin(record(0, "mallory", b"x" * LARGE), record(1, "ann"))
    await slow.begin(record(2, "bob"))
    assert slow.offsets == [[1]]
    slow.enough.set()
    await slow.finish()
    assert slow.offsets == [[1], [0], [2]]


async def test_large_records_of_several_partitions_are_checked_one_at_a_time(slow):
    loops = []
    for _ in range(3):
        slow.take_partition()
        loops.append(slow.loop)
        await slow.begin(record(0, "mallory", b"x" * LARGE))
    assert slow.preparing == 1
    slow.enough.set()
    async with asyncio.timeout(60):
        while any(loop.book.undone for loop in loops):  # noqa: ASYNC110 - the book sends no event
            await asyncio.sleep(0)
    assert slow.offsets == [[0]] * 3


async def test_large_records_that_wait_for_those_of_other_partitions_are_not_marked_and_end_with_their_lease(
    slow,
):
    loops = []
    for _ in range(2):
        slow.take_partition()
        loops.append(slow.loop)
        await slow.begin(record(0, "mallory", b"x" * LARGE))
    assert [loop.book.mark for loop in loops] == [InFlightMark(0, 0, 0), None], "it can crash no worker"
    for loop in loops:
        loop.end()
    slow.enough.set()
    async with asyncio.timeout(60):
        while any(loop.running for loop in loops):  # noqa: ASYNC110 - tasks of the loops
            await asyncio.sleep(0)
    assert slow.offsets == [[0]]
    assert [loop.book.committable for loop in loops] == [1, 0]


async def test_the_end_of_small_records_keeps_the_mark_of_a_large_one(slow):
    await slow.begin(record(0, "mallory", b"x" * LARGE), record(1, "ann"))
    assert slow.offsets == [[1]]
    assert slow.marked[-1] == InFlightMark(0, 0, 0)
    slow.enough.set()
    await slow.finish()
    assert slow.marked[-1] is None


# Look-ups


@pytest.fixture
def asking() -> Bench:
    """A bench of `deferred` where records that cite wait for look-ups, which end when `answered` is set."""
    answered = asyncio.Event()

    async def look_up(entry):
        await answered.wait()
        if entry.record.offset == 5:
            raise RuntimeError("broken")
        return entry

    bench = Bench("deferred", look_up=look_up)
    bench.answered, prepare = answered, bench.prepare

    async def waiting(records):
        entries = await prepare(records)
        for entry in entries:
            entry.wait = entry.record.value == b"cites"
        return entries

    bench.prepare = waiting
    return bench


async def test_a_record_that_waits_for_its_look_up_holds_up_those_of_its_key_alone(asking):
    cites = record(0, "mallory", b"cites")
    await asking.begin(cites, record(1, "ann"), record(2, "mallory"), record(3, "bob"))
    await asking.begin(record(4, "ann"), record(5, "mallory", b"cites"))
    assert asking.offsets == [[1, 3], [4]], "what is ready is decided, of this fetch and the next"
    assert asking.rooms > 1, "the partition is read on"
    assert asking.loop.book.committable == 0
    assert asking.marked[-1] is None, "waiting crashes no worker"
    asking.answered.set()
    await asking.finish()
    assert asking.offsets[2:] == [[0], [2], [5]], "the last is decided without its answer"
    assert InFlightMark(0, 0, 0) in asking.marked


async def test_what_was_looked_up_is_never_published_before_earlier_records_of_its_key(asking, monkeypatch):
    """Neither while the batch with those records waits for the broker."""
    answering, publish = asyncio.Event(), asking.publish

    async def slow(outputs):
        if len(outputs) > 1:
            await answering.wait()
        return await publish(outputs)

    monkeypatch.setattr(asking, "publish", slow)
    asking.answered.set()
    await asking.begin(
        record(0, "ann"), record(1, "bob"), record(2, "ann", b"cites"), record(3, "eve", b"cites")
    )
    assert asking.offsets == [[3]]
    answering.set()
    await asking.finish()
    assert asking.offsets == [[3], [0, 1], [2]]


async def test_look_ups_end_with_their_lease_and_what_fails_behind_them_is_looked_up_again(asking):
    asking.answered.set()
    asking.publish_errors = [RuntimeError("x"), None]
    await asking.run(record(0, "mallory", b"cites"))
    assert (asking.offsets, asking.prepared) == ([[0]], 2)
    asking.answered.clear()
    await asking.begin(record(1, "mallory", b"cites"))
    asking.loop.end()
    await asking.finish()
    assert (asking.offsets, asking.loop.book.committable) == ([[0]], 1)


async def test_a_record_that_is_given_up_is_not_processed_if_its_letter_is_sent_again():
    bench = Bench()
    bench.left = InFlightMark(5, 5, GIVEN_UP - 1)
    bench.publish_errors = [RuntimeError("x"), None]
    await bench.run(record(5, value=CLAIM))
    assert bench.prepared == 0
    assert [type(result) for batch in bench.published for result in batch] == [DeadLetter]


async def test_a_batch_that_fails_after_its_lease_ended_ends_the_process():
    bench, gone = Bench(), asyncio.Event()

    async def late(_batch) -> None:
        await gone.wait()
        raise ProducerBroken("refused")

    bench.loop.process = late
    await bench.begin(record())
    bench.loop.end()
    gone.set()
    with pytest.raises(ProducerBroken):
        await bench.task


async def test_a_hook_lets_batches_wait_without_holding_up_what_it_waits_for():
    class Full(Hook):
        """Has room for one batch, and then for that with offset 0, as seals have."""

        def __init__(self) -> None:
            self.asked: list[int] = []
            self.published = 0

        async def before_batch(self, batch) -> None:
            self.asked.append(batch.first_offset)
            while self.published and batch.first_offset:
                await batch.loop.lease.pause(1.0)

        def after_publish(self, batch) -> None:
            self.published += len(batch.published)

    bench, full = Bench(), Full()
    bench.services.hooks.append(full)
    bench.loop.book.add([record(0, "ada")], 1)
    next(iter(bench.loop.book.undone)).due = 1.0
    await bench.begin(record(1, "bob"))
    bench.now = 1.0
    await bench.finish()
    assert (bench.loop.book.committable, full.asked) == (2, [1, 0])


async def test_one_policy_decides_a_batch_also_one_that_waits_while_the_policy_changes():
    bench, before, after = Bench(), [], []

    def deciding(by: list[int]) -> Any:
        async def prepare(records):
            by.append(records[0].offset)
            return await bench.prepare(records)

        async def apply_step(batch, *, deferred):
            by.append(batch[0].record.offset)
            return await bench.apply_step(batch, deferred=deferred)

        return SimpleNamespace(prepare=prepare, apply_step=apply_step, provisional=bench.provisional)

    def take_up() -> None:
        bench.services.decider = Decider(deciding(after), 0.0)
        bench.now += 1

    bench.services.decider = Decider(deciding(before), 10.0)
    bench.state_errors = [AWAY] * 3 + [None] * 2
    bench.lease.on_pause = take_up
    await bench.run(record(7))
    await bench.run(record(8))
    assert (before, after[:2]) == ([7] * 5, [8, 8])
