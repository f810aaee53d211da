"""Reads labelled rows: what was claimed, what it may rest on, and whether it does.

A row has `claim` (one statement) or `answer` (a text that holds several), `evidence` and `label`, and may have `group`:
the source that it comes from. Rows of one group are drawn and held out together, as they are not independent; without
it, rows with the same evidence are one group.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from groundwire.errors import ErrorCode, RecordError, did_you_mean
from groundwire.messages.decode import parse_json

LABELS: Final[Mapping[str, bool]] = {
    "supported": True,
    "true": True,
    "unsupported": False,
    "not_supported": False,
    "partially_supported": False,
    "partial_support": False,
    "contradicted": False,
    "over_extrapolation": False,
    "phantom_citation": False,
    "false": False,
}
"""What a label may be, and whether the evidence then supports all of the row."""

_FIELDS: Final = ("claim", "answer", "evidence", "label", "group")


class Labelled(NamedTuple):
    """A labelled row.

    Attributes:
        line: where it stands in its file, counted from 1.
        text: the claim or answer.
        declared: it is a single claim: all of it counts.
        evidence: id -> text.
        supported: the label: the evidence supports all of it.
        group: the source that it comes from.
    """

    line: int
    text: str
    declared: bool
    evidence: Mapping[str, str]
    supported: bool
    group: str


class BadRow(NamedTuple):
    """A row that cannot be read: where it stands, counted from 1, and why."""

    line: int
    error: RecordError


def read_labelled(data: bytes, form: str = "jsonl") -> Iterator[Labelled | BadRow]:
    """Yield the rows of a file in order; blank lines give none.

    Args:
        data: the file.
        form: `jsonl` (one JSON object a line), `csv` or `tsv` (the first line names the columns).
    """
    lines: Iterator[tuple[int, dict[str, Any] | bytes | RecordError]]
    lines = _objects(data) if form == "jsonl" else _cells(data, {"csv": ",", "tsv": "\t"}[form])
    for line, given in lines:
        try:
            if isinstance(given, RecordError):
                raise given
            yield _row(line, _parsed(given) if isinstance(given, bytes) else given)
        except RecordError as error:
            yield BadRow(line, error)


def _objects(data: bytes) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if line.strip():
            yield number, line.rstrip(b"\r")


def _parsed(line: bytes) -> dict[str, Any]:
    parsed = parse_json(line)
    if not isinstance(parsed, dict):
        raise RecordError(ErrorCode.INVALID_RECORD, "a row must be a JSON object")
    return parsed


def _cells(data: bytes, delimiter: str) -> Iterator[tuple[int, dict[str, Any] | bytes | RecordError]]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield 1, data  # the JSON reader says at which byte
        return
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restkey="a cell too many")
    try:
        for row in reader:
            yield reader.line_num, {name: cell for name, cell in row.items() if cell}
    except csv.Error as exc:  # a cell of more than 128 KiB, mostly for want of a closing quote
        message = f"{exc}; nothing behind it is read"
        yield reader.line_num + 1, RecordError(ErrorCode.INVALID_RECORD, message)


def _row(line: int, given: dict[str, Any]) -> Labelled:
    for name in given:  # fields of one's own may stand there, misspelt ones may not
        if name not in _FIELDS and (meant := did_you_mean(name, _FIELDS)):
            raise _bad(name[:40], "there is no such field" + meant)
    if ("claim" in given) == ("answer" in given):
        raise _bad("claim", "give either claim or answer")
    declared = "claim" in given
    name = "claim" if declared else "answer"
    if not isinstance(given[name], str) or not given[name].strip():
        raise _bad(name, "must be a text that is not empty")
    evidence = _evidence(given.get("evidence"))
    group = given.get("group", "\n".join(sorted(evidence.values())))
    if not isinstance(group, str):
        raise _bad("group", "must be a text")
    return Labelled(line, given[name], declared, evidence, _label(given.get("label")), group)


def _evidence(given: object) -> dict[str, str]:
    texts: dict[str, Any]
    match given:
        case str():
            texts = {"1": given}
        case list():
            texts = {str(number): text for number, text in enumerate(given, start=1)}
        case dict():
            texts = given
        case _:
            raise _bad("evidence", "must be a text, a list of texts, or an object of ids and texts")
    for name, text in texts.items():
        if not isinstance(text, str):
            raise _bad(f"evidence.{name[:40]}", "must be a text")
    return texts


def _label(given: object) -> bool:
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.strip().lower() in LABELS:
        return LABELS[given.strip().lower()]
    raise _bad("label", f"must be true, false, or one of {', '.join(LABELS)}")


def _bad(field: str, message: str) -> RecordError:
    return RecordError(ErrorCode.INVALID_RECORD, f"{field}: {message}", field)
