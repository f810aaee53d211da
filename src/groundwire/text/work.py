"""A budget of work: what a check may read and compare, counted and never timed, so that it ends the same anywhere.

What reads a text or compares parts of texts tells what that costs: `spend`. Whoever has to bound the whole runs it
within `bounded`; elsewhere nothing is limited. A unit is about what takes a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final


class OverBudget(Exception):
    """There is more to read and to compare than the budget reaches for."""


@dataclass(slots=True)
class _Meter:
    limit: int
    spent: int = 0


_meter: Final[ContextVar[_Meter | None]] = ContextVar("groundwire_work", default=None)


@contextmanager
def bounded(units: int) -> Iterator[None]:
    """Raise OverBudget from within as soon as more than so many units are spent, and again at whatever follows."""
    token = _meter.set(_Meter(units))
    try:
        yield
    finally:
        _meter.reset(token)


def spend(units: int) -> None:
    """Take units from the budget, if there is one. Raises: OverBudget."""
    if (meter := _meter.get()) is not None:
        meter.spent += units
        if meter.spent > meter.limit:
            raise OverBudget
