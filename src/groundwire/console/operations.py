"""What the deployment is doing, for operators: the page, and the console's own metrics for Prometheus.

Both show counts and codes over all tenants, no id and no text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException

from groundwire.checks.citations import CitationType
from groundwire.console.charts import round_top, stacked
from groundwire.console.item import NO_ITEM
from groundwire.console.series import (
    EVERY,
    OTHER,
    ROLES,
    SIZE,
    TENANT_LIMITS,
    TENANT_REFUSALS,
    MetricKey,
    SeriesHistory,
)
from groundwire.console.site import Call, PageAnswer, Site
from groundwire.console.words import highest, lever
from groundwire.console.workers import WorkerState, WorkerStatus
from groundwire.errors import WAITED_FOR, ErrorCode
from groundwire.gate.tree import CONVERSATIONS
from groundwire.messages.base import format_time
from groundwire.messages.decisions import CitationState, IngestionTier, ReasonCode
from groundwire.policy import TRUSTED_SOURCES, Limits
from groundwire.replay.job import JobProgress, jobs_in
from groundwire.review.board import Board
from groundwire.review.model import DecisionCounts
from groundwire.review.permissions import ViewScope

_VERDICTS: Final = {"tier_1": "approved", "tier_2": "review", "tier_3": "blocked"}
_LATE: Final = timedelta(seconds=60)
"""After which the last scrape is out of date."""
_ENDS: Final = ("repeats", "provisional", "deferred")
DAYS: Final = 30
"""Of people's decisions that are counted."""
_LABELLED_SOURCES: Final = frozenset({*TRUSTED_SOURCES, *CONVERSATIONS, "ai_synthesis"})
"""Sources with a label of their own: producers choose others freely, and a label needs a closed list."""


async def show(call: Call) -> PageAnswer:
    """What the deployment is doing, counted over all tenants; only for who sees everything of one."""
    if not call.scope.whole:
        raise HTTPException(404, NO_ITEM)
    site, scraper = call.site, call.site.scraper
    workers = scraper.workers
    data = {
        "configured": bool(site.settings.targets),
        "looked_at": format_time(scraper.looked_at) if scraper.looked_at else None,
        "late": scraper.looked_at is not None and site.clock() - scraper.looked_at > _LATE,
        "every_seconds": EVERY,
        "span_seconds": EVERY * SIZE,
        "workers": [_worker(one) for one in workers],
        "missing": sum(one.state is not WorkerState.ANSWERS for one in workers),
        "paused": _paused(workers),
        **_drawn(_numbers(scraper.history)),
        "review": _review(site),
        "over_review": _over_review(call),
        "replays": await _replays(site),
    }
    return PageAnswer(data, "operations.html")


def _worker(one: WorkerStatus) -> dict[str, Any]:
    answers = one.state is WorkerState.ANSWERS
    return {
        "name": one.name,
        "address": one.address,
        "role": one.measurement.role if one.measurement else None,
        "state": str(one.state),
        "since": format_time(one.since),
        "partitions": _whole(one.measurement.gauges.get(("partitions",)))
        if answers and one.measurement
        else None,
        "paused": one.measurement.paused if answers and one.measurement else [],
    }


def _paused(workers: Sequence[WorkerStatus]) -> list[dict[str, Any]]:
    """Return what workers wait for, with how many of each role do."""
    found: dict[tuple[str, str | None], int] = {}
    for one in workers:
        if one.state is WorkerState.ANSWERS and one.measurement is not None:
            for dependency in one.measurement.paused:
                at = dependency, one.measurement.role
                found[at] = found.get(at, 0) + 1
    order = (*WAITED_FOR, OTHER)
    return [
        {"dependency": dependency, "role": role, "workers": count}
        for (dependency, role), count in sorted(found.items(), key=lambda pair: order.index(pair[0][0]))
    ]


def _numbers(history: SeriesHistory) -> dict[str, Any]:
    reasons = [_count(history, ("reasons", code), code) for code in (*map(str, ReasonCode), OTHER)]
    return {
        "inputs": [_count(history, ("records", role), role) for role in ROLES],
        "tiers": [_count(history, ("tiers", tier), _VERDICTS[tier]) for tier in map(str, IngestionTier)],
        "reasons": sorted(
            (row for row in reasons if row["hour"]), key=lambda row: (-row["hour"], row["name"])
        ),
        "ends": [_count(history, (name,), name) for name in _ENDS],
        "lags": [_level(history, ("lag", role), role) for role in ROLES],
        "ages": [_level(history, ("commit_age", role), role) for role in ROLES],
        "waiting": _whole(history.latest(("waiting",))),
        "citations": _citations(history),
        "tenants": _tenants(history),
        "dead_letters": [
            {"code": code, "hour": _whole(history.total(("dead_letters", code)))}
            for code in (*map(str, ErrorCode), OTHER)
            if code != OTHER or history.total(("dead_letters", code))
        ],
    }


def _drawn(numbers: dict[str, Any]) -> dict[str, Any]:
    """Add pictures and scales: one for all rates, one for each unit else."""
    rates = (*numbers["inputs"], *numbers["tiers"], *numbers["ends"])
    tiers = stacked(numbers["tiers"])
    return {
        **numbers,
        "pictures": {"tiers": tiers, "reasons": stacked(numbers["reasons"], tiers["top"])},
        "scales": {
            name: round_top(highest(row["minutes"] for row in rows))
            for name, rows in (
                ("rates", rates),
                ("reasons", numbers["reasons"]),
                ("lags", numbers["lags"]),
                ("ages", numbers["ages"]),
            )
        },
    }


def _over_review(call: Call) -> dict[str, Any]:
    """Return how much of what people reviewed they approved unchanged, by the gate's reason, as far as one sees it."""
    found = call.site.board.agreement(call.scope, call.site.clock() - timedelta(days=DAYS))
    rows = [
        {"name": row.name, "reviewed": row.decided, "unchanged": row.approved, "lever": lever(row.name)}
        for row in found.by_reason
    ]
    return {"days": DAYS, "reviewed": found.total.decided, "unchanged": found.total.approved, "rows": rows}


def _count(history: SeriesHistory, key: MetricKey, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "now": history.rate(key),
        "hour": _whole(history.total(key)),
        "minutes": history.rates(key),
    }


def _level(history: SeriesHistory, key: MetricKey, name: str) -> dict[str, Any]:
    return {"name": name, "now": history.latest(key), "minutes": history.levels(key)}


def _citations(history: SeriesHistory) -> list[dict[str, Any]]:
    rows = []
    for kind in (*get_args(CitationType), OTHER):
        found = {str(state): _whole(history.total(("citations", kind, state))) for state in CitationState}
        if kind != OTHER or any(found.values()):
            rows.append({"type": kind, **found})
    return rows


def _tenants(history: SeriesHistory) -> dict[str, Any]:
    """Return what the tenant with most has of each limit, and what was refused at them; never whose it is."""
    return {
        "limits": [
            {
                "name": limit,
                "most": _whole(history.latest(("tenant_most", limit))),
                "limit": _whole(history.latest(("tenant_limit", limit))),
                "full": _whole(history.latest(("tenants_at_limit", limit))),
            }
            for limit in TENANT_LIMITS
        ],
        "refused": {limit: _whole(history.total(("tenant_refusals", limit))) for limit in TENANT_REFUSALS},
        "paused_hosts": _whole(history.latest(("paused_hosts",))),
    }


def _review(site: Site) -> dict[str, Any]:
    """Return how full the queue is, as the board counts it, against its limits."""
    found, most = site.board.backlog(), site.policy.limits
    return {
        "places": [
            {"name": name, "label": label, "used": used, "limit": limit}
            for name, label, used, limit in (
                ("total", "All tenants", found.total, most.review_total),
                ("tenant", "The fullest tenant", found.tenant, most.review_per_tenant),
                ("user", "The user with most", found.user, most.review_per_user),
            )
        ],
        "oldest_seconds": (site.clock() - found.since).total_seconds() if found.since else None,
        "ttl_days": site.review_ttl.total_seconds() / 86_400,
    }


async def _replays(site: Site) -> dict[str, Any]:
    folder = site.settings.replay_jobs
    if folder is None:
        return {"configured": False, "readable": False, "jobs": []}
    try:
        jobs = await asyncio.to_thread(jobs_in, folder)
    except OSError:
        return {"configured": True, "readable": False, "jobs": []}
    return {"configured": True, "readable": True, "jobs": [_job(job) for job in jobs]}


def _job(job: JobProgress) -> dict[str, Any]:
    return {
        "name": job.name,
        "from": job.start,
        "to": job.end,
        "other_policy": job.policy,
        "records": job.records,
        "total": job.total,
        "changes": job.changes,
        "moved_at": format_time(job.moved_at),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


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
        """Yield the gauges."""
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
