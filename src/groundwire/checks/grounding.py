"""What entity grounding and relation preservation share: comparable names, parts of records, bounded payloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final
from unicodedata import normalize

MAX_ITEMS: Final = 100
"""Most entries of a list in an event; how many more there were stands beside it (S3-29)."""
MAX_ID: Final = 200
"""Most characters of an id or a version in an event."""

# Sorting combining marks takes quadratic time, so what is no name any more is compared without composing it.
_COMPOSED: Final = 256


def comparable(name: object) -> str:
    """Return a name as it is compared: NFKC, without case, one space for each run of white space.

    Args:
        name: A name, a role or a version; None is the empty name. Text of more than 256 characters that is not
            ASCII keeps its Unicode form: two forms of it differ, which never grounds anything.
    """
    if name is None:
        return ""
    text = name if isinstance(name, str) else str(name)
    if text.isascii():
        return " ".join(text.lower().split())
    composing = len(text) <= _COMPOSED
    folded = (normalize("NFKC", text) if composing else text).casefold()
    return " ".join((normalize("NFKC", folded) if composing else folded).split())


def part(record: object, name: str) -> Any:  # noqa: ANN401 - a plain mapping may hold anything
    """Return a field of a record or of a plain mapping of the same shape; None where it has none."""
    if type(record) is dict:  # what most are; the question whether it is a mapping costs more than the rest
        return record.get(name)
    return record.get(name) if isinstance(record, Mapping) else getattr(record, name, None)


def bounded(items: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """Cut a list for an event (S3-29).

    Returns:
        At most `MAX_ITEMS` entries, their strings cut to `MAX_ID` characters; and how many were left out, as
        `{"truncated": n}`, empty where none was.
    """
    shown = [
        {key: value[:MAX_ID] if isinstance(value, str) else value for key, value in item.items()}
        for item in islice(items, MAX_ITEMS)
    ]
    left_out = len(items) - len(shown)
    return shown, {"truncated": left_out} if left_out else {}
