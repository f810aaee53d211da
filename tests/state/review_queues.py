"""Review queues in tests: items, store callbacks, and a clock."""

import asyncio
from datetime import UTC, datetime

from groundwire.library.review_queue import ReviewQueue
from groundwire.library.validator import ValidationResult
from groundwire.messages.decisions import EvidenceObject, IngestionTier

START = 1_760_000_000.0
CLAIM = "The API uses OAuth2"


def evidence(claim=CLAIM, **fields) -> EvidenceObject:
    return EvidenceObject(claim, datetime(2026, 1, 31, 12, 0, 4, 123456, UTC), "medium", **fields)


def result(of: EvidenceObject | None = None, **fields) -> ValidationResult:
    given = {
        "tier": IngestionTier.FLAG_REVIEW,
        "approved": False,
        "reason": "Ungrounded assertion needs verification",
        "evidence": of or evidence(),
        "checks_passed": ["no_speculation"],
        "checks_failed": ["citation_missing"],
        "similarity_score": 0.8125,
        "conflicting_memory_id": "m-7",
        "checks_skipped": ["dedup_skipped"],
    }
    return ValidationResult(**{**given, **fields})


async def put(queue: ReviewQueue, user_id="ada", claim=CLAIM, **fields) -> str:
    given = {
        "user_id": user_id,
        "content": claim,
        "memory_type": "fact",
        "source": "ai_synthesis",
        "evidence": evidence(claim),
        "validation_result": result(evidence(claim)),
    }
    return await queue.enqueue(**{**given, **fields})


class Stored:
    """A store callback that records its calls, and fails while `error` is set."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.error: BaseException | None = None

    async def __call__(self, evidence, *, queue_id):
        self.calls.append((queue_id, evidence.claim))
        await asyncio.sleep(0)
        if self.error:
            raise self.error
        return f"memory-{queue_id}"


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class Hanging:
    """A store callback whose calls end when the test resolves their futures."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ends: list[asyncio.Future] = []

    async def __call__(self, _):
        self.ends.append(asyncio.get_running_loop().create_future())
        self.begun.set()
        return await self.ends[-1]

    async def approve(
        self, queue, queue_id, reviewer="ada", **fields
    ) -> tuple[asyncio.Task, asyncio.Future | None]:
        """Begin an approval; return its task and the future of the callback, if that was called."""
        self.begun.clear()
        task = asyncio.create_task(queue.approve(queue_id, reviewer, **fields))
        called = asyncio.create_task(self.begun.wait())
        await asyncio.wait({task, called}, return_when=asyncio.FIRST_COMPLETED)
        called.cancel()
        return task, self.ends[-1] if self.begun.is_set() else None
