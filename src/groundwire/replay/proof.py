"""Derives decisions again while state is rebuilt from them, and leaves out those that do not follow.

Records are read where the decisions say that they stand, a page at a time: a worker that rebuilds has no disk for the
input topics. What retention has taken proves nothing, and is taken in.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final

import structlog
from aiokafka import TopicPartition

from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.gate.claims import Policies
from groundwire.gate.types import LARGE
from groundwire.kafka.reader import Positions, TopicReader, open_reader
from groundwire.logs import report_fault
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord
from groundwire.replay.inputs import parse_decision
from groundwire.replay.reading import INPUTS
from groundwire.replay.store import OffsetRange, RecordPlace, RecordStore
from groundwire.replay.verify import Verifier, VerifyFinding, VerifyStatus, on_topics

log = structlog.get_logger()

LEFT_OUT: Final = frozenset({VerifyStatus.DIFFERS, VerifyStatus.CONTRADICTED})

_PAGE: Final = 100
_GAP: Final = 500
"""Offsets between two records that are read over, rather than sought."""
_TURNS: Final = 0.01
"""Seconds for others behind a decision that may have taken long to derive."""
_NAMED: Final = 100
"""Decisions left out that the log names; the rest is counted."""
_PATIENCE: Final = 30.0


class Prover:
    """Derives decisions again; memory holds a page of their records, and what people did.

    Attributes:
        counts: decisions by what came of them.
    """

    def __init__(self, reader: TopicReader, inside: Iterable[OffsetRange], policies: Policies) -> None:
        self._reader = reader
        self._inside = list(inside)
        self._store = RecordStore(None)
        self._verifier = Verifier(self._store, policies)
        self.counts: Counter[VerifyStatus] = Counter()

    def note_decision(self, value: bytes) -> None:
        """Keep what brought a revision from 2 on about, before `keep`: later ones are derived from it."""
        self._store.note_decision(value)

    def note_event(self, value: bytes) -> None:
        """Keep which actions of people audit knows as carried out or refused, before `keep`."""
        if b'"refused_action"' in value or b'"review_action"' in value:
            try:
                self._store.add_end(str(json.loads(value)["event_id"]))
            except (ValueError, LookupError, TypeError):
                return

    async def keep(self, values: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
        """Yield the decisions of state that follow from what they rest on, or of which that cannot be said.

        Raises: BrokerUnavailable.
        """
        page: dict[bytes, Decision] = {}
        async with aclosing(values):
            async for value in values:
                decision = parse_decision(value)
                if decision is not None and decision.revision > 0:
                    page[value] = decision
                if len(page) == _PAGE:
                    async for kept in self._keep(page):
                        yield kept
                    page = {}
        async for kept in self._keep(page):
            yield kept

    async def _keep(self, page: Mapping[bytes, Decision]) -> AsyncIterator[bytes]:
        self._store.forget_records()
        places: set[RecordPlace] = set()
        for decision in page.values():
            places.add(RecordPlace.of(decision.origin))
            if decision.subject_origin is not None:
                places |= {RecordPlace.of(decision.subject_origin), *self._store.places(decision)}
        async for record in read_places(self._reader, self._inside, places):
            self._store.add_record(record, inside=False)
        for value in page:
            # The lock of the rebuild and the worker's place in its group are held on by the same loop, in several turns
            await asyncio.sleep(_TURNS if len(value) >= LARGE else 0)
            finding = await self._verifier.verify(value)
            try:
                # what follows from its record is no forgery where the topic was copied and places have shifted
                finding = on_topics(self._store, self._inside, value, finding, moved=True)
            except Exception as exc:  # noqa: BLE001 - one record must not keep all others from coming back
                report_fault("rebuild.unreadable", exc)
                detail = type(exc).__name__
                finding = VerifyFinding(VerifyStatus.DIFFERS, finding.decision_id, detail=detail)
            self.counts[finding.status] += 1
            if finding.status not in LEFT_OUT:
                yield value
            elif sum(self.counts[status] for status in LEFT_OUT) <= _NAMED:
                log.warning(
                    "rebuild.left_out",
                    decision_id=finding.decision_id,
                    status=finding.status.value,
                    fields=list(finding.paths),
                    detail=finding.detail,
                )


@asynccontextmanager
async def open_prover(settings: Settings, policies: Policies) -> AsyncIterator[Prover]:
    """Connect a prover to the input topics of a deployment. Raises: BrokerUnavailable."""
    async with open_reader(settings.brokers, _PATIENCE) as reader:
        ends: Positions = {}
        for name in INPUTS:
            with suppress(UsageError):  # a deployment need not have every topic
                ends |= await reader.ends(settings.topic_prefix + name)
        starts = await reader.offsets("earliest", ends)
        yield Prover(reader, [OffsetRange(*each, starts[each], ends[each]) for each in ends], policies)


async def read_places(
    reader: TopicReader, inside: Iterable[OffsetRange], places: Iterable[RecordPlace]
) -> AsyncIterator[InboundRecord]:
    """Yield the records at places, as far as they lie inside. Raises: BrokerUnavailable."""
    wanted = set(places)
    runs: list[list[tuple[int, int]]] = []  # of each partition, the first and last of offsets read in one go
    for each in inside:
        own: list[tuple[int, int]] = []
        for offset in sorted(
            p.offset for p in wanted if p[:2] == each[:2] and each.start <= p.offset < each.end
        ):
            if own and offset - own[-1][1] <= _GAP:
                own[-1] = own[-1][0], offset
            else:
                own.append((offset, offset))
        runs.append(own)
    partitions = [TopicPartition(*each[:2]) for each in inside]
    for number in range(max(map(len, runs), default=0)):
        now = {
            partition: own[number]
            for partition, own in zip(partitions, runs, strict=True)
            if number < len(own)
        }
        begin: Positions = {partition: first for partition, (first, _) in now.items()}
        reader.seek(begin, {partition: last + 1 for partition, (_, last) in now.items()})
        async with aclosing(reader.rest()) as batches:
            async for batch in batches:
                for record in batch:
                    if RecordPlace.of(record) in wanted:
                        yield record
