"""What a worker tells of the records that it has not settled."""

from __future__ import annotations

from collections import defaultdict, deque
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from agents import batches
from agents.batches import BatchConsumer

A, B = TP("claims", 0), TP("claims", 1)


def message(first: int, last: int, taken: float) -> Any:
    records = [SimpleNamespace(offset=offset) for offset in range(first, last + 1)]
    return SimpleNamespace(value=records, offset=last, time_in=taken)


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A consumer that holds partition A, whose end is at 100, and knows nothing of B."""
    monkeypatch.setattr(batches.time, "monotonic", lambda: 1000.0)
    assignment = SimpleNamespace(state_value={A: SimpleNamespace(highwater=100)}.get)
    kafka = SimpleNamespace(
        _subscription=SimpleNamespace(subscription=SimpleNamespace(assignment=assignment))
    )
    made: Any = SimpleNamespace(
        _thread=SimpleNamespace(_ensure_consumer=lambda: kafka),
        _under_way=defaultdict(deque),
        _settled={},
        _held=True,
    )
    made.backlog = lambda: BatchConsumer.backlog(made)
    return made


def test_a_worker_that_has_read_nothing_is_behind_by_nothing(consumer: Any):
    assert consumer.backlog() == (0, 0.0)


def test_records_count_from_the_first_that_is_not_settled_to_the_end_of_the_partition(consumer: Any):
    consumer._under_way[A].append(message(40, 49, 990.0))
    assert consumer.backlog() == (60, 10.0)
    consumer._settled[A] = 95
    assert consumer.backlog() == (5, 10.0)
    consumer._under_way[A].clear()
    assert consumer.backlog() == (5, 0.0)


def test_the_oldest_batch_of_all_partitions_gives_the_age(consumer: Any):
    consumer._under_way[A] += [message(0, 9, 980.0), message(10, 19, 999.0)]
    consumer._under_way[B].append(message(0, 9, 970.0))
    assert consumer.backlog() == (100, 30.0)


def test_partitions_that_were_given_away_count_for_nothing(consumer: Any):
    consumer._settled[A] = 10
    consumer._held = False
    assert consumer.backlog() == (0, 0.0)
