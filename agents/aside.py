"""What of a partition is set aside because its part of state is away, while the others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from groundwire.messages.headers import InboundRecord


def keys_of(records: Iterable[InboundRecord]) -> Counter[bytes | None]:
    """Count the keys of records."""
    return Counter(record.key for record in records)


class Aside:
    """The records that are set aside; what follows one in its key follows it here too.

    A record without a key follows whichever is set aside before it, as in `agents.partitions.small_first`.

    Attributes:
        buckets: by offset, what parts of state a record concerns, as far as that is known.
    """

    def __init__(self) -> None:
        self.buckets: dict[int, set[int]] = {}
        self._keys: dict[int, bytes | None] = {}

    def split(self, records: Sequence[InboundRecord]) -> tuple[list[InboundRecord], list[InboundRecord]]:
        """Split records into those that may be decided, and those that follow one that is set aside."""
        if not self._keys:
            return list(records), []
        return _split(records, set(self._keys.values()), lambda _record: False)

    def add(self, records: Iterable[InboundRecord]) -> None:
        """Set records aside."""
        self._keys |= {record.offset: record.key for record in records}

    def ready(
        self, records: Sequence[InboundRecord], waits: Callable[[InboundRecord], bool]
    ) -> list[InboundRecord]:
        """Return those that wait for nothing any more, and follow none that does, nor one of an earlier batch.

        Args:
            records: what a batch has set aside, in its order.
            waits: whether a record waits for its part of state.
        """
        if all(map(waits, records)):
            return []
        first = records[0].offset
        earlier = {key for offset, key in self._keys.items() if offset < first}
        return _split(records, earlier, waits)[0]

    def remove(self, records: Iterable[InboundRecord]) -> None:
        """Note that records are done."""
        for record in records:
            self._keys.pop(record.offset, None)
            self.buckets.pop(record.offset, None)


def _split(
    records: Sequence[InboundRecord], keys: set[bytes | None], waits: Callable[[InboundRecord], bool]
) -> tuple[list[InboundRecord], list[InboundRecord]]:
    """Split records into the free ones, and those that wait or follow one that does; `keys` are those that do."""
    free: list[InboundRecord] = []
    follow: list[InboundRecord] = []
    for record in records:
        follows = record.key in keys or (bool(keys) and record.key is None) or waits(record)
        (follow if follows else free).append(record)
        if follows:
            keys.add(record.key)
    return free, follow
