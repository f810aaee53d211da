"""Follows what becomes of the records that a producer has sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError
from groundwire.kafka.reader import Positions, Start, TopicReader, open_reader
from groundwire.messages.decisions import Decision, Kind, Verdict
from groundwire.messages.headers import InboundRecord, header
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.topics import TopicName

_AGAIN: Final = 1.0
"""Seconds until a broker that went away is asked again."""
_LOOK_ANEW: Final = 30.0
"""Seconds until the topics are asked whether they have more partitions."""

Outcome = asyncio.Future[Decision | Exception]
"""A decision, or why there is none: a result in either case, which nobody has to look at."""

_Waiting = WeakValueDictionary[str, Outcome]
"""Who waits for the decision of a subject, by the fingerprint of what was sent."""


class Outcomes:
    """Reads decisions and dead letters as they come, and tells those who wait for one.

    Whoever drops the future of a record no longer waits for it: nothing else keeps one.

    Args:
        brokers: `host:port,...`.
        prefix: before every topic's name.
        seconds: how long the broker may take to answer.
    """

    def __init__(self, brokers: str, prefix: str, seconds: float) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._seconds = seconds
        self._subjects: WeakValueDictionary[Subject, _Waiting] = WeakValueDictionary()
        self._letters: WeakValueDictionary[bytes, Outcome] = WeakValueDictionary()
        self._failure: Exception | None = None

    def of(self, subject: Subject, fingerprint: str, value: bytes) -> Outcome:
        """Return the future of what becomes of a record; call it before the record is sent.

        A decision counts only with the record's own fingerprint: an id may be used for something else too, and the
        gate decides the first of them.
        """
        waiting = self._subjects.setdefault(subject, WeakValueDictionary())
        outcome = waiting.get(fingerprint)
        if outcome is None or outcome.done():
            outcome = asyncio.get_running_loop().create_future()
            # the only strong reference to `waiting`: it lives as long as somebody waits
            outcome.add_done_callback(partial(_settled, waiting, fingerprint))
            waiting[fingerprint] = outcome
        self._letters[value] = outcome
        if self._failure:
            outcome.set_result(self._failure)
        return outcome

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the topics from their ends on.

        Raises:
            UsageError: a topic does not exist.
            BrokerUnavailable: the broker does not answer at the start; later it is waited for.
        """
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._follow(ready))
        try:
            await asyncio.wait([ready, task], return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                await task  # what it failed with
            task.add_done_callback(self._ended)
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, ready: asyncio.Future[None]) -> None:
        topics = [f"{self._prefix}{name}" for name in (*map(TopicName.of, Verdict), TopicName.DEAD_LETTER)]
        start: Start = "latest"
        positions: Positions = {}
        while True:
            try:
                async with open_reader(self._brokers, self._seconds) as reader:
                    await reader.begin(dict.fromkeys(topics, start), continued=positions)
                    positions, start = reader.positions, "earliest"  # of partitions that are added later
                    if not ready.done():
                        ready.set_result(None)
                    await self._read(reader, topics)
            except BrokerUnavailable:
                if not ready.done():
                    raise
                await asyncio.sleep(_AGAIN)

    async def _read(self, reader: TopicReader, topics: list[str]) -> None:
        """Read until the topics have other partitions than those that are read."""
        loop = asyncio.get_running_loop()
        due = loop.time() + _LOOK_ANEW
        while True:
            for record in await reader.batch():
                if record.topic == self._prefix + TopicName.DEAD_LETTER:
                    self._refused(record)
                else:
                    self._decided(record)
            if loop.time() > due:
                if (await reader.ends(*topics)).keys() != reader.positions.keys():
                    return
                due = loop.time() + _LOOK_ANEW

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Tell all who wait, and whoever will, what following ended with: nothing comes any more."""
        failure = None if task.cancelled() else task.exception()
        if isinstance(failure, Exception):
            self._failure = failure
            waiting = [one for group in self._subjects.values() for one in group.values()]
            for outcome in waiting:
                _tell(outcome, failure)

    def _decided(self, record: InboundRecord) -> None:
        for subject in named_subjects(record):
            waiting = self._subjects.get(subject)
            decision = decision_of(record, subject) if waiting else None
            if waiting and decision and decision.revision:
                _tell(waiting.get(decision.fingerprint), decision)

    def _refused(self, record: InboundRecord) -> None:
        said = header(record.headers, "gw-error")
        # a newer gate may have codes that are not known here
        code = ErrorCode(said) if said in set(ErrorCode) else ErrorCode.INVALID_RECORD
        message = header(record.headers, "__connect.errors.exception.message") or said or code
        _tell(self._letters.get(record.value or b""), RecordError(code, message))


def named_subjects(record: InboundRecord) -> list[Subject]:
    """Return the subjects that a record's key and headers may be of, without a look at its value."""
    tenant_id, colon, user_id = (record.key or b"").decode(errors="replace").partition(":")
    subject_id = header(record.headers, "ce_subject")
    return [Subject(tenant_id, user_id, kind, subject_id) for kind in Kind] if colon and subject_id else []


def decision_of(record: InboundRecord, subject: Subject) -> Decision | None:
    """Return the decision of a record where it is one of the subject; what cannot be read is nobody's."""
    try:
        decision = Decision.from_record(record)
    except ValueError:
        return None
    return decision if subject_of_decision(decision) == subject else None


def _tell(outcome: Outcome | None, result: Decision | Exception) -> None:
    if outcome and not outcome.done():
        outcome.set_result(result)


def _settled(waiting: _Waiting, fingerprint: str, outcome: Outcome) -> None:
    if waiting.get(fingerprint) is outcome:
        del waiting[fingerprint]
