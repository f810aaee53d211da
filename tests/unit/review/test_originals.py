"""Responses are read back from where they came in, and only the one that was decided counts."""

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


async def test_a_response_is_read_back_from_its_place() -> None:
    original = await read_original(topic(), decided())
    assert original.state is OriginalState.READ
    assert original.response is not None
    assert original.response.answer == "Water is wet."


async def test_of_what_a_person_decided_the_first_record_is_read() -> None:
    first = decided()["origin"]
    by_person = {**first, "topic": "groundwire.review-decisions"}
    found = decided(origin=by_person, subject_origin=first, facts={"review": {"action": "approve"}})
    assert (await read_original(topic(), found)).state is OriginalState.READ


async def test_a_record_past_retention_is_gone() -> None:
    assert (await read_original(topic(None), decided())).state is OriginalState.GONE


async def test_a_decision_without_a_place_has_nothing_to_read() -> None:
    nowhere = {**decided()["origin"], "topic": None}
    assert (await read_original(topic(), decided(origin=nowhere))).state is OriginalState.GONE


async def test_another_record_at_that_place_is_not_shown() -> None:
    other = json.dumps(RECORD | {"answer": "Water is dry."}).encode()
    original = await read_original(topic(other), decided())
    assert (original.state, original.response) == (OriginalState.DIFFERS, None)


async def test_a_decision_that_names_the_record_of_somebody_else_does_not_show_it() -> None:
    for name in ("tenant_id", "user_id", "subject_id"):
        assert (await read_original(topic(), decided(**{name: "eve"}))).state is OriginalState.DIFFERS


async def test_what_stands_there_and_is_no_response_is_not_shown() -> None:
    assert (await read_original(topic(b"[1]"), decided(b"[1]"))).state is OriginalState.DIFFERS


async def test_a_broker_that_is_away_is_said_to_be_away() -> None:
    async def read(*_):
        raise BrokerUnavailable("no broker")

    assert (await read_original(read, decided())).state is OriginalState.AWAY


def test_only_a_response_has_to_be_read_back() -> None:
    assert has_original(decided())
    assert not has_original(decided(kind="claim"))
