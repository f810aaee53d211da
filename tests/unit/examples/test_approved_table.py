"""The example that keeps a table of approved claims: right whatever comes in whichever order."""

import json
import sqlite3
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.headers import decision_headers
from groundwire.messages.identity import Subject, decision_id, retraction_id
from tests.services.fixtures import or_skip
from tests.services.postgres import PostgresServer
from tests.unit.examples.loading import load

ROOT = Path(__file__).resolve().parents[3]
example = load("approved_table/table.py")
AT = "2026-02-01T12:00:00.5Z"
SUBJECTS = [
    Subject("acme", "ann", Kind.CLAIM, "c1"),
    Subject("acme", "ann", Kind.RESPONSE, "c1"),
    Subject("acme", "bob", Kind.CLAIM, "c1"),
    Subject("acme:ann", "c1", Kind.CLAIM, "'; DROP TABLE decisions; --"),
]


def decided(subject, revision, verdict, previous):
    evidence = {"claim": f"{subject} at {revision}", "confidence": "high", "validity_horizon": None}
    value = {"decision_id": decision_id(subject, revision), "revision": revision, "supersedes": previous}
    value |= {**subject._asdict(), "approved": verdict == "approved", "decided_at": AT, "tomorrow": "later"}
    value |= {"evidence": None if subject.kind == Kind.RESPONSE else evidence}
    headers = [("ce_id", value["decision_id"].encode()), ("ce_type", b"groundwire.decision.v1")]
    return headers, json.dumps(value).encode()


def retracted(subject, revision):
    names = {"decision_id": decision_id(subject, revision), "supersedes": decision_id(subject, revision - 1)}
    value = {**subject._asdict(), **names, "at": AT}
    ce_id = retraction_id(value["decision_id"]).encode()
    return [("ce_id", ce_id), ("ce_type", b"groundwire.retraction.v1")], json.dumps(value).encode()


@st.composite
def deliveries(draw):
    """A history of all subjects as it may be read, its records, and the rows that are true in the end.

    Revisions follow one another in any way. Where an approval is blocked, a retraction says so too, and the
    decision itself may be gone: `blocked` is kept for a shorter time. Each record is read at least once, in any
    order, in batches of any size.
    """
    records, rows = [], set()
    for subject in draw(st.lists(st.sampled_from(SUBJECTS), unique=True, min_size=1)):
        before = None
        if draw(st.booleans()):
            records.append(decided(subject, 0, draw(st.sampled_from(["review", "blocked"])), None))
        chain = draw(st.lists(st.sampled_from(["approved", "review", "blocked"]), min_size=1, max_size=5))
        for revision, verdict in enumerate(chain, 1):
            previous = decision_id(subject, revision - 1) if revision > 1 else None
            record = decided(subject, revision, verdict, previous)
            withdrawn = (before, verdict) == ("approved", "blocked")
            if withdrawn:
                records.append(retracted(subject, revision))
            if not (withdrawn and revision == len(chain) and draw(st.booleans())):
                records.append(record)
            before = verdict
        if before == "approved" and subject.kind == Kind.CLAIM:  # of a response no text is known
            rows.add((*map(str, subject), len(chain), f"{subject} at {len(chain)}"))
    repeats = draw(st.lists(st.sampled_from(records), max_size=len(records)))
    stream = draw(st.permutations([*records, *repeats]))
    if draw(st.booleans()):
        stream += stream  # from the beginning again
    size = draw(st.integers(1, len(stream)))
    return [stream[first : first + size] for first in range(0, len(stream), size)], records, rows


def apply(table, batches):
    for batch in batches:
        table.apply([event for event in (example.read(*record) for record in batch) if event])


def ask(table, query="SELECT tenant_id, user_id, kind, subject_id, revision, content FROM memories"):
    cursor = table.connection.cursor()
    cursor.execute(query)
    rows = cursor.fetchall()
    table.connection.rollback()
    return rows


def assert_right(table, records, rows):
    found = ask(table)
    assert len(found) == len(set(found))
    assert set(found) == rows
    texts = {row[0] for row in ask(table, "SELECT content FROM decisions WHERE content IS NOT NULL")}
    assert texts == {text for *_, text in rows}, "nothing stays of what was withdrawn"
    apply(table, [records])
    assert set(ask(table)) == rows, "read once more, it is the same table"


@given(deliveries())
def test_the_table_is_what_was_decided_in_whichever_order_and_however_often_it_is_read(delivery):
    batches, records, rows = delivery
    table = example.Table(":memory:")
    apply(table, batches)
    assert_right(table, records, rows)
    table.close()


def test_the_table_is_still_there_after_a_restart_and_a_batch_that_breaks_off_leaves_nothing_behind(tmp_path):
    path = str(tmp_path / "memories.sqlite")
    event = example.read(*decided(SUBJECTS[0], 1, "approved", None))
    broken = example.Decided("x", 0, ("z",) * 4, 1, None, approved=True, content=(None,) * 3)
    table = example.Table(path)
    with pytest.raises(sqlite3.IntegrityError):
        table.apply([event, broken])
    assert ask(table, "SELECT * FROM seen") == []
    for number, subject in enumerate((SUBJECTS[0], SUBJECTS[2]), 1):
        apply(table, [[decided(subject, 1, "approved", None)]])
        assert len(ask(table)) == number
        table.close()
        table = example.Table(path)
    assert len(ask(table)) == 2
    table.close()


def test_a_tombstone_deletes_what_was_decided_before_it_whichever_comes_first():
    def tombstone(time):
        return [("ce_id", b"t"), ("ce_time", time)], None, b"acme:ann"

    approvals = [decided(SUBJECTS[0], 1, "approved", None), decided(SUBJECTS[2], 1, "approved", None)]
    records = [*approvals, tombstone(b"2026-02-01T12:00:01Z")]
    for order in (1, -1):
        table = example.Table(":memory:")
        apply(table, [[record] for record in records[::order]])
        assert [row[1] for row in ask(table)] == ["bob"]
        assert ask(table, "SELECT count(*) FROM decisions WHERE user_id = 'ann'") == [(0,)]
        table.close()
    # decided anew after an erasure: revisions begin anew, so that the old one's is higher
    first = decided(SUBJECTS[0], 1, "approved", None)
    second = decided(SUBJECTS[0], 2, "approved", decision_id(SUBJECTS[0], 1))
    again = first[0], first[1].replace(AT.encode(), b"2026-02-01T12:00:02Z").replace(b" at 1", b" anew")
    for order in permutations([first, second, again, tombstone(b"2026-02-01T12:00:01Z")]):
        table = example.Table(":memory:")
        apply(table, [[record] for record in order])
        apply(table, [order])
        assert [row[-1] for row in ask(table)] == [f"{SUBJECTS[0]} anew"]
        assert ask(table, "SELECT count(*) FROM decisions") == [(1,)]
        table.close()
    table = example.Table(":memory:")
    apply(table, [[first, records[-1], retracted(SUBJECTS[0], 2)], [again], [first]])
    assert len(ask(table)) == 1
    table.close()


def test_it_reads_a_decision_as_the_gate_writes_it_and_refuses_what_is_none():
    sample = ROOT / "tests/contract/samples/decision.good.approved-claim.json"
    decision = Decision.model_validate_json(sample.read_bytes())
    event = example.read(decision_headers(decision, []), decision.to_bytes())
    assert (event.ce_id, event.approved, event.revision) == (decision.decision_id, True, decision.revision)
    assert event.content[0] == decision.evidence.claim
    headers, value = decided(SUBJECTS[0], 1, "approved", None)
    assert example.read([("ce_id", b"x"), ("ce_type", b"groundwire.audit.v1")], value) is None
    odd = {
        "user_id": ({}, "a\0b", "\ud800"),
        "revision": (None, True, -1, 2**63, "1"),
        "approved": ("yes",),
        "decision_id": (None,),
        "evidence": (1, {"claim": []}, {"claim": "x", "confidence": "high", "validity_horizon": 1}),
    }
    values = [json.dumps({**json.loads(value), name: one}).encode() for name in odd for one in odd[name]]
    for broken in (*values, None, b"", b"{", b"[]", b"null", b"\xff", b"{}"):
        with pytest.raises(ValueError, match=r"."):
            example.read(headers, broken)


@pytest.mark.slow
def test_in_postgresql_it_is_the_same_with_two_programs_at_work():
    pytest.importorskip("psycopg")

    @settings(max_examples=40)
    @given(deliveries())
    def holds(delivery):
        batches, records, rows = delivery
        first.connection.execute("TRUNCATE decisions, retracted, erased, owners, seen")
        first.connection.commit()
        apply(first, batches[::2])
        apply(second, batches[1::2])
        assert_right(first, records, rows)
        assert set(ask(second)) == rows

    with or_skip(PostgresServer) as server:
        first, second = (example.Table(server.url) for _ in range(2))
        holds()
        first.close()
        second.close()
