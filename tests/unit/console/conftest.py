"""A console in memory, and clients that ask it as programs and browsers do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.console.rooms import Client, Room, make_room


@pytest.fixture
def room() -> Room:
    return make_room()


@pytest.fixture
async def lead(room: Room) -> AsyncIterator[Client]:
    """A program with the token of the delegated reviewer."""
    async with room.client("lead-token") as client:
        yield client


@pytest.fixture
async def browser(room: Room) -> AsyncIterator[Client]:
    """A browser in which the delegated reviewer has signed in."""
    async with room.browser() as client:
        yield client
