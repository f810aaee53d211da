"""Seals what a worker published of each partition, before it commits the offsets.

A seal ends where offsets are committed: once a second, and at revocation. Its hash is the metadata of the committed
offset, so the next holder continues the chain, and what a crash left uncommitted is sealed again. A worker that holds a
partition no longer, and does not know it, forks the chain where its assignment began.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice, pairwise
from typing import Final, NamedTuple

import structlog
from aiokafka.structs import OffsetAndMetadata
from faust.types import TP

from agents.health import Health
from agents.hooks import Batch, Commits, Hook
from agents.outputs import Output, of_head, of_seal
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, SealUnavailable
from groundwire.keys.seal_keys import SealSigner
from groundwire.messages.base import sha256_hex
from groundwire.messages.headers import InboundRecord, header
from groundwire.messages.seals import (
    MAX_AT_ONCE,
    MAX_OUTPUTS,
    SEALED,
    Seal,
    SealedOutput,
    SealHead,
    SignedHead,
    root_of,
)

log = structlog.get_logger()

_MOST_HELD: Final = 200_000
"""Outputs waiting to be sealed, of 600 bytes each, above which only what seals wait for begins."""
_RETRY: Final = 0.5
_SEALED: Final = frozenset(SEALED)
_HASH: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Committed(NamedTuple):
    """The committed offset of a partition and the hash of the seal that ends there, or None."""

    offset: int | None
    seal: str | None

    @classmethod
    def of(cls, committed: OffsetAndMetadata) -> Committed:
        """Read aiokafka's answer, -1 for none; other tools may have committed any metadata."""
        named = _HASH.fullmatch(committed.metadata or "")
        return cls(committed.offset if committed.offset >= 0 else None, named[0] if named else None)


class Sealer(Hook):
    """Collects what was published of partitions, and seals it when their offsets are committed.

    Args:
        publish: returns what the broker refused once it has the rest; raises BrokerUnavailable.
        committed: returns what was committed of a partition when its assignment began.
        keep: keeps heads outside of Kafka; raises SealUnavailable.
    """

    def __init__(
        self,
        signer: SealSigner,
        publish: Callable[[Sequence[Output]], Awaitable[Sequence[Output]]],
        committed: Callable[[TP], Committed],
        health: Health,
        *,
        keep: Callable[[Sequence[SignedHead]], Awaitable[None]],
        now: Callable[[], datetime],
    ) -> None:
        self._signer = signer
        self._keep = keep
        self._publish = publish
        self._committed = committed
        self._health = health
        self._now = now
        self.before_assignment()

    def _no_longer_waits(self) -> None:
        self._why: str | None = None
        for dependency in ("seal", "broker"):
            self._health.end(dependency, self)

    def before_assignment(self) -> None:
        self._no_longer_waits()
        self._outputs: defaultdict[TP, dict[int, dict[SealedOutput, None]]] = defaultdict(dict)
        self._held = 0
        self._reached: dict[TP, Committed] = {}
        self._began: dict[TP, int] = {}

    async def before_batch(self, batch: Batch) -> None:
        """Note the first offset of a partition; wait for room, or until the next seal waits for this batch."""
        tp = batch.loop.tp
        self._began.setdefault(tp, batch.loop.book.first_offset or 0)
        while self._held >= _MOST_HELD:
            sealed = self._reached[tp].offset if tp in self._reached else self._began.get(tp)
            if sealed == batch.first_offset:
                return
            await batch.loop.lease.pause(_RETRY)

    def after_publish(self, batch: Batch) -> None:
        """Note acknowledged outputs with the offsets of their records.

        A record decided twice may have two different outputs: both were published, and both are sealed.
        """
        held = self._outputs[batch.loop.tp]
        offsets = {
            _place_of(record): entry.record.offset
            for record, entry in zip(batch.originals, batch.entries, strict=True)
        }
        for output in batch.published:
            if output.topic in _SEALED:
                offset = offsets[_place_of(output.cause)]
                name = header(output.headers, "ce_id") or ""
                place, digest = (output.topic.value, output.partition), sha256_hex(output.value or b"")
                of_record = held.setdefault(offset, {})
                before = len(of_record)
                of_record[SealedOutput(offset, *place, name, digest)] = None
                self._held += len(of_record) - before

    async def before_commit(self, commits: Commits) -> Commits:
        """Seal partitions up to offsets; return those that may be committed, with the hash of their last seal.

        Without the key or the broker none may: the next commit tries again.
        """
        began = self._began
        try:
            # from the end of each chain, as sealed here or as committed by its last holder
            sealing = [
                self._seals(tp, self._reached.get(tp) or self._start(tp), end)
                for tp, (end, _) in commits.items()
            ]
            sealed = dict(zip(commits, await asyncio.gather(*sealing), strict=True))
            # heads once the seals are there: what a crash leaves is never a head without its seal
            last = [seals[-1] for seals in sealed.values()]
            for outputs in (
                [of_seal(seal) for seals in sealed.values() for seal in seals],
                map(of_head, last),
            ):
                if await self._publish(list(outputs)):
                    why = "the broker refuses seals: is max.message.bytes of audit as declared?"
                    raise SealUnavailable(why)  # noqa: TRY301 - as without a key: the next commit tries again
            await self._keep([seal.signed for seal in last])
        except (BrokerUnavailable, SealUnavailable) as exc:
            if str(exc) != self._why:  # it is tried every second
                log.warning("seal.waits", error=str(exc))
            self._why = str(exc)
            self._health.begin("broker" if isinstance(exc, BrokerUnavailable) else "seal", self)
            return {}
        self._no_longer_waits()
        metrics.SEALS.inc(sum(map(len, sealed.values())))
        if self._began is not began:  # a rebalance came between
            return {}
        done: dict[TP, tuple[int, str]] = {}
        for tp, seals in sealed.items():
            head = seals[-1].head
            done[tp] = head.end, head.sha256
            self._reached[tp] = Committed(*done[tp])
            self._outputs[tp] = {at: of for at, of in self._outputs[tp].items() if at >= head.end}
        self._held = sum(len(of) for held in self._outputs.values() for of in held.values())
        return done

    def _start(self, tp: TP) -> Committed:
        committed, first = self._committed(tp), self._began.get(tp)
        begins_anew = committed.offset is not None and first is not None and first < committed.offset
        return Committed(first, None) if begins_anew else committed  # the topic was recreated

    async def _seals(self, tp: TP, reached: Committed, end: int) -> list[Seal]:
        """Build the seals up to an offset, at most `MAX_AT_ONCE` while clearing a backlog."""
        offset, before = reached
        first = offset if offset is not None else self._began.get(tp, end)
        seals: list[Seal] = []
        for (start, stop), outputs in islice(_stretches(self._outputs[tp], first, end), MAX_AT_ONCE):
            at = self._now()
            key_id = self._signer.key_id(at)
            head = SealHead(
                at=at,
                before=before,
                count=len(outputs),
                end=stop,
                first=start,
                key=key_id,
                partition=tp.partition,
                root=root_of(outputs),
                topic=tp.topic,
            )
            signature = await self._signer.sign(key_id, head.to_bytes())
            seals.append(Seal(head, signature, tuple(outputs)))
            before = head.sha256
        return seals


def _stretches(
    outputs: Mapping[int, Collection[SealedOutput]], first: int, end: int
) -> Iterable[tuple[tuple[int, int], list[SealedOutput]]]:
    """Split the outputs of offsets `first` to `end` into stretches of at most `MAX_OUTPUTS`."""
    cuts, parts = [first], [list[SealedOutput]()]
    for offset in sorted(at for at in outputs if first <= at < end):
        if parts[-1] and len(parts[-1]) + len(outputs[offset]) > MAX_OUTPUTS:
            cuts.append(offset)
            parts.append([])
        parts[-1] += outputs[offset]
    return zip(pairwise([*cuts, end]), parts, strict=True)


def _place_of(record: InboundRecord) -> tuple[str | None, int, int]:
    return record.topic, record.partition, record.offset
