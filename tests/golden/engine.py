"""The engine under the golden set, seeded choice, and the words of its sentences.

Clocks, sources, keys and the language model are the set's own, so that nothing of the machine reaches the bytes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from itertools import pairwise
from math import log
from pathlib import Path
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch

import httpx
from click.testing import CliRunner

from agents.outputs import Output, followers, outputs, unpublishable
from groundwire import __version__
from groundwire.cli.main import main
from groundwire.epistemic.model import LogprobToken, Model, ModelAnswer, ModelFault, ModelRequest
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.lookups import Assessor, TenantCorpus
from groundwire.gate.reviews import ReviewGate
from groundwire.gate.types import Acted, DeadLetter, Decided, DecisionQuery, Provisional, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord, deferred_record
from groundwire.messages.identity import expire_id
from groundwire.policy import Policy
from groundwire.replay.rebuild import stored_outcomes
from groundwire.replay.review_closures import ReviewClosures
from groundwire.state.memory import MemoryState
from groundwire.state.policies import PolicyStore
from groundwire.verify.citations import CitationVerifier, Sources
from groundwire.verify.issues import GitHubTracker
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.url import UrlChecker

Fields = Mapping[str, Any] | bytes | None
"""Of a record; or its value."""
Record = tuple[str, list[str]]
"""Name of an input record, and its outputs in order."""
Run = tuple[str, Mapping[str, Any], Sequence[bytes]]
"""Name of a run of a command, its policy, and its records."""

NOW = datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC)
NOW_MS = 1_769_860_800_250
CLAIMS, RESPONSES, REVIEWS = "groundwire.claims", "groundwire.llm-responses", "groundwire.review-decisions"

COMMITS = ("Start the ledger", "Retry failed uploads five times", "Fix the valve of the pump")

T = TypeVar("T")


class Draw:
    """Chance that stays the same: of Python's generator only `random()` is promised to."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def below(self, number: int) -> int:
        return int(self._random.random() * number)

    def chance(self, share: float) -> bool:
        return self._random.random() < share

    def one(self, items: Sequence[T]) -> T:
        return items[self.below(len(items))]

    def some(self, items: Sequence[T], most: int) -> list[T]:
        return [self.one(items) for _ in range(self.below(most + 1))]


@cache
def samples(name: str) -> Any:
    return json.loads(Path(__file__).with_name("samples.json").read_text("utf-8"))[name]


def _sections() -> dict[str, str]:
    text = Path(__file__).with_name("words.txt").read_text("utf-8")
    parts = [part.partition("]\n") for part in text.split("\n[")[1:]]
    return {name: " ".join(words.split()) for name, _, words in parts}


def words(*names: str) -> list[str]:
    every = _sections()
    return [word for name in names for word in every[name].split()]


def neighbours(name: str) -> list[tuple[str, str]]:
    groups = [group.split() for group in _sections()[name].split(";")]
    return [pair for group in groups for pair in pairwise(group)]


def packs(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@dataclass(frozen=True)
class Places:
    """A folder with ADR files and a git repository of the same commits on every machine."""

    folder: Path
    adrs: Path
    repo: Path
    commits: tuple[str, ...]

    @classmethod
    def make(cls, folder: Path) -> Places:
        adrs, repo = folder / "adr", folder / "repo"
        adrs.mkdir(parents=True)
        repo.mkdir()
        for name, text in samples("adrs").items():
            (adrs / name).write_text(text, "utf-8")
        _git(repo, "init", "-q", "-b", "main")
        for message in COMMITS:
            _git(repo, "commit", "-q", "--allow-empty", "-m", message)
        return cls(folder, adrs, repo, tuple(_git(repo, "rev-list", "--reverse", "HEAD").split()))


def _git(repo: Path, *arguments: str) -> str:
    who: dict[str, str] = {}
    for role in ("AUTHOR", "COMMITTER"):
        who |= {f"GIT_{role}_NAME": "a@example.org", f"GIT_{role}_EMAIL": "a@example.org"}
        who[f"GIT_{role}_DATE"] = "2026-01-01T00:00:00Z"
    alone = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": str(repo), "LC_ALL": "C"}
    environment = {"PATH": os.environ["PATH"], **who, **alone}
    done = subprocess.run(["git", "-C", repo, *arguments], env=environment, check=True, capture_output=True)
    return done.stdout.decode()


_LONG = re.compile(r"\b\d{1,9}\.\d{13,20}\b")
"""A number whose last digits may be the machine's."""


def masked(value: bytes) -> str:
    """Return bytes as text that can be turned back, without what a new version changes."""
    text = value.decode("utf-8", "surrogateescape")
    text = _LONG.sub(lambda number: f"{float(number[0]):.12g}", text)
    text = text.replace(f'"engine":"{__version__}"', '"engine":"*"')
    if '"revision":0,' in text:  # the id of a provisional decision is made of the engine's version too
        text = re.sub(r'^\{"decision_id":"[0-9a-f-]{36}"', '{"decision_id":"*"', text)
    return text


def run_command(places: Places, command: str, runs: Iterable[Run], *options: str) -> Iterator[Record]:
    file = places.folder / "lines.jsonl"
    bare = {key: text for key, text in os.environ.items() if not key.startswith("GROUNDWIRE_")}
    for name, fields, values in runs:
        file.write_bytes(b"".join(value + b"\n" for value in values))
        policy = places.folder / f"{name}.json"
        policy.write_text(json.dumps(fields))
        with patch.dict(os.environ, bare, clear=True):
            arguments = [command, str(file), "--policy", str(policy), "--no-network", *options]
            done = CliRunner().invoke(main, arguments)
        if done.exit_code not in {0, 1} or (done.exception and not isinstance(done.exception, SystemExit)):
            raise RuntimeError(f"{arguments}: exit {done.exit_code}: {done.stderr}") from done.exception
        numbers = [number for number, value in enumerate(values, 1) if value.strip()]
        lines = filter(None, done.stdout_bytes.split(b"\n"))
        for number, line in zip(numbers, lines, strict=True):
            yield f"{command}/{name}/{number}", [masked(line)]


class Oracle(Model):
    async def answer(self, request: ModelRequest) -> ModelAnswer:
        data = request.prompt.split("\n")[1]  # the lines around it hold a number that nobody can guess
        lot = int(sha256(data.encode()).hexdigest()[:6], 16)
        if lot % 16 == 0:
            raise ModelFault("unreachable", requests=2)
        if lot % 8 == 1:
            return ModelAnswer(samples("model replies")[lot % 13], 50, 5)
        names = ("supported", "partial_support", "over_extrapolation", "unsupported", "contradicted")
        verdict = names[0 if lot % 3 else lot % 5] if '"evidence"' in data else ("true", "false")[lot % 2]
        said = {"verdict": verdict, "probability": lot % 101 / 100, "reason": f"It says so, {lot % 7} times."}
        text = json.dumps(said)
        head, tail = text.split(verdict)
        share = 0.3 + lot % 60 / 100
        others = {"unsupported": log(1 - share), "false": log(1 - share)}
        said_so = LogprobToken(verdict, log(share), others)
        tokens = (LogprobToken(head, -0.1, {}), said_so, LogprobToken(tail, -0.1, {}))
        return ModelAnswer(text, 100 + lot % 50, 20, tokens if lot % 5 == 0 else ())


class Corpus:
    async def entities(self, _tenant: str, ids: Sequence[str], /) -> dict[str, Any]:
        if "broken" in ids:
            raise ValueError("broken")
        return {name: {"confidence": 0.9, "role": "pump"} for name in ids if name.startswith("known")}

    async def relations(self, _tenant: str, pairs: Any, /) -> list[dict[str, Any]]:
        feeds = {"subject": "pump", "relation": "feeds", "object": "ledger"}
        return [feeds for pair in pairs if "pump" in pair]


def _network(request: httpx.Request) -> httpx.Response:
    status, text = samples("urls").get(str(request.url), (404, ""))

    async def sent(text: str) -> AsyncIterator[bytes]:
        yield text.encode()

    if 300 <= status < 400:
        return httpx.Response(status, headers={"location": text}, content=sent(""))
    kind = ("text/plain", "text/html")[text[:1] == "<"]
    return httpx.Response(status, headers={"content-type": kind}, content=sent(text))


def verifier_of(places: Places) -> CitationVerifier:
    transport, pacer = httpx.MockTransport(_network), Pacer(PacingLimits(spacing=0.0))
    tracker = GitHubTracker(
        "https://tracker.example.org", "acme/pump", clock=lambda: NOW, transport=transport
    )
    sources = {"*": Sources(adr_dir=places.adrs, repo=places.repo, tracker=tracker), "bare": Sources()}
    urls = UrlChecker(transport=transport, pacer=pacer, clock=lambda: NOW)
    return CitationVerifier(sources, network=True, urls=urls, pacer=pacer, clock=lambda: NOW)


@dataclass
class World:
    """Gates over a state in memory; collects the outputs of each record."""

    name: str
    places: Places
    policy: Mapping[str, Any] = field(default_factory=dict)
    model: Model | None = None
    resolver: TenantCorpus | None = None
    records: list[Record] = field(default_factory=list)
    deferred: list[InboundRecord] = field(default_factory=list)
    fanned_out: list[bytes] = field(default_factory=list)
    sent: list[InboundRecord] = field(default_factory=list)
    values: list[tuple[str, bytes]] = field(default_factory=list)
    published: dict[str, Decision] = field(default_factory=dict)
    state: MemoryState = field(default_factory=MemoryState)
    policies: PolicyStore = field(default_factory=lambda: PolicyStore(None, None))
    offset: int = 0

    def __post_init__(self) -> None:
        path = Path(__file__).with_name("keys.toml")
        self.keys = Keys.parse(path.read_bytes(), path)
        self.verifier = verifier_of(self.places)
        self.close = self.verifier.close
        self.assessor = Assessor(self.model) if self.model else None

    def record(self, fields: Fields, topic: str = CLAIMS, *, key: str = "") -> InboundRecord:
        """Put a record at the next offset, signed with a key; what is no key becomes the signature itself."""
        self.offset += 1
        plain = fields is None or isinstance(fields, bytes)
        value = fields if plain else json.dumps(fields, ensure_ascii=False).encode()
        headers = [("traceparent", b"00-1-2-01")] * (self.offset % 7 == 0)
        if key:
            signature = self.keys.sign(key, value or b"") if key in self.keys else key.encode()
            headers.append(("gw-attestation", signature))
        at = NOW_MS + 1000 * self.offset
        return InboundRecord(topic, 0, self.offset, at, b"default:ada", value, tuple(headers))

    async def send(self, *records: InboundRecord) -> None:
        gate = await self._gate()
        self.sent += records
        self._keep(await gate.apply_step(await gate.ask_model(await gate.prepare(records))))

    def break_parts(self) -> None:
        def fails(*_: object) -> None:
            raise OverflowError

        self.verifier = CitationVerifier({"*": fails}, network=True, clock=lambda: NOW)  # type: ignore[dict-item]
        self.assessor = Assessor(Oracle(), on_answer=fails)

    async def take_deferred(self) -> None:
        waiting, self.deferred = self.deferred, []
        gate = await self._gate()
        batch = await gate.prepare([deferred_record(record) for record in waiting], ask_network=True)
        batch = await gate.ask_model(batch)
        self._keep(await gate.apply_step(batch, deferred=True), " deferred")

    async def take_fanned_out(self) -> None:
        claims, self.fanned_out = self.fanned_out, []
        await self.send(*(self.record(value) for value in claims))

    async def outage(self, *records: InboundRecord) -> None:
        gate = await self._gate()
        self._keep(gate.provisional(await gate.prepare(records)), " outage")

    async def act(self, *records: InboundRecord) -> None:
        keys, policy = self.keys, await self._policy()
        gate = ReviewGate(
            policy, self.policies, self.state, keys=keys, find=self._find, own_key="gate", now=lambda: NOW
        )
        self._keep(await gate.apply_step(await gate.prepare(records)))

    async def rebuild(self, *gone: str) -> None:
        values = [(topic, value) for topic, value in self.values if topic not in gone]
        closings = ReviewClosures()
        for topic, value in values:
            if topic in {"retractions", "audit"}:
                closings.note(value)

        async def decisions() -> AsyncGenerator[bytes, None]:
            for wanted in ("blocked", "approved", "review"):
                for topic, value in values:
                    if topic == wanted:
                        yield value

        self.state = MemoryState()
        async for outcome in stored_outcomes(decisions(), await self._policy(), closings):
            await self.state.reassert([outcome])

    def action(self, action: str, subject: str, **fields: Any) -> InboundRecord:
        decisions = [d for d in self.published.values() if d.subject_id == subject]
        latest = max(decisions, key=lambda d: d.revision)
        expires = action == "expire"
        review = {
            "action_id": expire_id(latest.decision_id) if expires else f"act-{self.offset}",
            "tenant_id": latest.tenant_id,
            "user_id": latest.user_id,
            "kind": str(latest.kind),
            "subject_id": subject,
            "expected_revision": latest.revision,
            "action": action,
            "reviewer": "groundwire" if expires else "lead",
        }
        if action == "edit":
            review["content"] = "The gate of the dock stays shut"
        key = fields.pop("key", "gate" if expires else "console")
        return self.record(review | fields, REVIEWS, key=key)

    async def _policy(self) -> Policy:
        policy = Policy.model_validate_json(json.dumps(self.policy))
        await self.policies.put(policy)
        return policy

    async def _gate(self) -> Gate:
        policy, keys = await self._policy(), self.keys
        lookups = Lookups(self.verifier, self.resolver, self.assessor)
        return Gate(policy, self.policies, self.state, lookups, keys=keys, now=lambda: NOW)

    async def _find(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        found = [self.published.get(one.decision_id) for one in wanted]
        return {d.decision_id: Decision.model_validate_json(d.to_bytes()) for d in found if d is not None}

    def _keep(self, results: Sequence[Result], how: str = "") -> None:
        for result in results:
            published = [*outputs([result]), *followers([result])]
            for output in published:
                topic, value, at = str(output.topic), output.value or b"", result.record
                self.values.append((topic, value))
                if topic == "claims":
                    self.fanned_out.append(value)
                if topic == "deferred":
                    place = ("groundwire.deferred", 0, at.offset, at.timestamp, at.key, at.value)
                    self.deferred.append(InboundRecord(*place, output.headers))
            if isinstance(result, Decided | Acted):
                self.published.setdefault(result.decision.decision_id, result.decision)
            name = f"gate/{self.name}/{len(self.records) + 1} of offset {result.record.offset}{how}"
            hidden = "ce_id" if isinstance(result, Provisional) else ""
            self.records.append((name, [_line(output, hidden) for output in published]))

    def refuse(self, record: InboundRecord) -> None:
        (first, *_) = outputs([DeadLetter(record, RecordError(ErrorCode.INVALID_JSON, "bad"))])
        name = f"gate/{self.name}/{len(self.records) + 1} unpublishable"
        self.records.append((name, [_line(unpublishable(first, "too large"), "")]))


def _line(output: Output, hidden: str) -> str:
    headers = [[name, "*" if name == hidden else masked(text)] for name, text in output.headers]
    value, key = None if output.value is None else masked(output.value), masked(output.key or b"")
    return json.dumps({"topic": output.topic, "key": key, "headers": headers, "value": value})
