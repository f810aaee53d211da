"""One partition of one topic, in memory: what a Kafka broker keeps of it and what it answers."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field

from aiokafka.record import MemoryRecords

NO_ERROR = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER_SEQUENCE = 45
UNSUPPORTED_FOR_MESSAGE_FORMAT = 43

#: Kafka's own default for ``message.max.bytes``: the largest batch a broker takes, in bytes.
MAX_BATCH_BYTES = 1_048_588

LATEST = -1
EARLIEST = -2

#: A broker remembers so many batches of each producer, and a client has no more than that in flight.
REMEMBERED_BATCHES = 5

# base offset, length, leader epoch, magic, crc, attributes, last offset delta, base and max timestamp,
# producer id, producer epoch, base sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_COVERS_FROM = 12  # the length field counts the bytes behind itself
_MAGIC = 2


@dataclass(frozen=True, slots=True)
class Batch:
    """A record batch as the producer sent it, with its offsets put in."""

    base: int
    last: int
    max_timestamp: int
    data: bytes


@dataclass(slots=True)
class _Producer:
    """The batches last taken from one idempotent producer: (first sequence, last sequence, offset)."""

    epoch: int
    taken: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))


@dataclass(slots=True)
class Partition:
    """An append-only list of record batches.

    Batches are kept byte for byte, so that headers, timestamps and compression come back as sent.
    """

    largest: int = MAX_BATCH_BYTES
    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    end: int = 0
    _producers: dict[int, _Producer] = field(default_factory=dict)

    def append(self, records: bytes) -> tuple[int, int]:
        """Take one produced record set.

        Returns:
            Kafka's error code and the offset of its first record; a batch sent again by an idempotent
            producer is not stored twice and gets the offset it has.
        """
        first, position = -1, 0
        while position < len(records):
            if len(records) - position < _HEADER.size:
                return CORRUPT_MESSAGE, -1
            length = _LENGTH_COVERS_FROM + int.from_bytes(records[position + 8 : position + 12], "big")
            error, offset = self._append_batch(records[position : position + length])
            if error:
                return error, -1
            first = offset if first < 0 else first
            position += length
        return NO_ERROR, first

    def _append_batch(self, data: bytes) -> tuple[int, int]:
        head = _HEADER.unpack_from(data)
        length, magic, delta, max_timestamp = head[1], head[3], head[6], head[8]
        producer, epoch, sequence = head[9], head[10], head[11]
        if length + _LENGTH_COVERS_FROM != len(data):
            return CORRUPT_MESSAGE, -1
        if magic != _MAGIC:
            return UNSUPPORTED_FOR_MESSAGE_FORMAT, -1
        if len(data) > self.largest:
            return MESSAGE_TOO_LARGE, -1
        if producer >= 0:
            error, known = self._check_sequence(producer, epoch, sequence, sequence + delta)
            if error or known >= 0:
                return error, known
        base, self.end = self.end, self.end + delta + 1
        # the checksum starts behind the base offset: putting it in leaves the checksum right
        self.batches.append(Batch(base, base + delta, max_timestamp, base.to_bytes(8, "big") + data[8:]))
        return NO_ERROR, base

    def _check_sequence(self, producer: int, epoch: int, first: int, last: int) -> tuple[int, int]:
        """Return an error code, and the offset of this very batch where it was taken before (else -1)."""
        known = self._producers.get(producer)
        state = known if known and known.epoch == epoch else _Producer(epoch)
        self._producers[producer] = state
        for taken_first, taken_last, offset in state.taken:
            if (taken_first, taken_last) == (first, last):
                return NO_ERROR, offset
        # of a producer that the log does not know, any: its records may be deleted
        expected = state.taken[-1][1] + 1 if state.taken else 0 if known else first
        if first != expected:
            return OUT_OF_ORDER_SEQUENCE, -1
        state.taken.append((first, last, self.end))
        return NO_ERROR, -1

    def read(self, offset: int, max_bytes: int) -> tuple[int, bytes]:
        """Return Kafka's error code and whole batches from the one that holds `offset`.

        At least one batch, then as many as fit in `max_bytes`. A client drops the records before `offset`.
        """
        if not self.start <= offset <= self.end:
            return OFFSET_OUT_OF_RANGE, b""
        chosen: list[bytes] = []
        size = 0
        first = max(0, bisect_right(self.batches, offset, key=lambda batch: batch.base) - 1)
        for batch in self.batches[first:]:
            if batch.last < offset:
                continue
            size += len(batch.data)
            if chosen and size > max_bytes:
                break
            chosen.append(batch.data)
        return NO_ERROR, b"".join(chosen)

    def delete_before(self, offset: int) -> tuple[int, int]:
        """Have the log begin at an offset, -1 for its end; return Kafka's error code and where it begins."""
        offset = self.end if offset == -1 else offset
        if offset > self.end:
            return OFFSET_OUT_OF_RANGE, -1
        self.start = max(self.start, offset)
        self.batches = [batch for batch in self.batches if batch.last >= self.start]
        return NO_ERROR, self.start

    def offset_at(self, timestamp: int) -> tuple[int, int]:
        """Return (timestamp, offset) of the first record at or after `timestamp` (milliseconds).

        `LATEST` and `EARLIEST` name the two ends; (-1, -1) where no record is that young.
        """
        if timestamp == LATEST:
            return -1, self.end
        if timestamp == EARLIEST:
            return -1, self.start
        for batch in self.batches:
            if batch.max_timestamp < timestamp:
                continue
            records = MemoryRecords(batch.data).next_batch()
            for record in records or ():
                at = record.timestamp
                if at is not None and at >= timestamp and record.offset >= self.start:
                    return at, record.offset
        return -1, -1
