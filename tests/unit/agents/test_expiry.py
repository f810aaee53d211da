"""Reviews that nobody decided in time."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from agents.expiry import ReviewExpiry, WaitingPlace
from agents.health import Health
from agents.publisher import ProducerBroken
from groundwire.errors import BrokerUnavailable, StateUnavailable
from groundwire.messages.decisions import Kind
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.state.model import SubjectState, SubjectStatus

NOW = datetime(2026, 1, 31, tzinfo=UTC)


class World:
    """Two partitions of state, some of them away, and a broker."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.asked: list[int] = []
        self.sent: list[bytes | None] = []
        self.broker_answers = True
        self.producer_works = True

    def partition_of(self, subject: Subject) -> int:
        return int(subject.user_id)

    async def statuses(self, subjects):
        self.asked.append(partition := self.partition_of(subjects[0]))
        if partition in self.away:
            raise StateUnavailable("away")
        decided = SubjectStatus(SubjectState.APPROVED, 2)
        pending = SubjectStatus(SubjectState.PENDING, 1)
        return [decided if subject.subject_id == "decided" else pending for subject in subjects]

    async def batches(self):
        for _ in ():
            yield

    async def publish(self, outputs):
        if not self.producer_works:
            raise ProducerBroken("fenced")
        if not self.broker_answers:
            raise BrokerUnavailable("away")
        self.sent += [output.key for output in outputs]


async def test_reviews_of_partitions_that_answer_expire_and_the_others_do_so_later():
    world = World()
    expiry = ReviewExpiry(None, world, world, lambda _: b"", ttl=timedelta(days=7), now=lambda: NOW)
    for number in range(1_200):
        user, name = str(number % 2), "decided" if number < 2 else f"c{number}"
        since = NOW - timedelta(days=8 if number < 1_100 else 6)
        place = WaitingPlace(since, f"d{number}", Subject("acme", user, Kind.CLAIM, name), 1, RECORD)
        expiry._waiting.append(place)
    world.broker_answers = False
    with pytest.raises(BrokerUnavailable):
        await expiry.expire()
    assert len(expiry._waiting) == 1_200
    world.broker_answers, world.away, world.asked = True, {0}, []
    assert await expiry.expire() == 549
    assert (set(world.sent), world.asked.count(0)) == ({b"acme:1"}, 1)
    assert len(expiry._waiting) == 1_199, "all but the one that is known to be decided"
    world.away = set()
    assert await expiry.expire() == 2 * 549


async def test_a_broken_producer_ends_the_worker_though_nothing_else_is_published():
    world = World()
    world.producer_works = False
    expiry = ReviewExpiry(world, world, world, lambda _: b"", ttl=timedelta(days=7), now=lambda: NOW)
    expiry._interval = 0
    expiry._waiting = [
        WaitingPlace(NOW - timedelta(days=8), "d", Subject("a", "0", Kind.CLAIM, "c"), 1, RECORD)
    ]
    with pytest.raises(ProducerBroken):
        async with asyncio.timeout(10):
            await expiry.run(Health())


RECORD = InboundRecord(None, 0, 0, 0, None, None)
