"""Headers of records: CloudEvents, dead letters with their attempts, origins of deferred records."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.headers import (
    InboundRecord,
    dead_letter_headers,
    decision_headers,
    deferred_headers,
    deferred_record,
    event_headers,
    header,
)
from tests.unit.gate.world import World

TRACE = ("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")

STATE = ("tracestate", b"vendor=00f067aa0ba902b7")


async def test_a_decision_carries_the_headers_of_a_cloud_event_in_binary_mode():
    decision = await World().one("The API returns JSON", "größe")
    headers = dict(decision_headers(decision, [TRACE, STATE, ("gw-attestation", b"k:0"), ("other", b"x")]))
    assert headers == {
        "ce_specversion": b"1.0",
        "ce_id": decision.decision_id.encode(),
        "ce_type": b"groundwire.decision.v1",
        "ce_source": b"/groundwire/gate",
        "ce_time": b"2026-01-31T12:00:00.250Z",
        "ce_subject": "größe".encode(),
        "ce_dataschema": b"https://groundwire.dev/schemas/decision/1.0.json",
        "content-type": b"application/json",
        "traceparent": TRACE[1],
        "tracestate": STATE[1],
    }


def test_other_records_have_their_own_type_and_schema():
    for name in ["retraction", "regenerate", "audit"]:
        headers = dict(event_headers(name, "id", "2026-01-01T00:00:00Z", "c1", []))
        assert headers["ce_type"] == f"groundwire.{name}.v1".encode()
        assert headers["ce_dataschema"].endswith(f"/{name}/1.0.json".encode())
        assert "traceparent" not in headers
    headers = [("a", b"1"), ("a", b"2"), ("b", b"\xff"), ("c", None)]
    assert [header(headers, name) for name in "abcd"] == ["1", None, None, None]
    record = InboundRecord("t", 0, 1, 2, None, b"{}")
    assert record.origin.sha256 == record.sha256 == hashlib.sha256(b"{}").hexdigest()
    assert InboundRecord("t", 0, 1, 2, None, None).sha256 == hashlib.sha256(b"").hexdigest()


ERROR = RecordError(ErrorCode.INVALID_RECORD, "content: größer als erlaubt", "content")


def test_a_dead_letter_keeps_its_headers_and_says_where_and_why_it_failed():
    original = [TRACE, STATE, ("gw-attestation", b"k:0"), ("binary", b"\xff\x00")]
    headers = dead_letter_headers(ERROR, "groundwire.claims", 3, 42, original)
    assert headers[:4] == original
    added = dict(headers[4:])
    assert added["gw-error"] == b"invalid_record"
    assert added["gw-attempts"] == b"1"
    assert added["__connect.errors.topic"] == b"groundwire.claims"
    assert added["__connect.errors.partition"] == b"3"
    assert added["__connect.errors.offset"] == b"42"
    assert added["__connect.errors.exception.message"] == "content: größer als erlaubt".encode()
    error = RecordError(ErrorCode.INVALID_RECORD, "x: \x1b[2J\r\n\u202ename", "x")
    headers = dict(dead_letter_headers(error, "groundwire.claims", 0, 0, []))
    assert headers["__connect.errors.exception.message"] == rb"x: \x1b[2J\r\n\u202ename"


def test_a_dead_letter_that_is_sent_again_counts_its_attempts_and_has_each_header_once():
    for carried, attempts in [
        (b"1", b"2"),
        (b"41", b"42"),
        (b"0", b"1"),
        (b"99999", b"100000"),
        (b"100000", b"1"),
        ("²".encode(), b"1"),
        ("٣".encode(), b"1"),
        (b"x", b"1"),
        (b"-1", b"1"),
        (b"9" * 400, b"1"),
        (b"\xff", b"1"),
        (b"", b"1"),
    ]:
        first = dead_letter_headers(
            ERROR, "t", 0, 1, [("gw-attempts", carried), ("gw-error", b"worker_crash")]
        )
        names = [name for name, _ in first]
        assert len(names) == len(set(names))
        assert dict(first)["gw-attempts"] == attempts
        assert dict(first)["gw-error"] == b"invalid_record"


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


numbers = st.integers(0, 2**53 - 1)


@given(
    topic=st.none() | st.just("groundwire.claims"),
    partition=st.integers(0, 10_000),
    offset=numbers,
    timestamp=st.integers(-1, 2**63 - 1),
    headers=st.lists(st.tuples(text, st.binary(max_size=8)), max_size=4),
    value=st.none() | st.binary(max_size=20),
)
def test_a_record_comes_back_from_deferred_as_it_was(topic, partition, offset, timestamp, headers, value):
    kept = tuple(pair for pair in headers if not pair[0].startswith("gw-origin"))
    record = InboundRecord(topic, partition, offset, timestamp, b"k", value, kept)
    sent = InboundRecord("groundwire.deferred", 1, 7, 99, b"k", value, tuple(deferred_headers(record)))
    assert deferred_record(sent) == record
    again = InboundRecord(
        "groundwire.deferred", 2, 8, 99, b"k", value, tuple(deferred_headers(deferred_record(sent)))
    )
    assert deferred_record(again) == record


def test_a_producer_cannot_give_a_record_another_origin():
    """Headers of that name are replaced when a worker defers the record."""
    forged = (("gw-origin-topic", b"x"), ("gw-origin-partition", b"9"), ("gw-origin-offset", b"9"))
    record = InboundRecord("groundwire.claims", 0, 1, 5, None, b"{}", forged)
    sent = InboundRecord("groundwire.deferred", 0, 0, 6, None, b"{}", tuple(deferred_headers(record)))
    back = deferred_record(sent)
    assert (back.topic, back.partition, back.offset, back.timestamp) == ("groundwire.claims", 0, 1, 5)
    assert back.headers == ()


def test_a_deferred_record_without_a_readable_origin_stands_for_itself():
    for change in [
        {"gw-origin-topic": None},
        {"gw-origin-offset": None},
        {"gw-origin-partition": b"one"},
        {"gw-origin-timestamp": b"9" * 30},
        {"gw-origin-timestamp": b"\xff"},
        {"gw-origin-offset": "٣".encode()},
        {"gw-origin-offset": b" 5"},
        {"gw-origin-offset": b"1_000"},
    ]:
        origin = dict(deferred_headers(InboundRecord("t", 0, 1, 5, None, b"{}")))
        headers = tuple((name, value) for name, value in (origin | change).items() if value is not None)
        record = InboundRecord("groundwire.deferred", 0, 3, 6, None, b"{}", headers)
        assert deferred_record(record) == record

    def came_back(name: str, number: int) -> bool:
        place = {"topic": "claims", "partition": "1", "offset": "2", "timestamp": "3", name: f"{number}"}
        headers = tuple((f"gw-origin-{part}", text.encode()) for part, text in place.items())
        record = InboundRecord("groundwire.deferred", 0, 9, 9, None, b"{}", headers)
        return deferred_record(record).topic == "claims"

    for sign in (1, -1):
        for name in ("partition", "offset"):
            assert came_back(name, sign * (2**53 - 1))
            assert not came_back(name, sign * 2**53)
