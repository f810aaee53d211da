"""The console's look at state, over a real server: what is not known is an error, never an empty answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from deploy.embedded import RedisServer
from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.review.standings import LiveStandings
from groundwire.settings import Settings
from groundwire.state.model import Standing, SubjectState
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.state.claims import SCHEME, Claims, decide, subject
from tests.state.conftest import start

PENDING = [Standing(SubjectState.PENDING, 1), None]
PATIENCE = 30.0  # seconds: a machine that is busy elsewhere is no outage


@pytest.fixture
async def live(redis_server: RedisServer, prefix: str) -> AsyncIterator[LiveStandings]:
    redis = connect(redis_server.url, patience=PATIENCE)
    state = RedisState(redis, prefix, scheme=SCHEME, patience=PATIENCE, require_aof=False)
    standings = LiveStandings(state)
    yield standings
    await standings.close()


async def test_it_tells_where_subjects_stand_in_what_took_the_place_of_state_that_was_lost(
    live: LiveStandings, redis_state: RedisState, prefix: str
) -> None:
    names = [subject(), subject("nobody")]
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.standings(names) == PENDING
    await redis_state._server.call("DEL", f"{prefix}epoch")
    for _ in range(2):
        with pytest.raises(StateLost):
            await live.standings(names)
    await start(redis_state)  # rebuilt, from topics that held nothing
    assert await live.standings(names) == [None, None]
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.standings(names) == PENDING


async def test_a_rebuild_between_two_questions_is_noticed_before_anything_is_told(
    live: LiveStandings, redis_state: RedisState
) -> None:
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.standings([subject()]) == PENDING[:1]
    await start(redis_state)
    with pytest.raises(StateLost):
        await live.standings([subject()])
    assert await live.standings([subject()]) == [None]


async def test_without_a_server_nothing_is_told_and_with_it_again_the_same_as_before(
    live: LiveStandings, redis_server: RedisServer, redis_state: RedisState
) -> None:
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.standings([subject(), subject("nobody")]) == PENDING
    await asyncio.to_thread(redis_server.kill)
    try:
        with pytest.raises(StateUnavailable):
            await live.standings([subject()])
    finally:
        await asyncio.to_thread(redis_server.start)
    assert await live.standings([subject(), subject("nobody")]) == PENDING


async def test_keys_of_another_policy_are_an_error(redis_server: RedisServer, prefix: str) -> None:
    other = RedisState(connect(redis_server.url), prefix, scheme="another")
    await start(other)
    live = LiveStandings.of(Settings(redis_url=redis_server.url, topic_prefix=prefix))
    with pytest.raises(SchemeMismatch):
        await live.standings([subject()])
    await live.close()
    await other.close()
