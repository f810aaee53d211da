"""A consumer of aiokafka's, as far as reading topics goes, over one partition in memory."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

PARTITION = TopicPartition("t.claims", 0)


class FakeConsumer:
    """Offsets `first` to `end` of one partition without those in `gaps`, one record a fetch, or `page`.

    The broker stops answering at `fails_at`; `silent` brings and fails nothing. `time` is the offset of the
    first record from any time on.
    """

    def __init__(self, first=0, end=0, *, partition=PARTITION, **options):
        self.first, self.end, self.partition, self.at, self.held = first, end, partition, 0, set()
        self.gaps, self.page = options.get("gaps", ()), options.get("page", 1)
        self.fails_at, self.silent, self.time = map(options.get, ("fails_at", "silent", "time"))
        self.fails_with, self.looked, self.read = None, 0, 0
        self.partitions = {partition.topic: {partition.partition}}
        self._client = SimpleNamespace(fetch_all_metadata=self.metadata, add_topic=_returning(None))

    async def metadata(self):
        self.looked += 1
        return SimpleNamespace(partitions_for_topic=self.partitions.get)

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
        while self.at in self.gaps:
            self.at += 1
        if self.fails_with or self.at == self.fails_at:
            raise self.fails_with or KafkaError
        if self.silent or self.held or self.at >= self.end:
            await asyncio.sleep(timeout_ms / 100_000)
            return {}
        first, self.at = self.at, min(self.at + min(self.page, max_records), self.end)
        self.read += self.at - first
        fields = {"timestamp": 0, "key": b"", "headers": (), **self.partition._asdict()}
        offsets = range(first, self.at)
        return {self.partition: [SimpleNamespace(offset=n, value=str(n).encode(), **fields) for n in offsets]}


def serving(client):
    @asynccontextmanager
    async def consumer(*_where):
        yield client

    return consumer


def _returning(value):
    async def answer(*_):
        return value

    return answer
