"""Redrives dead letters to their input topics, each at most once.

The audit records each letter before it is sent and after it is acknowledged. Where a run crashed in between, the next
one searches the topic: a record with the same key, bytes and failure count can only be the redriven one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from groundwire.dead_letters.letters import (
    Begun,
    KafkaLog,
    Letter,
    LetterFailure,
    RedriveHistory,
    Redriven,
    RedriveRecord,
    Selection,
    audit_record,
    read_letter,
)
from groundwire.errors import ErrorCode
from groundwire.kafka.connection import MAX_RECORD_BYTES
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.kafka.reader import RecordPlace
from groundwire.messages.base import from_milliseconds
from groundwire.messages.headers import ATTEMPTS, InboundRecord, header
from groundwire.messages.topics import TopicName

_CLOCK_SKEW: Final = timedelta(minutes=5)
"""Between the clock that wrote the letter and the one that wrote the audit."""


class RedriveOutcome(StrEnum):
    """The outcome of a letter; `redrive` in a dry run: it would be sent."""

    REDRIVE = "redrive"
    REDRIVEN = "redriven"
    SKIPPED = "skipped"
    REFUSED = "refused"


class RedriveRefusal(StrEnum):
    """Why a letter is not sent; the list is closed."""

    ALREADY_REDRIVEN = "already_redriven"
    NOT_A_DEAD_LETTER = "not_a_dead_letter"
    NOT_AN_INPUT_TOPIC = "not_an_input_topic"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class RedriveStep:
    """A letter and its outcome; `redriven`: when and to where it was sent, now or earlier."""

    letter: Letter
    outcome: RedriveOutcome
    why: RedriveRefusal | None = None
    redriven: Redriven | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How letters are redriven: at most `limit`, `rate` a second, each failed fewer than `max_attempts` times.

    `stop_after`: stop once so many have failed again, as their cause is not fixed.
    """

    prefix: str
    actor: str
    max_attempts: int = 3
    limit: int | None = None
    rate: float = 50.0
    stop_after: int = 20

    def full(self, letters: Sequence[Letter]) -> bool:
        """Say whether a batch is full: it holds the records of a second, at most 100, or 4 MB."""
        most = max(1, min(100, int(self.rate)))
        return len(letters) >= most or sum(map(_size, letters)) >= 4_000_000

    @property
    def topics(self) -> list[str]:
        return [f"{self.prefix}{name}" for name in INPUT_TOPICS]

    def why_not(self, letter: Letter) -> RedriveRefusal | None:
        """Return why a letter may not be sent: only this deployment's input topics are written to."""
        failed = letter.failed
        if failed.code not in set(ErrorCode) or letter.attempts is None or letter.failure is None:
            return RedriveRefusal.NOT_A_DEAD_LETTER
        if failed.topic not in self.topics:
            return RedriveRefusal.NOT_AN_INPUT_TOPIC
        if letter.attempts >= self.max_attempts:
            return RedriveRefusal.TOO_MANY_ATTEMPTS
        return RedriveRefusal.TOO_LARGE if _size(letter) > MAX_RECORD_BYTES else None


def _size(letter: Letter) -> int:
    """Return an upper bound of a record's bytes, with lengths and its share of the batch."""
    headers = sum(len(name.encode()) + len(value or b"") + 12 for name, value in letter.again)
    return len(letter.record.key or b"") + len(letter.record.value or b"") + headers + 200


class Redrive:
    """One run over the dead-letter topic; `stopped`: it ended early, because too many records failed again."""

    def __init__(
        self,
        log: KafkaLog,
        selection: Selection,
        rules: Rules,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._log = log
        self._selection = selection
        self._rules = rules
        self._now = now
        self._sleep = sleep
        self._sent: set[RecordPlace] = set()
        self._sent_last = 0
        self.stopped = False

    async def plan(self) -> AsyncGenerator[RedriveStep, None]:
        """Yield what `run` would do with each letter; nothing is sent."""
        async with aclosing(self._steps(*await self._read_past())) as steps:
            async for step in steps:
                yield step

    async def run(self) -> AsyncGenerator[RedriveStep, None]:
        """Send letters back, and yield the outcome of each; an interrupted run can be started again.

        Raises: BrokerUnavailable.
        """
        history, unnoted = await self._read_past()
        window: list[Letter] = []
        async with (
            self._log.failing(self._now()) as failing,
            aclosing(self._steps(history, unnoted)) as steps,
        ):
            async for step in steps:
                if step.outcome == RedriveOutcome.REDRIVE:
                    window.append(step.letter)
                    if self._rules.full(window):
                        for done in await self._send(window, history, failing):
                            yield done
                        window = []
                    if self.stopped:
                        return
                    continue
                if step.redriven and step.letter.id in history.begun:
                    await self._note([(step.letter, step.redriven)])
                yield step
            for done in await self._send(window, history, failing):
                yield done

    async def _read_past(self) -> tuple[RedriveHistory, Unnoted]:
        """Read the audit, and find the records of letters that were about to be sent when a run crashed."""
        history, unnoted = await history_of(self._log, self._selection, self._rules.prefix), Unnoted()
        noted = {redriven.place for redriven in history.redriven.values()}
        for topic in self._rules.topics:
            times = [begun.at for begun in history.begun.values() if begun.topic == topic]
            if not times:
                continue
            async with aclosing(self._log.records(topic, min(times) - _CLOCK_SKEW)) as records:
                async for record in records:
                    place = RecordPlace(topic, record.partition, record.offset)
                    if header(record.headers, ATTEMPTS) and place not in noted:
                        unnoted.setdefault(_marks(topic, record), []).append(place)
        return history, unnoted

    async def _steps(self, history: RedriveHistory, unnoted: Unnoted) -> AsyncGenerator[RedriveStep, None]:
        count = 0
        sending: set[LetterFailure | None] = set()
        async with aclosing(selected(self._log, self._selection)) as letters:
            async for letter in letters:
                step = self._judge(letter, history, unnoted)
                if step.outcome == RedriveOutcome.REDRIVE and letter.failure in sending:
                    step = RedriveStep(letter, RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN)
                yield step
                if step.outcome == RedriveOutcome.REDRIVE:
                    sending.add(letter.failure)
                    count += 1
                if count == self._rules.limit:
                    return

    def _judge(self, letter: Letter, history: RedriveHistory, unnoted: Unnoted) -> RedriveStep:
        done, begun = history.redriven_of(letter), history.begun_of(letter)
        if begun and not done and (places := unnoted.get(_marks(letter.failed.topic, letter.record))):
            done = Redriven(begun.at, begun.actor, places.pop())
            if letter.failure:
                history.redriven.setdefault(letter.failure, done)
        if done:
            return RedriveStep(letter, RedriveOutcome.SKIPPED, RedriveRefusal.ALREADY_REDRIVEN, done)
        why = self._rules.why_not(letter)
        return RedriveStep(letter, RedriveOutcome.REFUSED if why else RedriveOutcome.REDRIVE, why)

    async def _send(
        self, letters: Sequence[Letter], history: RedriveHistory, failing: Collection[RecordPlace]
    ) -> list[RedriveStep]:
        """Record, send, record, at the rate; nothing is sent once too many records have failed again."""
        if self._sent and letters:
            await self._sleep(self._sent_last / self._rules.rate)
            self.stopped = len(self._sent.intersection(failing)) >= self._rules.stop_after
        if self.stopped or not letters:
            return []
        at, actor = self._now(), self._rules.actor
        fresh = [letter for letter in letters if letter.id not in history.begun]
        await self._note([(letter, Begun(at, actor, letter.failed.topic)) for letter in fresh])
        places = await self._log.publish(
            [RedriveRecord(one.failed.topic, one.record.key, one.record.value, one.again) for one in letters]
        )
        done = [
            (letter, Redriven(at, actor, RecordPlace(letter.failed.topic, *place)))
            for letter, place in zip(letters, places, strict=True)
        ]
        await self._note(done)
        self._sent_last = len(letters)
        self._sent |= {redriven.place for _, redriven in done}
        return [RedriveStep(letter, RedriveOutcome.REDRIVEN, redriven=redriven) for letter, redriven in done]

    async def _note(self, notes: Sequence[tuple[Letter, Begun | Redriven]]) -> None:
        await self._log.publish([audit_record(self._rules.prefix, letter, noted) for letter, noted in notes])


async def selected(log: KafkaLog, selection: Selection) -> AsyncGenerator[Letter, None]:
    async with aclosing(log.letters(selection.start, selection.partition)) as records:
        async for record in records:
            if selection.ended(record):
                return
            letter = read_letter(record)
            if letter in selection:
                yield letter


async def history_of(log: KafkaLog, selection: Selection, prefix: str) -> RedriveHistory:
    """Read what was redriven of a selection: nothing can have been before its first letter was written."""
    history = RedriveHistory()
    oldest = await log.oldest(selection.start, selection.partition)
    if oldest is not None:
        since = from_milliseconds(oldest) - _CLOCK_SKEW
        async with aclosing(log.records(f"{prefix}{TopicName.AUDIT}", since)) as audit:
            async for record in audit:
                history.add(record)
    return history


Marks = tuple[str, bytes | None, str, str | None]
"""Topic, key, SHA-256 of the value and count of failures, by which a redriven record is recognised."""
Unnoted = dict[Marks, list[RecordPlace]]
"""Where records are that were redriven, but not noted in the audit as sent."""


def _marks(topic: str, record: InboundRecord) -> Marks:
    return topic, record.key, record.sha256, header(record.headers, ATTEMPTS)
