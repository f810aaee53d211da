"""A claim can be followed through the gate: its trace goes on in what comes of it."""

from __future__ import annotations

import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from agents.outputs import outputs
from agents.tracing import NoTracing, OpenTelemetry, open_tracing
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, UsageError
from groundwire.gate.results import DeadLetter, Deferred
from groundwire.messages.headers import TRACEPARENT, header
from groundwire.messages.inbound import InboundRecord

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def tracing(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return OpenTelemetry("claims", provider.get_tracer("test"))


def record(offset: int = 0, traceparent: str | None = SENT) -> InboundRecord:
    headers = ((TRACEPARENT, traceparent.encode()),) if traceparent else ()
    return InboundRecord("groundwire.claims", 3, offset, 1, b"t:secret", b"text", headers)


def traced(tracing, *results):
    with tracing.spans(results, tracing.began()) as carried:
        return carried(outputs(results))


def test_what_comes_of_a_record_carries_a_span_between_it_and_the_sender(tracing, exporter) -> None:
    (output,) = traced(tracing, Deferred(record()))
    (span,) = exporter.get_finished_spans()
    assert (span.context.trace_id, span.parent.span_id) == (int(TRACE, 16), int(PARENT, 16))
    assert header(output.headers, TRACEPARENT) == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert [key for key, _ in output.headers].count(TRACEPARENT) == 1


@pytest.mark.parametrize(
    "sent", [None, "", "00-zz-yy-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "x" * 5000]
)
def test_a_record_without_a_readable_trace_begins_one(tracing, exporter, sent) -> None:
    (output,) = traced(tracing, Deferred(record(traceparent=sent)))
    (span,) = exporter.get_finished_spans()
    assert span.parent is None
    sent_on = header(output.headers, TRACEPARENT) or ""
    assert sent_on.startswith(f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-")


def test_each_record_of_a_batch_has_its_own_span_in_its_own_trace(tracing, exporter) -> None:
    other = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    first, second = traced(tracing, Deferred(record(0)), Deferred(record(1, other)))
    assert (header(first.headers, TRACEPARENT) or "").split("-")[1] == TRACE
    assert (header(second.headers, TRACEPARENT) or "").split("-")[1] == "a" * 32
    assert len(exporter.get_finished_spans()) == 2


def test_a_dead_letter_keeps_the_headers_that_its_record_had_and_its_audit_event_goes_on(
    tracing, exporter
) -> None:
    letter, event = traced(tracing, DeadLetter(record(), RecordError(ErrorCode.INVALID_JSON, "no")))
    (span,) = exporter.get_finished_spans()
    assert header(letter.headers, TRACEPARENT) == SENT
    assert f"{span.context.span_id:016x}" in (header(event.headers, TRACEPARENT) or "")
    assert span.attributes["groundwire.error"] == "invalid_json"


def test_spans_hold_codes_and_places_and_neither_ids_nor_text(tracing, exporter) -> None:
    traced(tracing, Deferred(record(7)))
    (span,) = exporter.get_finished_spans()
    assert dict(span.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": "groundwire.claims",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 7,
        "groundwire.outcome": "deferred",
    }


def test_what_was_not_acknowledged_ends_as_an_error(tracing, exporter) -> None:
    result = Deferred(record())
    with pytest.raises(BrokerUnavailable), tracing.spans([result], tracing.began()):
        raise BrokerUnavailable("text")
    (span,) = exporter.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "BrokerUnavailable")
    assert not span.events


def test_without_tracing_the_senders_context_is_passed_on(exporter) -> None:
    (output,) = traced(NoTracing(), Deferred(record()))
    assert header(output.headers, TRACEPARENT) == SENT


def test_tracing_without_its_packages_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(UsageError, match=r"GROUNDWIRE_TRACING: pip install 'groundwire\[tracing\]'"):
        open_tracing("claims", enabled=True)
    assert isinstance(open_tracing("claims", enabled=False), NoTracing)
