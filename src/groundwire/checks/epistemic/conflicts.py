"""Values and negations of an answer that the evidence does not hold, and of which it says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from groundwire.checks.epistemic.evidence import Evidence
from groundwire.checks.values import SOURCES_DIFFER, UnsupportedValue, judge
from groundwire.checks.values_negation import NOT_IN_SOURCES
from groundwire.checks.values_statements import Bound, Statement

_SAME: Final = 0.6  # of a statement's words, that another one must say to be about the same thing


def conflicts(
    answer: str, said: Iterable[Statement], evidence: Evidence
) -> dict[int, list[UnsupportedValue]]:
    """Return id of statement -> its values and negations that the passages do not support.

    Beyond the value check: a value that no passage holds differs from the sources where one of them gives another
    value of the same kind in a statement that says most of the same words.
    """
    found: dict[int, list[UnsupportedValue]] = {}
    before: Statement | None = None
    for statement in said:
        _, faults = judge(answer, statement, before, evidence.values, evidence.sayings)
        found[id(statement)] = [_sharpened(fault, statement, evidence) for fault in faults]
        before = statement
    return found


def _sharpened(fault: UnsupportedValue, statement: Statement, evidence: Evidence) -> UnsupportedValue:
    if fault.why != NOT_IN_SOURCES or fault.kind == "negation":
        return fault
    value = next((value for value in statement.values if value.start == fault.start), None)
    if value and _is_given_otherwise(value, statement.values, evidence):
        return replace(fault, why=SOURCES_DIFFER)
    return fault


def _is_given_otherwise(value: Bound, beside: Sequence[Bound], evidence: Evidence) -> bool:
    """Tell whether a passage gives another value in its place, one that the answer does not give as well."""
    words = value.statement.words
    own = frozenset(key for other in beside for key in other.value.keys)
    return any(
        len(words & rival.statement.words) >= _SAME * len(words) and own.isdisjoint(rival.value.covers)
        for rival in (evidence.values.comparable(value, value.own or words) if words else ())
        if not rival.value.implied
    )
