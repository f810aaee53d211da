"""Sends the waves and reads their outcomes, until all have arrived or the deadline passes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from demo.examples import Example, Wave
from demo.ledger import Ledger
from demo.services import Services
from groundwire.errors import ErrorCode
from groundwire.messages.headers import ATTESTATION, InboundRecord, header
from groundwire.messages.topics import TopicName, record_key

PREFIX: Final = "groundwire."
_OUTPUTS: Final = (TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED, TopicName.DEAD_LETTER)


class DemoError(Exception):
    """The demo cannot go on: a worker ended, or the deadline passed."""


class Report(Protocol):
    def wave(self, title: str) -> None: ...

    def record(self, record: InboundRecord, topic: TopicName) -> None: ...


class Feed:
    """Runs waves against running services, until a deadline in seconds of `time.monotonic`.

    `places`: what the placeholders of the examples become; `sign`: gives the attestation of what a person decided.
    """

    def __init__(
        self,
        services: Services,
        places: Mapping[str, str],
        report: Report,
        *,
        sign: Callable[[bytes], bytes],
        deadline: float,
    ) -> None:
        self.ledger = Ledger()
        self._services, self._places, self._report = services, places, report
        self._sign, self._deadline = sign, deadline

    async def run(self, waves: tuple[Wave, ...]) -> Ledger:
        """Send each wave and wait for its outcomes. Raises: DemoError saying what is missing."""
        bootstrap = self._services.broker.bootstrap
        topics = [PREFIX + topic for topic in _OUTPUTS]
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all")
        consumer = AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        async with producer, consumer:
            for wave in waves:
                self._report.wave(wave.title)
                if wave.outage:
                    await asyncio.to_thread(self._services.redis.stop)
                for example in wave.examples:
                    await self._send(producer, example)
                if wave.outage:
                    await self._read_until(consumer, lambda: self.ledger.answered)
                    await asyncio.to_thread(self._services.redis.start)
                await self._read_until(consumer, lambda: self.ledger.complete)
        return self.ledger

    async def _send(self, producer: AIOKafkaProducer, example: Example) -> None:
        value = example.value(self._places)
        user, claim_id = example.subject or ("mia", "")
        topic, key = PREFIX + example.topic, record_key("default", user)
        acts = example.topic is TopicName.REVIEW_DECISIONS
        headers = [(ATTESTATION, self._sign(value or b""))] if acts else []
        place = await producer.send_and_wait(topic, value, key, headers=headers)
        where: Hashable = (place.partition, place.offset)
        dead = example.outcomes[0] in set(ErrorCode)
        label = claim_id or (value or b"no value")[:40].decode(errors="replace")
        by = "people" if acts else "sent"
        self.ledger.expect(where if dead else (user, claim_id), label, example.outcomes, by=by)
        for following, outcome in example.following.items():
            self.ledger.expect((user, following), following, (outcome,), by="gate")

    async def _read_until(self, consumer: AIOKafkaConsumer, done: Callable[[], bool]) -> None:
        while not done():
            if time.monotonic() > self._deadline:
                raise DemoError("the deadline passed; missing: " + "; ".join(self.ledger.missing))
            if ended := self._services.ended():
                raise DemoError(f"{ended} ended")
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    self._take(record)

    def _take(self, record: Any) -> None:  # noqa: ANN401 - aiokafka's record, which is not typed
        topic = TopicName(record.topic.removeprefix(PREFIX))
        inbound = InboundRecord(
            *(record.topic, record.partition, record.offset, record.timestamp, record.key, record.value),
            tuple(record.headers),
        )
        self._report.record(inbound, topic)
        if topic is TopicName.DEAD_LETTER:
            names = (f"__connect.errors.{name}" for name in ("partition", "offset"))
            place = tuple(int(header(inbound.headers, name) or -1) for name in names)
            self.ledger.came(place, header(inbound.headers, "gw-error") or "?", "dead letter")
            return
        decision = json.loads(record.value)
        outcome = (decision[name] for name in ("reason_code", "verdict", "revision"))
        self.ledger.came((decision["user_id"], decision["subject_id"]), *outcome)
