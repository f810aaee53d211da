"""Expires reviews that nobody decided in time: the gate sends the ReviewDecision itself.

Every worker of the role does; the action id follows from the decision, so duplicates are one action.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import structlog

from agents.health import Health
from agents.outputs import Output
from agents.publisher import Publisher
from groundwire.errors import BrokerUnavailable, StateError, StateUnavailable, UsageError
from groundwire.gate.reviews import GATE
from groundwire.kafka.reader import TopicFollower
from groundwire.messages.decisions import Decision, Place
from groundwire.messages.headers import ATTESTATION, InboundRecord
from groundwire.messages.identity import Subject, expire_id, subject_of_decision
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName, record_key
from groundwire.state.model import SubjectState, SubjectStatus
from groundwire.state.redis import RedisState

log = structlog.get_logger()

_CHUNK: Final = 500
_FORGET_ABOVE: Final = 20_000
"""Places in memory above which decided ones are dropped."""


@dataclass(frozen=True, slots=True, order=True)
class WaitingPlace:
    """A place in the review queue, since when it is taken, and the record that says so."""

    since: datetime
    decision_id: str
    subject: Subject = field(compare=False)
    revision: int = field(compare=False)
    record: InboundRecord = field(compare=False)


class ReviewExpiry:
    """Sends the ReviewDecisions that expire reviews; `sign` raises UsageError without a key."""

    def __init__(
        self,
        reviews: TopicFollower,
        state: RedisState,
        publisher: Publisher,
        sign: Callable[[bytes], bytes],
        *,
        ttl: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._reviews = reviews
        self._state = state
        self._publisher = publisher
        self._sign = sign
        self._ttl = ttl
        self._now = now
        self._waiting: list[WaitingPlace] = []
        self._forget_above = _FORGET_ABOVE
        self._interval = min(60.0, max(1.0, ttl.total_seconds() / 4))

    async def run(self, health: Health) -> None:
        async def expire_for_ever() -> None:
            while True:
                await asyncio.sleep(self._interval)
                if health.current - {"state"}:  # a part of state may answer
                    continue
                try:
                    await self.expire()
                except (StateError, BrokerUnavailable, UsageError) as exc:
                    log.warning("review.expiry_interrupted", error=type(exc).__name__)

        await asyncio.gather(self._follow(), expire_for_ever())

    async def _follow(self) -> None:
        async with aclosing(self._reviews.batches()) as batches:
            async for records in batches:
                for place in filter(None, map(waiting, records)):
                    heapq.heappush(self._waiting, place)

    async def expire(self) -> int:
        """Expire the overdue reviews of partitions whose state answers; return how many.

        Raises: StateLost, BrokerUnavailable: some are left.
        """
        away: set[int] = set()
        if len(self._waiting) >= self._forget_above:
            known, kept = list(self._waiting), set[str]()
            for first in range(0, len(known), _CHUNK):
                pending, unknown = await self._look_up(known[first : first + _CHUNK], away)
                kept |= {place.decision_id for place in pending + unknown}
            gone = {place.decision_id for place in known} - kept
            self._waiting = [place for place in self._waiting if place.decision_id not in gone]
            heapq.heapify(self._waiting)
            self._forget_above = max(_FORGET_ABOVE, 2 * len(self._waiting))
        sent, left = 0, list[WaitingPlace]()
        until = self._now() - self._ttl
        try:
            while overdue := self._take(until):
                before = list(left)
                left += overdue
                pending, unknown = await self._look_up(overdue, away)
                await self._publisher.publish([self._output(place) for place in pending])
                sent += len(pending)
                left = [*before, *pending, *unknown]  # those sent too, until state reports them decided
        finally:
            for place in left:
                heapq.heappush(self._waiting, place)
        if sent or away:
            log.info("review.expired", sent=sent, partitions_away=sorted(away))
        return sent

    def _take(self, until: datetime) -> list[WaitingPlace]:
        """Take the first places since a time or earlier out of those that wait."""
        overdue: list[WaitingPlace] = []
        while self._waiting and self._waiting[0].since <= until and len(overdue) < _CHUNK:
            overdue.append(heapq.heappop(self._waiting))
        return overdue

    async def _look_up(
        self, places: Sequence[WaitingPlace], away: set[int]
    ) -> tuple[list[WaitingPlace], list[WaitingPlace]]:
        """Return the places that are still pending, and those of which state does not tell, as their partition is away.

        `away`: partitions that are not asked again; others that do not answer are added.
        """
        pending: list[WaitingPlace] = []
        unknown: list[WaitingPlace] = []
        by_partition: defaultdict[int, list[WaitingPlace]] = defaultdict(list)
        for place in places:
            by_partition[self._state.partition_of(place.subject)].append(place)
        for partition, some in by_partition.items():
            if partition not in away:
                try:
                    statuses = await self._state.statuses([place.subject for place in some])
                except StateUnavailable:
                    away.add(partition)
            if partition in away:
                unknown += some
                continue
            pending += [
                place
                for place, status in zip(some, statuses, strict=True)
                if status == SubjectStatus(SubjectState.PENDING, place.revision)
            ]
        return pending, unknown

    def _output(self, place: WaitingPlace) -> Output:
        subject = place.subject
        review = ReviewDecision(
            action_id=expire_id(place.decision_id),
            tenant_id=subject.tenant_id,
            user_id=subject.user_id,
            kind=subject.kind.value,
            subject_id=subject.subject_id,
            expected_revision=place.revision,
            action="expire",
            reviewer=GATE,
        )
        value = review.model_dump_json(exclude_none=True).encode()
        key = record_key(subject.tenant_id, subject.user_id)
        headers = [(ATTESTATION, self._sign(value)), ("content-type", b"application/json")]
        return Output(TopicName.REVIEW_DECISIONS, key, value, headers, place.record)


def waiting(record: InboundRecord) -> WaitingPlace | None:
    """Return the place that a record of `review` takes, or None."""
    decision = Decision.try_parse(record.value)
    if decision is None or decision.revision < 1 or decision.facts.place != Place.FREE:
        return None
    subject = subject_of_decision(decision)
    position = replace(record, value=None, headers=())
    return WaitingPlace(decision.decided_at, decision.decision_id, subject, decision.revision, position)
