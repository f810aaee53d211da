"""The status page and the console's own gauges: counts and codes over all tenants, no id and no text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from groundwire.console.item import NO_ITEM
from groundwire.console.site import Call, PageAnswer
from groundwire.console.words import LEVERS
from groundwire.console.workers import ROLES, TENANT_LIMITS, WorkerStatus
from groundwire.gate.tree import CONVERSATIONS
from groundwire.policy import TRUSTED_SOURCES, Policy
from groundwire.probes import serve_probes
from groundwire.review.board import Board
from groundwire.review.model import DecisionCounts
from groundwire.review.permissions import ViewScope

DAYS: Final = 30  # of people's decisions that are counted


async def show(call: Call) -> PageAnswer:
    """What the deployment is doing, counted over all tenants; only for who sees everything of one."""
    if not call.scope.whole:
        raise HTTPException(404, NO_ITEM)
    site, now = call.site, call.site.clock()
    decided = site.board.agreement(call.scope, now - timedelta(days=DAYS))
    workers, queue, most = await site.workers.ask(), site.board.backlog(), site.policy.limits
    letters = site.board.dead_letter_counts(now - timedelta(hours=1))
    by_role = {role: [one for one in workers if one.role == role] for role in ROLES}
    paused = Counter((why, one.role) for one in workers for why in one.paused)
    places = (
        ("total", "All tenants", queue.total, most.review_total),
        ("tenant", "The fullest tenant", queue.tenant, most.review_per_tenant),
        ("user", "The user with most", queue.user, most.review_per_user),
    )
    data = {
        "grafana": site.settings.grafana_url,
        "workers": [
            {key: getattr(one, key) for key in ("name", "address", "role", "state", "paused")}
            for one in workers
        ],
        "paused": [{"dependency": why, "role": role, "workers": n} for (why, role), n in paused.items()],
        "roles": [
            {
                "role": role,
                "workers": len(its),
                "partitions": _over(sum, its, "partitions"),
                "lag": _over(sum, its, "lag_records", role),
                "oldest_seconds": _over(max, its, "commit_age_seconds", role),
            }
            for role, its in by_role.items()
        ],
        "waiting": _over(max, workers, "waiting_claims"),
        "places": [dict(zip(("name", "label", "used", "limit"), row, strict=True)) for row in places],
        "oldest_seconds": (now - queue.since).total_seconds() if queue.since else None,
        "ttl_days": site.review_ttl / timedelta(days=1),
        "tenants": [
            {
                "name": limit,
                "most": _over(max, workers, "tenant_most", limit),
                "limit": _over(max, workers, "tenant_limit", limit),
                "full": _over(max, workers, "tenants_at_limit", limit),
            }
            for limit in TENANT_LIMITS
        ],
        "dead_letters": [{"code": code, "count": count} for code, count in letters],
        "over_review": {
            "days": DAYS,
            "decided": decided.total.decided,
            "approved": decided.total.approved,
            "reasons": [
                {
                    "reason": row.name,
                    "decided": row.decided,
                    "approved": row.approved,
                    "lever": LEVERS.get(row.name),
                }
                for row in decided.by_reason
            ],
        },
    }
    return PageAnswer(data, "status.html")


def _over(put: Callable[..., float], of: Sequence[WorkerStatus], name: str, label: str = "") -> float | None:
    """Return the gauge of all workers together; None, never 0, where no worker tells it."""
    values = [one.gauges[name, label] for one in of if (name, label) in one.gauges]
    return put(values) if values else None


_LABELLED_SOURCES: Final = frozenset({*TRUSTED_SOURCES, *CONVERSATIONS, "ai_synthesis"})
"""Sources with a label of their own: producers choose others freely, and a label needs a closed list."""


@dataclass(frozen=True, eq=False)
class ReviewGauges(Collector):
    """Gauges of the review queue and of people's decisions, computed at each scrape; items expire after `ttl`."""

    board: Board
    tenants: Collection[str]
    stale_since: Callable[[], datetime | None]
    clock: Callable[[], datetime]
    policy: Callable[[], Policy]
    ttl: timedelta

    def collect(self) -> Iterable[GaugeMetricFamily]:
        now, scope = self.clock(), ViewScope("", frozenset(self.tenants), frozenset())
        found = self.board.agreement(scope, now - timedelta(days=DAYS))
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
        queue, most = self.board.backlog(), self.policy().limits
        fullest = GaugeMetricFamily(
            "groundwire_review_fullest",
            "Items pending: of the user and of the tenant who have most, and in all.",
            labels=["limit"],
        )
        limits = GaugeMetricFamily(
            "groundwire_review_limit", "Places of a user, of a tenant, and in all.", labels=["limit"]
        )
        for name, count, limit in (
            ("user", queue.user, most.review_per_user),
            ("tenant", queue.tenant, most.review_per_tenant),
            ("total", queue.total, most.review_total),
        ):
            fullest.add_metric([name], count)
            limits.add_metric([name], limit)
        yield from (fullest, limits)
        yield GaugeMetricFamily(
            "groundwire_review_oldest_seconds",
            "For how long the oldest pending item has waited; 0 where there is none.",
            value=(now - queue.since).total_seconds() if queue.since else 0.0,
        )
        yield GaugeMetricFamily(
            "groundwire_review_ttl_seconds",
            "After how long an item expires, where the reviews agent has a key to say so.",
            value=self.ttl.total_seconds(),
        )
        since = self.stale_since()
        yield GaugeMetricFamily(
            "groundwire_console_stale_seconds",
            "For how long the board has not followed the topics.",
            value=(now - since).total_seconds() if since else 0.0,
        )


def serve_gauges(
    gauges: ReviewGauges, host: str, port: int, *, caught_up: Callable[[], bool], away: Callable[[], bool]
) -> None:
    """Serve the gauges, with the console's readiness: `away`, whether broker or state do not answer."""
    registry = CollectorRegistry()
    registry.register(gauges)

    def ready() -> str:
        return "paused: the topics or state cannot be read" if away() else "" if caught_up() else "starting"

    serve_probes(host, port, live=lambda: "", ready=ready, registry=registry)


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
