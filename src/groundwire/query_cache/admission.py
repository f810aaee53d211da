"""What may be cached and for how long: the same for every cache (S2-28..S2-34, C-47)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

LIFETIMES: Final[Mapping[str, int]] = MappingProxyType({"instant": 120, "auto": 300, "thinking": 900})
"""Seconds for which an answer is served, by the mode that gave it (S2-31)."""

LEAST_CONFIDENCE: Final = 0.3
"""Least confidence of an answer that is kept (S2-28)."""


class Refusal(StrEnum):
    """Why a response is not kept. The list is closed."""

    LOW_CONFIDENCE = "low_confidence"
    """Below 0.3, or nothing that could be a confidence (S2-28)."""
    UNVALIDATED = "unvalidated"
    """It says nothing of its validation (S2-34)."""
    UNVERIFIED_FIELDS = "unverified_fields"
    """S2-29."""
    PHANTOM_FILE = "phantom_file"
    """C-47."""
    SNIPPET_MISMATCH = "snippet_mismatch"
    """C-47."""
    UNREADABLE_WARNINGS = "unreadable_warnings"
    """What it was warned of cannot be told."""
    UNSTORABLE = "unstorable"
    """It cannot be copied, or, in Redis, not be written as JSON."""


_BY_WARNING: Final = {
    "UNVERIFIED_FIELDS": Refusal.UNVERIFIED_FIELDS,
    "PHANTOM_FILE": Refusal.PHANTOM_FILE,
    "SNIPPET_MISMATCH": Refusal.SNIPPET_MISMATCH,
}


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cached answer (S2-30).

    Attributes:
        response: the caller's own copy: changing it changes nothing in the cache.
        timestamp: when it was stored, as the cache's clock said; by default seconds since 1970.
        validated_at: when it passed the cache's rules: the same moment, as only validated responses get in.
    """

    response: dict[str, Any]
    timestamp: float
    validated_at: float


def lifetime(mode: str) -> int:
    """Return the seconds for which an answer of a mode is served.

    Raises:
        ValueError: there is no such mode.
    """
    if mode not in LIFETIMES:
        raise ValueError(f"mode: {mode!r} is none of {', '.join(LIFETIMES)}")
    return LIFETIMES[mode]


def refusal(response: Mapping[str, Any]) -> Refusal | None:
    """Say why a response must not be cached; None where it may.

    What cannot be read is refused: a confidence that is missing, NaN, a bool, text or above 1, a `validation` that
    is no mapping or empty, `warnings` that are no list of mappings with a `type`. Warnings may be left out.
    Confidences are compared as they are: those of decisions are rounded already.
    """
    confidence = response.get("confidence")
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)):
        return Refusal.LOW_CONFIDENCE
    if not LEAST_CONFIDENCE <= confidence <= 1:
        return Refusal.LOW_CONFIDENCE
    validation = response.get("validation")
    if not isinstance(validation, Mapping) or not validation:
        return Refusal.UNVALIDATED
    return _of_warnings(response.get("warnings"))


def _of_warnings(warnings: object) -> Refusal | None:
    if warnings is None:
        return None
    if not isinstance(warnings, (list, tuple)):
        return Refusal.UNREADABLE_WARNINGS
    found = None
    for warning in warnings:
        kind = warning.get("type") if isinstance(warning, Mapping) else None
        if not isinstance(kind, str):
            return Refusal.UNREADABLE_WARNINGS
        found = found or _BY_WARNING.get(kind)
    return found


def response_of(decision: Mapping[str, Any], answer: str | None) -> dict[str, Any]:
    """Return the response that a Decision on a response stands for, as a cache takes it.

    Args:
        decision: a Decision as read from its topic, or printed by `groundwire check`.
        answer: the answer that was decided: Decisions do not repeat it.

    Returns:
        Its validation is None, so that every cache refuses it, where the gate blocked it, where the decision is
        on a claim or has no report, and where its list of warnings was cut.
    """
    report = decision.get("report") or {}
    cut = any("warnings" in name for name in decision.get("truncated") or ())
    sound = decision.get("kind") == "response" and decision.get("verdict") in ("approved", "review")
    return {
        "answer": answer,
        "confidence": report.get("confidence"),
        "warnings": report.get("warnings"),
        "validation": report.get("validation") if sound and not cut else None,
    }
