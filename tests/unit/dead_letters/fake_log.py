"""Topics in memory, on which a run can crash after any record."""

from collections import defaultdict

from groundwire.errors import ErrorCode, RecordError
from groundwire.kafka.reader import RecordPlace
from groundwire.messages.base import to_milliseconds
from groundwire.messages.headers import InboundRecord, dead_letter_headers
from groundwire.review.dead_letters import Log

PREFIX = "t."
DEAD = f"{PREFIX}dead-letter"
AUDIT = f"{PREFIX}audit"
CLAIMS = f"{PREFIX}claims"


class CrashError(Exception):
    """The run crashes."""


class FakeLog(Log):
    """Topics of a partition each, and a second between records; after `crash_after` more records the run crashes."""

    def __init__(self):
        self.prefix = PREFIX
        self.topics = defaultdict(list)
        self.clock = 1_767_225_600_000  # 2026-01-01T00:00:00Z
        self.crash_after = None
        self.crash = CrashError()
        self.sent = []

    def put(self, topic, key, value, headers=(), timestamp=None):
        self.clock += 1000
        at = self.clock if timestamp is None else timestamp
        record = InboundRecord(topic, 0, len(self.topics[topic]), at, key, value, tuple(map(tuple, headers)))
        self.topics[topic].append(record)
        return record

    def bury(
        self,
        value=b"{",
        *,
        key=b"acme:ann",
        topic=CLAIMS,
        code="worker_crash",
        headers=(),
        offset=None,
        timestamp=5000,
    ):
        """Append a dead letter as the gate writes it, by default of a new record."""
        offset = len(self.topics[DEAD]) + 7 if offset is None else offset
        error = RecordError(ErrorCode(code), "why")
        return self.put(DEAD, key, value, dead_letter_headers(error, topic, 2, offset, headers, timestamp))

    def gate_refuses(self):
        """Append a dead letter for each redriven record that has none yet."""
        for topic in [topic for topic in self.topics if topic not in {DEAD, AUDIT}]:
            names = {"__connect.errors.topic": topic.encode(), "__connect.errors.partition": b"0"}
            seen = [one for one in self.topics[DEAD] if names.items() <= dict(one.headers).items()]
            for record in self.topics[topic][len(seen) :]:
                error = RecordError(ErrorCode.INVALID_JSON, "why")
                headers = dead_letter_headers(error, topic, 0, record.offset, record.headers)
                self.put(DEAD, record.key, record.value, headers)

    async def read(self, topic, start, partition=None):  # noqa: ARG002 - as the real one
        for record in list(self.topics[f"{PREFIX}{topic}"]):
            if isinstance(start, int):
                begun = record.offset >= start
            else:
                begun = isinstance(start, str) or record.timestamp >= to_milliseconds(start)
            if begun:
                yield record

    async def send(self, record):
        if self.crash_after == 0:
            raise self.crash
        self.sent.append((record.topic, record.partition, record.timestamp))
        there = self.put(record.topic, record.key, record.value, record.headers)
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after == 0:
                raise self.crash
        return RecordPlace(there.topic, there.partition, there.offset)
