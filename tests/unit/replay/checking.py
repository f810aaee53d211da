"""What tests of verification and replay share: a reader of what is published, and short ways to derive it again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groundwire.messages.decisions import Decision
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Limits, Policy
from groundwire.replay.reading import Rate
from groundwire.replay.report import FileWriter, Summary
from groundwire.replay.run import Replayer, Task
from groundwire.replay.store import FileRecords, Job, OffsetRange, ReplayOrder, decision_lines
from groundwire.replay.verify import Verifier, VerifyFinding, VerifyStatus, verify_files, verify_topics
from groundwire.state.policies import PolicyStore
from tests.unit.gate.world import TOPIC, claim_bytes
from tests.unit.replay.town import Town, published_record, town

TEXT = "The cache holds nine shards of the ledger"
EVIL = "Nobody ever approved this text"
EQUAL, DIFFERS, MISSING, CONTRADICTED = (
    *(VerifyStatus.EQUAL, VerifyStatus.DIFFERS, VerifyStatus.MISSING),
    VerifyStatus.CONTRADICTED,
)
ORDER = ReplayOrder("again", [TOPIC], "earliest", "latest", None, simulate=False, output="out")


class Shelf:
    """Reads records of a town, and what is published, as a reader reads topics."""

    def __init__(
        self,
        place: Town,
        published: Sequence[InboundRecord],
        since: int,
        inputs: int,
        erasure: Erasure | None,
    ) -> None:
        self.place, self.published, self.erasure = place, published, erasure
        self.since, self.inputs = since, inputs

    async def plan(self, topics: Sequence[str], start: object, _end: object) -> list[OffsetRange]:
        first = 0 if start == "earliest" else self.since
        if not topics[0].endswith(("approved", "review", "blocked")):
            first = self.inputs
        return [OffsetRange(topic, 0, first, len(self.published)) for topic in topics]

    async def read(
        self, job: Job, _inside: object, outputs: Sequence[OffsetRange], *, everything: bool
    ) -> None:
        if self.erasure:
            job.note_erasure(self.erasure)
        for record in self.place.log:
            job.add_record(record, inside=True)
        for name in self.place.ends:
            job.add_end(name)
        starts = {stretch.topic: stretch.start for stretch in outputs}
        for record in self.published:
            if record.offset >= starts.get(record.topic or "", 0):
                job.add_decision(record, inside={}, everything=everything)


async def on_topics(
    place: Town,
    values: Sequence[bytes | InboundRecord],
    folder: Path,
    *,
    since: int = 0,
    inputs: int = 0,
    erasure: Erasure | None = None,
    **options: Any,
) -> list[VerifyFinding]:
    """Verify what is published, in this order; `inputs` is where retention has left the input topics."""
    await place.policies.put(place.policy)
    published = [
        one if isinstance(one, InboundRecord) else published_record(one, number)
        for number, one in enumerate(values)
    ]
    shelf: Any = Shelf(place, published, since, inputs, erasure)
    (folder / "verify").unlink(missing_ok=True)
    found = verify_topics(shelf, "groundwire.", since or "earliest", place.policies, folder, **options)  # type: ignore[arg-type]
    return [placed.finding async for placed in found]


async def in_files(place: Town, folder: Path, values: Sequence[bytes] | None = None) -> list[VerifyFinding]:
    """Verify decisions of a file; None: all that the town has published."""
    await place.policies.put(place.policy)
    decisions, records, policies = place.write(folder)
    if values is not None:
        decisions.write_bytes(b"".join(value + b"\n" for value in values))
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        return [placed.finding async for placed in verify_files(found, verifier, decisions)]


def statuses(findings: Sequence[VerifyFinding]) -> list[VerifyStatus]:
    return [finding.status for finding in findings]


def latest(place: Town, name: str) -> Decision:
    return next(d for d in place.current() if d.subject_id == name)


def otherwise(decision: Decision, **fields: Any) -> bytes:
    plain = json.loads(decision.to_bytes()) | fields
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()


def with_text(decision: Decision, text: str, **fields: Any) -> bytes:
    evidence = json.loads(decision.to_bytes())["evidence"] | {"claim": text}
    return otherwise(decision, evidence=evidence, **fields)


async def one_claim(folder: Path, *actions: str, source: str = "user") -> tuple[Town, Decision]:
    """A town with one claim, and what people did about it; an edit gives it another text."""
    place = town(folder)
    await place.send(place.record(claim_bytes("c", TEXT, source=source)))
    for action in actions:
        fields = {"edit": {"content": "The cache holds ten shards"}, "retract": {"reason": "wrong"}}
        await place.act(place.action(action, latest(place, "c"), **fields.get(action, {})))
    return place, latest(place, "c")


async def decided_again(folder: Path) -> tuple[Town, Decision]:
    """A claim that was refused for want of a place, and waits now; there is another's approved record too."""
    place = town(folder)
    place.policy = Policy(limits=Limits(review_per_user=1))
    await place.send(
        place.record(claim_bytes("other", "Something else entirely waits", source="ai_synthesis")),
        place.record(claim_bytes("c", TEXT, source="ai_synthesis", metadata={"n": 1})),
        place.record(claim_bytes("free", "Another record altogether", source="user")),
    )
    await place.act(place.action("reject", latest(place, "other")))
    await place.send(place.record(claim_bytes("c", TEXT, source="ai_synthesis", metadata={"n": 2})))
    assert latest(place, "c").revision == 2
    return place, latest(place, "c")


class Interrupted(Exception):
    """A power cut."""


async def run(
    job: Job, output: Path, task: Task, *, stop_at: int = -1, report: Any = lambda *_: None
) -> Summary:
    """Replay a job; the write of the record number `stop_at` fails."""

    class Writer(FileWriter):
        count = 0

        async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:
            self.count += 1
            if self.count == stop_at:
                self._file.write(b"half a li")
                raise Interrupted
            await super().write(record, decision, value)

    writer = Writer(output)
    try:
        return await Replayer(job, task, writer, Rate(None), report).run()
    finally:
        writer.close()


async def verified(folder: Path, policies: Path) -> list[VerifyFinding]:
    """Verify the decisions of a folder one by one."""
    with FileRecords(folder / "records.jsonl", folder / "decisions.jsonl") as found:
        verifier = Verifier(found, PolicyStore(policies, None))
        return [await verifier.verify(value) for _, value in decision_lines(folder / "decisions.jsonl")]
