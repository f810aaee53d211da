"""The page of every topic, record, reason and error, made from the models and from docs/develop/fields.toml.

python -m schemas.records_page write|check docs/reference/records.md
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from groundwire.errors import ErrorCode
from groundwire.gate.tree import explain
from groundwire.messages.decisions import IngestionTier, ReasonCode
from schemas.__main__ import FIELDS, INPUTS, OUTPUTS, VERSION, schema
from schemas.asyncapi import CHANNELS
from schemas.configuration import write_or_check
from topics.catalog import CATALOG

PageSchema = Mapping[str, Any]
PageTexts = Mapping[str, Mapping[str, str]]

_TOP: Final = """# Records and topics

Generated from the models: `make generate` writes this page. [Wire contract](wire.md) says how to use the records;
`schemas/` has JSON Schemas and an AsyncAPI document. `text?` may be null; a map has text keys. Inputs: unknown fields
are refused, times have an offset; without a default a field may be left out. Outputs: ignore unknown fields; times end
in `Z`.

## Topics

Names follow the deployment's prefix, `groundwire.` by default. No topic is compacted.

| topic | | record | key | kept |
|---|---|---|---|---|
"""
_REASONS: Final = """## Reasons

Every `reason_code` and its `reason`; the list is closed.

| code | sentence |
|---|---|
"""
_ERRORS: Final = """
## Errors

Values of a dead letter's `gw-error` and of `code` in `groundwire check`; the list is closed.

| code | meaning |
|---|---|
"""
ERRORS: Final = {
    ErrorCode.INVALID_JSON: "Not UTF-8 JSON, empty, a repeated key, NaN, a lone surrogate, or nested too deep.",
    ErrorCode.INVALID_RECORD: "Not this record; the message names the field.",
    ErrorCode.UNSUPPORTED_VERSION: "Unknown `schema_version`.",
    ErrorCode.TOO_LARGE: "More than 900,000 bytes or 100,000 elements.",
    ErrorCode.CLAIM_ID_CONFLICT: "The id belongs to another claim or response of the user.",
    ErrorCode.WORKER_CRASH: "Three workers died with this record in flight.",
    ErrorCode.UNPUBLISHABLE: "The broker refuses its decision.",
}
_NULL: Final = {"type": "null"}
_DIRECTIONS: Final = {"receive": "in", "send": "out", "both": "internal"}
_TITLES: Final = {
    "dead-letter": "the original bytes",
    "deferred": "the input record",
    "head": "the signed head of a seal",
}

_WORDS: Final = {
    name: definition
    for model in (*INPUTS, *OUTPUTS)
    for name, definition in schema(model).get("$defs", {}).items()
    if "enum" in definition
}
"""Definitions that are lists of words: they are told in place."""


def page(texts: PageTexts | None = None) -> str:
    """Return the page.

    Args:
        texts: model -> field -> meaning; those of docs/develop/fields.toml where None.

    Raises:
        ValueError: a field has no meaning, or a meaning no field; names it.
    """
    words = tomllib.loads(FIELDS.read_text("utf-8")) if texts is None else texts
    told: set[str] = set()
    parts = [_TOP, *_topics(), "\n"]
    for name, model in {**INPUTS, **OUTPUTS}.items():
        parts += _record(name, model.__name__, words, told)
    if unknown := sorted(set(words) - told):
        raise ValueError(f"docs/develop/fields.toml: no record holds {', '.join(unknown)}")
    reasons = (f"| `{code}` | {_sentence(code)} |\n" for code in ReasonCode)
    errors = (f"| `{code}` | {ERRORS[code]} |\n" for code in ErrorCode)
    return "".join([*parts, _REASONS, *reasons, _ERRORS, *errors])


def _topics() -> Iterator[str]:
    for spec in CATALOG:
        channel = CHANNELS[spec.name]
        record = f"`{spec.schema}`" if spec.schema else _TITLES[channel.message]
        kept = "for ever" if spec.days is None else f"{spec.days} days"
        yield f"| `{spec.name}` | {_DIRECTIONS[channel.action]} | {record} | {channel.key} | {kept} |\n"


def _record(name: str, model: str, words: PageTexts, told: set[str]) -> Iterator[str]:
    whole = schema(name)
    yield f"## {model} {VERSION}\n\n`schemas/{name}/{VERSION}.json`. {whole['description']}\n\n"
    yield from _table(model, whole, words, told, name in INPUTS)
    for part, definition in whole.get("$defs", {}).items():
        if "properties" in definition:
            yield f"### {part}\n\n"
            yield from _table(part, definition, words, told, name in INPUTS)


def _table(
    model: str,
    described: PageSchema,
    words: PageTexts,
    told: set[str],
    is_input: bool,  # noqa: FBT001 - the private half of one table
) -> Iterator[str]:
    told.add(model)
    properties, meanings = described["properties"], words.get(model, {})
    if differing := set(properties) ^ set(meanings):
        raise ValueError(
            f"docs/develop/fields.toml: [{model}] is not the model's: {', '.join(sorted(differing))}"
        )
    yield (
        "| field | type, default | meaning |\n|---|---|---|\n"
        if is_input
        else ("| field | type | meaning |\n|---|---|---|\n")
    )
    for field, value in properties.items():
        default = _default(field, value, described) if is_input else ""
        yield f"| `{field}` | {_type(value)}{default} | {meanings[field]} |\n"
    yield "\n"


def _default(field: str, value: PageSchema, described: PageSchema) -> str:
    if field in described.get("required", ()):
        return "; required"
    default = value.get("default")
    if default is None:
        return ""
    return f"; `{str(default).lower() if isinstance(default, bool) else default}`"


def _type(value: PageSchema) -> str:
    """Say in words what a field holds."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return _type(_WORDS[name]) if name in _WORDS else f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        kinds = " or ".join(_type(one) for one in value["anyOf"] if one != _NULL)
        return kinds + "?" * (_NULL in value["anyOf"])
    if "enum" in value:
        return ", ".join(f"`{one}`" for one in value["enum"])
    if value.get("format") == "date-time":
        return "time"
    return _several(value) or _plain(value)


def _several(value: PageSchema) -> str:
    """Say what a list or an object holds; nothing for what is neither."""
    if value.get("type") == "array":
        most = f", at most {value['maxItems']}" if "maxItems" in value else ""
        return f"list: {_type(value.get('items', {}))}{most}"
    if value.get("type") == "object":
        inner = value.get("additionalProperties")
        return f"map: {_type(inner)}" if isinstance(inner, dict) else "object"
    return ""


def _plain(value: PageSchema) -> str:
    """Say in words what a text or a number is, with its limits."""
    kind = str(value.get("type", "anything"))
    if "pattern" in value:
        return f"`{value['pattern'].strip('^$')}`"
    if "maxLength" in value:
        return f"text, {value.get('minLength', 0):,} to {value['maxLength']:,}"
    words = {"string": "text", "integer": "integer", "boolean": "boolean", "null": "null"}
    if "minimum" in value:
        return f"{words.get(kind, kind)}, {value['minimum']:,} to {value['maximum']:,}"
    return words.get(kind, kind)


def _sentence(code: ReasonCode) -> str:
    return explain(IngestionTier.FLAG_REVIEW, code, "…").reason


def main(arguments: Sequence[str] | None = None) -> int:
    return write_or_check("python -m schemas.records_page", __doc__ or "", page, arguments)


if __name__ == "__main__":
    sys.exit(main())
