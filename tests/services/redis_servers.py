"""The Redis server that tests run on."""

from __future__ import annotations

import os

from deploy.embedded import EmbeddedRedis, RealRedis, RedisServer

#: Which Redis server tests run on: embedded (default) or real (`redis-server` on the PATH).
REDIS_VARIABLE = "GROUNDWIRE_TEST_REDIS"


def start_redis(kind: str | None = None) -> RedisServer:
    """Start a Redis server of a kind: embedded or real; by default the one the environment names.

    Raises:
        ValueError: another kind.
        MissingServiceError: it is not installed here.
    """
    kind = kind or os.environ.get(REDIS_VARIABLE) or "embedded"
    kinds: dict[str, type[RedisServer]] = {"embedded": EmbeddedRedis, "real": RealRedis}
    if kind not in kinds:
        raise ValueError(f"{REDIS_VARIABLE}: {kind!r} is none of {', '.join(kinds)}")
    server = kinds[kind]()
    server.start()
    return server
