"""How long a fetch may wait at the broker for records.

aiokafka has one fetch under way to each broker, for those partitions of which it holds no records at that time. What
comes for any other partition of that broker is not asked for until this fetch returns, and where its own partitions are
silent, that is only once its time is up. With Faust's 1.5 s, a busy partition beside silent ones gave a batch in 1.5 s.

This holds for the versions in `agents.batches`.
"""

# ruff: noqa: SLF001 - this file stands inside Faust and aiokafka, and is bound to their versions for that

from __future__ import annotations

from typing import Any, Final

from agents.batches import BatchApp, BatchConsumer
from agents.departure import PunctualThread

FETCH_WAIT: Final = 100
"""Milliseconds; a silent worker asks each broker that often."""


class PromptThread(PunctualThread):
    """Has a consumer whose fetches return soon."""

    def _create_worker_consumer(self, transport: Any) -> Any:  # noqa: ANN401 - Faust's transport, aiokafka's consumer
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT  # Faust has no setting for it
        return consumer


class PromptConsumer(BatchConsumer):
    """Fetches in such a thread."""

    def _new_consumer_thread(self) -> PromptThread:
        return PromptThread(self, loop=self.loop, beacon=self.beacon)


class PromptApp(BatchApp):
    """A BatchApp with such a consumer."""

    def _new_transport(self) -> Any:  # noqa: ANN401
        transport = super()._new_transport()
        transport.Consumer = PromptConsumer
        return transport
