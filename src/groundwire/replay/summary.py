"""What came of single decisions of a replay, and what it comes to in numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from groundwire.messages.decisions import Decision
from groundwire.version import __version__


class Status(StrEnum):
    """What came of a decision, or of a record without one.

    `equal`, and under another policy the same tier and reason; `differs`; `missing`: its record or policy is not at
    hand; `facts_missing`: nothing tells what became of the record, so nothing is derived, and nothing approved;
    `repeat`: the record's subject was decided on another record; `dead_letter` and `refused`: it ended so.
    """

    EQUAL = "equal"
    DIFFERS = "differs"
    MISSING = "missing"
    FACTS_MISSING = "facts_missing"
    REPEAT = "repeat"
    DEAD_LETTER = "dead_letter"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of one decision.

    Attributes:
        before: as it was recorded; None where there is none.
        after: as it was derived; None where it could not be.
        fields: JSON paths that differ; where nothing could be derived, why.
        value: the derived decision as it is written, with the replay's name.
    """

    status: Status
    before: Decision | None = None
    after: Decision | None = None
    fields: tuple[str, ...] = ()
    value: bytes | None = None


class Summary:
    """What a replay came to, in numbers.

    Attributes:
        records: how many were replayed.
        statuses: of decisions, and of records without one.
        reasons: (verdict and reason as recorded, as derived) -> decisions.
        other_engine: decisions that another engine made.
        changes: decisions that are listed because they differ, or because something is missing.
    """

    def __init__(self) -> None:
        self.records = 0
        self.statuses: Counter[str] = Counter()
        self.reasons: Counter[tuple[str, str]] = Counter()
        self.other_engine = 0
        self.changes = 0

    def add(self, replayed: Replayed) -> None:
        """Count what came of a decision."""
        self.statuses[replayed.status.value] += 1
        before, after = replayed.before, replayed.after
        if before is not None:
            self.reasons[_short(before), _short(after) if after else replayed.status.value] += 1
            self.other_engine += before.engine != __version__
        if replayed.status in {Status.DIFFERS, Status.MISSING}:
            self.changes += 1

    def as_json(self) -> dict[str, Any]:
        """Return the numbers as a JSON value."""
        return {
            "records": self.records,
            "statuses": dict(sorted(self.statuses.items())),
            "reasons": [
                {"from": old, "to": new, "count": n} for (old, new), n in sorted(self.reasons.items())
            ],
            "other_engine": self.other_engine,
            "changes": self.changes,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Summary:
        """Read back what `as_json` gave; nothing is a summary of nothing."""
        summary = cls()
        summary.records = plain.get("records", 0)
        summary.statuses.update(plain.get("statuses", {}))
        summary.reasons.update({(row["from"], row["to"]): row["count"] for row in plain.get("reasons", [])})
        summary.other_engine = plain.get("other_engine", 0)
        summary.changes = plain.get("changes", 0)
        return summary


def _short(decision: Decision) -> str:
    return f"{decision.verdict} {decision.reason_code}"
