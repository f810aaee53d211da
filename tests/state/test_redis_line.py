"""What is sent to Redis without waiting arrives, in its order, however the process ends."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.errors import StateUnavailable
from groundwire.state.server import SharedConnection, connect

PATIENCE = 20.0


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = connect(redis_server.url, patience=PATIENCE)
    yield client
    await client.aclose()


async def call(line: SharedConnection, *command: str) -> object:
    return await (await line.send(*command))


def in_flight(line: SharedConnection, *commands: tuple[str, ...]) -> list[asyncio.Task]:
    return [asyncio.create_task(call(line, *command)) for command in commands]


async def test_commands_take_effect_in_the_order_of_the_calls_and_each_gets_its_own_answer(redis, prefix):
    line = SharedConnection(redis, PATIENCE)
    tasks = in_flight(line, *[("APPEND", prefix, "x") for _ in range(100)])
    assert await asyncio.gather(*tasks) == list(range(1, 101))
    assert await call(line, "GET", prefix) == b"x" * 100


async def test_an_error_for_an_answer_is_one_of_state_and_others_get_their_answers(redis, prefix):
    line = SharedConnection(redis, PATIENCE)
    await call(line, "SET", prefix, "text")
    with pytest.raises(StateUnavailable, match="INCR: ResponseError"):
        await call(line, "INCR", prefix)
    assert await call(line, "GET", prefix) == b"text"


async def test_a_call_that_is_called_off_leaves_its_answer_to_nobody(redis, prefix):
    line = SharedConnection(redis, PATIENCE)
    await call(line, "SET", prefix, "text")
    for turns in range(12):
        first, second = in_flight(line, ("ECHO", "mine"), ("GET", prefix))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        second_answer = (await asyncio.gather(first, second, return_exceptions=True))[1]
        assert second_answer == b"text" or isinstance(second_answer, StateUnavailable)
        assert await call(line, "GET", prefix) == b"text"


async def test_a_connection_that_broke_is_replaced(redis, prefix):
    line = SharedConnection(redis, PATIENCE)
    await call(line, "SET", prefix, "text")
    await redis.client_kill_filter(_type="normal", skipme=True)
    with suppress(StateUnavailable):  # what is under way when it breaks
        await call(line, "GET", prefix)
    assert await call(line, "GET", prefix) == b"text"
    await line.close()
    assert len(await redis.client_list(_type="normal")) == 1, "that of the client alone is left"


SENDER = """
import asyncio, os, sys
from groundwire.state.server import SharedConnection
from groundwire.state.server import connect

async def main():
    line = SharedConnection(connect(sys.argv[1]))
    await (await line.send("GET", "x"))  # connects: what is sent next is not held up
    die = lambda: os.kill(os.getpid(), 9)
    await line.send("SET", sys.argv[2], "note")
    die()

if sys.argv[3] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
async def test_what_is_written_arrives_though_the_process_is_killed_at_once(
    redis_server, redis, prefix, loop
):
    command = [sys.executable, "-c", SENDER, redis_server.url, prefix, loop]
    killed = await asyncio.to_thread(
        subprocess.run, command, env=os.environ | {"PYTHONPATH": "src"}, check=False
    )
    assert killed.returncode == -9
    async with asyncio.timeout(PATIENCE):
        while await redis.get(prefix) != b"note":  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.01)
