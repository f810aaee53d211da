"""A run in which nothing breaks: the real gate and reviews in memory, and the topics that they leave behind."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

from faust.types import TP

from agents.book import Entry
from agents.health import Health
from agents.hooks import Batch
from agents.outputs import Output, followers, outputs
from agents.sealing import Committed, Sealer
from groundwire.epistemic.types import VerificationConfig
from groundwire.keys import ed25519
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import Headers, InboundRecord
from groundwire.messages.identity import Subject
from groundwire.policy import Limits as PolicyLimits
from groundwire.policy import Policy
from groundwire.state.model import SubjectStatus
from tests.faults.history import CLAIMS, History, Limits, Sent, place_of, traceparent
from tests.faults.load import KEYS, Inputs
from tests.stream.harness import Seen, user_key
from tests.unit.gate.office import Office
from tests.unit.gate.world import TOPIC, verifier

PREFIX = "groundwire."
LIMITS = Limits(user=3, tenant=8, total=14)
PAGE = "http://pages.example"


@dataclass
class Run(Office):
    """Decides what a seed brings, one record after the other, and has people act on some of it."""

    policy: Policy = field(
        default_factory=lambda: Policy(
            limits=PolicyLimits(
                review_per_user=LIMITS.user,
                review_per_tenant=LIMITS.tenant,
                review_total=LIMITS.total,
                review_reserved=0,
            ),
            verification=VerificationConfig(on_failure="ask"),
        )
    )
    keys: Keys = field(default_factory=lambda: Keys.parse(KEYS.encode(), Path("keys.toml")))
    records: dict[str, list[Seen]] = field(default_factory=dict)
    seen_at: dict[Any, float] = field(default_factory=dict)
    acted_at: dict[str, float] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    clock: float = 0.0
    _sealer: Sealer | None = None

    async def feed(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        inputs = Inputs(seed, PAGE)
        for _ in range(count):
            item = inputs.next()
            record = self.append(item.topic, item.key, item.value)
            self.sent.append(Sent((item.topic, 0, record.offset), item.value, item.bad))
            await self.gate_decides(record)
            if rng.random() < 0.3:
                await self._somebody_acts(rng)

    async def gate_decides(self, record: InboundRecord) -> None:
        results = await self.results(record)
        await self.publish_and_seal([record], [*outputs(results), *followers(results)])
        for output in followers(results):
            if output.topic == CLAIMS:  # `publish_and_seal` has appended it to the topic
                await self.gate_decides(self._inbound(self.records[CLAIMS][-1]))

    def action(  # type: ignore[override]
        self, action: str, decision: dict[str, Any], *, signed: bool = True, **fields: Any
    ) -> InboundRecord:
        """Put what the owner does about a decision on its topic."""
        number = len(self.acted_at) + 1
        fields = {"action_id": str(uuid.UUID(int=number))} | fields
        if action in {"reject", "retract"}:
            fields["reason"] = "incorrect"
        if action == "edit":
            fields["content"] = f"Read by a person as {number}"
        self.clock += 1
        self.acted_at[fields["action_id"]] = self.clock
        key = "console" if signed else None
        return super().action(action, Decision.model_validate(decision), key=key, **fields)

    def record(self, value: bytes | None, *, headers: Headers = (), topic: str = TOPIC) -> InboundRecord:
        return self.append(topic.removeprefix(PREFIX), user_key(json.loads(value or b"")), value, headers)

    def history(self) -> History:
        return History(
            prefix=PREFIX,
            records={topic: list(records) for topic, records in self.records.items()},
            sent=list(self.sent),
            limits=LIMITS,
            seen_at=dict(self.seen_at),
            acted_at=dict(self.acted_at),
            ended=self.clock + 1,
            page_exists=lambda url: url.startswith(f"{PAGE}/ok/"),
        )

    async def statuses(self) -> dict[Subject, SubjectStatus | None]:
        subjects = list(self.history().subjects)
        return dict(zip(subjects, await self.state.statuses(subjects), strict=True))

    async def _somebody_acts(self, rng: random.Random) -> None:
        topic = rng.choice(("review", "review", "approved"))
        if not self.records.get(topic):
            return
        decision = rng.choice(self.records[topic]).json
        action = rng.choice(("approve", "reject", "edit")) if topic == "review" else "retract"
        record = self.action(action, decision, signed=rng.random() < 0.9)
        gate = self.reviews
        results = await gate.apply_step(await gate.prepare([record]), deferred=False)
        await self.publish_and_seal([record], outputs(results))

    def append(
        self, topic: str, key: bytes, value: bytes | None, headers: Sequence[tuple[str, Any]] = ()
    ) -> InboundRecord:
        headers = [*headers, traceparent(1, self.offset + 1)]
        return self._inbound(self._append(topic, key, value, headers))

    def _inbound(self, seen: Seen) -> InboundRecord:
        return InboundRecord(
            PREFIX + seen.topic, 0, seen.offset, seen.timestamp, seen.key, seen.value, seen.headers
        )

    async def publish_and_seal(self, records: Sequence[InboundRecord], those: Sequence[Output]) -> None:
        """Publish and seal what comes of records, as their worker does before it commits their offsets."""
        self.put(those)

        def nothing_committed(_tp: TP) -> Committed:
            return Committed(None, None)

        async def acknowledge(those: Sequence[Output]) -> None:
            self.put(those)

        class Signer:
            key = ed25519.new_private_key()

            def key_id(self, _at: datetime) -> str:
                return "gate-seals"

            async def sign(self, _key_id: str, data: bytes) -> bytes:
                return ed25519.sign(self.key, data)

        if self._sealer is None:
            clock = partial(datetime, 2026, 1, 31, tzinfo=UTC)
            self._sealer = Sealer(
                Signer(), acknowledge, nothing_committed, Health(), keep=AsyncMock(), now=clock
            )
        first, last = records[0], records[-1]
        tp = TP(first.topic or "", first.partition)
        loop: Any = SimpleNamespace(tp=tp, book=SimpleNamespace(first_offset=first.offset))
        entries = [Entry(record, 0.0) for record in records]
        batch = Batch(loop, entries, Mock(), originals=list(records), published=list(those))
        await self._sealer.before_batch(batch)
        self._sealer.after_publish(batch)
        await self._sealer.before_commit({tp: (last.offset + 1, "")})

    def put(self, those: Sequence[Output]) -> None:
        for output in those:
            output.partition = 0
            seen = self._append(output.topic, output.key, output.value, output.headers)
            if output.topic in {"approved", "review", "blocked"}:
                self.publish(Decision.model_validate_json(seen.value or b""))

    def _append(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> Seen:
        log = self.records.setdefault(str(topic), [])
        self.offset += 1
        self.clock += 1
        seen = Seen(str(topic), 0, len(log), 1_769_860_800_000 + self.offset, key, value, tuple(headers))
        log.append(seen)
        self.seen_at[place_of(seen)] = self.clock
        return seen


def a_run(seed: int = 1, count: int = 150) -> tuple[Run, dict[Subject, SubjectStatus | None]]:
    async def made() -> tuple[Run, dict[Subject, SubjectStatus | None]]:
        run = Run(verifier=verifier(urls={f"{PAGE}/ok/{number}": 200 for number in range(1000)}))
        await run.feed(seed, count)
        return run, await run.statuses()

    return asyncio.run(made())
