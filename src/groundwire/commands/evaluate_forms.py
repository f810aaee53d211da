"""Files that `groundwire evaluate` cannot read as a whole: told once, rather than line by line."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from groundwire.errors import RecordError, UsageError
from groundwire.messages.decode import parse_json

_COLUMNS: Final = ("claim", "answer", "evidence", "label")
_SHOWN: Final = 100  # characters of a first line


def refuse_other_forms(data: bytes, form: str) -> None:
    """See whether a file can be of the given form at all.

    Args:
        data: the file.
        form: `jsonl`, `csv` or `tsv`.

    Raises:
        UsageError: it is a single JSON document, or its first line names no column that is read.
    """
    if form == "jsonl":
        if b"\n" in data.strip() and _parsed(data) is not None:
            raise UsageError("the file is a single JSON document: give one JSON object a line")
        return
    columns = _columns(data, "," if form == "csv" else "\t")
    if columns and not set(_COLUMNS).intersection(columns):
        told = ", ".join(columns)[:_SHOWN]
        raise UsageError(
            f"line 1 names none of the columns {', '.join(_COLUMNS)}, but: {told} "
            "(cells stand between commas, or between tabs with --input tsv)"
        )


def holds_responses(data: bytes) -> bool:
    """Whether the first line is a response for `groundwire audit` rather than a labelled row."""
    first = _parsed(data.strip().partition(b"\n")[0])
    return isinstance(first, dict) and "label" not in first and bool({"context", "chunks"} & first.keys())


def _parsed(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return parse_json(data)
    except RecordError:
        return None


def _columns(data: bytes, delimiter: str) -> list[str]:
    """Return the cells of the first line; none where it is no text, which its row tells."""
    try:
        text = data.decode("utf-8-sig")
        return next(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return []
