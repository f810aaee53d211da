"""What seals prove of records on topics: histories of workers that crash verify, and nothing of them can be changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from uuid import NAMESPACE_OID, uuid5

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from agents.outputs import of_seal
from groundwire.errors import UsageError
from groundwire.keys.attestation import Key, Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord
from groundwire.messages.seals import Seal, SealedOutput, SealHead, root_of
from groundwire.replay.seals import SealEvidence, SealFault, read_heads
from groundwire.replay.store import RecordPlace, Store
from tests.unit.console.rooms import make_decision

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CLAIMS = "t.claims"
SEEDS = range(8)


@dataclass
class History:
    """What workers have published, and sealed on `audit`; `chains` are the seals that others follow."""

    key: Key
    approved: list[InboundRecord] = field(default_factory=list)
    audit: list[InboundRecord] = field(default_factory=list)
    heads: dict[int, SealHead] = field(default_factory=dict)
    chains: dict[int, list[int]] = field(default_factory=dict)

    def publish(self, partition: int, offset: int, value: bytes | None = None) -> SealedOutput:
        value = value if value is not None else f"{partition} {offset}".encode()
        name = str(uuid5(NAMESPACE_OID, sha256_hex(value)))
        record = InboundRecord(
            "t.approved", 0, len(self.approved), 0, b"k", value, (("ce_id", name.encode()),)
        )
        self.approved.append(record)
        return SealedOutput(offset, "approved", name, record.sha256)

    def seal(
        self, partition: int, end: int, outputs: Sequence[SealedOutput], *, committed: bool, gap: int = 0
    ) -> None:
        last = self.heads.get(partition)
        head = SealHead(
            at=NOW + timedelta(seconds=len(self.audit)),
            before=last.sha256 if last else None,
            count=len(outputs),
            end=end,
            first=(last.end if last else 0) + gap,
            key="gate",
            partition=partition,
            root=root_of(outputs),
            topic=CLAIMS,
        )
        if committed:
            self.heads[partition] = head
            self.chains.setdefault(partition, []).append(len(self.audit))
        self.audit.append(self.record(Seal(head, self.key.sign(head.to_bytes()), tuple(outputs))))

    def record(self, seal: Seal, at: int | None = None) -> InboundRecord:
        output = of_seal(seal)
        offset = len(self.audit) if at is None else at
        return InboundRecord("t.audit", 0, offset, 0, output.key, output.value, tuple(output.headers))

    def run(self, rng: Random) -> History:
        """Let workers read partitions; some die between seal and commit, and others read the same again."""
        partitions = range(rng.randint(1, 3))
        for partition in (*partitions, *rng.choices(partitions, k=20)):
            for committed in (*[False] * rng.choice((0, 0, 1, 2)), True):
                first = self.heads[partition].end if partition in self.heads else 0
                end = first + rng.randint(1, 4)
                outputs = [self.publish(partition, offset) for offset in range(first, end)]
                self.seal(partition, end, outputs, committed=committed)
        return self

    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            TopicPartition(CLAIMS, partition): OffsetAndMetadata(head.end, head.sha256)
            for partition, head in self.heads.items()
        }


class Desk:
    """Reads histories as somebody has left them on the topics."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "keys.toml"
        new_key(path, "gate", tenants=[], roles=["seal"], asymmetric=True)
        self.keys = SealKeys(path)
        self.key = dict(Keys.load(path))["gate"]
        self._read = 0

    def history(self, seed: object) -> History:
        return History(self.key).run(Random(str(seed)))

    def evidence(
        self,
        history: History,
        audit: Iterable[InboundRecord] | None = None,
        approved: Iterable[InboundRecord] | None = None,
        *,
        cut: bool = False,
        now: datetime = NOW,
    ) -> SealEvidence:
        self._read += 1
        folder = self._folder / str(self._read)
        folder.mkdir()
        evidence = SealEvidence(Store(folder / "seals"), "t.", self.keys, now=now)
        for record in history.approved if approved is None else approved:
            evidence.note_published(record)
        for record in history.audit if audit is None else audit:
            evidence.note_published(record)
        evidence.audit_is_cut = cut
        evidence.committed = history.committed()
        evidence.leave_out_forks()
        return evidence

    def faults(self, *arguments: object, **options: object) -> list[SealFault]:
        return list(self.evidence(*arguments, **options).faults())  # type: ignore[arg-type]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def kinds(faults: Iterable[SealFault]) -> set[str]:
    return {fault.kind for fault in faults}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_workers_that_crash_have_sealed_verifies(desk: Desk, seed: int):
    history = desk.history(seed)
    evidence = desk.evidence(history)
    assert list(evidence.faults()) == []
    assert [each.partition for each in evidence.heads()] == sorted(history.heads)
    assert (
        list(evidence.missing_heads([{"topic": CLAIMS, "partition": 0, "seal": history.heads[0].sha256}]))
        == []
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_no_seal_of_a_chain_can_be_taken_out_not_even_the_last(desk: Desk, seed: int):
    history = desk.history(seed)
    for place in (place for chain in history.chains.values() for place in chain):
        left = history.audit[:place] + history.audit[place + 1 :]
        assert "broken_chain" in kinds(desk.faults(history, left)), place


@pytest.mark.parametrize("seed", SEEDS)
def test_no_two_seals_of_a_chain_can_change_places(desk: Desk, seed: int):
    history, rng = desk.history(seed), Random(seed)
    for chain in (chain for chain in history.chains.values() if len(chain) > 1):
        one, other = sorted(rng.sample(chain, 2))
        audit = list(history.audit)
        audit[one], audit[other] = replace(audit[other], offset=one), replace(audit[one], offset=other)
        assert any("stands behind it" in fault.detail for fault in desk.faults(history, audit))


@pytest.mark.parametrize(
    "name", ["at", "before", "count", "end", "first", "key", "partition", "root", "topic", "version"]
)
def test_no_field_of_a_seal_can_be_changed(desk: Desk, name: str):
    history = desk.history(name)
    place = history.chains[0][1]
    told = json.loads(history.audit[place].value or b"")
    other = {"at": "2026-01-01T00:00:00Z", "before": None, "root": "0" * 64, "topic": "t.deferred"}
    told["detail"]["seal"][name] = other.get(name, "7" if name in {"key", "version"} else 7_000)
    changed = replace(history.audit[place], value=json.dumps(told).encode())
    faults = desk.faults(history, [*history.audit[:place], changed, *history.audit[place + 1 :]])
    assert {"bad_seal", "broken_chain"} <= kinds(faults)


def test_a_seal_that_begins_elsewhere_than_the_one_before_it_ends_is_named(desk: Desk):
    history = desk.history("gap")
    history.seal(0, history.heads[0].end + 9, [], committed=True, gap=2)
    (fault,) = desk.faults(history)
    assert (fault.kind, "it begins at offset" in fault.detail) == ("broken_chain", True)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_record_that_is_gone_or_changed_is_named_until_its_retention_has_passed(desk: Desk, seed: int):
    history, rng = desk.history(seed), Random(seed)
    gone = rng.choice(history.approved)
    left = [record for record in history.approved if record.value != gone.value]
    for records in (left, [*left, replace(gone, value=b"changed")]):
        (fault,) = desk.faults(history, None, records)
        assert (fault.kind, gone.sha256 in fault.detail) == ("removed", True)
    assert desk.faults(history, None, left, now=NOW + timedelta(days=10_000)) != [], (
        "approved is kept for ever"
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_retention_of_audit_breaks_no_chain_wherever_it_cuts(desk: Desk, seed: int):
    history = desk.history(seed)
    last = min(chain[-1] for chain in history.chains.values())
    for cut in range(1, last + 1):
        assert desk.faults(history, history.audit[cut:], cut=True) == [], cut
        assert kinds(desk.faults(history, history.audit[cut:])) <= {"broken_chain"}


@pytest.mark.parametrize("seed", SEEDS)
def test_retention_of_audit_excuses_no_gap_behind_what_is_left(desk: Desk, seed: int):
    history = desk.history(seed)
    chain = max(history.chains.values(), key=len)
    left = [record for at, record in enumerate(history.audit) if at > chain[0] and at != chain[2]]
    assert "broken_chain" in kinds(desk.faults(history, left, cut=True))


def test_a_head_that_was_anchored_and_is_gone_is_named(desk: Desk):
    history = desk.history("anchored")
    head, place = history.heads[0], history.chains[0][-1]
    anchored = [{"topic": CLAIMS, "partition": 0, "seal": head.sha256}]
    evidence = desk.evidence(history, history.audit[:place])
    (fault,) = evidence.missing_heads(anchored)
    assert (fault.kind, fault.where) == ("broken_chain", f"{CLAIMS}/0")
    for seal in ({"seal": head.sha256}, anchored[0] | {"seal": "\ud800"}, anchored[0] | {"seal": 7}):
        with pytest.raises(UsageError, match="--heads"):
            list(evidence.missing_heads([seal]))


def test_a_file_of_heads_that_nests_without_end_is_refused(tmp_path: Path):
    path = tmp_path / "heads.jsonl"
    path.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="--heads"):
        read_heads(path)


def decision(revision: int, offset: int, **changes: object) -> bytes:
    told = make_decision("c1", revision=revision, verdict="approved", **changes)
    told["origin"] |= {"topic": CLAIMS, "partition": 0, "offset": offset}
    return Decision.model_validate(told).to_bytes()


def sealed(desk: Desk, *values: bytes) -> History:
    """A history of decisions, each sealed in a stretch of its own."""
    history = History(desk.key)
    for offset, value in enumerate(values):
        name = json.loads(value)["decision_id"]
        output = history.publish(0, offset, value)._replace(id=name)
        history.approved[-1] = replace(history.approved[-1], headers=(("ce_id", name.encode()),))
        history.seal(0, offset + 1, [output], committed=True)
    return history


def test_a_decision_is_superseded_by_a_sealed_one_of_a_later_revision_alone(desk: Desk):
    first, second = decision(1, 0), decision(2, 1)
    assert desk.evidence(sealed(desk, second)).is_superseded(first)
    assert not desk.evidence(sealed(desk, first)).is_superseded(second)
    assert not desk.evidence(sealed(desk, first)).is_superseded(first)


def test_what_no_seal_has_reached_is_under_way_and_what_one_has_passed_is_not(desk: Desk):
    evidence = desk.evidence(sealed(desk, decision(1, 0)))
    place = RecordPlace("t.approved", 0, 9)
    assert evidence.explain(place, decision(1, 0)) is None
    assert evidence.explain(place, decision(2, 1)) == ("not_sealed_yet", "")
    assert evidence.explain(place, decision(2, 0)) == ("unsealed", "no seal covers it")
    evidence.note_waiting(InboundRecord(CLAIMS, 0, 0, 0, None, b""))
    assert evidence.explain(place, decision(2, 0)) == ("not_sealed_yet", ""), "it waits on deferred"


def test_a_group_that_committed_further_than_its_seals_leaves_nothing_under_way(desk: Desk):
    evidence = desk.evidence(sealed(desk, decision(1, 0)))
    evidence.committed = {TopicPartition(CLAIMS, 0): OffsetAndMetadata(5, "")}
    assert evidence.explain(RecordPlace("t.approved", 0, 9), decision(2, 4)) == (
        "unsealed",
        "no seal covers it",
    )


def test_other_bytes_under_a_sealed_id_are_unsealed_wherever_they_stand(desk: Desk):
    evidence = desk.evidence(sealed(desk, decision(1, 0)), cut=True)
    for offset in (0, 7):
        status, why = evidence.explain(
            RecordPlace("t.approved", 0, offset), decision(1, 0, text="Other.")
        ) or (
            "",
            "",
        )
        assert (status, "differ" in why) == ("unsealed", True)


def test_retention_excuses_a_decision_before_the_first_sealed_one_of_its_partition_alone(desk: Desk):
    history = sealed(desk, decision(1, 0), decision(2, 1), decision(3, 2))
    unsealed = history.approved[0].value or b""
    evidence = desk.evidence(history, history.audit[1:], cut=True)
    assert evidence.explain(RecordPlace("t.approved", 0, 0), unsealed) == (
        "expired",
        "its seal: retention has taken it",
    )
    for place in (RecordPlace("t.approved", 0, 1), RecordPlace("t.approved", 1, 0)):
        assert (evidence.explain(place, unsealed) or ("",))[0] == "unsealed"
    whole = desk.evidence(history, history.audit[1:])
    assert (whole.explain(RecordPlace("t.approved", 0, 0), unsealed) or ("",))[0] == "unsealed"


def test_what_only_a_seal_beside_the_groups_chain_covers_is_unsealed_and_what_a_crash_repeated_is_not(
    desk: Desk,
):
    history = sealed(desk, decision(1, 0))
    first, forged = decision(1, 0), decision(2, 0)
    start, history.heads = history.heads, {}
    for value in (first, forged):
        output = history.publish(0, 0, value)._replace(id=json.loads(value)["decision_id"])
        history.seal(0, 1, [output], committed=False)
    history.heads = start
    history.seal(0, 2, [], committed=True)
    evidence = desk.evidence(history)
    assert evidence.explain(RecordPlace("t.approved", 0, 0), first) is None
    assert evidence.explain(RecordPlace("t.approved", 0, 1), forged) == ("unsealed", "no seal covers it")
