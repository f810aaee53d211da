"""Reviews that nobody decided in time."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.expiry import ReviewExpiry, WaitingPlace
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

    def partition_of(self, subject: Subject) -> int:
        return int(subject.user_id)

    async def statuses(self, subjects):
        self.asked.append(partition := self.partition_of(subjects[0]))
        if partition in self.away:
            raise StateUnavailable("away")
        decided = SubjectStatus(SubjectState.APPROVED, 2)
        pending = SubjectStatus(SubjectState.PENDING, 1)
        return [decided if subject.subject_id == "decided" else pending for subject in subjects]

    async def publish(self, outputs):
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


RECORD = InboundRecord(None, 0, 0, 0, None, None)
