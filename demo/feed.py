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
_POLL_MS: Final = 100


class DemoError(Exception):
    """The demo cannot go on: a worker ended, or the deadline passed."""


class Report(Protocol):
    """Shows what happens."""

    def wave(self, title: str) -> None: ...

    def record(self, record: InboundRecord, topic: TopicName) -> None: ...


class Feed:
    """Runs waves against running services.

    Args:
        services: broker, Redis and workers.
        places: what stands for the placeholders of the examples.
        report: shows what comes.
        sign: gives the attestation of what a person decided.
        deadline: seconds of `time.monotonic` at which to give up.
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
        self._services = services
        self._places = places
        self._report = report
        self._sign = sign
        self._deadline = deadline

    async def run(self, waves: tuple[Wave, ...]) -> Ledger:
        """Send each wave and wait for what comes of it.

        Raises:
            DemoError: a worker ended, or the deadline passed; says what is missing.
        """
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
            for records in (await consumer.getmany(timeout_ms=_POLL_MS)).values():
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
            partition, offset = (
                int(header(inbound.headers, f"__connect.errors.{name}") or -1)
                for name in ("partition", "offset")
            )
            code = header(inbound.headers, "gw-error") or "?"
            self.ledger.came((partition, offset), code, "dead letter")
            return
        decision = json.loads(record.value)
        self.ledger.came(
            (decision["user_id"], decision["subject_id"]),
            *(decision["reason_code"], decision["verdict"], decision["revision"]),
        )
