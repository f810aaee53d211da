"""Who waits for a decision gets that of what was sent, or an error; a subject has its last decision."""

from __future__ import annotations

import asyncio
import gc
import weakref
from datetime import timedelta
from itertools import permutations
from types import MappingProxyType

import pytest

from groundwire.client import fields
from groundwire.client import outcomes as module
from groundwire.client.outcomes import MemoryStanding, Outcomes
from groundwire.client.producer import Producer, Sent
from groundwire.errors import RecordError, UsageError
from groundwire.messages import records
from groundwire.messages.decisions import Kind
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from tests.unit.client.test_followed_table import NOW, SAMPLE, decided, erased, retracted

SUBJECT = Subject("acme", "maria", Kind.CLAIM, "c1")


@pytest.fixture
def outcomes():
    return Outcomes("127.0.0.1:1", "p.", 1)


async def test_a_decision_is_only_told_to_who_sent_what_it_decides(outcomes):
    mine = outcomes.of(SUBJECT, SAMPLE.fingerprint, b"a")
    other = outcomes.of(SUBJECT, "0" * 64, b"b")
    outcomes._decided(decided(fingerprint="1" * 64))
    assert not mine.done(), "the first that arrives may be of something else"
    outcomes._decided(decided())
    assert mine.done()
    assert not other.done(), "another text under the same id is not approved"
    outcomes._refused(letter(b"b", b"claim_id_conflict"))
    with pytest.raises(RecordError) as raised:
        await Producer(brokers="127.0.0.1:1").decided(Sent(SUBJECT, other))
    assert raised.value.code == "claim_id_conflict"


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


def test_typed_fields_are_those_of_the_records_that_the_gate_reads():
    for typed, model, given in [
        (fields.ClaimFields, records.Claim, {"content", "claim_id", "schema_version"}),
        (fields.ResponseFields, records.LlmResponse, {"answer", "response_id", "schema_version"}),
        (fields.ChunkFields, records.Chunk, set()),
        (fields.SourceFields, records.Source, set()),
        (fields.EntityFields, records.Entity, set()),
        (fields.RelationFields, records.RelationClaim, set()),
        (fields.StepFields, records.Step, set()),
    ]:
        assert set(typed.__annotations__) | given == set(model.model_fields)
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert set(typed.__required_keys__) == required - given


def standing(*given):
    known = MemoryStanding(Subject("acme", "maria", Kind.CLAIM, "c1"))
    for record in given:
        known.note(record)
    return known.now


def test_the_highest_revision_stands_and_others_subjects_do_not_count():
    assert standing(decided(2, "newer"), decided(1), decided(3, claim_id="c2")).evidence.claim == "newer"
    assert standing(decided(claim_id="c2")) is None


def test_an_approval_that_was_withdrawn_is_blocked_in_every_order_of_records():
    for order in permutations([decided(1), decided(2), retracted(2)]):
        now = standing(*order)
        assert (now.approved, now.verdict, now.reason_code) == (False, "blocked", "retracted")
        assert (now.revision, now.reason, now.decided_at) == (3, "outdated", NOW)


def test_nothing_is_known_of_an_erased_subject_until_it_is_decided_again():
    for order in (1, -1):
        assert standing(*[decided(), retracted(), erased(SAMPLE.decided_at)][::order]) is None
    assert standing(erased(SAMPLE.decided_at - timedelta(seconds=1)), decided()).approved
