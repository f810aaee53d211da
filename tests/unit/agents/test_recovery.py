"""Lost state is rebuilt and told of; recent outcomes are asserted again where another server may have lost them."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pytest

from agents import recovery as module
from agents.outputs import Output
from agents.partitions import Health, PartitionLease
from agents.publisher import AuditPublisher
from agents.recovery import WINDOW, StateReconciler, StateRecovery
from groundwire.errors import BrokerUnavailable, StateUnavailable
from groundwire.messages.identity import event_id

# Audit events of a worker


NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class Broker:
    def __init__(self) -> None:
        self.away = False
        self.published: list[Output] = []

    async def publish(self, outputs):
        if self.away:
            raise BrokerUnavailable("away")
        self.published += outputs

    @property
    def events(self):
        return [json.loads(output.value or b"") for output in self.published]


class State:
    """Lost once, until it is rebuilt."""

    def __init__(self, epoch: str | None) -> None:
        self.epoch = epoch
        self.carried: str | None = None

    async def adopt_epoch(self):
        self.epoch = self.carried
        return self.epoch

    async def rebuild(self, *, only_lost: bool):
        assert only_lost
        self.carried = "new"
        return True


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def audit(broker) -> AuditPublisher:
    times = (NOW + timedelta(seconds=n) for n in range(100))
    return AuditPublisher(broker, now=lambda: next(times))


async def test_an_event_of_a_worker_belongs_to_no_tenant_and_is_published_once(broker, audit):
    audit.note("state_rebuilt", {"epoch": "e"})
    broker.away = True
    await audit.publish()
    broker.away = False
    await audit.publish()
    await audit.publish()
    (output,) = broker.published
    assert (output.topic, output.key) == ("audit", b"")
    (event,) = broker.events
    assert (event["tenant_id"], event["actor"], event["subject_id"]) == ("", "groundwire", None)
    assert event["event_id"] == event_id("state_rebuilt", {"epoch": "e"})


async def test_what_can_come_again_is_told_by_its_time_and_what_cannot_is_the_same_event(broker, audit):
    for recurs in (True, True, False, False):
        audit.note("policy_loaded", {"sha256": "s"}, recurs=recurs)
    await audit.publish()
    one, two, three, four = [event["event_id"] for event in broker.events]
    assert len({one, two, three}) == 3
    assert three == four
    assert {json.dumps(event["detail"]) for event in broker.events} == {'{"sha256": "s"}'}


async def test_the_loss_of_state_and_its_rebuild_are_told_with_their_epochs(broker, audit):
    for known in ("old", None):
        broker.published.clear()
        for _ in range(2):  # two workers notice at two times: two events
            state = State(known)
            await StateRecovery(state, state, None, Health(), audit.note).recover(PartitionLease())  # type: ignore[arg-type]
        await audit.publish()
        told = [(event["type"], event["detail"]["epoch"]) for event in broker.events]
        assert told == [("state_lost", known), ("state_rebuilt", "new")] * 2
        assert len({event["event_id"] for event in broker.events if event["type"] == "state_lost"}) == 2


# Outcomes that are reasserted


class Bench:
    def __init__(self) -> None:
        self.now = 10_000.0
        self.runs: dict[int, tuple[str, str | None]] = {0: ("", "one"), 1: ("", "one")}
        self.in_doubt = {0: 0, 1: 0}
        self.values = [b"a", b"b", b"c"]
        self.read_since: list[datetime] = []
        self.since = math.inf
        self.asserted: list[object] = []
        self.unreadable = False
        self.server = self
        self.epoch: str | None = "first"
        self.kept: list[object] = []
        self.takes_policies = True
        self.subject = StateReconciler(
            self, "policy", self, self.read, clock=lambda: self.now  # type: ignore[arg-type]
        )  # fmt: skip

    async def put(self, policy):
        if not self.takes_policies:
            raise StateUnavailable("away")
        self.kept.append(policy)

    def watch_servers(self):
        pass

    def suspect(self):
        self.in_doubt = {0: 0, 1: 0}

    def doubtful(self):
        return self.in_doubt

    async def server_runs(self, buckets):
        return {bucket: self.runs[bucket] for bucket in buckets if bucket in self.runs}

    def doubted_at(self, buckets):
        return self.since

    def trust(self, runs, doubtful):
        assert doubtful.keys() >= runs.keys()
        self.in_doubt = dict.fromkeys(self.in_doubt.keys() - runs.keys(), 0)

    def bucket_of(self, subject):
        return 0

    async def read(self, since):
        self.read_since.append(since)
        if self.unreadable:
            raise BrokerUnavailable("away")
        for value in self.values:
            yield value

    async def reassert(self, outcomes):
        self.asserted += outcomes
        return len(outcomes)

    async def outage(self, server: str | None, bucket: int = 0) -> None:
        await self.subject.before_step()
        self.subject.answered()
        self.subject.failed()
        self.runs[bucket] = ("", server)
        await self.subject.before_step()


class Published(bytes):
    subject = None


def stored(value, policy):
    return None if value == b"b" else Published(value)


@pytest.fixture(autouse=True)
def _values_are_outcomes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "stored_outcome", stored)


async def test_what_is_reasserted_depends_on_which_servers_answer_after_an_outage():
    """Each row: the bucket that failed, its server afterwards, what was asserted, and from when on."""
    window = datetime.fromtimestamp(10_000 - WINDOW, UTC)
    rows = [
        (0, "one", math.inf, [], []),
        (0, "two", math.inf, [b"a", b"c"], [window]),
        (0, None, math.inf, [b"a", b"c"], [window]),
        (0, "two", 4_000.0, [b"a", b"c"], [datetime.fromtimestamp(4_000 - WINDOW, UTC)]),  # away for longer
        (1, "two", math.inf, [], [window]),  # no user of it was published
    ]
    for bucket, server, since, asserted, read_since in rows:
        bench = Bench()
        await bench.subject.before_step()
        assert not bench.read_since, "nothing was asked yet"
        bench.since = since
        await bench.outage(server, bucket)
        assert (bench.asserted, bench.read_since) == (asserted, read_since)
        await bench.subject.before_step()
        assert bench.read_since == read_since, "once"
    unnamed = Bench()
    unnamed.runs[0] = ("", None)
    await unnamed.outage(None)
    assert unnamed.asserted == [b"a", b"c"], "an unidentified server counts as new"


async def test_where_the_topics_cannot_be_read_nothing_is_asked_of_state():
    bench = Bench()
    bench.unreadable = True
    with pytest.raises(StateUnavailable):
        await bench.outage("two")
    bench.unreadable = False
    await bench.subject.before_step()
    assert bench.asserted == [b"a", b"c"]


async def test_state_keeps_the_policy_before_anything_is_decided_by_it():
    bench = Bench()
    bench.takes_policies = False
    with pytest.raises(StateUnavailable):
        await bench.subject.before_step()
    bench.takes_policies = True
    for epoch in ("first", "first", "second"):
        bench.epoch = epoch
        await bench.subject.before_step()
    assert bench.kept == ["policy", "policy"], "once an epoch"


async def test_a_bucket_that_does_not_answer_is_compared_once_it_does():
    bench = Bench()
    await bench.subject.before_step()
    bench.subject.answered()
    bench.subject.failed()
    del bench.runs[0]
    await bench.subject.before_step()
    assert (bench.in_doubt, bench.asserted) == ({0: 0}, [])
    bench.runs[0] = ("", "two")
    await bench.subject.before_step()
    assert (bench.in_doubt, bench.asserted) == ({}, [b"a", b"c"])
