"""From the bytes of a Kafka record to a model, or to the error that its dead letter names."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NoReturn, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from groundwire.errors import ErrorCode, RecordError, SchemaMissing, did_you_mean
from groundwire.messages.base import SCHEMA_VERSIONS, InputRecord
from groundwire.messages.records import (
    Chunk,
    Claim,
    CorpusLine,
    Entity,
    IndexEntry,
    LlmResponse,
    RelationClaim,
    ReviewDecision,
    Source,
    Step,
)
from groundwire.text.visible import is_blank

MAX_VALUE_BYTES: Final = 900_000
_FRAME: Final = 5
"""Bytes before the payload of a value that is framed for a schema registry."""
MAX_DEPTH: Final = 64
"""Deepest nesting that is read: no record needs a tenth of it, and no later reader runs out of stack."""
MAX_ELEMENTS: Final = 100_000
"""Members of all lists and objects together; an empty one counts as one."""
MAX_PATH: Final = 200
"""Characters of a field's path in an error: the sender chooses names, and errors become headers."""

Record = TypeVar("Record", bound=InputRecord)
_MODELS: Final = (
    *(Claim, LlmResponse, ReviewDecision),
    *(Chunk, Source, Entity, IndexEntry, RelationClaim, Step),
)
_NAMES: Final = frozenset(name for model in _MODELS for name in model.model_fields)


def parse_json(value: bytes | None) -> Any:  # noqa: ANN401 - any JSON value is the result
    """Parse UTF-8 JSON strictly.

    Raises:
        RecordError: `too_large` above 900,000 bytes or 100,000 elements; `invalid_json` for no value, bytes that are
            not UTF-8, a byte order mark, duplicate keys, NaN and infinities, lone surrogates, nesting deeper than 64.
    """
    if value is None:
        _refuse("the record has no value")
    if len(value) > MAX_VALUE_BYTES:
        raise RecordError(
            ErrorCode.TOO_LARGE, f"the value has {len(value)} bytes, more than {MAX_VALUE_BYTES}"
        )
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError as exc:
        _refuse(f"not UTF-8 at byte {exc.start}")
    if text.startswith("\ufeff"):
        _refuse("begins with a byte order mark (BOM): save it as UTF-8 without one")
    _refuse_unbounded(value)
    try:
        parsed = _DECODER.decode(text)
    except json.JSONDecodeError as exc:
        _refuse(f"not JSON: {exc.msg.removesuffix(' at')} at character {exc.pos}")
    except ValueError as exc:  # an integer of thousands of digits, refused by Python itself
        _refuse(f"not JSON: {str(exc).split(';')[0]}")
    for path, text in _strings(parsed) if b"\\u" in value else ():  # UTF-8 itself holds no lone surrogate
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            found = f"{path or 'a key'}: holds half of a surrogate pair"
            _refuse(found.encode("utf-8", "replace").decode())
    return parsed


SchemaReader = Callable[[int, bytes], bytes]
"""Returns as JSON what a payload holds by the schema of an id. Raises: RecordError, RegistryUnavailable."""

_read_by_schema: SchemaReader | None = None


def use_registry(read: SchemaReader | None) -> None:
    """Read Avro and Protobuf by `read` in this process; None: refuse them."""
    global _read_by_schema  # noqa: PLW0603 - every reader of records takes the same, once at start
    _read_by_schema = read


def schema_of(value: bytes | None) -> int | None:
    """Return the id by which a registry has the schema of a value; None of plain JSON, and of JSON in a frame."""
    if value is None or value[:1] != b"\0" or len(value) <= _FRAME:
        return None
    if value[_FRAME : _FRAME + 100].lstrip(b" \t\r\n").startswith(b"{"):
        return None
    return int.from_bytes(value[1:_FRAME])


def unframed(value: bytes | None) -> bytes | None:
    """Return the JSON of a value that may be framed for a schema registry: a zero byte, four of the id, the payload.

    Raises:
        RecordError: it is Avro or Protobuf and cannot be read.
        RegistryUnavailable: the registry does not answer.
    """
    if value is None or value[:1] != b"\0" or len(value) > MAX_VALUE_BYTES:
        return value
    schema = schema_of(value)
    if schema is None:
        return value[_FRAME:]
    if _read_by_schema is None:
        raise SchemaMissing(
            f"the value is Avro or Protobuf, framed for a schema registry (schema id {schema}), and no registry is"
            " configured: pip install 'groundwire[registry]' and set GROUNDWIRE_SCHEMA_REGISTRY_URL"
        )
    return _read_by_schema(schema, value[_FRAME:])


def read_value(value: bytes | None) -> tuple[Any, bool]:
    """Parse the JSON of a record's value, plain or framed, or the `data` of a CloudEvent in structured mode.

    Bytes alone say what they are: a decision is derived again without the record's headers.

    Returns:
        The JSON value, and whether a string in it may hold a NUL character.

    Raises:
        RecordError: as `parse_json` and `unframed`; a CloudEvent of another version or without data.
        RegistryUnavailable: as `unframed`.
    """
    plain = unframed(value)
    parsed = parse_json(plain)
    if isinstance(parsed, dict) and "specversion" in parsed:  # no record has a field of this name
        if parsed["specversion"] != "1.0":
            message = "specversion: the version of a CloudEvent must be '1.0'"
            raise RecordError(ErrorCode.INVALID_RECORD, message, "specversion")
        if "data_base64" in parsed and "data" not in parsed:
            plain = _from_base64(parsed["data_base64"])
            parsed = {"data": parse_json(plain)}
        if "data" not in parsed:
            raise RecordError(ErrorCode.INVALID_RECORD, "data: the CloudEvent holds no record", "data")
        parsed = parsed["data"]
    return parsed, b"\\u0000" in (plain or b"")


def _from_base64(text: object) -> bytes:
    try:
        return base64.b64decode(text if isinstance(text, str) else "-", validate=True)
    except ValueError:
        message = "data_base64: is not base64"
        raise RecordError(ErrorCode.INVALID_RECORD, message, "data_base64") from None


def decode_claim(value: bytes | None) -> Claim:
    """Decode a Claim. Raises: RecordError as `parse_json`, `unsupported_version` or `invalid_record`."""
    return _decode(Claim, value)


def decode_either(value: bytes | None) -> Claim | LlmResponse:
    """Decode a record that says itself what it is: with a `response_id`, or else an `answer`, it is a response.

    Raises:
        RecordError: as `decode_claim`.
    """
    parsed, may_hold_nul = read_value(value)
    is_response = isinstance(parsed, dict) and (
        "response_id" in parsed or ("answer" in parsed and "claim_id" not in parsed)
    )
    model: type[Claim | LlmResponse] = LlmResponse if is_response else Claim
    return validate(model, parsed, nul=may_hold_nul)


def decode_response(value: bytes | None) -> LlmResponse:
    """Decode an LlmResponse. Raises: RecordError, as `decode_claim`."""
    return _decode(LlmResponse, value)


def decode_review_decision(value: bytes | None) -> ReviewDecision:
    """Decode a ReviewDecision. Raises: RecordError, as `decode_claim`."""
    return _decode(ReviewDecision, value)


def decode_corpus_line(value: bytes | None) -> CorpusLine:
    """Decode a line of a corpus file. Raises: RecordError naming the field at fault."""
    return validate(CorpusLine, parse_json(value))


def validate(model: type[Record], parsed: object, *, nul: bool = True) -> Record:
    """Turn parsed JSON into a record; `nul`: whether a string in it may hold a NUL character.

    Raises:
        RecordError: `unsupported_version` for a version that is not listed, else `invalid_record`.
    """
    if not isinstance(parsed, dict):
        raise RecordError(ErrorCode.INVALID_RECORD, "the value must be a JSON object")
    version = parsed.get("schema_version", SCHEMA_VERSIONS[0])
    if isinstance(version, str) and version not in SCHEMA_VERSIONS:
        message = f"schema_version: {version[:40]!r} is not one of {', '.join(SCHEMA_VERSIONS)}"
        raise RecordError(ErrorCode.UNSUPPORTED_VERSION, message, "schema_version")
    for path, text in _strings(parsed) if nul else ():
        if "\0" in text:
            raise RecordError(
                ErrorCode.INVALID_RECORD, f"{path or 'a key'}: holds a NUL character", path or None
            )
    try:
        record = model.model_validate(parsed)
    except ValidationError as exc:
        refused = _record_error(model, exc)
    else:
        # not a rule of the model, by which claims are read that the gate took before it was one
        if not isinstance(record, Claim) or not is_blank(record.content):
            return record
        message = "content: holds nothing that a reader sees"
        refused = RecordError(ErrorCode.INVALID_RECORD, message, "content")
    # Not inside `except`: its context would keep pydantic's error, which the collector cannot traverse, and with it the
    # frames of whoever keeps this error: each batch with a refused record would stay in memory.
    raise refused


def _decode(model: type[Record], value: bytes | None) -> Record:
    parsed, may_hold_nul = read_value(value)
    return validate(model, parsed, nul=may_hold_nul)


def known_field(path: str | None) -> str | None:
    """Return a field's path for a log: a name that is the sender's own becomes `*`."""
    if path is None:
        return None
    return ".".join(part if part in _NAMES or part.isdecimal() else "*" for part in path.split("."))


def _record_error(model: type[BaseModel], exc: ValidationError) -> RecordError:
    """Name the first error: a misspelt field rather than the one that is missing because of it."""
    errors = exc.errors(include_url=False, include_input=False, include_context=False)
    first = min(errors, key=lambda error: error["type"] != "extra_forbidden")
    others = [error for error in errors if error is not first]
    if first["type"] == "extra_forbidden":
        *path, name = first["loc"]
        meant = did_you_mean(str(name), _fields_at(model, path))
        message = "there is no such field" + meant
        others = [
            error
            for error in others
            if error["type"] != "missing"
            or [*error["loc"][:-1]] != path
            or not meant.endswith(f" {error['loc'][-1]}?")
        ]
    else:
        message = first["msg"].removeprefix("Value error, ")
        message = re.sub(r" or instance of \w+", "", message).replace("valid dictionary", "JSON object")
    field = ".".join(str(part) for part in first["loc"])[:MAX_PATH]
    if not field:  # a rule over several fields names the one at fault itself
        field, _, message = message.partition(": ")
    top = [str(error["loc"][0]) for error in others if error["type"] == "missing" and len(error["loc"]) == 1]
    further = [f"also missing: {', '.join(top)}"] if top else []
    if len(others) > len(top):
        further.append(f"and {len(others) - len(top)} more")
    message = f"{field}: {message[:1].lower()}{message[1:]}" + (f" ({'; '.join(further)})" if further else "")
    return RecordError(ErrorCode.INVALID_RECORD, message, field)


def _fields_at(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """Return the names of the fields at a path; none where there is no model."""
    for part in path:
        field = model.model_fields.get(str(part))
        if field is not None:
            inner = next(_models(field.annotation), None)
            if inner is None:
                return []
            model = inner
    return list(model.model_fields)


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def _refuse_unbounded(value: bytes) -> None:
    """Count elements and depth before any object is built: a megabyte of `{}` takes a thousand times its bytes.

    Raises: RecordError, as `parse_json`.
    """
    opened = value.count(b"[") + value.count(b"{")
    if opened <= MAX_DEPTH and opened + value.count(b",") <= MAX_ELEMENTS:
        return
    bare = _STRING.sub(b"", value)
    elements = bare.count(b"[") + bare.count(b"{") + bare.count(b",")
    if elements > MAX_ELEMENTS:
        raise RecordError(ErrorCode.TOO_LARGE, f"the value has {elements} elements, more than {MAX_ELEMENTS}")
    if max(accumulate(_STEPS.get(byte, 0) for byte in bare), default=0) > MAX_DEPTH:
        _refuse(f"nested deeper than {MAX_DEPTH} levels")


def _refuse(message: str) -> NoReturn:
    raise RecordError(ErrorCode.INVALID_JSON, message)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        again = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        _refuse(f"the key {again[:40]!a} stands twice in one object")
    return result


def _finite(digits: str) -> float:
    number = float(digits)
    if number in {float("inf"), float("-inf")}:
        _refuse("a number is too large")
    return number


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=lambda name: _refuse(f"{name} is not JSON"), parse_float=_finite
)


def _children(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((str(index), item) for index, item in enumerate(value))


def _strings(parsed: object) -> Iterator[tuple[str, str]]:
    """Yield every string with the dotted path of its field, at most `MAX_PATH` characters.

    Keys come with the path of their object, "" for those of the record itself.
    """
    stack: list[tuple[str, object]] = [("", parsed)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, str):
            yield path, value
            continue
        for name, child in _children(value):
            if isinstance(value, dict):
                yield path, name
            # no more of a path than is shown: a long key would be copied for each of its children
            stack.append(((f"{path}.{name}" if path else name)[:MAX_PATH], child))
