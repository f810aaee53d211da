"""Responses are read back from their topic, and only the one that was decided counts."""

from __future__ import annotations

import json

from groundwire.errors import BrokerUnavailable
from groundwire.messages.base import sha256_hex
from groundwire.review.originals import OriginalState, has_original, read_original

RECORD = {"response_id": "r1", "tenant_id": "acme", "user_id": "ann", "answer": "Water is wet."}
VALUE = json.dumps(RECORD).encode()
PLACE = {"topic": "groundwire.llm-responses", "partition": 2, "offset": 41}


def decided(value=VALUE, **changes):
    """What a decision of the response says of it, as JSON."""
    origin = {**PLACE, "timestamp": "2026-01-01T00:00:00.000Z", "sha256": sha256_hex(value)}
    base = {"kind": "response", "tenant_id": "acme", "user_id": "ann", "subject_id": "r1"}
    return base | {"origin": origin, "subject_origin": None, "facts": {"review": None}} | changes


def topic(value=VALUE):
    """A topic with one record."""

    async def read(name, partition, offset):
        return value if (name, partition, offset) == tuple(PLACE.values()) else None

    return read


async def test_only_the_response_that_was_decided_is_read_back_from_its_place() -> None:
    first, other = decided()["origin"], json.dumps(RECORD | {"answer": "Water is dry."}).encode()
    by_person = {"origin": {**first, "topic": "groundwire.review-decisions"}, "subject_origin": first}
    for name, read, decision, state in (
        ("at its place", topic(), decided(), OriginalState.READ),
        (
            "decided by a person",
            topic(),
            decided(**by_person, facts={"review": {"action": "a"}}),
            OriginalState.READ,
        ),
        ("past retention", topic(None), decided(), OriginalState.GONE),
        ("without a place", topic(), decided(origin={**first, "topic": None}), OriginalState.GONE),
        ("another record", topic(other), decided(), OriginalState.DIFFERS),
        *(
            (f"of another {field}", topic(), decided(**{field: "eve"}), OriginalState.DIFFERS)
            for field in ("tenant_id", "user_id", "subject_id")
        ),
        ("no response", topic(b"[1]"), decided(b"[1]"), OriginalState.DIFFERS),
    ):
        original = await read_original(read, decision)
        assert (name, original.state) == (name, state)
        answer = original.response and original.response.answer
        assert answer == ("Water is wet." if state is OriginalState.READ else None)


async def test_a_broker_that_does_not_answer_is_reported_so() -> None:
    async def read(*_):
        raise BrokerUnavailable("no broker")

    assert (await read_original(read, decided())).state is OriginalState.AWAY


def test_only_a_response_has_to_be_read_back() -> None:
    assert has_original(decided())
    assert not has_original(decided(kind="claim"))
