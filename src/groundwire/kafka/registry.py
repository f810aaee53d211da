"""Reads Avro and Protobuf as JSON, by the schemas of a registry that speaks the REST API of Confluent's.

What it is given is hostile: schemas are limited so that a value of N bytes holds at most N values, nested 64 deep, and
of a value no more is read than JSON may hold.
"""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from functools import cache, partial
from importlib import import_module
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from cachetools import LRUCache

from groundwire.config import REGISTRY, RegistrySettings
from groundwire.errors import (
    ErrorCode,
    RecordError,
    RegistryUnavailable,
    SchemaMissing,
    UsageError,
    naming_extra,
)
from groundwire.messages.base import format_time
from groundwire.messages.decode import MAX_DEPTH, MAX_ELEMENTS

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema

_SECONDS: Final = 5.0
"""How long the registry may take to answer, and after a failure is not asked again by those who cannot wait."""
_UNKNOWN_SECONDS: Final = 60.0
"""How long an id that the registry does not know is not asked about again."""
_KEPT: Final = 10_000
_LAST_ID: Final = (1 << 31) - 1
"""Of a registry; what it answers where more is asked for is its own affair."""
_UNKNOWN: Final = {40301, 40401, 40402, 40403}
"""Codes of a registry that answers, but not with this: any other 404 is of a wrong URL."""
_MOST_NODES: Final = 10_000
"""Of a schema and what it refers to."""
_MOST_REFERENCES: Final = 100
_DEEPEST: Final = 16
_DECIMAL_BYTES: Final = 64
"""A larger number takes minutes to convert, and no field holds it."""
_NULLABLE: Final = "answer"
"""The one field that is required and may be null. Avro cannot leave a field out: any other null is a field left out."""
_COMMON: Final = re.compile(r"((?:google/protobuf|google/type|confluent)(?:/[a-z_]+){1,2})\.proto")
"""Files that come with Protobuf, Google's types and Confluent's client: no registry has them."""

Reader = Callable[[bytes], Any]


class Registry:
    """The schemas of a registry. Raises: UsageError: groundwire[registry] or a file is missing."""

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        try:
            import fastavro  # noqa: F401, PLC0415 - an extra
            from confluent_kafka import schema_registry  # noqa: PLC0415 - an extra
            from google.protobuf import descriptor_pool  # noqa: F401, PLC0415 - an extra
        except ModuleNotFoundError as exc:
            raise UsageError(str(naming_extra(exc, f"{REGISTRY}URL"))) from exc
        self._url = settings.url
        self._client = schema_registry.SchemaRegistryClient(settings.options(_SECONDS))
        self._errors = schema_registry.SchemaRegistryError
        self._clock = clock
        self._lock = threading.Lock()
        self._readers: LRUCache[int, Reader] = LRUCache(_KEPT)
        self._refused: LRUCache[int, tuple[str, float]] = LRUCache(_KEPT)  # why, and until when
        self._away_until = -math.inf

    def knows(self, schema: int) -> bool:
        """Say whether a value of this schema can be read, or refused, without asking."""
        with self._lock:
            return schema in self._readers or self._clock() < self._refused.get(schema, ("", -math.inf))[1]

    def look_up(self, schema: int) -> None:
        """Ask for a schema that is not known yet; blocks. Raises: RegistryUnavailable."""
        if self.knows(schema):
            return
        reader, refusal = None, ""
        try:
            reader = self._reader(schema)
        except RecordError as exc:
            refusal = exc.message
        with self._lock:
            if reader is None:
                self._refused[schema] = refusal, self._clock() + _UNKNOWN_SECONDS
            else:
                self._readers[schema] = reader

    def read(self, schema: int, payload: bytes) -> bytes:
        """Return as JSON what a payload holds; asks for its schema if need be. Raises: as `read_known`."""
        if not self.knows(schema):
            if self._clock() < self._away_until:
                raise RegistryUnavailable(f"the schema registry at {self._url} did not answer")
            self.look_up(schema)
        return self.read_known(schema, payload)

    def read_known(self, schema: int, payload: bytes) -> bytes:
        """Return as JSON what a payload holds by a schema that was looked up.

        Raises:
            RecordError: the registry does not know the schema (SchemaMissing), or the payload is not of it.
            RegistryUnavailable: the schema is not known here, and the registry does not answer.
        """
        with self._lock:
            reader, refused = self._readers.get(schema), self._refused.get(schema)
        if reader is None:
            if refused is None:
                raise RegistryUnavailable(f"the schema {schema} is to be looked up")
            raise SchemaMissing(refused[0])
        try:
            plain = reader(payload)
            return json.dumps(plain, default=_as_json, allow_nan=False, ensure_ascii=False).encode()
        except (MemoryError, RecordError):
            raise
        except Exception as exc:  # noqa: BLE001 - what decoders raise for hostile bytes is no closed list
            raise _refused(f"the value is not of its schema {schema}: {type(exc).__name__}") from None

    def _reader(self, schema: int) -> Reader:
        if schema > _LAST_ID:
            raise SchemaMissing(f"no schema registry has a schema {schema}")
        found = self._ask(lambda: self._client.get_schema(schema, fmt="serialized"), f"the schema {schema}")
        kind = found.schema_type or "AVRO"
        try:
            if kind == "AVRO":
                return _avro(found, self._references(found))
            if kind == "PROTOBUF":
                return _protobuf(found, self._references(found))
        except (MemoryError, RecordError, RegistryUnavailable):
            raise
        except Exception as exc:  # noqa: BLE001 - as in `read`
            raise _refused(
                f"the schema {schema} cannot be used: {type(exc).__name__}: {exc!s:.200}"
            ) from None
        raise _refused(f"the value is not JSON, as its schema {schema} ({kind}) says")

    def _references(self, schema: Schema) -> dict[str, Schema]:
        """Return what a schema refers to by name, what that refers to first."""
        found: dict[str, Schema] = {}
        asked = 0

        def visit(referring: Schema) -> None:
            nonlocal asked
            for one in referring.references or ():
                name, subject, version = one.name or "", one.subject or "", one.version or 0
                if name in found:
                    continue
                asked += 1
                if asked > _MOST_REFERENCES:
                    raise _refused("the schema refers to too many others, or to itself")
                get = partial(self._client.get_version, subject, version, fmt="serialized")
                referred = self._ask(get, f"{subject} version {version}").schema
                visit(referred)
                found[name] = referred

        visit(schema)
        return found

    def _ask(self, request: Callable[[], Any], what: str) -> Any:  # noqa: ANN401 - the client's own types
        """Raises: SchemaMissing, RegistryUnavailable."""
        try:
            return request()
        except self._errors as exc:
            if exc.error_code in _UNKNOWN:
                known = "is kept from this client by" if exc.http_status_code == 403 else "is unknown to"
                raise SchemaMissing(f"{what} {known} the schema registry at {self._url}") from None
            why = f"HTTP {exc.http_status_code}"
        except Exception as exc:  # noqa: BLE001 - the client passes on whatever its HTTP library raises
            why = type(exc).__name__
        self._away_until = self._clock() + _SECONDS
        raise RegistryUnavailable(
            f"the schema registry at {self._url} does not answer ({why}); is it up, and {REGISTRY}... right?"
        )


@cache
def registry() -> Registry | None:
    """Open the registry that the environment names, once; None where it names none. Raises: UsageError."""
    settings = RegistrySettings.load()
    return Registry(settings) if settings.url else None


def read_by_schema(schema: int, payload: bytes) -> bytes:
    """Read a payload by the registry of the environment, which is opened at the first. Raises: as `Registry.read`."""
    opened = registry()
    assert opened is not None  # noqa: S101 - only set where a registry is named
    return opened.read(schema, payload)


def _refused(message: str) -> RecordError:
    return RecordError(ErrorCode.INVALID_RECORD, message)


def _as_json(value: object) -> object:
    """Return what JSON holds in place of a logical type: times as RFC 3339, bytes in base 64."""
    match value:
        case datetime():
            return value.isoformat() if value.tzinfo is None else format_time(value)
        case date() | time_of_day():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case UUID() | timedelta():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            raise TypeError(type(value).__name__)


class _Budget(BytesIO):
    """Bytes that are read piece by piece; each piece, and each field that is looked at, counts."""

    left = MAX_ELEMENTS

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise RecordError(ErrorCode.TOO_LARGE, f"the value has more than {MAX_ELEMENTS} elements")

    def read(self, size: int | None = -1) -> bytes:
        self.spend(1)
        return super().read(size)


# Avro ------------------------------------------------------------------------------------------------------


def _avro(schema: Schema, references: Mapping[str, Schema]) -> Reader:
    from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415 - an extra
    from fastavro.read import LOGICAL_READERS  # noqa: PLC0415 - an extra

    for kind in "bytes-decimal", "fixed-decimal":
        LOGICAL_READERS[kind] = _avro_decimal
    named: dict[str, Any] = {}
    for one in references.values():
        parse_schema(json.loads(one.schema_str or ""), named)
    parsed = parse_schema(json.loads(schema.schema_str or ""), named)
    _limit(parsed, named, [0], ())

    def read(payload: bytes) -> object:
        stream = _Budget(payload)
        value: Any = schemaless_reader(stream, parsed, None)
        if stream.tell() != len(payload):
            raise ValueError
        kept = {_NULLABLE: value[_NULLABLE]} if isinstance(value, dict) and _NULLABLE in value else {}
        return kept | _without_nulls(value)

    return read


def _limit(schema: Any, named: Mapping[str, Any], count: list[int], within: tuple[str, ...]) -> None:  # noqa: ANN401
    """Refuse a schema by which few bytes may hold many values, or deep ones."""
    count[0] += 1
    if count[0] > _MOST_NODES or len(within) > MAX_DEPTH:
        raise _refused("the Avro schema is too large")
    if isinstance(schema, list):  # the number of a branch takes a byte, so null may be one
        for branch in schema:
            if branch not in ("null", {"type": "null"}):
                _limit(branch, named, count, (*within, ""))
        return
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind, name = schema["type"], schema.get("name", "")
    if name and name in within:
        raise _refused(f"the Avro schema is recursive: {name}")
    within = (*within, name)
    if kind == "record" and schema["fields"]:
        for field in schema["fields"]:
            _limit(field["type"], named, count, within)
    elif kind in ("array", "map"):
        _limit(schema["items" if kind == "array" else "values"], named, count, within)
    elif isinstance(kind, dict | list) or kind in named:
        _limit(kind, named, count, within)
    elif kind in ("null", "record") or (kind == "fixed" and not schema["size"]):
        raise _refused(f"the Avro schema has values that take no byte: {name or kind}")


def _avro_decimal(data: Any, schema: dict[Any, Any] | None = None, _: object = None) -> Decimal:  # noqa: ANN401 - fastavro's
    return _decimal(data, (schema or {}).get("scale", 0))


def _decimal(data: bytes, scale: int) -> Decimal:
    if len(data) > _DECIMAL_BYTES or abs(scale) > 8 * _DECIMAL_BYTES:
        raise ValueError
    number = int.from_bytes(data, signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))  # a context would round


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 - any Avro value
    if isinstance(value, dict):
        return {name: _without_nulls(child) for name, child in value.items() if child is not None}
    return list(map(_without_nulls, value)) if isinstance(value, list) else value


# Protobuf --------------------------------------------------------------------------------------------------


def _protobuf(schema: Schema, references: Mapping[str, Schema]) -> Reader:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto  # noqa: PLC0415 - an extra
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415 - an extra
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415 - an extra

    pool, added = DescriptorPool(), set(references)

    def add(file: FileDescriptorProto) -> None:
        for name in file.dependency:
            if name not in added and (common := _COMMON.fullmatch(name)):
                added.add(name)
                module = common[1].replace("/", ".") + "_pb2"
                if name.startswith("confluent/"):
                    module = f"confluent_kafka.schema_registry.{module}"
                add(FileDescriptorProto.FromString(import_module(module).DESCRIPTOR.serialized_pb))
        pool.Add(file)

    for name, one in (*references.items(), ("", schema)):
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(one.schema_str or "", validate=True))
        except ValueError:
            raise _refused(
                "the schema registry does not give Protobuf schemas serialized (?format=serialized)"
            ) from None
        file.name = name or "value.proto"
        add(file)

    def read(payload: bytes) -> object:
        indexes, rest = _message_indexes(payload)
        kind: Any = file.message_type[indexes[0]]
        path = [file.package, kind.name] if file.package else [kind.name]
        for index in indexes[1:]:
            kind = kind.nested_type[index]
            path.append(kind.name)
        return _plain(GetMessageClass(pool.FindMessageTypeByName(".".join(path))).FromString(rest), _Budget())

    return read


def _message_indexes(payload: bytes) -> tuple[list[int], bytes]:
    """Return the place of the message's type in its file, from the outermost, and the message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if value & 1 or value > 1 << 16:  # negative, or more than any file has
            raise ValueError
        return value >> 1

    count = number()
    if count > _DEEPEST:
        raise ValueError
    indexes = [number() for _ in range(count)] or [0]
    return indexes, payload[at:]


def _plain(message: Any, budget: _Budget) -> Any:  # noqa: ANN401 - Protobuf makes its classes at run time
    """Return a message as the contract would have it: by its fields' own names, without those that are not set."""
    kind = message.DESCRIPTOR.full_name
    budget.spend(1 + len(message.DESCRIPTOR.fields))
    if kind.startswith("google.protobuf."):
        if list(message.DESCRIPTOR.fields_by_name) == ["value"]:  # a number or text that may be absent
            return message.value
        from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - an extra

        return MessageToDict(message)  # a time as RFC 3339, a Struct as its object
    if kind == "dev.groundwire.v1.Texts":  # of schemas/: a map cannot hold a list itself
        return list(message.items)
    if kind == "confluent.type.Decimal":
        return _decimal(message.value, message.scale)
    if kind == "google.type.Date":
        return date(message.year, message.month, message.day)
    fields: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value, of = getattr(message, field.name), field.message_type
        if of is not None and of.GetOptions().map_entry:
            inner = of.fields_by_name["value"]
            if value:
                fields[field.name] = {str(key): _single(inner, item, budget) for key, item in value.items()}
        elif field.is_repeated:
            if value:  # a list without items and none are the same to Protobuf
                fields[field.name] = [_single(field, item, budget) for item in value]
        elif message.HasField(field.name) if field.has_presence else value or field.cpp_type in _NUMBERS:
            fields[field.name] = _single(field, value, budget)
    return fields


_NUMBERS: Final = range(1, 8)
"""Protobuf's numbers and truth values: one without presence is 0 where it is not set, and 0 fails closed."""


def _single(field: Any, value: Any, budget: _Budget) -> Any:  # noqa: ANN401 - as `_plain`
    if field.message_type is not None:
        return _plain(value, budget)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named else value
    return value
