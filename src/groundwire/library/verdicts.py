"""Measures the gate's verdicts on labelled claims and responses: what leaks, and what is held that is harmless.

A row holds a claim, the claims that were sent before it, and what should become of it. Each is decided as `groundwire
check` decides a file: rows of one user in their order, so that a later one can repeat or contradict an earlier one; a
row without a user has one of its own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

from groundwire.errors import RecordError
from groundwire.library.check import Checker, LineError, record_as_written, wrapped
from groundwire.library.evaluate import (
    BadRow,
    Estimate,
    bad_field,
    read_rows,
    refuse_misspelt,
    wilson,
)
from groundwire.messages.decisions import Decision, ReasonCode
from groundwire.messages.decode import parse_json


class LabelledOutcome(StrEnum):
    """What became of a record, as far as labels tell it apart."""

    APPROVED = "approved"
    CONFLICT = "conflict"
    DUPLICATE = "duplicate"
    REVIEW = "review"
    BLOCKED = "blocked"


_APPROVED: Final = frozenset({LabelledOutcome.APPROVED})
_HELD: Final = frozenset(LabelledOutcome) - _APPROVED
EXPECTED: Final[Mapping[str, frozenset[LabelledOutcome]]] = {
    **dict.fromkeys(("approve", "approved", "firm", "clean"), _APPROVED),
    **dict.fromkeys(("hold", "speculative", "leak"), _HELD),
    "review": frozenset({LabelledOutcome.REVIEW, LabelledOutcome.CONFLICT}),
    "blocked": frozenset({LabelledOutcome.BLOCKED, LabelledOutcome.DUPLICATE}),
    "conflict": frozenset({LabelledOutcome.CONFLICT}),
    "duplicate": frozenset({LabelledOutcome.DUPLICATE}),
    "no_conflict": frozenset({LabelledOutcome.APPROVED, LabelledOutcome.DUPLICATE}),
}
"""What a label may be, and what the gate may then make of the record."""

_OUTCOMES: Final = {
    ReasonCode.CONFLICTING_NEAR_DUPLICATE: LabelledOutcome.CONFLICT,
    ReasonCode.DUPLICATE: LabelledOutcome.DUPLICATE,
    ReasonCode.PENDING_DUPLICATE: LabelledOutcome.DUPLICATE,
}
TEXTS: Final = ("content", "text", "second", "record")
"""Fields that hold what is decided; a row has one of them."""
_CLAIM: Final = ("source", "memory_type")
FIELDS: Final = (*TEXTS, *_CLAIM, "headers", "user_id", "earlier", "first", "label", "expect", "class")
"""Fields of a row."""


class LabelledRecord(NamedTuple):
    """A labelled row: its line from 1, the class that it is counted under, the label as written, and its text.

    `records`: values of the records that are sent, the labelled one last. `source_assumed`: it is a claim that names
    no source, and is sent as the user's own.
    """

    line: int
    kind: str
    label: str
    text: str
    records: tuple[bytes, ...]
    source_assumed: bool = False

    @property
    def wanted(self) -> frozenset[LabelledOutcome]:
        """What the gate may make of it."""
        return EXPECTED[self.label]


def read_labelled_records(data: bytes) -> Iterator[LabelledRecord | BadRow]:
    """Yield the rows of a file in order; see `read_rows` for the arguments.

    A `record` beside `headers` is decided byte for byte as it is written, as signatures are of bytes.
    """
    lines = data.split(b"\n")

    def read(number: int, given: dict[str, Any]) -> LabelledRecord:
        row = _row(number, given)
        if "headers" not in given:
            return row
        if "record" not in given:
            raise bad_field("headers", "stand beside a record")
        signed = wrapped(record_as_written(lines[number - 1], given), given["headers"])
        return row._replace(records=(*row.records[:-1], signed), source_assumed=False)

    return read_rows(data, read)


def _row(line: int, given: dict[str, Any]) -> LabelledRecord:
    refuse_misspelt(given, FIELDS)
    texts = [name for name in TEXTS if name in given]
    if len(texts) != 1:
        raise bad_field("content", f"give one of {', '.join(TEXTS)}")
    label = given.get("label", given.get("expect"))
    if not isinstance(label, str) or label not in EXPECTED:
        raise bad_field("label", f"must be one of {', '.join(EXPECTED)}")
    kind = given.get("class", "")
    if not isinstance(kind, str):
        raise bad_field("class", "must be a text")
    own = given[texts[0]] if texts[0] == "record" else {"content": given[texts[0]]}
    if "headers" in given and isinstance(own, str):
        own = parse_json(own.encode())
    if not isinstance(own, dict):
        raise bad_field("record", "must be an object: the fields of a claim or response")
    shared: dict[str, Any] = {name: given[name] for name in _CLAIM if name in given}
    shared |= {"user_id": given.get("user_id", f"row {line}")}
    before = given.get("earlier", [given["first"]] if "first" in given else [])
    texts_before = before if isinstance(before, list) else [before]
    earlier = [_claim(f"{line}.{n}", shared, {"content": text}) for n, text in enumerate(texts_before, 1)]
    text = str(own.get("content", own.get("answer")))
    assumed = not ({"answer", "response_id"} & own.keys() or "source" in own or "source" in shared)
    records = (*earlier, _claim(str(line), shared, own))
    return LabelledRecord(line, kind, label, text, records, assumed)


def _claim(name: str, shared: Mapping[str, Any], own: Mapping[str, Any]) -> bytes:
    """Return the value of a record; what it does not say of itself, the row says, else it is the user's own fact."""
    if "answer" in own or "response_id" in own:
        return json.dumps({"response_id": name, "user_id": shared["user_id"]} | dict(own)).encode()
    return json.dumps({"claim_id": name, "source": "user"} | dict(shared) | dict(own)).encode()


class JudgedRecord(NamedTuple):
    """A row and what became of it; `reason` is the decision's code."""

    row: LabelledRecord
    outcome: LabelledOutcome
    reason: str

    @property
    def harmless(self) -> bool:
        """Whether it should be approved."""
        return LabelledOutcome.APPROVED in self.row.wanted

    @property
    def right(self) -> bool:
        """Whether the gate did what the label says."""
        return self.outcome in self.row.wanted

    @property
    def leaked(self) -> bool:
        """Whether it was approved, and should not be."""
        return self.outcome is LabelledOutcome.APPROVED and not self.harmless

    @property
    def over_held(self) -> bool:
        """Whether it was held, and should not be."""
        return self.harmless and not self.right


async def judge_records(
    rows: Sequence[LabelledRecord], checker: Checker
) -> AsyncIterator[JudgedRecord | BadRow]:
    """Yield what becomes of each row, in order; a row whose record the gate refuses is a bad one."""
    lines = [(row, value) for row in rows for value in row.records]
    place = -1
    refused: RecordError | None = None
    async for result in checker.check(value for _, value in lines):
        place += 1
        row, value = lines[place]
        if isinstance(result, LineError):
            refused = refused or result.error
        if value is not row.records[-1]:
            continue
        if refused is None and isinstance(result, Decision):
            outcome = _OUTCOMES.get(ReasonCode(result.reason_code)) or LabelledOutcome(str(result.verdict))
            yield JudgedRecord(row, outcome, str(result.reason_code))
        elif refused is not None:
            yield BadRow(row.line, refused)
        refused = None


class Share(NamedTuple):
    """So many of so many."""

    found: int
    total: int

    @property
    def estimate(self) -> Estimate:
        """The share with its 95 % Wilson interval."""
        return wilson(self.found, self.total)


def shares(judged: Sequence[JudgedRecord]) -> dict[str, Share]:
    """Return the shares of a class: leak of what is to be held, over-hold of what is to be approved.

    Where it has conflicts or rows that are none: those caught, those found where there is none, and duplicates found
    where there is none, which nobody would see.
    """
    to_hold = [one for one in judged if not one.harmless]
    harmless = [one for one in judged if one.harmless]
    conflicts = [one for one in judged if one.row.label == "conflict"]
    others = [one for one in judged if LabelledOutcome.CONFLICT not in one.row.wanted]
    new = [one for one in judged if LabelledOutcome.DUPLICATE not in one.row.wanted]
    return {
        "leak": Share(sum(one.leaked for one in to_hold), len(to_hold)),
        "over_hold": Share(sum(one.over_held for one in harmless), len(harmless)),
        "conflicts_caught": Share(sum(one.right for one in conflicts), len(conflicts)),
        "false_conflicts": Share(sum(one.outcome is LabelledOutcome.CONFLICT for one in others), len(others)),
        "wrong_duplicates": Share(sum(one.outcome is LabelledOutcome.DUPLICATE for one in new), len(new)),
    }


def by_class(judged: Sequence[JudgedRecord]) -> dict[str, list[JudgedRecord]]:
    """Return the rows of each class, in the order in which classes first appear."""
    classes: dict[str, list[JudgedRecord]] = {}
    for one in judged:
        classes.setdefault(one.row.kind, []).append(one)
    return classes
