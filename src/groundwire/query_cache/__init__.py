"""Answers that passed validation, kept for those who ask again (S2-28..S2-34).

`QueryCache` lives in the process; `groundwire.query_cache.redis.RedisQueryCache` has the same methods, awaited, and
is shared by all processes of a deployment.
"""

from __future__ import annotations

from groundwire.query_cache.admission import LIFETIMES, CacheEntry, Refusal, refusal, response_of
from groundwire.query_cache.memory import QueryCache

__all__ = ["LIFETIMES", "CacheEntry", "QueryCache", "Refusal", "refusal", "response_of"]
