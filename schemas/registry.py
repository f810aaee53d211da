"""The schemas of input records for Avro and Protobuf, made from the models: for producers that use a schema registry.

JSON inside a record (metadata) is a map in Avro and a Struct in Protobuf. Times are timestamp-micros and Timestamp.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

NAMESPACE: Final = "dev.groundwire.v1"
_SCALARS: Final = {
    str: ("string", "string"),
    bool: ("boolean", "bool"),
    int: ("long", "int64"),
    float: ("double", "double"),
}
_PLAIN: Final = ["null", "boolean", "long", "double", "string"]
_ANY: Final = [*_PLAIN, {"type": "map", "values": _PLAIN}]
"""What Avro has for any JSON value: it knows none that holds itself, so objects are one level deep."""


def avro(model: type[BaseModel]) -> str:
    """Return the Avro schema of a model as text."""
    return json.dumps(_record(model, set()), indent=2) + "\n"


def _record(model: type[BaseModel], made: set[str]) -> dict[str, Any] | str:
    name = model.__name__
    if name in made:
        return name
    made.add(name)
    fields = []
    for field, info in model.model_fields.items():
        kind = _avro(info.annotation, made)
        if info.is_required():
            fields.append({"name": field, "type": kind})
        else:
            branches = kind if isinstance(kind, list) else ["null", kind]
            fields.append({"name": field, "type": branches, "default": None})
    about = (model.__doc__ or "").split("\n")[0]
    return {"type": "record", "name": name, "namespace": NAMESPACE, "doc": about, "fields": fields}


def _avro(annotation: Any, made: set[str]) -> Any:  # noqa: ANN401 - types are what it looks at
    kind, arguments = _unwrapped(annotation)
    if kind in (Union, types.UnionType):
        return ["null", *(_avro(one, made) for one in arguments if one is not type(None))]
    if kind is list:
        return {"type": "array", "items": _avro(arguments[0], made)}
    if kind in (dict, Mapping):
        return {"type": "map", "values": _avro(arguments[1], made)}
    if kind is Any:
        return _ANY
    if kind is datetime:
        return {"type": "long", "logicalType": "timestamp-micros"}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _record(kind, made)
    return "string" if kind is Literal else _SCALARS[kind][0]


def protobuf(model: type[BaseModel]) -> str:
    """Return the Protobuf file of a model as text: every field that need not be there is optional."""
    messages: dict[str, list[str]] = {}
    _message(model, messages)
    text = "\n\n".join("\n".join(lines) for lines in messages.values())
    wanted = {"struct": r"Struct|Value", "timestamp": "Timestamp"}
    imports = [
        f'import "google/protobuf/{file}.proto";'
        for file, names in wanted.items()
        if re.search(rf"google\.protobuf\.({names}) ", text)
    ]
    head = [
        'syntax = "proto3";',
        "",
        f"package {NAMESPACE};",
        *(["", *imports] if imports else []),
    ]
    return "\n".join(head) + "\n\n" + text + "\n"


def _message(model: type[BaseModel], messages: dict[str, list[str]]) -> str:
    name = model.__name__
    if name not in messages:
        lines = messages[name] = [f"// {(model.__doc__ or '').split(chr(10))[0]}", f"message {name} {{"]
        for number, (field, info) in enumerate(model.model_fields.items(), 1):
            lines.append(f"  {_protobuf(info.annotation, messages)} {field} = {number};")
        lines.append("}")
    return name


def _protobuf(annotation: Any, messages: dict[str, list[str]]) -> str:  # noqa: ANN401 - as `_avro`
    kind, arguments = _unwrapped(annotation)
    if kind in (Union, types.UnionType):
        (annotation,) = (one for one in arguments if one is not type(None))
        kind, arguments = _unwrapped(annotation)
    if kind is list:
        return f"repeated {_named(arguments[0], messages)}"
    if kind in (dict, Mapping) and _unwrapped(arguments[1])[0] is not Any:
        return f"map<string, {_named(arguments[1], messages)}>"
    return f"optional {_named(annotation, messages)}"


def _named(annotation: Any, messages: dict[str, list[str]]) -> str:  # noqa: ANN401 - as `_avro`
    kind, _ = _unwrapped(annotation)
    if kind in (dict, Mapping):
        return "google.protobuf.Struct"
    if kind is list:  # which a map cannot hold itself
        lines = ["// A list within a map.", "message Texts {", "  repeated string items = 1;", "}"]
        messages.setdefault("Texts", lines)
        return "Texts"
    if kind is Any:
        return "google.protobuf.Value"
    if kind is datetime:
        return "google.protobuf.Timestamp"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _message(kind, messages)
    return "string" if kind is Literal else _SCALARS[kind][1]


def _unwrapped(annotation: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401 - as `_avro`
    origin = get_origin(annotation)
    while origin is not None and hasattr(annotation, "__metadata__"):
        annotation = annotation.__origin__
        origin = get_origin(annotation)
    return origin or annotation, get_args(annotation)
