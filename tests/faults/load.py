"""A steady mixed load made from a seed, and reviewers who decide what comes up, some of it without the right to."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from groundwire.keys.attestation import Keys
from tests.faults.history import CLAIMS, RESPONSES, REVIEWS, Sent, traceparent
from tests.stream.harness import BAD, Deployment, Seen, response, user_key

TENANTS = ("acme", "beta", "gamma")
USERS = 12
SOURCES = ("user", "ai_synthesis", "documentation", "conversation", "agent-7", "chat", "adr")
TYPES = ("fact", "fact", "fact", "preference", "decision")
KINDS = {
    "fresh": 40,
    "needs_review": 12,
    "hedged": 6,
    "cited": 8,
    "derived": 6,
    "copy": 6,
    "again": 6,
    "conflict": 3,
    "unreadable": 3,
    "response": 8,
    "response_again": 2,
}
"""Kinds of inputs, and how often each comes."""


@dataclass(frozen=True)
class Input:
    topic: str
    key: bytes
    value: bytes | None
    bad: bool = False


class Inputs:
    """The inputs of a seed, one after the other, which cite pages under an address."""

    def __init__(self, seed: int, page: str) -> None:
        self._rng, self._page, self._number = random.Random(seed), page, 0
        self._claims: deque[dict[str, Any]] = deque(maxlen=400)
        self._responses: deque[dict[str, Any]] = deque(maxlen=60)

    def next(self) -> Input:
        rng = self._rng
        (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
        match kind:
            case "needs_review":
                return self._new(source="ai_synthesis")
            case "hedged":
                return self._new(prefix="Maybe ")
            case "cited":
                page = f"{self._page}/{rng.choice(('ok', 'ok', 'ok', 'gone'))}/{rng.randrange(1000)}"
                return self._new(suffix=f", see {page}", source="agent-7")
            case "unreadable":
                value, _ = rng.choice(BAD[:-1])  # the last is 900 kB
                return Input(
                    rng.choice((CLAIMS, CLAIMS, RESPONSES)), user_key(self._owner()), value, bad=True
                )
            case "response":
                self._number += 1
                owner, confidence = self._owner(), rng.choice((1.0, 1.0, 0.6, 0.4))
                made = response(self._number, **owner, confidence=confidence, fan_out=rng.random() < 0.3)
                self._responses.append(made)
                return _input(RESPONSES, made)
        earlier = self._responses if kind == "response_again" else self._claims
        if kind == "fresh" or not earlier:
            return self._new()
        some = rng.choice(earlier)
        match kind:
            case "derived":
                owner = {name: some[name] for name in ("tenant_id", "user_id")}
                return self._new(source="user", derived_from=[some["claim_id"]], **owner)
            case "copy":  # the text of an earlier claim under another id
                self._number += 1
                return _input(CLAIMS, {**some, "claim_id": f"c{self._number}"})
            case "conflict":  # another text under the id of an earlier claim
                return _input(CLAIMS, {**some, "content": f"Other words: {self._words()}"})
        return _input(RESPONSES if kind == "response_again" else CLAIMS, some)

    def _owner(self) -> dict[str, str]:
        return {"tenant_id": self._rng.choice(TENANTS), "user_id": f"u{self._rng.randrange(USERS)}"}

    def crowd(self, tenant: str, user: str) -> Input:
        """Return one that takes a place in the review queue: many of them fill it."""
        return self._new(tenant_id=tenant, user_id=user, source="ai_synthesis")

    def _words(self) -> str:
        # letters only: digits and a-f would be read as what they are not
        return " ".join("".join(self._rng.choices("ghijklmnopqrstuvwxyz", k=7)) for _ in range(6))

    def _new(self, prefix: str = "", suffix: str = "", **fields: object) -> Input:
        self._number += 1
        rng = self._rng
        claim = {
            "claim_id": f"c{self._number}",
            **self._owner(),
            "content": f"{prefix}Module {self._words()} keeps {self._words()}{suffix}",
            "memory_type": rng.choice(TYPES),
            "source": rng.choice(SOURCES),
            **fields,
        }
        self._claims.append(claim)
        return _input(CLAIMS, claim)


def _input(topic: str, record: Mapping[str, Any]) -> Input:
    return Input(topic, user_key(record), json.dumps(record, ensure_ascii=False).encode())


class Sender:
    """Sends inputs at a steady rate, and keeps the places of those that were acknowledged.

    While `crowd` names a tenant and a user, their claims for the review queue come on top.
    """

    def __init__(self, deployment: Deployment, inputs: Inputs, rate: float) -> None:
        self.crowd: tuple[str, str] | None = None
        self.sent: list[Sent] = []
        self.total = 0
        self._deployment, self._inputs, self._rate = deployment, inputs, rate
        self._waiting: list[tuple[Input, asyncio.Future[Any]]] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1 / self._rate)
            if len(self._waiting) < 1000:
                await self._send(self._inputs.next())
                if self.crowd:
                    await self._send(self._inputs.crowd(*self.crowd))
            if self.total % 50 == 0:
                self._collect()

    async def finish(self, seconds: float) -> None:
        if self._waiting:
            await asyncio.wait([future for _, future in self._waiting], timeout=seconds)
        self._collect()

    async def _send(self, item: Input) -> None:
        self.total += 1
        # not waited for: a producer whose buffer is full would hold the rest of the load up
        headers = [traceparent(1, self.total)]
        future = await self._deployment.send(item.value, key=item.key, topic=item.topic, headers=headers)
        self._waiting.append((item, future))

    def _collect(self) -> None:
        for item, future in [pair for pair in self._waiting if pair[1].done()]:
            self._waiting.remove((item, future))
            if not future.cancelled() and future.exception() is None:
                at = future.result()
                self.sent.append(Sent((item.topic, at.partition, at.offset), item.value, item.bad))


_NAMES = ", ".join(f'"{tenant}"' for tenant in TENANTS)
KEYS = f"""
[keys.console]
secret = "of the console"
tenants = [{_NAMES}]
roles = ["reviewer"]

[keys.gate]
secret = "of the gate"
tenants = [{_NAMES}]
roles = ["reviewer"]

[reviewers]
{chr(10).join(f'{tenant} = ["lead"]' for tenant in TENANTS)}
"""
LEFT_ALONE, RETRACTED, RACED = 0.04, 0.04, 0.1


class Reviewers:
    """Follow the topics and act, seconds later; while `idle`, nobody acts, so that the queue fills.

    `acted_at`: when each action was sent, by `time.monotonic`. `forged`: ids of actions that nobody may send.
    """

    def __init__(self, deployment: Deployment, folder: Path, seed: int) -> None:
        path = folder / "keys.toml"
        path.write_text(KEYS)
        path.chmod(0o600)
        self.settings = {"GROUNDWIRE_KEYS_FILE": str(path), "GROUNDWIRE_REVIEW_KEY": "gate"}
        self.idle = False
        self.acted_at: dict[str, float] = {}
        self.forged: set[str] = set()
        self._keys = Keys.load(path)
        self._deployment = deployment
        self._rng = random.Random(f"people {seed}")
        self._sent = 0
        self._seen = {"review": 0, "approved": 0}
        self._known: set[str] = set()
        self._due: list[tuple[float, str, Seen]] = []

    async def run(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for topic, known in self._seen.items():
                records = self._deployment.seen[topic]
                for seen in records[known:]:
                    self._plan(topic, seen)
                self._seen[topic] = len(records)
            now = time.monotonic()
            if not self.idle:
                for item in [item for item in self._due if item[0] <= now]:
                    self._due.remove(item)
                    await self._act(item[1], item[2])

    def _plan(self, topic: str, seen: Seen) -> None:
        decision, rng = seen.json, self._rng
        if decision["decision_id"] in self._known:
            return
        self._known.add(decision["decision_id"])
        at = time.monotonic() + rng.uniform(0.5, 6)
        if topic == "approved":
            if rng.random() < RETRACTED:
                self._due.append((at + 3, "retract", seen))
        elif decision["facts"]["place"] == "free" and rng.random() > LEFT_ALONE:
            actions = ["approve", "reject", *(["edit"] if decision["kind"] == "claim" else [])]
            self._due += [
                (at, action, seen) for action in rng.sample(actions, 2 if rng.random() < RACED else 1)
            ]
            if rng.random() < RACED:
                self._due.append((at, rng.choice(("unsigned", "stranger", "twisted")), seen))

    async def _act(self, action: str, seen: Seen) -> None:
        decision = seen.json
        forged = action in {"unsigned", "stranger", "twisted"}
        review: dict[str, Any] = {
            "action_id": str(uuid.UUID(int=self._rng.getrandbits(128))),
            **{field: decision[field] for field in ("tenant_id", "user_id", "kind", "subject_id")},
            "expected_revision": decision["revision"],
            "action": "approve" if forged else action,
            "reviewer": "eve" if action == "stranger" else self._rng.choice((decision["user_id"], "lead")),
        }
        if action in {"reject", "retract"}:
            review["reason"] = "incorrect"
        if action == "edit":
            review["content"] = f"{decision['evidence']['claim']} (read by a person)"
        value = json.dumps(review).encode()
        signed = value if action != "twisted" else value + b" "
        headers = [("gw-attestation", self._keys.sign("console", signed))] if action != "unsigned" else []
        self.acted_at[review["action_id"]] = time.monotonic()
        if forged:
            self.forged.add(review["action_id"])
        for _ in range(2 if self._rng.random() < RACED else 1):  # the same action may come twice
            self._sent += 1
            await self._deployment.send(
                value, key=user_key(decision), topic=REVIEWS, headers=[*headers, traceparent(2, self._sent)]
            )
