"""Where a claim's time goes in this process: every stage of a batch, beside parsing and writing the same JSON.

Processor time of this process, so that what else runs on the machine counts little. State is in memory; what Redis
costs stands in the part `redis`, and what Kafka costs is the bare loop of the part `gate`.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents.outputs import outputs
from bench.claims import claims
from bench.inside import BATCH, batches, new_gate
from bench.measure import MICROSECONDS, Figure, Options, Part
from groundwire.checks.citations import CitationDetector
from groundwire.checks.hedges import HedgeDetector
from groundwire.gate.claim_case import dedup_query, read_claim
from groundwire.gate.types import Decided, PreparedClaim, canonical_form
from groundwire.messages.base import sha256_hex
from groundwire.messages.decode import decode_claim
from groundwire.policy import Policy

_SUM = (
    "prepare: decode, read, dedup keys",
    "apply_step: prejudge, state in memory, derive",
    "outputs: encode, headers",
)


@dataclass(slots=True)
class Clock:
    """Processor time of each stage, in microseconds a claim, one value for each batch."""

    times: dict[str, list[float]] = field(default_factory=dict)

    async def wait(self, name: str, work: Awaitable[Any]) -> Any:  # noqa: ANN401 - whatever the stage gives
        began = time.process_time()
        result = await work
        self._note(name, began)
        return result

    def each(self, name: str, work: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        began = time.process_time()
        result = [work(item) for item in items]
        self._note(name, began)
        return result

    def _note(self, name: str, began: float) -> None:
        self.times.setdefault(name, []).append((time.process_time() - began) / BATCH * MICROSECONDS)


async def run(options: Options) -> AsyncIterator[Figure]:
    clock, policy = Clock(), Policy()
    gate, partition = new_gate(policy), Policy.model_validate({"dedup_method": "partition"})
    for batch in batches(claims(options.of(4, 20) * BATCH)):
        values = [record.value or b"" for record in batch]
        clock.each("baseline: parse and write the JSON", lambda value: json.dumps(json.loads(value)), values)
        _checks(clock, values, policy, partition)
        prepared = await clock.wait(_SUM[0], gate.prepare(batch))
        asked = [entry for entry in prepared if isinstance(entry, PreparedClaim)]
        clock.each("&nbsp; step: prejudge, payload", gate._claims.step_of, asked)  # noqa: SLF001 - a stage of its own
        settled = await clock.wait(_SUM[1], gate.apply_step(prepared))
        decided = [result.decision for result in settled if isinstance(result, Decided)]
        clock.each("&nbsp; of outputs: the decision's JSON", lambda decision: decision.to_bytes(), decided)
        clock.each(_SUM[2], lambda result: outputs([result]), settled)
    for figure in _figures(clock.times):
        yield figure


def _checks(clock: Clock, values: Sequence[bytes], policy: Policy, partition: Policy) -> None:
    hedges, citations = HedgeDetector(), CitationDetector()
    found = clock.each("&nbsp; decode", decode_claim, values)
    clock.each("&nbsp; fingerprint", lambda claim: sha256_hex(canonical_form(claim)), found)
    clock.each("&nbsp; hedges", lambda claim: hedges.analyze(claim.content), found)
    clock.each("&nbsp; citations", lambda claim: citations.detect(claim.content), found)
    clock.each("&nbsp; hedges and citations, as read", lambda claim: read_claim(claim.content, policy), found)
    clock.each("&nbsp; dedup keys and signature, minhash", lambda claim: dedup_query(claim, policy), found)
    clock.each(
        "&nbsp; dedup keys and signature, partition", lambda claim: dedup_query(claim, partition), found
    )


def _figures(times: dict[str, list[float]]) -> list[Figure]:
    warm = {name: values[1:] for name, values in times.items()}  # the first batch warms up
    baseline = next(iter(warm.values()))
    warm["all three"] = [sum(values) for values in zip(*(warm[name] for name in _SUM), strict=True)]
    return [
        Figure(
            name,
            "µs/claim",
            values,
            ()
            if values is baseline
            else [base / value for base, value in zip(baseline, values, strict=True)],
            None,
            f"stages.{name}",
        )
        for name, values in warm.items()
    ]


PART = Part("stages", "where the time of a claim goes in this process, beside its JSON alone", run)
