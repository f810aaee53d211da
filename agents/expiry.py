"""Reviews that nobody decided in time: the gate itself sends the ReviewDecision that expires them.

Every worker of the role does so; an action id that names the decision makes one outcome of it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import structlog
from pydantic import ValidationError

from agents.outputs import Output
from agents.pauses import Pauses
from agents.publisher import ProducerBroken, Publisher
from groundwire.client.unasked import unasked
from groundwire.errors import BrokerUnavailable, StateError, UsageError
from groundwire.gate.reviews import GATE
from groundwire.messages.decisions import Decision, Place
from groundwire.messages.headers import ATTESTATION
from groundwire.messages.identity import Subject, expire_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.topics import TopicName, record_key
from groundwire.state.model import State, SubjectState

log = structlog.get_logger()

_EVERY: Final = 60.0
_RETRY: Final = 5.0
_CHUNK: Final = 500
_MANY: Final = 20_000


@dataclass(frozen=True, slots=True, order=True)
class Waiting:
    """A place in the queue, since when it is taken, and the record that says so."""

    since: datetime
    decision_id: str
    subject: Subject = field(compare=False)
    revision: int = field(compare=False)
    record: InboundRecord = field(compare=False)


class Expiry:
    """Sends what expires reviews.

    Args:
        read: yields the records of `review` from its beginning, and goes on with what comes.
        state: knows who still waits.
        publisher: sends.
        sign: gives the attestation of a record's value; raises UsageError without a key.
        ttl: how long a review may wait.
        now: the wall clock.
    """

    def __init__(
        self,
        read: Callable[[], AsyncGenerator[InboundRecord, None]],
        state: State,
        publisher: Publisher,
        sign: Callable[[bytes], bytes],
        *,
        ttl: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._read = read
        self._state = state
        self._publisher = publisher
        self._sign = sign
        self._ttl = ttl
        self._now = now
        self._waiting: list[Waiting] = []
        self._many = _MANY
        self._every = min(_EVERY, max(1.0, ttl.total_seconds() / 4))

    async def run(self, pauses: Pauses) -> None:
        """Follow `review` and expire what is overdue, until the worker ends."""
        await asyncio.gather(self._follow(), self._expire_for_ever(pauses))

    async def _follow(self) -> None:
        while True:
            try:
                self._waiting = []
                with unasked("reviews cannot be read"):
                    async with aclosing(self._read()) as records:
                        async for record in records:
                            entry = waiting(record)
                            if entry is not None:
                                heapq.heappush(self._waiting, entry)
            except (BrokerUnavailable, UsageError) as exc:
                log.warning("review.unreadable", error=str(exc))
            await asyncio.sleep(_RETRY)

    async def _expire_for_ever(self, pauses: Pauses) -> None:
        while True:
            await asyncio.sleep(self._every)
            if pauses.current:
                continue
            try:
                await self.expire()
            except (StateError, BrokerUnavailable, ProducerBroken, UsageError) as exc:
                log.warning("review.expiry_interrupted", error=type(exc).__name__)

    async def expire(self) -> int:
        """Send for all that are overdue by now; return how many these were.

        Raises:
            StateError, BrokerUnavailable: some are left for the next time.
            UsageError: the gate's key is in the keys file no more.
        """
        await self._forget_decided()
        sent: list[Waiting] = []
        while overdue := self._take_overdue():
            try:
                still = await self._pending(overdue)
                await self._publisher.publish([self._output(entry) for entry in still])
            except BaseException:
                for entry in overdue:
                    heapq.heappush(self._waiting, entry)
                raise
            sent += still
        for entry in sent:  # until state says that it waits no longer
            heapq.heappush(self._waiting, entry)
        if sent:
            log.info("review.expired", sent=len(sent))
        return len(sent)

    def _take_overdue(self) -> list[Waiting]:
        until = self._now() - self._ttl
        overdue: list[Waiting] = []
        while self._waiting and self._waiting[0].since <= until and len(overdue) < _CHUNK:
            overdue.append(heapq.heappop(self._waiting))
        return overdue

    async def _pending(self, entries: Sequence[Waiting]) -> list[Waiting]:
        standings = await self._state.standings([entry.subject for entry in entries])
        return [
            entry
            for entry, standing in zip(entries, standings, strict=True)
            if standing is not None
            and standing.state is SubjectState.PENDING
            and standing.revision == entry.revision
        ]

    async def _forget_decided(self) -> None:
        """Keep what still waits, once much more is remembered than can be waiting."""
        if len(self._waiting) < self._many:
            return
        known, still = list(self._waiting), set()
        for first in range(0, len(known), _CHUNK):
            still |= {entry.decision_id for entry in await self._pending(known[first : first + _CHUNK])}
        gone = {entry.decision_id for entry in known} - still
        self._waiting = [entry for entry in self._waiting if entry.decision_id not in gone]
        heapq.heapify(self._waiting)
        self._many = max(_MANY, 2 * len(self._waiting))

    def _output(self, entry: Waiting) -> Output:
        subject = entry.subject
        review = ReviewDecision(
            action_id=expire_id(entry.decision_id),
            tenant_id=subject.tenant_id,
            user_id=subject.user_id,
            kind=subject.kind.value,
            subject_id=subject.subject_id,
            expected_revision=entry.revision,
            action="expire",
            reviewer=GATE,
        )
        value = review.model_dump_json(exclude_none=True).encode()
        key = record_key(subject.tenant_id, subject.user_id)
        headers = [(ATTESTATION, self._sign(value)), ("content-type", b"application/json")]
        return Output(TopicName.REVIEW_DECISIONS, key, value, headers, entry.record)


def waiting(record: InboundRecord) -> Waiting | None:
    """Return the place that a record of `review` says is taken; None where it says nothing of the kind."""
    try:
        decision = Decision.model_validate_json(record.value or b"")
    except ValidationError:
        return None
    if decision.revision < 1 or decision.facts.place != Place.FREE:
        return None
    subject = Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id)
    small = InboundRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.key, None, ()
    )
    return Waiting(decision.decided_at, decision.decision_id, subject, decision.revision, small)
