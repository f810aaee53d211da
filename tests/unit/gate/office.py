"""A world in which people decide too: a gate for reviews, what was published, and the topics to rebuild from."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.outputs import outputs
from groundwire.gate.reviews import ReviewGate
from groundwire.gate.types import Acted, DecisionQuery, Refused, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import DECISIONS
from tests.unit.gate.world import World

KEYS = """
[keys.console]
secret = "one"
tenants = ["default", "acme"]
roles = ["reviewer"]

[keys.gate]
secret = "two"
tenants = ["nobody"]
roles = ["reviewer"]

[keys.docs]
secret = "three"
tenants = ["default"]
sources = ["documentation"]

[keys.late]
secret = "four"
tenants = ["default"]
roles = ["reviewer"]
not_after = 2026-01-01T00:00:00Z

[reviewers]
default = ["lead"]
"""
TEXT = "The ingest service retries every failed upload five times"
ASKING = Policy(verification={"on_failure": "ask"})  # type: ignore[arg-type]


@dataclass
class Office(World):
    """A gate for claims, one for reviews, and what both have published."""

    keys: Keys = field(default_factory=lambda: Keys.parse(KEYS.encode(), __file__))  # type: ignore[arg-type]
    published: dict[tuple[Verdict, str], Decision] = field(default_factory=dict)
    asked: list[DecisionQuery] = field(default_factory=list)

    async def find(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        self.asked += wanted
        those = [self.published.get((one.verdict, one.decision_id)) for one in wanted]
        return {d.decision_id: Decision.model_validate_json(d.to_bytes()) for d in those if d is not None}

    @property
    def reviews(self) -> ReviewGate:
        return ReviewGate(
            self.policy,
            self.policies,
            self.state,
            keys=self.keys,
            find=self.find,
            own_key="gate",
            now=self.now,
        )

    async def decide(self, *records: InboundRecord) -> list[Decision]:
        decisions = await super().decide(*records)
        self.publish(*decisions)
        return decisions

    def publish(self, *decisions: Decision) -> None:
        for decision in decisions:
            self.published[decision.verdict, decision.decision_id] = decision

    def action(
        self, action: str, decision: Decision, *, key: str | None = "console", **fields: Any
    ) -> InboundRecord:
        review = {
            "action_id": str(uuid.uuid4()),
            "tenant_id": decision.tenant_id,
            "user_id": decision.user_id,
            "kind": decision.kind,
            "subject_id": decision.subject_id,
            "expected_revision": decision.revision,
            "action": action,
            "reviewer": decision.user_id,
            **fields,
        }
        value = json.dumps(review).encode()
        headers = [("gw-attestation", self.keys.sign(key, value))] if key else []
        return self.record(value, headers=tuple(headers), topic="groundwire.review-decisions")

    async def carry_out(self, *records: InboundRecord) -> list[Result]:
        gate = self.reviews
        results = await gate.apply_step(await gate.prepare(records))
        self.publish(*(result.decision for result in results if isinstance(result, Acted)))
        return results

    async def act(self, action: str, decision: Decision, **fields: Any) -> Acted:
        (result,) = await self.carry_out(self.action(action, decision, **fields))
        assert isinstance(result, Acted), result
        return result

    async def refused(self, action: str, decision: Decision, **fields: Any) -> Refused:
        (result,) = await self.carry_out(self.action(action, decision, **fields))
        assert isinstance(result, Refused), result
        return result


class Topics(dict[TopicName, list[bytes]]):
    """What stands on the output topics."""

    def put(self, *results: Result | Decision) -> None:
        for result in results:
            if isinstance(result, Decision):
                self.setdefault(TopicName.of(result.verdict), []).append(result.to_bytes())
                continue
            for output in outputs([result]):
                self.setdefault(output.topic, []).append(output.value or b"")

    async def read(self, *, topics: Iterable[TopicName] = DECISIONS) -> AsyncGenerator[bytes, None]:
        for topic in topics:
            for value in self.get(topic, []):
                yield value
