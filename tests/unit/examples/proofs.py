"""A proof as `groundwire verify --decision ID` prints it."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from groundwire.messages.base import sha256_hex
from groundwire.messages.seals import SealedOutput, SealHead, path_of, root_of

NOW = datetime(2026, 11, 28, 12, 0, 0, 123_456, tzinfo=UTC)


def proof_of(key, value):
    """Return the proof of a decision among five records."""
    name = json.loads(value)["decision_id"]
    outputs = [SealedOutput(at, "review", 1, f"{at:036x}", sha256_hex(b"%d" % at)) for at in range(4)]
    outputs.insert(2, SealedOutput(9, "approved", 3, name, sha256_hex(value)))
    head = SealHead(
        at=NOW,
        before=None,
        count=5,
        end=9,
        first=0,
        key="gate",
        partition=0,
        root=root_of(outputs),
        topic="t.claims",
    )
    return {
        "decision": value.decode(),
        "output": str(outputs[2]),
        "path": path_of(outputs, 2),
        "seal": head.model_dump(mode="json"),
        "signature": key.sign(head.to_bytes()).hex(),
    }
