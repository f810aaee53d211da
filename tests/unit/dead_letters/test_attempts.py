"""The gate counts on where a redriven record fails again."""

from __future__ import annotations

import pytest

from agents.outputs import Output, outputs, unpublishable
from groundwire.dead_letters.letters import read_letter
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.types import DeadLetter
from groundwire.messages.headers import InboundRecord, deferred_headers, deferred_record
from groundwire.messages.topics import TopicName
from tests.unit.dead_letters.fake_log import FakeLog


def sent_again(**options):
    """A record as it is read from its topic once it was redriven."""
    letter = read_letter(FakeLog().bury(**options))
    return InboundRecord("t.claims", 0, 12, 1, letter.record.key, letter.record.value, letter.again)


def failed(record):
    error = RecordError(ErrorCode.INVALID_JSON, "why")
    letter, _audit = outputs([DeadLetter(record, error)])
    return letter


def refused(record):
    output = Output(TopicName.APPROVED, record.key, b"{}", [("traceparent", b"0" * 1_000_000)], record)
    return unpublishable(output, "MessageSizeTooLargeError")


def waited(record):
    deferred = InboundRecord("t.deferred", 0, 3, 2, record.key, record.value, tuple(deferred_headers(record)))
    return failed(deferred_record(deferred))


@pytest.mark.parametrize("fails", [failed, refused, waited])
@pytest.mark.parametrize("before", [0, 1, 41])
def test_a_redriven_record_that_fails_again_has_failed_once_more(fails, before):
    headers = [("gw-attempts", str(before).encode())] if before else []
    letter = fails(sent_again(headers=headers))
    again = InboundRecord("t.dead-letter", 0, 0, 3, letter.key, letter.value, letter.headers)
    assert read_letter(again).attempts == before + 2
    assert read_letter(again).failed.offset == 12, "it names where it failed last"


def test_what_cannot_be_published_keeps_the_signature_without_which_it_could_not_be_decided_again():
    record = InboundRecord("t.claims", 0, 0, 1, b"k", b"v", [("gw-attestation", b"console:abc"), ("x", b"1")])
    headers = dict(refused(record).headers)
    assert headers["gw-attestation"] == b"console:abc"
    assert "x" not in headers


def test_a_count_that_fills_a_record_is_not_repeated_in_its_dead_letter():
    record = InboundRecord("t.claims", 0, 0, 1, b"k", b"v", [("gw-attempts", b"9" * 1_000_000)])
    headers = dict(refused(record).headers)
    assert headers["gw-attempts"] == b"1"


@pytest.mark.parametrize("name", ["gw-attempts", "gw-attestation"])
def test_a_header_without_a_value_does_not_keep_a_refused_record_from_its_dead_letter(name):
    record = InboundRecord("t.claims", 0, 0, 1, b"k", b"v", [(name, None)])
    headers = refused(record).headers
    assert dict(headers)["gw-attempts"] == b"1"
    assert None not in dict(headers).values()
