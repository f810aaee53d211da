"""What of a partition is set aside because its part of state is away, while the others go on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence

from groundwire.messages.headers import InboundRecord


def keys_of(records: Iterable[InboundRecord]) -> Counter[bytes | None]:
    """Count the keys of records."""
    return Counter(record.key for record in records)


class Aside:
    """The keys of the records that are set aside; what follows one in its key follows it here too.

    Attributes:
        turn: lets the batches of the partition wait for their parts of state one after the other, whoever came first.
    """

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self._keys: Counter[bytes | None] = Counter()

    def split(self, records: Sequence[InboundRecord]) -> tuple[list[InboundRecord], list[InboundRecord]]:
        """Split records into those that may be decided, and those that follow one that is set aside.

        Those without a key follow whichever is set aside before them, as in `agents.partitions.small_first`.
        """
        if not self._keys:
            return list(records), []
        keys = set(self._keys)
        free: list[InboundRecord] = []
        follow: list[InboundRecord] = []
        for record in records:
            follows = record.key in keys or record.key is None
            (follow if follows else free).append(record)
            if follows:
                keys.add(record.key)
        return free, follow

    def add(self, records: Iterable[InboundRecord]) -> None:
        """Set records aside."""
        self._keys += keys_of(records)

    def remove(self, records: Iterable[InboundRecord]) -> None:
        """Note that records are done."""
        self._keys -= keys_of(records)
