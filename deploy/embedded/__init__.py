"""A Kafka-speaking broker and a Redis server without Docker or Java, for `make demo` and the tests.

They run as child processes on free loopback ports, end with their parent, and keep no promise that
production needs: that is what Apache Kafka and Redis are for.
"""

from deploy.embedded.kafka import EmbeddedBroker
from deploy.embedded.process import MissingServiceError, ServiceError
from deploy.embedded.redis import EmbeddedRedis, RealRedis, RedisServer

__all__ = [
    "EmbeddedBroker",
    "EmbeddedRedis",
    "MissingServiceError",
    "RealRedis",
    "RedisServer",
    "ServiceError",
]
