"""The gate in this process: everything of a worker but Kafka."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from agents.outputs import Output, outputs
from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.gate import Gate, Lookups
from groundwire.keys.attestation import Keys
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy
from groundwire.state.memory import MemoryState
from groundwire.state.model import State
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from groundwire.verify.citations import CitationVerifier

BATCH = 500
"""Records of a batch, as workers fetch them."""


def new_gate(policy: Policy, state: State | None = None) -> Gate:
    return Gate(
        policy,
        PolicyStore(None, None),
        state or MemoryState(),
        Lookups(CitationVerifier({}, network=False)),
        keys=Keys.empty(),
        now=lambda: datetime.now(UTC),
    )


@asynccontextmanager
async def fresh_state(url: str, prefix: str, policy: Policy) -> AsyncIterator[RedisState]:
    state = RedisState(connect(url), prefix, scheme=dedup_scheme(policy), partitions=1)
    await state.open()
    async with state.rebuilding() as rebuild:
        if rebuild is not None:
            await rebuild.start_epoch("bench")
    await state.adopt_epoch()
    try:
        yield state
    finally:
        await state.close()


def batches(values: Iterable[tuple[bytes, bytes]], size: int = BATCH) -> Iterator[list[InboundRecord]]:
    batch: list[InboundRecord] = []
    for offset, (key, value) in enumerate(values):
        batch.append(InboundRecord("claims", 0, offset, 1_700_000_000_000 + offset, key, value))
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


async def decide(gate: Gate, batch: Sequence[InboundRecord]) -> list[Output]:
    """Take a batch from bytes to bytes: decode, check, ask state, derive, encode."""
    return outputs(await gate.apply_step(await gate.prepare(batch)))


async def decide_all(gate: Gate, given: Iterable[Sequence[InboundRecord]]) -> list[Output]:
    return [output for batch in given for output in await decide(gate, batch)]
