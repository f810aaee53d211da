"""A console in memory, and clients that ask it as programs and browsers do."""

import pytest

from tests.unit.console.rooms import make_room


@pytest.fixture
def room():
    return make_room()


@pytest.fixture
async def lead(room):
    """A program with the token of the delegated reviewer."""
    async with room.client("lead-token") as client:
        yield client


@pytest.fixture
async def browser(room):
    """A browser in which the delegated reviewer has signed in."""
    async with room.browser() as client:
        yield client
