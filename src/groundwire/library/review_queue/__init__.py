"""The review queue of a program that uses Groundwire without Kafka (S0-125..S0-142, C-28..C-31).

`ReviewQueue` is the queue. It keeps its items in memory, for tests and single processes that may forget, or in
Redis (`redis_store.RedisReviewStore`), where they survive restarts and are shared by processes.
"""

from __future__ import annotations

from groundwire.library.review_queue.model import (
    ItemState,
    PendingMemory,
    QueueAction,
    ReviewEvent,
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from groundwire.library.review_queue.queue import ReviewQueue
from groundwire.library.review_queue.rules import MemoryReviewStore, ReviewStore

__all__ = [
    "ItemState",
    "MemoryReviewStore",
    "PendingMemory",
    "QueueAction",
    "ReviewEvent",
    "ReviewNotFound",
    "ReviewOvertaken",
    "ReviewQueue",
    "ReviewQueueFull",
    "ReviewStore",
    "ReviewStoreFailed",
    "ReviewUnauthorized",
]
