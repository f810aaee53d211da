"""The workers of a run, and the deployment that they make up: watched, and read from the beginning in the end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from deploy.embedded.process import free_port
from groundwire.gate.claim_case import dedup_scheme
from groundwire.messages.identity import Subject
from groundwire.policy import load_policy
from groundwire.state.model import SubjectStatus
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.faults.history import RESPONSES, REVIEWS, TOPICS, Limits, Place, place_of
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
    """Keeps when each record was read, and goes on reading when the broker is away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen_at: dict[Place, float] = {}

    async def _watch(self) -> None:
        while True:
            try:
                fetched = await self._consumer.getmany(timeout_ms=100)
            except KafkaError:
                await asyncio.sleep(0.2)
                continue
            now = time.monotonic()
            for tp, records in fetched.items():
                topic = tp.topic.removeprefix(self.prefix)
                for r in records:
                    seen = Seen(topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    self.seen_at[place_of(seen)] = now
                    self.seen[topic].append(seen)

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

    async def read_all(self) -> dict[str, list[Seen]]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self.broker.bootstrap, group_id=None)
        await consumer.start()
        try:
            tps = [TopicPartition(self.prefix + topic, n) for topic in TOPICS for n in range(self.partitions)]
            ends = await consumer.end_offsets(tps)
            consumer.assign(tps)
            await consumer.seek_to_beginning()
            found: dict[str, list[Seen]] = {topic: [] for topic in TOPICS}
            while any([await consumer.position(tp) < ends[tp] for tp in tps]):
                for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                    topic = tp.topic.removeprefix(self.prefix)
                    found[topic] += [
                        Seen(topic, r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                        for r in records
                    ]
            return found
        finally:
            await consumer.stop()

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


_TRIES = 5


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
        for slot in SLOTS:
            self._slots[slot] = self._start(slot)
        for slot in SLOTS:
            tries = 1
            while "ready" not in self._slots[slot].text:
                if not self._slots[slot].alive:
                    if tries == _TRIES:
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

    async def kill(self, slot: str, seconds: float) -> None:
        """End a worker as a crash would, and replace it some seconds later."""
        self._empty.add(slot)
        self._slots[slot].process.kill()
        await asyncio.sleep(seconds)
        await self._fill(slot)

    async def remove(self, slot: str, seconds: float) -> None:
        """Ask a worker to stop, and replace it some seconds later."""
        self._empty.add(slot)
        worker = self._slots[slot]
        worker.process.terminate()
        await worker.ended()
        await asyncio.sleep(seconds)
        await self._fill(slot)

    async def freeze(self, slot: str, seconds: float) -> None:
        """Stop a worker (SIGSTOP), and let it go on."""
        worker = self._slots[slot]
        worker.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            worker.signal(signal.SIGCONT)

    async def add(self, role: str, seconds: float) -> None:
        """Have one more worker of a role for some seconds, so that partitions move twice."""
        worker = self._start(f"{role}-extra")
        await asyncio.sleep(seconds)
        worker.process.terminate()
        await worker.ended()

    async def skew(self, slot: str, seconds: float, clock: float) -> None:
        """Have a worker with a wrong clock in a slot for some seconds."""
        await self._swap(slot, clock)
        await asyncio.sleep(seconds)
        await self._swap(slot, 0.0)

    async def stop(self) -> Counter[int]:
        alive = [(worker, "ready" in worker.text) for worker in self._deployment.workers if worker.alive]
        for worker, _ in alive:
            worker.process.terminate()
        return Counter([status for worker, up in alive for status in [await worker.ended()] if up])

    async def _swap(self, slot: str, clock: float) -> None:
        self._empty.add(slot)
        worker = self._slots[slot]
        worker.process.terminate()
        await worker.ended()
        self._slots[slot] = self._start(slot, clock)
        self._empty.discard(slot)

    async def _fill(self, slot: str) -> None:
        """Start a worker in a slot; what emptied it is mended once that one is ready, or has ended too."""
        worker = self._slots[slot] = self._start(slot)
        self._empty.discard(slot)
        while worker.alive and "ready" not in worker.text:  # noqa: ASYNC110 - a log tells nobody
            await asyncio.sleep(0.2)

    def _start(self, slot: str, clock: float = 0.0) -> Worker:
        if not clock:
            return self._deployment.start_worker(slot.split("-", maxsplit=1)[0])
        deployment = self._deployment
        role, port = slot.split("-", maxsplit=1)[0], free_port()
        log = deployment.folder / f"{deployment.prefix}{len(deployment.workers)}-{role}-skewed.log"
        command = [sys.executable, "-m", "tests.faults.skewed", str(clock), role]
        environment = deployment.settings(GROUNDWIRE_METRICS_PORT=str(port))
        worker = Worker(command, environment, log, port)
        deployment.workers.append(worker)
        return worker


def logged(deployment: Deployment, words: tuple[str, ...]) -> Counter[str]:
    found: Counter[str] = Counter()
    for log in deployment.folder.glob("*.log"):
        with log.open(errors="replace") as lines:
            found.update(word for line in lines for word in words if word in line)
    return found


def load_average() -> float:
    return os.getloadavg()[0]
