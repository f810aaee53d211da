"""What the deployment is doing, for whoever is on call: counts and codes of all tenants, no id and no text."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final, get_args

from starlette.exceptions import HTTPException

from groundwire.checks.citations import CitationType
from groundwire.console.call import Answer, Call
from groundwire.console.item import NO_ITEM
from groundwire.console.measures import OTHER, ROLES, WAITED_FOR, Key
from groundwire.console.scraping import Answering, Seen
from groundwire.console.series import EVERY, SIZE, History
from groundwire.console.site import Site
from groundwire.errors import ErrorCode
from groundwire.messages.base import format_time
from groundwire.messages.decisions import CitationState, ReasonCode
from groundwire.messages.tiers import IngestionTier
from groundwire.replay.progress import JobProgress, jobs_in

_VERDICTS: Final = {"tier_1": "approved", "tier_2": "review", "tier_3": "blocked"}
_LATE: Final = timedelta(seconds=60)
"""After which what was found at the last look is old."""
_ENDS: Final = ("repeats", "provisional", "deferred")


async def show(call: Call) -> Answer:
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
        "missing": sum(one.state is not Answering.ANSWERS for one in workers),
        "paused": _paused(workers),
        **_numbers(scraper.history),
        "review": _review(site),
        "replays": await _replays(site),
    }
    return Answer(data, "operations.html")


def _worker(one: Seen) -> dict[str, Any]:
    answers = one.state is Answering.ANSWERS
    return {
        "name": one.name,
        "address": one.address,
        "role": one.reading.role if one.reading else None,
        "state": str(one.state),
        "since": format_time(one.since),
        "partitions": _whole(one.reading.gauges.get(("partitions",))) if answers and one.reading else None,
        "paused": one.reading.paused if answers and one.reading else [],
    }


def _paused(workers: Sequence[Seen]) -> list[dict[str, Any]]:
    """Return what workers wait for, with how many of each role do."""
    found: dict[tuple[str, str | None], int] = {}
    for one in workers:
        if one.state is Answering.ANSWERS and one.reading is not None:
            for dependency in one.reading.paused:
                at = dependency, one.reading.role
                found[at] = found.get(at, 0) + 1
    order = (*WAITED_FOR, OTHER)
    return [
        {"dependency": dependency, "role": role, "workers": count}
        for (dependency, role), count in sorted(found.items(), key=lambda pair: order.index(pair[0][0]))
    ]


def _numbers(history: History) -> dict[str, Any]:
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
        "dead_letters": [
            {"code": code, "hour": _whole(history.total(("dead_letters", code)))}
            for code in (*map(str, ErrorCode), OTHER)
            if code != OTHER or history.total(("dead_letters", code))
        ],
    }


def _count(history: History, key: Key, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "now": history.rate(key),
        "hour": _whole(history.total(key)),
        "minutes": history.rates(key),
    }


def _level(history: History, key: Key, name: str) -> dict[str, Any]:
    return {"name": name, "now": history.latest(key), "minutes": history.levels(key)}


def _citations(history: History) -> list[dict[str, Any]]:
    rows = []
    for kind in (*get_args(CitationType), OTHER):
        found = {str(state): _whole(history.total(("citations", kind, state))) for state in CitationState}
        if kind != OTHER or any(found.values()):
            rows.append({"type": kind, **found})
    return rows


def _review(site: Site) -> dict[str, Any]:
    """Return how full the queue is, as the board counts it, against its limits."""
    found, most = site.board.backlog(), site.limits
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
