"""Generates the published contract from the models: JSON Schema per record and version, and asyncapi.yaml.

Records that come in have an Avro and a Protobuf schema too.

    python -m schemas.__main__ write schemas
    python -m schemas.__main__ check schemas

A released file is never changed: a record that changes gets a new version beside the old one. What a field means may be
put in better words; they stand in docs/develop/fields.toml of the project, for docs/reference/records.md too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from groundwire.messages.base import SCHEMA_VERSIONS
from groundwire.messages.decisions import AuditEvent, Decision, RegenerateRequest
from groundwire.messages.records import Claim, LlmResponse, Retraction, ReviewDecision
from schemas.asyncapi import asyncapi, to_yaml
from schemas.registry import avro, protobuf

Schema = dict[str, Any]
Texts = Mapping[str, Mapping[str, str]]

FIELDS: Final = Path(__file__).resolve().parents[1] / "docs" / "develop" / "fields.toml"
"""Model -> field -> what it means; part of the project, not of the package."""
VERSION: Final = "1.0"
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_BASE: Final = "https://groundwire.dev/schemas"
_TIME: Final = "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?"
_ANY_OFFSET: Final = f"^{_TIME}([Zz]|[+-][0-9]{{2}}:[0-9]{{2}})$"
_UTC: Final = f"^{_TIME}Z$"

INPUTS: Final[dict[str, type[BaseModel]]] = {
    "claim": Claim,
    "llm-response": LlmResponse,
    "review-decision": ReviewDecision,
}
OUTPUTS: Final[dict[str, type[BaseModel]]] = {
    # named as in the header ce_dataschema
    "decision": Decision,
    "retraction": Retraction,
    "regenerate": RegenerateRequest,
    "audit": AuditEvent,
}

_RULES: Final[dict[str, Schema]] = {
    "review-decision": {
        "if": {"properties": {"action": {"const": "edit"}}, "required": ["action"]},
        "then": {"properties": {"content": {"type": "string"}}, "required": ["content"]},
        "else": {"properties": {"content": {"type": "null"}}},
    }
}
"""Rules over several fields, which the models hold in code."""

_COMMENTS: Final = {
    "claim": "Beyond this schema: validity_horizon is not before captured_at; metadata has at most 16,000 bytes.",
    "llm-response": "Beyond this schema: metadata has at most 16,000 bytes.",
}
_INPUT_COMMENT: Final = (
    "For every input: UTF-8 without duplicate keys, lone surrogates or NUL characters, at most 900,000 bytes, "
    "64 levels deep; whole numbers are written without a fraction."
)


def schema(name: str) -> Schema:
    """Return the JSON Schema of a record by its published name.

    Inputs refuse fields that are not listed; outputs may gain fields, which consumers ignore.
    """
    model = INPUTS.get(name) or OUTPUTS[name]
    generated = model.model_json_schema(mode="validation" if name in INPUTS else "serialization")
    for part in _parts(generated):
        if part.get("format") == "date-time":
            part["pattern"] = _ANY_OFFSET if name in INPUTS else _UTC
        part.pop("title", None)  # repeats the name of the field
    result = {
        "$schema": _DIALECT,
        "$id": f"{_BASE}/{name}/{VERSION}.json",
        "title": f"{model.__name__} {VERSION}",
        **generated,
        **_RULES.get(name, {}),
    }
    result["description"] = (model.__doc__ or "").split("\n")[0]
    if name in INPUTS:
        _complete_input(model, result)
        result["$comment"] = " ".join(filter(None, (_COMMENTS.get(name), _INPUT_COMMENT)))
    return result


def described(name: str, texts: Texts) -> Schema:
    """Return the JSON Schema of a record in which every field says what it means.

    Args:
        name: of the record, as it is published.
        texts: model -> field -> what it means.

    Raises:
        ValueError: a field has no words; names it.
    """
    result = schema(name)
    _describe((INPUTS.get(name) or OUTPUTS[name]).__name__, result, texts)
    for model, definition in result.get("$defs", {}).items():
        _describe(model, definition, texts)
    return result


def files() -> dict[str, str]:
    """Return every published file: its path below the folder, and its text.

    Raises:
        ValueError: docs/develop/fields.toml lacks a field; names it.
        OSError: it cannot be read.
    """
    texts = tomllib.loads(FIELDS.read_text("utf-8"))
    found = {
        f"{name}/{VERSION}.json": json.dumps(described(name, texts), indent=2, ensure_ascii=False) + "\n"
        for name in (*INPUTS, *OUTPUTS)
    }
    for name, model in INPUTS.items():
        found |= {f"{name}/{VERSION}.avsc": avro(model), f"{name}/{VERSION}.proto": protobuf(model)}
    return {**found, "asyncapi.yaml": to_yaml(asyncapi())}


def stale(folder: Path) -> list[str]:
    """Return the files below `folder` that are missing or not as the models are now; others may stand there."""
    return [name for name, text in files().items() if _read(folder / name) != text]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m schemas.__main__", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("action", choices=["write", "check"])
    parser.add_argument("folder", type=Path, metavar="DIR")
    given = parser.parse_args(arguments)
    found = stale(given.folder)
    if given.action == "write":
        for name in found:
            path = given.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files()[name], encoding="utf-8", newline="\n")
        return 0
    for name in found:
        sys.stderr.write(
            f"{given.folder / name} is not what the models say: python -m schemas.__main__ write\n"
        )
    return 1 if found else 0


def _describe(model: str, described: Schema, texts: Texts) -> None:
    meanings = texts.get(model, {})
    for field, value in described.get("properties", {}).items():
        if not meanings.get(field):
            raise ValueError(f"docs/develop/fields.toml: [{model}] does not say what {field} means")
        value["description"] = meanings[field]


def _complete_input(model: type[BaseModel], result: Schema) -> None:
    """Say what the models leave to code: the accepted versions, and defaults that are made anew each time."""
    for name, field in model.model_fields.items():
        if field.default_factory is not None:
            result["properties"][name]["default"] = field.get_default(call_default_factory=True)
    result["properties"]["schema_version"]["enum"] = list(SCHEMA_VERSIONS)


def _parts(value: object, *, fields: bool = False) -> Iterator[Schema]:
    """Yield every schema within a schema; `fields` says that the keys of `value` are names of fields."""
    if isinstance(value, dict):
        if not fields:
            yield value
        for key, child in value.items():
            yield from _parts(child, fields=not fields and key in {"properties", "$defs"})
    elif isinstance(value, list):
        for child in value:
            yield from _parts(child)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
