"""One request as a handler sees it, and the answer it gives: the same for a page and for its JSON twin.

A handler returns plain data. The page renders it through a template; the twin under `/api` sends it as it is.
So both show the same, to the same people.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.exceptions import HTTPException
from starlette.requests import Request

from groundwire.console.identity import Identity
from groundwire.console.site import Site
from groundwire.errors import RecordError
from groundwire.messages import parse_json
from groundwire.review.people import Scope

Fields = TypeVar("Fields", bound=BaseModel)

_NAMED: Final = {"missing": "missing", "extra_forbidden": "unknown"}
"""Kinds of errors after which it helps to know which fields there are."""
_TOLD: Final = 20
"""Errors of one request that are told one by one."""
_FORM: Final = "application/x-www-form-urlencoded"
_JSON: Final = "application/json"


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
        """Read what was sent. Raises: HTTPException 400 that names the fields at fault, not their values."""
        try:
            return model.model_validate(self.sent)
        except ValidationError as exc:
            raise HTTPException(400, problems(exc, model)) from None


def problems(exc: ValidationError, model: type[BaseModel]) -> str:
    """Say what is wrong with the fields of a request: all that are missing, unknown or wrong, and which there are."""
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    told = [f"{'.'.join(map(str, error['loc']))[:100] or 'request'}: {_problem(error)}" for error in errors]
    more = [f"and {len(told) - _TOLD} more"] if len(told) > _TOLD else []
    if not {error["type"] for error in errors}.isdisjoint(_NAMED):
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        others = [name for name in model.model_fields if name not in needed]
        more += [f"needed: {', '.join(needed)}"] if needed else []
        more += [f"permitted: {', '.join(others)}"] if others else []
    return "; ".join([*told[:_TOLD], *more])


def _problem(error: ErrorDetails) -> str:
    return _NAMED.get(error["type"], error["msg"].removeprefix("Value error, "))


Handler = Callable[[Call], Awaitable[Answer]]


async def read_form(request: Request) -> dict[str, Any]:
    """Return the fields of a form. Raises: HTTPException 415, 400."""
    _require(request, _FORM)
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
    _require(request, _JSON)
    try:
        value = parse_json(await request.body())
    except RecordError as exc:
        raise HTTPException(400, exc.message) from None
    if not isinstance(value, dict):
        raise HTTPException(400, "must be a JSON object")
    return value


def _require(request: Request, content_type: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != content_type:
        raise HTTPException(
            415, f"Send the header Content-Type: {content_type}.", {"accept-post": content_type}
        )


def _list(value: Any) -> list[Any]:  # noqa: ANN401
    return value if isinstance(value, list) else [value]
