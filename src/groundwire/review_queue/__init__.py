"""The review queue of a program that uses Groundwire without Kafka (S0-125..S0-142, C-28..C-31).

`ReviewQueue` is the queue. It keeps its items in memory, for tests and single processes that may forget, or in
Redis (`RedisReviewStore`), where they survive restarts and are shared by processes.
"""

from __future__ import annotations

from groundwire.review_queue.errors import (
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from groundwire.review_queue.memory import MemoryReviewStore
from groundwire.review_queue.model import ItemState, PendingMemory, ReviewAction, ReviewEvent, ReviewStore
from groundwire.review_queue.queue import ReviewQueue
from groundwire.review_queue.redis import RedisReviewStore

__all__ = [
    "ItemState",
    "MemoryReviewStore",
    "PendingMemory",
    "RedisReviewStore",
    "ReviewAction",
    "ReviewEvent",
    "ReviewNotFound",
    "ReviewOvertaken",
    "ReviewQueue",
    "ReviewQueueFull",
    "ReviewStore",
    "ReviewStoreFailed",
    "ReviewUnauthorized",
]
