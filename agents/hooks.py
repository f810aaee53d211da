"""A batch, and the points of the loop at which seals, crash marks, health, metrics and traces see it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from faust.types import TP

from agents.book import Entry
from agents.outputs import Output
from groundwire.gate.types import Result
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject

if TYPE_CHECKING:
    from agents.loop import PartitionLoop

Commits = Mapping[TP, tuple[int, str]]
"""Offsets to commit, with their metadata."""


LookUp = Callable[[Any], Coroutine[Any, Any, Any]]


class Handler(Protocol):
    """Decides batches: `groundwire.gate.gate.Gate` or `groundwire.gate.reviews.ReviewGate`; entries are opaque here."""

    async def prepare(self, records: Sequence[InboundRecord]) -> list[Any]: ...

    async def apply_step(self, batch: Sequence[Any], *, deferred: bool = False) -> list[Result]:
        """Decide prepared records. Raises: StateUnavailable, StateLost."""
        ...

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:
        """Return whether a record that crashes workers becomes a dead letter: not if state holds its outcome.

        `give_up` releases a waiting subject in state; False if it holds an outcome. Raises: RecordError, no identity.
        """
        ...

    def provisional(self, batch: Sequence[Any]) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class Decider:
    """How batches are decided, by one policy.

    Attributes:
        grace: seconds without state after which records are decided provisionally; None: wait without limit.
        look_up: asks the network what a prepared record waits for; cancelled when the partition is revoked.
        ask_model: asks a language model about prepared records; cancelled when the partition is revoked.
    """

    handler: Handler
    grace: float | None = None
    look_up: LookUp | None = None
    ask_model: Callable[[list[Any]], Coroutine[Any, Any, list[Any]]] | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Records of a partition that are processed together, and what comes of them.

    Attributes:
        by: what decided batches when it began.
        originals: the records to decide: those of `entries`, on `deferred` those that were sent there.
        looked_up: what the handler read of a record that was set aside; empty of others.
        prepared: what the handler read of them, or the dead letter of a record that crashes workers; empty: not yet.
        fresh: ids of the decisions that this worker made; others are repeats.
        outputs: to publish, each list once the one before is acknowledged.
        asked_at: when state was asked, in seconds of the loop's clock.
        failed_at: since when state has not answered this batch; None: it has.
        began: nanoseconds of the wall clock.
    """

    loop: PartitionLoop
    entries: list[Entry]
    by: Decider
    originals: list[InboundRecord] = field(default_factory=list)
    looked_up: list[Any] = field(default_factory=list)
    prepared: list[Any] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    fresh: set[str] = field(default_factory=set)
    outputs: list[list[Output]] = field(default_factory=list)
    published: list[Output] = field(default_factory=list)
    asked_at: float = 0.0
    failed_at: float | None = None
    began: int = field(default_factory=time.time_ns)

    @property
    def first_offset(self) -> int:
        return self.entries[0].record.offset


class Hook:
    """One concern of all loops of a worker; its methods do nothing unless a subclass says otherwise.

    Attributes:
        alone: whether records are processed one at a time.
    """

    alone: bool = False

    def before_assignment(self) -> None:
        """Forget all partitions: what is not committed is read again."""

    async def before_loop(self, loop: PartitionLoop) -> None:
        """See a partition before its first batch."""

    async def before_batch(self, batch: Batch) -> None:
        """Let a batch wait. Raises: LeaseLost."""

    async def before_prepare(self, batch: Batch) -> None:
        """See a batch before its records are read, again after a failure; may decide it by `prepared`.

        Raises: StateError.
        """

    def during(self, stage: str, batch: Batch) -> AbstractContextManager[object]:  # noqa: ARG002 - for subclasses
        """Surround a stage: `prepare`, `model`, `state` or `publish`."""
        return nullcontext()

    def after_publish(self, batch: Batch) -> None:
        """See what was acknowledged."""

    async def after_batch(self, batch: Batch) -> None:
        """See a batch that is done, or left to the next holder."""

    async def before_commit(self, commits: Commits) -> Commits:
        """Return what may be committed."""
        return commits
