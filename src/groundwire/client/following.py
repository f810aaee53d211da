"""Follows a deployment's topics: approvals as they come, what becomes of sent records, and where a subject stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from aiokafka import TopicPartition
from pydantic import ValidationError

from groundwire.config import Settings, setting_error
from groundwire.errors import ErrorCode, RecordError
from groundwire.kafka.reader import Positions, Start, TopicFollower, follow, open_reader
from groundwire.messages.decisions import Decision, Kind, ReasonCode, Verdict
from groundwire.messages.erasure import Erasures
from groundwire.messages.headers import InboundRecord, failure_of, header
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName, partition_of

if TYPE_CHECKING:
    from groundwire.client.table import ApprovedTable, Change

SECONDS: Final = 10.0
"""How long the broker may take to answer."""


def settings_of(brokers: str | None, topic_prefix: str | None, keys_file: Path | None = None) -> Settings:
    """Return the settings of the environment, but for what is given. Raises: UsageError."""
    given = {"brokers": brokers, "topic_prefix": topic_prefix, "keys_file": keys_file}
    try:
        return Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        raise setting_error(Settings, exc) from None


async def changes(
    table: ApprovedTable,
    *,
    brokers: str | None = None,
    topic_prefix: str | None = None,
    until_end: bool = False,
    at_end: Callable[[], object] | None = None,
) -> AsyncGenerator[Change, None]:
    """Read all that was ever approved or withdrawn into a table, go on with what comes, and yield each change.

    It reads without a group and commits nothing: whoever starts again reads from the beginning.

    Args:
        table: takes in what is read.
        brokers: `host:port,...`; GROUNDWIRE_BROKERS where None.
        topic_prefix: before every topic's name; GROUNDWIRE_TOPIC_PREFIX where None.
        until_end: stop where the topics ended at the start.
        at_end: called once, when all that stood there at the start is taken in and yielded.

    Raises:
        ValueError: a record cannot be read.
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer.
    """
    settings = settings_of(brokers, topic_prefix)
    topics = [TopicName.RETRACTIONS, *map(TopicName.of, Verdict)]
    starts: dict[str, Start] = dict.fromkeys((settings.topic_prefix + topic for topic in topics), "earliest")
    read = follow(settings.brokers, starts, SECONDS, until_end=until_end, at_end=at_end)
    async with aclosing(read) as records:
        async for record in records:
            for change in table.apply(record):
                yield change


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

            # the only strong reference to `waiting`: it lives while somebody waits
            def settled(done: Outcome) -> None:
                if waiting.get(fingerprint) is done:
                    del waiting[fingerprint]

            outcome.add_done_callback(settled)
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
        topics = [f"{self._prefix}{name}" for name in (*map(TopicName.of, Verdict), TopicName.DEAD_LETTER)]

        # tell all who wait, and whoever will: nothing comes any more
        def ended(failure: Exception) -> None:
            self._failure = failure
            for outcome in [one for group in self._subjects.values() for one in group.values()]:
                _tell(outcome, failure)

        follower = TopicFollower(self._brokers, dict.fromkeys(topics, "latest"), self._seconds)
        async with follower.following(self._tell_waiting, ended):
            yield

    def _tell_waiting(self, records: Sequence[InboundRecord]) -> None:
        for record in records:
            if record.topic == self._prefix + TopicName.DEAD_LETTER:
                said, message, *_ = failure_of(record)
                # a newer gate may have codes that are not known here
                code = ErrorCode(said) if said in set(ErrorCode) else ErrorCode.INVALID_RECORD
                _tell(self._letters.get(record.value or b""), RecordError(code, message or said or code))
                continue
            for subject in named_subjects(record):
                waiting = self._subjects.get(subject)
                decision = decision_of(record, subject) if waiting else None
                if waiting and decision and decision.revision:
                    _tell(waiting.get(decision.fingerprint), decision)


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


class MemoryStanding:
    """What is known of one subject, in whichever order its records come."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._decisions: list[Decision] = []
        self._retractions: list[Retraction] = []
        self._erasures = Erasures()

    def note(self, record: InboundRecord) -> None:
        """Take in a record of a topic of decisions or of `retractions`; those of others change nothing."""
        if self._erasures.note(record) or self._subject not in named_subjects(record):
            return
        decision = decision_of(record, self._subject)
        if decision:
            self._decisions.append(decision)
        else:
            try:
                self._retractions.append(Retraction.from_record(record))
            except ValueError:
                return  # what cannot be read is nobody's

    @property
    def now(self) -> Decision | None:
        """The decision with the highest revision that is not erased, blocked where it was withdrawn.

        The decision that withdrew it is kept for a shorter time than its retraction, which then stands for it.
        """
        user = self._subject[:2]
        left = [one for one in self._decisions if not self._erasures.cover(*user, one.decided_at)]
        last = max(left, key=lambda one: one.revision, default=None)
        for retraction in self._retractions:
            if last and retraction.supersedes == last.decision_id and last.decided_at <= retraction.at:
                changes = {
                    "decision_id": retraction.decision_id,
                    "revision": last.revision + 1,
                    "supersedes": last.decision_id,
                    "verdict": Verdict.BLOCKED,
                    "approved": False,
                    "reason_code": ReasonCode.RETRACTED.value,
                    "reason": retraction.reason or "Approval was withdrawn",
                    "decided_at": retraction.at,
                }
                return last.model_copy(update=changes)
        return last


async def current(brokers: str, prefix: str, subject: Subject, seconds: float) -> Decision | None:
    """Read the partitions of the subject's user from their beginnings and return where it stands now.

    Raises:
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer within `seconds`.
    """
    known = MemoryStanding(subject)
    topics = [f"{prefix}{topic}" for topic in (*map(TopicName.of, Verdict), TopicName.RETRACTIONS)]
    chosen = Positions()
    async with open_reader(brokers, seconds) as reader:
        ends = await reader.ends(*topics)
        for topic in topics:  # the partition of the user's key, which workers choose as all clients do
            count = sum(each.topic == topic for each in ends)
            each = TopicPartition(topic, partition_of(subject.tenant_id, subject.user_id, count))
            chosen[each] = ends[each]
        reader.seek(await reader.offsets("earliest", chosen), chosen)
        async with aclosing(reader.records()) as records:
            async for record in records:
                known.note(record)
    return known.now
