"""Where a subject stands now, read from all that the gate has published of it."""

from __future__ import annotations

from contextlib import aclosing

from aiokafka.partitioner import DefaultPartitioner

from groundwire.client.outcomes import decision_of, named_subjects
from groundwire.kafka.reader import Positions, open_reader
from groundwire.messages.decisions import Decision, ReasonCode, Verdict
from groundwire.messages.erasure import Erasures
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName, record_key


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
    key, chosen = record_key(subject.tenant_id, subject.user_id), Positions()
    async with open_reader(brokers, seconds) as reader:
        ends = await reader.ends(*topics)
        for topic in topics:  # the partition of the user's key, which workers choose as all clients do
            partitions = sorted(each for each in ends if each.topic == topic)
            each = DefaultPartitioner()(key, partitions, partitions)
            chosen[each] = ends[each]
        reader.seek(await reader.offsets("earliest", chosen), chosen)
        async with aclosing(reader.rest()) as pages:
            async for page in pages:
                for record in page:
                    known.note(record)
    return known.now
