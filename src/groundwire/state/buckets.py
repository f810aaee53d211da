"""Buckets of users in a Redis Cluster, and the hash tags of their keys.

A bucket is chosen by Kafka's partition hash of the same key: if the number of partitions divides that of the buckets, a
batch of one partition concerns only its share of them. Tags spread buckets evenly over the slots, and so over
primaries.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from itertools import count
from typing import Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from groundwire.messages.topics import record_key

BUCKETS: Final = 256
"""Number of buckets; part of the layout.

A batch of 500 claims on one of 8 partitions concerns 32 buckets, 16 claims a call; up to 16 primaries share evenly.
"""

_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the hash by which Kafka clients choose a partition."""
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


@lru_cache(1 << 14)
def bucket_of(tenant_id: str, user_id: str) -> int:
    return (murmur2(record_key(tenant_id, user_id)) & 0x7FFFFFFF) % BUCKETS


@cache
def tags() -> tuple[str, ...]:
    """Return the hash tag of each bucket: the smallest number whose slot is in the bucket's share."""
    share = REDIS_CLUSTER_HASH_SLOTS // BUCKETS
    found: dict[int, str] = {}
    numbers = count()
    while len(found) < BUCKETS:
        number = next(numbers)
        found.setdefault(key_slot(b"%d" % number) // share, f"{{{number}}}")
    return tuple(found[bucket] for bucket in range(BUCKETS))


@cache
def slots() -> tuple[int, ...]:
    return tuple(key_slot(tag.encode()) for tag in tags())


@cache
def tags_by_slot() -> dict[int, str]:
    return dict(zip(slots(), tags(), strict=True))


@cache
def buckets_by_tag() -> dict[bytes, int]:
    return {tag.encode(): bucket for bucket, tag in enumerate(tags())}
