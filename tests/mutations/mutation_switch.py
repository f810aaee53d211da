"""Turns one mutant on; modules with switches call it wherever they can be broken.

All mutants are imported at once, each behind a question: nothing is imported again for the next one, and a run of the
tests as they are tells which tests reach each.
"""

from __future__ import annotations

import operator
from typing import Any

active: str | None = None
reached: set[str] = set()

_LAX = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}


def on(name: str) -> bool:
    reached.add(name)
    return active == name


def test(name: str, value: Any) -> Any:
    if on(f"{name} [never]"):
        return False
    return True if on(f"{name} [always]") else value


def part(name: str, value: Any, neutral: bool) -> Any:  # noqa: FBT001 - True within `and`, False within `or`
    return neutral if on(name) else value


def compare(name: str, left: Any, sign: str, right: Any) -> Any:
    return _LAX[_SHIFTED[sign] if on(name) else sign](left, right)


def limit(name: str, value: Any) -> Any:
    return value * 1_000 + 1_000 if isinstance(value, int | float) and on(name) else value
