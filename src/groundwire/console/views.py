"""What a queue is filtered and ordered by: read from a URL or a form, and written into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Final, Literal
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from groundwire.console.call import Call, problems
from groundwire.messages.base import ShortId
from groundwire.messages.decisions import Kind, ReasonCode
from groundwire.review.model import Query
from groundwire.review.risk import WAITING

AGES: Final[dict[str, tuple[timedelta | None, timedelta | None]]] = {
    "under_1h": (None, timedelta(hours=1)),
    "over_1h": (timedelta(hours=1), None),
    "over_1d": (timedelta(days=1), None),
    "over_7d": (timedelta(days=7), None),
}
SORTS: Final = (("risk", "highest risk first"), ("oldest", "oldest first"), ("newest", "newest first"))
_NOT_FILTERS: Final = frozenset({"all", "do", "seen", "from"})
LISTS: Final = {"approved": "Approved", "blocked": "Blocked", "responses": "Responses"}
"""Lists beside the queue from which an item is opened, with their titles."""
MAX_CURSOR: Final = 400
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
    cursor: Annotated[Annotated[str, Field(max_length=MAX_CURSOR)] | None, Blank] = None

    def query(self, text: str, limit: int) -> Query:
        """Return what the board is asked."""
        least, most = AGES[self.age] if self.age else (None, None)
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


def view_of(call: Call) -> View:
    """Read the filters of a URL, or those that a form carries. Raises: HTTPException 400, naming one at fault."""
    if call.request.method == "POST":
        return view_from(str(call.sent.get("query", "")))
    found = call.request.query_params.items()
    return _view({name: value for name, value in found if name not in _NOT_FILTERS})


@dataclass(frozen=True, slots=True)
class Origin:
    """The list of `LISTS` from which an item was opened, at one of its pages."""

    name: str
    cursor: str = ""

    @property
    def title(self) -> str:
        """What the list is called."""
        return LISTS[self.name]

    @property
    def address(self) -> str:
        """Where that page of the list is."""
        return with_query(f"/{self.name}", urlencode({"cursor": self.cursor}) if self.cursor else "")

    @property
    def query(self) -> str:
        """What an item's address says of it."""
        cursor = {"cursor": self.cursor} if self.cursor else {}
        return urlencode({"from": self.name, **cursor})


def came_from(call: Call) -> Origin | None:
    """Return the list from which an item was opened, None: the queue, or a link."""
    if call.request.method == "POST":
        return origin_in(str(call.sent.get("query", "")))
    return _origin(call.request.query_params)


def origin_in(query: str) -> Origin | None:
    """Return the list that a query names, which a form carries; None where it names none."""
    return _origin(dict(parse_qsl(query)))


def view_from(query: str) -> View:
    """Read the filters of a query that a form carries; what is none counts as no filter."""
    try:
        return _view(dict(parse_qsl(query)))
    except HTTPException:
        return View()


def choices(call: Call) -> dict[str, list[str]]:
    """Return what can be chosen from a list; the other filters take any text."""
    scope = call.scope
    return {
        "reason": list(WAITING),
        "tenant": sorted(scope.whole | scope.own),
        "memory_type": list(_TYPES),
        "kind": [str(kind) for kind in Kind],
        "age": list(AGES),
    }


def with_query(path: str, query: str) -> str:
    """Return an address; without a query no question mark."""
    return f"{path}?{query}" if query else path


def _origin(found: Mapping[str, str]) -> Origin | None:
    name, cursor = found.get("from", ""), found.get("cursor", "")
    return Origin(name, cursor if len(cursor) <= MAX_CURSOR else "") if name in LISTS else None


def _view(found: Mapping[str, str]) -> View:
    try:
        return View.model_validate(found)
    except ValidationError as exc:
        raise HTTPException(400, problems(exc, View)) from None
