"""A worker that stops while a node of the broker is away ends as soon as it has given its partitions away."""

import asyncio

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher

from agents.batches import BatchConsumer
from agents.departure import PunctualThread


class Client:
    closed = False

    async def close(self):
        self.closed = True


async def test_a_fetch_that_waits_for_a_node_that_is_away_does_not_keep_the_consumer_s_thread_from_ending():
    waiting, idle = (asyncio.create_task(asyncio.sleep(3600)) for _ in range(2))
    await asyncio.sleep(0)
    fetcher = Fetcher.__new__(Fetcher)
    fetcher._fetch_task, fetcher._fetch_waiters, fetcher._pending_tasks = idle, set(), {waiting}
    consumer = AIOKafkaConsumer.__new__(AIOKafkaConsumer)
    consumer._closed, consumer._coordinator, consumer._fetcher = False, None, fetcher
    consumer._client, consumer._source_traceback = Client(), None
    thread = PunctualThread.__new__(PunctualThread)
    thread._consumer, thread._method_queue = consumer, None
    await thread.on_thread_stop()
    assert consumer._client.closed
    assert waiting.cancelled()


def test_workers_have_such_a_thread():
    assert BatchConsumer._new_consumer_thread.__annotations__["return"] == "PunctualThread"
