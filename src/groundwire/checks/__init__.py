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
    """One entry of `report.warnings`.

    Args:
        type: A member of `WarningType`.
        message: One sentence for a person.
        details: What a program may want to know: files, positions in characters, scores; None where the
            message says it all.
    """

    type: str
    message: str
    details: dict[str, Any] | None = None

    def as_dict(self) -> dict[str, Any]:
        """The warning as the report shows it; `details` is left out where there is none (S2-35)."""
        shown: dict[str, Any] = {"type": str(self.type), "message": self.message}
        if self.details is not None:
            shown["details"] = dict(self.details)
        return shown
