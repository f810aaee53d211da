"""Seals that somebody wrote to `audit`, beside records of all kinds, and files of heads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final

from groundwire.errors import UsageError
from groundwire.keys.attestation import Keys
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time, sha256_hex
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.messages.seals import SEALED, Seal, SealedOutput, SealHead, root_of, seal_of
from groundwire.messages.topics import TopicName
from groundwire.replay.seals import SealEvidence, read_heads
from groundwire.replay.store import RecordPlace, Store
from tests.fuzz.inputs import CANARY, any_value, mutated, scratched, text, written
from tests.fuzz.runner import entry, hold, quiet
from tests.unit.console.rooms import make_decision

NOW: Final = datetime(2026, 1, 31, tzinfo=UTC)
_KINDS: Final = {"bad_seal", "broken_chain", "removed", "unsealed"}
_DECISION: Final = Decision.model_validate(make_decision("c1", CANARY)).to_bytes()
_NAME: Final = json.loads(_DECISION)["decision_id"]


class Sealed:
    """Puts records of output topics in, some of them seals, and asks what they prove."""

    def __init__(self, folder: Path, heard: Callable[[], str]) -> None:
        path = folder / "keys.toml"
        new_key(path, "gate", tenants=[], roles=["seal"], asymmetric=True)
        self._keys, self._heard = SealKeys(path), heard
        self._key = dict(Keys.load(path))["gate"]

    async def __call__(self, rng: Random) -> int:
        """Put a few records in, and a file of heads."""
        signed: set[str] = set()
        records = [self._record(rng, number, signed) for number in range(rng.randint(1, 6))]
        for record in records:
            seal = seal_of(record.value or b"")
            hold(seal is None or isinstance(seal.fits, bool), "neither a seal nor none")
        with TemporaryDirectory() as folder:
            evidence = SealEvidence(Store(Path(folder, "seals")), "t.", self._keys, now=NOW)
            for record in records:
                evidence.note_published(record, late=rng.random() < 0.1)
            evidence.audit_is_cut = rng.random() < 0.3
            behind = rng.sample((TopicName.CLAIMS, TopicName.REVIEW_DECISIONS), rng.randint(0, 2))
            evidence.under_way = {topic: NOW - timedelta(seconds=rng.randint(0, 600)) for topic in behind}
            faults = list(evidence.faults())
            hold({fault.kind for fault in faults} <= _KINDS, "a fault of no kind")
            hold(CANARY not in str(faults), "a fault holds the text of a record")
            hold({each.seal for each in evidence.heads()} <= signed, "a seal counts that no key signed")
            covered = evidence.explain(RecordPlace("t.approved", 0, 0), _DECISION) is None
            hold(not covered or signed, "a decision is covered, and nothing was signed")
            evidence.is_superseded(_DECISION)
            size = self._heads(rng, evidence, Path(folder) / "heads.jsonl")
        quiet(self._heard())
        return size + sum(len(record.value or b"") for record in records)

    def _record(self, rng: Random, number: int, signed: set[str]) -> InboundRecord:
        topic = rng.choice(SEALED) if rng.random() < 0.3 else "audit"
        value: bytes | None = self._seal(rng, signed) if rng.random() < 0.8 else _DECISION
        if rng.random() < 0.05:
            value = rng.choice(
                (None, b"", b'"seal"', written(rng, any_value(rng, 3)), scratched(rng, value or b""))
            )
        name = rng.choice((_NAME, _NAME, text(rng)[:100])).encode("utf-8", "surrogatepass")
        headers = rng.choice((((("ce_id", name)),), (), (("ce_id", b"\xff"),), (("ce_time", name),)))
        return InboundRecord(
            f"t.{topic}", 0, number, 0, rng.choice((b"", None, b"\xff", b"acme:ana")), value, headers
        )

    def _seal(self, rng: Random, signed: set[str]) -> bytes:
        outputs = [
            SealedOutput(n, rng.choice(SEALED), _NAME, sha256_hex(_DECISION))
            for n in range(rng.randint(0, 3))
        ]
        end = rng.randint(0, 9)
        fields: dict[str, Any] = {
            "at": NOW,
            "before": rng.choice((None, *sorted(signed))),
            "count": len(outputs),
            "end": end,
            "first": rng.randint(0, end),
            "key": "gate",
            "partition": rng.choice((0, 1, 2**53 - 1)),
            "root": root_of(outputs),
            "topic": rng.choice(("t.claims", "t.claims", "other.claims")),
        }
        head = SealHead(**fields)
        seal = Seal(head, self._key.sign(head.to_bytes()), tuple(outputs))
        event = {
            "event_id": event_id("seal", head.sha256),
            "type": "seal",
            "at": format_time(NOW),
            "tenant_id": "",
            "actor": "groundwire",
            "subject_id": None,
            "decision_id": None,
            "detail": seal.detail(),
        }
        signed.add(head.sha256)
        return json.dumps(event).encode() if rng.random() < 0.4 else written(rng, mutated(rng, event, 1))

    def _heads(self, rng: Random, evidence: SealEvidence, path: Path) -> int:
        line = {"topic": "t.claims", "partition": 0, "seal": "0" * 64}
        lines = [written(rng, mutated(rng, line)) for _ in range(rng.randint(0, 3))]
        path.write_bytes(b"\n".join(lines))
        try:
            gone = list(evidence.missing_heads(read_heads(path)))
        except UsageError as error:
            hold("--heads" in str(error), "a refusal that does not name its option")
        else:
            hold({fault.kind for fault in gone} <= {"broken_chain"}, "a head is gone in another way")
        return path.stat().st_size


ENTRIES: Final = (entry("seals", Sealed, 4),)
