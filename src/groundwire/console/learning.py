"""What people's decisions say of the gate: agreement, time, and the blind sample."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call
from groundwire.console.item import NO_ITEM
from groundwire.review.model import MAX_PAGE, Tally

_SPANS: Final = {"7": 7, "30": 30, "90": 90}


class OpinionFields(BaseModel):
    """What a person thinks of a sampled item before they see the verdict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    opinion: Literal["approve", "reject"]


async def show(call: Call) -> Answer:
    """How people's decisions compare with the gate's."""
    days = _SPANS.get(call.request.query_params.get("days", "30"))
    if days is None:
        raise HTTPException(400, f"days: must be one of {', '.join(_SPANS)}")
    found = call.site.board.agreement(call.scope, call.site.clock() - timedelta(days=days))
    blind = found.blind
    data = {
        "days": days,
        "spans": list(_SPANS.values()),
        "total": _tally(found.total),
        "groups": [
            {"title": "By reason", "column": "reason", "rows": [_tally(row) for row in found.by_reason]},
            {"title": "By source", "column": "source", "rows": [_tally(row) for row in found.by_source]},
        ],
        "blind": {
            "approved": blind.approved,
            "approved_agreed": blind.approved_agreed,
            "blocked": blind.blocked,
            "blocked_agreed": blind.blocked_agreed,
        },
        "audit_share": call.site.settings.audit_share,
    }
    return Answer(data, "learning.html")


async def sample(call: Call) -> Answer:
    """Claims that the gate decided by itself, verdict hidden; none where the share is 0."""
    share = call.site.settings.audit_share
    found = call.site.board.sample(call.scope, share, 20) if share else []
    rows = [
        {
            "id": row.decision_id,
            "subject_id": row.subject_id,
            "tenant_id": row.tenant_id,
            "user_id": row.user_id,
            "source": row.source,
            "memory_type": row.memory_type,
            "text": row.text,
        }
        for row in found
    ]
    return Answer({"rows": rows, "share": share}, "sample.html")


async def judge(call: Call) -> Answer:
    """Keep an opinion on a sampled item, and tell what the gate had decided."""
    fields = call.fields(OpinionFields)
    decision_id = call.request.path_params["decision_id"]
    share = call.site.settings.audit_share
    drawn = call.site.board.sample(call.scope, share, MAX_PAGE) if share else []
    if decision_id not in {row.decision_id for row in drawn}:
        raise HTTPException(404, NO_ITEM)
    found = call.site.board.record_opinion(call.scope, decision_id, fields.opinion)
    if found is None:
        raise HTTPException(404, NO_ITEM)
    data = {
        "id": found.decision_id,
        "opinion": found.opinion,
        "verdict": str(found.verdict),
        "reason_code": found.reason_code,
        "agrees": found.agrees,
    }
    return Answer(data, "revealed.html")


def _tally(tally: Tally) -> dict[str, Any]:
    return {
        "name": tally.name,
        "decided": tally.decided,
        "approved": tally.approved,
        "edited": tally.edited,
        "rejected": tally.rejected,
        "median_seconds": tally.median.total_seconds() if tally.median is not None else None,
        "p90_seconds": tally.p90.total_seconds() if tally.p90 is not None else None,
    }
