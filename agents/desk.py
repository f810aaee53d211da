"""What a pipeline needs of a gate: of `groundwire.gate.gate.Gate`, or of `groundwire.gate.reviews.ReviewGate`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from groundwire.gate.results import Result
from groundwire.messages.identity import Subject
from groundwire.messages.inbound import InboundRecord


class Desk(Protocol):
    """Decides batches of records; what it prepares, only it can read."""

    async def prepare(self, records: Sequence[InboundRecord], *, ask_network: bool = False) -> list[Any]:
        """Decode a batch; state is not asked yet."""
        ...

    async def settle(self, batch: Sequence[Any], *, deferred: bool = False) -> list[Result]:
        """Decide a prepared batch. Raises: StateUnavailable, StateLost."""
        ...

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:
        """Say whether a record that brings workers down becomes a dead letter; not where state holds its outcome.

        Args:
            record: the one.
            give_up: has state let go of a subject that waits; False where it holds an outcome.

        Raises:
            RecordError: not even its identity can be read.
        """
        ...

    def provisional(self, batch: Sequence[Any]) -> list[Result]:
        """Decide a prepared batch without state."""
        ...
