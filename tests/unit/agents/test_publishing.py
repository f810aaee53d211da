"""Published outputs count once acknowledged, and are sealed before the commit; lost state is rebuilt (X-13)."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
import gc
import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock, patch

import pytest
from aiokafka.errors import (
    InvalidMessageError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    UnknownTopicOrPartitionError,
)
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from agents import publisher as publishing
from agents import recovery
from agents.book import Entry
from agents.heads import EVERY, HeadKeeper
from agents.health import Health
from agents.hooks import Batch
from agents.lease import LeaseLost, PartitionLease
from agents.outputs import Output
from agents.publisher import AuditPublisher, ProducerBroken, Publisher
from agents.recovery import WINDOW, StateReconciler, StateRecovery
from agents.sealing import Committed, Sealer
from groundwire import metrics
from groundwire.errors import (
    BrokerUnavailable,
    SchemeMismatch,
    SealUnavailable,
    StateUnavailable,
    TopicsMissing,
)
from groundwire.kafka.connection import partition_of
from groundwire.keys import ed25519
from groundwire.keys.attestation import AttestationState
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys, SealSigner
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.messages.seals import MAX_OUTPUTS, Seal, SignedHead, seal_of
from groundwire.messages.topics import TopicName
from groundwire.replay.sealed_topics import read_heads
from tests.unit.agents.standins import turns


class Producer:
    """Acknowledges, refuses a batch at once or later, or says nothing, by the values of its records."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None]] = []
        self.refused: dict[bytes, Exception] = {}
        self.failed: dict[bytes, Exception] = {}

        self.missing: set[str] = set()
        self.client = SimpleNamespace(force_metadata_update=AsyncMock(return_value=True))

    async def partitions_for(self, topic):
        if topic in self.missing:
            raise UnknownTopicOrPartitionError
        return {0, 1, 2}

    def create_batch(self):
        batch = SimpleNamespace(values=[])  # takes the values of three records

        def append(*, value, **_):
            if len(batch.values) < 3:
                batch.values.append(value)
                return value
            return None

        batch.append = append
        return batch

    async def send_batch(self, batch, topic, *, partition):
        if refused := [value for value in batch.values if value in self.refused]:
            raise self.refused[refused[0]]
        self.sent += [(topic, value) for value in batch.values]
        future = asyncio.get_running_loop().create_future()
        if failed := [value for value in batch.values if value in self.failed]:
            future.set_exception(self.failed[failed[0]])
        elif b"silence" not in batch.values:
            future.set_result(None)
        return future


def output(value: bytes, *, large: bool = False) -> Output:
    cause = InboundRecord("p.claims", 1, 2, 0, b"key", value, (("h", b"v"),))
    return Output(TopicName.APPROVED, b"t:u", value, [("h", bytes(1_048_000))] * large, cause)


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.fixture
def publisher(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> Publisher:
    monkeypatch.setattr(publishing, "ACK_SECONDS", 0.1)
    return Publisher(SimpleNamespace(producer=SimpleNamespace(_ensure_producer=lambda: producer)), "p.")


@given(st.binary(max_size=60), st.integers(1, 50))
def test_a_key_has_the_partition_that_aiokafka_gives_it(key, count):
    partitions = list(range(count))
    expected = DefaultPartitioner()(key, partitions, partitions)
    assert [partition_of(key, partitions) for _ in range(2)] == [expected, expected]
    assert partition_of(None, partitions) in partitions


async def test_records_are_sent_in_order_and_what_the_broker_refuses_is_a_dead_letter(publisher, producer):
    await publisher.publish([output(b"%d" % n) for n in range(8)])
    assert producer.sent == [("p.approved", b"%d" % n) for n in range(8)]
    producer.sent.clear()
    await publisher.publish([output(b"a"), output(b"large", large=True), output(b"b")])
    assert producer.sent == [("p.approved", b"a"), ("p.approved", b"b"), ("p.dead-letter", b"large")]
    largest = b"x" * 1_047_990
    await publisher.publish([output(largest)])
    assert producer.sent[3:] == [("p.dead-letter", largest)], "the largest that a topic holds fits there"
    producer.failed[b"wrong"] = InvalidMessageError()
    send = producer.send_batch

    async def sending(batch, topic, *, partition):
        if topic.endswith("dead-letter"):
            producer.failed.clear()
        return await send(batch, topic, partition=partition)

    producer.send_batch = sending
    producer.sent.clear()
    await publisher.publish([output(value) for value in (b"1", b"wrong", b"3", b"4")])
    letters = [value for topic, value in producer.sent if topic == "p.dead-letter"]
    assert letters == [b"1", b"wrong", b"3"], "with all of its batch"
    assert ("p.approved", b"4") in producer.sent


async def test_batches_that_fail_behind_one_that_failed_leave_no_complaint_in_the_log(publisher, producer):
    complaints: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    producer.failed = {b"%d" % n: OutOfOrderSequenceNumber() for n in range(7)}
    with pytest.raises(ProducerBroken):
        await publisher.publish([output(b"%d" % n) for n in range(7)])
    producer.refused[b"3"] = KafkaTimeoutError()  # at once: the batch before it is under way
    with pytest.raises(BrokerUnavailable):
        await publisher.publish([output(b"%d" % n) for n in range(7)])
    producer.failed, producer.refused = {}, {}  # an error keeps hold of all that was there when it was raised
    await asyncio.sleep(0)
    gc.collect()
    assert not complaints


async def test_what_may_pass_is_an_outage_a_broken_producer_is_none_and_each_failure_counts(
    publisher, producer
):
    def counted() -> dict[str, float]:
        found = (sample for family in metrics.PUBLISH_ERRORS.collect() for sample in family.samples)
        return {sample.labels["why"]: sample.value for sample in found if sample.name.endswith("_total")}

    before = counted()
    outages = (KafkaTimeoutError(), KafkaConnectionError(), MessageSizeTooLargeError())
    for error in (*outages, OutOfOrderSequenceNumber()):
        for when in ("refused", "failed"):
            producer.refused, producer.failed = {}, {}
            getattr(producer, when)[b"x"] = error
            if when == "refused" and isinstance(error, MessageSizeTooLargeError):
                continue  # aiokafka raises it only for an acknowledgement
            # of a record that is too large even the dead letter is refused
            with pytest.raises(BrokerUnavailable if error in outages else ProducerBroken):
                await publisher.publish([output(b"a"), output(b"x")])
    async with asyncio.timeout(60):
        with pytest.raises(BrokerUnavailable):
            await publisher.publish([output(b"silence")])
    producer.failed = {}
    await publisher.publish([output(b"good"), output(b"large", large=True)])
    grown = {why: count - before[why] for why, count in counted().items()}
    assert grown == {"refused": 3, "unavailable": 5, "broken": 2}


async def test_a_topic_that_is_missing_is_told_from_a_broker_that_is_away_also_after_it_was_deleted(
    publisher, producer, monkeypatch
):
    producer.missing = {"p.approved"}
    with pytest.raises(TopicsMissing, match=r"p\.approved"):
        await publisher.publish([output(b"a")])
    producer.client.force_metadata_update.return_value = False
    with pytest.raises(BrokerUnavailable) as away:
        await publisher.publish([output(b"a")])
    assert not isinstance(away.value, TopicsMissing)
    producer.missing, producer.client.force_metadata_update.return_value = set(), True
    send = producer.send_batch

    async def deleted(*batch, **where):
        producer.missing = {"p.approved"}
        return await send(*batch, **where)

    monkeypatch.setattr(producer, "send_batch", deleted)
    with pytest.raises(TopicsMissing):
        await publisher.publish([output(b"silence")])


async def test_an_unreachable_broker_is_logged_once_a_minute(publisher, producer, monkeypatch):
    producer.refused[b"x"] = KafkaTimeoutError()
    with capture_logs() as lines:
        for now in (100.0, 101.0, 159.0, 160.0):
            monkeypatch.setattr(publishing.time, "monotonic", lambda now=now: now)
            with pytest.raises(BrokerUnavailable):
                await publisher.publish([output(b"x")])
    assert [line["event"] for line in lines] == ["broker.unavailable"] * 2


# Seals

TP0, TP1 = TP("t.claims", 0), TP("t.claims", 1)
KEY = ed25519.new_private_key()


class Desk:
    """A sealer, its signer, what it published, and what the group has committed."""

    def __init__(self) -> None:
        self.published: list[Seal] = []
        self.heads: list[SignedHead] = []
        self.kept: list[SignedHead] = []
        self.committed = {TP0: Committed(None, None), TP1: Committed(None, None)}
        self.broker_away = self.refuses = self.signer_away = self.heads_away = False
        self.health = Health()
        self.sealer = Sealer(
            self, self.publish, self.committed_of, self.health, keep=self.keep, now=lambda: datetime.now(UTC)
        )

    def key_id(self, _at: datetime) -> str:
        if self.signer_away:
            raise SealUnavailable("no key is valid")
        return "gate"

    async def sign(self, _key_id: str, data: bytes) -> bytes:
        return ed25519.sign(KEY, data)

    async def publish(self, outputs) -> list[Output]:
        if self.broker_away:
            raise BrokerUnavailable("away")
        if self.refuses:
            return list(outputs)
        heads = [output for output in outputs if output.topic is TopicName.HEADS]
        self.heads += [SignedHead.model_validate_json(output.value or b"") for output in heads]
        assert [output.key for output in heads] == [
            f"t.claims/{each.cause.partition}".encode() for each in heads
        ]
        self.published += [seal_of(output.value) for output in outputs if output not in heads]
        return []

    async def keep(self, heads) -> None:
        if self.heads_away:
            raise SealUnavailable("the disk is full")
        self.kept += heads

    def committed_of(self, tp):
        return self.committed[tp]

    async def note(self, first: int, *published: int | tuple, tp: TP = TP0) -> None:
        """Note a batch from an offset on, and what was published: (offset, value, topic), or the offset alone."""
        outputs: list[Output] = []
        for one in published:
            given = one if isinstance(one, tuple) else (one, b"{}")
            offset, value, topic = given if len(given) == 3 else (*given, TopicName.APPROVED)
            name = f"00000000-0000-5000-8000-00000000000{offset % 10}".encode()
            cause = InboundRecord("t.claims", 0, offset, 0, None, b"")
            outputs.append(Output(topic, b"k", value, [("ce_id", name)], cause, partition=2))
        batch = self.batch(tp, first)
        await self.sealer.before_batch(batch)
        batch.originals = [output.cause for output in outputs]
        batch.entries, batch.published = [Entry(record, 0.0) for record in batch.originals], outputs
        self.sealer.after_publish(batch)

    def batch(self, tp: TP, first: int) -> Batch:
        lease = Mock(pause=AsyncMock(side_effect=LeaseLost))
        loop: Any = SimpleNamespace(tp=tp, book=SimpleNamespace(first_offset=first), lease=lease)
        return Batch(loop, [Entry(InboundRecord("t.claims", 0, first, 0, None, b""), 0.0)], Mock())

    async def has_room(self, first: int) -> bool:
        try:
            await self.sealer.before_batch(self.batch(TP0, first))
        except LeaseLost:
            return False
        return True

    async def commit(self, **offsets: int):
        """Seal, and commit what may be."""
        done = await self.sealer.before_commit(
            {TP("t.claims", int(name[1:])): (end, "") for name, end in offsets.items()}
        )
        self.committed |= {tp: Committed(*each) for tp, each in done.items()}
        return done


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_seal_names_what_was_published_of_the_committed_offsets_in_one_chain_of_all_holders(desk):
    await desk.note(3, (3, b"a"), (3, b"b", TopicName.AUDIT), (5, b"c"))
    done = await desk.commit(p0=5)
    (seal,) = desk.published
    assert (seal.head.first, seal.head.end, seal.head.before, seal.head.partition) == (3, 5, None, 0)
    assert [each[:3] for each in seal.outputs] == [(3, "approved", 2), (3, "audit", 2)]
    assert seal.outputs[0].sha256 == sha256_hex(b"a")
    assert ed25519.is_signed(ed25519.public_key_of(KEY), seal.head.to_bytes(), seal.signature)
    assert done == {TP0: (5, seal.head.sha256)}
    await desk.commit(p0=6)
    assert [each.sha256 for each in desk.published[1].outputs] == [sha256_hex(b"c")], "offset 5 came next"
    desk.sealer.before_assignment()  # by whoever holds the partition next
    await desk.note(6, 6)
    await desk.commit(p0=7)
    second, third = (seal.head for seal in desk.published[1:])
    assert (third.first, third.before) == (second.end, second.sha256)
    await desk.note(7, 7, (7, b"{}", TopicName.DEFERRED), (7, b"{}", TopicName.DEAD_LETTER))
    await desk.note(4, tp=TP1)
    await desk.commit(p0=8, p1=9)
    one, other = (seal.head for seal in desk.published[3:])
    found = one.partition, one.count, other.partition, other.count, other.first
    assert found == (0, 1, 1, 0, 4), "each partition its chain, and a stretch without sealed outputs too"


async def test_the_head_of_each_partitions_last_seal_is_kept_before_the_commit_and_after_the_seal(
    desk, monkeypatch
):
    monkeypatch.setattr("agents.sealing.MAX_OUTPUTS", 2)
    await desk.note(0, 0, 1, 2, 3)
    await desk.note(7, tp=TP1)
    desk.heads_away = True
    assert await desk.commit(p0=4, p1=8) == {}, "without its second place nothing is committed"
    assert desk.health.current == {"seal"}
    desk.heads_away = False
    done = await desk.commit(p0=4, p1=8)
    assert [each.seal.sha256 for each in desk.kept] == [name for _, name in done.values()]
    assert desk.heads[2:] == desk.kept
    assert desk.kept[0] == desk.published[-2].signed
    held = list(desk.published)
    desk.refuses = True
    await desk.note(4, 4)
    await desk.commit(p0=5)
    assert (desk.published, len(desk.heads)) == (held, 4), "no head whose seal is not there"


async def test_heads_outside_of_kafka_are_appended_once_a_minute_for_each_partition_or_nothing_is_committed(
    desk, tmp_path
):
    file, stored = tmp_path / "heads.jsonl", tmp_path / "stored"
    keeper = HeadKeeper(file, ["sh", "-c", f"cat >> {stored}"])
    await desk.note(0, 0)
    await desk.note(0, tp=TP1)
    await desk.commit(p0=1, p1=1)
    one, other = desk.kept
    later = [one.model_copy(update={"seal": one.seal.model_copy(update={"at": at})}) for at in (
        one.seal.at + EVERY / 2, one.seal.at + EVERY
    )]  # fmt: skip
    for heads in ([one], [other], [later[0], other]):
        await keeper.keep(heads)
    with file.open("ab") as torn:  # a crash
        torn.write(b'{"seal":')
    await keeper.keep([later[1]])
    kept = [one, other, later[1]]
    lines = [each.model_dump_json().encode() for each in kept]
    assert [*read_heads(stored).values()] == lines
    assert [*read_heads(file).values()] == [*lines[:2], b'{"seal":', lines[2]]
    for broken in (HeadKeeper(tmp_path / "no" / "folder", ()), HeadKeeper(None, ["false"])):
        for _ in range(2):
            with pytest.raises(SealUnavailable, match="GROUNDWIRE_HEADS_"):
                await broken.keep([one])


async def test_what_a_crash_left_uncommitted_is_sealed_again_and_another_decision_beside_the_first(desk):
    await desk.note(0, (0, b"x"))
    await desk.sealer.before_commit({TP0: (1, "")})  # the seal was acknowledged, the commit was not
    desk.sealer.before_assignment()
    await desk.note(0, (0, b"x"))
    await desk.commit(p0=1)
    first, again = ((seal.outputs, seal.head.root, seal.head.before) for seal in desk.published)
    assert first == again
    await desk.note(1, (1, b"first"), (1, b"second"), (1, b"first"))
    await desk.commit(p0=2)
    assert [each.sha256 for each in desk.published[2].outputs] == [
        sha256_hex(b"first"),
        sha256_hex(b"second"),
    ]


async def test_nothing_is_committed_that_could_not_be_sealed(desk):
    reasons = (("broker_away", "broker"), ("refuses", "seal"), ("signer_away", "seal"))
    for offset, (away, why) in enumerate(reasons):
        await desk.note(offset, offset)
        setattr(desk, away, True)
        assert await desk.commit(p0=offset + 1) == {}
        assert desk.health.current == {why}
        desk.sealer.before_assignment()
        assert not desk.health.current, "it may hold no partition any more"
        await desk.note(offset, offset)
        await desk.commit(p0=offset + 1)
        setattr(desk, away, False)
        assert (await desk.commit(p0=offset + 1))[TP0][0] == offset + 1
        assert not desk.health.current
        assert [len(seal.outputs) for seal in desk.published] == [1] * (offset + 1)


async def test_a_backlog_is_sealed_in_several_seals_of_one_chain_limited_per_commit(desk, monkeypatch):
    end = 9 * MAX_OUTPUTS
    await desk.note(0, *range(end))
    assert (await desk.commit(p0=end))[TP0][0] == 8 * MAX_OUTPUTS
    done = await desk.commit(p0=end)
    heads = [seal.head for seal in desk.published]
    assert done[TP0] == (end, heads[-1].sha256)
    assert {head.count for head in heads} == {MAX_OUTPUTS}
    assert [(one.end, one.sha256) for one in heads[:-1]] == [(one.first, one.before) for one in heads[1:]]
    assert [each.offset for seal in desk.published for each in seal.outputs] == list(range(end))
    monkeypatch.setattr("agents.sealing._MOST_HELD", 3)
    for more, is_full in (([end, end + 1, end + 1], False), ([end + 2], True)):
        await desk.note(end, *more)
        assert await desk.has_room(end + 3) is not is_full
        assert await desk.has_room(end), "the next seal begins there"
    await desk.commit(p0=end + 3)
    assert await desk.has_room(end + 4), "what it held is sealed"


async def test_a_recreated_topic_begins_a_chain_and_metadata_of_another_tool_is_no_seal(desk):
    desk.committed[TP0] = Committed(200, "a" * 64)
    await desk.note(0, 0)
    await desk.commit(p0=50)
    (seal,) = desk.published
    assert (seal.head.first, seal.head.end, seal.head.before, seal.head.count) == (0, 50, None, 1)
    assert Committed.of(OffsetAndMetadata(7, "somebody's words")) == Committed(7, None)
    assert Committed.of(OffsetAndMetadata(-1, "")) == Committed(None, None)
    assert Committed.of(OffsetAndMetadata(7, "a" * 64)) == Committed(7, "a" * 64)


# Audit events of a worker


class Broker:
    def __init__(self) -> None:
        self.away = False
        self.published: list[Output] = []
        times = (datetime(2026, 1, 31, 12, 0, n, tzinfo=UTC) for n in range(60))
        self.audit = AuditPublisher(self, None, now=lambda: next(times))

    async def publish(self, outputs):
        if self.away:
            raise BrokerUnavailable("away")
        self.published += outputs

    @property
    def events(self):
        return [json.loads(output.value or b"") for output in self.published]


async def test_an_event_of_a_worker_belongs_to_no_tenant_is_published_once_and_may_recur():
    broker = Broker()
    broker.audit.note("state_rebuilt", {"epoch": "e"})
    for broker.away in (True, False, False):
        await broker.audit.publish()
    (output,), (event,) = broker.published, broker.events
    assert (output.topic, output.key) == ("audit", b"")
    assert (event["tenant_id"], event["actor"], event["subject_id"]) == ("", "groundwire", None)
    assert event["event_id"] == event_id("state_rebuilt", {"epoch": "e"})
    for recurs in (True, True, False, False):
        broker.audit.note("policy_loaded", {"sha256": "s"}, recurs=recurs)
    await broker.audit.publish()
    one, two, three, four = [event["event_id"] for event in broker.events[1:]]
    assert len({one, two, three}) == 3, "what recurs is named by its time"
    assert three == four
    assert {json.dumps(event["detail"]) for event in broker.events[1:]} == {'{"sha256": "s"}'}


async def test_an_event_of_a_worker_that_seals_is_signed_and_waits_for_its_key(tmp_path):
    new_key(tmp_path / "gate.toml", "gate", tenants=[], roles=["seal"], asymmetric=True)
    signer = SealSigner(tmp_path / "gate.toml", now=lambda: datetime.now(UTC))
    broker = Broker()
    audit = AuditPublisher(broker, signer, now=lambda: datetime.now(UTC))
    audit.note("state_lost", {"epoch": "e"})
    with patch.object(SealSigner, "sign", AsyncMock(side_effect=SealUnavailable("no key"))):
        await audit.publish()
    assert broker.published == []
    await audit.publish()
    (output,) = broker.published
    event = AuditEvent.model_validate_json(output.value)
    assert SealKeys(tmp_path / "gate.toml").check_event(event) == ("gate", AttestationState.VALID)
    assert (event.detail["epoch"], event.event_id) == ("e", event_id("state_lost", {"epoch": "e"}))


class LostState:
    """Lost until this worker rebuilds it, which fails first as told."""

    carried: str | None = None

    def __init__(self, broker: Broker, epoch: str | None = None, *failures: Exception) -> None:
        self.epoch = epoch
        self.failures = list(failures)
        self.health = Health()
        self.subject = StateRecovery(self, self, None, self.health, broker.audit.note)

    async def adopt_epoch(self):
        self.epoch = self.carried
        return self.epoch

    async def rebuild(self, *, only_lost: bool):
        assert only_lost
        if self.failures:
            raise self.failures.pop(0)
        self.carried = "new"
        return True


async def test_the_loss_of_state_and_its_rebuild_are_reported_with_their_epochs():
    for known in ("old", None):
        broker = Broker()
        for _ in range(2):  # two workers notice at two times: two events
            await LostState(broker, known).subject.recover(PartitionLease())
        await broker.audit.publish()
        reported = [(event["type"], event["detail"]["epoch"]) for event in broker.events]
        assert reported == [("state_lost", known), ("state_rebuilt", "new")] * 2
        assert len({event["event_id"] for event in broker.events if event["type"] == "state_lost"}) == 2


async def test_a_rebuild_is_tried_again_whatever_fails_also_when_nobody_waits_for_it(monkeypatch):
    """Else the loss would be reported for ever, and an error in it would count as a crash over what waits."""
    monkeypatch.setattr(recovery, "_LOOK", 0)
    for failure in (StateUnavailable("away"), BrokerUnavailable("away"), KeyError("ours")):
        state = LostState(Broker(), None, failure)
        await state.subject.recover(PartitionLease())
        assert not state.health.current
        state, lease = LostState(Broker(), None, *[failure] * 20), PartitionLease()
        waiting = asyncio.create_task(state.subject.recover(lease))
        await turns(10)
        lease.end()
        with pytest.raises(LeaseLost):
            await waiting
        assert state.health.current == {"state_lost"}
        await turns()
        assert not state.health.current


async def test_a_worker_whose_settings_are_not_those_of_state_is_not_ready(monkeypatch):
    monkeypatch.setattr(recovery, "_LOOK", 0)
    state = LostState(Broker())
    state.adopt_epoch = AsyncMock(side_effect=[*[SchemeMismatch("8 partitions")] * 20, "new"])
    waiting = asyncio.create_task(state.subject.recover(PartitionLease()))
    with capture_logs() as lines:
        await turns(10)
    assert state.health.current == {"state_lost"}
    assert state.health.unready()
    assert [line["event"] for line in lines].count("state.scheme_mismatch") == 1
    await waiting
    assert not state.health.current


async def test_a_loss_of_state_is_reported_also_where_its_settings_were_others_before(monkeypatch):
    monkeypatch.setattr(recovery, "_LOOK", 0)
    state = LostState(broker := Broker())
    state.adopt_epoch = AsyncMock(side_effect=[SchemeMismatch("8 partitions"), None, "new"])
    await state.subject.recover(PartitionLease())
    await broker.audit.publish()
    assert [event["type"] for event in broker.events] == ["state_lost", "state_rebuilt"]


# Outcomes that are reasserted


class Servers:
    """Two partitions, each on a server of its own that changes, the policies they store, and the output topics."""

    def __init__(self) -> None:
        self.runs = {0: "one", 1: "one"}
        self.now = 10_000.0
        self.trusted: dict[int, str] = {}
        self.read_since: list[float] = []
        self.asserted: list[tuple[bytes, str]] = []
        self.unreadable = self.refuses_policies = False
        self.hangs: asyncio.Event | None = None
        self.asked = 0
        self.server, self.epoch, self.tags = self, "first", ("{0}", "{1}")
        self.kept: list[object] = []
        self.remembered: dict[int, tuple[str, float]] = {}
        self.partition_of, self.partitions_beside = lambda _subject: 0, lambda partition: (partition,)
        self.subject = StateReconciler(self, "policy", self, self.read, clock=lambda: self.now)

    async def put(self, policy):
        if self.refuses_policies:
            raise StateUnavailable("away")
        self.kept.append(policy)

    async def server_run(self, partition):
        self.asked += 1
        if self.hangs:
            await self.hangs.wait()
        if partition not in self.runs:
            raise StateUnavailable("away")
        return self.runs[partition]

    async def remember_run(self, partition, run, at):
        self.remembered[partition] = run, at

    async def remembered_run(self, partition):
        return self.remembered.get(partition)

    async def read(self, since):
        self.read_since.append(since.timestamp())
        if self.unreadable:
            raise BrokerUnavailable("away")
        for value in (b"a", b"b", b"c"):
            yield value

    async def reassert(self, outcomes, run):
        self.asserted += [(value, run) for value in outcomes]
        return len(outcomes)

    async def outage(self, server: str | None, partition: int = 0) -> None:
        """Let another server answer, of which a script told (None: none answers)."""
        await self.subject.before_step({0, 1}, PartitionLease())
        self.now += 10.0
        self.subject.failed({partition})
        self.runs |= {partition: server} if server else {}
        if not server:
            del self.runs[partition]
        self.trusted.pop(partition, None)
        await self.subject.before_step({0, 1}, PartitionLease())


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> type[Servers]:
    class Published(bytes):
        subject = None

    def stored(value, _policy):
        return None if value == b"b" else Published(value)

    monkeypatch.setattr(recovery, "stored_outcome", stored)
    return Servers


async def test_what_is_reasserted_depends_on_which_servers_answer_after_an_outage(servers):
    """Each row: the partition that failed, its server afterwards, what was asserted, and from when on."""
    window = 10_000 - WINDOW
    for partition, server, asserted, read_since in (
        (0, "one", [], []),
        (0, "two", [(b"a", "two"), (b"c", "two")], [window]),
        (0, "?", [(b"a", "?"), (b"c", "?")], [window]),
        (1, "two", [], [window]),  # no user of it was published
    ):
        bench = servers()
        await bench.outage(server, partition)
        assert (bench.asserted, bench.read_since) == (asserted, read_since)
        assert bench.trusted == bench.runs
        await bench.subject.before_step({0, 1}, PartitionLease())
        assert bench.read_since == read_since, "once"
    unnamed = servers()
    unnamed.runs[0] = "?"
    await unnamed.subject.look()
    assert not unnamed.asserted
    await unnamed.outage("?")
    assert unnamed.asserted == [(b"a", "?"), (b"c", "?")], "a failure counts as another server"


async def test_a_worker_that_starts_after_its_server_did_reasserts_what_the_server_may_have_lost(servers):
    """After a power failure no process is left that knew the run before."""
    bench = servers()
    await bench.subject.look()
    assert bench.remembered == {0: ("one", 10_000.0), 1: ("one", 10_000.0)}
    for away_at_first in (False, True):
        bench.now += 3_600.0
        bench.runs = {1: "one"} if away_at_first else {0: "two", 1: "one"}
        bench.subject = StateReconciler(bench, "policy", bench, bench.read, clock=lambda: bench.now)
        bench.asserted.clear()
        bench.read_since.clear()
        last = bench.remembered[0][1]
        await bench.subject.look()
        bench.runs[0] = "three" if away_at_first else "two"
        await bench.subject.before_step({0, 1}, PartitionLease())
        assert bench.read_since == [last - WINDOW]
        assert {run for _, run in bench.asserted} == {bench.runs[0]}
        await bench.subject.look()


async def test_a_replica_that_lagged_is_compared_from_where_it_ended(servers):
    bench = servers()
    await bench.subject.look()
    lagged = dict(bench.remembered)
    bench.now += 600.0
    await bench.subject.look()
    bench.remembered, bench.runs[0] = lagged, "two"
    await bench.subject.look()
    assert bench.read_since == [10_000 - WINDOW]


async def test_a_server_that_comes_to_hide_its_run_is_compared_from_its_last_failure_not_from_then(servers):
    bench = servers()
    await bench.subject.look()
    for _ in range(2):
        bench.runs[0] = "?"
        bench.now += 600.0
        bench.subject = StateReconciler(bench, "policy", bench, bench.read, clock=lambda: bench.now)
        await bench.subject.look()
        assert bench.read_since == [10_000 - WINDOW]
    bench.subject.failed({0})
    await bench.subject.look()
    assert bench.read_since[1:] == [bench.now - WINDOW]


async def test_a_server_that_does_not_answer_is_compared_later_and_nobody_else_waits_for_that(servers):
    bench = servers()
    with pytest.raises(StateUnavailable):
        await bench.outage(None)
    await bench.subject.before_step({1}, PartitionLease())
    bench.now += 3_600.0
    await bench.subject.look()
    assert (bench.trusted, bench.asserted) == ({1: "one"}, [])
    bench.runs[0] = "two"
    await bench.subject.before_step({0}, PartitionLease())
    assert (bench.trusted, bench.read_since) == ({0: "two", 1: "one"}, [10_000 - WINDOW])
    late = servers()
    del late.runs[0]
    await late.subject.look()
    late.now += 30.0
    late.runs[0] = "two"
    await late.subject.before_step({0, 1}, PartitionLease())
    assert late.read_since == [10_000 - WINDOW], "others may have written what it lacks"


async def test_a_server_that_hangs_is_asked_once_for_all_that_wait_for_it(servers):
    """One after the other, they would wait longer than an answer may be old, and than a rebalance."""
    bench = servers()
    del bench.runs[0]
    bench.hangs = asyncio.Event()
    leases = [PartitionLease() for _ in range(10)]
    waiting = [asyncio.create_task(bench.subject.before_step({0}, lease)) for lease in leases]
    await turns()
    leases.pop().end()
    with pytest.raises(LeaseLost):
        await waiting.pop()
    bench.hangs.set()
    for each in waiting:
        with pytest.raises(StateUnavailable):
            await each
    assert bench.asked == 1


async def test_a_hidden_server_that_fails_does_not_make_others_read_the_topics(servers):
    bench = servers()
    bench.runs = {0: "?a", 1: "?b"}
    await bench.subject.look()
    for _ in range(3):
        bench.subject.failed({1})
        await bench.subject.before_step({0}, PartitionLease())
    assert bench.read_since == []
    await bench.subject.before_step({1}, PartitionLease())
    assert len(bench.read_since) == 1


async def test_a_failover_is_found_where_nothing_is_decided(servers):
    """Or whoever gets a partition of that server later would read the topics from then on."""
    bench = servers()
    await bench.subject.before_step({0, 1}, PartitionLease())
    bench.runs[1] = "two"
    for _ in range(3):
        bench.now += 1.0
        await bench.subject.look()
    assert (bench.trusted, bench.read_since) == ({0: "one", 1: "two"}, [10_000 - WINDOW])
    bench.now += 86_400.0
    await bench.subject.look()
    bench.runs[1] = "three"
    await bench.subject.before_step({0}, PartitionLease())
    await bench.subject.look()
    assert bench.read_since[1:] == [96_403 - WINDOW]


async def test_nothing_is_asked_of_state_until_the_topics_are_read_and_the_policy_is_stored(servers):
    bench = servers()
    bench.unreadable = True
    with pytest.raises(StateUnavailable):
        await bench.outage("two")
    bench.unreadable = False
    await bench.subject.before_step({0, 1}, PartitionLease())
    assert [value for value, _ in bench.asserted] == [b"a", b"c"]
    bench = servers()
    bench.refuses_policies = True
    with pytest.raises(StateUnavailable):
        await bench.subject.before_step({0, 1}, PartitionLease())
    bench.refuses_policies = False
    for bench.epoch in ("first", "first", "second"):
        await bench.subject.before_step({0, 1}, PartitionLease())
    assert bench.kept == ["policy", "policy"], "once an epoch"


async def test_a_policy_that_changes_while_one_is_stored_is_stored_too_and_the_one_before_again_if_state_is_lost(
    servers,
):
    bench = servers()
    put = bench.put

    async def put_and_change(policy):
        await put(policy)
        bench.subject.use("changed")

    bench.put = put_and_change
    for bench.epoch in ("first", "first", "second"):
        await bench.subject.before_step({0, 1}, PartitionLease())
        bench.put = put
    before = ["policy", "policy", "changed"]
    assert bench.kept == [*before, "policy", "changed"], "a batch that began before may still wait"


async def test_nothing_is_committed_past_a_loss_of_which_the_audit_does_not_know(publisher, producer):
    audit = AuditPublisher(publisher, None, now=lambda: datetime.now(UTC))
    commits = {TP("claims", 0): (9, "")}
    for partition in range(500):  # at one start
        audit.note("records_lost", {"topic": "claims", "partition": partition, "first": 2, "end": 9})
    publisher.publish = AsyncMock(side_effect=BrokerUnavailable("away"))
    assert await audit.before_commit(commits) == {}
    del publisher.publish
    assert await audit.before_commit(commits) == commits
    assert [topic for topic, _ in producer.sent] == ["p.audit"] * 500


async def test_a_dead_letter_keeps_its_records_time_unless_the_broker_would_refuse_or_remove_it(
    publisher, producer, monkeypatch
):
    now, times = 1_767_225_600_000, []
    monkeypatch.setattr(publishing.time, "time", lambda: now / 1000)
    create = producer.create_batch

    def create_batch():
        batch = create()
        append = batch.append
        batch.append = lambda **record: times.append(record["timestamp"]) or append(**record)
        return batch

    producer.create_batch = create_batch
    hour, day = 3_600_000, 86_400_000
    for at in (now, now - 29 * day, now + hour // 2, -1, 0, now - 31 * day, now + hour, 2**62):
        cause = InboundRecord("p.claims", 0, 0, at, b"k", b"v")
        await publisher.publish([Output(TopicName.DEAD_LETTER, b"k", b"v", [], cause, at)])
    await publisher.publish([output(b"v")])
    assert times == [now, now - 29 * day, now + hour // 2, *[None] * 6]
    times.clear()
    publisher.letter_age = day  # of a topic that refuses or removes earlier what is old
    for at in (now - hour, now - 2 * day):
        cause = InboundRecord("p.claims", 0, 0, at, b"k", b"v")
        await publisher.publish([Output(TopicName.DEAD_LETTER, b"k", b"v", [], cause, at)])
    assert times == [now - hour, None]
