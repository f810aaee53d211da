"""What `verify` says of a partition's seals whose workers' clocks do not agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from agents.outputs import of_seal
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id, retraction_id
from groundwire.messages.records import Retraction
from groundwire.messages.seals import MAX_AT_ONCE, Seal, SealHead, root_of
from groundwire.replay.seals import SealEvidence
from groundwire.replay.store import Store

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Chain:
    """Seals of one partition, each after the one before it, as they stand on `audit`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "keys.toml"
        for name, until in (("gate", None), ("old", NOW - timedelta(hours=1))):
            new_key(self.path, name, tenants=[], roles=["seal"], asymmetric=True, not_after=until)
        self.evidence = SealEvidence(Store(folder / "seals"), "t.", SealKeys(self.path), now=NOW)
        self._keys = dict(Keys.load(self.path))
        self._last: SealHead | None = None
        self._offsets = [0, 0]

    def begin_anew(self) -> None:
        """Let the next seal be one that none is before."""
        self._last = None

    @property
    def last(self) -> str:
        assert self._last
        return self._last.sha256

    def seal(self, key: str, at: datetime, *, audit: int = 0, topic: str = "t.claims") -> InboundRecord:
        end = self._last.end if self._last else 0
        head = SealHead(
            at=at,
            before=self._last.sha256 if self._last else None,
            count=0,
            end=end + 1,
            first=end,
            key=key,
            partition=0,
            root=root_of([]),
            topic=topic,
        )
        output = of_seal(Seal(head, self._keys[key].sign(head.to_bytes()), ()))
        record = InboundRecord(
            "t.audit", audit, self._offsets[audit], 0, output.key, output.value, tuple(output.headers)
        )
        self._last = head
        self._offsets[audit] += 1
        return record

    def faults(self, *records: InboundRecord) -> list[tuple[str, str]]:
        """What is wrong with seals that are read in this order."""
        for record in records:
            self.evidence.note_published(record)
        return [(fault.kind, fault.detail) for fault in self.evidence.faults()]


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_a_worker_whose_clock_is_an_hour_behind_or_ahead_breaks_no_chain(chain: Chain):
    seals = [chain.seal("gate", NOW + timedelta(hours=hours)) for hours in (0, 1, 0, -1, 0)]
    assert chain.faults(*seals) == []


def test_a_seal_that_a_key_dates_back_into_its_own_time_is_named(chain: Chain):
    later, forged = chain.seal("gate", NOW), chain.seal("old", NOW - timedelta(hours=2))
    ((kind, detail),) = chain.faults(later, forged)
    assert (kind, "back-dated" in detail) == ("bad_seal", True)


@pytest.mark.parametrize("key", ["gate", "old"])
@pytest.mark.parametrize("starts", [False, True])
def test_a_seal_on_another_partition_of_audit_is_named_and_counts_for_nothing(
    chain: Chain, key: str, *, starts: bool
):
    last = chain.seal("gate", NOW)
    if starts:
        chain.begin_anew()
    forged = chain.seal(key, NOW - timedelta(hours=2), audit=1)
    ((kind, detail),) = chain.faults(forged, last)
    assert (kind, "elsewhere" in detail) == ("bad_seal", True)
    assert chain.evidence.reached("t.claims", 0) == 1


def test_a_second_start_of_a_chain_that_is_longer_than_a_crash_repeats_is_named(chain: Chain):
    seals = [chain.seal("gate", NOW) for _ in range(MAX_AT_ONCE + 1)]
    chain.begin_anew()
    second = chain.seal("gate", NOW + timedelta(seconds=1))
    ((kind, detail),) = chain.faults(*seals, second)
    assert (kind, "second start" in detail) == ("bad_seal", True)


def test_a_start_that_a_crash_repeats_with_all_that_came_of_one_commit_verifies(chain: Chain):
    seals = []
    for seconds in range(3):
        chain.begin_anew()
        seals += [chain.seal("gate", NOW + timedelta(seconds=seconds)) for _ in range(MAX_AT_ONCE)]
    assert chain.faults(*seals, chain.seal("gate", NOW)) == []


def test_the_start_of_another_partitions_chain_is_no_second_one(chain: Chain):
    seals = [chain.seal("gate", NOW) for _ in range(MAX_AT_ONCE + 1)]
    chain.begin_anew()
    assert chain.faults(*seals, chain.seal("gate", NOW, topic="t.deferred")) == []


def test_seals_of_an_ended_key_go_on_counting_where_its_successor_goes_on(chain: Chain):
    began = NOW - timedelta(hours=2)
    assert chain.faults(chain.seal("old", began), chain.seal("old", began), chain.seal("gate", NOW)) == []


@pytest.mark.parametrize("starts", [False, True])
def test_what_an_ended_key_seals_beside_or_behind_what_the_group_committed_counts_for_nothing(
    chain: Chain, *, starts: bool
):
    """Nothing was sealed since the key ended, so that no time tells."""
    seals = [chain.seal("old", NOW - timedelta(hours=2)) for _ in range(3)]
    chain.evidence.committed = {TopicPartition("t.claims", 0): OffsetAndMetadata(3, chain.last)}
    if starts:
        chain.begin_anew()
    forged = [chain.seal("old", NOW - timedelta(hours=2)) for _ in range(5)]
    assert chain.faults(*seals, *forged) == []
    assert chain.evidence.reached("t.claims", 0) == (5 if starts else 8)
    chain.evidence.leave_out_forks()
    assert chain.evidence.reached("t.claims", 0) == 3


def test_seals_behind_what_the_group_committed_count_while_their_key_holds(chain: Chain):
    seals = [chain.seal("gate", NOW)]
    chain.evidence.committed = {TopicPartition("t.claims", 0): OffsetAndMetadata(1, chain.last)}
    assert chain.faults(*seals, chain.seal("gate", NOW)) == []
    chain.evidence.leave_out_forks()
    assert chain.evidence.reached("t.claims", 0) == 2


def test_a_key_and_its_successor_may_change_places_within_five_minutes(chain: Chain):
    ended = NOW - timedelta(hours=1)
    seals = [
        chain.seal("gate", ended + timedelta(minutes=4)),
        chain.seal("old", ended - timedelta(minutes=1)),
    ]
    assert chain.faults(*seals) == []


def test_a_seal_of_a_deployment_whose_prefix_begins_alike_counts_for_nothing(chain: Chain):
    ((kind, detail),) = chain.faults(chain.seal("gate", NOW, topic="t.staging.claims"))
    assert (kind, "another deployment" in detail) == ("bad_seal", True)


@pytest.mark.parametrize("is_first", [False, True])
def test_a_copy_of_a_seal_on_another_partition_is_named_and_breaks_nothing(chain: Chain, *, is_first: bool):
    first, second = chain.seal("gate", NOW), chain.seal("gate", NOW)
    copy = replace(second, partition=1, offset=0)
    ((kind, detail),) = chain.faults(*([copy, first, second] if is_first else [first, second, copy]))
    assert (kind, "elsewhere" in detail) == ("bad_seal", True)


def test_a_copy_of_a_seal_behind_later_ones_breaks_nothing(chain: Chain):
    first, last = chain.seal("old", NOW - timedelta(hours=2)), chain.seal("gate", NOW)
    assert chain.faults(first, last, replace(first, offset=2)) == []


def retraction(key: bytes) -> InboundRecord:
    """A Retraction of a decision of acme's user ann, under a key."""
    told = Retraction(
        decision_id="00000000-0000-5000-8000-000000000001",
        supersedes="00000000-0000-5000-8000-000000000000",
        kind="claim",
        subject_id="c1",
        tenant_id="acme",
        user_id="ann",
        reason="erased",
        actor="dpo",
        at=NOW,
        affected=[],
    )
    headers = (("ce_id", retraction_id(told.decision_id).encode()), ("ce_time", format_time(NOW).encode()))
    return InboundRecord("t.retractions", 0, 1, 0, key, told.model_dump_json().encode(), headers)


@pytest.mark.parametrize(("erased", "named"), [("ann", 0), ("nobody", 1)])
def test_a_tombstone_excuses_retractions_of_its_own_user_alone(chain: Chain, erased: str, named: int):
    tombstone, key = Erasure("acme", erased, NOW), f"acme:{erased}".encode()
    record = InboundRecord("t.retractions", 0, 0, 0, key, None, tuple(tombstone.headers))
    assert len(chain.faults(record, retraction(key))) == named


@pytest.mark.parametrize(
    ("kind", "erased", "named"),
    [("retraction", "ann", 0), ("retraction", "bob", 1), ("refused_action", "ann", 1)],
)
def test_an_event_of_an_erasure_is_excused_by_its_tombstone_alone(
    chain: Chain, kind: str, erased: str, named: int
):
    tombstone = Erasure("acme", "ann", NOW)
    name = event_id(kind, tombstone.id)
    event = AuditEvent.model_validate(
        {
            "event_id": name,
            "type": kind,
            "at": NOW,
            "tenant_id": "acme",
            "actor": "dpo",
            "subject_id": None,
            "decision_id": None,
            "detail": {"action": "erase", "tombstone": tombstone.id},
        }
    )
    headers = (("ce_id", name.encode()),)
    audited = InboundRecord("t.audit", 0, 5, 0, b"acme", event.model_dump_json().encode(), headers)
    stands = Erasure("acme", erased, NOW)
    key = f"acme:{erased}".encode()
    record = InboundRecord("t.retractions", 0, 0, 0, key, None, tuple(stands.headers))
    assert len(chain.faults(record, audited)) == named
