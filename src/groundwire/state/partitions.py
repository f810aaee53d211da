"""The hash tags of a Redis Cluster: a partition of users' records, and one tag for the keys of its users.

The tags spread partitions evenly over the slots, and so over primaries. One number is the tag of some partition for any
number of partitions: 0. There every process finds the scheme of a state, and with it the number of its partitions.
"""

from __future__ import annotations

from functools import cache
from itertools import count

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from groundwire.errors import UsageError


@cache
def tags(partitions: int) -> tuple[str, ...]:
    """Return the hash tag of each partition: the smallest number whose slot is in the partition's share."""
    found: dict[int, str] = {}
    numbers = count()
    while len(found) < partitions:
        number = next(numbers)
        share = key_slot(b"%d" % number) * partitions // REDIS_CLUSTER_HASH_SLOTS
        found.setdefault(share, f"{{{number}}}")
    return tuple(found[partition] for partition in range(partitions))


def refuse_other_number(setting: int, found: int) -> None:
    """Refuse a GROUNDWIRE_PARTITIONS that is not the number of partitions of a topic. Raises: UsageError."""
    if setting != found:
        raise UsageError(
            f"GROUNDWIRE_PARTITIONS is {setting}, but the input topic has {found} partitions: set it to {found}"
            " in every process; if partitions were added, stop all workers and run `groundwire rebuild` first"
        )


@cache
def slots(partitions: int) -> tuple[int, ...]:
    """Return the slot of each partition's tag."""
    return tuple(key_slot(tag.encode()) for tag in tags(partitions))
