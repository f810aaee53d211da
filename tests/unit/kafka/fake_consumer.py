"""A consumer of aiokafka's, as far as reading topics goes, over one partition in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

PARTITION = TopicPartition("t.claims", 0)


class FakeConsumer:
    """Offsets `first` to `end` of one partition, one record a fetch, or `page`.

    Args:
        gaps: offsets without a record: compacted, or the marker of a transaction.
        fails_at: the offset at which the broker stops answering.
        silent: nothing is brought, and nothing fails.
        time: offset of the first record from any time on; None: there is none so late.
    """

    def __init__(
        self, first=0, end=0, *, gaps=(), fails_at=None, silent=False, time=None, partition=PARTITION, page=1
    ) -> None:
        self.first, self.end, self.gaps, self.fails_at = first, end, gaps, fails_at
        self.silent, self.time, self.partition, self.page = silent, time, partition, page
        self.at = 0
        self.held = set()
        cluster = SimpleNamespace(
            partitions_for_topic=lambda topic: {partition.partition} if topic == partition.topic else None
        )
        self._client = SimpleNamespace(fetch_all_metadata=_returning(cluster), add_topic=_returning(None))

    async def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, self.first)

    async def end_offsets(self, partitions):
        return dict.fromkeys(partitions, self.end)

    async def offsets_for_times(self, moments):
        self.moments = set(moments.values())
        return dict.fromkeys(moments, self.time and SimpleNamespace(offset=self.time))

    def assign(self, partitions):
        self.held.clear()
        self.assigned = list(partitions)

    def seek(self, _partition, offset):
        self.at = offset

    def pause(self, *partitions):
        self.held.update(partitions)

    def resume(self, *partitions):
        self.held.difference_update(partitions)

    def paused(self):
        return set(self.held)

    async def position(self, _partition):
        return self.at

    async def getmany(self, *, timeout_ms, max_records):
        assert max_records
        while self.at in self.gaps:
            self.at += 1
        if self.at == self.fails_at:
            raise KafkaError
        if self.silent or self.held or self.at >= self.end:
            await asyncio.sleep(timeout_ms / 100_000)
            return {}
        first, self.at = self.at, min(self.at + self.page, self.end)
        return {self.partition: [self._record(offset) for offset in range(first, self.at)]}

    def _record(self, offset):
        topic, number = self.partition
        fields = {"timestamp": 0, "key": b"", "value": str(offset).encode(), "headers": ()}
        return SimpleNamespace(topic=topic, partition=number, offset=offset, **fields)


def serving(client: FakeConsumer) -> Callable[..., object]:
    """Return what stands in for `groundwire.kafka.reader.consumer`."""

    @asynccontextmanager
    async def consumer(*_where):
        yield client

    return consumer


def _returning(value):
    async def answer(*_):
        return value

    return answer
