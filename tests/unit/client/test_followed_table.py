"""The table of approved claims stays right whatever order records come in, and however often."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.client import ApprovedTable, Change, Decision, Retraction
from groundwire.messages.decisions import Kind
from groundwire.messages.erasure import Erasure
from groundwire.messages.headers import InboundRecord, decision_headers, event_headers
from groundwire.messages.identity import Subject, decision_id, retraction_id
from groundwire.messages.topics import record_key

SAMPLES = Path(__file__).resolve().parents[2] / "contract" / "samples"
SAMPLE = Decision.model_validate_json((SAMPLES / "decision.good.approved-claim.json").read_text())
NOW = datetime(2026, 2, 1, tzinfo=UTC)


def record(value, headers):
    return InboundRecord("any", 0, 0, 0, record_key("acme", "maria"), value, headers)


def decided(revision=1, content="Redis is fast", *, claim_id="c1", horizon=None, **changes):
    subject = Subject("acme", "maria", Kind.CLAIM, claim_id)
    evidence = dataclasses.replace(SAMPLE.evidence, claim=content, validity_horizon=horizon)
    supersedes = decision_id(subject, revision - 1) if revision > 1 else None
    changes |= {"tenant_id": "acme", "user_id": "maria", "subject_id": claim_id, "supersedes": supersedes}
    changes |= {"revision": revision, "decision_id": decision_id(subject, revision), "evidence": evidence}
    decision = SAMPLE.model_copy(update=changes)
    return record(decision.to_bytes(), decision_headers(decision, []))


def retracted(revision=1, *, at=NOW):
    subject = Subject("acme", "maria", Kind.CLAIM, claim_id := "c1")
    ids = {"decision_id": decision_id(subject, revision + 1), "supersedes": decision_id(subject, revision)}
    whose = {"kind": "claim", "subject_id": claim_id, "tenant_id": "acme", "user_id": "maria"}
    retraction = Retraction(**ids, **whose, reason="outdated", actor="maria", at=at, affected=[])
    headers = event_headers("retraction", retraction_id(retraction.decision_id), "", claim_id, [])
    return record(retraction.model_dump_json().encode(), headers)


def erased(until):
    return record(None, Erasure("acme", "maria", until).headers)


def stored(table):
    return [memory.content for memory in table.memories("acme", "maria", at=NOW)]


LIFE = [
    *(decided(1), decided(2, "Redis is very fast"), retracted(2), decided(3, approved=False)),
    *(decided(1, "Kafka keeps order", claim_id="c2"), decided(1, claim_id="c3", approved=False)),
]


@given(st.lists(st.sampled_from(LIFE)).flatmap(lambda again: st.permutations([*LIFE, *again])))
def test_every_order_and_every_repeat_ends_in_the_same_table(records):
    """Whoever carries out the changes holds what the table holds."""
    table, elsewhere = ApprovedTable(), {}
    for one in records:
        elsewhere |= {change.subject: change.memory for change in table.apply(one)}
    assert stored(table) == ["Kafka keeps order"]
    assert [memory for memory in elsewhere.values() if memory] == table.memories("acme", "maria", at=NOW)


def test_a_repeat_changes_nothing_and_a_retraction_takes_away():
    table = ApprovedTable()
    (first,) = table.apply(decided())
    assert first.memory
    assert first.memory.content == "Redis is fast"
    assert table.apply(decided()) == []
    assert table.apply(retracted()) == [Change(first.subject, None)]
    assert table.apply(retracted()) == []


def test_a_retraction_leaves_what_was_decided_later_under_the_same_id():
    for order in (1, -1):
        table = ApprovedTable()
        for one in [retracted(at=SAMPLE.decided_at - timedelta(seconds=1)), decided()][::order]:
            table.apply(one)
        assert stored(table) == ["Redis is fast"]


def test_a_tombstone_takes_away_what_was_decided_before_whichever_comes_first():
    for order in (1, -1):
        table = ApprovedTable()
        records = [decided(), decided(2, "newer"), decided(claim_id="c2"), erased(SAMPLE.decided_at)]
        changes = [change for one in records[::order] for change in table.apply(one)]
        assert stored(table) == []
        assert [change.memory for change in changes[-2:]] == ([None, None] if order == 1 else [])


_LATER = {"decided_at": SAMPLE.decided_at + timedelta(seconds=1)}
AFTER = [decided(1, "a second life", **_LATER), decided(1, "and more", claim_id="c2", **_LATER)]


@given(
    st.lists(st.sampled_from([*LIFE, *AFTER])).flatmap(lambda more: st.permutations([*LIFE, *AFTER, *more])),
    st.data(),
)
def test_what_is_decided_after_an_erasure_is_kept_wherever_the_tombstone_comes(records, data):
    """Under the old ids, with revisions that begin anew."""
    table, elsewhere = ApprovedTable(), {}
    records.insert(data.draw(st.integers(0, len(records))), erased(SAMPLE.decided_at))
    for one in records:
        elsewhere |= {change.subject: change.memory for change in table.apply(one)}
    assert stored(table) == ["a second life", "and more"]
    held = [elsewhere[subject] for subject in sorted(elsewhere) if elsewhere[subject]]
    assert held == table.memories("acme", "maria", at=NOW)


def test_what_has_expired_what_is_of_others_and_other_records_are_left_out():
    table = ApprovedTable()
    table.apply(decided(horizon=NOW))
    assert stored(table) == []
    assert len(table.memories("acme", "maria", at=NOW - timedelta(seconds=1))) == 1
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
