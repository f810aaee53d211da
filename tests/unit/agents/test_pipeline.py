"""A batch is settled whatever happens to state, broker and process."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from agents import pipeline as module
from agents.outputs import Output
from agents.pauses import Pauses
from agents.pipeline import Pipeline, Role
from agents.tenure import Released, Tenure
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, StateLost, StateUnavailable
from groundwire.gate.gate import subject_of
from groundwire.gate.results import DeadLetter, Decided, Provisional
from groundwire.messages.inbound import InboundRecord
from groundwire.state.model import Mark


class Bench:
    """A pipeline over parts that fail as a list of errors says; `None` in a list is a success."""

    def __init__(self, role: Role) -> None:
        self.now = 0.0
        self.state_errors: list[Exception | None] = []
        self.publish_errors: list[Exception | None] = []
        self.prepare_errors: list[Exception | None] = []
        self.asked = self.prepared = self.recovered = self.reasserted = 0
        self.fresh = [True]
        self.slow = 0.0
        self.published: list[list[Output]] = []
        self.left: Mark | None = None
        self.marked: list[Mark | None] = []
        self.outcome_held = False
        self.pauses = Pauses()
        self.tenure = Tenure()
        self.pipeline = Pipeline(
            role, self, self, self, self, self, self.pauses, clock=lambda: self.now  # type: ignore[arg-type]
        )  # fmt: skip

    async def prepare(self, records, *, ask_network):
        self.prepared += 1
        _next(self.prepare_errors)
        return list(records)

    async def settle(self, batch, *, deferred):
        self.asked += 1
        self.now += self.slow
        _next(self.state_errors)
        fresh = self.fresh.pop(0) if self.fresh else False
        return [_result(record, fresh=fresh) for record in batch]

    async def abandon(self, record, give_up):
        return await give_up(subject_of(record))

    def provisional(self, batch):
        return [Provisional(record, _decision(record)) for record in batch]

    async def publish(self, outputs):
        _next(self.publish_errors)
        self.published.append(list(outputs))

    async def recover(self, tenure):
        self.recovered += 1

    async def before_step(self):
        self.reasserted += 1

    def answered(self):
        pass

    def failed(self):
        pass

    async def marks(self, topic, partition):
        return self.left

    async def mark(self, topic, partition, mark, *, written):
        self.marked.append(mark)
        written()

    async def unmark(self, topic, partition):
        self.marked.append(None)

    async def give_up(self, subject):
        return not self.outcome_held

    async def run(self, *records: InboundRecord) -> None:
        async with asyncio.timeout(5):
            await self.pipeline.settle(records, self.tenure)


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
    return Bench(Role("claims", deferred=False, grace=10.0))


async def test_an_answer_that_is_too_old_by_the_time_it_comes_is_asked_for_again(bench: Bench):
    bench.slow = 31.0
    original = bench.settle

    async def quicker(batch, *, deferred):
        results = await original(batch, deferred=deferred)
        bench.slow = 0.0
        return results

    bench.settle = quicker  # type: ignore[method-assign]
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
    assert not bench.pauses.current


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
    assert not bench.pauses.current


async def test_past_the_grace_claims_are_decided_provisionally(bench: Bench):
    bench.slow = 6.0
    bench.state_errors = [StateUnavailable("away")] * 9
    await bench.run(record())
    assert isinstance(bench.published[0][0], Provisional)
    assert bench.pauses.current == {"state"}


async def test_after_an_outage_a_worker_without_records_waits_for_state_no_longer_and_the_next_has_its_grace(
    bench: Bench,
):
    bench.slow = 6.0
    bench.state_errors = [StateUnavailable("away")] * 3
    await bench.run(record())
    assert isinstance(bench.published[0][0], Provisional)
    bench.pauses.starts()
    bench.pipeline.state_answered()
    assert bench.pauses.current == {"state"}, "a batch that is under way finds out for itself"
    bench.pauses.under_way = 0
    bench.pipeline.state_answered()
    assert not bench.pauses.current
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
    patient = Bench(Role("deferred", deferred=True, grace=None))
    patient.state_errors = [StateUnavailable("away")] * 10_000
    asyncio.get_running_loop().call_later(0.05, patient.tenure.end)
    with pytest.raises(Released):
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
    assert not bench.pauses.current


@pytest.mark.parametrize("value", [b"bad", b"internal"])
async def test_a_hundred_failures_in_a_row_pause_the_worker_and_one_success_starts_anew(
    bench: Bench, value: bytes
):
    bench.fresh = [True] * 1000
    await bench.run(*(record(n, value) for n in range(99)))
    await bench.run(record(99))
    await bench.run(*(record(n, value) for n in range(100, 200)))
    bench.tenure.end()
    published = len(bench.published)
    with pytest.raises(Released):
        await bench.run(record(200))
    assert "dead_letters" in bench.pauses.current
    assert len(bench.published) == published


CLAIM = json.dumps({"claim_id": "c", "user_id": "u", "content": "text"}).encode()


async def test_at_the_third_crash_a_record_is_a_dead_letter_without_being_read_again(bench: Bench):
    bench.left = Mark(5, 5, 2)
    await bench.run(record(5, CLAIM))
    (letter,) = bench.published[0]
    assert letter.error.code == "worker_crash"
    assert bench.prepared == 0
    assert bench.marked[0] == Mark(5, 5, 3)


async def test_a_record_whose_outcome_state_holds_is_no_dead_letter_however_often_its_worker_died(
    bench: Bench,
):
    bench.left = Mark(5, 5, 2)
    bench.outcome_held = True
    await bench.run(record(5, CLAIM))
    assert bench.prepared == 1
    assert bench.marked[:2] == [Mark(5, 5, 3), Mark(5, 5, 2)]


async def test_a_record_whose_very_identity_kills_the_worker_is_given_up_too(bench: Bench, monkeypatch):
    async def die(record, give_up):
        raise AssertionError("it must not be decoded again")

    monkeypatch.setattr(bench, "abandon", die)
    bench.left = Mark(5, 5, 3)
    await bench.run(record(5, CLAIM))
    assert bench.prepared == 0


# --- a language model


def asking(bench: Bench, inquire) -> None:
    bench.pipeline = Pipeline(
        Role("responses", deferred=False, grace=10.0), bench, bench, bench, bench, bench, bench.pauses,
        inquire=inquire, clock=lambda: bench.now,
    )  # type: ignore[arg-type] # fmt: skip


async def test_the_model_is_asked_before_state_decides_and_its_time_makes_no_answer_of_state_stale(
    bench: Bench,
):
    order: list[tuple[str, int]] = []

    async def inquire(batch):
        bench.now += 2 * module.STALE
        order.append(("asked", bench.asked))

    asking(bench, inquire)
    await bench.run(record())
    assert order == [("asked", 0)]
    assert bench.asked == 1


async def test_asking_is_called_off_where_the_partition_is_given_away_and_nothing_is_decided(bench: Bench):
    called_off = asyncio.Event()

    async def inquire(batch):
        bench.tenure.end()
        try:
            await asyncio.Event().wait()
        finally:
            called_off.set()

    asking(bench, inquire)
    with pytest.raises(Released):
        await bench.run(record())
    assert called_off.is_set()
    assert (bench.asked, bench.published) == (0, [])
    with pytest.raises(Released):
        await bench.run(record())


async def test_state_that_is_out_of_reach_when_the_model_is_to_be_asked_is_waited_for(bench: Bench):
    errors = [StateUnavailable("1"), StateLost("2"), None]

    async def inquire(batch):
        _next(errors)

    asking(bench, inquire)
    await bench.run(record())
    assert (errors, bench.asked, bench.recovered) == ([], 1, 1)
    assert not bench.pauses.current
