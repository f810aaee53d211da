"""Reads what a deployment published, and its seals, from the topics; proves single decisions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.kafka.connection import partition_of
from groundwire.kafka.reader import (
    OffsetRange,
    RecordPlace,
    Start,
    TopicReader,
    committed_of,
    open_reader,
    read_one,
)
from groundwire.kafka.store import SCRATCH, Store
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord
from groundwire.messages.seals import SEALED, Seal, SignedHead, path_of, seal_of
from groundwire.messages.topics import TopicName
from groundwire.replay.reading import PATIENCE
from groundwire.replay.seals import GROUPS, SealEvidence


async def read_seals(
    settings: Settings, keys: SealKeys, store: Store, heads: Mapping[str, bytes] | None = None
) -> SealEvidence:
    """Read the output topics, then the seals: what was published before is sealed by then.

    `heads`: those that are kept in a file, by place. Raises: UsageError, BrokerUnavailable.
    """
    names = {topic: settings.topic_prefix + topic for topic in (*SEALED, *GROUPS.values())}
    async with open_reader(settings.brokers, PATIENCE) as reader:
        evidence = await _evidence(settings, keys, store, reader)
        for place, head in (heads or {}).items():
            evidence.note_head(head, place)
        others: dict[str, Start] = {names[t]: "earliest" for t in SEALED if t is not TopicName.AUDIT}
        await reader.begin(others)
        async for record in reader.records():
            evidence.note_published(record)
        read_to = dict(reader.positions)
        async for record in _audit(settings, evidence, reader):
            evidence.note_published(record)
        # a seal may name what was published since its topic was read
        await reader.begin(others, continued=read_to)
        async for record in reader.records():
            evidence.note_published(record, late=True)
        ends = await reader.ends(*(names[topic] for topic in GROUPS.values()))
        begin = await reader.offsets("earliest", ends)
        begin = {each: min(max(start, evidence.reached(*each)), ends[each]) for each, start in begin.items()}
        for partition, first in begin.items():
            if first < ends[partition]:  # since the last seal, or the first of these records that is kept
                begun = evidence.sealed_at(partition)
                if begun is None:
                    kept = await reader.first(OffsetRange(*partition, first, ends[partition]))
                    begun = from_milliseconds(max(kept.timestamp, 0)) if kept else None
                if begun is not None:
                    evidence.note_under_way(partition.topic, begun)
        waiting = {each: end for each, end in ends.items() if each.topic == names[TopicName.DEFERRED]}
        reader.seek({each: begin[each] for each in waiting}, waiting)
        async for record in reader.records():
            evidence.note_waiting(record)
    return evidence


async def read_sealed_hashes(settings: Settings, keys: SealKeys) -> frozenset[bytes]:
    """Return the hashes of all sealed records. Raises: UsageError, BrokerUnavailable."""
    with Store(SCRATCH) as store:
        async with open_reader(settings.brokers, PATIENCE) as reader:
            evidence = await _evidence(settings, keys, store, reader)
            async for record in _audit(settings, evidence, reader):
                evidence.note_seal(record)
        return evidence.sealed_hashes()


async def _evidence(settings: Settings, keys: SealKeys, store: Store, reader: TopicReader) -> SealEvidence:
    """Return empty evidence; the partition of the empty key holds all seals."""
    partitions = await reader.ends(settings.topic_prefix + TopicName.AUDIT)
    home = partition_of(b"", sorted(each.partition for each in partitions))
    return SealEvidence(store, settings.topic_prefix, keys, now=datetime.now(UTC), home=home)


async def _audit(
    settings: Settings, evidence: SealEvidence, reader: TopicReader
) -> AsyncGenerator[InboundRecord, None]:
    """Yield the records of `audit`; the caller notes the seals, and then the chains are judged as a whole."""
    for role, topic in GROUPS.items():
        partitions = list(await reader.ends(settings.topic_prefix + topic))
        group = settings.group_prefix + role
        evidence.committed |= await committed_of(settings.brokers, group, partitions, PATIENCE)
    with suppress(UsageError):  # there is no such topic: the evidence says that there are no heads
        await reader.begin({settings.topic_prefix + TopicName.HEADS: "earliest"})
        async for record in reader.records():  # before the seals: those of all heads are there
            if record.value is not None:
                evidence.note_head(record.value, str(RecordPlace.of(record)))
    await reader.begin({settings.topic_prefix + TopicName.AUDIT: "earliest"})
    starts = {each.partition: start for each, start in reader.positions.items()}
    async for record in reader.records():
        yield record
    evidence.audit_is_cut = evidence.has_lost_seals(starts[evidence.home])
    evidence.leave_out_forks()


async def read_last_seals(settings: Settings, evidence: SealEvidence) -> list[SignedHead]:
    """Return the head of the last seal of each input partition, to be kept elsewhere. Raises: BrokerUnavailable."""
    async with open_reader(settings.brokers, PATIENCE) as reader:
        ranges = await reader.ranges(settings.topic_prefix + TopicName.AUDIT)
        found = [
            seal_of(each.value or b"") async for each in reader.records_at(list(evidence.heads()), ranges)
        ]
    heads = (seal.signed for seal in found if seal)
    return sorted(heads, key=lambda each: (each.seal.topic, each.seal.partition))


def read_heads(path: Path) -> dict[str, bytes]:
    """Return the lines of a file of heads by place: a torn one is named, and does not hide the others.

    Raises: UsageError.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as exc:
        raise UsageError(f"--heads: {path}: {exc.strerror}") from None
    return {f"{path}:{number}": line for number, line in enumerate(lines, 1) if line.strip()}


class Unsealed(Exception):
    """No seal covers a decision."""


async def proof_of(settings: Settings, evidence: SealEvidence, name: str) -> dict[str, Any]:
    """Return a decision, the path from its leaf to the root of a seal, and the seal, for holders of public keys.

    Raises: Unsealed, BrokerUnavailable.
    """
    places = evidence.place_of_decision(name)
    if places is None:
        raise Unsealed(f"no seal covers a decision {name}")
    decision, event = [await read_one(settings.brokers, *place, PATIENCE) for place in places]
    if decision is None or event is None:
        raise Unsealed(f"retention has taken the decision {name}, or its seal, meanwhile")
    seal = Seal.of(AuditEvent.model_validate_json(event.value or b""))
    index = next(
        number
        for number, each in enumerate(seal.outputs)
        if (each.id, each.sha256) == (name, decision.sha256)
    )
    return {
        "decision": (decision.value or b"").decode(),
        "output": str(seal.outputs[index]),
        "path": path_of(seal.outputs, index),
        "seal": seal.head.model_dump(mode="json"),
        "signature": seal.signature.hex(),
    }
