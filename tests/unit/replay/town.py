"""A town: gates with random traffic, all that they published, and ways to verify and replay it."""

from __future__ import annotations

import json
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

from agents.outputs import outputs
from groundwire.epistemic.types import VerificationConfig
from groundwire.gate.types import Acted, DeadLetter, Decided, Provisional
from groundwire.kafka.reader import OffsetRange, RecordPlace
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import InboundRecord, decision_headers
from groundwire.messages.identity import expire_id, subject_of_decision
from groundwire.messages.topics import TopicName, record_key
from groundwire.policy import Hedges, Limits, Policy
from groundwire.replay.reading import Rate
from groundwire.replay.report import FileWriter
from groundwire.replay.run import Replayer
from groundwire.replay.store import FileRecords, ReplayOrder, decision_lines
from groundwire.replay.verify import Verifier, verify_files, verify_topics
from groundwire.state.memory import MemoryState
from groundwire.state.policies import PolicyStore
from tests.unit.gate.office import Office
from tests.unit.gate.world import (
    RESPONSES,
    TOPIC,
    adr_folder,
    chunk,
    claim_bytes,
    resolver,
    response_bytes,
    verifier,
)

REVIEWS = "groundwire.review-decisions"
INPUTS = (TOPIC, RESPONSES, REVIEWS)
TEXT = "The cache holds nine shards of the ledger"
EVIL = "Nobody ever approved this text"
ORDER = ReplayOrder("again", [TOPIC], "earliest", "latest", None, simulate=False, output="out")
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


@dataclass
class Town(Office):
    log: list[InboundRecord] = field(default_factory=list)
    ends: list[str] = field(default_factory=list)
    random: random.Random = field(default_factory=lambda: random.Random(1))

    @property
    def decisions(self):
        return {decision.decision_id: decision for decision in self.published.values()}

    def latest(self, name):
        return next(decision for decision in self.current() if decision.subject_id == name)

    def current(self):
        by_revision = sorted(self.published.values(), key=lambda decision: decision.revision)
        return list({subject_of_decision(decision): decision for decision in by_revision}.values())

    def record(self, value, **options):
        self.log.append(super().record(value, **options))
        return self.log[-1]

    async def send(self, *records):
        return self.note(await self.results(*records))

    async def act(self, *records):
        gate = self.reviews
        return self.note(await gate.apply_step(await gate.prepare(records)))

    def note(self, results):
        for result in results:
            if isinstance(result, Decided | Provisional | Acted):
                self.publish(result.decision)
            if isinstance(result, DeadLetter):
                self.ends.append(str(RecordPlace.of(result.record)))
        events = [output for output in outputs(results) if output.topic == TopicName.AUDIT]
        self.ends += [dict(event.headers)["ce_id"].decode() for event in events if b"_action" in event.value]
        return results

    def publish(self, *decisions):
        for decision in decisions:
            before = self.published.setdefault((decision.verdict, decision.decision_id), decision)
            assert before.to_bytes() == decision.to_bytes()

    def action(self, action, decision, **fields):
        given = {"action_id": str(uuid.UUID(int=self.offset)), "reviewer": "lead", "key": "console"}
        if action == "expire":
            expired = expire_id(decision.decision_id)
            given = {"action_id": expired, "reviewer": "groundwire", "key": "gate"}
        return super().action(action, decision, **given | fields)

    def claim_of_chance(self, number):
        draw = self.random
        parents = ["c1", "c2", "c3", "c4", "response:r5", "x" * 200]
        offers = {
            "memory_type": draw.choice(["fact", "preference", "decision"]),
            "captured_at": "2026-01-30T10:00:00.123456+02:00",
            "validity_horizon": draw.choice(["2026-01-31T12:00:10Z", "2027-01-01T00:00:00Z"]),
            "derived_from": draw.sample(parents, draw.randint(1, 3)),
            "metadata": {"a b": [1, 1.5, None, {"ä": True}]},
            "source_id": draw.choice(["ADR-003", "doc-7"]),
        }
        fields = {name: offers[name] for name in draw.sample(sorted(offers), draw.choice([0, 1, 1, 3]))}
        sources = ["user", "ai_synthesis", "documentation", "conversation", "chat", "agent-7"]
        fields |= {"source": draw.choice(sources), "user_id": draw.choice(["ada", "bob"])}
        value = claim_bytes(f"c{number}", self.text_of_chance([4, 4, 4, 5]), **fields)
        signed = draw.random() < 0.5
        headers = (("gw-attestation", self.keys.sign("docs", value)),) if signed else ()
        return self.record(value, headers=headers)

    def text_of_chance(self, limits):
        """Return one of five subjects, so that texts are alike, with a number and a remark that differ."""
        words = "service queue token cache shard replica cluster ledger parser router broker schema index "
        asides = "||| by the way.| Maybe.| This might be slow.| I think so.| See ADR-003.| See ADR-999 and "
        asides += "ADR-003.| See https://docs.example/a for more.| zork"
        subject = " ".join(random.Random(self.random.randrange(5)).choices((words + "vector").split(), k=18))
        return f"The {subject} keeps {self.random.choice(limits)} ms{self.random.choice(asides.split('|'))}"

    def response_of_chance(self, number):
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
        answers = ["The index is fast. It takes 5 ms [source:1].", "No."]
        answer = draw.choice([*answers, "It has a field `limit` [source:9]. 8 ms."])
        value = response_bytes(f"r{number}", answer, **{name: offers[name] for name in chosen})
        return self.record(value, topic=RESPONSES)

    async def live(self, days):
        """Send batches of records of every kind, with outages, retries, actions and changes of policy between."""
        draw = self.random
        for _ in range(days):
            self.policy = draw.choice(POLICIES)
            await self.policies.put(self.policy)
            kinds = (self.claim_of_chance, 60), (self.response_of_chance, 30)
            chosen = (kinds[draw.random() >= 0.7] for _ in range(draw.randint(1, 6)))
            records = [make(draw.randrange(most)) for make, most in chosen]
            if draw.random() < 0.2:
                gate = self.gate
                self.note(gate.provisional(await gate.prepare(records)))
            await self.send(*records)
            if draw.random() < 0.4:  # what was refused, or joined, comes again with other metadata
                olds = [one for one in self.log if one.topic != REVIEWS]
                for old in draw.sample(olds, min(3, len(records))):
                    value = json.loads(old.value or b"") | {"metadata": {"again": self.offset}}
                    await self.send(self.record(json.dumps(value).encode(), topic=str(old.topic)))
            possible = [one for one in self.current() if one.revision and one.verdict != Verdict.BLOCKED]
            actions = []
            for decision in draw.sample(possible, min(len(possible), draw.randrange(4))):
                action, fields = draw.choice(["approve", "edit", "reject", "expire"]), {}
                if decision.verdict == Verdict.APPROVED:
                    action, fields = "retract", {"reason": draw.choice(["wrong", "gone"])}
                elif action == "edit" and decision.kind == "claim":
                    fields = {"content": self.text_of_chance([6, 7])}
                elif action == "edit":
                    action = "approve"
                actions.append(self.action(action, decision, **fields))
            await self.act(*actions)

    def store_in(self, job, start=0, end=1_000_000):
        """Add to a job what its reader would have found of the offsets from `start` up to `end`."""
        ranges = [OffsetRange(topic, 0, start, end) for topic in INPUTS]
        inside = {(each.topic, 0): each for each in ranges}
        for record in self.log:
            job.add_record(record, inside=start <= record.offset < end)
        for number, decision in enumerate(self.published.values()):
            job.add_decision(published_record(decision.to_bytes(), number), inside=inside, everything=True)
        for name in self.ends:
            job.mark("ended", name)
        return ranges

    def write(self, folder, values=None):
        """Write decisions, by default all, and records as `groundwire verify` reads them."""
        values = [one.to_bytes() for one in self.published.values()] if values is None else values
        (folder / "decisions.jsonl").write_bytes(b"".join(value + b"\n" for value in values))
        (folder / "records.jsonl").write_bytes(b"".join((one.value or b"") + b"\n" for one in self.log))

    async def in_files(self, folder, values=None):
        await self.policies.put(self.policy)
        self.write(folder, values)
        return await verified(folder)

    async def on_topics(self, values, *, since=0, inputs=0, erasure=None, **options):
        """Verify what is published, in this order; `inputs` is where retention has left the input topics."""
        await self.policies.put(self.policy)
        published = [
            published_record(one, number) if isinstance(one, bytes) else one
            for number, one in enumerate(values)
        ]
        town = self

        class Reader:
            async def plan(self, topics, start, _end):
                first = inputs if topics[0] in INPUTS else 0 if start == "earliest" else since
                return [OffsetRange(topic, 0, first, len(published)) for topic in topics]

            async def read(self, job, _inside, outputs, **how):
                if erasure:
                    job.note_erasure(erasure)
                for record in town.log:
                    job.add_record(record, inside=True)
                for name in town.ends:
                    job.mark("ended", name)
                starts = {each.topic: each.start for each in outputs}
                for record in published:
                    if record.offset >= starts.get(record.topic or "", 0):
                        job.add_decision(record, inside={}, **how)

        found = verify_topics(Reader(), "groundwire.", since or "earliest", self.policies, **options)
        return [placed.finding async for placed in found]


def town(folder, seed=1):
    folder.mkdir(parents=True, exist_ok=True)
    adrs = adr_folder(folder / "adr", ADR_003="The service queue token cache shard replica keeps ms")
    relations = [{"subject": "a", "relation": "calls", "object": "b"}]
    return Town(
        policies=PolicyStore(folder / "policies", None),
        state=MemoryState(),
        verifier=verifier(adr_dir=adrs, urls={"https://docs.example/a": 200}),
        resolver=resolver({"e1": {"confidence": 0.9, "role": "service"}}, relations),
        random=random.Random(seed),
    )


async def one_claim(folder, *actions, source="user", said=TEXT):
    """Return a town with one claim after people's actions, and its decision; an edit changes the text."""
    place = town(folder)
    await place.send(place.record(claim_bytes("c", said, source=source)))
    for action in actions:
        fields = {"edit": {"content": "The cache holds ten shards"}, "retract": {"reason": "wrong"}}
        await place.act(place.action(action, place.latest("c"), **fields.get(action, {})))
    return place, place.latest("c")


async def decided_again(folder):
    """Return a town whose claim c was refused without a queue place, and is pending now; free is approved."""
    place = town(folder)
    place.policy = Policy(limits=Limits(review_per_user=1))
    await place.send(
        place.record(claim_bytes("other", "Something else entirely waits", source="ai_synthesis")),
        place.record(claim_bytes("c", TEXT, source="ai_synthesis", metadata={"n": 1})),
        place.record(claim_bytes("free", "Another record altogether", source="user")),
    )
    await place.act(place.action("reject", place.latest("other")))
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis", metadata={"n": 2})))
    assert place.latest("c").revision == 2
    return place, place.latest("c")


def published_record(value, offset):
    decision = Decision.model_validate_json(value)
    key = record_key(decision.tenant_id, decision.user_id)
    topic, headers = f"groundwire.{decision.verdict}", decision_headers(decision, ())
    return InboundRecord(topic, 0, offset, 0, key, value, headers)


def otherwise(decision, **fields):
    """Return a decision with other fields; of `origin` and `subject_origin` the given parts change."""
    plain = json.loads(decision.to_bytes())
    for name in ("origin", "subject_origin"):
        if isinstance(fields.get(name), dict):
            fields[name] = (plain[name] or {}) | fields[name]
    return json.dumps(plain | fields, ensure_ascii=False, separators=(",", ":")).encode()


def with_text(decision, text, **fields):
    evidence = json.loads(decision.to_bytes())["evidence"] | {"claim": text}
    return otherwise(decision, evidence=evidence, **fields)


def statuses(findings):
    return [finding.status for finding in findings]


async def verified(folder):
    decisions = folder / "decisions.jsonl"
    with FileRecords(folder / "records.jsonl", decisions) as records:
        verifier = Verifier(records, PolicyStore(folder / "policies", None))
        return [placed.finding async for placed in verify_files(records, verifier, decisions)]


async def replayed(job, output, task, *, stop_at=-1, report=lambda *_: None):
    """Replay a job; the write of the record number `stop_at` raises InterruptedError."""

    class Writer(FileWriter):
        count = 0

        async def write(self, record, decision, value):
            self.count += 1
            if self.count == stop_at:
                self._file.write(b"half a li")
                raise InterruptedError
            await super().write(record, decision, value)

    writer = Writer(output)
    try:
        return await Replayer(job, task, writer, Rate(None), report).run()
    finally:
        writer.close()


def lines(path):
    return [value for _, value in decision_lines(path)]
