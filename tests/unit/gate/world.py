"""A gate with everything around it in memory: records in, decisions out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.lookups import Assessor, TenantCorpus
from groundwire.gate.types import DeadLetter, Decided, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import Headers, InboundRecord
from groundwire.policy import Policy
from groundwire.state.memory import MemoryState
from groundwire.state.model import State
from groundwire.state.policies import PolicyStore
from groundwire.verify.citations import CitationVerifier, Sources
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.url import UrlChecker

NOW = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
TOPIC = "groundwire.claims"
RESPONSES = "groundwire.llm-responses"


def fake_urls(answers: dict[str, int]) -> UrlChecker:
    """Return a checker to whom each URL answers with its status; every other with 404."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(answers.get(str(request.url), 404))

    pacer = Pacer(PacingLimits(spacing=0.0))
    return UrlChecker(transport=httpx.MockTransport(answer), pacer=pacer, clock=lambda: NOW)


def adr_folder(path: Path, **records: str) -> Path:
    """Write ADR files: adr_folder(path, ADR_003="text") makes ADR-003-record.md."""
    path.mkdir(exist_ok=True)
    for name, text in records.items():
        (path / f"{name.replace('_', '-')}-record.md").write_text(text)
    return path


def verifier(
    adr_dir: Path | None = None, repo: Path | None = None, urls: dict[str, int] | None = None
) -> CitationVerifier:
    sources = {"*": Sources(adr_dir=adr_dir, repo=repo)}
    return CitationVerifier(sources, network=urls is not None, urls=fake_urls(urls or {}), clock=lambda: NOW)


@dataclass
class World:
    """A gate and its state; each claim gets the next offset and a second more."""

    policy: Policy = field(default_factory=Policy)
    state: State = field(default_factory=MemoryState)
    verifier: CitationVerifier = field(default_factory=verifier)
    keys: Keys = field(default_factory=Keys.empty)
    policies: PolicyStore = field(default_factory=lambda: PolicyStore(None, None))
    now: Callable[[], datetime] = lambda: NOW
    resolver: TenantCorpus | None = None
    assessor: Assessor | None = None
    offset: int = 0
    patience: float = 0.0

    @property
    def gate(self) -> Gate:
        return Gate(
            self.policy,
            self.policies,
            self.state,
            Lookups(self.verifier, self.resolver, self.assessor, self.patience),
            keys=self.keys,
            now=self.now,
        )

    def record(self, value: bytes | None, *, headers: Headers = (), topic: str = TOPIC) -> InboundRecord:
        self.offset += 1
        timestamp = to_milliseconds(NOW) + 1000 * self.offset
        return InboundRecord(topic, 0, self.offset, timestamp, b"acme:ada", value, headers)

    def response(self, response_id: str = "r1", answer: str | None = "Yes.", **fields: Any) -> InboundRecord:
        return self.record(response_bytes(response_id, answer, **fields), topic=RESPONSES)

    def claim(
        self, claim_id: str = "c1", content: str = "The API returns JSON", **fields: Any
    ) -> InboundRecord:
        headers = fields.pop("headers", ())
        return self.record(claim_bytes(claim_id, content, **fields), headers=headers)

    async def results(self, *records: InboundRecord, deferred: bool = True) -> list[Result]:
        gate = self.gate
        batch = await gate.ask_model(await gate.prepare(records, ask_network=deferred))
        return await gate.apply_step(batch, deferred=deferred)

    async def decide(self, *records: InboundRecord) -> list[Decision]:
        decisions = []
        for result in await self.results(*records):
            assert isinstance(result, Decided), result
            decisions.append(result.decision)
        return decisions

    async def one(self, content: str, claim_id: str = "c1", **fields: Any) -> Decision:
        (decision,) = await self.decide(self.claim(claim_id, content, **fields))
        return decision

    async def provisional(self, record: InboundRecord) -> Decision:
        gate = self.gate
        (result,) = gate.provisional(await gate.prepare([record]))
        assert not isinstance(result, DeadLetter)
        return result.decision  # type: ignore[union-attr]


def claim_bytes(claim_id: str = "c1", content: str = "The API returns JSON", **fields: Any) -> bytes:
    claim = {"claim_id": claim_id, "user_id": "ada", "content": content, **fields}
    return json.dumps(claim, ensure_ascii=False).encode()


def response_bytes(response_id: str = "r1", answer: str | None = "Yes.", **fields: Any) -> bytes:
    response = {"response_id": response_id, "user_id": "ada", "answer": answer, **fields}
    return json.dumps(response, ensure_ascii=False).encode()


def chunk(content: str, file: str = "src/search.py", **fields: Any) -> dict[str, Any]:
    """Return a chunk from the first line of a file on."""
    lines = content.count("\n") + 1
    return {"chunk_id": file, "file": file, "content": content, "start_line": 1, "end_line": lines, **fields}


def summary(decision: Decision) -> tuple[str, str]:
    return str(decision.tier), str(decision.reason_code)


CODE = chunk("def search(query, top_k):\n    timeout = 30 s\n    return index.find(query)")
GROUNDED: dict[str, Any] = {"answer": "Call `search` with `top_k` [source:1].", "chunks": [CODE]}
"""A response that is approved as it is."""


class Corpus:
    """A corpus in memory; every question raises `fault`, if there is one."""

    def __init__(
        self, known: Mapping[str, Any], truths: Sequence[dict[str, Any]] = (), fault: Exception | None = None
    ) -> None:
        self.known = known
        self.truths = truths
        self.fault = fault

    async def entities(self, _tenant: str, ids: Any) -> dict[str, Any]:
        if self.fault:
            raise self.fault
        return {name: self.known[name] for name in ids if name in self.known}

    async def relations(self, _tenant: str, pairs: Any) -> list[dict[str, Any]]:
        if self.fault:
            raise self.fault
        return [truth for truth in self.truths if (truth["subject"], truth["object"]) in pairs]


def resolver(known: Mapping[str, Any], truths: Sequence[dict[str, Any]] = (), **more: Any) -> TenantCorpus:
    return TenantCorpus(Corpus(known, truths, **more), frozenset(["*"]))
