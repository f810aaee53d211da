"""Cancellations that nobody asked for: a Kafka client that loses its broker ends with one when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from groundwire.errors import BrokerUnavailable


@contextmanager
def unasked(what: str) -> Iterator[None]:
    """Tell a client's cancellation from that of the task that uses it.

    aiokafka cancels the fetches that wait, and awaits them as they are (`aiokafka/consumer/fetcher.py`, `close`). Let
    through, that would end whoever reads without a word: neither `except Exception` nor a task group takes notice.
    There it also swallows a cancellation that this task was asked for, which is made up for here, the next time.

    Args:
        what: did not happen, for the message.

    Raises:
        BrokerUnavailable: in the place of a cancellation that this task was not asked for.
    """
    if asked_to_end():
        raise asyncio.CancelledError
    try:
        yield
    except asyncio.CancelledError as exc:
        if asked_to_end():
            raise
        raise BrokerUnavailable(f"{what}: the connection to the broker was lost") from exc


def asked_to_end() -> bool:
    """Say whether somebody has cancelled the task that runs."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
