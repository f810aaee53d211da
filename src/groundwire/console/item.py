"""One item: its text with what the gate saw in it, why it is where it is, and what may be done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.exceptions import HTTPException

from groundwire.console import evidence, relatives
from groundwire.console.call import Answer, Call
from groundwire.console.kept import unfinished
from groundwire.console.queue import neighbours
from groundwire.console.rows import subject_of, undo_left
from groundwire.console.standing import Problem, allowed, changed, is_current, why_not
from groundwire.console.views import came_from, view_of, with_query
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.review.actions import RejectReason
from groundwire.review.model import Item, SourceRecord

_POLICY_DIGITS: Final = 12
NO_ITEM: Final = "There is no such item, or it is not yours to see."


def find(call: Call, decision_id: str) -> Item:
    """Return an item that the person sees. Raises: HTTPException 404, the same for none and for another's."""
    item = call.site.board.item(call.scope, decision_id)
    if item is None:
        raise HTTPException(404, NO_ITEM)
    return item


async def show(call: Call) -> Answer:
    """One item; to open its page is to say that one looks at it."""
    item = find(call, call.request.path_params["decision_id"])
    draft, problem = unfinished(call, item)
    seen = call.request.query_params.get("seen", "")
    if seen.isascii() and seen.isdigit() and seen != str(item.current.revision) and len(seen) < 10:
        problem = changed(item, int(seen))
    return Answer(await describe(call, item, problem, draft), "item.html")


async def standing(call: Call) -> Answer:
    """Whether an item is what it was; `standing` changes with its revision, its state and what is on its way."""
    item = find(call, call.request.path_params["decision_id"])
    return Answer({"id": item.current.decision_id, "standing": _standing(call, item)})


async def lock(call: Call) -> Answer:
    """Say that one still looks at an item."""
    item = find(call, call.request.path_params["decision_id"])
    me = call.identity.person.name
    holder = await call.site.locks.claim(subject_of(item.current), me)
    return Answer({"reviewing": holder}, location=f"/items/{item.current.decision_id}")


async def describe(
    call: Call, item: Item, problem: Problem | None = None, draft: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return all that is told of an item.

    Args:
        call: who asks.
        item: of which.
        problem: why an action on it was not taken.
        draft: what the person typed for it that was not taken, by field.
    """
    decision, row = item.decision, item.current
    text = evidence.text_of(decision)
    return {
        "id": decision["decision_id"],
        "revision": decision["revision"],
        **{name: decision[name] for name in _COPIED},
        "risk": row.risk.level if item.pending else None,
        "age_seconds": max(0, round((call.site.clock() - row.since).total_seconds())),
        **evidence.marked(decision, text),
        "content": text or "",
        "checks": evidence.checks(decision),
        "citations": evidence.citations(decision),
        "warnings": evidence.warnings(decision),
        "report": evidence.report(decision),
        "near": relatives.near(item.nearest, text),
        "rests_on": [relatives.told(one) for one in item.parents],
        **relatives.resting(call, item),
        "source": _source(decision, item.source_record),
        "history": _history(item),
        "places": _places(item),
        **_deciding(call, item),
        **await _around(call, item),
        "problem": problem,
        "draft": draft,
        "address": None,
    }


def _standing(call: Call, item: Item) -> str:
    state = "pending" if item.pending else str(item.current.verdict)
    way = "acted on" if call.site.desk.on(item.current.decision_id) else "free"
    return f"{item.current.decision_id} {state} {way}"


def _deciding(call: Call, item: Item) -> dict[str, Any]:
    """Return what may be done, or why nothing may."""
    row, read_only = item.current, call.identity.person.read_only
    entry = call.site.desk.on(row.decision_id)
    follows = item.decision["reason_code"] == "pending_duplicate"
    return {
        "allowed": [] if read_only else allowed(item, entry),
        "why_not": "You may look, and not decide." if read_only else why_not(item, entry),
        "standing": _standing(call, item),
        "newer": None if is_current(item) else row.decision_id,
        "follows": item.decision["conflicting_memory_id"] if follows else None,
        "reasons": [str(reason) for reason in RejectReason],
        "opened": call.request.query_params.get("do", ""),
        "undo_seconds": round(call.site.settings.undo_seconds),
        "undo_left": undo_left(entry, call.site.clock()),
        "lock_url": f"/api/items/{row.decision_id}/lock" if item.pending else "",
        "lock_seconds": round(call.site.settings.lock_seconds),
    }


async def _around(call: Call, item: Item) -> dict[str, Any]:
    """Return who looks at it, and where one goes from here: on in the queue, or back to the list one came from."""
    listed = came_from(call)
    if listed is not None:
        return {
            "reviewing": await _reviewing(call, item),
            "previous": None,
            "next": None,
            "then": None,
            "back": listed.address,
            "back_title": listed.title,
            "query": with_query("", listed.query),
            "query_text": listed.query,
        }
    view = view_of(call)
    near = await neighbours(call, view, item.current.decision_id)
    query = view.encoded()
    return {
        "reviewing": await _reviewing(call, item),
        "previous": near.before,
        "next": near.after,
        "then": near.then,
        "back": with_query("/", query),
        "back_title": "Queue",
        "query": with_query("", query),
        "query_text": query,
    }


_COPIED: Final = (
    "subject_id",
    "kind",
    "tenant_id",
    "user_id",
    "verdict",
    "reason",
    "reason_code",
    "memory_type",
    "decided_at",
)


async def _reviewing(call: Call, item: Item) -> str | None:
    if not item.pending:
        return None
    subject, me = subject_of(item.current), call.identity.person.name
    if call.page and not call.identity.person.read_only:
        return await call.site.locks.claim(subject, me)
    holder = (await call.site.locks.holders([subject]))[0]
    return holder if holder != me else None


def _source(decision: Mapping[str, Any], record: SourceRecord) -> dict[str, Any] | None:
    if decision["source"] is None:
        return None
    judged = record.human_approved + record.human_rejected
    return {
        "name": decision["source"],
        "total": record.approved + record.blocked,
        "facts": [
            {"name": "approved so far", "value": record.approved},
            {"name": "blocked so far", "value": record.blocked},
            {"name": "approved by people", "value": record.human_approved},
            {"name": "rejected by people", "value": record.human_rejected},
        ],
        "approval": f"{record.human_approved / judged:.0%}" if judged else None,
    }


def _history(item: Item) -> list[dict[str, Any]]:
    steps = [
        {
            "revision": revision.revision,
            "verdict": str(revision.verdict),
            "reason_code": revision.reason_code,
            "at": format_time(revision.decided_at),
            "actor": revision.reviewer,
            "note": revision.review_reason,
            "id": revision.decision_id,
        }
        for revision in item.history
    ]
    refused = [
        {
            "revision": None,
            "verdict": "refused",
            "reason_code": attempt.outcome,
            "at": format_time(attempt.at),
            "actor": attempt.actor,
            "note": attempt.action,
            "id": None,
        }
        for attempt in item.attempts
        if not attempt.applied
    ]
    return sorted([*steps, *refused], key=lambda step: str(step["at"]))


def _places(item: Item) -> list[dict[str, str]]:
    decision = item.decision
    first = decision.get("subject_origin") or decision["origin"]
    facts = {
        "published on": f"{item.topic}, partition {item.partition}, offset {item.offset}",
        "came in on": f"{first['topic'] or NONE}, partition {first['partition']}, offset {first['offset']}",
        "decision": decision["decision_id"],
        "revision": str(decision["revision"]),
        "policy": f"{decision['policy']['version']} {decision['policy']['sha256'][:_POLICY_DIGITS]}",
        "engine": decision["engine"],
    }
    return [{"name": name, "value": value} for name, value in facts.items()]
