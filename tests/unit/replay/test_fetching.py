"""Single records that decisions rest on are read from the topics, or it is said that the broker did not answer."""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition

from groundwire.errors import BrokerUnavailable
from groundwire.kafka import reader
from groundwire.replay import reading
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.store import Job, RecordPlace
from tests.unit.gate.world import TOPIC
from tests.unit.kafka.fake_consumer import FakeConsumer, serving
from tests.unit.replay.checking import ORDER

PARTITION = TopicPartition(TOPIC, 0)


async def fetch(job, broker, places, monkeypatch, reports):
    monkeypatch.setattr(reader, "consumer", serving(broker))
    monkeypatch.setattr(job, "missing_places", lambda: [p for p in places if not job.has_record(p)])
    replay = ReplayReader("b:1", "groundwire.", Rate(None), lambda *how: reports.append(how))
    await replay.read(job, [], [], everything=True)


async def test_what_retention_has_taken_is_left_out_and_what_no_topic_has(tmp_path, monkeypatch):
    places = [RecordPlace(TOPIC, 0, offset) for offset in (1, 4, 5, 6, 9, 10)]
    places += [RecordPlace(TOPIC, 1, 5), RecordPlace("elsewhere", 0, 5)]
    with Job(tmp_path / "job", ORDER) as job:
        await fetch(job, FakeConsumer(4, 10, partition=PARTITION, gaps=(5, 9)), places, monkeypatch, [])
        assert [place.offset for place in places if job.has_record(place)] == [4, 6]


async def test_a_broker_that_stops_answering_is_not_taken_for_retention_and_what_was_read_stays(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(reading, "_PAGE", 2)
    places, reports = [RecordPlace(TOPIC, 0, offset) for offset in range(5)], []
    with Job(tmp_path / "job", ORDER) as job:
        with pytest.raises(BrokerUnavailable):
            await fetch(
                job, FakeConsumer(0, 5, partition=PARTITION, fails_at=3), places, monkeypatch, reports
            )
        assert reports == [("fetched", 2, 5)]
    with Job(tmp_path / "job", ORDER) as job:
        assert [job.has_record(place) for place in places] == [True, True, False, False, False]
        await fetch(job, FakeConsumer(0, 5, partition=PARTITION), places, monkeypatch, reports)
        assert all(map(job.has_record, places))
