"""What there is under `/api/`, for programs: each path with its method, what it does, and the body that it takes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from pydantic import BaseModel

_SHOWN: Final = (
    *("type", "enum", "format", "minimum", "minLength", "maxLength", "minItems", "maxItems"),
    *("items", "properties", "required"),
)
"""What is told of a field, in the words of JSON Schema."""
_CONVERTER: Final = re.compile(r":\w+(?=\})")


class Listed(Protocol):
    """What is asked of a route of the table."""

    @property
    def method(self) -> str:
        """GET or POST."""
        ...

    @property
    def path(self) -> str:
        """Below `/api`, as the router writes it."""
        ...

    @property
    def handler(self) -> Callable[..., Any]:
        """Its docstring says what it does."""
        ...

    @property
    def takes(self) -> type[BaseModel] | None:
        """The fields of its body; None: a GET, or an empty object."""
        ...


def listing(places: Iterable[Listed], api: Callable[[str], str]) -> dict[str, Any]:
    """Return the paths as JSON; `api` gives the path under `/api` of a place's path."""
    return {
        "authorization": "Bearer TOKEN, of `groundwire token new`",
        "content_type": "application/json",
        "paths": [
            {
                "method": place.method,
                "path": _CONVERTER.sub("", api(place.path)),
                "does": (inspect.getdoc(place.handler) or "").partition("\n")[0],
                "body": _body(place),
            }
            for place in places
        ],
    }


def _body(place: Listed) -> dict[str, Any] | None:
    if place.method == "GET":
        return None
    if place.takes is None:
        return {"type": "object", "properties": {}}
    schema = place.takes.model_json_schema()
    return _plain(schema, schema.get("$defs", {}))


def _plain(schema: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references, without null where something else is taken, and without titles."""
    if "$ref" in schema:
        return _plain(named[schema["$ref"].rpartition("/")[2]], named)
    if "anyOf" in schema:
        return _plain(next(one for one in schema["anyOf"] if one.get("type") != "null"), named)
    found = {name: schema[name] for name in _SHOWN if name in schema}
    if "items" in found:
        found["items"] = _plain(found["items"], named)
    if "properties" in found:
        found["properties"] = {name: _plain(one, named) for name, one in found["properties"].items()}
    return found
