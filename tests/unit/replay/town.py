"""A town: a gate for claims and responses, one for reviews, and random life in it, with all that was published."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.outputs import outputs
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate.lookups import TenantCorpus
from groundwire.gate.reviews import ReviewGate
from groundwire.gate.types import Acted, DeadLetter, Decided, DecisionQuery, Provisional, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import InboundRecord, decision_headers
from groundwire.messages.identity import expire_id
from groundwire.messages.topics import TopicName, record_key
from groundwire.policy import Hedges, Limits, Policy
from groundwire.replay.store import Job, OffsetRange, RecordPlace
from groundwire.state.memory import MemoryState
from groundwire.state.policies import PolicyStore
from tests.unit.gate.world import (
    RESPONSES,
    TOPIC,
    World,
    adr_folder,
    chunk,
    claim_bytes,
    response_bytes,
    verifier,
)

KEYS = """
[keys.console]
secret = "one"
tenants = ["default"]
sources = ["user", "documentation"]
roles = ["reviewer"]

[keys.gate]
secret = "two"
tenants = ["nobody"]
roles = ["reviewer"]

[reviewers]
default = ["lead"]
"""
REVIEWS = "groundwire.review-decisions"

POLICIES = (
    Policy(limits=Limits(review_per_user=2)),
    Policy(version="strict", verify_claim_relevance=True, attestation="hmac", dedup_threshold=0.8),
    Policy(version="asking", verification=VerificationConfig(on_failure="ask"), check_values=False),
    Policy(version="off", enable_dedup=False, hedges=Hedges(block=("zork",)), require_source_tags=True),
    Policy(
        dedup_scope="user",
        dedup_method="partition",
        dedup_material_difference=False,
        on_critical="block",
        verification=VerificationConfig(gap_threshold_bits=4.5, on_failure="retry"),
    ),
)

WORDS = (
    *("service", "queue", "token", "cache", "shard", "replica", "cluster"),
    *("ledger", "parser", "router", "broker", "schema", "index", "vector"),
)
ASIDES = (
    *("", "", "", ""),
    " by the way.",
    " Maybe.",
    " This might be slow.",
    " I think so.",
    " See ADR-003.",
    " See ADR-999 and ADR-003.",
    " See https://docs.example/a for more.",
    " zork",
)
SOURCES = ("user", "ai_synthesis", "documentation", "conversation", "chat", "agent-7")


class SmallCorpus:
    """Knows one entity and one relation."""

    async def entities(self, _tenant: str, ids: Sequence[str], /) -> dict[str, Any]:
        return {name: {"confidence": 0.9, "role": "service"} for name in ids if name == "e1"}

    async def relations(self, _tenant: str, _pairs: Any, /) -> list[dict[str, Any]]:
        return [{"subject": "a", "relation": "calls", "object": "b"}]


@dataclass
class Town(World):
    keys: Keys = field(default_factory=lambda: Keys.parse(KEYS.encode(), __file__))  # type: ignore[arg-type]
    published: dict[str, Decision] = field(default_factory=dict)
    log: list[InboundRecord] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(1))

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

    async def find(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        those = [self.published.get(one.decision_id) for one in wanted]
        return {d.decision_id: Decision.model_validate_json(d.to_bytes()) for d in those if d is not None}

    def record(self, value: bytes | None, **options: Any) -> InboundRecord:
        record = super().record(value, **options)
        self.log.append(record)
        return record

    async def send(self, *records: InboundRecord) -> list[Result]:
        results = await self.results(*records)
        self.publish(results)
        return results

    async def outage(self, *records: InboundRecord) -> None:
        """Decide provisionally."""
        gate = self.gate
        self.publish(gate.provisional(await gate.prepare(records)))

    async def act(self, *records: InboundRecord) -> list[Result]:
        gate = self.reviews
        results = await gate.apply_step(await gate.prepare(records))
        self.publish(results)
        return results

    def publish(self, results: Sequence[Result]) -> None:
        for result in results:
            if isinstance(result, Decided | Provisional | Acted):
                before = self.published.setdefault(result.decision.decision_id, result.decision)
                assert before.to_bytes() == result.decision.to_bytes()
            if isinstance(result, DeadLetter):
                at = result.record
                self.ends.append(str(RecordPlace.of(at)))
        events = [output for output in outputs(results) if output.topic == TopicName.AUDIT]
        self.ends += [dict(event.headers)["ce_id"].decode() for event in events if b"_action" in event.value]

    def action(self, action: str, decision: Decision, **fields: Any) -> InboundRecord:
        expires = action == "expire"
        review = {
            "action_id": expire_id(decision.decision_id) if expires else str(uuid.UUID(int=self.offset)),
            "tenant_id": decision.tenant_id,
            "user_id": decision.user_id,
            "kind": decision.kind,
            "subject_id": decision.subject_id,
            "expected_revision": decision.revision,
            "action": action,
            "reviewer": "groundwire" if expires else "lead",
            **fields,
        }
        value = json.dumps(review).encode()
        headers = (("gw-attestation", self.keys.sign("gate" if expires else "console", value)),)
        return self.record(value, headers=headers, topic=REVIEWS)

    def claim_of_chance(self, number: int) -> InboundRecord:
        draw = self.random
        fields: dict[str, Any] = {"source": draw.choice(SOURCES), "user_id": draw.choice(["ada", "bob"])}
        if draw.random() < 0.3:
            fields["memory_type"] = draw.choice(["fact", "preference", "decision"])
        if draw.random() < 0.2:
            fields["captured_at"] = "2026-01-30T10:00:00.123456+02:00"
        if draw.random() < 0.1:
            fields["validity_horizon"] = draw.choice(["2026-01-31T12:00:10Z", "2027-01-01T00:00:00Z"])
        if draw.random() < 0.15:
            fields["derived_from"] = draw.sample(
                ["c1", "c2", "c3", "c4", "response:r5", "x" * 200], draw.randint(1, 3)
            )
        if draw.random() < 0.3:
            fields["metadata"] = {"a b": [1, 1.5, None, {"ä": True}]}
        if draw.random() < 0.2:
            fields["source_id"] = draw.choice(["ADR-003", "doc-7"])
        topic = draw.randrange(5)
        base = random.Random(topic)
        text = f"The {' '.join(base.choices(WORDS, k=18))} keeps {draw.choice([4, 4, 4, 5])} ms"
        value = claim_bytes(f"c{number}", text + draw.choice(ASIDES), **fields)
        signed = draw.random() < 0.5
        headers = (("gw-attestation", self.keys.sign("console", value)),) if signed else ()
        return self.record(value, headers=headers)

    def response_of_chance(self, number: int) -> InboundRecord:
        draw = self.random
        offers: dict[str, Any] = {
            "chunks": [chunk("def search(q):\n    return 5 ms"), chunk("index is 7", "b.py", revision="r1")],
            "sources": [{"file": "src/search.py", "snippet": "def search"}, {"file": "nowhere.py"}],
            "current_revisions": {"b.py": draw.choice(["r1", "r2"])},
            "transcript": "We said that the index is fast and that it holds.",
            "evidence": {"z": ["the index is fast"], "a": ["never said"]},
            "entities": [{"id": "e1"}, {"id": draw.choice(["e1", "e2"])}],
            "claims": [{"subject": "a", "relation": draw.choice(["calls", "owns"]), "object": "b"}],
            "confidence": draw.choice([0.2, 0.45, 0.65, 0.95, 1]),
            "mode": draw.choice(["instant", "auto", "thinking"]),
            "query": "how fast?",
            "fan_out": True,
            "in_reply_to": draw.choice(["r1", "r5", "nobody"]),
            "metadata": {"k": 1},
            "context": {"k2": "The index is fast, and holds 5 entries.", "k1": "It takes 5 ms."},
            "steps": [{"claim": "The index is fast.", "cites": [draw.choice(["k2", "k9"])]}],
            "verify": draw.random() < 0.9,
        }
        chosen = draw.sample(sorted(offers), draw.randrange(len(offers)))
        answer = draw.choice(
            [
                "The index is fast. It takes 5 ms [source:1].",
                "No.",
                "It has a field `limit` [source:9]. 8 ms.",
            ]
        )
        value = response_bytes(f"r{number}", answer, **{name: offers[name] for name in chosen})
        return self.record(value, topic=RESPONSES)

    def action_of_chance(self, decision: Decision) -> InboundRecord:
        draw = self.random
        if decision.verdict == Verdict.APPROVED:
            return self.action("retract", decision, reason=draw.choice([None, "wrong"]) or "gone")
        action = draw.choice(["approve", "edit", "reject", "expire"])
        if action == "edit" and decision.kind == "claim":
            topic = random.Random(draw.randrange(5))
            text = f"The {' '.join(topic.choices(WORDS, k=18))} keeps {draw.choice([6, 7])} ms"
            return self.action("edit", decision, content=text + draw.choice(["", " See ADR-003."]))
        return self.action("approve" if action == "edit" else action, decision)

    def current(self) -> list[Decision]:
        """The highest revision of each subject, in no order."""
        latest: dict[tuple[str, str, str, str], Decision] = {}
        for decision in self.published.values():
            subject = decision.tenant_id, decision.user_id, decision.kind, decision.subject_id
            if subject not in latest or latest[subject].revision < decision.revision:
                latest[subject] = decision
        return list(latest.values())

    async def live(self, days: int) -> None:
        """Let so many batches of records come, of every kind, with outages, people and changes of policy between."""
        for _ in range(days):
            self.policy = self.random.choice(POLICIES)
            await self.policies.put(self.policy)
            records = [
                self.claim_of_chance(self.random.randrange(60))
                if self.random.random() < 0.7
                else self.response_of_chance(self.random.randrange(30))
                for _ in range(self.random.randint(1, 6))
            ]
            if self.random.random() < 0.2:
                await self.outage(*records)
            await self.send(*records)
            if self.random.random() < 0.4:  # what was refused, or joined, is sent again
                await self.send(
                    *(self.again(record) for record in self.random.sample(self.log, min(3, len(self.log))))
                )
            possible = [d for d in self.current() if d.revision and d.verdict != Verdict.BLOCKED]
            chosen = self.random.sample(possible, min(len(possible), self.random.randrange(4)))
            await self.act(*(self.action_of_chance(decision) for decision in chosen))

    def again(self, record: InboundRecord) -> InboundRecord:
        """Send a record again: the same, but for what does not decide it."""
        if record.topic == REVIEWS:
            return self.claim_of_chance(99)
        value = json.loads(record.value or b"")
        value["metadata"] = {"again": self.offset}
        return self.record(json.dumps(value).encode(), topic=str(record.topic))

    def store_in(self, job: Job, start: int = 0, end: int = 1_000_000) -> list[OffsetRange]:
        """Put into a job what its reader would have found of the offsets from `start` up to `end`."""
        stretches = [OffsetRange(topic, 0, start, end) for topic in (TOPIC, RESPONSES, REVIEWS)]
        inside = {(stretch.topic, 0): stretch for stretch in stretches}
        for record in self.log:
            job.add_record(record, inside=start <= record.offset < end)
        for number, decision in enumerate(self.published.values()):
            published = published_record(decision.to_bytes(), number)
            job.add_decision(published, inside=inside, everything=True)
        for name in self.ends:
            job.add_end(name)
        return stretches

    def write(self, folder: Path) -> tuple[Path, Path, Path]:
        """Write decisions, records and policies as `groundwire verify` reads them."""
        decisions, records, policies = (
            folder / "decisions.jsonl",
            folder / "records.jsonl",
            folder / "policies",
        )
        decisions.write_bytes(b"".join(d.to_bytes() + b"\n" for d in self.published.values()))
        records.write_bytes(b"".join((r.value or b"") + b"\n" for r in self.log))
        return decisions, records, policies


def published_record(value: bytes, offset: int) -> InboundRecord:
    """A decision as the gate publishes it."""
    decision = Decision.model_validate_json(value)
    key = record_key(decision.tenant_id, decision.user_id)
    topic, headers = f"groundwire.{decision.verdict}", decision_headers(decision, ())
    return InboundRecord(topic, 0, offset, 0, key, value, headers)


def town(folder: Path, seed: int = 1) -> Town:
    """Return a town that keeps its policies in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    adrs = adr_folder(folder / "adr", ADR_003="The service queue token cache shard replica keeps ms")
    return Town(
        policies=PolicyStore(folder / "policies", None),
        state=MemoryState(),
        verifier=verifier(adr_dir=adrs, urls={"https://docs.example/a": 200}),
        resolver=TenantCorpus(SmallCorpus(), frozenset({"*"})),
        random=random.Random(seed),
    )
