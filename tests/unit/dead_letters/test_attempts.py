"""The gate counts on where a redriven record fails again."""

from __future__ import annotations

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


def test_a_redriven_record_that_fails_again_has_failed_once_more():
    for fails in (failed, refused, waited):
        for before in (0, 1, 41):
            headers = [("gw-attempts", str(before).encode())] if before else []
            letter = fails(sent_again(headers=headers))
            again = read_letter(
                InboundRecord("t.dead-letter", 0, 0, 3, letter.key, letter.value, letter.headers)
            )
            assert (fails, again.attempts) == (fails, before + 2)
            assert again.failed.offset == 12, "it names where it failed last"


def test_a_refused_record_keeps_its_signature_and_loses_headers_that_fill_it_or_have_no_value():
    for headers, kept in (
        ([("gw-attestation", b"console:abc"), ("x", b"1")], {"gw-attestation": b"console:abc"}),
        ([("gw-attempts", b"9" * 1_000_000)], {"gw-attempts": b"1"}),
        ([("gw-attempts", None)], {"gw-attempts": b"1"}),
        ([("gw-attestation", None)], {"gw-attempts": b"1"}),
    ):
        found = dict(refused(InboundRecord("t.claims", 0, 0, 1, b"k", b"v", headers)).headers)
        assert found.items() >= kept.items()
        assert "x" not in found
        assert None not in found.values()
