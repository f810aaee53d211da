"""State in memory, for one process: `groundwire check`, `--simulate`, and the model that Redis is tested against."""

from __future__ import annotations

from collections.abc import Sequence

from groundwire.messages.identity import Subject
from groundwire.state import lifecycle
from groundwire.state.codec import action_digest
from groundwire.state.model import (
    DEFAULT_LIMITS,
    MAX_CANDIDATES,
    HeldEntry,
    QueueLimits,
    ReviewAnswer,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectStatus,
)
from groundwire.state.workspace import StoredEntry, Workspace


class MemoryState:
    """Nothing expires."""

    def __init__(self, *, max_candidates: int = MAX_CANDIDATES) -> None:
        self._work = Workspace(max_candidates)

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        return [lifecycle.step(self._work, request, limits, deferred=deferred) for request in requests]

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        return sum([lifecycle.load(self._work, stored) for stored in outcomes])

    async def review(
        self, requests: Sequence[ReviewRequest], limits: QueueLimits = DEFAULT_LIMITS
    ) -> list[ReviewAnswer]:
        return [lifecycle.review(self._work, one, action_digest(one), limits) for one in requests]

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        found = [entry and entry.outcome for entry in self._entries(subjects)]
        return [
            HeldEntry(one.state, one.revision, one.fingerprint, one.payload, one.record) if one else None
            for one in found
        ]

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        return [
            SubjectStatus(entry.state, entry.revision) if entry else None for entry in self._entries(subjects)
        ]

    async def waiting_count(self) -> int:
        return self._work.counts["waiting"]

    async def queue_depth(self) -> int:
        return self._work.counts["total"]

    async def close(self) -> None:
        pass

    def _entries(self, subjects: Sequence[Subject]) -> list[StoredEntry | None]:
        return [self._work.entries.get(subject.digest) for subject in subjects]
