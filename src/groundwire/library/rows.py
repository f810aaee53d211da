"""Files of labelled rows: JSON lines, or CSV and TSV whose first line names the columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from groundwire.errors import ErrorCode, RecordError, did_you_mean
from groundwire.messages.decode import parse_json

Row = TypeVar("Row")


class BadRow(NamedTuple):
    """A row that cannot be read: its line, counted from 1, and why."""

    line: int
    error: RecordError


def read_rows(data: bytes, form: str, read: Callable[[int, dict[str, Any]], Row]) -> Iterator[Row | BadRow]:
    """Yield the rows of a file in order; blank lines give none.

    Args:
        data: the file.
        form: `jsonl` (one JSON object a line), `csv` or `tsv` (the first line names the columns).
        read: makes a row of a line's number and fields; raises RecordError.
    """
    lines: Iterable[tuple[int, dict[str, Any] | bytes | RecordError]]
    if form == "jsonl":
        lines = ((n, line.rstrip(b"\r")) for n, line in enumerate(data.split(b"\n"), start=1) if line.strip())
    else:
        lines = _cells(data, "," if form == "csv" else "\t")
    for number, given in lines:
        try:
            if isinstance(given, RecordError):
                raise given
            yield read(number, _parsed(given) if isinstance(given, bytes) else given)
        except RecordError as error:
            yield BadRow(number, error)


def refuse_misspelt(given: Collection[str], known: Collection[str]) -> None:
    """See that no field is a misspelt one; unknown ones are the user's own. Raises: RecordError."""
    for name in given:
        if name not in known and (meant := did_you_mean(name, known)):
            raise bad_field(name[:40], "there is no such field" + meant)


def bad_field(field: str, message: str) -> RecordError:
    """Return the error of a row whose field is wrong."""
    return RecordError(ErrorCode.INVALID_RECORD, f"{field}: {message}", field)


def _parsed(line: bytes) -> dict[str, Any]:
    parsed = parse_json(line)
    if not isinstance(parsed, dict):
        raise RecordError(ErrorCode.INVALID_RECORD, "a row must be a JSON object")
    return parsed


def _cells(data: bytes, delimiter: str) -> Iterator[tuple[int, dict[str, Any] | bytes | RecordError]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield 1, data  # the error of the JSON reader names the byte
        return
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="a cell too many")
    try:
        for row in reader:
            yield reader.line_num, {name: cell for name, cell in row.items() if cell}
    except csv.Error as exc:  # a cell of more than 128 KiB, mostly for want of a closing quote
        message = f"{exc}; nothing behind it is read"
        yield reader.line_num + 1, RecordError(ErrorCode.INVALID_RECORD, message)
