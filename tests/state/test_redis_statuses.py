"""The console's look at state, over a real server: what is not known is an error, never an empty answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from deploy.embedded import RedisServer
from groundwire.config import Settings
from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.review.feed import RedisStatuses
from groundwire.state.model import SubjectState, SubjectStatus
from groundwire.state.redis import RedisState
from tests.state.claims import Claims, decide, subject
from tests.state.conftest import start, state_at

PENDING = [SubjectStatus(SubjectState.PENDING, 1), None]


@pytest.fixture
async def live(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisStatuses]:
    statuses = RedisStatuses(state_at(redis_server.url, prefix, require_aof=False))
    yield statuses
    await statuses.close()


async def test_it_tells_where_subjects_stand_in_what_took_the_place_of_state_that_was_lost(
    live: RedisStatuses, redis_state: RedisState, prefix: str
) -> None:
    names = [subject(), subject("nobody")]
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.statuses(names) == PENDING
    await redis_state.server.call("DEL", f"{prefix}epoch")
    for _ in range(2):
        with pytest.raises(StateLost):
            await live.statuses(names)
    await start(redis_state)  # rebuilt, from topics that held nothing
    assert await live.statuses(names) == [None, None]
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.statuses(names) == PENDING


async def test_a_rebuild_between_two_questions_is_noticed_before_anything_is_told(
    live: RedisStatuses, redis_state: RedisState
) -> None:
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.statuses([subject()]) == PENDING[:1]
    await start(redis_state)
    with pytest.raises(StateLost):
        await live.statuses([subject()])
    assert await live.statuses([subject()]) == [None]


async def test_without_a_server_nothing_is_told_and_with_it_again_the_same_as_before(
    live: RedisStatuses, redis_server: RedisServer, redis_state: RedisState
) -> None:
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.statuses([subject(), subject("nobody")]) == PENDING
    await asyncio.to_thread(redis_server.kill)
    try:
        with pytest.raises(StateUnavailable):
            await live.statuses([subject()])
    finally:
        await asyncio.to_thread(redis_server.start)
    assert await live.statuses([subject(), subject("nobody")]) == PENDING


async def test_keys_of_another_policy_are_an_error(redis_server: RedisServer, prefix: str) -> None:
    other = state_at(redis_server.url, prefix, scheme="another")
    await start(other)
    live = RedisStatuses.of(Settings(redis_url=redis_server.url, topic_prefix=prefix))
    with pytest.raises(SchemeMismatch):
        await live.statuses([subject()])
    await live.close()
    await other.close()
