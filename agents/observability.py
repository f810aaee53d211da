"""Metrics of batches, spans of records, and /metrics, /live and /ready."""

# ruff: noqa: PLC0415 - the packages of OpenTelemetry are optional

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, make_server

import structlog
from prometheus_client import make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from agents.outputs import Output
from agents.partitions import Health
from groundwire import metrics
from groundwire.errors import ErrorCode, UsageError
from groundwire.gate.types import Acted, DeadLetter, Decided, Deferred, Provisional, Refused, Result
from groundwire.library.events import emit
from groundwire.library.quotes import count_quotes
from groundwire.messages.decisions import Decision, Place, ReasonCode
from groundwire.messages.decode import known_field
from groundwire.messages.headers import TRACEPARENT, InboundRecord, header
from groundwire.messages.topics import TopicName, record_key

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = structlog.get_logger()

Carrier = Callable[[list[Output]], list[Output]]
"""Sets `traceparent` of records to the span of their cause."""

STALL_SECONDS: Final = 120.0
"""Seconds without progress after which a busy worker counts as dead."""


class FailureRun:
    """Counts internal errors in a row, at most ten of one key, so that one producer stops nobody else.

    Dead letters neither count nor end the run: they are the sender's errors.

    Attributes:
        fresh: whether an error came since the worker last paused.
    """

    def __init__(self) -> None:
        self._by_key: Counter[bytes | None] = Counter()
        self.fresh = False

    def count(self, result: Result) -> None:
        if (
            isinstance(result, Decided | Provisional)
            and result.decision.reason_code == ReasonCode.INTERNAL_ERROR
        ):
            self.fresh = True
            key = result.record.key
            self._by_key[key] = min(self._by_key[key] + 1, 10)
        elif not isinstance(result, DeadLetter):
            self._by_key.clear()

    @property
    def too_long(self) -> bool:
        """Whether the worker should pause: the configuration is suspected, not the records."""
        return self._by_key.total() >= 100


class BatchMetrics:
    def __init__(self, role: str) -> None:
        self._latency = metrics.LATENCY.labels(role)
        self.batch_records = metrics.BATCH_RECORDS.labels(role)
        self.misplaced = metrics.MISPLACED.labels(role)
        self.stage = cache(partial(metrics.STAGE.labels, role))
        self.failures = FailureRun()
        for code in ErrorCode:
            metrics.DEAD_LETTERS.labels(code)  # from 0, so that the first one is an increase

    def count(self, results: Sequence[Result], fresh: AbstractSet[str]) -> None:
        """Count a published batch; decisions in `fresh` are this worker's and count once, others are repeats."""
        left = set(fresh)
        decisions: Counter[tuple[str, str, str]] = Counter()
        checks: Counter[tuple[str, str]] = Counter()

        def count_decided(record: InboundRecord, decision: Decision) -> None:
            left.discard(decision.decision_id)
            decisions[decision.kind, decision.tier, decision.reason_code] += 1
            for result in ("passed", "failed", "skipped"):
                # of a check only its name, what follows is text
                checks.update(
                    (check.partition(":")[0], result) for check in getattr(decision, f"checks_{result}")
                )
            is_full = decision.reason_code == ReasonCode.REVIEW_QUEUE_FULL
            if is_full and decision.facts.place == Place.TENANT_FULL:
                metrics.TENANT_REFUSALS.labels("review").inc()
            age = time.time() - record.timestamp / 1000
            self._latency.observe(max(0.0, age))
            if age < -5.0:  # the gate's clock for a record is its timestamp; clocks may differ
                metrics.FUTURE.inc()
            if record.key != record_key(decision.tenant_id, decision.user_id):
                metrics.MISKEYED.inc()

        for result in results:
            self.failures.count(result)
            match result:
                case Decided(record=record, decision=decision) if decision.decision_id in left:
                    count_decided(record, decision)
                    quotes = (decision.report or {}).get("quotes")
                    if quotes:
                        count_quotes(quotes["validated"], quotes["rejected_count"])
                        if "failure" in quotes:
                            metrics.QUOTE_FAILURES.labels(quotes["failure"]["mode"]).inc()
                    for event in result.events:
                        emit(event)
                case Acted(record=record, decision=decision) if (
                    decision.revision == result.revision and decision.decision_id in left
                ):
                    count_decided(record, decision)
                    metrics.REVIEW_ACTIONS.labels(result.review.action, decision.reason_code).inc()
                case Decided() | Acted():
                    metrics.REPEATS.inc()
                case Refused(code=code):
                    metrics.REVIEW_ACTIONS.labels(result.review.action, f"refused_{code}").inc()
                case Provisional(decision=decision):
                    metrics.PROVISIONAL.labels(decision.reason_code).inc()
                    metrics.DEFERRED.inc()
                case Deferred():
                    metrics.DEFERRED.inc()
                case DeadLetter(record=record, error=error):
                    metrics.DEAD_LETTERS.labels(error.code).inc()
                    log.info(
                        "record.dead",
                        code=error.code,
                        field=known_field(error.field),
                        topic=record.topic,
                        partition=record.partition,
                        offset=record.offset,
                    )
        for labels, number in decisions.items():
            _decisions(*labels).inc(number)
        for name_and_result, number in checks.items():
            _checks(*name_and_result).inc(number)


# looking labels up takes longer than counting
_decisions: Final = cache(metrics.DECISIONS.labels)
_checks: Final = cache(metrics.CHECKS.labels)


def set_tenant_gauges(limit: str, used: Iterable[int], most: int) -> None:
    """Show the highest use of a limit by any tenant, and how many are at it; never which."""
    counts = list(used)
    metrics.TENANT_MOST.labels(limit).set(max(counts, default=0))
    metrics.TENANT_LIMIT.labels(limit).set(most)
    # at 99 %, the next record may not fit
    metrics.TENANTS_AT_LIMIT.labels(limit).set(sum(count >= 0.99 * most for count in counts))


class Tracing:
    """Traces batches; off by default, when `traceparent` is passed on unchanged.

    With tracing on, a span covers a record from the fetch of its batch to the acknowledgement of its outputs.
    """

    def began(self) -> int:
        return 0

    @contextmanager
    def spans(self, results: Sequence[Result], began: int) -> Iterator[Carrier]:  # noqa: ARG002 - as OpenTelemetry
        """Keep a span open for each result until its outputs are acknowledged."""
        yield lambda outgoing: outgoing


class OpenTelemetry(Tracing):
    """One span per record, child of the one in its `traceparent`."""

    def __init__(self, role: str, tracer: Tracer) -> None:
        self._role = role
        self._tracer = tracer

    def began(self) -> int:
        return time.time_ns()

    @contextmanager
    def spans(self, results: Sequence[Result], began: int) -> Iterator[Carrier]:
        with ExitStack() as opened:
            spans = {id(result.record): opened.enter_context(self._span(result, began)) for result in results}

            def carried(output: Output) -> Output:
                """Set the context of a span; a dead letter keeps its record's headers."""
                context = spans[id(output.cause)].get_span_context()
                if output.topic == TopicName.DEAD_LETTER or not context.is_valid:
                    return output
                value = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
                others = [(key, held) for key, held in output.headers if key != TRACEPARENT]
                return replace(output, headers=[*others, (TRACEPARENT, value.encode())])

            yield lambda outgoing: [carried(output) for output in outgoing]

    @contextmanager
    def _span(self, result: Result, began: int) -> Iterator[Span]:
        from opentelemetry import trace
        from opentelemetry.trace.propagation import tracecontext

        record = result.record
        parent = header(record.headers, TRACEPARENT)
        carrier = {TRACEPARENT: parent} if parent else {}
        span = self._tracer.start_span(
            f"groundwire {self._role}",
            context=tracecontext.TraceContextTextMapPropagator().extract(carrier),
            kind=trace.SpanKind.CONSUMER,
            start_time=began,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.destination.name": record.topic or "",
                "messaging.destination.partition.id": str(record.partition),
                "messaging.kafka.offset": record.offset,
                **_outcome(result),
            },
        )
        try:
            yield span
        except BaseException as exc:
            # its message may hold text of a record
            span.set_status(trace.StatusCode.ERROR, type(exc).__name__)
            raise
        finally:
            span.end()


def open_tracing(role: str, *, enabled: bool) -> Tracing:
    """Set up tracing from OpenTelemetry's own variables. Raises: UsageError: its packages are not installed."""
    if not enabled:
        return Tracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as exc:
        raise UsageError(
            f"GROUNDWIRE_TRACING: pip install 'groundwire[tracing]' ({exc.name} is missing)"
        ) from None
    service = os.environ.get("OTEL_SERVICE_NAME", f"groundwire-{role}")
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer("groundwire")
    return OpenTelemetry(role, tracer)  # remaining spans are sent at exit


def _outcome(result: Result) -> dict[str, str | int]:
    """Return the outcome of a record as codes: no span carries an id or text."""
    match result:
        case Decided(decision=decision) | Provisional(decision=decision) | Acted(decision=decision):
            return {
                "groundwire.outcome": "decided",
                "groundwire.kind": str(decision.kind),
                "groundwire.tier": str(decision.tier),
                "groundwire.reason_code": str(decision.reason_code),
                "groundwire.revision": decision.revision,
            }
        case DeadLetter(error=error):
            return {"groundwire.outcome": "dead_letter", "groundwire.error": str(error.code)}
        case Refused(code=code):
            return {"groundwire.outcome": "refused", "groundwire.reason_code": str(code)}
        case Deferred():
            return {"groundwire.outcome": "deferred"}
    return {"groundwire.outcome": "standby"}


def serve_health(host: str, port: int, health: Health) -> None:
    """Serve /metrics, /live and /ready in a thread; port 0: not at all."""
    if not port:
        return
    metrics_app = make_wsgi_app()  # answers whatever the path
    answers: dict[str, Callable[[], bool]] = {
        "/live": lambda: health.alive(STALL_SECONDS),
        "/ready": health.ready,
    }

    def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        answer = answers.get(environ["PATH_INFO"])
        if answer is None and environ["PATH_INFO"] == "/metrics":
            page: Iterable[bytes] = metrics_app(environ, start_response)
            return page
        if answer is None:
            start_response("404 Not Found", [("Content-Type", "text/plain")])
            return [b"not found: there are /metrics, /live and /ready"]
        good = answer()
        text = "ok" if good else "paused: " + ", ".join(sorted(health.waits_for) or ["no progress"])
        start_response("200 OK" if good else "503 Service Unavailable", [("Content-Type", "text/plain")])
        return [text.encode()]

    server = make_server(host, port, app, server_class=ThreadingWSGIServer, handler_class=_QuietHandler)
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002, ANN401 - the base class's signature
        ...
