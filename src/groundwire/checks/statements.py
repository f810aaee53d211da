"""Relations as they are compared: names without case, timestamps as instants, qualifiers of any shape."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from groundwire.checks.grounding import comparable, part
from groundwire.messages.base import parse_time
from groundwire.messages.responses import RelationClaim

_MAX_DEPTH: Final = 64
_NONE: Final[Mapping[str, Hashable]] = {}


class Statement(NamedTuple):
    """A relation as it is compared; `version` is empty and `moment` None where it has none."""

    subject: str
    relation: str
    object: str
    version: str
    moment: Hashable
    qualifiers: Mapping[str, Hashable]
    written_version: str


def read_statement(record: RelationClaim | Mapping[str, Any]) -> Statement:
    """Read a relation of an answer or of the ground truth; a part that is missing is the empty name."""
    version = part(record, "version")
    qualifiers = part(record, "qualifiers")
    return Statement(
        comparable(part(record, "subject")),
        comparable(part(record, "relation")),
        comparable(part(record, "object")),
        comparable(version),
        _moment(part(record, "timestamp")),
        _qualifiers(qualifiers) if qualifiers and isinstance(qualifiers, Mapping) else _NONE,
        "" if version is None else str(version),
    )


def _moment(value: object) -> Hashable:
    """Return an instant; what is no time with an offset is compared as it is written."""
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError:
        return comparable(value)


def _qualifiers(given: Mapping[Any, Any]) -> dict[str, Hashable]:
    values = ((comparable(name), _value(value, 0)) for name, value in given.items())
    return {name: value for name, value in values if value is not None and value != ""}


def _value(value: object, depth: int) -> Hashable:
    """Return a value that equals another where the two say the same; what is too odd to tell equals nothing."""
    if isinstance(value, str):
        return comparable(value)
    if isinstance(value, bool):
        return ("true or false", value)  # not the number 1 or 0
    if isinstance(value, Mapping | list | tuple):
        return _members(value, depth + 1) if depth < _MAX_DEPTH else object()
    try:
        hash(value)
    except TypeError:
        return object()
    return value


def _members(value: Mapping[Any, Any] | Sequence[Any], depth: int) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((comparable(name), _value(item, depth)) for name, item in value.items())
    return tuple(_value(item, depth) for item in value)
