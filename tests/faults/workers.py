"""The workers of a run, and the deployment that they make up: watched, and read from the beginning in the end."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Final

from aiokafka.errors import KafkaError

from groundwire.gate.claim_case import dedup_scheme
from groundwire.messages.identity import Subject
from groundwire.policy import load_policy
from groundwire.state.model import SubjectStatus
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.faults.history import RESPONSES, REVIEWS, Limits, Place, place_of
from tests.stream.harness import Deployment, Seen, Worker

ROLES: Final = {"claims": 2, "responses": 1, "deferred": 1, "reviews": 1}
"""Workers that run when nothing is broken."""
SLOTS: Final = tuple(f"{role}-{number}" for role, count in ROLES.items() for number in range(count))
LIMITS = Limits(user=6, tenant=40, total=70)
OVERSHOOT = 3 * LIMITS.user
"""Places of a tenant, and of all, that a cluster may give beyond that.

Near a limit a step gives those of one bucket at a time, here of one user; and where a backlog fills the queue, steps of
the four partitions of claims are under way at once.
"""
POLICY = f"""
version = "faults"

[limits]
review_per_user = {LIMITS.user}
review_per_tenant = {LIMITS.tenant}
review_total = {LIMITS.total}

[verification]
on_failure = "ask"
"""
_GROUPS = (("claims", "claims"), ("responses", RESPONSES), ("deferred", "deferred"), ("reviews", REVIEWS))


class Watched(Deployment):
    """Keeps when each record was read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen_at: dict[Place, float] = {}

    def note(self, seen: Seen) -> None:
        self.seen_at[place_of(seen)] = time.monotonic()
        super().note(seen)

    async def idle(self, seconds: float) -> list[str]:
        """Wait until every group has worked its topic off; return what it has not, once so long nothing has moved."""
        calm, behind, since = 0, ["nothing was asked yet"], time.monotonic()
        while calm < 2 and time.monotonic() - since < seconds:
            await asyncio.sleep(1.0)
            before, behind = behind, await self._behind()
            calm = 0 if behind else calm + 1
            since = since if behind == before else time.monotonic()
        return behind

    async def _behind(self) -> list[str]:
        try:
            return [
                f"{topic}/{partition}: {committed} of {ends[partition]}"
                for group, topic in _GROUPS
                for ends in [await self.ends(topic)]
                for partition, committed in (await self.committed(group, topic)).items()
                if committed != ends[partition]
            ]
        except (KafkaError, TimeoutError) as error:
            return [f"the broker does not say: {type(error).__name__}"]

    async def statuses(self, policy: Path, subjects: list[Subject]) -> dict[Subject, SubjectStatus | None]:
        scheme = dedup_scheme(load_policy(policy, {}))
        state = RedisState(connect(self.redis.url), self.prefix, scheme=scheme, require_aof=False)
        try:
            await state.open()
            found: dict[Subject, SubjectStatus | None] = {}
            for first in range(0, len(subjects), 200):
                some = subjects[first : first + 200]
                found |= zip(some, await state.statuses(some), strict=True)
            return found
        finally:
            await state.close()


class Crew:
    """Keeps a worker in every slot, but where a fault wants none.

    Attributes:
        ended: how often workers ended by themselves, by exit status.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.ended: Counter[int] = Counter()
        self._deployment = deployment
        self._slots: dict[str, Worker] = {}
        self._empty: set[str] = set()

    async def begin(self) -> None:
        """Start all workers and wait until they are ready, which takes minutes on a busy machine.

        Raises:
            RuntimeError: one ends again and again; not once, for on such a machine the broker may answer too late.
        """
        self._slots = {slot: self._start(slot) for slot in SLOTS}
        for slot in SLOTS:
            tries = 1
            while "ready" not in self._slots[slot].text:
                if not self._slots[slot].alive:
                    if tries == 5:
                        raise RuntimeError(f"{slot} does not start:\n{self._slots[slot].text[-2000:]}")
                    tries += 1
                    self._slots[slot] = self._start(slot)
                await asyncio.sleep(0.2)

    async def watch(self) -> None:
        """Fill slots again whose worker has ended, until cancelled."""
        while True:
            await asyncio.sleep(0.3)
            for slot, worker in list(self._slots.items()):
                if not worker.alive and slot not in self._empty:
                    self.ended[worker.process.returncode] += 1
                    self._slots[slot] = self._start(slot)

    async def replace(self, slot: str, seconds: float, *, hard: bool) -> None:
        """End a worker, as a crash would or by SIGTERM, and start another some seconds later."""
        await self._empty_slot(slot, hard=hard)
        await asyncio.sleep(seconds)
        await self._fill(slot)

    async def skew(self, slot: str, seconds: float, clock: float) -> None:
        """Have a worker with a wrong clock in a slot for some seconds."""
        await self._empty_slot(slot)
        await self._fill(slot, f"skewed:{clock}")
        await asyncio.sleep(seconds)
        await self.replace(slot, 0.0, hard=False)

    async def add(self, role: str, seconds: float) -> None:
        """Have one more worker of a role for some seconds, so that partitions move twice."""
        worker = self._deployment.start_worker(role)
        await asyncio.sleep(seconds)
        await worker.stop()

    def signal(self, slot: str, number: signal.Signals) -> None:
        self._slots[slot].signal(number)

    async def stop(self) -> Counter[int]:
        alive = [(worker, "ready" in worker.text) for worker in self._deployment.workers if worker.alive]
        for worker, _ in alive:
            worker.process.terminate()
        return Counter([status for worker, up in alive for status in [await worker.ended()] if up])

    async def _empty_slot(self, slot: str, *, hard: bool = False) -> None:
        self._empty.add(slot)
        worker = self._slots[slot]
        await (worker.kill() if hard else worker.stop())

    async def _fill(self, slot: str, faulty: str | None = None) -> None:
        """Start a worker in a slot; what emptied it is mended once that one is ready, or has ended too."""
        worker = self._slots[slot] = self._start(slot, faulty)
        self._empty.discard(slot)
        while worker.alive and "ready" not in worker.text:  # noqa: ASYNC110 - a log tells nobody
            await asyncio.sleep(0.2)

    def _start(self, slot: str, faulty: str | None = None) -> Worker:
        return self._deployment.start_worker(slot.partition("-")[0], faulty=faulty)


def logged(deployment: Deployment, words: tuple[str, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for log in deployment.folder.glob("*.log"):
        with log.open(errors="replace") as lines:
            found.update(word for line in lines for word in words if word in line)
    return found
