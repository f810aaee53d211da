"""Services for every test that asks for one; unit tests ask for none."""

from tests.services.fixtures import broker, redis_server

__all__ = ["broker", "redis_server"]
