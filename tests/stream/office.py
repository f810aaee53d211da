"""Reviewers of a deployment: they sign what they decide, and read what became of it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from groundwire.keys.attestation import Keys
from tests.stream.harness import Deployment, Seen, good, until, user_key

KEYS = """
[keys.console]
secret = "of the console"
tenants = ["default"]
roles = ["reviewer"]

[keys.gate]
secret = "of the gate"
tenants = ["default"]
roles = ["reviewer"]

[reviewers]
default = ["lead"]
"""


class Office:
    """Sends claims to review and signed ReviewDecisions; workers that start later know its keys."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        path = folder / "keys.toml"
        path.write_text(KEYS)
        path.chmod(0o600)
        self.keys = Keys.load(path)
        self.deployment = deployment
        deployment.environment = {
            **deployment.environment,
            "GROUNDWIRE_KEYS_FILE": str(path),
            "GROUNDWIRE_REVIEW_KEY": "gate",
        }

    async def pending(self, number: int, **fields: object) -> Seen:
        """Produce a claim that needs review, and wait for its decision."""
        claim = good(number, **{"content": f"Service {number} keeps {number * 7919} sessions", **fields})
        await self.deployment.produce([{**claim, "source": fields.get("source", "ai_synthesis")}])
        return await self.deployment.decision(str(claim["claim_id"]))

    async def act(self, action: str, seen: Seen, *, key: str | None = "console", **fields: Any) -> str:
        """Send a person's decision about a decision; return the action's id."""
        decision = seen.json
        review = {
            "action_id": str(uuid.uuid4()),
            **{name: decision[name] for name in ("tenant_id", "user_id", "kind", "subject_id")},
            "expected_revision": decision["revision"],
            "action": action,
            "reviewer": decision["user_id"],
            **fields,
        }
        value = json.dumps(review).encode()
        headers = [("gw-attestation", self.keys.sign(key, value))] if key else []
        place = {"key": user_key(review), "topic": "review-decisions"}
        await (await self.deployment.send(value, headers=headers, **place))
        return str(review["action_id"])

    def audited(self, action_id: str) -> list[Seen]:
        """The audit events of an action."""
        events = self.deployment.seen["audit"]
        return [seen for seen in events if seen.json["detail"].get("action_id") == action_id]

    async def outcome(self, action_id: str) -> dict[str, Any]:
        """Wait for an action's audit event."""
        await until(lambda: bool(self.audited(action_id)), lambda: f"action {action_id} is audited")
        return self.audited(action_id)[0].json
