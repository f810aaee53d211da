"""The Redis server that tests run on."""

from __future__ import annotations

import os

from deploy.embedded import EmbeddedRedis, RealRedis, RedisServer

#: Which Redis server tests run on: embedded (default) or real (`redis-server` on the PATH).
REDIS_VARIABLE = "GROUNDWIRE_TEST_REDIS"


def kind_of_redis(kind: str | None = None) -> type[RedisServer]:
    """Return the servers of a kind: embedded or real; by default the one the environment names.

    Raises:
        ValueError: another kind.
    """
    kind = kind or os.environ.get(REDIS_VARIABLE) or "embedded"
    kinds: dict[str, type[RedisServer]] = {"embedded": EmbeddedRedis, "real": RealRedis}
    if kind not in kinds:
        raise ValueError(f"{REDIS_VARIABLE}: {kind!r} is none of {', '.join(kinds)}")
    return kinds[kind]


def start_redis(kind: str | None = None) -> RedisServer:
    """Start a Redis server of a kind. Raises: as `kind_of_redis`; MissingServiceError: it is not installed here."""
    server = kind_of_redis(kind)()
    server.start()
    return server
