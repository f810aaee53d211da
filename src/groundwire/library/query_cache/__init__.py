"""Answers that passed validation, kept for those who ask again (S2-28..S2-34).

`QueryCache` lives in the process; `groundwire.library.query_cache.redis.RedisQueryCache` has the same methods,
awaited, and is shared by all processes of a deployment.
"""

from __future__ import annotations

from groundwire.library.query_cache.memory import (
    LIFETIMES,
    CacheEntry,
    QueryCache,
    Refusal,
    refusal,
    response_of,
)

__all__ = ["LIFETIMES", "CacheEntry", "QueryCache", "Refusal", "refusal", "response_of"]
