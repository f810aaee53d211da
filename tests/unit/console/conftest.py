"""A console in memory, and clients that ask it as programs and browsers do."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.unit.console.rooms import Room, make_room


@pytest.fixture
def room() -> Room:
    return make_room()


@pytest.fixture
async def lead(room: Room) -> AsyncIterator[httpx.AsyncClient]:
    """A program with the token of the delegated reviewer."""
    async with room.client("lead-token") as client:
        yield client


@pytest.fixture
async def browser(room: Room) -> AsyncIterator[httpx.AsyncClient]:
    """A browser in which the delegated reviewer has signed in."""
    async with room.browser() as client:
        yield client
