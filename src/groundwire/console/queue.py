"""The queue: what waits, filtered and in order, with the gauges against the limits."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call, problems
from groundwire.console.desk import Entry, State
from groundwire.console.sessions import MAX_SEARCH
from groundwire.messages.base import ShortId, format_time
from groundwire.messages.decisions import Kind, ReasonCode
from groundwire.messages.identity import Subject
from groundwire.review.model import Query, Row
from groundwire.review.risk import risk_of

PAGE: Final = 50
NEIGHBOURS: Final = 200
_AGES: Final[dict[str, tuple[timedelta | None, timedelta | None]]] = {
    "under_1h": (None, timedelta(hours=1)),
    "over_1h": (timedelta(hours=1), None),
    "over_1d": (timedelta(days=1), None),
    "over_7d": (timedelta(days=7), None),
}
_SORTS: Final = (("risk", "highest risk first"), ("oldest", "oldest first"), ("newest", "newest first"))
_REASONS: Final = sorted(
    (code for code in ReasonCode if risk_of(code).rank), key=lambda code: risk_of(code).rank
)
_NOT_FILTERS: Final = frozenset({"all", "do"})
_TYPES: Final = ("fact", "preference", "decision")


def _blank_is_none(value: object) -> object:
    return None if value == "" else value


Blank = BeforeValidator(_blank_is_none)


class View(BaseModel):
    """What a queue is filtered and ordered by: codes and ids, fit for a URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Annotated[ReasonCode | None, Blank] = None
    tenant: Annotated[ShortId | None, Blank] = None
    user: Annotated[ShortId | None, Blank] = None
    source: Annotated[ShortId | None, Blank] = None
    memory_type: Annotated[Literal["fact", "preference", "decision"] | None, Blank] = None
    kind: Annotated[Kind | None, Blank] = None
    age: Annotated[Literal["under_1h", "over_1h", "over_1d", "over_7d"] | None, Blank] = None
    sort: Annotated[Literal["risk", "oldest", "newest"], BeforeValidator(lambda v: v or "risk")] = "risk"
    cursor: Annotated[Annotated[str, Field(max_length=400)] | None, Blank] = None

    def query(self, text: str, limit: int) -> Query:
        """Return what the board is asked."""
        least, most = _AGES[self.age] if self.age else (None, None)
        return Query(
            reason=self.reason,
            tenant=self.tenant,
            user=self.user,
            source=self.source,
            memory_type=self.memory_type,
            kind=self.kind,
            min_age=least,
            max_age=most,
            text=text,
            sort=self.sort,
            limit=limit,
            cursor=self.cursor,
        )

    def encoded(self, **changes: str | None) -> str:
        """Return it as the query of a URL, without the question mark; what is at its default is left out."""
        shown = self.model_dump(exclude_defaults=True) | changes
        return urlencode([(name, str(value)) for name, value in shown.items() if value is not None])

    @property
    def filters(self) -> Mapping[str, str]:
        """The filters by name, empty where there is none."""
        kept = self.model_dump(exclude={"sort", "cursor"})
        return {name: str(value) if value is not None else "" for name, value in kept.items()}


class SearchFields(BaseModel):
    """A search as it is posted: its text never stands in a URL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    search: Annotated[str, Field(max_length=MAX_SEARCH)] = ""
    back: Annotated[str, Field(max_length=2000)] = ""


def view_of(call: Call) -> View:
    """Read the filters of a URL, or those that a form carries. Raises: HTTPException 400, naming one at fault."""
    if call.request.method == "POST":
        return view_from(str(call.sent.get("query", "")))
    found = call.request.query_params.items()
    return _view({name: value for name, value in found if name not in _NOT_FILTERS})


def view_from(query: str) -> View:
    """Read the filters of a query that a form carries; what is none counts as no filter."""
    try:
        return _view(dict(parse_qsl(query)))
    except HTTPException:
        return View()


def search_of(call: Call) -> str:
    """Return what this browser searches for."""
    return str(call.request.session.get("search", "")) if call.identity.ambient else ""


async def show(call: Call) -> Answer:
    """The queue."""
    if "all" in call.request.query_params:
        call.request.session.pop("search", None)
    return Answer(await _queue(call, view_of(call), search_of(call)), "queue.html")


async def search(call: Call) -> Answer:
    """Search the texts: a browser's session keeps what is searched for; a token gets the answer at once."""
    fields = call.fields(SearchFields)
    view = view_from(fields.back)
    if call.identity.ambient:  # a browser begins at the top; its session carries the search on
        view = view.model_copy(update={"cursor": None})
        call.request.session["search"] = fields.search.strip()
    data = await _queue(call, view, fields.search.strip())
    return Answer(data, location=_with("/", view.encoded()))


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


def subject_of(row: Row) -> Subject:
    """Return whose state a row shows."""
    return Subject(row.tenant_id, row.user_id, row.kind, row.subject_id)


def doing(entry: Entry | None) -> str | None:
    """Return, of an item with an action on its way, what is being done and by whom."""
    if entry is None:
        return None
    done = {"approve": "approved", "reject": "rejected", "edit": "edited", "retract": "retracted"}
    rest = "can still be undone" if entry.state is State.HELD else "waiting for the gate"
    return f"{done[entry.order.record.action]} by {entry.order.person.name}; {rest}"


async def _queue(call: Call, view: View, text: str) -> dict[str, Any]:
    try:
        page = call.site.board.pending(call.scope, view.query(text, PAGE))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    filtered = sum(1 for value in view.filters.values() if value)
    later = _with("/", view.encoded(cursor=page.next)) if page.next else None
    return {
        "items": await _items(call, page.rows),
        "total": page.total,
        "older": later,
        "newer": _with("/", view.encoded(cursor=None)) if view.cursor else None,
        "search": text,
        "filters": view.filters,
        "filtered": filtered,
        "choices": _choices(call),
        "sort": view.sort,
        "gauges": _gauges(call),
        "query": _with("", view.encoded()),
        "query_text": view.encoded(),
        "sorts": [{"value": value, "title": title} for value, title in _SORTS],
    }


async def _items(call: Call, rows: Sequence[Row]) -> list[dict[str, Any]]:
    holders = await call.site.locks.holders([subject_of(row) for row in rows])
    me = call.identity.person.name
    return [
        _row(call, row, holder if holder != me else None) for row, holder in zip(rows, holders, strict=True)
    ]


def _row(call: Call, row: Row, reviewing: str | None) -> dict[str, Any]:
    age = (call.site.clock() - row.since).total_seconds()
    return {
        "id": row.decision_id,
        "revision": row.revision,
        "tenant_id": row.tenant_id,
        "user_id": row.user_id,
        "kind": str(row.kind),
        "subject_id": row.subject_id,
        "excerpt": row.excerpt,
        "whole": _is_whole(row),
        "reason_code": row.reason_code,
        "risk": row.risk.level,
        "risk_why": row.risk.why,
        "source": row.source,
        "memory_type": row.memory_type,
        "decided_at": format_time(row.since),
        "age_seconds": max(0, round(age)),
        "reviewing": reviewing,
        "doing": doing(call.site.desk.on(row.decision_id)),
    }


def _is_whole(row: Row) -> bool:
    """Say whether the list shows all of a text: what it does not show cannot be approved from there."""
    visible = not any(unicodedata.category(char) in ("Cc", "Cf", "Co", "Cn", "Cs") for char in row.excerpt)
    return row.kind == Kind.CLAIM and visible and not row.excerpt.endswith("…")


def _choices(call: Call) -> dict[str, list[str]]:
    """Return what can be chosen from a list; the other filters take any text."""
    scope = call.scope
    return {
        "reason": [str(code) for code in _REASONS],
        "tenant": sorted(scope.whole | scope.own),
        "memory_type": list(_TYPES),
        "kind": [str(kind) for kind in Kind],
        "age": list(_AGES),
    }


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


def _view(found: Mapping[str, str]) -> View:
    try:
        return View.model_validate(found)
    except ValidationError as exc:
        raise HTTPException(400, problems(exc, View)) from None


def _with(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path
