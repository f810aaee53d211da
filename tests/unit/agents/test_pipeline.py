"""A batch is settled whatever happens to state, broker and process."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from agents import pipeline as module
from agents.app import ROLES
from agents.observability import FailureRun
from agents.outputs import Output
from agents.partitions import LARGE, Health, LeaseLost, PartitionLease
from agents.pipeline import Pipeline, Services
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, StateLost, StateUnavailable
from groundwire.gate.gate import decode_record
from groundwire.gate.types import DeadLetter, Decided, Provisional
from groundwire.messages.headers import InboundRecord, LookupRetry, deferred_headers
from groundwire.state.model import InFlightMark


class Bench:
    """A pipeline over parts that fail as a list of errors says; `None` in a list is a success."""

    def __init__(self, role: str, grace: float | None = 10.0) -> None:
        self.now = 0.0
        self.state_errors: list[Exception | None] = []
        self.publish_errors: list[Exception | None] = []
        self.prepare_errors: list[Exception | None] = []
        self.asked = self.prepared = self.recovered = self.reasserted = 0
        self.fresh = [True]
        self.slow = 0.0
        self.published: list[list[Output]] = []
        self.left: InFlightMark | None = None
        self.marked: list[InFlightMark | None] = []
        self.outcome_held = False
        self.buckets_away: dict[str, float] = {}
        self.failing: set[str] = set()
        self.health = Health()
        self.lease = PartitionLease()
        self.build(role, grace)

    def build(self, role: str, grace: float | None, **options) -> None:
        services = Services(self, self, self, self, self.health)
        self.pipeline = Pipeline(ROLES[role], self, services, grace=grace, clock=lambda: self.now, **options)

    async def prepare(self, records, *, ask_network):
        self.prepared += 1
        _next(self.prepare_errors)
        return list(records)

    async def apply_step(self, batch, *, deferred):
        self.asked += 1
        self.now += self.slow
        _next(self.state_errors)
        fresh = self.fresh.pop(0) if self.fresh else False
        return [_result(record, fresh=fresh) for record in batch]

    async def abandon(self, record, give_up):
        return await give_up(decode_record(record).subject)

    def provisional(self, batch):
        return [Provisional(record, _decision(record)) for record in batch]

    async def publish(self, outputs):
        _next(self.publish_errors)
        self.published.append(list(outputs))
        return []

    async def recover(self, lease):
        self.recovered += 1

    async def before_step(self):
        self.reasserted += 1

    def answered(self):
        pass

    def failed(self):
        pass

    def away(self):
        return self.buckets_away

    def bucket_of(self, subject):
        return subject.user_id

    def actions_bucket(self, tenant_id):
        return f"actions of {tenant_id}"

    async def marks(self, topic, partition):
        return self.left

    async def mark(self, topic, partition, mark):
        self.marked.append(mark)
        answer = asyncio.get_running_loop().create_future()
        answer.set_result(None)
        return answer

    async def give_up(self, subject):
        return not self.outcome_held

    async def run(self, *records: InboundRecord) -> None:
        async with asyncio.timeout(5):
            await self.pipeline.process_batch(records, self.lease)


def _next(errors):
    error = errors.pop(0) if errors else None
    if error is not None:
        raise error


def _result(record, *, fresh):
    if isinstance(record, DeadLetter):
        return record
    if record.value == b"bad":
        return DeadLetter(record, RecordError(ErrorCode.INVALID_JSON, "no"))
    return Decided(record, _decision(record), fresh)


def _decision(record):
    reason = "internal_error" if record.value == b"internal" else "grounded"
    return SimpleNamespace(
        decision_id=f"d{record.offset}", reason_code=reason, kind="claim", tier="tier_1", tenant_id="t", user_id="u",
        checks_passed=[], checks_failed=[], checks_skipped=[], report=None,
    )  # fmt: skip


def record(offset: int = 0, value: bytes = b"{}") -> InboundRecord:
    return InboundRecord("t", 0, offset, 0, b"t:u", value)


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"groundwire_{name}_total", labels) or 0.0


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "outputs", list)
    monkeypatch.setattr(module, "_RETRY", 0.0)
    monkeypatch.setattr(module, "_INTERNAL_RETRY", 0.0)
    return Bench("claims")


async def test_an_answer_that_is_too_old_by_the_time_it_comes_is_asked_for_again(bench: Bench):
    bench.slow = 31.0
    original = bench.apply_step

    async def quicker(batch, *, deferred):
        results = await original(batch, deferred=deferred)
        bench.slow = 0.0
        return results

    bench.apply_step = quicker  # type: ignore[method-assign]
    await bench.run(record())
    assert bench.asked == 2
    assert len(bench.published) == 1


async def test_after_a_failed_publication_state_is_asked_again_and_the_decision_still_counts_once(
    bench: Bench,
):
    before = sample("decisions", kind="claim", tier="tier_1", reason_code="grounded"), sample("repeats")
    bench.publish_errors = [BrokerUnavailable("away"), None]
    await bench.run(record())
    assert bench.asked == 2
    assert sample("decisions", kind="claim", tier="tier_1", reason_code="grounded") == before[0] + 1
    assert sample("repeats") == before[1]
    assert not bench.health.current


async def test_a_broker_that_is_away_is_told_of_once_a_minute_however_often_is_tried(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    lines: list[str] = []
    told = SimpleNamespace(warning=lambda event, **_: lines.append(event))
    monkeypatch.setattr(module, "log", told)
    for minute in (0, 1):
        bench.now = 60.0 * minute
        bench.publish_errors = [BrokerUnavailable("away")] * 8 + [None]
        await bench.run(record())
    assert lines == ["broker.unavailable"] * 2


async def test_a_decision_that_another_record_brought_about_counts_as_a_repeat(bench: Bench):
    before = sample("repeats")
    bench.fresh = [False]
    await bench.run(record())
    assert sample("repeats") == before + 1


async def test_state_out_of_reach_is_waited_for_within_the_grace(bench: Bench):
    bench.state_errors = [StateUnavailable("away")] * 3
    await bench.run(record())
    assert bench.asked == 4
    assert isinstance(bench.published[0][0], Decided)
    assert not bench.health.current


async def test_past_the_grace_claims_are_decided_provisionally(bench: Bench):
    bench.slow = 6.0
    bench.state_errors = [StateUnavailable("away")] * 9
    await bench.run(record())
    assert isinstance(bench.published[0][0], Provisional)
    assert bench.health.current == {"state"}


# --- a part of state that is away


class Entry(SimpleNamespace):
    """A prepared record of a user."""


async def run_with_users(
    bench: Bench,
    *users: str,
    origins: int | None = None,
    value: bytes = b"{}",
    start: int = 0,
    retry: LookupRetry | None = None,
) -> list[list[str]]:
    """Process a record of each user, of whom those away fail; return whose were published together.

    Args:
        bench: the pipeline.
        users: of the records.
        origins: the first offset of the records that these come of, where they stand on `deferred`.
        start: their own first offset.
        retry: when look-ups of those on `deferred` are due.
    """
    first = origins or start

    async def prepare(records, *, ask_network):
        whose = [users[(one.offset - first) % len(users)] for one in records]
        subjects = [SimpleNamespace(user_id=user, tenant_id=user[:1]) for user in whose]
        return [Entry(record=one, subject=subject) for one, subject in zip(records, subjects, strict=True)]

    async def apply_step(batch, *, deferred):
        bench.asked += 1
        bench.now += bench.slow
        concerned = {entry.subject.user_id for entry in batch}
        concerned |= {bench.actions_bucket(entry.subject.tenant_id) for entry in batch}
        if concerned & bench.failing:
            bench.buckets_away = dict.fromkeys(bench.failing, 0.0)
            raise StateUnavailable("away")
        return [_result(entry.record, fresh=True) for entry in batch]

    bench.prepare, bench.apply_step = prepare, apply_step  # type: ignore[method-assign]
    bench.provisional = lambda batch: [Provisional(e.record, _decision(e.record)) for e in batch]  # type: ignore[method-assign]
    records = [
        InboundRecord("t", 0, at, 0, f"t:{user}".encode(), value) for at, user in enumerate(users, start)
    ]
    if origins is not None:
        places = [
            replace(one, topic="claims", partition=3, offset=first + one.offset, retry=retry)
            for one in records
        ]
        headers = [tuple(deferred_headers(place)) for place in places]
        records = [replace(one, headers=own) for one, own in zip(records, headers, strict=True)]
    async with asyncio.timeout(5):
        await bench.pipeline.process_batch(records, bench.lease)
    return [
        [users[(result.record.offset - first) % len(users)] for result in batch] for batch in bench.published
    ]


def answers_after_a_pause(bench: Bench) -> list[tuple[set[bytes | None], set[str]]]:
    """Let what is away answer once it is waited for; return the keys held then, and what the worker waits for."""
    seen: list[tuple[set[bytes | None], set[str]]] = []
    original = bench.lease.pause

    async def pause(seconds: float) -> None:
        seen.append((set(+bench.lease.held), set(bench.health.current)))
        bench.failing, bench.buckets_away = set(), {}
        await original(0)

    bench.lease.pause = pause  # type: ignore[method-assign]
    return seen


async def test_the_others_of_a_batch_are_published_before_those_whose_shard_is_away_are_decided(bench: Bench):
    bench.slow, bench.failing = 6.0, {"ada"}
    published = await run_with_users(bench, "ada", "bob", "ada", "eve")
    assert [sorted(set(batch)) for batch in published] == [["bob", "eve"], ["ada"]]
    assert [type(batch[0]) for batch in bench.published] == [Decided, Provisional]
    assert bench.health.current == {"shard"}
    assert not +bench.lease.held


async def test_while_a_shard_is_away_the_partition_is_read_on_and_the_keys_of_its_users_are_held(
    bench: Bench,
):
    bench.failing = {"ada"}
    seen = answers_after_a_pause(bench)
    published = await run_with_users(bench, "ada", "bob")
    assert (seen, published) == ([({b"t:ada"}, {"shard"})], [["bob"], ["ada"]])
    assert not bench.health.current


async def test_a_large_record_whose_shard_is_there_does_not_wait_behind_one_whose_shard_is_away(bench: Bench):
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    seen = answers_after_a_pause(bench)
    published = await run_with_users(bench, "ada", "bob", "ada", "eve", value=b"x" * LARGE)
    assert published == [["bob"], ["eve"], ["ada"], ["ada"]]
    assert seen == [({b"t:ada"}, {"shard"})]


async def test_the_large_records_of_the_next_batch_do_not_wait_for_a_shard_that_is_away(bench: Bench):
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    waiting, back = asyncio.Event(), asyncio.Event()

    async def pause(_seconds: float) -> None:
        waiting.set()
        await back.wait()

    bench.lease.pause = pause  # type: ignore[method-assign]
    users = ("ada", "bob", "eve")
    first = asyncio.create_task(run_with_users(bench, *users, value=b"x" * LARGE))
    await waiting.wait()
    following = asyncio.create_task(run_with_users(bench, *users, value=b"x" * LARGE))
    for _ in range(200):
        await asyncio.sleep(0)
    assert len(bench.published) == 4, "two of each batch"
    bench.failing, bench.buckets_away = set(), {}
    back.set()
    await first
    assert await following == [["bob"], ["eve"], ["bob"], ["eve"], ["ada"], ["ada"]]
    assert not +bench.lease.held


async def set_aside(bench: Bench, *users: str, start: int = 0) -> asyncio.Task[list[list[str]]]:
    """Begin a batch, and let it come as far as it does."""
    running = asyncio.create_task(run_with_users(bench, *users, start=start))
    for _ in range(50):
        await asyncio.sleep(0)
    return running


async def test_what_only_waits_for_a_shard_is_under_no_mark_so_that_a_crash_meanwhile_is_not_its_own(
    bench: Bench,
):
    bench.build("deferred", None)
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    running = await set_aside(bench, "ada", "bob")
    assert [bool(mark) for mark in bench.marked] == [True, False]
    bench.failing, bench.buckets_away = set(), {}
    assert await running == [["bob"], ["ada"]]


async def test_users_of_a_shard_that_is_back_do_not_wait_for_those_of_another_that_is_not(bench: Bench):
    bench.build("deferred", None)
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    first = await set_aside(bench, "ada", "bob", "cy")
    bench.failing, bench.buckets_away = {"ada", "bob"}, {"ada": 0.0, "bob": 0.0}
    second = await set_aside(bench, "ada", "bob", "cy", start=3)
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    async with asyncio.timeout(5):
        while len(bench.published) < 3:  # noqa: ASYNC110 - it takes notes, and tells nobody
            await asyncio.sleep(0.05)
    keys = [[result.record.key for result in batch] for batch in bench.published]
    assert keys == [[b"t:bob", b"t:cy"], [b"t:cy"], [b"t:bob"]]
    bench.failing, bench.buckets_away = set(), {}
    await asyncio.gather(first, second)


async def test_what_others_are_answered_meanwhile_ends_no_grace_of_what_is_not(bench: Bench):
    bench.slow = 6.0

    async def before_step():
        bench.pipeline._state_lost_at = None  # another partition was answered

    bench.before_step = before_step  # type: ignore[method-assign]
    bench.state_errors = [StateUnavailable("the corpus is away")] * 6
    await bench.run(record())
    assert [type(result) for result in bench.published[0]] == [Provisional]


async def test_what_follows_in_its_key_what_is_set_aside_is_decided_behind_it_though_the_shard_is_back(
    bench: Bench,
):
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    asked = 0

    def away() -> dict[str, float]:
        nonlocal asked
        asked += 1
        return bench.buckets_away if asked == 1 else {}

    bench.away = away  # type: ignore[method-assign]
    bench.failing = set()
    published = await run_with_users(bench, "ada", "ada", "bob", value=b"x" * LARGE)
    assert published == [["bob"], ["ada"], ["ada"]]
    assert [result.record.offset for batch in bench.published for result in batch] == [2, 0, 1]


@pytest.mark.parametrize("seed", range(40))
async def test_whichever_shards_are_away_when_each_record_is_decided_once_and_those_of_a_key_in_order(
    bench: Bench, seed: int
):
    rng, users = random.Random(seed), ["ada", "bob", "eve"]
    changes = 60
    bench.build("claims", None)

    def change() -> None:
        nonlocal changes
        changes -= 1
        bench.failing = set(rng.sample(users, rng.randrange(4))) if changes > 0 else set()
        bench.buckets_away = dict.fromkeys(bench.failing, 0.0)

    async def prepare(records, *, ask_network):
        change()
        subjects = [SimpleNamespace(user_id=whose[one.offset], tenant_id="t") for one in records]
        entries = [Entry(record=one, subject=subject) for one, subject in zip(records, subjects, strict=True)]
        return [_result(one.record, fresh=True) if one.record.value == b"bad" else one for one in entries]

    async def apply_step(batch, *, deferred):
        if bench.failing & {entry.subject.user_id for entry in batch if isinstance(entry, Entry)}:
            raise StateUnavailable("away")
        return [_result(entry.record, fresh=True) if isinstance(entry, Entry) else entry for entry in batch]

    async def pause(_seconds: float) -> None:
        change()
        await asyncio.sleep(0)

    bench.prepare, bench.apply_step, bench.lease.pause = prepare, apply_step, pause  # type: ignore[method-assign]
    whose = rng.choices(users, k=30)
    values = (b"xx", b"xx", b"bad", b"x" * LARGE)
    records = [
        InboundRecord("t", 0, at, 0, rng.choice((f"t:{user}".encode(),) * 4 + (None,)), rng.choice(values))
        for at, user in enumerate(whose)
    ]
    cuts = sorted(rng.sample(range(1, 30), 4))
    batches = [records[first:end] for first, end in pairwise([0, *cuts, 30])]
    async with asyncio.timeout(5):
        await asyncio.gather(*[bench.pipeline.process_batch(batch, bench.lease) for batch in batches])
    decided = [result.record for batch in bench.published for result in batch]
    assert sorted(record.offset for record in decided) == list(range(30))
    for key in {record.key for record in records}:
        of_key = [record.offset for record in decided if record.key == key]
        assert of_key == sorted(of_key)
    assert not +bench.lease.held
    assert not bench.lease.aside.buckets


async def test_where_too_many_fail_what_follows_one_set_aside_in_its_key_is_set_aside_though_its_shard_is_back(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_TRIAL", 0.0)
    bench.pipeline._trial = 0.0
    monkeypatch.setattr(FailureRun, "too_long", True)
    monkeypatch.setattr(FailureRun, "fresh", property(lambda _: True, lambda *_: None), raising=False)
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    original = bench.lease.pause
    pauses = 0

    async def pause(_seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 2:
            bench.failing, bench.buckets_away = set(), {}
        await original(0)

    bench.lease.pause = pause  # type: ignore[method-assign]
    await run_with_users(bench, "ada", "bob", "ada")
    assert [result.record.offset for batch in bench.published for result in batch] == [1, 0, 2]


async def test_what_has_to_run_alone_waits_for_a_shard_under_no_mark_either(bench: Bench):
    bench.build("deferred", None)
    bench.left = InFlightMark(0, 1, 1)
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    running = await set_aside(bench, "ada", "bob")
    assert [bool(mark) for mark in bench.marked] == [True, False]
    assert not bench.published, "nothing goes on beside it"
    bench.failing, bench.buckets_away = set(), {}
    assert await running == [["ada"], ["bob"]]


async def test_a_shard_that_fails_again_as_soon_as_it_is_asked_holds_up_none_that_is_back_and_leaves_no_mark(
    bench: Bench,
):
    bench.build("deferred", None)
    bench.failing, bench.buckets_away = {"ada", "bob"}, {"ada": 0.0, "bob": 0.0}
    running = await set_aside(bench, "ada", "bob")
    bench.failing, bench.buckets_away = {"ada"}, {}  # as it looks: the next decision finds out
    async with asyncio.timeout(5):
        while not bench.published:  # noqa: ASYNC110 - it takes notes, and tells nobody
            await asyncio.sleep(0.05)
    for _ in range(50):
        await asyncio.sleep(0)
    assert bench.marked[-1] is None
    bench.failing, bench.buckets_away = set(), {}
    assert await running == [["bob"], ["ada"]]


async def test_what_is_due_by_the_time_that_it_would_be_copied_waits_for_its_shard_beside_what_follows(
    bench: Bench,
):
    bench.build("deferred", None)
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    seen = answers_after_a_pause(bench)
    assert await run_with_users(bench, "ada", "bob", origins=7, retry=LookupRetry(0, 2**50)) == [
        ["bob"],
        ["ada"],
    ]
    assert seen == [({b"t:ada"}, {"shard"})]


async def test_a_batch_that_was_in_flight_at_one_crash_is_set_aside_and_one_of_two_waits(bench: Bench):
    for crashes, published in ((0, [["bob"], ["ada"]]), (1, [["ada"], ["bob"]])):
        bench.lease, bench.published = PartitionLease(), []
        bench.left = InFlightMark(0, 1, crashes)
        bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
        answers_after_a_pause(bench)
        assert await run_with_users(bench, "ada", "bob") == published


async def test_actions_of_a_tenant_whose_ids_are_on_a_shard_that_is_away_wait_and_those_of_others_do_not(
    bench: Bench,
):
    bench.build("reviews", None)
    bench.failing = {"actions of a"}
    seen = answers_after_a_pause(bench)
    assert await run_with_users(bench, "ada", "bob") == [["bob"], ["ada"]]
    assert [waiting for _, waiting in seen] == [{"shard"}]


async def test_a_batch_that_finds_out_of_a_shard_and_concerns_nothing_else_is_set_aside_too(bench: Bench):
    bench.failing = {"ada"}
    seen = answers_after_a_pause(bench)
    assert await run_with_users(bench, "ada") == [["ada"]]
    assert [held for held, _ in seen] == [{b"t:ada"}]


async def test_what_is_set_aside_of_deferred_keeps_its_own_place(bench: Bench):
    bench.build("deferred", None)
    bench.failing = {"ada"}
    answers_after_a_pause(bench)
    assert await run_with_users(bench, "ada", "bob", origins=5_000_000) == [["bob"], ["ada"]]
    assert {offset for mark in bench.marked if mark for offset in (mark.first, mark.last)} <= {0, 1}


async def test_a_batch_that_concerns_no_shard_that_is_away_is_decided_at_once(bench: Bench):
    bench.failing, bench.buckets_away = {"ada"}, {"ada": 0.0}
    assert await run_with_users(bench, "bob", "eve") == [["bob", "eve"]]
    assert bench.asked == 1


async def test_after_an_outage_a_worker_without_records_waits_for_state_no_longer_and_the_next_has_its_grace(
    bench: Bench,
):
    bench.slow = 6.0
    bench.state_errors = [StateUnavailable("away")] * 3
    await bench.run(record())
    assert isinstance(bench.published[0][0], Provisional)
    bench.health.start_batch()
    bench.pipeline.state_answered()
    assert bench.health.current == {"state"}, "a batch that is under way finds out for itself"
    bench.health.under_way = 0
    bench.pipeline.state_answered()
    assert not bench.health.current
    bench.now += 100
    bench.state_errors = [StateUnavailable("away"), None]
    await bench.run(record(1))
    assert isinstance(bench.published[1][0], Decided)


async def test_every_outage_has_a_grace_of_its_own(bench: Bench):
    bench.slow = 6.0
    bench.state_errors = [StateUnavailable("away"), None, StateUnavailable("away"), None]
    await bench.run(record(0))
    bench.now += 100
    await bench.run(record(1))
    assert all(isinstance(results[0], Decided) for results in bench.published)


async def test_without_a_grace_state_is_waited_for_until_the_partition_is_released(monkeypatch):
    monkeypatch.setattr(module, "_RETRY", 0.001)
    patient = Bench("deferred", grace=None)
    patient.state_errors = [StateUnavailable("away")] * 10_000
    asyncio.get_running_loop().call_later(0.05, patient.lease.end)
    with pytest.raises(LeaseLost):
        await patient.run(record())
    assert not patient.published
    assert patient.marked[-1] is None


async def test_lost_state_is_recovered_before_it_is_asked_again(bench: Bench):
    bench.state_errors = [StateLost("flushed"), None]
    await bench.run(record())
    assert (bench.recovered, bench.asked) == (1, 2)


async def test_recent_outcomes_are_seen_to_before_every_step(bench: Bench):
    await bench.run(record())
    assert bench.reasserted == bench.asked == 1


async def test_an_error_of_our_own_is_tried_again_and_never_raised(bench: Bench):
    bench.prepare_errors = [RuntimeError("ours"), KeyError("ours"), None]
    await bench.run(record())
    assert bench.prepared == 3
    assert not bench.health.current


@pytest.fixture
def pauses(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a pipeline takes."""
    taken: list[float] = []

    async def pause(_lease: PartitionLease, seconds: float) -> None:
        taken.append(seconds)

    monkeypatch.setattr(PartitionLease, "pause", pause)
    bench.fresh = [True] * 1000
    return taken


def of_many_keys(value: bytes, first: int, end: int) -> list[InboundRecord]:
    return [InboundRecord("t", 0, n, 0, b"t:%d" % n, value) for n in range(first, end)]


async def test_after_a_hundred_internal_errors_one_record_at_a_time_is_tried_until_one_is_decided(
    bench: Bench, pauses: list[float]
):
    bad = of_many_keys(b"internal", 0, 203)
    await bench.run(*bad[:99])
    await bench.run(record(99))
    await bench.run(*bad[100:200])
    assert not pauses
    before = len(bench.published)
    await bench.run(*bad[200:], record(203))
    assert pauses == [5, 10, 20, 40]
    assert [len(outputs) for outputs in bench.published[before:]] == [1] * 4
    assert not bench.health.current, "it waits no longer as soon as one is decided"
    await bench.run(record(204), record(205))
    assert len(bench.published[-1]) == 2


async def test_no_number_of_broken_records_pauses_a_worker(bench: Bench, pauses: list[float]):
    await bench.run(*of_many_keys(b"bad", 0, 500))
    await bench.run(*of_many_keys(b"bad", 500, 999), record(999))
    assert not pauses
    assert [len(outputs) for outputs in bench.published] == [500, 500], "and none is processed by itself"


async def test_broken_records_between_internal_errors_are_no_trial_and_prolong_no_pause(
    bench: Bench, pauses: list[float]
):
    await bench.run(*of_many_keys(b"internal", 0, 99), *of_many_keys(b"bad", 99, 200))
    await bench.run(*of_many_keys(b"internal", 200, 201))
    assert not pauses
    await bench.run(*of_many_keys(b"bad", 201, 301))
    assert pauses == [5]
    assert bench.health.current == {"internal_errors"}
    await bench.run(*of_many_keys(b"internal", 301, 302), *of_many_keys(b"bad", 302, 303))
    assert pauses == [5, 10]


CLAIM = json.dumps({"claim_id": "c", "user_id": "u", "content": "text"}).encode()


async def test_at_the_third_crash_a_record_is_a_dead_letter_without_being_read_again(bench: Bench):
    bench.left = InFlightMark(5, 5, 2)
    await bench.run(record(5, CLAIM))
    (letter,) = bench.published[0]
    assert letter.error.code == "worker_crash"
    assert bench.prepared == 0
    assert bench.marked[0] == InFlightMark(5, 5, 3)


async def test_a_record_whose_identity_takes_too_much_memory_to_read_is_given_up_at_the_next_crash(
    bench: Bench,
):
    async def fail(record, give_up):
        raise MemoryError

    bench.left, bench.abandon = InFlightMark(5, 5, 2), fail  # type: ignore[method-assign]
    with pytest.raises(MemoryError):
        await bench.run(record(5, CLAIM))
    assert bench.marked[-1] == InFlightMark(5, 5, 3)


async def test_a_record_whose_outcome_state_holds_is_no_dead_letter_however_often_its_worker_died(
    bench: Bench,
):
    bench.left = InFlightMark(5, 5, 2)
    bench.outcome_held = True
    await bench.run(record(5, CLAIM))
    assert bench.prepared == 1
    assert bench.marked[:2] == [InFlightMark(5, 5, 3), InFlightMark(5, 5, 2)]


async def test_whoever_dies_while_state_is_asked_for_its_outcome_leaves_it_to_be_asked_for_again(
    bench: Bench,
):
    async def give_up(_subject):
        bench.lease.end()
        raise StateUnavailable("away")

    bench.give_up = give_up  # type: ignore[method-assign]
    bench.left = InFlightMark(5, 5, 2)
    with pytest.raises(LeaseLost):
        await bench.run(record(5, CLAIM))
    assert bench.marked[:2] == [InFlightMark(5, 5, 3), InFlightMark(5, 5, 2)]


async def test_a_record_whose_very_identity_kills_the_worker_is_given_up_too(bench: Bench, monkeypatch):
    async def die(record, give_up):
        raise AssertionError("it must not be decoded again")

    monkeypatch.setattr(bench, "abandon", die)
    bench.left = InFlightMark(5, 5, 3)
    await bench.run(record(5, CLAIM))
    assert bench.prepared == 0


# --- a language model


def asking(bench: Bench, ask_model) -> None:
    bench.build("responses", 10.0, ask_model=ask_model)


async def test_the_model_is_asked_before_state_decides_and_its_time_makes_no_answer_of_state_stale(
    bench: Bench,
):
    order: list[tuple[str, int]] = []

    async def ask_model(batch):
        bench.now += 2 * module.STALE
        order.append(("asked", bench.asked))
        return batch

    asking(bench, ask_model)
    await bench.run(record())
    assert order == [("asked", 0)]
    assert bench.asked == 1


async def test_asking_is_called_off_where_the_partition_is_given_away_and_nothing_is_decided(bench: Bench):
    called_off = asyncio.Event()

    async def ask_model(batch):
        bench.lease.end()
        try:
            await asyncio.Event().wait()
        finally:
            called_off.set()

    asking(bench, ask_model)
    with pytest.raises(LeaseLost):
        await bench.run(record())
    assert called_off.is_set()
    assert (bench.asked, bench.published) == (0, [])
    with pytest.raises(LeaseLost):
        await bench.run(record())


async def test_state_that_is_out_of_reach_when_the_model_is_to_be_asked_is_waited_for(bench: Bench):
    errors = [StateUnavailable("1"), StateLost("2"), None]

    async def ask_model(batch):
        _next(errors)
        return batch

    asking(bench, ask_model)
    await bench.run(record())
    assert (errors, bench.asked, bench.recovered) == ([], 1, 1)
    assert not bench.health.current


# --- what is behind runs beside what follows


class Lane:
    """The batches of one partition, of which large records are prepared no further until the test says so."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.enough = asyncio.Event()
        self.read_past: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []
        bench.build("responses", 10.0)
        self.prepare, bench.prepare = bench.prepare, self.hold  # type: ignore[method-assign]

    async def hold(self, records, *, ask_network):
        if any(len(record.value) >= LARGE for record in records):
            await self.enough.wait()
        return await self.prepare(records, ask_network=ask_network)

    async def batch(self, *records: InboundRecord) -> None:
        number = len(self.tasks)
        process = self.bench.pipeline.process_batch
        self.tasks.append(
            asyncio.create_task(process(records, self.bench.lease, lambda: self.read_past.append(number)))
        )
        await asyncio.sleep(0.01)

    async def ends(self) -> list[BaseException | None]:
        self.enough.set()
        async with asyncio.timeout(5):
            return await asyncio.gather(*self.tasks, return_exceptions=True)

    @property
    def published(self) -> list[list[int]]:
        return [[result.record.offset for result in results] for results in self.bench.published]


@pytest.fixture
async def lane(bench: Bench) -> Lane:
    return Lane(bench)


def of(user: bytes, offset: int, size: int = 2) -> InboundRecord:
    return InboundRecord("t", 0, offset, 0, b"t:" + user, b"x" * size)


async def test_small_records_of_later_batches_pass_large_ones_and_those_of_their_key_wait(lane: Lane):
    await lane.batch(of(b"mallory", 0, LARGE), of(b"ann", 1), of(b"mallory", 2, LARGE))
    await lane.batch(of(b"ann", 3), of(b"mallory", 4))
    await lane.batch(of(b"bob", 5), of(b"mallory", 6))
    assert lane.published == [[1], [3], [5]]
    assert lane.read_past == [0, 1, 2]
    assert not any(task.done() for task in lane.tasks), "what has a record behind is not done"
    assert await lane.ends() == [None] * 3
    assert lane.published[3:] == [[0], [2], [4], [6]]
    await lane.batch(of(b"mallory", 7))
    assert lane.published[-1] == [7]
    assert lane.tasks[-1].done(), "no key is held any longer than its records"


async def test_the_mark_covers_what_is_behind_and_what_passes_it_and_goes_with_the_last(lane: Lane):
    await lane.batch(of(b"mallory", 0, LARGE))
    await lane.batch(of(b"ann", 1), of(b"ann", 2))
    assert lane.bench.marked == [InFlightMark(0, 0, 0), InFlightMark(0, 2, 0), InFlightMark(0, 0, 0)]
    await lane.ends()
    await asyncio.sleep(0)
    assert lane.bench.marked[-1] is None


async def test_large_ones_that_have_not_begun_when_the_lease_ends_are_left_and_the_one_in_work_is_done(
    lane: Lane,
):
    await lane.batch(of(b"mallory", 0, LARGE))
    await lane.batch(of(b"mallory", 1, LARGE))
    lane.bench.lease.end()
    done, left = await lane.ends()
    assert (done, type(left), lane.published) == (None, LeaseLost, [[0]])


async def test_nothing_runs_beside_what_was_in_flight_at_a_crash(lane: Lane):
    lane.bench.left = InFlightMark(0, 1, 0)
    await lane.batch(of(b"mallory", 0, LARGE), of(b"ann", 1))
    await lane.batch(of(b"bob", 2))
    assert lane.published == [[1]]
    await lane.ends()
    assert lane.published == [[1], [0], [2]]


async def test_of_what_is_behind_in_several_partitions_one_is_checked_at_a_time(lane: Lane):
    await lane.batch(of(b"mallory", 0, LARGE))
    lane.bench.lease = PartitionLease()
    lane.enough.clear()
    await lane.batch(of(b"mallory", 0, LARGE))
    assert lane.bench.pipeline._beside.locked()
    assert await lane.ends() == [None, None]
    assert not lane.bench.pipeline._beside.locked()
