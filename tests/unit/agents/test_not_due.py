"""What is not due on `deferred` goes round a few times a minute, whatever the backlog, and holds up little (X-14)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from faust.types import TP

from agents import partitions as module
from agents.app import ROLES
from agents.health import Health
from agents.hooks import Decider
from agents.loop import PartitionLoop, Services
from agents.outputs import Output
from agents.partitions import COPY_AGE, Partitions
from groundwire.config import Settings
from groundwire.messages.headers import InboundRecord, deferred_headers
from groundwire.messages.topics import TopicName
from tests.unit.agents.standins import Bench, turns
from tests.unit.gate.world import NOW, World, verifier

CLAIMS = 600
VERDICTS = (TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED)


class Topic:
    """The partition of `deferred` with its worker and its gate; claims in it cite a host that fails.

    Only pauses and batches move its clock.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, claims: int) -> None:
        self.began = self.time = NOW.timestamp()
        self.log: list[InboundRecord] = []
        self.copies: Counter[bytes | None] = Counter()
        self.decided: dict[str, tuple[TopicName, float]] = {}
        self.read = 0
        self.until = self.began
        self.task: asyncio.Task[None] | None = None
        patience = Settings.model_fields["citation_patience"].default
        self.urls = {f"https://docs.example/{n}": 503 for n in range(claims)}
        self.world = World(verifier=verifier(urls=self.urls), patience=patience)
        self.world.now = lambda: datetime.fromtimestamp(self.time, UTC)
        parts = Bench("deferred")
        decider = Decider(self.world.gate, look_up=self.world.gate.look_up)
        stand_ins: Any = (decider, parts, self, parts, parts)
        services = Services(
            *(ROLES["deferred"], *stand_ins, Health(), [], lambda _topic: 1),
            clock=lambda: self.time,
        )
        self.loop = PartitionLoop(TP("groundwire.deferred", 0), Partitions(services).new_book(), services)
        self.loop._wait_for_change = self.wait_for_change  # type: ignore[method-assign]
        monkeypatch.setattr(module, "time", SimpleNamespace(time=lambda: self.time))
        for n, url in enumerate(self.urls):
            self.write(self.world.claim(f"c{n}", f"Rule {n} of the harbour, see {url}"))

    async def wait_for_change(self, seconds: float | None) -> None:
        """Wait for a change; time passes while records wait and nothing runs."""
        await turns(5)
        changed = self.loop._changed
        if seconds is None or self.loop.running or changed.is_set():
            await changed.wait()
        else:
            self.time += seconds if self.time < self.until else 0

    def write(self, record: InboundRecord) -> None:
        """Write a record of an input topic, as the worker of that does."""
        self._append(record.key, record.value, deferred_headers(record))

    def _append(self, key: bytes | None, value: bytes | None, headers: Any) -> None:
        at = round(1000 * self.time)
        self.log.append(
            InboundRecord("groundwire.deferred", 0, len(self.log), at, key, value, tuple(headers))
        )

    async def publish(self, outputs: Sequence[Output]) -> list[Output]:
        for output in outputs:
            if output.topic is TopicName.DEFERRED:
                self.copies[output.value] += 1
                self._append(output.key, output.value, output.headers)
            elif output.topic in VERDICTS:
                claim = json.loads(output.value or b"")["subject_id"]
                self.decided[claim] = (output.topic, self.time - self.began)
        return []

    def _fetch(self) -> None:
        if self.read < len(self.log) and self.loop.book.has_room:
            fetched = self.log[self.read : self.read + ROLES["deferred"].max_records]
            self.read += len(fetched)
            self.loop.book.add(fetched, self.read)
            self.loop.wake()

    async def run(self, seconds: float = 1e9) -> None:
        """Work until nothing is left to read, or so many seconds have passed since the beginning."""
        self.until = self.began + seconds
        if self.task is None:
            self.task = asyncio.create_task(self.loop.run())
        while (self.read < len(self.log) or self.loop.book.undone) and self.time < self.until:
            self._fetch()
            await turns(5)
            self.time += 0.01


@pytest.mark.slow
async def test_an_outage_copies_a_claim_three_times_a_minute_at_most_beside_its_look_ups(
    monkeypatch: pytest.MonkeyPatch,
):
    """With the default patience of ten minutes and more claims than a batch takes; then people get them."""
    topic = Topic(monkeypatch, CLAIMS)
    await topic.run()
    look_ups = 7
    assert len(topic.decided) == CLAIMS
    assert not any(where is TopicName.APPROVED for where, _ in topic.decided.values())
    assert min(at for _, at in topic.decided.values()) >= 600
    # each claim is looked up on its own, and every turn moves the clock
    assert max(at for _, at in topic.decided.values()) <= 600 + COPY_AGE + 15
    assert len(topic.copies) == CLAIMS
    assert max(topic.copies.values()) <= 600 / COPY_AGE + look_ups


async def test_a_claim_that_can_be_decided_waits_behind_an_outage_for_one_copy_at_most(
    monkeypatch: pytest.MonkeyPatch,
):
    topic = Topic(monkeypatch, 150)
    await topic.run(90)
    written = topic.time - topic.began
    topic.write(topic.world.claim("plain", "The parser reads tokens", source="user"))
    await topic.run(200)
    where, at = topic.decided["plain"]
    assert where is TopicName.APPROVED
    assert at - written <= COPY_AGE + 1


async def test_what_is_due_is_decided_before_the_pause_and_what_falls_due_in_it_at_its_time(
    monkeypatch: pytest.MonkeyPatch,
):
    topic = Topic(monkeypatch, 3)
    await topic.run(15)
    topic.write(topic.world.claim("plain", "The parser reads tokens", source="user"))
    written = topic.time - topic.began
    topic.urls |= dict.fromkeys(topic.urls, 200)
    await topic.run()
    assert topic.decided["plain"][1] - written <= COPY_AGE
    assert topic.decided["c0"][0] is TopicName.APPROVED
    assert all(29 < topic.decided[f"c{n}"][1] < 32 for n in range(3)), "after a twentieth of the patience"
