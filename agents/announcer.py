"""Tells the audit topic what becomes of a worker's state and policy, once the worker can publish."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

import structlog
from faust.exceptions import NotReady

from agents.outputs import Output, of_worker
from agents.publisher import ProducerBroken, Publisher
from groundwire.errors import BrokerUnavailable
from groundwire.messages.audit import AuditType

log = structlog.get_logger()

_KEPT: Final = 100


class Announcer:
    """Holds events until the broker has them; what a process has not published when it ends is left out.

    Args:
        now: the wall clock.
    """

    def __init__(self, publisher: Publisher, *, now: Callable[[], datetime]) -> None:
        self._publisher = publisher
        self._now = now
        self._pending: deque[Output] = deque(maxlen=_KEPT)

    def tell(self, kind: AuditType, cause: dict[str, Any], *, recurs: bool = False) -> None:
        """Note an event.

        Args:
            kind: `state_lost`, `state_rebuilt` or `policy_loaded`.
            cause: epoch or policy by their ids; with the type, it names the event.
            recurs: the cause may come again, so that the time names the event too.
        """
        self._pending.append(of_worker(kind, cause, self._now(), recurs=recurs))

    async def publish(self) -> None:
        """Publish what is noted; without a broker it stays for the next time."""
        pending = list(self._pending)
        if not pending:
            return
        try:
            await self._publisher.publish(pending)
        except (BrokerUnavailable, ProducerBroken, NotReady) as exc:  # the last before Faust's producer runs
            log.info("audit.waits", events=len(pending), error=str(exc))
            return
        for output in pending:
            if output in self._pending:  # while it was published, others may have pushed it out
                self._pending.remove(output)
