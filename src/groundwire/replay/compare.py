"""Where two JSON values differ, as JSON paths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def differences(recorded: Any, derived: Any, path: str = "$") -> Iterator[str]:  # noqa: ANN401 - any JSON values
    """Yield the path of each value that is not the same in both, or is in one of them only.

    As strict as bytes: 1, 1.0 and true are three values. The order of an object's keys says nothing.
    """
    if isinstance(recorded, dict) and isinstance(derived, dict):
        for name in [*derived, *(name for name in recorded if name not in derived)]:
            if name in recorded and name in derived:
                yield from differences(recorded[name], derived[name], _member(path, name))
            else:
                yield _member(path, name)
    elif isinstance(recorded, list) and isinstance(derived, list):
        for index in range(max(len(recorded), len(derived))):
            if index < min(len(recorded), len(derived)):
                yield from differences(recorded[index], derived[index], f"{path}[{index}]")
            else:
                yield f"{path}[{index}]"
    elif type(recorded) is not type(derived) or recorded != derived:
        yield path


def path_of(location: tuple[int | str, ...]) -> str:
    """Return the JSON path of a place in a record, as a validation error names it."""
    path = "$"
    for part in location:
        path = f"{path}[{part}]" if isinstance(part, int) else _member(path, part)
    return path


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if _NAME.fullmatch(name) else f"{path}[{json.dumps(name, ensure_ascii=False)}]"
