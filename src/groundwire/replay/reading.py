"""Reading what a replay needs from the topics: without a consumer group, so that nobody notices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from groundwire.client.kafka import consumer, inbound, partitions_of, unavailable
from groundwire.client.tail import Start, offsets_at
from groundwire.errors import UsageError
from groundwire.messages.headers import header
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.replay.job import Job
from groundwire.replay.published import Place
from groundwire.replay.rate import Rate
from groundwire.replay.spool import Stretch

INPUTS: Final = (TopicName.CLAIMS, TopicName.LLM_RESPONSES, TopicName.REVIEW_DECISIONS)
"""Topics whose records are decided."""

OUTPUTS: Final = (
    *(TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED),
    *(TopicName.DEAD_LETTER, TopicName.AUDIT),
)
"""Topics that tell what became of them."""

_PATIENCE: Final = 30.0
_PAGE: Final = 500
_POLL_MS: Final = 500
_DEAD: Final = "__connect.errors."

Report = Callable[[str, int, int], None]
"""Told what is done, how much of it, and of how much."""


class Reader:
    """Reads topics of a deployment into a job.

    Args:
        brokers: Kafka bootstrap servers.
        prefix: of the topics' names.
        rate: how fast.
        report: told how far it has come.
    """

    def __init__(self, brokers: str, prefix: str, rate: Rate, report: Report) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._rate = rate
        self._report = report

    async def plan(self, topics: Sequence[str], start: Start, end: Start) -> list[Stretch]:
        """Say which offsets of each partition lie between two places; `end` is left out.

        Raises:
            UsageError: a topic does not exist.
            BrokerUnavailable: the broker does not answer.
        """
        async with consumer(self._brokers, _PATIENCE) as client:
            try:
                async with asyncio.timeout(_PATIENCE):
                    return [stretch for topic in topics for stretch in await _plan(client, topic, start, end)]
            except (KafkaError, TimeoutError) as exc:
                raise unavailable(self._brokers, _PATIENCE, "say where the topics begin and end") from exc

    async def read(
        self, job: Job, inside: Sequence[Stretch], outputs: Sequence[Stretch], *, everything: bool
    ) -> None:
        """Read the records to be replayed, what became of them, and what that rests on, into a job.

        Goes on where the job stopped; memory holds no more than a page.

        Raises:
            BrokerUnavailable: the broker does not answer, or stopped answering.
        """
        chosen = {(stretch.topic, stretch.partition): stretch for stretch in inside}

        def keep_record(record: InboundRecord) -> None:
            job.spool.add_record(record, inside=True)

        def keep_outcome(record: InboundRecord) -> None:
            self._keep_outcome(job, record, chosen, everything=everything)

        total = sum(stretch.end - job.spool.next_of(stretch) for stretch in (*inside, *outputs))
        done = 0
        async with consumer(self._brokers, _PATIENCE) as client:
            for stretches, keep in ((inside, keep_record), (outputs, keep_outcome)):
                for stretch in stretches:
                    async for count in self._read(client, job, stretch, keep):
                        done += count
                        self._report("read", done, total)
            await self._fetch(client, job, job.spool.missing_places())

    async def _read(
        self, client: AIOKafkaConsumer, job: Job, stretch: Stretch, keep: Callable[[InboundRecord], None]
    ) -> AsyncIterator[int]:
        """Read a stretch page by page; yields how many offsets each page took."""
        at = job.spool.next_of(stretch)
        partition = TopicPartition(stretch.topic, stretch.partition)
        if at < stretch.end:
            client.assign([partition])
            client.seek(partition, at)
        while at < stretch.end:
            page = await self._page(client, partition, stretch.end)
            reached = min(await client.position(partition), stretch.end)
            job.begin()
            for record in page:
                if record.offset < stretch.end:
                    keep(record)
            job.spool.read_to(stretch, reached)
            job.commit()
            yield reached - at
            at = reached
            await self._rate.after(len(page))

    async def _page(
        self, client: AIOKafkaConsumer, partition: TopicPartition, end: int, most: int = _PAGE
    ) -> list[InboundRecord]:
        try:
            async with asyncio.timeout(_PATIENCE):
                page: Sequence[Any] = ()
                while (
                    not page and await client.position(partition) < end
                ):  # which retention may have overtaken
                    fetched = await client.getmany(partition, timeout_ms=_POLL_MS, max_records=most)
                    page = fetched.get(partition, ())
        except (KafkaError, TimeoutError) as exc:
            raise unavailable(self._brokers, _PATIENCE, f"bring the rest of {partition.topic}") from exc
        return [inbound(record) for record in page]

    def _keep_outcome(
        self,
        job: Job,
        record: InboundRecord,
        chosen: Mapping[tuple[str, int], Stretch],
        *,
        everything: bool,
    ) -> None:
        topic = (record.topic or "").removeprefix(self._prefix)
        if topic == TopicName.DEAD_LETTER:
            job.spool.add_end(
                place_name(*(header(record.headers, _DEAD + name) or "" for name in Place._fields))
            )
        elif topic == TopicName.AUDIT:
            if b'"refused_action"' in (record.value or b"") or b'"review_action"' in (record.value or b""):
                job.spool.add_end(header(record.headers, "ce_id") or "")
        else:
            job.spool.add_decision(record, inside=chosen, everything=everything)

    async def _fetch(self, client: AIOKafkaConsumer, job: Job, places: Sequence[Place]) -> None:
        """Read single records that decisions rest on; those that retention has taken are left out."""
        stand = await self._standing(client, places)
        for first in range(0, len(stand), _PAGE):
            page = stand[first : first + _PAGE]
            found = [await self._one(client, place) for place in page]
            job.begin()
            for record in found:
                if record is not None:
                    job.spool.add_record(record, inside=False)
            job.commit()
            self._report("fetched", first + len(page), len(stand))

    async def _standing(self, client: AIOKafkaConsumer, places: Sequence[Place]) -> list[Place]:
        """Return the places that topics have: from where retention has left them to their ends."""
        known: dict[TopicPartition, range] = {}
        try:
            for topic in sorted({place.topic for place in places}):
                async with asyncio.timeout(_PATIENCE):
                    partitions = [
                        TopicPartition(topic, number)
                        for number in (await partitions_of(client, topic))[topic]
                    ]
                    if not partitions:  # it may be anybody's word that there is such a topic
                        continue
                    beginnings = await client.beginning_offsets(partitions)
                    ends = await client.end_offsets(partitions)
                known |= {each: range(beginnings[each], ends[each]) for each in partitions}
        except (KafkaError, TimeoutError) as exc:
            raise unavailable(self._brokers, _PATIENCE, "say where the topics begin and end") from exc
        return [place for place in places if place.offset in known.get(TopicPartition(*place[:2]), range(0))]

    async def _one(self, client: AIOKafkaConsumer, place: Place) -> InboundRecord | None:
        """Read a single record; None where the topic turns out to have none there."""
        await self._rate.after(1)
        partition = TopicPartition(place.topic, place.partition)
        client.assign([partition])
        client.seek(partition, place.offset)
        page = await self._page(client, partition, place.offset + 1, most=1)
        return next((record for record in page if record.offset == place.offset), None)


def place_name(topic: str, partition: str, offset: str) -> str:
    """Return the name of a place among what ended without a decision."""
    return f"{topic}/{partition}/{offset}"


async def _plan(client: AIOKafkaConsumer, topic: str, start: Start, end: Start) -> list[Stretch]:
    partitions = [TopicPartition(topic, number) for number in (await partitions_of(client, topic))[topic]]
    if not partitions:
        raise UsageError(f"there is no topic {topic}: `python -m topics declare` creates it")
    ends = await client.end_offsets(partitions)
    first, last = await offsets_at(client, start, ends), await offsets_at(client, end, ends)
    return [Stretch(topic, each.partition, first[each], max(first[each], last[each])) for each in partitions]
