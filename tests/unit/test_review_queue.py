"""The review queue in memory: what only it can do wrong. What all stores promise is in tests/state."""

import asyncio
import functools
import logging
import pydoc
import re
import sys
import threading

import pytest

from groundwire.errors import GroundwireError
from groundwire.library.review_queue import (
    MemoryReviewStore,
    ReviewNotFound,
    ReviewQueue,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from tests.state.review_queues import CLAIM, Clock, Stored, put


async def test_nothing_is_left_of_decided_items_after_a_week():
    clock, store = Clock(), MemoryReviewStore()
    used = ReviewQueue(Stored(), store=store, clock=clock, review_ttl=3600)
    await put(first := ReviewQueue(Stored()))
    assert len(await first.get_pending("ada")) == 1
    assert await ReviewQueue(Stored()).get_pending("ada") == [], "without a store each has its own"
    for number in range(30):
        queue_id = await put(used)
        if number % 3 == 0:
            await used.approve(queue_id, "ada")
        elif number % 3 == 1:
            await used.reject(queue_id, "ada", "no")
    assert sum(len(item.body) > 0 for item in store._items.values()) == 10  # those that wait
    clock.now += 3600
    await put(used, "bob")
    clock.now += 7 * 86_400 + 1
    await put(used, "bob")
    assert len(store._items) == len(store._decided) + len(store._waiting[""]) == 2
    assert len(store._waiting) == 2  # of all, and of bob


def test_threads_may_share_a_store():
    store, stored = MemoryReviewStore(), Stored()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    async def work(ids):
        own = ReviewQueue(stored, store=store, max_per_user=1000)
        for queue_id in ids:
            try:
                await own.approve(queue_id, "ada")
            except ReviewNotFound:
                await put(own, "bob")

    async def fill():
        return [await put(ReviewQueue(stored, store=store, max_per_user=1000)) for _ in range(200)]

    try:
        ids = asyncio.run(fill())
        threads = [threading.Thread(target=lambda: asyncio.run(work(ids))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert sorted(queue_id for queue_id, _ in stored.calls) == sorted(ids)


async def test_no_text_of_a_claim_or_an_exception_gets_into_the_logs(caplog):
    stored = Stored()
    stored.error = OSError(f"could not store {CLAIM}")
    used = ReviewQueue(stored)
    queue_id = await put(used)
    with caplog.at_level(logging.DEBUG), pytest.raises(ReviewStoreFailed):
        await used.approve(queue_id, "ada")
    assert f"storing {queue_id} failed: OSError" in caplog.text
    assert CLAIM not in caplog.text


async def test_a_callback_is_taken_where_it_can_be_called_with_the_evidence_and_else_refused_when_the_queue_is_made():
    for callback in [
        lambda: "m",
        lambda evidence, user_id: "m",  # noqa: ARG005 - what it may not ask for
        lambda *, evidence: "m",  # noqa: ARG005 - as above
        lambda evidence, item, *, session: "m",  # noqa: ARG005 - as above
    ]:
        with pytest.raises(
            TypeError, match=r"^store_callback: would be called as store_callback\(evidence.*queue"
        ):
            ReviewQueue(callback)
    for callback in [
        lambda *anything: "m",  # noqa: ARG005 - what it gets is not looked at
        lambda whatever, *, queue_id, more=None, **rest: "m",  # noqa: ARG005 - as above
        functools.partial(lambda session, evidence: "m", "session"),  # noqa: ARG005 - as above
        Stored().__call__,
        id,  # a function of C gets the evidence alone
    ]:
        used = ReviewQueue(callback)
        assert await used.approve(await put(used), "ada")


def test_help_of_the_queue_has_one_example_and_few_row_ids_and_its_errors_are_of_their_kinds():
    text = pydoc.plain(pydoc.render_doc(ReviewQueue))
    assert text.count("Example:") == 1
    assert len(re.findall(r"\b(?:S\d-|C-)\d+", text)) <= 3
    assert issubclass(ReviewUnauthorized, (PermissionError, ReviewNotFound))
    assert issubclass(ReviewNotFound, (LookupError, GroundwireError))
