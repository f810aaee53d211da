"""A client that is cancelled by itself is an outage; whoever asks a task to end ends it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from groundwire.errors import BrokerUnavailable
from groundwire.kafka.connection import client_cancellation


async def lost() -> None:
    """Wait as for a fetch that its client cancels."""
    fetch = asyncio.get_running_loop().create_future()
    fetch.cancel()
    await fetch


async def test_a_cancellation_that_nobody_asked_for_is_an_outage_and_the_task_goes_on() -> None:
    with (
        pytest.raises(BrokerUnavailable, match="topics cannot be read"),
        client_cancellation("topics cannot be read"),
    ):
        await lost()
    await asyncio.sleep(0)


async def end(task: asyncio.Task[None]) -> None:
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def test_a_task_that_is_asked_to_end_ends() -> None:
    async def read() -> None:
        with client_cancellation("read"):
            await asyncio.Event().wait()

    task = asyncio.create_task(read())
    await end(task)
    assert task.cancelled()


async def test_a_task_that_is_asked_to_end_ends_though_a_client_has_swallowed_that() -> None:
    came: list[str] = []

    async def read() -> None:
        with contextlib.suppress(asyncio.CancelledError), client_cancellation("read"):
            await asyncio.Event().wait()
        with client_cancellation("read"):
            came.append("reads on")

    task = asyncio.create_task(read())
    await end(task)
    assert task.cancelled()
    assert came == []


async def test_a_time_limit_around_it_is_one() -> None:
    async def read() -> None:
        async with asyncio.timeout(0):
            with client_cancellation("read"):
                await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await read()
