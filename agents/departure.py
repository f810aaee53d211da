"""How a consumer's thread ends: in good order, also while a node of the broker is away.

aiokafka's consumer leaves its group, and then cancels what it still fetches. A fetch that waits to ask again a node
that is away lets the cancellation through to whoever stops the consumer. Faust's thread then ends without a word, and
the worker waits for that word until its deadline, long after it has given its partitions away.

This holds for the versions in `agents.batches`.
"""

# ruff: noqa: SLF001 - this file stands inside Faust and aiokafka, and is bound to their versions for that

from __future__ import annotations

import asyncio
from contextlib import suppress

from faust.transport.drivers import aiokafka as driver


class PunctualThread(driver.AIOKafkaConsumerThread):
    """Says that it has ended, whatever its consumer was fetching."""

    async def on_thread_stop(self) -> None:
        """Stop the consumer; where that is cut short, only its connections are left."""
        with suppress(asyncio.CancelledError):
            await super().on_thread_stop()
            return
        if self._consumer is not None:
            await self._consumer._client.close()
