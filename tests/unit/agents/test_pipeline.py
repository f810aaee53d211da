"""A batch is settled whatever happens to state, broker and process (X-14)."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from agents import pipeline as module
from agents.app import ROLES
from agents.outputs import outputs
from agents.partitions import LARGE, Health, LeaseLost, PartitionLease
from agents.pipeline import COPY_AGE
from groundwire.config import Settings
from groundwire.errors import BrokerUnavailable, StateLost, StateUnavailable
from groundwire.gate.types import Decided, Provisional
from groundwire.messages.headers import InboundRecord, LookupRetry, deferred_headers
from groundwire.messages.topics import TopicName
from groundwire.state.model import InFlightMark
from tests.unit.agents.standins import Bench, InstantLease, record
from tests.unit.gate.world import NOW, World, verifier

AWAY = StateUnavailable("away")
CLAIM = json.dumps({"claim_id": "c", "user_id": "u", "content": "text"}).encode()


@pytest.fixture(autouse=True)
def _results_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "outputs", list)


async def test_after_a_failed_publication_state_is_asked_again_and_each_decision_counts_once():
    def sample(name: str, **labels: str) -> float:
        return REGISTRY.get_sample_value(f"groundwire_{name}_total", labels) or 0.0

    bench, labels = Bench(), {"kind": "claim", "tier": "tier_1", "reason_code": "grounded"}
    before = sample("decisions", **labels), sample("repeats")
    bench.publish_errors, bench.fresh = [BrokerUnavailable("away"), None], [True, False, False]
    await bench.run(record())
    assert (bench.asked, bench.health.current) == (2, frozenset())
    assert (sample("decisions", **labels), sample("repeats")) == (before[0] + 1, before[1])
    await bench.run(record(1))
    assert sample("repeats") == before[1] + 1, "a decision that another record brought about"
    bench = Bench()
    with capture_logs() as lines:
        for minute in (0, 1):
            bench.now = 60.0 * minute
            bench.publish_errors = [BrokerUnavailable("away")] * 8 + [None]
            await bench.run(record())
    assert [line["event"] for line in lines].count("broker.unavailable") == 2, "once a minute"


async def test_state_is_waited_for_within_the_grace_of_each_outage_and_then_decided_without():
    """Each row: seconds that a step takes, how often it fails, and what is published.

    The grace begins anew when state has answered in between: to another batch, or to an idle worker.
    """
    for slow, failures, expected in ((0.0, 3, Decided), (6.0, 2, Decided), (6.0, 9, Provisional)):
        for idle in (False, True):
            bench = Bench()
            bench.slow, bench.state_errors = slow, [AWAY] * failures
            await bench.run(record())
            assert [type(result) for result in bench.published[0]] == [expected]
            assert bench.health.current == ({"state"} if expected is Provisional else set())
            if idle:
                bench.health.start_batch()
                bench.pipeline.state_answered()
                still = {"state"} if expected is Provisional else set()
                assert bench.health.current == still, "a batch that is under way finds out for itself"
                bench.health.under_way = 0
                bench.pipeline.state_answered()
                assert not bench.health.current
            bench.now += 100
            bench.state_errors = [AWAY, None]
            await bench.run(record(1))
            assert type(bench.published[1][0]) is (Decided if idle else expected)


async def test_an_answer_to_another_partition_begins_the_grace_anew_but_not_that_of_a_batch_that_waits():
    bench, away = Bench(grace=10.0), {b"t:ada", b"t:cy"}
    step = bench.apply_step

    async def answer(batch, *, deferred):
        if any(one.record.key in away for one in batch):
            raise AWAY
        return await step(batch, deferred=deferred)

    async def begin(seconds: float, offset: int, user: str) -> asyncio.Task[None]:
        bench.now, bench.lease = seconds, InstantLease()
        return await bench.begin(record(offset, user))

    bench.apply_step = answer
    ada = await begin(0, 0, "ada")
    await (await begin(6, 1, "bob"))
    cy = await begin(8, 2, "cy")
    bench.now = 12
    await ada
    away.clear()
    await cy
    found = [(type(result), result.record.offset) for (result,) in bench.published]
    assert found == [(Decided, 1), (Provisional, 0), (Decided, 2)]


async def test_state_is_asked_again_after_a_loss_an_error_of_our_own_and_an_answer_too_old_to_publish():
    bench = Bench()
    bench.state_errors = [StateLost("flushed"), None]
    await bench.run(record())
    assert (bench.recovered, bench.asked, bench.reasserted) == (1, 2, 2)
    bench = Bench()
    bench.prepare_errors = [RuntimeError("ours"), KeyError("ours"), None]
    await bench.run(record())
    assert (bench.prepared, bench.health.current) == (3, frozenset())
    bench = Bench()
    bench.slow = module.STALE + 1
    running = await bench.begin(record())
    asked, bench.slow = bench.asked, 0.0
    await running
    assert bench.asked == asked + 1 > 1
    assert len(bench.published) == 1
    bench = Bench("deferred", grace=None)
    bench.state_errors = [AWAY] * 10_000
    running = await bench.begin(record())
    bench.lease.end()
    with pytest.raises(LeaseLost):  # without a grace only then
        await running
    assert (bench.published, bench.marked[-1]) == ([], None)


async def test_who_waits_for_a_shard_and_in_which_order_all_are_published():
    """Each row: role, sizes, users, whose shard is away and whether that is known, offsets published together."""
    large = b"x" * LARGE
    rows = [
        ("claims", b"{}", ("ada", "bob"), "ada", False, [[1], [0]]),
        ("claims", b"{}", ("ada",), "ada", False, [[0]]),
        ("claims", b"{}", ("bob", "eve"), "ada", True, [[0, 1]]),
        ("claims", large, ("ada", "bob", "ada", "eve"), "ada", True, [[1], [3], [0], [2]]),
        ("reviews", b"{}", ("a:ada", "b:bob"), "actions of a", False, [[1], [0]]),
    ]
    wrong = []
    for role, value, users, away, noticed, expected in rows:
        bench, seen = Bench(role, None), []
        bench.fail(away, noticed=noticed)

        def answers(bench=bench, seen=seen) -> None:
            seen.append(set(bench.health.current))
            bench.fail()

        bench.lease.on_pause = answers
        records = [record(at, user, value) for at, user in enumerate(users)]
        await bench.run(
            *[one if one.key.count(b":") == 1 else replace(one, key=one.key[2:]) for one in records]
        )
        waits = [{"shard"}] if expected != [[0, 1]] else []
        if (bench.offsets, seen, bench.health.current) != (expected, waits, frozenset()):
            wrong.append((role, users, bench.offsets, seen))
    assert wrong == []
    bench = Bench()
    bench.slow = 6.0
    bench.fail("ada", noticed=False)
    await bench.run(*[record(at, user) for at, user in enumerate(("ada", "bob", "ada", "eve"))])
    assert bench.offsets == [[1, 3], [0, 2]]
    assert [type(batch[0]) for batch in bench.published] == [Decided, Provisional], "after the grace"
    assert bench.health.current == {"shard"}


async def test_later_batches_and_shards_that_are_back_wait_for_no_other_shard():
    bench = Bench("deferred", None)
    bench.fail("ada")
    first = await bench.begin(*[record(at, user) for at, user in enumerate(("ada", "bob", "cy"))])
    bench.fail("ada", "bob")
    second = await bench.begin(*[record(3 + at, user) for at, user in enumerate(("ada", "bob", "cy"))])
    bench.fail("ada", noticed=False)  # as it looks: the next decision finds out
    async with asyncio.timeout(60):
        # what waits for a shard is under no mark: a crash meanwhile is not its own
        while len(bench.published) < 3 or bench.marked[-1]:  # noqa: ASYNC110 - the stand-in sends no event
            await asyncio.sleep(0)
    assert bench.offsets == [[1, 2], [5], [4]]
    bench.fail()
    await asyncio.gather(first, second)
    assert bench.offsets[3:] == [[0], [3]]


async def test_what_may_have_crashed_a_worker_waits_for_its_shard_with_nothing_beside_it_and_under_no_mark():
    for crashes, expected in ((0, [[1], [0]]), (1, [[0], [1]])):
        bench = Bench("claims", None)
        bench.left = InFlightMark(0, 1, crashes)
        bench.fail("ada")
        running = await bench.begin(record(0, "ada"), record(1, "bob"))
        assert bench.marked[-1] is None
        bench.fail()
        await running
        assert bench.offsets == expected


async def test_records_of_deferred_are_set_aside_and_marked_by_their_own_place():
    for retry in (None, LookupRetry(0, 2**50)):
        bench = Bench("deferred", None)
        bench.fail("ada")
        bench.lease.on_pause = bench.fail
        originals = [
            replace(record(5_000_000 + at), topic="claims", partition=3, retry=retry) for at in range(2)
        ]
        batch = [
            record(at, user, headers=tuple(deferred_headers(original)))
            for at, (user, original) in enumerate(zip(("ada", "bob"), originals, strict=True))
        ]
        await bench.run(*batch)
        assert bench.offsets == [[5_000_001], [5_000_000]]
        assert {at for mark in bench.marked if mark for at in (mark.first, mark.last)} <= {0, 1}


async def test_whichever_shards_are_away_when_each_record_is_decided_once_and_those_of_a_key_in_order():
    for seed in range(40):
        rng, changes, bench = random.Random(seed), iter(range(60)), Bench("claims", None)
        users = ["ada", "bob", "eve"]

        def change(rng=rng, users=users, changes=changes, bench=bench) -> None:
            bench.fail(*rng.sample(users, rng.randrange(4)) if next(changes, None) is not None else ())

        bench.lease.on_pause = change
        values = (b"xx", b"xx", b"bad", b"x" * LARGE)
        records = [record(at, rng.choice(users), rng.choice(values)) for at in range(30)]
        records = [replace(one, key=None) if rng.randrange(5) == 0 else one for one in records]
        cuts = sorted(rng.sample(range(1, 30), 4))
        batches = [records[first:end] for first, end in pairwise([0, *cuts, 30])]
        change()
        async with asyncio.timeout(60):
            await asyncio.gather(*[bench.pipeline.process_batch(batch, bench.lease) for batch in batches])
        decided = [result.record for batch in bench.published for result in batch]
        assert sorted(one.offset for one in decided) == list(range(30)), seed
        for key in {one.key for one in records}:
            of_key = [one.offset for one in decided if one.key == key]
            assert of_key == sorted(of_key), seed


async def test_after_a_hundred_internal_errors_one_record_at_a_time_is_tried_until_one_is_decided():
    def of_many_keys(value: bytes, first: int, end: int) -> list[InboundRecord]:
        return [record(n, str(n), value) for n in range(first, end)]

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
    bench = Bench()  # broken records neither pause a worker nor prolong its pause
    await bench.run(*of_many_keys(b"bad", 0, 500))
    assert (bench.lease.pauses, len(bench.published)) == ([], 1)
    await bench.run(*of_many_keys(b"internal", 0, 99), *of_many_keys(b"bad", 99, 200))
    await bench.run(*of_many_keys(b"internal", 200, 201))
    assert not bench.lease.pauses
    await bench.run(*of_many_keys(b"bad", 201, 301))
    assert (bench.lease.pauses, bench.health.current) == ([5], {"internal_errors"})
    await bench.run(*of_many_keys(b"internal", 301, 302), *of_many_keys(b"bad", 302, 303))
    assert bench.lease.pauses == [5, 10]


async def test_what_becomes_of_a_record_at_its_crashes(monkeypatch):
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

    async def too_large(_record, _give_up):
        raise MemoryError

    async def away(_record, _give_up):
        bench.lease.end()
        raise AWAY

    # a crash over the identity itself counts, and one while state is asked does not
    for abandon, error, crashes in ((too_large, MemoryError, 3), (away, LeaseLost, 2)):
        bench = Bench()
        bench.left = InFlightMark(5, 5, 2)
        monkeypatch.setattr(bench, "abandon", abandon)
        with pytest.raises(error):
            await bench.run(record(5, value=CLAIM))
        assert [mark for mark in bench.marked if mark][-1] == InFlightMark(5, 5, crashes)


async def test_the_model_is_asked_before_state_and_cancelled_when_the_partition_is_revoked():
    errors, order, cancelled = [StateUnavailable("1"), StateLost("2"), None], [], asyncio.Event()

    async def ask_model(batch):
        order.append(bench.asked)
        bench.now += 2 * module.STALE  # makes no answer of state stale
        if error := errors.pop(0):
            raise error
        return batch

    async def revoke(_batch):
        bench.lease.end()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    bench = Bench("responses", 1e6, ask_model=ask_model)
    await bench.run(record())
    assert (errors, order, bench.asked, bench.recovered) == ([], [0, 0, 0], 1, 1)
    assert not bench.health.current
    bench = Bench("responses", ask_model=revoke)
    for _ in range(2):
        with pytest.raises(LeaseLost):
            await bench.run(record())
    assert cancelled.is_set()
    assert (bench.asked, bench.published) == (0, [])


async def test_small_records_of_later_batches_pass_large_ones_and_those_of_their_key_wait():
    large, read_on = b"x" * LARGE, []

    def slow_bench() -> Bench:
        """Return a bench that prepares large records no further until `enough` is set."""
        bench = Bench("responses")
        bench.enough, bench.preparing, prepare = asyncio.Event(), 0, bench.prepare

        async def hold(records, *, ask_network):
            if any(len(one.value) >= LARGE for one in records):
                bench.preparing += 1
                await bench.enough.wait()
                bench.preparing -= 1
            return await prepare(records, ask_network=ask_network)

        bench.prepare = hold
        return bench

    slow = slow_bench()
    batches = [
        [record(0, "mallory", large), record(1, "ann"), record(2, "mallory", large)],
        [record(3, "ann"), record(4, "mallory")],
        [record(5, "bob"), record(6, "mallory")],
    ]
    tasks = [await slow.begin(*one, read_on=lambda n=n: read_on.append(n)) for n, one in enumerate(batches)]
    assert (slow.offsets, read_on) == ([[1], [3], [5]], [0, 1, 2])
    assert not any(task.done() for task in tasks)
    assert InFlightMark(0, 3, 0) in slow.marked, "the mark covers what is behind and what passes it"
    slow.enough.set()
    await asyncio.gather(*tasks)
    assert slow.offsets[3:] == [[0], [2], [4], [6]]
    await slow.run(record(7, "mallory"))
    assert slow.offsets[-1] == [7], "no key is held longer than its records"
    await asyncio.sleep(0)
    assert slow.marked[-1] is None
    slow = slow_bench()  # large records that have not begun when the lease ends are left
    tasks = [await slow.begin(record(at, "mallory", large)) for at in range(2)]
    slow.lease.end()
    slow.enough.set()
    done, left = await asyncio.gather(*tasks, return_exceptions=True)
    assert (done, type(left), slow.offsets) == (None, LeaseLost, [[0]])
    slow = slow_bench()  # nothing runs beside what was in flight at a crash
    slow.left = InFlightMark(0, 1, 0)
    tasks = [await slow.begin(record(0, "mallory", large), record(1, "ann"))]
    tasks.append(await slow.begin(record(2, "bob")))
    assert slow.offsets == [[1]]
    slow.enough.set()
    await asyncio.gather(*tasks)
    assert slow.offsets == [[1], [0], [2]]
    slow, tasks = slow_bench(), []  # large records of several partitions are checked one at a time
    for _ in range(3):
        slow.lease = InstantLease()
        tasks.append(await slow.begin(record(0, "mallory", large)))
    assert slow.preparing == 1
    slow.enough.set()
    await asyncio.gather(*tasks)
    assert slow.offsets == [[0]] * 3


class Topic:
    """The partition of `deferred` with its worker and its gate; claims in it cite a host that fails.

    Only pauses and batches move its clock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claims: int) -> None:
        self.began = self.time = NOW.timestamp()
        self.log: list[InboundRecord] = []
        self.copies: Counter[bytes | None] = Counter()
        self.decided: dict[str, tuple[TopicName, float]] = {}
        self.read = 0
        patience = Settings.model_fields["citation_patience"].default
        self.urls = {f"https://docs.example/{n}": 503 for n in range(claims)}
        self.world = World(verifier=verifier(urls=self.urls), patience=patience)
        self.world.now = lambda: datetime.fromtimestamp(self.time, UTC)
        parts = Bench("deferred")
        services = module.Services(parts, self, parts, parts, Health())
        self.pipeline = module.Pipeline(ROLES["deferred"], self.world.gate, services, clock=lambda: self.time)
        self.lease = PartitionLease()
        self.lease.pause = self.pause
        monkeypatch.setattr(module, "outputs", outputs)
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: self.time))
        for n, url in enumerate(self.urls):
            self.write(self.world.claim(f"c{n}", f"Rule {n} of the harbour, see {url}"))

    async def pause(self, seconds: float) -> None:
        self.time += seconds

    def write(self, record: InboundRecord) -> None:
        self.append(record.key, record.value, deferred_headers(record))

    def append(self, key, value, headers) -> None:
        at = round(1000 * self.time)
        self.log.append(
            InboundRecord("groundwire.deferred", 0, len(self.log), at, key, value, tuple(headers))
        )

    async def publish(self, outgoing):
        for output in outgoing:
            if output.topic is TopicName.DEFERRED:
                self.copies[output.value] += 1
                self.append(output.key, output.value, output.headers)
            elif output.topic in {TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED}:
                claim = json.loads(output.value or b"")["subject_id"]
                self.decided[claim] = (output.topic, self.time - self.began)
        return []

    async def run(self, seconds: float = 1e9) -> None:
        while self.read < len(self.log) and self.time < self.began + seconds:
            batch = self.log[self.read : self.read + ROLES["deferred"].max_records]
            self.read += len(batch)
            await self.pipeline.process_batch(batch, self.lease)
            self.time += 0.01


@pytest.mark.slow
async def test_an_outage_copies_a_claim_three_times_a_minute_at_most_beside_its_look_ups(monkeypatch):
    """With the default patience of ten minutes and more claims than a batch takes; then people get them."""
    topic, claims = Topic(monkeypatch, 600), 600
    await topic.run()
    look_ups = 7
    assert len(topic.decided) == claims
    assert not any(where is TopicName.APPROVED for where, _ in topic.decided.values())
    assert min(at for _, at in topic.decided.values()) >= 600
    assert max(at for _, at in topic.decided.values()) <= 600 + COPY_AGE + 5
    assert len(topic.copies) == claims
    assert max(topic.copies.values()) <= 600 / COPY_AGE + look_ups


async def test_a_claim_that_can_be_decided_waits_for_one_copy_at_most_and_what_falls_due_for_its_time(
    monkeypatch,
):
    topic = Topic(monkeypatch, 150)
    await topic.run(90)
    written = topic.time - topic.began
    topic.write(topic.world.claim("plain", "The parser reads tokens", source="user"))
    await topic.run(200)
    where, at = topic.decided["plain"]
    assert where is TopicName.APPROVED
    assert at - written <= COPY_AGE + 1
    topic = Topic(monkeypatch, 3)
    await topic.run(15)
    topic.write(topic.world.claim("plain", "The parser reads tokens", source="user"))
    written = topic.time - topic.began
    topic.urls |= dict.fromkeys(topic.urls, 200)
    await topic.run()
    assert topic.decided["plain"][1] - written <= COPY_AGE
    assert topic.decided["c0"][0] is TopicName.APPROVED
    assert all(29 < topic.decided[f"c{n}"][1] < 32 for n in range(3)), "after a twentieth of the patience"
