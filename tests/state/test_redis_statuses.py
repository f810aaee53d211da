"""The console reads state on a real server: what is unknown is an error, never an empty answer."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groundwire.config import Settings
from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.review.feed import RedisStatuses
from groundwire.state.model import SubjectStatus
from tests.state.claims import Claims, P, decide, subject
from tests.state.conftest import start, state_at

PENDING = [SubjectStatus(P, 1), None]
NAMES = [subject(), subject("nobody")]


@pytest.fixture
async def live(redis_server, prefix) -> AsyncIterator[RedisStatuses]:
    statuses = RedisStatuses(state_at(redis_server.url, prefix, require_aof=False))
    yield statuses
    await statuses.close()


async def test_statuses_follow_a_state_that_was_lost_or_rebuilt(live, redis_state, redis, prefix):
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.statuses(NAMES) == PENDING
    await redis.delete(f"{prefix}epoch")
    for _ in range(2):
        with pytest.raises(StateLost):
            await live.statuses(NAMES)
    await start(redis_state)  # rebuilt, from topics that held nothing
    assert await live.statuses(NAMES) == [None, None]
    await decide(redis_state, Claims().ask(tier=2))
    assert await live.statuses(NAMES) == PENDING
    await start(redis_state)
    with pytest.raises(StateLost):  # noticed before anything is told
        await live.statuses(NAMES)
    assert await live.statuses(NAMES) == [None, None]


async def test_without_a_server_nothing_is_told_and_with_it_again_the_same_as_before(own_server):
    state = await start(state_at(own_server.url, "gw."))
    live = RedisStatuses(state_at(own_server.url, "gw.", require_aof=False))
    await decide(state, Claims().ask(tier=2))
    assert await live.statuses(NAMES) == PENDING
    own_server.kill()
    with pytest.raises(StateUnavailable):
        await live.statuses(NAMES)
    own_server.start()
    assert await live.statuses(NAMES) == PENDING
    await live.close()
    await state.close()


async def test_keys_of_another_policy_are_an_error(redis_server, prefix):
    other = await start(state_at(redis_server.url, prefix, scheme="another"))
    live = RedisStatuses.of(Settings(redis_url=redis_server.url, topic_prefix=prefix))
    with pytest.raises(SchemeMismatch):
        await live.statuses([subject()])
    await live.close()
    await other.close()
