"""A worker that dies anywhere between state and the topics leaves nothing out: the next one says all."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.outputs import outputs
from groundwire.messages.headers import InboundRecord
from tests.faults.checker import check, compare_state
from tests.unit.faults.unfaulted import Run


@dataclass
class Mortal(Run):
    """A run whose workers die: what they asked of state stands, and of what they say some records reach the topics."""

    deaths: random.Random = field(default_factory=random.Random)

    async def gate_decides(self, record: InboundRecord) -> None:
        while self.deaths.random() < 0.3:
            self._some_of(outputs(await self.results(record)))
        await super().gate_decides(record)

    async def people_decide(self, *records: InboundRecord) -> None:
        """Settle a batch as often as workers die over it, and once more."""
        while True:
            gate = self.review_gate
            said = outputs(await gate.apply_step(await gate.prepare(records)))
            if self.deaths.random() < 0.5:
                await self.publish(records[-1], said)
                return
            self._some_of(said)

    def _some_of(self, said: list[Any]) -> None:
        """Publish what a dying worker got through: of each topic the first records, as a partition keeps its order."""
        left = {output.topic: self.deaths.randrange(3) for output in said}
        for output in said:
            if left[output.topic]:
                left[output.topic] -= 1
                self.put([output])
            else:
                left[output.topic] = 0


@pytest.mark.slow
def test_each_revision_reaches_its_topic_however_often_workers_die_even_one_retracted_in_the_same_batch():
    async def mortal_run(seed: int) -> dict[str, Any]:
        rng = random.Random(seed)
        run = Mortal(deaths=random.Random(seed))
        for number in range(12):
            claim = {
                "claim_id": f"c{number}",
                "tenant_id": "acme",
                "user_id": f"u{number}",
                "content": f"Service {number} keeps its word",
                "source": "ai_synthesis",
            }
            key = f"acme:u{number}".encode()
            await run.gate_decides(run.stand("claims", key, json.dumps(claim).encode()))
        for decision in [seen.json for seen in run.records["review"]]:
            first = run.action(rng.choice(("approve", "edit", "approve", "reject")), decision)
            await run.people_decide(first, run.action("retract", decision, expected_revision=2))
        history = run.history()
        found = check(history) | {"state": list(compare_state(history, await run.statuses()))}
        return {promise: broken for promise, broken in found.items() if broken}

    assert [asyncio.run(mortal_run(seed)) for seed in range(4)] == [{}] * 4
