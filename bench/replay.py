"""How fast decisions are replayed and verified, beside only decoding them: `python bench/replay.py [count]`.

Ratios count, not seconds: each is taken on the same machine in the same run.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from claims import claims

from groundwire.attestation import Keys
from groundwire.gate.gate import Gate
from groundwire.gate.results import Decided
from groundwire.messages.base import from_milliseconds
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import decode_claim
from groundwire.messages.headers import decision_headers
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import record_key
from groundwire.policies import PolicyStore
from groundwire.policy import Policy
from groundwire.replay.files import FileRecords, decision_lines
from groundwire.replay.job import Job, Order
from groundwire.replay.rate import Rate
from groundwire.replay.run import Known, Replayer, Task
from groundwire.replay.spool import Stretch
from groundwire.replay.verify import Status, Verifier
from groundwire.replay.writers import FileWriter
from groundwire.state.memory import MemoryState
from groundwire.verify.citations import CitationVerifier

TOPIC = "groundwire.claims"
BATCH = 500
START = 1_770_000_000_000


async def decide(count: int) -> list[tuple[InboundRecord, Decision]]:
    """Decide claims as a worker does."""
    now = from_milliseconds(START)
    gate = Gate(
        Policy(),
        PolicyStore(None, None),
        MemoryState(),
        CitationVerifier({}, network=False),
        keys=Keys.empty(),
        now=lambda: now,
    )
    found: list[tuple[InboundRecord, Decision]] = []
    batch: list[InboundRecord] = []
    for number, (key, value) in enumerate(claims(count)):
        batch.append(InboundRecord(TOPIC, 0, number, START + number, key, value))
        if len(batch) == BATCH or number == count - 1:
            results = await gate.settle(await gate.prepare(batch))
            found += [(r.record, r.decision) for r in results if isinstance(r, Decided)]
            batch = []
    return found


def spool(job: Job, decided: list[tuple[InboundRecord, Decision]]) -> None:
    """Put into a job what its reader would have read."""
    inside = {(TOPIC, 0): Stretch(TOPIC, 0, 0, len(decided))}
    for start in range(0, len(decided), BATCH):
        job.begin()
        for record, decision in decided[start : start + BATCH]:
            job.spool.add_record(record, inside=True)
            key = record_key(decision.tenant_id, decision.user_id)
            place = f"groundwire.{decision.verdict}", 0, record.offset, START
            headers = decision_headers(decision, ())
            published = InboundRecord(*place, key, decision.to_bytes(), headers)
            job.spool.add_decision(published, inside=inside, everything=False)
        job.commit()


async def replay(job: Job, output: Path) -> None:
    """Replay a job."""
    task = Task("bench", Known([Policy()], PolicyStore(None, None)))
    writer = FileWriter(output)
    summary = await Replayer(job, task, writer, Rate(None), lambda *_: None).run()
    writer.close()
    if summary.statuses != {Status.EQUAL: summary.records}:
        raise SystemExit(f"decisions differ: {summary.as_json()}")


async def verify(folder: Path) -> None:
    """Verify files."""
    decisions, records = folder / "decisions.jsonl", folder / "records.jsonl"
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, Known([Policy()], PolicyStore(None, None)))
        for _, value in decision_lines(decisions):
            if (await verifier.verify(value)).status is not Status.EQUAL:
                raise SystemExit("a decision differs")


async def main(count: int) -> None:
    """Measure and print."""
    decided = await decide(count)
    with TemporaryDirectory() as name:
        folder = Path(name)
        lines = [(record.value or b"", decision.to_bytes()) for record, decision in decided]
        (folder / "records.jsonl").write_bytes(b"".join(value + b"\n" for value, _ in lines))
        (folder / "decisions.jsonl").write_bytes(b"".join(value + b"\n" for _, value in lines))
        times = {"decode": time.perf_counter()}
        for value, decision in lines:
            decode_claim(value)
            Decision.model_validate_json(decision)
        times["decode"] = time.perf_counter() - times["decode"]
        order = Order("bench", [TOPIC], "earliest", "latest", None, simulate=False, output=None)
        with Job(folder / "job", order) as job:
            start = time.perf_counter()
            spool(job, decided)
            times["spool"] = time.perf_counter() - start
            start = time.perf_counter()
            await replay(job, folder / "out")
            times["replay"] = time.perf_counter() - start
        start = time.perf_counter()
        await verify(folder)
        times["verify"] = time.perf_counter() - start
    for what, seconds in times.items():
        print(
            f"{what:>7}: {count / seconds:>8.0f} decisions/s,"
            f" {seconds / times['decode']:.1f} times as long as decoding records and decisions"
        )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 50_000))
