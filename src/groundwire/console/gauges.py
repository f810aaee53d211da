"""The console's own metrics for Prometheus: counts and codes over all tenants, no id and no text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from groundwire.gate.tree import CONVERSATIONS
from groundwire.policy import TRUSTED_SOURCES, Limits
from groundwire.review.board import Board
from groundwire.review.model import DecisionCounts
from groundwire.review.permissions import ViewScope

DAYS: Final = 30
"""Of people's decisions that are counted."""
_LABELLED_SOURCES: Final = frozenset({*TRUSTED_SOURCES, *CONVERSATIONS, "ai_synthesis"})
"""Sources with a label of their own: producers choose others freely, and a label needs a closed list."""


class ReviewGauges(Collector):
    """Gauges of the review queue and of people's decisions, computed at each scrape.

    Args:
        board: what is counted.
        tenants: of which everything is counted.
        stale_since: since when the board does not follow the topics; None while it does.
        clock: the wall clock.
        limits: places in the review queue.
        ttl: after which an item expires.
    """

    def __init__(
        self,
        board: Board,
        tenants: Collection[str],
        stale_since: Callable[[], datetime | None],
        clock: Callable[[], datetime],
        *,
        limits: Limits,
        ttl: timedelta,
    ) -> None:
        self._board = board
        self._limits = limits
        self._ttl = ttl
        self._scope = ViewScope("", frozenset(tenants), frozenset())
        self._stale_since = stale_since
        self._clock = clock

    def collect(self) -> Iterable[GaugeMetricFamily]:
        now = self._clock()
        found = self._board.agreement(self._scope, now - timedelta(days=DAYS))
        yield _decided("reason", found.by_reason)
        yield _decided("source", [row for row in found.by_source if row.name in _LABELLED_SOURCES])
        seconds = GaugeMetricFamily(
            "groundwire_review_seconds",
            f"From the gate's decision to a person's, of {DAYS} days, by the gate's reason.",
            labels=["reason", "quantile"],
        )
        for row in found.by_reason:
            for quantile, value in (("0.5", row.median), ("0.9", row.p90)):
                if value is not None:
                    seconds.add_metric([row.name, quantile], value.total_seconds())
        yield seconds
        yield from self._queue(now)
        since = self._stale_since()
        yield GaugeMetricFamily(
            "groundwire_console_stale_seconds",
            "For how long the board has not followed the topics.",
            value=(now - since).total_seconds() if since else 0.0,
        )

    def _queue(self, now: datetime) -> Iterable[GaugeMetricFamily]:
        found, most = self._board.backlog(), self._limits
        fullest = GaugeMetricFamily(
            "groundwire_review_fullest",
            "Items pending: of the user and of the tenant who have most, and in all.",
            labels=["limit"],
        )
        limits = GaugeMetricFamily(
            "groundwire_review_limit", "Places of a user, of a tenant, and in all.", labels=["limit"]
        )
        for name, count, limit in (
            ("user", found.user, most.review_per_user),
            ("tenant", found.tenant, most.review_per_tenant),
            ("total", found.total, most.review_total),
        ):
            fullest.add_metric([name], count)
            limits.add_metric([name], limit)
        yield from (fullest, limits)
        yield GaugeMetricFamily(
            "groundwire_review_oldest_seconds",
            "For how long the oldest pending item has waited; 0 where there is none.",
            value=(now - found.since).total_seconds() if found.since else 0.0,
        )
        yield GaugeMetricFamily(
            "groundwire_review_ttl_seconds",
            "After how long an item expires, where the reviews agent has a key to say so.",
            value=self._ttl.total_seconds(),
        )


def serve_gauges(gauges: ReviewGauges, host: str, port: int) -> None:
    """Serve /metrics in the background; port 0 serves nothing."""
    if port:
        registry = CollectorRegistry()
        registry.register(gauges)
        start_http_server(port, host, registry)


def _decided(label: str, rows: Iterable[DecisionCounts]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        f"groundwire_reviewed_by_{label}",
        f"What people decided in {DAYS} days, by {label}.",
        labels=[label, "outcome"],
    )
    for row in rows:
        for outcome, count in (
            ("approved", row.approved),
            ("edited", row.edited),
            ("rejected", row.rejected),
        ):
            family.add_metric([row.name, outcome], count)
    return family
