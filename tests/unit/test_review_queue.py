"""The review queue in memory: what only it can do wrong. What all stores promise is in tests/state."""

import asyncio
import doctest

from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.review_queue import MemoryReviewStore, queue
from tests.state.review_queues import STEPS, agree


def test_the_example_in_the_documentation_runs():
    result = doctest.testmod(queue)
    assert (result.failed, result.attempted > 0) == (0, True)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([None, 60]))
def test_whatever_is_done_to_it_the_queue_answers_as_its_model(steps, ttl):
    asyncio.run(agree(MemoryReviewStore(), steps, ttl))
