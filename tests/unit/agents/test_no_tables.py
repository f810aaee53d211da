"""What a worker that has no tables waits for before it subscribes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

from agents.app import build_app
from agents.tables import NoTables
from groundwire.settings import Settings


def tables(*names: str) -> tuple[NoTables, set[Any]]:
    """Return the tables of an app whose agents read topics, and what the app knows of them so far."""
    known: set[Any] = set()
    agents = {name: SimpleNamespace(get_topic_names=lambda name=name: [name]) for name in names}
    app: Any = SimpleNamespace(topics=known, agents=agents)
    waiting = NoTables(app)
    waiting._update_channels = AsyncMock()
    waiting._recovery = AsyncMock()
    return waiting, known


async def test_topics_are_subscribed_when_those_of_every_agent_are_known_and_no_sooner() -> None:
    waiting, known = tables("a", "b")
    starting = asyncio.create_task(waiting.on_start())
    for name in ("a", "b"):
        await asyncio.sleep(0.03)
        waiting._update_channels.assert_not_awaited()
        known.add(_Topic(name))
    await starting
    waiting._update_channels.assert_awaited_once()
    waiting.recovery.start.assert_awaited_once()


async def test_a_worker_that_is_told_to_end_while_it_waits_subscribes_to_nothing() -> None:
    waiting, _ = tables("a")
    starting = asyncio.create_task(waiting.on_start())
    await asyncio.sleep(0)
    waiting._stopped.set()
    await starting
    waiting._update_channels.assert_not_awaited()


def test_workers_are_built_with_it() -> None:
    assert isinstance(build_app("claims", Settings()).tables, NoTables)


class _Topic:
    def __init__(self, name: str) -> None:
        self.topics = [name]
