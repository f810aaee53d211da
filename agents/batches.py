"""What Groundwire replaces in Faust: a fetch travels as one event, and offsets are counted where it is settled.

Stock Faust pays its conductor, channel, event and stream for every record, and its offset bookkeeping commits
past an event that is not finished. Here `getmany` yields, for each partition fetched, **one** message: its value is
the list of records and its offset the last one's. A message counts once `settle` is called, in the order of its
partition; only then may the offset behind it be committed.

This holds for the versions below. Whoever upgrades them reads `faust/transport/consumer.py` again and runs
`tests/stream/test_batches.py`, which fails when the ground under this file moves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.metadata import version
from typing import Any, ClassVar, Final

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from groundwire.errors import UsageError
from groundwire.messages.inbound import InboundRecord

VERSIONS: Final = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}

_BUSY_POLL: Final = 0.02
"""Seconds that a fetch waits while batches are being settled: their partitions must not wait for idle ones."""


def check_versions() -> None:
    """Refuse to run on a Faust that this file was not written for. Raises: UsageError."""
    for package, expected in VERSIONS.items():
        found = version(package)
        if found != expected:
            raise UsageError(
                f"{package} is {found}, workers need {expected}: install groundwire[worker] as locked"
            )
    try:
        from faust._cython.streams import StreamIterator  # noqa: F401, PLC0415 - only its presence matters
    except ImportError:
        raise UsageError(
            "Faust's compiled extension is missing, and without it records are acked differently: "
            "install a wheel of faust-streaming, without NO_CYTHON"
        ) from None


class BatchConsumer(driver.Consumer):
    """Yields batches, and commits behind what was settled, never beyond."""

    app: Any

    #: Batches of one partition that may be on their way at a time.
    depth: ClassVar[int] = 2

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Faust's own arguments
        super().__init__(*args, **kwargs)
        self._under_way: Counter[TP] = Counter()
        self._settled: dict[TP, int] = {}

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ASYNC109 - Faust's signature
        """Fetch once, and yield one message for each partition that brought records."""
        generation = self.app.consumer_generation_id
        records = await self._fetch(timeout)
        if self.should_stop or not records:
            return
        if not self.flow_active:  # a rebalance began while we waited: these records will be fetched again
            return
        for tp, fetched in records.items():
            if not self.flow_active or self.app.consumer_generation_id != generation:
                return
            message: Any = self._to_message(tp, fetched[-1])
            message.value = [as_inbound(record) for record in fetched]
            self._under_way[tp] += 1
            yield tp, message

    async def _fetch(self, timeout: float) -> Mapping[TP, list[Any]]:  # noqa: ASYNC109
        if not self.flow_active:
            await self.wait_first(self.can_resume_flow.wait())
        ready = {tp for tp in self._get_active_partitions() if self._under_way[tp] < self.depth}
        if not ready:
            await asyncio.sleep(_BUSY_POLL)
            return {}
        busy = any(self._under_way.values())
        return await self._getmany(active_partitions=ready, timeout=_BUSY_POLL if busy else timeout)

    def settle(self, message: Any) -> None:  # noqa: ANN401 - Faust's message
        """Let go of a batch whose results the broker has acknowledged: its offset may be committed."""
        tp, following = message.tp, message.offset + 1
        self._release(message)
        if message.generation_id == self.app.consumer_generation_id:
            self._settled[tp] = max(following, self._settled.get(tp, 0))
            self._acked[tp] = [message.offset]  # tells `force_commit` that this partition has something

    def abandon(self, message: Any) -> None:  # noqa: ANN401
        """Let go of a batch that is not finished; whoever holds its partition next reads it again."""
        self._release(message)

    def _release(self, message: Any) -> None:  # noqa: ANN401
        self._under_way[message.tp] = max(0, self._under_way[message.tp] - 1)
        message.acked = True
        self._unacked_messages.discard(message)
        waiting = self._waiting_for_ack
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def ack(self, message: Any) -> bool:  # noqa: ANN401, ARG002
        """Ignore Faust's own acks: `settle` is the only way."""
        return False

    def _new_offset(self, tp: TP) -> int | None:
        self._acked.pop(tp, None)
        return self._settled.get(tp)

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Ignore gaps between offsets: a batch's offset is its last record's, and transactions leave holes."""

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let what is under way finish and be committed, then forget the partitions.

        Stock Faust forgets first, and so commits nothing of the last second.
        """
        self.app.before_revocation(set(revoked))
        self.stop_flow()
        self.app.flow_control.suspend()
        self.app.flow_control.clear()
        await self.wait_empty()
        await super().on_partitions_revoked(revoked)
        self._under_way.clear()
        self._settled.clear()

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take over partitions; everything read before the rebalance has been forgotten."""
        self._under_way.clear()
        self._settled.clear()
        await super().on_partitions_assigned(assigned, generation_id)
        self.app.after_assignment(set(assigned))


class IdempotentProducer(driver.Producer):
    """Faust offers an idempotent producer only with its transactions; Groundwire needs it without."""

    def _settings_extra(self) -> dict[str, Any]:
        return {"acks": "all", "enable_idempotence": True, "linger_ms": 0}


class BatchTransport(driver.Transport):
    """The aiokafka driver with the two replacements."""

    Consumer: ClassVar[Any] = BatchConsumer
    Producer: ClassVar[Any] = IdempotentProducer


class BatchApp(faust.App):
    """A Faust app over BatchTransport.

    Attributes:
        before_revocation: hears of partitions before they are given away: what waits must let go of them.
        after_assignment: hears of all partitions held, once they can be read.
    """

    before_revocation: Callable[[set[TP]], None]
    after_assignment: Callable[[set[TP]], None]

    def _new_transport(self) -> Any:  # noqa: ANN401
        return BatchTransport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Any:  # noqa: ANN401
        return BatchTransport(self.conf.broker_producer, self)


def as_inbound(record: Any) -> InboundRecord:  # noqa: ANN401 - aiokafka's ConsumerRecord
    """Take over a record as aiokafka read it."""
    return InboundRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )
