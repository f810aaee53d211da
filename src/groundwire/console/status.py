"""The status page: what workers answer at this moment, how full the queue is, and how people decided.

Counts and codes, no id and no text. Grafana shows series over time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final

from starlette.exceptions import HTTPException

from groundwire.console.gauges import DAYS
from groundwire.console.item import NO_ITEM
from groundwire.console.site import Call, PageAnswer
from groundwire.console.words import LEVERS
from groundwire.console.workers import ROLES, TENANT_LIMITS, WorkerStatus

_SHOWN: Final = ("name", "address", "role", "state", "paused")


async def show(call: Call) -> PageAnswer:
    """What the deployment is doing, counted over all tenants; only for who sees everything of one."""
    if not call.scope.whole:
        raise HTTPException(404, NO_ITEM)
    site, now = call.site, call.site.clock()
    workers, queue, most = await site.workers.ask(), site.board.backlog(), site.policy.limits
    letters = site.board.dead_letter_counts(now - timedelta(hours=1))
    paused = Counter((why, one.role) for one in workers for why in one.paused)
    places = (
        ("total", "All tenants", queue.total, most.review_total),
        ("tenant", "The fullest tenant", queue.tenant, most.review_per_tenant),
        ("user", "The user with most", queue.user, most.review_per_user),
    )
    data = {
        "grafana": site.settings.grafana_url,
        "workers": [{key: getattr(one, key) for key in _SHOWN} for one in workers],
        "paused": [{"dependency": why, "role": role, "workers": n} for (why, role), n in paused.items()],
        "roles": [_role(role, [one for one in workers if one.role == role]) for role in ROLES],
        "waiting": _over(max, workers, "waiting_claims"),
        "places": [dict(zip(("name", "label", "used", "limit"), row, strict=True)) for row in places],
        "oldest_seconds": (now - queue.since).total_seconds() if queue.since else None,
        "ttl_days": site.review_ttl / timedelta(days=1),
        "tenants": [_tenants(limit, workers) for limit in TENANT_LIMITS],
        "dead_letters": [{"code": code, "count": count} for code, count in letters],
        "over_review": _over_review(call),
    }
    return PageAnswer(data, "status.html")


def _over_review(call: Call) -> dict[str, Any]:
    """How people decided what the gate held in their tenants, by reason, with the setting that changes it."""
    found = call.site.board.agreement(call.scope, call.site.clock() - timedelta(days=DAYS))
    counts = [
        {"reason": row.name, "decided": row.decided, "approved": row.approved, "lever": LEVERS.get(row.name)}
        for row in found.by_reason
    ]
    return {"days": DAYS, "decided": found.total.decided, "approved": found.total.approved, "reasons": counts}


def _role(role: str, workers: Sequence[WorkerStatus]) -> dict[str, Any]:
    return {
        "role": role,
        "workers": len(workers),
        "partitions": _over(sum, workers, "partitions"),
        "lag": _over(sum, workers, "lag_records", role),
        "oldest_seconds": _over(max, workers, "commit_age_seconds", role),
    }


def _tenants(limit: str, workers: Sequence[WorkerStatus]) -> dict[str, Any]:
    names = {"most": "tenant_most", "limit": "tenant_limit", "full": "tenants_at_limit"}
    return {"name": limit} | {key: _over(max, workers, name, limit) for key, name in names.items()}


def _over(put: Callable[..., float], of: Sequence[WorkerStatus], name: str, label: str = "") -> float | None:
    """Return the gauge of all workers together; None, never 0, where no worker tells it."""
    values = [one.gauges[name, label] for one in of if (name, label) in one.gauges]
    return put(values) if values else None
