"""The queue: what waits, filtered and in order, with the gauges against the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call
from groundwire.console.rows import queued
from groundwire.console.searching import SearchFields, clear_search, keep_search, search_of
from groundwire.console.views import SORTS, View, choices, view_from, view_of, with_query

PAGE: Final = 50
NEIGHBOURS: Final = 200


async def show(call: Call) -> Answer:
    """The queue."""
    clear_search(call)
    return Answer(await _queue(call, view_of(call), search_of(call)), "queue.html")


async def search(call: Call) -> Answer:
    """Search the texts: a browser's session keeps what is searched for; a token gets the answer at once."""
    fields = call.fields(SearchFields)
    view = view_from(fields.back)
    if call.identity.ambient:  # a browser begins at the top; its session carries the search on
        view = view.model_copy(update={"cursor": None})
        keep_search(call, fields.search.strip())
    data = await _queue(call, view, fields.search.strip())
    return Answer(data, location=with_query("/", view.encoded()))


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Items beside one in the queue as its reader sees it; `then` is where to go once this one is done."""

    before: str | None = None
    after: str | None = None
    then: str | None = None


async def neighbours(call: Call, view: View, decision_id: str) -> Neighbours:
    """Return what stands beside an item; what has an action on its way is passed over."""
    try:
        page = call.site.board.pending(call.scope, view.query(search_of(call), NEIGHBOURS))
    except ValueError:  # the place in the list is none of this order
        return Neighbours()
    open_ids = [
        row.decision_id
        for row in page.rows
        if row.decision_id == decision_id or call.site.desk.on(row.decision_id) is None
    ]
    first = next((one for one in open_ids if one != decision_id), None)
    if decision_id not in open_ids:
        return Neighbours(after=first, then=first)
    at = open_ids.index(decision_id)
    after = open_ids[at + 1] if at + 1 < len(open_ids) else None
    return Neighbours(open_ids[at - 1] if at else None, after, after or first)


async def _queue(call: Call, view: View, text: str) -> dict[str, Any]:
    try:
        page = call.site.board.pending(call.scope, view.query(text, PAGE))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    filtered = sum(1 for value in view.filters.values() if value)
    later = with_query("/", view.encoded(cursor=page.next)) if page.next else None
    return {
        "items": await queued(call, page.rows),
        "total": page.total,
        "waiting": _waiting(call) if filtered or text else page.total,
        "older": later,
        "newer": with_query("/", view.encoded(cursor=None)) if view.cursor else None,
        "search": text,
        "filters": view.filters,
        "filtered": filtered,
        "choices": choices(call),
        "sort": view.sort,
        "gauges": _gauges(call),
        "query": with_query("", view.encoded()),
        "query_text": view.encoded(),
        "sorts": [{"value": value, "title": title} for value, title in SORTS],
    }


def _waiting(call: Call) -> int:
    """Return how many wait in all, whatever is filtered or searched for."""
    return call.site.board.pending(call.scope, View().query("", 1)).total


def _gauges(call: Call) -> list[dict[str, Any]]:
    counts, limits = call.site.board.counts(call.scope), call.site.limits
    several = len(counts.own) + len(counts.tenants) > 2
    own = [
        (f"own-{tenant}", f"Yours in {tenant}" if several else "Yours", used, limits.review_per_user)
        for tenant, used in sorted(counts.own.items())
    ]
    whole = [
        (f"tenant-{tenant}", tenant, used, limits.review_per_tenant)
        for tenant, used in sorted(counts.tenants.items())
    ]
    total = [] if counts.total is None else [("total", "All tenants", counts.total, limits.review_total)]
    return [
        {"name": name, "label": label, "used": used, "limit": limit}
        for name, label, used, limit in (*own, *whole, *total)
    ]
