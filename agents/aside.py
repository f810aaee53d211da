"""Records that are set aside because their Redis shard is unreachable, while the others go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from groundwire.messages.headers import InboundRecord

_Item = TypeVar("_Item")


def keys_of(records: Iterable[InboundRecord]) -> Counter[bytes | None]:
    return Counter(record.key for record in records)


def split(
    items: Iterable[_Item],
    keys: set[bytes | None],
    waits: Callable[[_Item], bool],
    key_of: Callable[[Any], bytes | None] = attrgetter("key"),
) -> tuple[list[_Item], list[_Item]]:
    """Split items into free ones, and those that wait or follow a waiting one in their key; `keys` wait already.

    Items without a key follow whichever waits.
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
    """The records that are set aside, with those that follow them in their key.

    Attributes:
        buckets: of state that a record depends on, by offset, once known.
    """

    def __init__(self) -> None:
        self.buckets: dict[int, set[int]] = {}
        self._keys: dict[int, bytes | None] = {}

    def split(self, records: Sequence[InboundRecord]) -> tuple[list[InboundRecord], list[InboundRecord]]:
        """Split records into free ones, and those that follow a set-aside one in their key."""
        if not self._keys:
            return list(records), []
        return split(records, set(self._keys.values()), lambda _record: False)

    def add(self, records: Iterable[InboundRecord]) -> None:
        self._keys |= {record.offset: record.key for record in records}

    def ready(
        self, records: Sequence[InboundRecord], waits: Callable[[set[int]], bool]
    ) -> list[InboundRecord]:
        """Return the records that neither wait nor follow a waiting one or one of an earlier batch."""

        def wait(record: InboundRecord) -> bool:
            return waits(self.buckets.get(record.offset, set()))

        if all(map(wait, records)):
            return []
        first = records[0].offset
        earlier = {key for offset, key in self._keys.items() if offset < first}
        return split(records, earlier, wait)[0]

    def remove(self, records: Iterable[InboundRecord]) -> None:
        for record in records:
            self._keys.pop(record.offset, None)
            self.buckets.pop(record.offset, None)
