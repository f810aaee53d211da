"""What a worker published is sealed before its offsets are committed, in one chain a partition."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP

from agents.outputs import Output
from agents.sealing import Committed, Sealer
from groundwire.errors import BrokerUnavailable, SealUnavailable
from groundwire.keys import ed25519
from groundwire.messages.base import sha256_hex
from groundwire.messages.headers import InboundRecord
from groundwire.messages.seals import MAX_OUTPUTS, Seal, seal_of
from groundwire.messages.topics import TopicName

TP0, TP1 = TP("t.claims", 0), TP("t.claims", 1)
KEY = ed25519.new_private_key()
NAME = "00000000-0000-5000-8000-00000000000{}"


class Desk:
    """A sealer, its signer, what it published, and what the group has committed."""

    def __init__(self) -> None:
        self.published: list[Seal] = []
        self.committed = {TP0: Committed(None, None), TP1: Committed(None, None)}
        self.broker_away = self.refuses = self.signer_away = False
        self.waits: list[str | None] = []
        self.sealer = Sealer(
            self, self._publish, self._committed, self.waits.append, now=lambda: datetime.now(UTC)
        )

    def key_id(self, _at: datetime) -> str:
        if self.signer_away:
            raise SealUnavailable("no key is valid")
        return "gate"

    async def sign(self, _key_id: str, data: bytes) -> bytes:
        return ed25519.sign(KEY, data)

    async def _publish(self, outputs) -> list[Output]:
        if self.broker_away:
            raise BrokerUnavailable("away")
        if self.refuses:
            return list(outputs)
        self.published += [seal_of(output.value) for output in outputs]
        return []

    async def _committed(self, tps):
        return {tp: self.committed[tp] for tp in tps}

    async def commit(self, **offsets: int):
        """Seal, and commit what may be."""
        done = await self.sealer.seal({TP("t.claims", int(name[1:])): end for name, end in offsets.items()})
        self.committed |= {tp: Committed(*each) for tp, each in done.items()}
        return done


def published(offset: int, topic: TopicName = TopicName.APPROVED, value: bytes = b"{}") -> tuple[int, Output]:
    cause = InboundRecord("t.claims", 0, offset, 0, None, b"")
    return offset, Output(topic, b"k", value, [("ce_id", NAME.format(offset % 10).encode())], cause)


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_a_seal_names_what_was_published_of_the_offsets_that_are_committed(desk):
    desk.sealer.note_batch(TP0, 3)
    desk.sealer.note(
        TP0, [published(3, value=b"a"), published(3, TopicName.AUDIT, b"b"), published(5, value=b"c")]
    )
    done = await desk.commit(p0=5)
    (seal,) = desk.published
    assert (seal.head.first, seal.head.end, seal.head.before, seal.head.partition) == (3, 5, None, 0)
    assert [each[:2] for each in seal.outputs] == [(3, "approved"), (3, "audit")]
    assert seal.outputs[0].sha256 == sha256_hex(b"a")
    assert ed25519.is_signed(ed25519.public_key_of(KEY), seal.head.to_bytes(), seal.signature)
    assert done == {TP0: (5, seal.head.sha256)}
    await desk.commit(p0=6)
    assert [each.sha256 for each in desk.published[1].outputs] == [sha256_hex(b"c")], (
        "offset 5 came with the next"
    )


async def test_a_chain_goes_on_with_whoever_holds_the_partition_next(desk):
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0)])
    await desk.commit(p0=1)
    desk.sealer.take_over()
    desk.sealer.note_batch(TP0, 1)
    desk.sealer.note(TP0, [published(1)])
    await desk.commit(p0=2)
    first, second = (seal.head for seal in desk.published)
    assert (second.first, second.before) == (first.end, first.sha256)


async def test_what_a_crash_left_uncommitted_is_sealed_again_with_equal_hashes(desk):
    """The seal was acknowledged, the commit was not."""
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0, value=b"x")])
    await desk.sealer.seal({TP0: 1})
    desk.sealer.take_over()
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0, value=b"x")])
    await desk.commit(p0=1)
    first, again = desk.published
    assert (first.outputs, first.head.root, first.head.before) == (
        again.outputs,
        again.head.root,
        again.head.before,
    )


async def test_what_comes_out_otherwise_when_a_record_is_decided_again_is_sealed_beside_the_first(desk):
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0, value=b"first")])
    desk.sealer.note(TP0, [published(0, value=b"second")])
    desk.sealer.note(TP0, [published(0, value=b"first")])
    await desk.commit(p0=1)
    (seal,) = desk.published
    assert [each.sha256 for each in seal.outputs] == [sha256_hex(b"first"), sha256_hex(b"second")]


async def test_nothing_is_committed_that_could_not_be_sealed(desk):
    for offset, (away, why) in enumerate(
        (("broker_away", "broker"), ("refuses", "seal"), ("signer_away", "seal"))
    ):
        desk.waits.clear()
        desk.sealer.note_batch(TP0, offset)
        desk.sealer.note(TP0, [published(offset)])
        setattr(desk, away, True)
        assert await desk.commit(p0=offset + 1) == {}
        assert desk.waits == [why]
        setattr(desk, away, False)
        assert (await desk.commit(p0=offset + 1))[TP0][0] == offset + 1
        assert desk.waits == [why, None]
        assert [len(seal.outputs) for seal in desk.published] == [1] * (offset + 1)


async def test_partitions_have_chains_of_their_own_and_a_stretch_without_outputs_is_sealed_too(desk):
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note_batch(TP1, 4)
    desk.sealer.note(TP0, [published(0)])
    await desk.commit(p0=1, p1=9)
    one, other = (seal.head for seal in desk.published)
    assert (one.partition, one.count, other.partition, other.count, other.first) == (0, 1, 1, 0, 4)


async def test_a_backlog_is_sealed_in_several_seals_of_one_chain_limited_per_commit(desk):
    end = 9 * MAX_OUTPUTS
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(offset) for offset in range(end)])
    assert (await desk.commit(p0=end))[TP0][0] == 8 * MAX_OUTPUTS
    done = await desk.commit(p0=end)
    heads = [seal.head for seal in desk.published]
    assert done[TP0] == (end, heads[-1].sha256)
    assert {head.count for head in heads} == {MAX_OUTPUTS}
    assert [(one.end, one.sha256) for one in heads[:-1]] == [(one.first, one.before) for one in heads[1:]]
    assert [each.offset for seal in desk.published for each in seal.outputs] == list(range(end))


async def test_what_bears_no_id_is_not_named(desk):
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0, TopicName.DEFERRED), published(0, TopicName.DEAD_LETTER)])
    await desk.commit(p0=1)
    assert desk.published[0].outputs == ()


def test_metadata_that_another_tool_committed_is_no_seal():
    assert Committed.of(OffsetAndMetadata(7, "somebody's words")) == Committed(7, None)
    assert Committed.of(OffsetAndMetadata(-1, "")) == Committed(None, None)
    assert Committed.of(OffsetAndMetadata(7, "a" * 64)) == Committed(7, "a" * 64)


async def test_a_sealer_is_full_until_what_it_holds_is_sealed(desk, monkeypatch):
    monkeypatch.setattr("agents.sealing._MOST_HELD", 3)
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0), published(1), published(1)])
    assert not desk.sealer.is_full
    desk.sealer.note(TP0, [published(2)])
    assert desk.sealer.is_full
    await desk.commit(p0=3)
    assert not desk.sealer.is_full


async def test_a_topic_that_was_made_anew_begins_a_chain_from_its_own_first_offset(desk):
    desk.committed[TP0] = Committed(200, "a" * 64)
    desk.sealer.note_batch(TP0, 0)
    desk.sealer.note(TP0, [published(0)])
    await desk.commit(p0=50)
    (seal,) = desk.published
    assert (seal.head.first, seal.head.end, seal.head.before, seal.head.count) == (0, 50, None, 1)
