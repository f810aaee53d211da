"""A host that fails for a moment sends no claim to a person: it is looked up again, for a while (S0-76, X-14)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from groundwire.gate.types import Decided, Deferred
from groundwire.messages.headers import InboundRecord, LookupRetry, deferred_headers, deferred_record
from groundwire.policy import Policy
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Inputs, read_record
from tests.unit.gate.world import NOW, World, claim_bytes, verifier

URL = "https://docs.example/page"
TEXT = f"The ledger keeps nine shards, see {URL}"
PATIENCE = 600.0


class Outage(World):
    """A world whose host answers with the status that `answers` holds, at a time that the test sets."""

    def __init__(self, status: int = 503) -> None:
        self.answers, self.seconds = {URL: status}, 0.0
        super().__init__(verifier=verifier(urls=self.answers), patience=PATIENCE)
        self.now = lambda: NOW + timedelta(seconds=self.seconds)

    async def look_up(self, record: InboundRecord, *, deferred: bool = True) -> Any:
        (result,) = await self.results(record, deferred=deferred)
        return result


def through_kafka(result: Deferred) -> InboundRecord:
    """The record as the next worker reads it from `deferred`."""
    record, headers = result.record, deferred_headers(result.record)
    return deferred_record(InboundRecord("groundwire.deferred", 3, 99, 1, record.key, record.value, headers))


def due(result: Deferred) -> float:
    """Seconds from the beginning of the test."""
    assert result.record.retry
    return (result.record.retry.due / 1000) - NOW.timestamp()


def assert_derived_again(result: Decided) -> None:
    value = result.record.value or b""
    derived = rederive(result.decision, Inputs(value, read_record(value)), Policy())
    assert derived.to_bytes() == result.decision.to_bytes()


async def test_a_claim_whose_host_failed_is_approved_once_the_host_answers_and_no_person_saw_it():
    world = Outage()
    first = await world.look_up(world.claim("c", TEXT))
    assert isinstance(first, Deferred)
    again = through_kafka(first)
    assert (again.topic, again.offset, again.value) == ("groundwire.claims", 1, first.record.value)
    world.answers[URL], world.seconds = 200, due(first)
    result = await world.look_up(again)
    assert (result.decision.reason_code, result.decision.revision) == ("verified_citation", 1)
    assert_derived_again(result)


async def test_look_ups_are_spaced_and_at_the_end_of_the_patience_a_person_gets_the_claim():
    world, times = Outage(), []
    record = world.claim("c", TEXT)
    while isinstance(result := await world.look_up(record), Deferred):
        times.append(due(result))
        world.seconds, record = due(result) - 1, through_kafka(result)
        assert await world.look_up(record) == Deferred(record), "it is not due yet, and nothing is asked"
        world.seconds += 1
    assert times == pytest.approx([30, 60, 120, 240, 480, 600], abs=0.01)
    assert result.decision.reason_code == "citation_unverified"
    assert [citation.state for citation in result.decision.citations] == ["unknown"]
    assert_derived_again(result)


async def test_nothing_waits_where_an_answer_is_there_or_would_change_nothing():
    for status, text, fields, patience in (
        (503, TEXT, {"source": "user"}, PATIENCE),
        (503, f"I think the ledger keeps nine shards, see {URL}", {}, PATIENCE),
        (503, TEXT, {"validity_horizon": "2026-01-31T12:00:00Z"}, PATIENCE),
        (403, TEXT, {}, PATIENCE),
        (404, TEXT, {}, PATIENCE),
        (503, TEXT, {}, 0.0),
    ):
        world = Outage(status)
        world.patience = patience
        assert isinstance(await world.look_up(world.claim("c", text, **fields)), Decided), (status, text)
    world = Outage()
    assert isinstance(await world.look_up(world.claim("first", TEXT)), Deferred)
    hedged = world.claim("hedged", f"I think the quay opens at dawn, see {URL}")
    assert isinstance(await world.look_up(hedged, deferred=False), Decided)
    world.patience = 0.0
    other = world.claim("other", f"The quay opens at dawn, see {URL}", user_id="bob")
    assert isinstance(await world.look_up(other, deferred=False), Decided)
    world = Outage()
    waits, other = world.claim("waits", TEXT), world.claim("next", "The parser reads tokens", source="user")
    results: Any = await world.results(waits, other)
    assert [type(result) for result in results] == [Deferred, Decided]
    assert results[1].decision.reason_code == "trusted_source"


async def test_claims_that_cite_what_failed_a_moment_ago_wait_as_the_first_does():
    """What a cache knows of a failing host is no answer to the worker that asks nobody."""
    for status, reason in [(200, "verified_citation"), (503, "citation_unverified")]:
        world = Outage()
        assert isinstance(await world.look_up(world.claim("first", TEXT)), Deferred)
        records = [
            world.claim(f"later{n}", f"Quay {n} opens at dawn {n}, see {URL}", user_id=f"u{n}")
            for n in range(5)
        ]
        assert await world.results(*records, deferred=False) == [Deferred(record) for record in records]
        again = [await world.look_up(record) for record in records]
        assert all(isinstance(result, Deferred) for result in again), "looked up again later"
        world.answers[URL], world.seconds = status, PATIENCE
        decided = [await world.look_up(through_kafka(result)) for result in again]
        assert [result.decision.reason_code for result in decided] == [reason] * 5


def test_a_header_that_no_worker_wrote_makes_nothing_wait():
    """On an input topic it is passed to nobody, and on `deferred` only two numbers count."""
    forged = InboundRecord("groundwire.claims", 0, 1, 1, b"k", claim_bytes(), (("gw-origin-retry", b"1 9"),))
    assert forged.retry is None
    assert "gw-origin-retry" not in dict(deferred_headers(forged))
    place = [(f"gw-origin-{name}", b"1") for name in ("topic", "partition", "offset", "timestamp")]
    for value, read in ((b"1 9", LookupRetry(1, 9)), (b"1", None), (b"x 9", None), (b"1 9 9", None)):
        record = InboundRecord("d", 0, 1, 1, b"k", b"{}", (*place, ("gw-origin-retry", value)))
        assert deferred_record(record).retry == read
