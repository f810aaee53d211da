"""Reviewers who decide what comes up, some of it twice, some of it without the right to."""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from pathlib import Path
from typing import Any

from groundwire.attestation import Keys
from tests.faults.history import REVIEWS, traceparent
from tests.faults.load import TENANTS
from tests.stream.harness import Deployment, Seen

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
LEFT_ALONE = 0.04
RETRACTED = 0.04
RACED = 0.1


class Reviewers:
    """Follow the topics and act, seconds later.

    Attributes:
        idle: while true, nobody acts, so that the queue fills.
        acted_at: when each action was sent, by `time.monotonic`.
        forged: ids of actions that nobody was allowed to send.
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
        """Act until cancelled."""
        while True:
            await asyncio.sleep(0.1)
            self._look()
            now = time.monotonic()
            if not self.idle:
                for item in [item for item in self._due if item[0] <= now]:
                    self._due.remove(item)
                    await self._act(item[1], item[2])

    def _look(self) -> None:
        for topic in self._seen:
            records = self._deployment.seen[topic]
            for seen in records[self._seen[topic] :]:
                self._plan(topic, seen)
            self._seen[topic] = len(records)

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
        key = f"{decision['tenant_id']}:{decision['user_id']}".encode()
        for _ in range(2 if self._rng.random() < RACED else 1):  # the same action may come twice
            self._sent += 1
            await self._deployment.send(
                value, key=key, topic=REVIEWS, headers=[*headers, traceparent(2, self._sent)]
            )
