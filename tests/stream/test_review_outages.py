"""Redis, and then the broker, go away while people review: they are told, and nothing they see or did is lost."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from deploy.embedded import RedisServer
from groundwire.errors import BrokerUnavailable
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Kind
from groundwire.messages.records import ReviewDecision
from groundwire.review.actions import Actions, ActionTarget, Signer, review_decision
from groundwire.review.board import Board
from groundwire.review.feed import Feed, RedisStatuses
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.services.brokers import Broker
from tests.state.claims import SCHEME, Claims, People, decide, review_one
from tests.state.conftest import start
from tests.stream.test_review_commands import (
    QUICK,
    SECONDS,
    event,
    fresh,
    keys_file,
    names,
    prefix,
    publish,
    running,
    until,
)
from tests.unit.review.world import record

__all__ = ["keys_file", "prefix"]  # fixtures
pytestmark = [pytest.mark.stream, pytest.mark.slow]


async def test_the_queue_is_shown_through_an_outage_of_redis_and_of_the_broker(
    broker: Broker, redis_server: RedisServer, prefix: str
) -> None:
    state = await start(RedisState(connect(redis_server.url), prefix, scheme=SCHEME))
    claims = Claims()
    asks = {name: claims.ask(name, None, 2, user="ann") for name in ("a", "b", "d")}
    await decide(state, *asks.values())
    await publish(broker, prefix, record(fresh("a")), record(fresh("b")))
    board = Board()
    live = RedisStatuses(RedisState(connect(redis_server.url), prefix, scheme=SCHEME, require_aof=False))
    async with running(Feed(board, live, brokers=broker.bootstrap, prefix=prefix, pace=QUICK)) as feed:
        await until(lambda: feed.caught_up and names(board) == ["a", "b"])

        await asyncio.to_thread(redis_server.kill)
        try:
            await until(lambda: feed.stale_since is not None)
            await publish(broker, prefix, record(fresh("c")))
            await until(lambda: names(board) == ["a", "b", "c"])  # the topics are believed meanwhile
        finally:
            await asyncio.to_thread(redis_server.start)
        await review_one(state, People(claims).act("reject", asks["a"]))  # nobody has published it yet
        await until(lambda: feed.stale_since is None and names(board) == ["b"])

        await asyncio.to_thread(broker.stop)
        try:
            await until(lambda: feed.stale_since is not None)
            assert names(board) == ["b"]
        finally:
            await asyncio.to_thread(broker.start)
        await publish(broker, prefix, record(fresh("d")))
        await until(lambda: feed.stale_since is None and names(board) == ["b", "d"])
    await live.close()
    await state.close()


async def sent_at_last(actions: Actions, decision: ReviewDecision) -> None:
    """Send it until it is acknowledged: the client finds the broker again in its own time."""
    async with asyncio.timeout(SECONDS):
        while True:
            with contextlib.suppress(BrokerUnavailable):
                await actions.send(decision)
                return


async def test_an_action_that_was_not_acknowledged_is_sent_again_and_its_outcome_told(
    broker: Broker, prefix: str, keys_file: Path
) -> None:
    sent = review_decision(ActionTarget("acme", "ann", Kind.CLAIM, "c1", 1), "approve", "admin")
    signer = Signer(Keys.load(keys_file), "desk")
    async with Actions(broker.bootstrap, prefix, signer, seconds=2.0) as actions:
        await asyncio.to_thread(broker.stop)
        try:
            with pytest.raises(BrokerUnavailable):
                await actions.send(sent)
            assert await actions.outcome(sent, 0.1) is None
        finally:
            await asyncio.to_thread(broker.start)
        await sent_at_last(actions, sent)
        await publish(broker, prefix, event(sent))  # as the reviews agent does
        outcome = await actions.outcome(sent, SECONDS)
    assert outcome is not None
    assert (outcome.applied, outcome.code, outcome.action_id) == (True, "human_approved", sent.action_id)
