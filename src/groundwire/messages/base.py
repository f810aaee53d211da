"""What every record has in common: strictness, times, sizes and the canonical form."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Protocol, Self, TypeVar, dataclass_transform

import rfc8785
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import to_json

SCHEMA_VERSIONS: Final = ("1.0",)
"""Accepted values of `schema_version`, exactly (X-10)."""

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_FIRST_MS: Final = -62_135_596_800_000
_LAST_MS: Final = 253_402_300_799_999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIMES: Final = 1 << 10  # a decision writes and reads the same few times again and again
_LARGEST: Final = 2**53 - 1
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_SCALARS: Final = frozenset((str, bool, type(None)))
_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def immutable(of: type[_T]) -> type[_T]:
    """Make a dataclass that only the type checker freezes: `frozen=True` triples the time to construct one."""
    return dataclass(slots=True, unsafe_hash=True)(of)


class InputRecord(BaseModel):
    """A record that comes in: unknown fields are refused and nothing is coerced."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class KafkaRecord(Protocol):
    """A record as Kafka clients return it, for example aiokafka and kafka-python."""

    @property
    def key(self) -> bytes | None:
        """The key's bytes."""

    @property
    def value(self) -> bytes | None:
        """The value's bytes; None of a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes]]:
        """Names and values."""


class OutputRecord(BaseModel):
    """A record that is published: it may gain fields, and readers ignore those they do not know."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True, hide_input_in_errors=True)
    ce_type: ClassVar[str]
    """Value of the header of this name."""

    @classmethod
    def from_record(cls, record: KafkaRecord) -> Self:
        """Read a record of an output topic.

        Raises:
            ValueError: it is of another type or version, or cannot be read; the message holds none of its text.
        """
        said = dict(record.headers).get("ce_type", b"").decode(errors="replace")
        if said != cls.ce_type:
            raise ValueError(f"ce_type is not {cls.ce_type}")
        try:
            return cls.model_validate_json(record.value or b"")
        except ValidationError as exc:
            where = ".".join(map(str, exc.errors(include_input=False)[0]["loc"])) or "the value"
        raise ValueError(f"{cls.__name__}: {where} cannot be read")

    @classmethod
    def try_parse(cls, value: bytes | None) -> Self | None:
        """Return what a value holds; None where it cannot be read."""
        try:
            return cls.model_validate_json(value or b"")
        except ValidationError:
            return None

    @classmethod
    def made(cls, **fields: Any) -> Self:  # noqa: ANN401 - whatever the model's fields hold
        """Construct a record from the gate's own values without validation, which takes most of the time.

        Args:
            fields: by name, not alias; each of exactly the type that validation would give. One that is left out
                has its default; without a default the record cannot be serialised.

        Raises:
            TypeError: a field that the model does not have.
        """
        template, names = _template(cls)
        values = {**template, **fields}  # in the order of the model: it is that of the JSON
        if len(values) != len(template):
            raise TypeError(f"{cls.__name__} has no field {next(iter(values.keys() - template))!r}")
        record = cls.__new__(cls)
        _set(record, "__dict__", values)
        _set(record, "__pydantic_fields_set__", names)
        _set(record, "__pydantic_extra__", None)
        _set(record, "__pydantic_private__", None)
        return record


_set: Final = object.__setattr__  # a record is frozen


@lru_cache(32)
def _template(model: type[BaseModel]) -> tuple[dict[str, Any], set[str]]:
    """Return the defaults of a model's fields, `...` (which no JSON can hold) where there is none; and their names."""
    fields = {
        name: ... if field.is_required() else field.get_default(call_default_factory=False)
        for name, field in model.model_fields.items()
    }
    return fields, set(fields)


def parse_time(value: object) -> datetime:
    """Read an RFC 3339 time with any offset as UTC, cut to microseconds.

    Raises:
        ValueError: for a naive time, a date, a number, or a time that does not exist.
    """
    if isinstance(value, datetime):
        if value.tzinfo is UTC:
            return value
        if value.tzinfo is None:
            raise ValueError("a time needs an offset, for example 2026-01-31T12:00:00Z")
        return value.astimezone(UTC)
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise ValueError("must be an RFC 3339 time with an offset, for example 2026-01-31T12:00:00Z")
    try:
        # fromisoformat reads any number of fraction digits from 3.11 on, and cuts after the sixth
        return datetime.fromisoformat(value.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("is not a time that exists") from None


@lru_cache(_TIMES)
def format_time(value: datetime) -> str:
    """Write a time as RFC 3339 in UTC with `Z`; a fraction only where there is one."""
    moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    fraction = moment.microsecond
    spec = "microseconds" if fraction % 1000 else "milliseconds" if fraction else "seconds"
    return moment.isoformat(timespec=spec)[: -len("+00:00")] + "Z"


@lru_cache(_TIMES)
def from_milliseconds(timestamp: int) -> datetime:
    """Turn a Kafka timestamp (milliseconds since 1970) into a UTC time.

    Producers may choose it: what lies outside the years 1 to 9999 becomes their first or last millisecond.
    """
    return _EPOCH + timedelta(milliseconds=min(max(timestamp, _FIRST_MS), _LAST_MS))


def from_microseconds(timestamp: int) -> datetime:
    """Turn microseconds since 1970 into a UTC time. Raises: OverflowError outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=timestamp)


def to_microseconds(moment: datetime) -> int:
    """Turn a time into microseconds since 1970."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def to_milliseconds(moment: datetime) -> int:
    """Turn a time into milliseconds since 1970, rounded down."""
    return to_microseconds(moment) // 1000


Time = Annotated[
    datetime,
    BeforeValidator(parse_time),
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


def _not_null(value: object) -> object:
    if value is None:
        raise ValueError("must not be null; leave the field out instead")
    return value


def _without_null(schema: dict[str, Any]) -> None:
    schema.update(schema.pop("anyOf")[0])
    del schema["default"]


Omissible = Annotated[_T | None, BeforeValidator(_not_null), Field(json_schema_extra=_without_null)]
"""A field that may be left out, then None, and may not be null."""

TenantId = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
ShortId = Annotated[str, Field(min_length=1, max_length=200)]


def _limited(value: object) -> object:
    limit = 16_000
    size = len(_COMPACT.encode(value).encode()) if value and isinstance(value, dict) else 0
    if size > limit:
        raise ValueError(f"is {size} bytes as JSON, more than {limit}")
    return value


Metadata = Annotated[dict[str, Any], BeforeValidator(_limited)]


def canonical_json(value: Any) -> bytes:  # noqa: ANN401 - any JSON value is the domain
    """Serialise a JSON value by RFC 8785, the form under every hash.

    Raises:
        ValueError: for integers beyond ±(2^53 - 1), NaN and infinities, which that form cannot carry.
    """
    # A tenth of the time: where there are no fractions, and keys are ASCII, sorted JSON is that form already.
    try:
        return to_json(_in_order(value))
    except _NotPlainError:
        return rfc8785.dumps(value)


class _NotPlainError(Exception):
    """A value whose sorted JSON may not be its canonical form."""


def _in_order(value: Any) -> Any:  # noqa: ANN401 - as of `canonical_json`
    """Return a value with the keys of its objects sorted. Raises: _NotPlainError where that is not enough."""
    kind = type(value)
    if kind is dict:
        if not _has_ascii_keys(value):
            raise _NotPlainError
        return {
            key: item if type(item) in _SCALARS else _in_order(item) for key, item in sorted(value.items())
        }
    if kind is list:
        return [item if type(item) in _SCALARS else _in_order(item) for item in value]
    if kind in _SCALARS or (kind is int and -_LARGEST <= value <= _LARGEST):
        return value
    raise _NotPlainError


def _has_ascii_keys(value: dict[Any, Any]) -> bool:
    try:
        return "".join(value).isascii()
    except TypeError:  # of a key that is no text
        return False


def comma_separated(text: str) -> list[str]:
    """Split a setting at commas; what is empty falls away."""
    return [part.strip() for part in text.split(",") if part.strip()]


def sha256_hex(data: bytes) -> str:
    """Return the lower-case hexadecimal SHA-256 of `data`."""
    return hashlib.sha256(data).hexdigest()
