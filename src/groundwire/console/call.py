"""One request as a handler sees it, and the answer it gives: the same for a page and for its JSON twin.

A handler returns plain data. The page renders it through a template; the twin under `/api` sends it as it is.
So both show the same, to the same people.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from groundwire.console.identity import Identity
from groundwire.console.site import Site
from groundwire.errors import RecordError
from groundwire.messages import parse_json
from groundwire.review.people import Scope

Fields = TypeVar("Fields", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a handler answers.

    Attributes:
        data: what the page shows and the twin sends; JSON values only.
        template: name of the page; None: the page is the one at `location`.
        status: of the answer.
        location: where a browser goes after a form; the twin sends the data instead.
    """

    data: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    status: int = 200
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request from somebody known.

    Attributes:
        site: what the console holds.
        identity: who asks.
        sent: fields of the form or the JSON object; a field sent more than once is a list.
        page: whether a page was asked for, not its twin.
    """

    request: Request
    site: Site
    identity: Identity
    sent: Mapping[str, Any]
    page: bool

    @property
    def scope(self) -> Scope:
        """What this person may see."""
        return self.site.permissions.scope(self.identity.person)

    def fields(self, model: type[Fields]) -> Fields:
        """Read what was sent. Raises: HTTPException 400 that names the field at fault, not its value."""
        try:
            return model.model_validate(self.sent)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
            where = ".".join(str(part) for part in first["loc"]) or "request"
            message = first["msg"].removeprefix("Value error, ")
            raise HTTPException(400, f"{where[:100]}: {message}") from None


Handler = Callable[[Call], Awaitable[Answer]]


async def read_form(request: Request) -> dict[str, Any]:
    """Return the fields of a form. Raises: HTTPException 415, 400."""
    if _content_type(request) != "application/x-www-form-urlencoded":
        raise HTTPException(415)
    try:
        pairs = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
    except ValueError:
        raise HTTPException(400, "the form is not UTF-8, or has too many fields") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        # a text area sends its line ends as CR LF, whatever they were
        text = value.replace("\r\n", "\n")
        found[name] = [*_list(found[name]), text] if name in found else text
    return found


async def read_json(request: Request) -> dict[str, Any]:
    """Return the JSON object that was sent. Raises: HTTPException 415, 400."""
    if _content_type(request) != "application/json":
        raise HTTPException(415)
    try:
        value = parse_json(await request.body())
    except RecordError as exc:
        raise HTTPException(400, exc.message) from None
    if not isinstance(value, dict):
        raise HTTPException(400, "must be a JSON object")
    return value


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _list(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [value]
