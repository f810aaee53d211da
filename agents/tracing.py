"""Spans of records, for those who follow a claim through their systems: off unless it is asked for.

A record's `traceparent` is passed on in any case. With tracing on, a span of its own stands between: from when its
batch was read to the acknowledgement of what it brought, which then carries that span's context.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from agents.outputs import Output
from groundwire.errors import UsageError
from groundwire.gate.results import Acted, DeadLetter, Decided, Deferred, Provisional, Refused, Result
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import TRACEPARENT, header
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

Outgoing = list[Output]


class Tracing(Protocol):
    """Follows what a batch brings."""

    def began(self) -> int:
        """Return the time by which spans begin: nanoseconds since 1970."""

    @contextmanager
    def spans(self, results: Sequence[Result], began: int) -> Iterator[Carrier]:
        """Hold a span for each result open until what it brought is acknowledged, or was not."""


class Carrier(Protocol):
    """Puts the contexts of spans into what comes of their records."""

    def __call__(self, outgoing: Outgoing) -> Outgoing:
        """Return the records with `traceparent` of the span of the record that each comes from."""


class NoTracing:
    """Passes everything through."""

    def began(self) -> int:
        """Return 0: nothing begins."""
        return 0

    @contextmanager
    def spans(self, results: Sequence[Result], began: int) -> Iterator[Carrier]:  # noqa: ARG002 - as it is asked
        """Hold nothing open."""
        yield lambda outgoing: outgoing


class OpenTelemetry:
    """One span a record, a child of the one that its `traceparent` names, else the first of a trace.

    Args:
        role: the worker's; names the spans.
        tracer: makes them.
    """

    def __init__(self, role: str, tracer: Tracer) -> None:
        self._role = role
        self._tracer = tracer

    def began(self) -> int:
        """Return the wall clock's time."""
        return time.time_ns()

    @contextmanager
    def spans(self, results: Sequence[Result], began: int) -> Iterator[Carrier]:
        """Hold a span for each result open; an exception ends all of them as errors."""
        with ExitStack() as opened:
            spans = {id(result.record): opened.enter_context(self._span(result, began)) for result in results}
            yield lambda outgoing: [_carried(output, spans[id(output.cause)]) for output in outgoing]

    @contextmanager
    def _span(self, result: Result, began: int) -> Iterator[Span]:
        from opentelemetry import trace  # noqa: PLC0415 - an optional extra
        from opentelemetry.trace.propagation import tracecontext  # noqa: PLC0415 - same

        record = result.record
        parent = header(record.headers, TRACEPARENT)
        carrier = {TRACEPARENT: parent} if parent else {}
        span = self._tracer.start_span(
            f"groundwire {self._role}",
            context=tracecontext.TraceContextTextMapPropagator().extract(carrier),
            kind=trace.SpanKind.CONSUMER,
            start_time=began,
            attributes=_place(record) | _outcome(result),
        )
        try:
            yield span
        except BaseException as exc:
            span.set_status(trace.StatusCode.ERROR, type(exc).__name__)  # what it says may be a record's text
            raise
        finally:
            span.end()


def open_tracing(role: str, *, enabled: bool) -> Tracing:
    """Make what follows records; exporter, sampler and resource come from OpenTelemetry's own variables.

    Raises:
        UsageError: tracing is asked for, and its packages are not installed.
    """
    if not enabled:
        return NoTracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - an optional extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - same
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - same
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - same
    except ImportError as exc:
        raise UsageError(
            f"GROUNDWIRE_TRACING: pip install 'groundwire[tracing]' ({exc.name} is missing)"
        ) from None
    service = os.environ.get("OTEL_SERVICE_NAME", f"groundwire-{role}")
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return OpenTelemetry(
        role, provider.get_tracer("groundwire")
    )  # what is left is sent at the process's exit


def _carried(output: Output, span: Span) -> Output:
    """Give a record the context of a span; a dead letter keeps the headers that its record had."""
    context = span.get_span_context()
    if output.topic == TopicName.DEAD_LETTER or not context.is_valid:
        return output
    value = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    others = [(key, held) for key, held in output.headers if key != TRACEPARENT]
    return replace(output, headers=[*others, (TRACEPARENT, value.encode())])


def _place(record: InboundRecord) -> dict[str, str | int]:
    return {
        "messaging.system": "kafka",
        "messaging.operation.type": "process",
        "messaging.destination.name": record.topic or "",
        "messaging.destination.partition.id": str(record.partition),
        "messaging.kafka.offset": record.offset,
    }


def _outcome(result: Result) -> dict[str, str | int]:
    """Return what became of a record, in codes: an id or a text stands in no span."""
    match result:
        case Decided(decision=decision) | Provisional(decision=decision) | Acted(decision=decision):
            return {"groundwire.outcome": "decided", **_decision(decision)}
        case DeadLetter(error=error):
            return {"groundwire.outcome": "dead_letter", "groundwire.error": str(error.code)}
        case Refused(code=code):
            return {"groundwire.outcome": "refused", "groundwire.reason_code": str(code)}
        case Deferred():
            return {"groundwire.outcome": "deferred"}
    return {"groundwire.outcome": "standby"}


def _decision(decision: Decision) -> dict[str, str | int]:
    return {
        "groundwire.kind": str(decision.kind),
        "groundwire.tier": str(decision.tier),
        "groundwire.reason_code": str(decision.reason_code),
        "groundwire.revision": decision.revision,
    }
