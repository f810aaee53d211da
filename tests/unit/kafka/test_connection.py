"""A client that is cancelled by itself is an outage; whoever asks a task to end ends it."""

import asyncio
import contextlib

import pytest

from groundwire.errors import BrokerUnavailable
from groundwire.kafka.connection import client_cancellation


async def test_a_cancellation_that_nobody_asked_for_is_an_outage_and_a_time_limit_stays_one():
    async def read(waited_for, seconds=60):
        async with asyncio.timeout(seconds):
            with client_cancellation("topics cannot be read"):
                await waited_for

    fetch = asyncio.get_running_loop().create_future()
    fetch.cancel()
    with pytest.raises(BrokerUnavailable, match="topics cannot be read"):
        await read(fetch)
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await read(asyncio.Event().wait(), 0)


async def test_a_task_that_is_asked_to_end_ends_though_a_client_has_swallowed_that():
    came = []

    async def read(swallowed):
        with contextlib.suppress(*swallowed), client_cancellation("read"):
            await asyncio.Event().wait()
        with client_cancellation("read"):
            came.append("reads on")

    for swallowed in ((), (asyncio.CancelledError,)):
        task = asyncio.create_task(read(swallowed))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), came) == (True, [])
