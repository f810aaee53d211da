"""A line that holds a record with its headers, so that signatures can be tried without a stream.

`{"headers": {"gw-attestation": "docs:9f..."}, "record": {"claim_id": ...}}`: the record's value is what stands there,
byte for byte, as a signature is of bytes; or a text that holds it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.decode import parse_json
from groundwire.messages.headers import Headers

_FIELDS: Final = frozenset({"record", "headers"})
_SPACE: Final = re.compile(r"[ \t\n\r]*")


def unwrapped(line: bytes) -> tuple[bytes, Headers]:
    """Return the value of a line's record, and its headers; a line that is a record has none.

    Raises:
        RecordError: its headers are no object of texts.
    """
    if b'"headers"' not in line or b'"record"' not in line:
        return line, ()
    try:
        given = parse_json(line)
    except RecordError:
        return line, ()  # deciding it tells the error
    if not isinstance(given, dict) or given.keys() != _FIELDS:
        return line, ()
    return record_as_written(line, given), _headers(given["headers"])


def record_as_written(line: bytes, given: Mapping[str, Any]) -> bytes:
    """Return the bytes of what stands under `record` in a line of JSON, which was parsed as `given`."""
    record = given["record"]
    return (record if isinstance(record, str) else _as_written(line.decode(), "record")).encode()


def wrapped(value: bytes, headers: object) -> bytes:
    """Return the line that `unwrapped` takes apart into a record's value and its headers."""
    return b'{"headers": %b, "record": %b}' % (json.dumps(headers).encode(), value)


def _headers(given: Any) -> Headers:  # noqa: ANN401 - any JSON value
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise RecordError(ErrorCode.INVALID_RECORD, "headers: must be an object of texts", "headers")
    return tuple((name, text.encode()) for name, text in given.items())


def _as_written(text: str, name: str) -> str:
    """Return the part of a JSON object's text that is the value of a field; the text was read before."""
    read = json.JSONDecoder().raw_decode
    place = text.index("{") + 1
    while True:
        key, place = read(text, _past(text, place))
        begin = _past(text, _past(text, place) + 1)  # behind the colon
        _, place = read(text, begin)
        if key == name:
            return text[begin:place]
        place = _past(text, place) + 1  # behind the comma


def _past(text: str, place: int) -> int:
    match = _SPACE.match(text, place)
    return match.end() if match else place
