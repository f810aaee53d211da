"""Reads the topics for a replay, and looks up published decisions; uses no consumer group."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta
from typing import Final

from aiokafka import TopicPartition

from groundwire.config import Settings
from groundwire.errors import BrokerUnavailable, StateUnavailable, UsageError
from groundwire.gate.types import DecisionQuery
from groundwire.kafka.reader import GAP, OffsetRange, RecordPlace, Start, TopicReader, follow, open_reader
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.erasure import read_tombstone
from groundwire.messages.headers import InboundRecord, failure_of, header
from groundwire.messages.topics import TopicName
from groundwire.replay.store import RecordStore

INPUTS: Final = (TopicName.CLAIMS, TopicName.LLM_RESPONSES, TopicName.REVIEW_DECISIONS)
"""Topics whose records are decided."""

OUTPUTS: Final = (
    *(TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED),
    *(TopicName.DEAD_LETTER, TopicName.AUDIT),
    # planned last: what was decided after a tombstone was published after it
    TopicName.RETRACTIONS,
)
"""Topics with the outcomes of input records."""

PATIENCE: Final = 30.0
"""Seconds within which the broker has to answer."""
_PAGE: Final = 500
CLOCK_SKEW: Final = timedelta(minutes=5)
"""Greatest difference of workers' clocks: one decides, and after its crash another publishes."""

Report = Callable[[str, int, int], None]
"""Called with an action, its progress and its total."""


class Rate:
    """Limits the mean rate of records since the start: a replay shares brokers with workers."""

    def __init__(
        self,
        a_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._a_second = a_second
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._done = 0

    @property
    def limited(self) -> bool:
        return self._a_second is not None

    async def after(self, count: int) -> None:
        """Wait until `count` more records are due; without a limit only yield to the event loop."""
        self._done += count
        due = self._started + self._done / self._a_second if self._a_second else 0.0
        await self._sleep(max(due - self._clock(), 0.0))


class ReplayReader:
    def __init__(self, brokers: str, prefix: str, rate: Rate, report: Report) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._rate = rate
        self._report = report

    async def plan(self, topics: Sequence[str], start: Start, end: Start) -> list[OffsetRange]:
        """Return the offset range of each partition between two positions. Raises: UsageError, BrokerUnavailable."""
        async with open_reader(self._brokers, PATIENCE) as reader:
            return await reader.ranges(*topics, start=start, end=end)

    async def read(
        self,
        store: RecordStore,
        inside: Sequence[OffsetRange],
        outputs: Sequence[OffsetRange],
        *,
        everything: bool,
    ) -> None:
        """Read records, their outcomes and what these rest on into a store, from where it stopped.

        Holds one page in memory. Raises: BrokerUnavailable.
        """
        chosen = {(each.topic, each.partition): each for each in inside}

        def keep_record(record: InboundRecord) -> None:
            store.add_record(record, inside=True)

        def keep_outcome(record: InboundRecord) -> None:
            topic = (record.topic or "").removeprefix(self._prefix)
            if topic == TopicName.DEAD_LETTER:
                failed = failure_of(record)
                store.mark("ended", f"{failed.topic}/{failed.partition}@{failed.offset}")
            elif topic == TopicName.RETRACTIONS:
                if erasure := read_tombstone(record):
                    store.note_erasure(erasure)
            elif topic == TopicName.AUDIT:
                store.note_event(record.value)
            else:
                store.add_decision(record, inside=chosen, everything=everything)

        # tombstones are read before the decisions that they separate
        outputs = sorted(outputs, key=lambda each: not each.topic.endswith(TopicName.RETRACTIONS))
        total = sum(each.end - store.next_of(each) for each in (*inside, *outputs))
        done = 0
        async with open_reader(self._brokers, PATIENCE) as reader:
            for ranges, keep in ((inside, keep_record), (outputs, keep_outcome)):
                for each in ranges:
                    async for count in self._read(reader, store, each, keep):
                        done += count
                        self._report("read", done, total)
            await self._fetch(reader, store, store.missing_places())

    async def _read(
        self,
        reader: TopicReader,
        store: RecordStore,
        offsets: OffsetRange,
        keep: Callable[[InboundRecord], None],
    ) -> AsyncIterator[int]:
        at = store.next_of(offsets)
        if at >= offsets.end:
            return
        partition = TopicPartition(offsets.topic, offsets.partition)
        reader.seek({partition: at}, {partition: offsets.end})
        async with aclosing(reader.rest(_PAGE)) as pages:
            async for page in pages:
                reached = min(await reader.position(partition), offsets.end)
                with store.transaction():
                    for record in page:
                        keep(record)
                    store.set_next(offsets, reached)
                yield reached - at
                at = reached
                await self._rate.after(len(page))
        if at < offsets.end:  # compacted offsets bring no page
            store.set_next(offsets, offsets.end)
            yield offsets.end - at

    async def _fetch(self, reader: TopicReader, store: RecordStore, places: Sequence[RecordPlace]) -> None:
        ranges: list[OffsetRange] = []
        for topic in sorted({place.topic for place in places}):
            with suppress(UsageError):  # a forged decision may name a topic that does not exist
                ranges += await reader.ranges(topic)
        gap = 0 if self._rate.limited else GAP  # what is read between two places is not counted
        for first in range(0, len(places), _PAGE):
            page = places[first : first + _PAGE]
            found = [record async for record in reader.records_at(page, ranges, gap=gap)]
            with store.transaction():
                for record in found:
                    store.add_record(record, inside=False)
            self._report("fetched", first + len(page), len(places))
            await self._rate.after(len(page))


class PublishedDecisions:
    """Finds decisions on the output topics: state holds no text of approved claims."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def __call__(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        """Return published decisions by id: one scan a topic, and a second from its beginning if needed.

        Raises: StateUnavailable.
        """
        decisions: dict[str, Decision] = {}
        for verdict in {query.verdict for query in wanted}:
            of_topic = [query for query in wanted if query.verdict == verdict]
            ids = {query.decision_id for query in of_topic}
            times = [query.since for query in of_topic if query.since is not None]
            if times:
                decisions |= await self._scan(verdict, ids, min(times) - CLOCK_SKEW)
            if missing := ids - decisions.keys():
                decisions |= await self._scan(verdict, missing, "earliest")
        return decisions

    async def _scan(self, verdict: Verdict, ids: set[str], start: Start) -> dict[str, Decision]:
        topic = self._settings.topic_prefix + TopicName.of(verdict)
        read = follow(self._settings.brokers, {topic: start}, PATIENCE, until_end=True)
        decisions: dict[str, Decision] = {}
        try:
            async with aclosing(read) as records:
                async for record in records:
                    decision = (
                        Decision.try_parse(record.value) if header(record.headers, "ce_id") in ids else None
                    )
                    if decision is not None and decision.decision_id in ids:
                        decisions[decision.decision_id] = decision
                        if decisions.keys() == ids:
                            break
        except (BrokerUnavailable, UsageError) as exc:
            raise StateUnavailable(f"a published decision cannot be looked up: {exc}") from exc
        return decisions
