"""How the users of a Redis Cluster are dealt into buckets, and the hash tags that their keys carry.

A bucket is chosen by the hash with which Kafka's clients choose a partition, of the same key: so where the number of
partitions divides that of the buckets, a batch of one partition concerns no more than its share of them. Tags are
chosen so that buckets are spread evenly over the slots: wherever a cluster cuts these, each primary has its share.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from itertools import count
from typing import Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from groundwire.messages.topics import record_key

BUCKETS: Final = 256
"""Into how many buckets users are dealt; part of the layout of state.

A batch of 500 claims on one of 8 partitions concerns 32 of them: a call then has 16 claims, beside which what it costs
by itself is little. A cluster has at most as many primaries, and up to 16 of them have equal shares.
"""

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash by which Kafka's Java client, and others after it, choose a partition."""
    whole = len(data) & ~3
    hashed = _SEED ^ len(data)
    for (part,) in struct.iter_unpack("<I", data[:whole]):
        mixed = part * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ mixed
    if whole < len(data):
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return hashed ^ hashed >> 15


@lru_cache(1 << 14)  # those of users come again and again
def bucket_of(tenant_id: str, user_id: str) -> int:
    """Return the bucket of a user."""
    return (murmur2(record_key(tenant_id, user_id)) & 0x7FFFFFFF) % BUCKETS


@cache
def tags() -> tuple[str, ...]:
    """Return the hash tag of each bucket: the smallest number in braces whose slot is in the bucket's share of them."""
    share = REDIS_CLUSTER_HASH_SLOTS // BUCKETS
    found: dict[int, str] = {}
    numbers = count()
    while len(found) < BUCKETS:
        number = next(numbers)
        found.setdefault(key_slot(b"%d" % number) // share, f"{{{number}}}")
    return tuple(found[bucket] for bucket in range(BUCKETS))


@cache
def slots() -> tuple[int, ...]:
    """Return the slot of each bucket."""
    return tuple(key_slot(tag.encode()) for tag in tags())


@cache
def tags_by_slot() -> dict[int, str]:
    """Return the tags of buckets by their slots."""
    return dict(zip(slots(), tags(), strict=True))


@cache
def buckets_by_tag() -> dict[bytes, int]:
    """Return the buckets by their tags."""
    return {tag.encode(): bucket for bucket, tag in enumerate(tags())}
