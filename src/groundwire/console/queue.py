"""The queue: filters, order and search in a URL, rows, neighbours, and gauges against the limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Annotated, Any, Final, Literal
from urllib.parse import parse_qsl, urlencode

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.outbox import doing, undo_left
from groundwire.console.site import Call, PageAnswer, read
from groundwire.messages.base import ShortId, format_time
from groundwire.messages.decisions import Kind, ReasonCode
from groundwire.messages.identity import Subject
from groundwire.review.model import MAX_PAGE, WAITING, Nearest, Neighbours, Query, Row
from groundwire.review.queries import cursor_after
from groundwire.text.tokens import tokenize
from groundwire.text.visible import invisible_places

AGES: Final[dict[str, tuple[timedelta | None, timedelta | None]]] = {
    "under_1h": (None, timedelta(hours=1)),
    "over_1h": (timedelta(hours=1), None),
    "over_1d": (timedelta(days=1), None),
    "over_7d": (timedelta(days=7), None),
}
SORTS: Final = (("risk", "highest risk first"), ("oldest", "oldest first"), ("newest", "newest first"))
_NOT_FILTERS: Final = frozenset({"do", "seen", "from"})
LISTS: Final = {"approved": "Approved", "blocked": "Blocked", "responses": "Responses"}
"""Lists beside the queue from which an item is opened, with their titles."""
MAX_CURSOR: Final = 400
MAX_QUERY: Final = 4_000  # characters of a query that a form carries
QUEUE: Final = "queue"
PAGE: Final = 50
MOST_AT_ONCE: Final = 1_000  # items that are decided at once


Blank = BeforeValidator(lambda value: None if value == "" else value)
_MAX_SEARCH: Final = 200
Search = Annotated[Annotated[str, Field(max_length=_MAX_SEARCH), AfterValidator(str.strip)] | None, Blank]


class View(BaseModel):
    """Filters, order and search of the queue, as a URL has them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    search: Search = None
    reason: Annotated[ReasonCode | None, Blank] = None
    tenant: Annotated[ShortId | None, Blank] = None
    user: Annotated[ShortId | None, Blank] = None
    source: Annotated[ShortId | None, Blank] = None
    memory_type: Annotated[Literal["fact", "preference", "decision"] | None, Blank] = None
    kind: Annotated[Kind | None, Blank] = None
    age: Annotated[Literal["under_1h", "over_1h", "over_1d", "over_7d"] | None, Blank] = None
    sort: Annotated[Literal["risk", "oldest", "newest"], BeforeValidator(lambda v: v or "risk")] = "risk"
    cursor: Annotated[Annotated[str, Field(max_length=MAX_CURSOR)] | None, Blank] = None

    def encoded(self, **changes: str | None) -> str:
        shown = self.model_dump(exclude_defaults=True) | changes
        return urlencode([(name, str(value)) for name, value in shown.items() if value is not None])

    @property
    def filters(self) -> Mapping[str, str]:
        kept = self.model_dump(exclude={"sort", "search", "cursor"})
        return {name: str(value) if value is not None else "" for name, value in kept.items()}


def board_query(view: View, limit: int) -> Query:
    least, most = AGES[view.age] if view.age else (None, None)
    given = view.model_dump(exclude={"age", "search"})
    return Query(**given, min_age=least, max_age=most, text=view.search or "", limit=limit)


def view_of(call: Call) -> View:
    """Read the filters of a URL, or those that a form carries. Raises: HTTPException 400, naming one at fault."""
    if call.request.method == "POST":
        return view_from(str(call.sent.get("query", "")))
    found = call.request.query_params.items()
    return read(View, {name: value for name, value in found if name not in _NOT_FILTERS})


@dataclass(frozen=True, slots=True)
class ListOrigin:
    name: str
    cursor: str = ""
    search: str = ""

    @property
    def title(self) -> str:
        return LISTS[self.name]

    @property
    def address(self) -> str:
        return with_query(f"/{self.name}", urlencode(self._place))

    @property
    def query(self) -> str:
        return urlencode({"from": self.name, **self._place})

    @property
    def _place(self) -> dict[str, str]:
        place = {"search": self.search, "cursor": self.cursor}
        return {name: value for name, value in place.items() if value}


def came_from(call: Call) -> ListOrigin | None:
    """Return the list from which an item was opened, None: the queue, or a link."""
    if call.request.method == "POST":
        return origin_in(dict(parse_qsl(str(call.sent.get("query", "")))))
    return origin_in(call.request.query_params)


def query_back(query: str) -> str:
    """Return the query of the list that a form carries: that of another list, else the filters of the queue."""
    listed = origin_in(dict(parse_qsl(query)))
    return listed.query if listed else view_from(query).encoded()


def view_from(query: str) -> View:
    """Read the filters of a query that a form carries; what is none counts as no filter."""
    try:
        return read(View, dict(parse_qsl(query)))
    except HTTPException:
        return View()


def selected_by(query: str) -> View:
    """Read the filters of a query that says which items are meant.

    Raises: HTTPException 400, naming what is no filter; read as none it would mean every item.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise HTTPException(400, "query: each filter must be name=value") from None
    twice = {name for name, count in Counter(name for name, _ in pairs).items() if count > 1}
    if twice:
        raise HTTPException(400, f"query: {', '.join(sorted(twice))[:100]}: given more than once")
    return read(View, dict(pairs))


def with_query(path: str, query: str) -> str:
    return f"{path}?{query}" if query else path


def origin_in(found: Mapping[str, str]) -> ListOrigin | None:
    name, cursor, search = (found.get(part, "") for part in ("from", "cursor", "search"))
    cursor, search = cursor if len(cursor) <= MAX_CURSOR else "", search if len(search) <= _MAX_SEARCH else ""
    return ListOrigin(name, cursor, search) if name in LISTS else None


def subject_of(row: Row) -> Subject:
    return Subject(row.tenant_id, row.user_id, row.kind, row.subject_id)


def is_whole(row: Row) -> bool:
    """Say whether a list row shows the whole text: only then can it be approved from the list."""
    return row.kind == Kind.CLAIM and not row.excerpt.endswith("…") and not invisible_places(row.excerpt)


def alike(row: Row) -> tuple[str | None, ...] | None:
    """Return what is equal of items that may be decided together; None of one that is decided by itself.

    They are of one tenant, reason and source, shown whole, and have the same words but for numbers.
    """
    if not is_whole(row) or row.risk.level == "high":
        return None
    words = ("#" if any(char.isdigit() for char in word) else word for word in tokenize(row.excerpt))
    return (row.tenant_id, row.reason_code, row.headline, row.source, row.memory_type, *words)


def listed(rows: Sequence[Row]) -> Sequence[Row]:
    """Return so many rows as make a page, where those that are alike are one."""
    seen: set[Any] = set()
    for number, row in enumerate(rows):
        seen.add(alike(row) or row.decision_id)
        if len(seen) > PAGE:
            return rows[:number]
    return rows


OwnPage = Literal["high_risk", "contradicts"]


def own_page(row: Row, memories: Sequence[Nearest]) -> OwnPage | None:
    """Return why an item is decided on its own page only, by the memories it was compared with; None: it is not."""
    contradicted = any(one.is_contradicted for one in memories)
    if contradicted or row.reason_code == ReasonCode.CONFLICTING_NEAR_DUPLICATE:
        return "contradicts"
    return "high_risk" if row.risk.level == "high" else None


async def memories_of(call: Call, decision_ids: Sequence[str]) -> dict[str, list[Nearest]]:
    """Return the memories that the gate compared claims with, by decision; others are answered meanwhile."""
    return await asyncio.to_thread(call.site.board.memories, call.scope, decision_ids)


async def fetch_excerpts(call: Call, rows: Sequence[Row]) -> None:
    excerpts = call.site.excerpts
    items = (call.site.board.item(call.scope, row.decision_id) for row in excerpts.missing(rows))
    await excerpts.fetch([item.decision for item in items if item is not None])


def list_row(call: Call, row: Row) -> dict[str, Any]:
    return {
        "id": row.decision_id,
        "tenant_id": row.tenant_id,
        "user_id": row.user_id,
        "kind": str(row.kind),
        "subject_id": row.subject_id,
        "excerpt": call.site.excerpts.of(row),
        "reason_code": row.reason_code,
        "headline": row.headline,
        "source": row.source,
        "decided_at": format_time(row.since),
        "age_seconds": max(0, round((call.site.clock() - row.since).total_seconds())),
    }


async def queue_rows(call: Call, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return what the queue shows of items; `alike` is the id of the first of those that are decided in one go."""
    await fetch_excerpts(call, rows)
    held = await call.site.locks.held()
    compared = await memories_of(call, [row.decision_id for row in rows])
    found = []
    groups: dict[tuple[str | None, ...], list[str]] = {}
    for row in rows:
        entry, holder = call.site.outbox.on(row.decision_id), held.get(subject_of(row))
        shown = {
            "revision": row.revision,
            "whole": is_whole(row),
            "risk": row.risk.level,
            "risk_why": row.risk.why,
            "memory_type": row.memory_type,
            "doing": doing(entry),
            "undo_left": undo_left(entry, call.site.clock()),
            "own_page": own_page(row, compared.get(row.decision_id, ())),
            "reviewing": holder if holder != call.identity.person.name else None,
        }
        found.append(list_row(call, row) | shown)
        kind = alike(row)
        if kind and not (shown["own_page"] or shown["doing"] or shown["reviewing"]):
            groups.setdefault(kind, []).append(row.decision_id)
    first = {name: ids[0] for ids in groups.values() if len(ids) > 1 for name in ids}
    return [one | {"alike": first.get(one["id"])} for one in found]


def unshared_since(call: Call) -> str | None:
    """Return since when Redis has not answered, so that nobody knows who opened what; None while it does."""
    since = call.site.shared.away_since
    return format_time(since) if since else None


async def show(call: Call) -> PageAnswer:
    """The queue."""
    view = view_of(call)
    query = board_query(view, MAX_PAGE)
    try:
        page = call.site.board.pending(call.scope, query)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = listed(page.rows)
    following = page.next if len(rows) == len(page.rows) else cursor_after(rows[-1], view.sort)
    filtered = sum(1 for value in view.filters.values() if value)
    everything = call.site.board.pending(call.scope, Query(sort="oldest", limit=1))
    data = {
        "items": await queue_rows(call, rows),
        "total": page.total,
        "waiting": everything.total,
        "progress": progress(call, everything.rows),
        "older": with_query("/", view.encoded(cursor=following)) if following else None,
        "newer": with_query("/", view.encoded(cursor=None)) if view.cursor else None,
        "search": query.text,
        "filters": view.filters,
        "filtered": filtered,
        "choices": {  # the other filters take any text
            "reason": list(WAITING),
            "tenant": sorted(call.scope.whole | call.scope.own),
            "memory_type": ["fact", "preference", "decision"],
            "kind": [str(kind) for kind in Kind],
            "age": list(AGES),
        },
        "sort": view.sort,
        "gauges": gauges(call),
        "most": MOST_AT_ONCE,
        "unshared_since": unshared_since(call),
        "query": with_query("", view.encoded()),
        "query_text": view.encoded(),
        "sorts": [{"value": value, "title": title} for value, title in SORTS],
    }
    return PageAnswer(data, "queue.html")


async def neighbours(call: Call, view: View, decision_id: str) -> Neighbours:
    """Return the items beside one that wait for this person, however many others stand between.

    Items with an action on their way, or that somebody else has open, are skipped.
    """
    me, busy = call.identity.person.name, call.site.outbox.open_ids
    query = board_query(view.model_copy(update={"cursor": None}), PAGE)
    theirs = {subject for subject, person in (await call.site.locks.held()).items() if person != me}

    def is_free(row: Row) -> bool:
        return row.decision_id not in busy and subject_of(row) not in theirs

    return await asyncio.to_thread(call.site.board.neighbours, call.scope, query, decision_id, is_free)


def progress(call: Call, oldest: Sequence[Row]) -> dict[str, int | None]:
    """Return how many items people decided since midnight UTC, and how long the oldest one has waited."""
    now = call.site.clock()
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    everybody, own = call.site.board.decided_by_people(call.scope, midnight)
    waited = [max(0, round((now - row.since).total_seconds())) for row in oldest]
    return {"own": own, "all": everybody, "oldest_seconds": waited[0] if waited else None}


def gauges(call: Call) -> list[dict[str, Any]]:
    counts, limits = call.site.board.counts(call.scope), call.site.policy.limits
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
