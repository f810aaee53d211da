"""Sending dead letters back to the topic that they came from, each at most once.

A run that dies may leave letters of which the audit says only that they were about to be sent. The next run looks
for them on their topic: a record with the same key, bytes and count of failures can only be the redriven one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from groundwire.client.tail import Start
from groundwire.dead_letters.ledger import (
    Begun,
    History,
    Outgoing,
    Redriven,
    Stands,
    audit_record,
    read_history,
)
from groundwire.dead_letters.letters import Failure, Letter, Selection, read_letter
from groundwire.dead_letters.rules import Outcome, Rules, Step, Why
from groundwire.messages.base import from_milliseconds
from groundwire.messages.headers import ATTEMPTS, header
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName

SKEW: Final = timedelta(minutes=5)
"""By how much clocks may differ: one wrote the letter, another the audit."""


class Log(Protocol):
    """The topics, as far as redriving needs them; every reading ends where its topic ended when it began."""

    def letters(self, start: Start, partition: int | None) -> AsyncGenerator[InboundRecord, None]:
        """Yield the records of the dead-letter topic."""
        ...

    def records(self, topic: str, since: datetime) -> AsyncGenerator[InboundRecord, None]:
        """Yield the records of a topic, named with its prefix, from a time of Kafka's on."""
        ...

    async def oldest(self, start: Start, partition: int | None) -> int | None:
        """Return the least Kafka time of the dead letters from `start` on, milliseconds; None: there is none."""
        ...

    def failing(self, since: datetime) -> AbstractAsyncContextManager[Collection[Stands]]:
        """Watch the dead-letter topic: where the records stood that have failed from a time on, kept up to date."""
        ...

    async def publish(self, records: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """Send records and return where the broker put each: partition and offset. Raises: BrokerUnavailable."""
        ...


class Redrive:
    """One run over the dead-letter topic.

    Args:
        log: the topics.
        selection: which letters.
        rules: how they are sent.
        now: the wall clock, for the audit.
        sleep: waits so many seconds between windows.

    Attributes:
        stopped: `run` ended early, because too many records failed again.
    """

    def __init__(
        self,
        log: Log,
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
        self._sent: set[Stands] = set()
        self._sent_last = 0
        self.stopped = False

    async def plan(self) -> AsyncGenerator[Step, None]:
        """Say of each letter what `run` would do with it, and change nothing."""
        async with aclosing(self._judged(*await self._past())) as steps:
            async for step in steps:
                yield step

    async def run(self) -> AsyncGenerator[Step, None]:
        """Send letters back, and yield each once it is known what became of it.

        May be broken off at any moment and begun again: what was sent is not sent a second time.

        Raises:
            BrokerUnavailable: not everything was acknowledged.
        """
        history, unnoted = await self._past()
        window: list[Letter] = []
        async with (
            self._log.failing(self._now()) as failing,
            aclosing(self._judged(history, unnoted)) as steps,
        ):
            async for step in steps:
                if step.outcome == Outcome.REDRIVE:
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

    async def _past(self) -> tuple[History, Unnoted]:
        history = await history_of(self._log, self._selection, self._rules.prefix)
        return history, await _unnoted(self._log, history, self._rules.topics)

    async def _judged(self, history: History, unnoted: Unnoted) -> AsyncGenerator[Step, None]:
        count = 0
        sending: set[Failure | None] = set()
        async with aclosing(selected(self._log, self._selection)) as letters:
            async for letter in letters:
                step = self._judge(letter, history, unnoted)
                if step.outcome == Outcome.REDRIVE and letter.failure in sending:
                    step = Step(letter, Outcome.SKIPPED, Why.ALREADY_REDRIVEN)
                yield step
                if step.outcome == Outcome.REDRIVE:
                    sending.add(letter.failure)
                    count += 1
                if count == self._rules.limit:
                    return

    def _judge(self, letter: Letter, history: History, unnoted: Unnoted) -> Step:
        done, begun = history.redriven_of(letter), history.begun_of(letter)
        if begun and not done and (places := unnoted.get(_marks(letter.failed.topic, letter.record))):
            done = Redriven(begun.at, begun.actor, places.pop())
            history.remember(letter, done)
        if done:
            return Step(letter, Outcome.SKIPPED, Why.ALREADY_REDRIVEN, done)
        why = self._rules.why_not(letter)
        return Step(letter, Outcome.REFUSED, why) if why else Step(letter, Outcome.REDRIVE)

    async def _send(
        self, letters: Sequence[Letter], history: History, failing: Collection[Stands]
    ) -> list[Step]:
        """Wait for the window's turn; note, send, note. Nothing is sent once too much has failed again."""
        if self._sent and letters:
            await self._sleep(self._sent_last / self._rules.rate)
            self.stopped = len(self._sent.intersection(failing)) >= self._rules.stop_after
        if self.stopped or not letters:
            return []
        at, actor = self._now(), self._rules.actor
        fresh = [letter for letter in letters if letter.id not in history.begun]
        await self._note([(letter, Begun(at, actor, letter.failed.topic)) for letter in fresh])
        places = await self._log.publish([_back(letter) for letter in letters])
        done = [
            (letter, Redriven(at, actor, Stands(letter.failed.topic, *place)))
            for letter, place in zip(letters, places, strict=True)
        ]
        await self._note(done)
        self._sent_last = len(letters)
        self._sent |= {redriven.stands for _, redriven in done}
        return [Step(letter, Outcome.REDRIVEN, redriven=redriven) for letter, redriven in done]

    async def _note(self, notes: Sequence[tuple[Letter, Begun | Redriven]]) -> None:
        await self._log.publish([audit_record(self._rules.prefix, letter, noted) for letter, noted in notes])


def _back(letter: Letter) -> Outgoing:
    return Outgoing(letter.failed.topic, letter.record.key, letter.record.value, letter.again)


async def selected(log: Log, selection: Selection) -> AsyncGenerator[Letter, None]:
    """Yield the letters that are meant, a partition's in their order."""
    async with aclosing(log.letters(selection.start, selection.partition)) as records:
        async for record in records:
            if selection.ended(record):
                return
            letter = read_letter(record)
            if letter in selection:
                yield letter


async def history_of(log: Log, selection: Selection, prefix: str) -> History:
    """Read what was redriven of a selection: nothing can have been before its first letter was written."""
    oldest = await log.oldest(selection.start, selection.partition)
    if oldest is None:
        return History()
    async with aclosing(log.records(f"{prefix}{TopicName.AUDIT}", from_milliseconds(oldest) - SKEW)) as audit:
        return await read_history(audit)


Marks = tuple[str, bytes | None, str, str | None]
"""Topic, key, SHA-256 of the value and count of failures: what a redriven record is known by."""

Unnoted = dict[Marks, list[Stands]]
"""Where records stand that were redriven without a note."""


def _marks(topic: str, record: InboundRecord) -> Marks:
    return topic, record.key, record.sha256, header(record.headers, ATTEMPTS)


async def _unnoted(log: Log, history: History, topics: Collection[str]) -> Unnoted:
    """Find the records of letters that were about to be sent when a run ended."""
    noted = {redriven.stands for redriven in history.redriven.values()}
    found: Unnoted = {}
    for topic in topics:
        times = [begun.at for begun in history.begun.values() if begun.topic == topic]
        if not times:
            continue
        async with aclosing(log.records(topic, min(times) - SKEW)) as records:
            async for record in records:
                stands = Stands(topic, record.partition, record.offset)
                if header(record.headers, ATTEMPTS) and stands not in noted:
                    found.setdefault(_marks(topic, record), []).append(stands)
    return found
