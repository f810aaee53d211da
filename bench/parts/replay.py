"""How fast decisions are replayed and verified, beside only decoding records and decisions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.claims import claims
from bench.inside import batches, new_gate
from bench.measure import Figure, Options, Part, Race
from groundwire.gate.types import Decided
from groundwire.kafka.reader import OffsetRange
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import decode_claim
from groundwire.messages.headers import InboundRecord, decision_headers
from groundwire.messages.topics import record_key
from groundwire.policy import Policy
from groundwire.replay.reading import Rate
from groundwire.replay.report import FileWriter
from groundwire.replay.run import Replayer, Task
from groundwire.replay.store import FileRecords, Job, ReplayOrder, decision_lines
from groundwire.replay.verify import Verifier, VerifyStatus
from groundwire.state.policies import KnownPolicies, PolicyStore

TOPIC: Final = "claims"
Found = Sequence[tuple[InboundRecord, Decision]]


async def run(options: Options) -> AsyncIterator[Figure]:
    decided = await decide(options.of(2_000, 10_000))
    known = KnownPolicies([Policy()], PolicyStore(None, None))
    race = Race("decisions/s")
    race.add("decoding records and decisions", lambda: _decode(decided))
    race.add("replay from the job file to a file", lambda: _replay(decided, known))
    race.add("verify from files", lambda: _verify(decided, known))
    for figure in await race.figures(options.rounds):
        yield figure


async def decide(count: int) -> Found:
    gate, found = new_gate(Policy()), []
    for batch in batches(claims(count)):
        results = await gate.apply_step(await gate.prepare(batch))
        found += [(r.record, r.decision) for r in results if isinstance(r, Decided)]
    return found


def _decode(decided: Found) -> float:
    pairs = [(record.value or b"", decision.to_bytes()) for record, decision in decided]
    began = time.perf_counter()
    for value, decision in pairs:
        decode_claim(value)
        Decision.model_validate_json(decision)
    return len(pairs) / (time.perf_counter() - began)


async def _replay(decided: Found, known: KnownPolicies) -> float:
    order = ReplayOrder("bench", [TOPIC], "earliest", "latest", None, simulate=False, output=None)
    with TemporaryDirectory() as name, Job(Path(name, "job"), order) as job:
        _store(job, decided)
        began = time.perf_counter()
        writer = FileWriter(Path(name, "out"))
        summary = await Replayer(job, Task("bench", known), writer, Rate(None), lambda *_: None).run()
        writer.close()
        if summary.statuses != {VerifyStatus.EQUAL: summary.records}:
            raise SystemExit(f"decisions differ: {summary.as_json()}")
        return len(decided) / (time.perf_counter() - began)


def _store(job: Job, decided: Found) -> None:
    """Put into a job what its reader would have read."""
    inside = {(TOPIC, 0): OffsetRange(TOPIC, 0, 0, len(decided))}
    with job.transaction():
        for record, decision in decided:
            job.add_record(record, inside=True)
            place = f"groundwire.{decision.verdict}", 0, record.offset, record.timestamp
            key = record_key(decision.tenant_id, decision.user_id)
            published = InboundRecord(*place, key, decision.to_bytes(), decision_headers(decision, ()))
            job.add_decision(published, inside=inside, everything=False)


def _files(folder: Path, decided: Found) -> tuple[Path, Path]:
    records, decisions = folder / "records.jsonl", folder / "decisions.jsonl"
    records.write_bytes(b"".join((record.value or b"") + b"\n" for record, _ in decided))
    decisions.write_bytes(b"".join(decision.to_bytes() + b"\n" for _, decision in decided))
    return records, decisions


async def _verify(decided: Found, known: KnownPolicies) -> float:
    with TemporaryDirectory() as name:
        records, decisions = _files(Path(name), decided)
        began = time.perf_counter()
        with FileRecords(records, decisions) as found:
            verifier = Verifier(found, known)
            for _, value in decision_lines(decisions):
                if (await verifier.verify(value)).status is not VerifyStatus.EQUAL:
                    raise SystemExit("a decision differs")
        return len(decided) / (time.perf_counter() - began)


PART = Part("replay", "replay and verification of decisions, beside only decoding them", run)
