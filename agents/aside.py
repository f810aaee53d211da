"""What of a partition is set aside because its part of state is away, while the others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from groundwire.messages.headers import InboundRecord

_Item = TypeVar("_Item")


def keys_of(records: Iterable[InboundRecord]) -> Counter[bytes | None]:
    """Count the keys of records."""
    return Counter(record.key for record in records)


def split(
    items: Iterable[_Item],
    keys: set[bytes | None],
    waits: Callable[[_Item], bool],
    key_of: Callable[[Any], bytes | None] = attrgetter("key"),
) -> tuple[list[_Item], list[_Item]]:
    """Split items into the free ones, and those that wait or follow in their key one that does; `keys` wait already.

    What has no key follows whichever waits.
    """
    free: list[_Item] = []
    follow: list[_Item] = []
    for item in items:
        key = key_of(item)
        if key in keys or (keys and key is None) or waits(item):
            keys.add(key)
            follow.append(item)
        else:
            free.append(item)
    return free, follow


class Aside:
    """The records that are set aside; what follows one in its key follows it here too.

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
        return split(records, set(self._keys.values()), lambda _record: False)

    def add(self, records: Iterable[InboundRecord]) -> None:
        """Set records aside."""
        self._keys |= {record.offset: record.key for record in records}

    def ready(
        self, records: Sequence[InboundRecord], waits: Callable[[set[int]], bool]
    ) -> list[InboundRecord]:
        """Return those that wait for nothing any more, and follow none that does, nor one of an earlier batch.

        Args:
            records: what a batch has set aside, in its order.
            waits: whether what concerns some parts of state waits for one of them.
        """

        def wait(record: InboundRecord) -> bool:
            return waits(self.buckets.get(record.offset, set()))

        if all(map(wait, records)):
            return []
        first = records[0].offset
        earlier = {key for offset, key in self._keys.items() if offset < first}
        return split(records, earlier, wait)[0]

    def remove(self, records: Iterable[InboundRecord]) -> None:
        """Note that records are done."""
        for record in records:
            self._keys.pop(record.offset, None)
            self.buckets.pop(record.offset, None)
