"""What people decide: actions good and bad, upon claims and responses of every standing."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Final

from groundwire.attestation import Keys
from groundwire.errors import RecordError
from groundwire.gate.results import Acted, DeadLetter, Decided, Refused, Result
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.inbound import InboundRecord
from tests.fuzz import examples
from tests.fuzz.entry import Case, Entry, hold, listening, quiet
from tests.fuzz.records import check_outputs, some_policy
from tests.fuzz.structure import mutated, written
from tests.fuzz.texts import scratched
from tests.unit.gate.test_review_gate import KEYS, Office

SECRETS: Final = {"console": b"one", "gate": b"two", "docs": b"three", "late": b"four", "nobody": b"?"}
_MAY_ACT: Final = frozenset({"console"})
_APPROVES: Final = frozenset({"approve", "edit"})


class Reviews:
    """Decides a claim or a response, and then lets people act on it."""

    def __init__(self, keys: Keys, heard: Callable[[], str]) -> None:
        self._keys, self._heard = keys, heard

    async def __call__(self, rng: Random) -> int:
        """Send a record, and one to three actions."""
        office = Office(policy=some_policy(rng), keys=self._keys)
        made = examples.claim(rng) if rng.random() < 0.8 else examples.response(rng)
        first = written(rng, {**made, "tenant_id": "default"})
        topic = "groundwire.claims" if "claim_id" in made else "groundwire.llm-responses"
        (result,) = await office.results(office.record(first, topic=topic))
        if isinstance(result, Decided):
            office.publish(result.decision)
        size = len(first)
        for number in range(rng.choice((1, 1, 2, 3))):
            record, key = self._action(rng, office, "c1" if "claim_id" in made else "r1", number)
            size += len(record.value or b"")
            done = await office.carry_out(record)
            for result in done:
                self._check(record, key, result)
            check_outputs(done)
        quiet(self._heard())
        return size

    def _action(self, rng: Random, office: Office, subject: str, number: int) -> tuple[InboundRecord, str]:
        """Return an action, and the key that vouches for it; empty where none does."""
        plain = examples.action(rng, subject, rng.choice((1, 1, 1, 2, 0)), number)
        value = written(rng, mutated(rng, plain, 0, 2) if rng.random() < 0.5 else plain)
        key = rng.choice((*SECRETS, "console", "console", "console"))
        signed = value if rng.random() < 0.9 else scratched(rng, value)
        header = f"{key}:{hmac.new(SECRETS[key], signed, 'sha256').hexdigest()}".encode()
        if rng.random() < 0.1:
            header, signed = scratched(rng, header), b""
        headers = (("gw-attestation", header),) if rng.random() < 0.9 else ()
        vouched = headers and signed == value
        record = office.record(value, headers=headers, topic="groundwire.review-decisions")
        return record, key if vouched else ""

    def _check(self, record: InboundRecord, key: str, result: Result) -> None:
        try:
            review = decode_review_decision(record.value)
        except RecordError:
            hold(isinstance(result, DeadLetter), "carried out, though it cannot be read")
            return
        hold(isinstance(result, Acted | Refused), f"ends as {type(result).__name__}")
        if not isinstance(result, Acted):
            return
        decision: Decision = result.decision
        hold(key in _MAY_ACT, "carried out, though nobody who may vouches for it")
        hold(review.tenant_id in {"default", "acme"}, "carried out for a tenant that the key is not of")
        owner = review.reviewer == review.user_id or self._keys.delegated(review.tenant_id, review.reviewer)
        hold(owner, "carried out for somebody who may not")
        hold(review.action != "expire", "expired without the gate's own key")
        if decision.approved and result.fresh:
            hold(review.action in _APPROVES, f"a {review.action} approves")
            hold(decision.reason_code == "human_approved", f"approved as {decision.reason_code}")
            said = decision.evidence.claim if decision.evidence else None
            hold(review.action != "edit" or said == review.content, "approved another text than the one sent")


@asynccontextmanager
async def _opened() -> AsyncIterator[Case]:
    with listening() as heard:
        yield Reviews(Keys.parse(KEYS.encode(), Path("keys.toml")), heard)


ENTRIES: Final = (Entry("reviews", _opened, 4),)
