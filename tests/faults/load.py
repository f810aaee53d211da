"""A steady mixed load, made from a seed: claims and responses of every kind, of several tenants and many users."""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.faults.history import CLAIMS, RESPONSES, Sent, traceparent
from tests.stream.harness import Deployment
from tests.stream.test_conservation import BAD
from tests.stream.test_responses import response

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
    """One record to send."""

    topic: str
    key: bytes
    value: bytes | None
    bad: bool = False


class Inputs:
    """The inputs of a seed, one after the other.

    Args:
        page: the address under which cited pages answer.
    """

    def __init__(self, seed: int, page: str) -> None:
        self._rng = random.Random(seed)
        self._page = page
        self._number = 0
        self._claims: deque[dict[str, Any]] = deque(maxlen=400)
        self._responses: deque[dict[str, Any]] = deque(maxlen=60)
        self._of: Mapping[str, Callable[[], Input]] = {
            "fresh": self._new,
            "needs_review": lambda: self._new(source="ai_synthesis"),
            "hedged": lambda: self._new(prefix="Maybe "),
            "cited": self._cited,
            "derived": self._derived,
            "copy": self._copy,
            "again": lambda: self._past(self._claims, CLAIMS),
            "conflict": self._conflict,
            "unreadable": self._unreadable,
            "response": self._response,
            "response_again": lambda: self._past(self._responses, RESPONSES),
        }

    def next(self) -> Input:
        """Return the next one."""
        (kind,) = self._rng.choices(list(KINDS), list(KINDS.values()))
        return self._of[kind]()

    def crowd(self, tenant: str, user: str) -> Input:
        """Return one that takes a place in the review queue: many of them fill it."""
        return self._new(tenant_id=tenant, user_id=user, source="ai_synthesis")

    def _words(self) -> str:
        # letters only: digits and a-f would be read as what they are not
        count = range(6)
        return " ".join("".join(self._rng.choices("ghijklmnopqrstuvwxyz", k=7)) for _ in count)

    def _new(self, prefix: str = "", suffix: str = "", **fields: object) -> Input:
        self._number += 1
        rng = self._rng
        claim = {
            "claim_id": f"c{self._number}",
            "tenant_id": rng.choice(TENANTS),
            "user_id": f"u{rng.randrange(USERS)}",
            "content": f"{prefix}Module {self._words()} keeps {self._words()}{suffix}",
            "memory_type": rng.choice(TYPES),
            "source": rng.choice(SOURCES),
            **fields,
        }
        self._claims.append(claim)
        return _input(CLAIMS, claim)

    def _cited(self) -> Input:
        path = self._rng.choice(("ok", "ok", "ok", "gone"))
        return self._new(suffix=f", see {self._page}/{path}/{self._rng.randrange(1000)}", source="agent-7")

    def _derived(self) -> Input:
        parent = self._some()
        return self._new(
            source="user",
            tenant_id=parent["tenant_id"],
            user_id=parent["user_id"],
            derived_from=[parent["claim_id"]],
        )

    def _some(self) -> dict[str, Any]:
        if not self._claims:
            self._new()
        return self._rng.choice(self._claims)

    def _copy(self) -> Input:
        """Return the text of an earlier claim under another id."""
        self._number += 1
        return _input(CLAIMS, {**self._some(), "claim_id": f"c{self._number}"})

    def _conflict(self) -> Input:
        """Return another text under the id of an earlier claim."""
        return _input(CLAIMS, {**self._some(), "content": f"Other words: {self._words()}"})

    def _past(self, past: deque[dict[str, Any]], topic: str) -> Input:
        return _input(topic, self._rng.choice(past)) if past else self._new()

    def _unreadable(self) -> Input:
        value, _ = self._rng.choice(BAD[:-1])  # the last is 900 kB
        topic = self._rng.choice((CLAIMS, CLAIMS, RESPONSES))
        key = f"{self._rng.choice(TENANTS)}:u{self._rng.randrange(USERS)}"
        return Input(topic, key.encode(), value, bad=True)

    def _response(self) -> Input:
        self._number += 1
        rng = self._rng
        made = response(
            self._number,
            tenant_id=rng.choice(TENANTS),
            user_id=f"u{rng.randrange(USERS)}",
            confidence=rng.choice((1.0, 1.0, 0.6, 0.4)),
            fan_out=rng.random() < 0.3,
        )
        self._responses.append(made)
        return _input(RESPONSES, made)


def _input(topic: str, record: Mapping[str, Any]) -> Input:
    key = f"{record['tenant_id']}:{record['user_id']}".encode()
    return Input(topic, key, json.dumps(record, ensure_ascii=False).encode())


class Sender:
    """Sends inputs at a steady rate, and keeps where each came to stand.

    Attributes:
        crowd: while it names a tenant and a user, their claims for the review queue come on top.
        sent: what was acknowledged.
    """

    def __init__(self, deployment: Deployment, inputs: Inputs, rate: float) -> None:
        self.crowd: tuple[str, str] | None = None
        self.sent: list[Sent] = []
        self.total = 0
        self._deployment = deployment
        self._inputs = inputs
        self._rate = rate
        self._waiting: list[tuple[Input, asyncio.Future[Any]]] = []

    async def run(self) -> None:
        """Send until cancelled; no more than a thousand unacknowledged."""
        while True:
            await asyncio.sleep(1 / self._rate)
            if len(self._waiting) < 1000:
                await self._send(self._inputs.next())
                if self.crowd:
                    await self._send(self._inputs.crowd(*self.crowd))
            if self.total % 50 == 0:
                self._collect()

    async def finish(self, seconds: float) -> None:
        """Wait until the broker has acknowledged all that was sent, as far as it ever will."""
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
