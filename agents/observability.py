"""Metrics of batches, spans of records, and the pause after internal errors in a row."""

# ruff: noqa: PLC0415 - the packages of OpenTelemetry are optional

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import structlog

from agents.health import Health
from agents.hooks import Batch, Hook
from agents.outputs import Output
from groundwire import metrics
from groundwire.errors import ErrorCode, RecordError, UsageError
from groundwire.gate.types import (
    Acted,
    Commented,
    DeadLetter,
    Decided,
    Deferred,
    Provisional,
    Refused,
    Result,
)
from groundwire.library.events import emit
from groundwire.library.quotes import count_quotes
from groundwire.messages.decisions import Decision, Place, ReasonCode
from groundwire.messages.decode import known_field
from groundwire.messages.headers import TRACE, TRACEPARENT, TRACESTATE, InboundRecord, header
from groundwire.messages.topics import TopicName, record_key

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

log = structlog.get_logger()

FIRST_TRIAL: Final = 5.0
"""Seconds before a record is tried again after too many internal errors; doubled up to `LAST_TRIAL`."""

LAST_TRIAL: Final = 300.0

_BROKEN: Final = {
    ErrorCode.INVALID_JSON,
    ErrorCode.INVALID_RECORD,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.TOO_LARGE,
}
"""Errors that are the sender's."""

MOST_LETTERS: Final = 10
"""Dead letters of a code that are logged in a minute."""


class InternalErrors(Hook):
    """Pauses the worker while internal errors come in a row: the configuration is suspected, not the records.

    Of one key at most ten count, so that one producer stops nobody else. Dead letters neither count nor end the run:
    they are the sender's errors.
    """

    def __init__(self, health: Health) -> None:
        self._health = health
        self._by_key: Counter[bytes | None] = Counter()
        self._is_new = False  # whether an error came since the worker last paused
        self._trial = FIRST_TRIAL

    @property
    def alone(self) -> bool:  # type: ignore[override]  # an attribute of other hooks
        """Whether there are too many, so that records are tried one at a time."""
        return self._by_key.total() >= 100

    async def before_batch(self, batch: Batch) -> None:
        if not (self.alone and self._is_new):
            return
        if "internal_errors" not in self._health.current:
            hint = "the gate failed at 100 records in a row, of ten keys or more: check the version, policy and keys"
            log.error("worker.paused", why="internal_errors", hint=hint)
        self._health.begin("internal_errors")
        await batch.loop.lease.pause(self._trial)
        self._is_new = False
        self._trial = min(2 * self._trial, LAST_TRIAL)

    def after_publish(self, batch: Batch) -> None:
        for result in batch.results:
            match result:
                case Decided(decision=decision) | Provisional(decision=decision) if (
                    decision.reason_code == ReasonCode.INTERNAL_ERROR
                ):
                    self._is_new = True
                    key = result.record.key
                    self._by_key[key] = min(self._by_key[key] + 1, 10)
                case DeadLetter():
                    pass
                case _:
                    self._by_key.clear()
        if not self.alone:
            self._trial = FIRST_TRIAL
            self._health.end("internal_errors")


class BatchMetrics(Hook):
    """Counts what was published, and times the stages."""

    def __init__(self, role: str) -> None:
        self._letters = LetterLog()
        self._latency = metrics.LATENCY.labels(role)
        self._records = metrics.BATCH_RECORDS.labels(role)
        self._stage = cache(partial(metrics.STAGE.labels, role))
        for code in ErrorCode:
            metrics.DEAD_LETTERS.labels(code)  # from 0, so that the first one is an increase

    async def before_batch(self, batch: Batch) -> None:
        self._records.observe(len(batch.entries))

    def during(self, stage: str, batch: Batch) -> AbstractContextManager[object]:  # noqa: ARG002 - as all hooks
        timer: AbstractContextManager[object] = self._stage(stage).time()
        return timer

    def after_publish(self, batch: Batch) -> None:
        """Count a batch; decisions in `fresh` are this worker's and count once, others are repeats."""
        left = set(batch.fresh)
        decisions: Counter[tuple[str, str, str]] = Counter()
        checks = {outcome: Counter[str]() for outcome in ("passed", "failed", "skipped")}

        def count_decided(record: InboundRecord, decision: Decision) -> None:
            left.discard(decision.decision_id)
            decisions[decision.kind, decision.tier, decision.reason_code] += 1
            for outcome, found in checks.items():
                found.update(getattr(decision, f"checks_{outcome}"))
            is_full = decision.reason_code == ReasonCode.REVIEW_QUEUE_FULL
            if is_full and decision.facts.place == Place.TENANT_FULL:
                metrics.TENANT_REFUSALS.labels("review").inc()
            age = time.time() - record.timestamp / 1000
            self._latency.observe(max(0.0, age))
            if age < -5.0:  # the gate's clock for a record is its timestamp; clocks may differ
                metrics.FUTURE.inc()
            if record.key != record_key(decision.tenant_id, decision.user_id):
                metrics.MISKEYED.inc()

        for result in batch.results:
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
                case Commented(review=review):
                    metrics.REVIEW_ACTIONS.labels(review.action, review.action).inc()
                case Refused(code=code):
                    metrics.REVIEW_ACTIONS.labels(result.review.action, f"refused_{code}").inc()
                case Provisional(decision=decision):
                    metrics.PROVISIONAL.labels(decision.reason_code).inc()
                    metrics.DEFERRED.inc()
                case Deferred():
                    metrics.DEFERRED.inc()
                case DeadLetter(record=record, error=error):
                    metrics.DEAD_LETTERS.labels(error.code).inc()
                    if error.code in _BROKEN:
                        metrics.BROKEN_INPUT.labels(*sender_of(record)).inc()
                    self._letters.note(record, error)
        for labels, number in decisions.items():
            _decisions(*labels).inc(number)
        for outcome, found in checks.items():
            for check, number in found.items():
                _checks(check.partition(":")[0], outcome).inc(number)  # what follows the name is text


def sender_of(record: InboundRecord) -> tuple[str, str]:
    """Return labels for the tenant of a record's key and the producer that its headers name."""
    tenant = (record.key or b"").partition(b":")[0].decode("utf-8", "replace")
    names = (header(record.headers, name) for name in ("client-id", "ce_source"))
    return metrics.sender_labels(tenant, next(filter(None, names), ""))


@dataclass(slots=True)
class LetterLog:
    """Logs the first dead letters of a code in a minute, and then how many came beside them; the metric counts all."""

    clock: Callable[[], float] = time.monotonic
    _began: dict[str, float] = field(default_factory=dict)
    _seen: Counter[str] = field(default_factory=Counter)

    def note(self, record: InboundRecord, error: RecordError) -> None:
        now, code = self.clock(), str(error.code)
        if now - self._began.get(code, -math.inf) >= 60:
            if (more := self._seen[code] - MOST_LETTERS) > 0:
                log.info("record.dead_more", code=code, records=more)
            self._began[code], self._seen[code] = now, 0
        self._seen[code] += 1
        if self._seen[code] <= MOST_LETTERS:
            where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
            log.info("record.dead", code=code, field=known_field(error.field), **where)


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


class Tracing(Hook):
    """Opens a span for each record, child of the one in its `traceparent`.

    It covers a record from the start of its batch to the acknowledgement of its outputs, which carry it.
    """

    def __init__(self, role: str, tracer: Tracer) -> None:
        self._role = role
        self._tracer = tracer

    def during(self, stage: str, batch: Batch) -> AbstractContextManager[object]:
        return self._spans(batch) if stage == "publish" else nullcontext()

    @contextmanager
    def _spans(self, batch: Batch) -> Iterator[None]:
        with ExitStack() as opened:
            spans = {
                id(result.record): opened.enter_context(self._span(result, batch.began))
                for result in batch.results
            }

            def carried(output: Output) -> Output:
                """Set the context of a span; a dead letter keeps its record's headers."""
                context = spans[id(output.cause)].get_span_context()
                if output.topic == TopicName.DEAD_LETTER or not context.is_valid:
                    return output
                value = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
                headers = [(key, held) for key, held in output.headers if key not in TRACE]
                headers.append((TRACEPARENT, value.encode()))
                if state := context.trace_state.to_header():  # of a readable traceparent
                    headers.append((TRACESTATE, state.encode()))
                return replace(output, headers=headers)

            batch.outputs = [[carried(output) for output in some] for some in batch.outputs]
            yield

    @contextmanager
    def _span(self, result: Result, began: int) -> Iterator[Span]:
        from opentelemetry import trace
        from opentelemetry.trace.propagation import tracecontext

        record = result.record
        context = {name: header(record.headers, name) for name in (TRACEPARENT, TRACESTATE)}
        carrier = {name: value for name, value in context.items() if value}
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


def open_tracing(role: str) -> Tracing:
    """Set up tracing from OpenTelemetry's own variables. Raises: UsageError: its packages are not installed."""
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
    return Tracing(role, tracer)  # remaining spans are sent at exit


def _outcome(result: Result) -> dict[str, str | int]:
    """Return the outcome of a record as codes: no span carries an id or text."""
    match result:
        case Decided(decision=decision) | Provisional(decision=decision) | Acted(decision=decision):
            codes = {name: str(getattr(decision, name)) for name in ("kind", "tier", "reason_code")}
            found: dict[str, str | int] = {"outcome": "decided", **codes, "revision": decision.revision}
        case DeadLetter(error=error):
            found = {"outcome": "dead_letter", "error": str(error.code)}
        case Commented(review=review):
            found = {"outcome": str(review.action)}
        case Refused(code=code):
            found = {"outcome": "refused", "reason_code": str(code)}
        case _:
            found = {"outcome": "deferred" if isinstance(result, Deferred) else "standby"}
    return {f"groundwire.{name}": value for name, value in found.items()}
