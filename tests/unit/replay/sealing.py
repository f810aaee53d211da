"""Seals on `audit`: chains of one partition, and histories of workers that crash."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from agents.outputs import of_seal
from groundwire.keys.attestation import Key, Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time, sha256_hex
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import retraction_id
from groundwire.messages.records import Retraction
from groundwire.messages.seals import Seal, SealedOutput, SealHead, root_of
from groundwire.replay.seals import SealEvidence, SealFault
from groundwire.replay.store import Store
from tests.unit.review.world import decision

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CLAIMS = "t.claims"


def keys_in(folder: Path) -> tuple[SealKeys, dict[str, Key]]:
    """Return seal keys, valid and expired, and their private halves."""
    path = folder / "keys.toml"
    if not path.exists():
        for name, until in (("gate", None), ("old", NOW - timedelta(hours=1))):
            new_key(path, name, tenants=[], roles=["seal"], asymmetric=True, not_after=until)
    return SealKeys(path), dict(Keys.load(path))


def seal_after(
    last: SealHead | None,
    signing: Key,
    offset: int,
    outputs: Sequence[SealedOutput] = (),
    *,
    audit: int = 0,
    **fields: Any,
) -> tuple[SealHead, InboundRecord]:
    """Return the next seal of a chain, and its record at an offset of a partition of `audit`."""
    first = last.end if last else 0
    rest = {"before": last.sha256 if last else None, "count": len(outputs), "root": root_of(outputs)}
    rest |= {"first": first, "end": first + 1, "key": "gate", "partition": 0, "topic": CLAIMS, "at": NOW}
    head = SealHead(**rest | fields)
    output = of_seal(Seal(head, signing.sign(head.to_bytes()), tuple(outputs)))
    return head, InboundRecord("t.audit", audit, offset, 0, output.key, output.value, tuple(output.headers))


class Chain:
    """Empty seals of one partition, under a valid or an expired key."""

    def __init__(self, folder: Path) -> None:
        keys, self._keys = keys_in(folder)
        self.evidence = SealEvidence(Store(None), "t.", keys, now=NOW)
        self.last: SealHead | None = None
        self._offsets = [0, 0]

    def seal(
        self, key: str = "gate", at: datetime = NOW, *, audit: int = 0, topic: str = CLAIMS
    ) -> InboundRecord:
        offset = self._offsets[audit]
        self._offsets[audit] += 1
        self.last, record = seal_after(
            self.last, self._keys[key], offset, audit=audit, at=at, key=key, topic=topic
        )
        return record

    def commit(self) -> None:
        """Commit the end of the last seal."""
        assert self.last
        committed = OffsetAndMetadata(self.last.end, self.last.sha256)
        self.evidence.committed = {TopicPartition(CLAIMS, 0): committed}

    def faults(self, *records: InboundRecord) -> list[tuple[str, str]]:
        """Add records in this order; return all faults."""
        for record in records:
            self.evidence.note_published(record)
        return [(fault.kind, fault.detail) for fault in self.evidence.faults()]


@dataclass
class History:
    """What workers have published and sealed; `chains` are the seals that others follow."""

    key: Key
    approved: list[InboundRecord] = field(default_factory=list)
    audit: list[InboundRecord] = field(default_factory=list)
    heads: dict[int, SealHead] = field(default_factory=dict)
    chains: dict[int, list[int]] = field(default_factory=dict)

    def publish(
        self, partition: int, offset: int, value: bytes | None = None, name: str = ""
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
        fields = {"at": at, "end": end, "first": (last.end if last else 0) + gap, "partition": partition}
        head, record = seal_after(last, self.key, len(self.audit), outputs, **fields)
        if committed:
            self.heads[partition] = head
            self.chains.setdefault(partition, []).append(len(self.audit))
        self.audit.append(record)


class Desk:
    """Reads histories as somebody has left them on the topics."""

    def __init__(self, folder: Path) -> None:
        self.keys, keys = keys_in(folder)
        self.key = keys["gate"]

    def history(self, seed: object) -> History:
        """Return a history in which some workers crash between seal and commit, and others repeat their work."""
        rng, history = Random(str(seed)), History(self.key)
        partitions = range(rng.randint(1, 3))
        for partition in (*partitions, *rng.choices(partitions, k=20)):
            for committed in (*[False] * rng.choice((0, 0, 1, 2)), True):
                first = history.heads[partition].end if partition in history.heads else 0
                end = first + rng.randint(1, 4)
                outputs = [history.publish(partition, offset) for offset in range(first, end)]
                history.seal(partition, end, outputs, committed=committed)
        return history

    def sealed(self, *values: bytes) -> History:
        """Return a history of decisions, each under a seal of its own."""
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

    def kinds(self, *arguments: Any, **options: Any) -> set[str]:
        return {fault.kind for fault in self.faults(*arguments, **options)}


def decided(revision: int, offset: int = 0, text: str = "It holds.", at: datetime = NOW) -> bytes:
    """Return a decision on a claim of acme's user ann, of the record at an offset."""
    origin = {
        "topic": CLAIMS,
        "partition": 0,
        "offset": offset,
        "timestamp": format_time(NOW),
        "sha256": "0" * 64,
    }
    fields = {"text": text, "origin": origin, "decided_at": format_time(at)}
    return decision("c1", revision, "approved", **fields).to_bytes()


def retraction(key: bytes | None = b"acme:ann") -> InboundRecord:
    """Return a Retraction of a decision of acme's user ann, under a key."""
    value = Retraction(
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
    headers = (("ce_id", retraction_id(value.decision_id).encode()), ("ce_time", format_time(NOW).encode()))
    return InboundRecord("t.retractions", 0, 1, 0, key, value.model_dump_json().encode(), headers)
