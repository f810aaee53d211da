"""Services for every test that asks for one; unit tests ask for none."""

from hypothesis import settings

from tests.services.fixtures import broker, redis_server

__all__ = ["broker", "redis_server"]

# a busy machine is slow, and no test is about time
settings.register_profile("groundwire", parent=settings(), deadline=None)
settings.load_profile("groundwire")
