"""What only the review queue in Redis can do wrong: keys there, other processes, servers out of order.

Requirements S0-139, C-31.
"""

import asyncio
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost

from deploy.embedded import RedisServer
from groundwire.errors import GroundwireError, StateUnavailable, UsageError
from groundwire.library.review_queue import (
    MemoryReviewStore,
    ReviewNotFound,
    ReviewQueue,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
    redis_store,
)
from groundwire.library.review_queue.redis_store import RedisReviewStore
from groundwire.state.server import connect
from tests.services.redis_servers import start_redis
from tests.state.review_queues import Clock, Hanging, Stored, put

KEYS = (r"i:[0-9a-f-]{36}", "w", r"[uad]:[0-9a-f]{32}", "number")
WORKER = """
import asyncio, sys
from groundwire.library.review_queue import ReviewNotFound, ReviewQueue
from groundwire.library.review_queue.redis_store import RedisReviewStore
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


class Driven:
    """A queue whose items and approvals are known by their numbers, in the order in which they came."""

    def __init__(self, store, clock, ttl) -> None:
        self.hanging, self.ids, self.running = Hanging(), [], []
        limits = {"max_per_user": 2, "max_total": 3, "review_ttl": ttl, "audit_rows": 6}
        self.queue = ReviewQueue(
            self.hanging, store=store, lease=30, delegates={"t": ["dana"]}, clock=clock, **limits
        )

    async def take(self, name, user, argument=None) -> str:
        """Take a step; the argument is an item's number, or the limit of a list."""
        try:
            answer = await self._answer(name, *user, argument)
        except (GroundwireError, IndexError) as error:
            answer = error
        names = {queue_id: f"item {number}" for number, queue_id in enumerate(self.ids)}
        return re.sub(r"[0-9a-f-]{36}", lambda found: names.get(found[0], "refused"), repr(answer))

    async def _answer(self, name, tenant, user, argument):
        if name == "enqueue":
            return self.ids.append(await put(self.queue, user, tenant_id=tenant))
        if name in ("get_pending", "history"):
            return await getattr(self.queue, name)(user, argument, tenant_id=tenant)
        if name in ("get_by_id", "reject"):
            reason = ["wrong"] * (name == "reject")
            return await getattr(self.queue, name)(self.ids[argument], user, *reason, tenant_id=tenant)
        if name == "approve":
            task, end = await self.hanging.approve(self.queue, self.ids[argument], user, tenant_id=tenant)
            return self.running.append((task, end)) if end else await task
        task, end = self.running.pop(argument)
        end.set_result(f"m{argument}") if name == "stored" else end.set_exception(OSError())
        return await task


@pytest.mark.parametrize(("seed", "ttl"), [(1, None), (7, 60)])
async def test_whatever_is_done_both_stores_answer_alike(redis_server, prefix, seed, ttl):
    choose, clock = random.Random(seed), Clock()
    store = RedisReviewStore(redis_server.url, prefix)
    both = [Driven(store, clock, ttl), Driven(MemoryReviewStore(), clock, ttl)]
    for one in both:
        await one.take("enqueue", ("t", "ada"))
    owners, answers = [("t", "ada")], []
    for _ in range(600):
        clock.now += choose.choice([0, 0, 0, 0, 1, 20])
        user = choose.choice([("t", "ada"), ("t", "ada"), ("t", "bob"), ("t", "dana"), ("u", "ada")])
        number = choose.choice(range(len(owners))[-5:])
        who = choose.choice([owners[number], owners[number], user, ("t", "dana")])
        steps = [("enqueue", user), ("reject", who, number), ("get_by_id", who, number)]
        steps += [("approve", who, number)] * 2
        steps += [("get_pending", user, choose.choice([1, 10])), ("history", user, choose.choice([3, 100]))]
        steps += [(choose.choice(["stored", "failed"]), who, choose.choice([0, -1]))]
        step = choose.choice(steps)
        redis, memory = [await one.take(*step) for one in both]
        assert redis == memory, step
        answers.append(memory)
        if len(both[0].ids) > len(owners):
            owners.append(user)
    for task in [task for one in both for task, _ in one.running]:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await store.close()
    seen = ["the user has", "the queue in total", "Unauthorized", "is stored", "is approving", "is rejected"]
    seen += ["store_failed", "store_interrupted", "delegated=True", "is expired" if ttl else "'m0'"]
    assert [word for word in seen if not any(word in answer for answer in answers)] == []


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


@pytest.mark.parametrize("times", [50, pytest.param(1000, marks=pytest.mark.slow)])
async def test_two_clients_that_race_for_one_item_store_it_once(redis_server, prefix, times):
    stored = Stored()
    stores = [RedisReviewStore(redis_server.url, prefix) for _ in range(2)]
    queues = [ReviewQueue(stored, store=store) for store in stores]
    for number in range(times):
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
        with pytest.raises(StateUnavailable, match="review queue, pending: "):
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


async def test_what_was_done_is_not_done_again_where_the_connection_breaks_before_the_answer(
    redis, prefix, stored, monkeypatch
):
    ask = redis_store._ask

    async def lose(connection, *commands):
        answers = await ask(connection, *commands)
        if commands[-1] == ("EXEC",):
            raise ConnectionLost
        return answers

    monkeypatch.setattr(redis_store, "_ask", lose)
    queue = ReviewQueue(stored, store=RedisReviewStore(redis, prefix), max_per_user=2, max_total=2)
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


# Processes that are faster


async def test_no_limit_is_passed_however_many_processes_add_at_the_same_time(redis_server, prefix):
    patience = 60  # a busy machine decides nothing here
    adding = [RedisReviewStore(redis_server.url, prefix, patience=patience) for _ in range(4)]
    queues = [ReviewQueue(Stored(), store=store, max_per_user=7, max_total=20) for store in adding]
    for users in (["ada"] * 40, [f"u{number % 8}" for number in range(80)]):
        calls = [put(queues[number % 4], user) for number, user in enumerate(users)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {str, ReviewQueueFull}
    waiting = [len(await queues[0].get_pending(f"u{number}", 100)) for number in range(8)]
    assert len(await queues[1].get_pending("ada", 100)) == 7
    assert (sum(waiting), max(waiting) <= 7) == (13, True)
    for store in adding:
        await store.close()


@asynccontextmanager
async def lost(_command, _patience):
    """Cancel nobody, as where asyncio.wait_for swallows the cancellation."""
    try:
        yield
    except TimeoutError as error:
        raise StateUnavailable("review queue, reject: TimeoutError") from error


@pytest.mark.parametrize("cancelled", [True, False])
async def test_who_is_overtaken_again_and_again_gives_up_when_patience_is_over(
    redis, prefix, monkeypatch, cancelled
):
    """Patience ends the call also where its cancellation is lost."""
    if not cancelled:
        monkeypatch.setattr(redis_store, "bounded", lost)
    store = RedisReviewStore(redis, prefix, patience=0.2)
    queue_id = await put(ReviewQueue(Stored(), store=store))
    read = RedisReviewStore._read

    async def overtaken(self, connection, change):
        entries = await read(self, connection, change)
        await redis.hset(f"{prefix}rq:i:{queue_id}", "error", uuid.uuid4().hex)
        return entries

    monkeypatch.setattr(RedisReviewStore, "_read", overtaken)
    with pytest.raises(StateUnavailable, match="review queue, reject: TimeoutError"):
        await ReviewQueue(Stored(), store=store).reject(queue_id, "ada", "no")
    monkeypatch.undo()
    assert [item.queue_id for item in await ReviewQueue(Stored(), store=store).get_pending("ada")] == [
        queue_id
    ]


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


async def test_a_server_that_is_silent_is_waited_for_no_longer_than_patience_says(prefix, stored):
    """Whatever the client's own time limits are; and what comes too late goes to nobody else."""
    with start_redis() as server:
        client = Redis.from_url(server.url)
        queue = ReviewQueue(stored, store=RedisReviewStore(client, prefix, patience=0.5))
        ids = [await put(queue) for _ in range(3)]
        server.pause()
        calls = [put(queue), put(queue), queue.reject(ids[0], "ada", "no"), queue.get_pending("ada")]
        async with asyncio.timeout(5):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StateUnavailable}
        server.resume()
        assert [item.queue_id for item in await queue.get_pending("ada")][:3] in (ids, ids[1:])
        await client.aclose()


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
