"""Codes and times as people read them."""

from __future__ import annotations

from typing import Final

from groundwire.messages.base import parse_time

NONE: Final = "\u2013"
"""Stands where there is nothing to say."""

_LABELS: Final = {
    "ai_synthesis": "AI synthesis",
    "adr": "ADR",
    "url": "URL",
    "not_found": "not found",
    "incorrect": "Incorrect",
    "outdated": "Outdated",
    "not_verifiable": "Cannot be verified",
    "duplicate": "Duplicate",
    "sensitive": "Sensitive or private",
    "off_topic": "Not worth keeping",
    "other": "Another reason",
    "under_1h": "under an hour",
    "over_1h": "over an hour",
    "over_1d": "over a day",
    "over_7d": "over a week",
    "approve": "Approve",
    "reject": "Reject",
}


def label(code: object) -> str:
    """Return a code as words; what a record says stays as it is, but for underscores."""
    if code is None:
        return NONE
    text = str(code)
    return _LABELS.get(text, text.replace("_", " "))


def number(value: int | None) -> str:
    """Return a number with its thousands apart."""
    return NONE if value is None else f"{value:,}".replace(",", "\u202f")


def age(seconds: float) -> str:
    """Return how long ago something was."""
    if seconds < 60:
        return "just now"
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''} ago"
    return "just now"


def duration(seconds: float | None) -> str:
    """Return how long something took."""
    if seconds is None:
        return NONE
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def share(part: int, whole: int) -> str:
    """Return a part as per cent."""
    return f"{part / whole:.0%}" if whole else NONE


def moment(time: str | None) -> str:
    """Return a time of the contract's form as a person reads it, in UTC."""
    return parse_time(time).strftime("%Y-%m-%d %H:%M UTC") if time else NONE
