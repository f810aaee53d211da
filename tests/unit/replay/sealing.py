"""Seals as they stand on `audit`: chains of one partition, and histories of workers that crash."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from agents.outputs import of_seal
from groundwire.keys.attestation import Key, Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time, sha256_hex
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import retraction_id
from groundwire.messages.records import Retraction
from groundwire.messages.seals import Seal, SealedOutput, SealHead, root_of
from groundwire.replay.seals import SealEvidence, SealFault
from groundwire.replay.store import Store
from tests.unit.console.rooms import make_decision

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CLAIMS = "t.claims"
OWN_KEY = b"acme:ann"


def next_head(last: SealHead | None, outputs: Sequence[SealedOutput] = (), **fields: Any) -> SealHead:
    """The head of a seal behind another one."""
    first = last.end if last else 0
    rest = {"before": last.sha256 if last else None, "count": len(outputs), "root": root_of(outputs)}
    rest |= {"first": first, "end": first + 1, "key": "gate", "partition": 0, "topic": CLAIMS, "at": NOW}
    return SealHead(**rest | fields)


def on_audit(
    head: SealHead, key: Key, outputs: Sequence[SealedOutput], offset: int, partition: int = 0
) -> InboundRecord:
    output = of_seal(Seal(head, key.sign(head.to_bytes()), tuple(outputs)))
    return InboundRecord("t.audit", partition, offset, 0, output.key, output.value, tuple(output.headers))


class Chain:
    """Seals of one partition, each after the one before it, under a key that holds or one that has ended."""

    def __init__(self, folder: Path) -> None:
        path = Path(mkdtemp(dir=folder)) / "keys.toml"
        for name, until in (("gate", None), ("old", NOW - timedelta(hours=1))):
            new_key(path, name, tenants=[], roles=["seal"], asymmetric=True, not_after=until)
        self.evidence = SealEvidence(Store(None), "t.", SealKeys(path), now=NOW)
        self.last: SealHead | None = None
        self._keys = dict(Keys.load(path))
        self._offsets = [0, 0]

    def begin_anew(self) -> None:
        """Let the next seal be one that none is before."""
        self.last = None

    def seal(self, key: str, at: datetime = NOW, *, audit: int = 0, topic: str = CLAIMS) -> InboundRecord:
        self.last = next_head(self.last, at=at, key=key, topic=topic)
        self._offsets[audit] += 1
        return on_audit(self.last, self._keys[key], (), self._offsets[audit] - 1, audit)

    def commit(self) -> None:
        """Let the group have committed where the last seal ends."""
        assert self.last
        stands = OffsetAndMetadata(self.last.end, self.last.sha256)
        self.evidence.committed = {TopicPartition(CLAIMS, 0): stands}

    def faults(self, *records: InboundRecord) -> list[tuple[str, str]]:
        """What is wrong with seals that are read in this order."""
        for record in records:
            self.evidence.note_published(record)
        return [(fault.kind, fault.detail) for fault in self.evidence.faults()]


@dataclass
class History:
    """What workers have published, and sealed on `audit`; `chains` are the seals that others follow."""

    key: Key
    approved: list[InboundRecord] = field(default_factory=list)
    audit: list[InboundRecord] = field(default_factory=list)
    heads: dict[int, SealHead] = field(default_factory=dict)
    chains: dict[int, list[int]] = field(default_factory=dict)

    def publish(
        self, partition: int, offset: int, value: bytes | None = None, name: str | None = None
    ) -> SealedOutput:
        value = value if value is not None else f"{partition} {offset}".encode()
        name = name or str(uuid5(NAMESPACE_OID, sha256_hex(value)))
        headers = (("ce_id", name.encode()),)
        record = InboundRecord("t.approved", 0, len(self.approved), 0, b"k", value, headers)
        self.approved.append(record)
        return SealedOutput(offset, "approved", name, record.sha256)

    def seal(
        self, partition: int, end: int, outputs: Sequence[SealedOutput], *, committed: bool, gap: int = 0
    ) -> None:
        last, at = self.heads.get(partition), NOW + timedelta(seconds=len(self.audit))
        first = (last.end if last else 0) + gap
        head = next_head(last, outputs, at=at, end=end, first=first, partition=partition)
        if committed:
            self.heads[partition] = head
            self.chains.setdefault(partition, []).append(len(self.audit))
        self.audit.append(on_audit(head, self.key, outputs, len(self.audit)))

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


class Desk:
    """Reads histories as somebody has left them on the topics."""

    def __init__(self, folder: Path) -> None:
        path = folder / "desk.toml"
        new_key(path, "gate", tenants=[], roles=["seal"], asymmetric=True)
        self.keys = SealKeys(path)
        self.key = dict(Keys.load(path))["gate"]

    def history(self, seed: object) -> History:
        return History(self.key).run(Random(str(seed)))

    def sealed(self, *values: bytes) -> History:
        """A history of decisions, each sealed in a stretch of its own."""
        history = History(self.key)
        for offset, value in enumerate(values):
            output = history.publish(0, offset, value, json.loads(value)["decision_id"])
            history.seal(0, offset + 1, [output], committed=True)
        return history

    def evidence(
        self,
        history: History,
        audit: Iterable[InboundRecord] | None = None,
        approved: Iterable[InboundRecord] | None = None,
        *,
        cut: bool = False,
        now: datetime = NOW,
    ) -> SealEvidence:
        evidence = SealEvidence(Store(None), "t.", self.keys, now=now)
        for record in history.approved if approved is None else approved:
            evidence.note_published(record)
        for record in history.audit if audit is None else audit:
            evidence.note_published(record)
        evidence.audit_is_cut = cut
        evidence.committed = {
            TopicPartition(CLAIMS, partition): OffsetAndMetadata(head.end, head.sha256)
            for partition, head in history.heads.items()
        }
        evidence.leave_out_forks()
        return evidence

    def faults(self, *arguments: Any, **options: Any) -> list[SealFault]:
        return list(self.evidence(*arguments, **options).faults())


def decided(revision: int, offset: int = 0, **changes: Any) -> bytes:
    """A decision of the record at an offset."""
    told = make_decision("c1", revision=revision, verdict="approved", text=changes.pop("text", "It holds."))
    told["origin"] |= {"topic": CLAIMS, "partition": 0, "offset": offset}
    return Decision.model_validate(told | changes).to_bytes()


def retraction(key: bytes | None = OWN_KEY) -> InboundRecord:
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


def changed(record: InboundRecord, **detail: Any) -> InboundRecord:
    """A seal with other fields in its head."""
    told = json.loads(record.value or b"")
    told["detail"]["seal"] |= detail
    return replace(record, value=json.dumps(told).encode())
