"""Single records that decisions rest on are read from the topics, or it is said that the broker did not answer."""

from __future__ import annotations

from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaError

from groundwire.errors import BrokerUnavailable
from groundwire.replay import reading
from groundwire.replay.job import Job, Order
from groundwire.replay.published import Place
from groundwire.replay.rate import Rate
from groundwire.replay.reading import Reader
from tests.unit.gate.world import TOPIC

ORDER = Order("n", [], "earliest", "latest", None, simulate=False, output=None)


class Broker:
    """One partition of one topic; `fails_at`: there the broker stops answering."""

    def __init__(self, first, end, fails_at=None, gaps=()):
        self.first, self.end, self.fails_at, self.gaps = first, end, fails_at, gaps
        cluster = SimpleNamespace(partitions_for_topic=lambda topic: {0} if topic == TOPIC else None)
        self._client = SimpleNamespace(fetch_all_metadata=self._answer(cluster))
        self.at = 0

    @staticmethod
    def _answer(value):
        async def answer():
            return value

        return answer

    async def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, self.first)

    async def end_offsets(self, partitions):
        return dict.fromkeys(partitions, self.end)

    def assign(self, _partitions):
        pass

    def seek(self, _partition, offset):
        self.at = offset

    async def position(self, _partition):
        return self.at

    async def getmany(self, partition, *, timeout_ms, max_records):  # noqa: ARG002 - as aiokafka has it
        while self.at in self.gaps:  # compacted, or the marker of a transaction
            self.at += 1
        if self.at == self.fails_at:
            raise KafkaError
        if self.at >= self.end:
            return {}
        offset, self.at = self.at, self.at + 1
        return {
            partition: [
                SimpleNamespace(
                    topic=TOPIC,
                    partition=0,
                    offset=offset,
                    timestamp=0,
                    key=b"",
                    value=str(offset).encode(),
                    headers=(),
                )
            ]
        }


async def fetch(job, broker, places, monkeypatch, reports):
    @asynccontextmanager
    async def consumer(*_where):
        yield broker

    monkeypatch.setattr(reading, "consumer", consumer)
    monkeypatch.setattr(job.spool, "missing_places", lambda: [p for p in places if not job.spool._has(p)])
    reader = Reader("b:1", "groundwire.", Rate(None), lambda *how: reports.append(how))
    await reader.read(job, [], [], everything=True)


async def test_what_retention_has_taken_is_left_out_and_what_no_topic_has(tmp_path, monkeypatch):
    places = [Place(TOPIC, 0, offset) for offset in (1, 4, 5, 6, 9, 10)]
    places += [Place(TOPIC, 1, 5), Place("elsewhere", 0, 5)]
    with Job(tmp_path / "job", ORDER) as job:
        await fetch(job, Broker(4, 10, gaps=(5, 9)), places, monkeypatch, [])
        assert [place.offset for place in places if job.spool._has(place)] == [4, 6]


async def test_a_broker_that_stops_answering_is_not_taken_for_retention_and_what_was_read_stays(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(reading, "_PAGE", 2)
    places, reports = [Place(TOPIC, 0, offset) for offset in range(5)], []
    with Job(tmp_path / "job", ORDER) as job:
        with pytest.raises(BrokerUnavailable):
            await fetch(job, Broker(0, 5, fails_at=3), places, monkeypatch, reports)
        assert reports == [("fetched", 2, 5)]
    with Job(tmp_path / "job", ORDER) as job:
        assert [job.spool._has(place) for place in places] == [True, True, False, False, False]
        await fetch(job, Broker(0, 5), places, monkeypatch, reports)
        assert all(map(job.spool._has, places))
