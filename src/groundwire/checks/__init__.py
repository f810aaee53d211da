"""Pure checks of claims and answers, and the warnings of a response's report."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class WarningType(StrEnum):
    """A closed list, so that a consumer can switch on it (S2-35)."""

    PHANTOM_FILE = "PHANTOM_FILE"
    SNIPPET_MISMATCH = "SNIPPET_MISMATCH"
    UNVERIFIED_FIELDS = "UNVERIFIED_FIELDS"
    STALE_INDEX = "STALE_INDEX"
    PIPELINE_ERROR = "PIPELINE_ERROR"
    SOURCE_TAG_MISSING = "SOURCE_TAG_MISSING"
    QUOTE_POLARITY = "QUOTE_POLARITY"
    UNSUPPORTED_VALUE = "UNSUPPORTED_VALUE"
    VERSION_UNSPECIFIED = "VERSION_UNSPECIFIED"
    VERSION_CONFLICT = "VERSION_CONFLICT"


@dataclass(frozen=True, slots=True)
class ReportWarning:
    """One entry of `report.warnings`."""

    type: str
    message: str  # one sentence for a person
    details: dict[str, Any] | None = None  # for a program: files, positions in characters, scores

    def as_dict(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"type": str(self.type), "message": self.message}
        if self.details is not None:
            shown["details"] = dict(self.details)
        return shown
