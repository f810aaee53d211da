"""What clients follow: the table of approved claims, the decisions of sent records, and the standing of a subject."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import weakref
from datetime import UTC, datetime, timedelta
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.client import ApprovedTable, Change, Decision, Producer, Retraction, Sent, fields
from groundwire.client import following as module
from groundwire.client.following import MemoryStanding, Outcomes
from groundwire.errors import RecordError, UsageError
from groundwire.messages import records
from groundwire.messages.decisions import Kind
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import InboundRecord, decision_headers, event_headers
from groundwire.messages.identity import Subject, decision_id, retraction_id
from groundwire.messages.topics import record_key

SAMPLES = Path(__file__).resolve().parents[2] / "contract" / "samples"
SAMPLE = Decision.model_validate_json((SAMPLES / "decision.good.approved-claim.json").read_text())
NOW = datetime(2026, 2, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SUBJECT = Subject("acme", "maria", Kind.CLAIM, "c1")


def record(value, headers, topic="any"):
    return InboundRecord(topic, 0, 0, 0, record_key("acme", "maria"), value, headers)


def decided(revision=1, content="Redis is fast", *, claim_id="c1", horizon=None, **changes):
    subject = SUBJECT._replace(subject_id=claim_id)
    evidence = dataclasses.replace(SAMPLE.evidence, claim=content, validity_horizon=horizon)
    supersedes = decision_id(subject, revision - 1) if revision > 1 else None
    changes |= {"tenant_id": "acme", "user_id": "maria", "subject_id": claim_id, "supersedes": supersedes}
    changes |= {"revision": revision, "decision_id": decision_id(subject, revision), "evidence": evidence}
    decision = SAMPLE.model_copy(update=changes)
    return record(decision.to_bytes(), decision_headers(decision, []))


def retracted(revision=1, *, at=NOW):
    ids = {"decision_id": decision_id(SUBJECT, revision + 1), "supersedes": decision_id(SUBJECT, revision)}
    whose = {"kind": "claim", "subject_id": "c1", "tenant_id": "acme", "user_id": "maria"}
    retraction = Retraction(**ids, **whose, reason="outdated", actor="maria", at=at, affected=[])
    headers = event_headers("retraction", retraction_id(retraction.decision_id), "", "c1", [])
    return record(retraction.model_dump_json().encode(), headers)


def erased(until):
    return record(None, Erasure("acme", "maria", until).headers)


# the table


def stored(table):
    return [memory.content for memory in table.memories("acme", "maria", at=NOW)]


BEFORE = [
    *(decided(1), decided(2, "Redis is very fast"), retracted(2), decided(3, approved=False)),
    *(decided(1, "Kafka keeps order", claim_id="c2"), decided(1, claim_id="c3", approved=False)),
]
AFTER = [
    decided(1, "a second life", decided_at=SAMPLE.decided_at + SECOND),
    decided(1, "and more", claim_id="c2", decided_at=SAMPLE.decided_at + SECOND),
]


@given(st.data())
def test_every_order_and_every_repeat_ends_in_the_same_table(data):
    """So does an erasure, wherever its tombstone comes: the old ids come again, with revisions that begin anew."""
    again = data.draw(st.lists(st.sampled_from([*BEFORE, *AFTER])))
    life = data.draw(st.permutations([*BEFORE, *again]))

    def check(records, expected):
        table, elsewhere = ApprovedTable(), {}
        for one in records:
            elsewhere |= {change.subject: change.memory for change in table.apply(one)}
        assert stored(table) == expected
        held = [elsewhere[subject] for subject in sorted(elsewhere) if elsewhere[subject]]
        assert held == table.memories("acme", "maria", at=NOW), (
            "whoever carries out the changes holds the same"
        )

    check([one for one in life if one not in AFTER], ["Kafka keeps order"])
    whole = data.draw(st.permutations([*life, *AFTER, erased(SAMPLE.decided_at)]))
    check(whole, ["a second life", "and more"])


def test_a_repeat_changes_nothing_and_a_retraction_or_a_tombstone_takes_away_what_was_decided_before_alone():
    table = ApprovedTable()
    (first,) = table.apply(decided())
    assert first.memory
    assert first.memory.content == "Redis is fast"
    assert table.apply(decided()) == []
    assert table.apply(retracted()) == [Change(first.subject, None)]
    assert table.apply(retracted()) == []
    for order in (1, -1):
        table = ApprovedTable()
        for one in [retracted(at=SAMPLE.decided_at - SECOND), decided()][::order]:
            table.apply(one)
        assert stored(table) == ["Redis is fast"], "decided later, under the same id"
        table = ApprovedTable()
        given = [decided(), decided(2, "newer"), decided(claim_id="c2"), erased(SAMPLE.decided_at)]
        changes = [change for one in given[::order] for change in table.apply(one)]
        assert stored(table) == []
        assert [change.memory for change in changes[-2:]] == ([None, None] if order == 1 else [])


def test_what_has_expired_what_is_of_others_and_other_records_are_left_out():
    table = ApprovedTable()
    table.apply(decided(horizon=NOW))
    assert stored(table) == []
    assert len(table.memories("acme", "maria", at=NOW - SECOND)) == 1
    assert table.memories("acme", "ann") == table.memories("default", "maria") == []
    headers = event_headers("audit", "1", "", "c1", [])
    assert table.apply(record(b"{}", headers)) == table.apply(record(b"x", [])) == []


def test_a_decision_reads_as_it_was_written_and_one_that_cannot_be_read_is_refused_without_its_text():
    written = decided(horizon=NOW)
    assert Decision.from_record(written).to_bytes() == written.value
    broken = record(written.value.replace(b'"revision":1', b'"revision":"secret"'), written.headers)
    with pytest.raises(ValueError, match=r"^Decision: revision cannot be read$"):
        ApprovedTable().apply(broken)
    newer = [(n, b"groundwire.decision.v2" if n == "ce_type" else value) for n, value in written.headers]
    with pytest.raises(ValueError, match=r"ce_type is not groundwire\.decision\.v1"):
        Decision.from_record(record(written.value, newer))


# decisions of what was sent


@pytest.fixture
async def topics(monkeypatch):
    """Records, or the error that reading ends with, as they are put in."""
    made = asyncio.Queue()

    async def batches(follower):
        follower.begun = True
        yield []
        while True:
            given = await made.get()
            if isinstance(given, Exception):
                raise given
            yield [given]

    monkeypatch.setattr(module.TopicFollower, "batches", batches)
    return made


async def outcome_of(outcome):
    return await Producer(brokers="127.0.0.1:1").decided(Sent(SUBJECT, outcome), seconds=5)


async def test_a_decision_only_resolves_the_futures_of_who_sent_what_it_decides_and_an_error_by_its_code(
    topics,
):
    """Another text under the same id is not approved; a code of a newer gate is an invalid record."""
    outcomes = Outcomes("127.0.0.1:1", "p.", 1)
    async with outcomes.following():
        mine, other, newer = (outcomes.of(SUBJECT, one, two) for one, two in (
            (SAMPLE.fingerprint, b"a"), ("0" * 64, b"b"), ("2" * 64, b"c")
        ))  # fmt: skip
        for one in (decided(fingerprint="1" * 64), decided()):
            topics.put_nowait(one)
        assert (await outcome_of(mine)).fingerprint == SAMPLE.fingerprint
        assert not other.done()
        for outcome, value, code, known in (
            (other, b"b", b"claim_id_conflict", "claim_id_conflict"),
            (newer, b"c", b"new_code", "invalid_record"),
        ):
            topics.put_nowait(record(value, (("gw-error", code),), "p.dead-letter"))
            with pytest.raises(RecordError, match=code.decode()) as raised:
                await outcome_of(outcome)
            assert raised.value.code == known


async def test_nothing_is_kept_of_who_no_longer_waits():
    def groups():
        gc.collect()
        return sum(isinstance(one, weakref.WeakValueDictionary) for one in gc.get_objects())

    outcomes = Outcomes("127.0.0.1:1", "p.", 1)
    before = groups()
    outcome = outcomes.of(SUBJECT, "0" * 64, b"v")
    assert outcomes.of(SUBJECT, "0" * 64, b"again") is outcome
    assert groups() == before + 1
    gone = weakref.ref(outcome)
    del outcome
    assert groups() == before
    assert gone() is None


async def test_waiters_get_the_error_that_following_ended_with_and_who_comes_later_too(topics):
    outcomes = Outcomes("127.0.0.1:1", "p.", 1)
    async with outcomes.following():
        early = outcomes.of(SUBJECT, "0" * 64, b"v")
        topics.put_nowait(UsageError("there is no topic p.approved"))
        for outcome in (early, None):
            with pytest.raises(UsageError, match="no topic"):
                await outcome_of(outcome or outcomes.of(SUBJECT, "0" * 64, b"later"))


# what is sent


async def test_values_that_json_cannot_hold_are_refused_by_field_before_anything_is_sent():
    for value in (float("nan"), {1, 2}, "\ud800", object(), b"x"):
        with pytest.raises(RecordError, match="metadata") as raised:
            await Producer(brokers="127.0.0.1:1").claim("It rains.", user_id="maria", metadata={"a": value})
        assert raised.value.field == "metadata"


def test_typed_fields_are_those_of_the_records_that_the_gate_reads():
    for typed, model, given_ in [
        (fields.ClaimFields, records.Claim, {"content", "claim_id", "schema_version"}),
        (fields.ResponseFields, records.LlmResponse, {"answer", "response_id", "schema_version"}),
        (fields.ChunkFields, records.Chunk, set()),
        (fields.SourceFields, records.Source, set()),
        (fields.EntityFields, records.Entity, set()),
        (fields.RelationFields, records.RelationClaim, set()),
        (fields.StepFields, records.Step, set()),
    ]:
        assert set(typed.__annotations__) | given_ == set(model.model_fields)
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert set(typed.__required_keys__) == required - given_


# the standing of a subject


def test_the_highest_revision_counts_blocked_where_it_was_withdrawn_and_nothing_is_known_of_what_was_erased():
    def standing(*given_):
        known = MemoryStanding(SUBJECT)
        for one in given_:
            known.note(one)
        return known.now

    assert standing(decided(2, "newer"), decided(1), decided(3, claim_id="c2")).evidence.claim == "newer"
    assert standing(decided(claim_id="c2")) is None
    for order in permutations([decided(1), decided(2), retracted(2)]):
        now = standing(*order)
        assert (now.approved, now.verdict, now.reason_code) == (False, "blocked", "retracted")
        assert (now.revision, now.reason, now.decided_at) == (3, "outdated", NOW)
    for step in (1, -1):
        assert standing(*[decided(), retracted(), erased(SAMPLE.decided_at)][::step]) is None
    assert standing(erased(SAMPLE.decided_at - SECOND), decided()).approved
