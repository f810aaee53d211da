"""One lane for each partition: its batches are settled one after the other, those of other partitions beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agents.pauses import Pauses
from agents.tenure import Released, Tenure
from groundwire.gate.faults import report_fault
from groundwire.messages.inbound import InboundRecord

Settle = Callable[[Sequence[InboundRecord], Tenure], Awaitable[None]]


class Lanes:
    """Hands each batch to `settle`, in the order of its partition, and lets go of it afterwards.

    Args:
        settle: settles a batch; raises Released where it could not, anything else where the process cannot go on.
        pauses: told how many batches are under way.
    """

    def __init__(self, settle: Settle, pauses: Pauses) -> None:
        self._settle = settle
        self._pauses = pauses
        self._tenures: dict[tuple[str, int], Tenure] = {}
        self._tails: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._stopped = False

    def take_over(self, _tps: object = None) -> None:
        """Begin anew after a rebalance: whoever holds a partition now holds it for the first time."""
        self._tenures = {}

    def submit(self, event: Any) -> None:  # noqa: ANN401 - Faust's event
        """Put a batch behind those of its partition that are not settled yet."""
        tp = (event.message.topic, event.message.partition)
        tenure = self._tenures.setdefault(tp, Tenure())
        if self._stopped:
            tenure.end()
        self._pauses.starts()
        run = self._run(self._tails.get(tp), event, tenure)
        self._tails[tp] = asyncio.create_task(run)

    def release(self, _tps: object = None) -> None:
        """Call off what waits for a dependency or has not begun; work in progress goes on to its end."""
        for tenure in self._tenures.values():
            tenure.end()

    def stop(self) -> None:
        """Release everything, for good."""
        self._stopped = True
        self.release()

    async def _run(self, before: asyncio.Task[None] | None, event: Any, tenure: Tenure) -> None:  # noqa: ANN401
        consumer = event.app.consumer
        if before is not None:
            await asyncio.wait([before])
        try:
            tenure.insist_held()
            await self._settle(event.value, tenure)
        except Released:
            tenure.broken = True  # later batches of this tenure must not commit past this one
            consumer.abandon(event.message)
        except asyncio.CancelledError:
            tenure.broken = True
            consumer.abandon(event.message)
            raise
        except Exception as exc:  # noqa: BLE001 - another process may have more luck
            tenure.broken = True
            consumer.abandon(event.message)
            report_fault("lane.broken", exc, topic=event.message.topic, partition=event.message.partition)
            await event.app.crash(exc)
        else:
            consumer.settle(event.message)
        finally:
            self._pauses.under_way -= 1
