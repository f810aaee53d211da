"""What only the review queue in Redis can do wrong: keys there, other processes, servers out of order."""

import asyncio
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.errors import StateUnavailable, UsageError
from groundwire.review_queue import (
    RedisReviewStore,
    ReviewNotFound,
    ReviewQueue,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from groundwire.state.server import connect
from tests.services.redis_servers import start_redis
from tests.state.review_queues import STEPS, Clock, Stored, agree, put

KEYS = (r"i:[0-9a-f-]{36}", "w", r"[uad]:[0-9a-f]{32}", "number")
WORKER = """
import asyncio, sys
from groundwire.review_queue import RedisReviewStore, ReviewNotFound, ReviewQueue
from groundwire.state.server import connect

async def main(url, prefix, mode):
    redis = connect(url)

    async def store(evidence, queue_id):
        await redis.rpush(prefix + "called", queue_id)
        if mode == "hang":
            print("called", flush=True)
            await asyncio.sleep(600)
        return "memory-" + queue_id

    queue = ReviewQueue(store, store=RedisReviewStore(redis, prefix))
    items = await queue.get_pending("ada", 2000)
    print("ready", flush=True)
    sys.stdin.readline()
    won = 0
    for item in items:
        try:
            await queue.approve(item.queue_id, "ada")
            won += 1
        except ReviewNotFound:
            pass
    print(won, flush=True)
    await redis.aclose()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = connect(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def queue(redis, prefix, stored) -> ReviewQueue:
    return ReviewQueue(stored, store=RedisReviewStore(redis, prefix))


def worker(server: RedisServer, prefix: str, mode: str) -> subprocess.Popen:
    """Start a process that approves all that ada has when it is told to go."""
    command = [sys.executable, "-c", textwrap.dedent(WORKER), server.url, prefix, mode]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def keys_of(redis: Redis, prefix: str) -> list[str]:
    return sorted([key.decode().removeprefix(f"{prefix}rq:") async for key in redis.scan_iter(f"{prefix}*")])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS, ttl=st.sampled_from([None, 60]))
def test_whatever_is_done_to_it_the_queue_answers_as_its_model(redis_server, steps, ttl):
    async def run():
        store = RedisReviewStore(redis_server.url, f"model-{uuid.uuid4().hex}.")
        try:
            await agree(store, steps, ttl)
        finally:
            await store.close()

    asyncio.run(run())


# Processes


@pytest.mark.slow
async def test_two_processes_that_approve_the_same_thousand_items_store_each_once(
    redis, redis_server, prefix, stored
):
    queue = ReviewQueue(stored, store=RedisReviewStore(redis, prefix), max_per_user=1000)
    ids = [await put(queue) for _ in range(1000)]
    workers = [worker(redis_server, prefix, "race") for _ in range(2)]
    try:
        for one in workers:
            assert await asyncio.to_thread(one.stdout.readline) == "ready\n"
        for one in workers:
            one.stdin.write("go\n")
            one.stdin.flush()
        won = [int(await asyncio.to_thread(one.stdout.readline)) for one in workers]
    finally:
        for one in workers:
            one.kill()
            one.communicate()
    called = [queue_id.decode() for queue_id in await redis.lrange(f"{prefix}called", 0, -1)]
    assert sorted(called) == sorted(ids)
    assert sum(won) == 1000
    assert await queue.get_pending("ada") == []


async def test_two_clients_that_race_for_one_item_a_thousand_times_store_it_once(redis_server, prefix):
    stored = Stored()
    stores = [RedisReviewStore(redis_server.url, prefix) for _ in range(2)]
    queues = [ReviewQueue(stored, store=store) for store in stores]
    for number in range(1000):
        queue_id = await put(queues[0])
        pair = queues if number % 2 else queues[::-1]
        answers = await asyncio.gather(*[q.approve(queue_id, "ada") for q in pair], return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["ReviewNotFound", "str"]
        assert [queue_id for queue_id, _ in stored.calls].count(queue_id) == 1
    for store in stores:
        await store.close()


async def test_after_a_kill_in_the_middle_of_the_callback_the_item_comes_back_with_its_id(
    redis, redis_server, prefix, stored, queue
):
    queue_id = await put(queue)
    one = worker(redis_server, prefix, "hang")
    try:
        assert await asyncio.to_thread(one.stdout.readline) == "ready\n"
        one.stdin.write("go\n")
        one.stdin.flush()
        assert await asyncio.to_thread(one.stdout.readline) == "called\n"
        one.send_signal(signal.SIGKILL)
    finally:
        one.kill()
        one.communicate()
    assert await queue.get_pending("ada") == []
    with pytest.raises(ReviewNotFound, match="approving"):
        await queue.approve(queue_id, "ada")
    later = ReviewQueue(stored, store=RedisReviewStore(redis, prefix), clock=lambda: time.time() + 61)
    (item,) = await later.get_pending("ada")
    assert (item.queue_id, item.last_error, item.attempts) == (queue_id, "store_interrupted", 1)
    assert await later.approve(queue_id, "ada") == f"memory-{queue_id}"
    assert [called.decode() for called in await redis.lrange(f"{prefix}called", 0, -1)] == [queue_id]
    assert [call[0] for call in stored.calls] == [queue_id]


async def test_the_queue_survives_a_kill_of_its_server(prefix, stored):
    with start_redis() as server:
        store = RedisReviewStore(server.url, prefix)
        queue = ReviewQueue(stored, store=store)
        ids = [await put(queue) for _ in range(3)]
        await queue.approve(ids[0], "ada")
        await asyncio.sleep(1.5)  # longer than the append-only file may be behind
        server.kill()
        with pytest.raises(StateUnavailable, match="review queue, pending"):
            await queue.get_pending("ada")
        server.start()
        assert [item.queue_id for item in await queue.get_pending("ada")] == ids[1:]
        assert [row.action for row in await queue.history("ada")] == ["stored", "approve"] + ["enqueue"] * 3
        with pytest.raises(ReviewNotFound, match="stored"):
            await queue.approve(ids[0], "ada")
        await store.close()


async def test_two_prefixes_are_two_queues(redis, prefix, queue, stored):
    other = ReviewQueue(stored, store=RedisReviewStore(redis, f"{prefix}other."))
    queue_id = await put(queue)
    assert await other.get_by_id(queue_id, "ada") is None
    assert await other.get_pending("ada") == []
    assert await other.history("ada") == []
    with pytest.raises(ReviewUnauthorized):
        await other.approve(queue_id, "ada")


# Keys


async def test_every_key_is_under_the_prefix_and_no_name_is_in_one(redis, prefix, queue):
    for user in ("ada", "*", "a:b", "\x00"):
        queue_id = await put(queue, user)
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(queue_id, "eve")
    for key in await keys_of(redis, prefix):
        assert any(re.fullmatch(pattern, key) for pattern in KEYS), key


async def test_of_a_decided_item_the_content_goes_at_once_and_the_rest_after_a_week(redis, prefix, queue):
    approved, rejected = await put(queue), await put(queue)
    await queue.approve(approved, "ada")
    await queue.reject(rejected, "ada", "no")
    for queue_id in (approved, rejected):
        key = f"{prefix}rq:i:{queue_id}"
        assert await redis.hget(key, "body") is None
        assert 0 < await redis.ttl(key) <= 7 * 86_400
    left = [key for key in await keys_of(redis, prefix) if not key.startswith("i:")]
    assert [key[:2] for key in left] == ["a:", "nu"]  # nothing of the index


async def test_an_item_that_waits_has_no_lifetime(redis, prefix, queue):
    queue_id = await put(queue)
    assert await redis.ttl(f"{prefix}rq:i:{queue_id}") == -1
    assert await redis.ttl(f"{prefix}rq:w") == -1


# A connection that breaks before the answer: the same command is sent again


class Twice(RedisReviewStore):
    """Sends everything twice, as a client does whose connection broke before the answer came."""

    async def _run(self, *args):
        await super()._run(*args)
        return await super()._run(*args)


async def test_a_command_that_is_sent_twice_is_done_once(redis, prefix):
    stored = Stored()
    queue = ReviewQueue(stored, store=Twice(redis, prefix), max_per_user=2, max_total=2)
    approved, rejected = await put(queue), await put(queue)
    stored.error = OSError()
    with pytest.raises(ReviewStoreFailed):
        await queue.approve(approved, "ada")
    stored.error = None
    await queue.approve(approved, "ada")
    await queue.reject(rejected, "ada", "no")
    assert len(stored.calls) == 2
    rows = [row.action.value for row in await queue.history("ada")]
    done = ["enqueue", "enqueue", "approve", "store_failed", "approve", "stored", "reject"]
    assert rows[::-1] == done


async def test_the_server_forgets_scripts_and_they_are_sent_again(queue, redis):
    await put(queue)
    await redis.script_flush()
    assert len(await queue.get_pending("ada")) == 1


# Servers out of order


async def test_what_was_stored_but_could_not_be_noted_is_said_and_comes_back(prefix):
    with start_redis() as server:
        clock = Clock()
        clock.now = time.time()
        calls = []

        async def store(evidence, queue_id):
            calls.append(queue_id)
            if len(calls) == 1:
                server.pause()
            return "m"

        review_store = RedisReviewStore(server.url, prefix, patience=0.5)
        queue = ReviewQueue(store, store=review_store, clock=clock)
        queue_id = await put(queue)
        with pytest.raises(StateUnavailable, match="settle") as lost:
            await queue.approve(queue_id, "ada")
        assert lost.value.__notes__ == [f"the memory of {queue_id} is stored, which could not be noted"]
        server.kill()
        server.start()
        clock.now += 61
        assert await queue.approve(queue_id, "ada") == "m"
        assert calls == [queue_id, queue_id]
        await review_store.close()


async def test_a_callback_that_fails_while_the_server_is_gone_is_told_as_the_callbacks_failure(prefix):
    with start_redis() as server:
        error = OSError("disk full")

        async def store(evidence):
            server.kill()
            raise error

        review_store = RedisReviewStore(server.url, prefix, patience=0.5)
        queue = ReviewQueue(store, store=review_store)
        queue_id = await put(queue)
        with pytest.raises(ReviewStoreFailed, match="again when its lease has run out") as failed:
            await queue.approve(queue_id, "ada")
        assert failed.value.__cause__ is error
        await review_store.close()


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "appendonly")],
)
async def test_a_server_that_would_lose_items_is_refused_before_the_first(
    prefix, stored, setting, value, named
):
    with start_redis() as server:
        client = connect(server.url)
        await client.config_set(setting, value)
        with pytest.raises(UsageError, match=named):
            await put(ReviewQueue(stored, store=RedisReviewStore(client, prefix)))
        if setting == "appendonly":
            await put(ReviewQueue(stored, store=RedisReviewStore(client, prefix, require_aof=False)))
        await client.aclose()


async def test_a_client_that_decodes_is_refused(redis_server):
    client = Redis.from_url(redis_server.url, decode_responses=True)
    with pytest.raises(UsageError, match="decode"):
        RedisReviewStore(client)
    with pytest.raises(UsageError):
        RedisReviewStore("nowhere")
    await client.aclose()


async def test_an_item_that_cannot_be_read_is_an_error_and_is_not_stored(redis, prefix, queue, stored):
    queue_id = await put(queue)
    await redis.hset(f"{prefix}rq:i:{queue_id}", "body", "{}")
    with pytest.raises(StateUnavailable, match=queue_id):
        await queue.get_pending("ada")
    with pytest.raises(ReviewStoreFailed):
        await queue.approve(queue_id, "ada")
    assert stored.calls == []
    await queue.reject(queue_id, "ada", "unreadable")
