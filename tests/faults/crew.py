"""The workers of a run: each in a slot of its own, and started again when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter

from deploy.embedded.process import free_port
from tests.faults.schedule import SLOTS
from tests.stream.harness import Deployment, Worker

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
        await worker.ended(60)
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
        await worker.ended(60)

    async def skew(self, slot: str, seconds: float, clock: float) -> None:
        """Have a worker with a wrong clock in a slot for some seconds."""
        await self._swap(slot, clock)
        await asyncio.sleep(seconds)
        await self._swap(slot, 0.0)

    async def stop(self) -> Counter[int]:
        """Ask all to stop; return the exit statuses of those that had started."""
        alive = [(worker, "ready" in worker.text) for worker in self._deployment.workers if worker.alive]
        for worker, _ in alive:
            worker.process.terminate()
        return Counter([status for worker, up in alive for status in [await worker.ended(60)] if up])

    async def _swap(self, slot: str, clock: float) -> None:
        self._empty.add(slot)
        worker = self._slots[slot]
        worker.process.terminate()
        await worker.ended(60)
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
    """How often workers logged what should not happen."""
    found: Counter[str] = Counter()
    for log in deployment.folder.glob("*.log"):
        with log.open(errors="replace") as lines:
            found.update(word for line in lines for word in words if word in line)
    return found


def load_average() -> float:
    """The machine's load of the last minute."""
    return os.getloadavg()[0]
