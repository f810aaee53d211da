"""Who waits for a decision gets that of what was sent, or is told why there is none."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import MappingProxyType

import pytest

from groundwire.client import outcomes as module
from groundwire.client.outcomes import Outcomes
from groundwire.client.producer import Producer, Sent
from groundwire.errors import RecordError, UsageError
from groundwire.messages.decisions import Kind
from groundwire.messages.headers import InboundRecord, decision_headers
from groundwire.messages.identity import Subject
from groundwire.messages.topics import record_key
from tests.unit.client.test_followed_table import SAMPLE, decided

SUBJECT = Subject("acme", "maria", Kind.CLAIM, "c1")


@pytest.fixture
def outcomes():
    return Outcomes("127.0.0.1:1", "p.", 1)


async def test_a_decision_is_only_told_to_who_sent_what_it_decides(outcomes):
    mine = outcomes.of(SUBJECT, SAMPLE.fingerprint, b"a")
    other = outcomes.of(SUBJECT, "0" * 64, b"b")
    outcomes._decided(decided())
    assert mine.done()
    assert not other.done(), "another text under the same id is not approved"
    outcomes._refused(letter(b"b", b"claim_id_conflict"))
    with pytest.raises(RecordError) as raised:
        await Producer(brokers="127.0.0.1:1").decided(Sent(SUBJECT, other))
    assert raised.value.code == "claim_id_conflict"


async def test_a_decision_that_arrives_for_something_else_first_leaves_the_later_one_waiting(outcomes):
    mine = outcomes.of(SUBJECT, SAMPLE.fingerprint, b"a")
    another = SAMPLE.model_copy(
        update={"tenant_id": "acme", "user_id": "maria", "subject_id": "c1", "fingerprint": "1" * 64}
    )
    key, headers = record_key("acme", "maria"), decision_headers(another, [])
    outcomes._decided(InboundRecord("p.approved", 0, 0, 0, key, another.to_bytes(), headers))
    assert not mine.done()
    outcomes._decided(decided())
    assert mine.done()


def letter(value, code):
    return InboundRecord("p.dead-letter", 0, 0, 0, b"k", value, (("gw-error", code),))


async def test_a_code_of_a_newer_gate_is_told_as_an_invalid_record(outcomes):
    outcome = outcomes.of(SUBJECT, "0" * 64, b"v")
    outcomes._refused(letter(b"v", b"new_code"))
    assert (outcome.result().code, str(outcome.result())) == ("invalid_record", "new_code")


async def test_nothing_is_kept_of_who_no_longer_waits(outcomes):
    outcome = outcomes.of(SUBJECT, "0" * 64, b"v")
    assert outcomes.of(SUBJECT, "0" * 64, b"again") is outcome
    gone = weakref.ref(outcomes._subjects[SUBJECT])
    del outcome
    gc.collect()
    assert gone() is None
    assert not outcomes._subjects
    assert not outcomes._letters


async def test_who_waits_is_told_what_following_ended_with_and_who_comes_later_too(outcomes, monkeypatch):
    proceed = asyncio.Event()

    async def follow(ready):
        ready.set_result(None)
        await proceed.wait()
        raise UsageError("there is no topic p.approved")

    monkeypatch.setattr(outcomes, "_follow", follow)
    async with outcomes.following():
        early = outcomes.of(SUBJECT, "0" * 64, b"v")
        proceed.set()
        for outcome in (early, None):
            waiting = outcome or outcomes.of(SUBJECT, "0" * 64, b"later")
            with pytest.raises(UsageError, match="no topic"):
                await Producer(brokers="127.0.0.1:1").decided(Sent(SUBJECT, waiting), seconds=5)


async def test_reading_ends_where_a_topic_has_more_partitions(outcomes, monkeypatch):
    class Reader:
        positions = MappingProxyType({1: 0})

        async def batch(self):
            return []

        async def ends(self, *_):
            return {1: 0, 2: 0}

    monkeypatch.setattr(module, "_LOOK_ANEW", 0)
    await asyncio.wait_for(outcomes._read(Reader(), ["p.approved"]), 5)


async def test_values_that_json_cannot_hold_are_refused_by_field_before_anything_is_sent():
    for value in (float("nan"), {1, 2}, "\ud800", object(), b"x"):
        with pytest.raises(RecordError, match="metadata") as raised:
            await Producer(brokers="127.0.0.1:1").claim("It rains.", user_id="maria", metadata={"a": value})
        assert raised.value.field == "metadata"
