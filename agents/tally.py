"""Counts what became of records."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import structlog

from groundwire import metrics
from groundwire.errors import ErrorCode
from groundwire.gate.results import Acted, DeadLetter, Decided, Deferred, Provisional, Refused, Result
from groundwire.messages.decisions import Decision, ReasonCode
from groundwire.messages.decode import known_field
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import record_key
from groundwire.quotes import count_quotes
from groundwire.telemetry import emit

log = structlog.get_logger()

_SKEW: Final = 5.0
"""Seconds by which clocks may differ before it is worth a look: a record's timestamp is the gate's clock for it."""


class Tally:
    """Metrics of one worker, and how many records in a row it could not decide."""

    def __init__(self, role: str) -> None:
        self._latency = metrics.LATENCY.labels(role)
        self.failed_in_a_row = 0
        for code in ErrorCode:
            metrics.DEAD_LETTERS.labels(code)  # from 0, so that the first one is an increase

    def count(self, results: Sequence[Result], fresh: AbstractSet[str]) -> None:
        """Count a batch that is published.

        Args:
            results: in the order of the records.
            fresh: ids of the decisions that this worker brought about; all others are repeats, and so is a decision
                that another record of the batch has again.
        """
        left = set(fresh)
        counts = _Counts()
        for result in results:
            self.failed_in_a_row = self.failed_in_a_row + 1 if _failed(result) else 0
            match result:
                case Decided(record=record, decision=decision) if decision.decision_id in left:
                    left.discard(decision.decision_id)
                    self._decided(record, decision, counts)
                    _report(result)
                case Acted(record=record, decision=decision) if _brought(result) in left:
                    left.discard(decision.decision_id)
                    self._decided(record, decision, counts)
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
                case DeadLetter():
                    self._dead(result)
        counts.publish()

    def _decided(self, record: InboundRecord, decision: Decision, counts: _Counts) -> None:
        counts.add(decision)
        age = time.time() - record.timestamp / 1000
        self._latency.observe(max(0.0, age))
        if age < -_SKEW:
            metrics.FUTURE.inc()
        if record.key != record_key(decision.tenant_id, decision.user_id):
            metrics.MISKEYED.inc()

    def _dead(self, letter: DeadLetter) -> None:
        metrics.DEAD_LETTERS.labels(letter.error.code).inc()
        log.info(
            "record.dead",
            code=letter.error.code,
            field=known_field(letter.error.field),
            topic=letter.record.topic,
            partition=letter.record.partition,
            offset=letter.record.offset,
        )


class _Counts:
    """Decisions and checks of a batch: a metric is looked up once a batch, not ten times a decision."""

    def __init__(self) -> None:
        self._decisions: Counter[tuple[str, str, str]] = Counter()
        self._checks: dict[str, Counter[str]] = {name: Counter() for name in ("passed", "failed", "skipped")}

    def add(self, decision: Decision) -> None:
        """Count a decision and its checks."""
        self._decisions[decision.kind, decision.tier, decision.reason_code] += 1
        self._checks["passed"].update(decision.checks_passed)
        self._checks["failed"].update(decision.checks_failed)
        self._checks["skipped"].update(decision.checks_skipped)

    def publish(self) -> None:
        """Add what was counted to the metrics; of a check its name alone, what stands behind it is text."""
        for labels, number in self._decisions.items():
            metrics.DECISIONS.labels(*labels).inc(number)
        for result, checks in self._checks.items():
            for check, number in checks.items():
                metrics.CHECKS.labels(check.partition(":")[0], result).inc(number)


def _brought(result: Acted) -> str | None:
    """Return the decision that an action brought; None where all that is known is a later one."""
    return result.decision.decision_id if result.decision.revision == result.revision else None


def _report(result: Decided) -> None:
    """Tell what the checks of a fresh response found."""
    quotes = (result.decision.report or {}).get("quotes")
    if quotes:
        count_quotes(quotes["validated"], quotes["rejected_count"])
        if "failure" in quotes:
            metrics.QUOTE_FAILURES.labels(quotes["failure"]["mode"]).inc()
    for event in result.events:
        emit(event)


def _failed(result: Result) -> bool:
    if isinstance(result, Decided):
        return result.decision.reason_code == ReasonCode.INTERNAL_ERROR
    return isinstance(result, DeadLetter)
