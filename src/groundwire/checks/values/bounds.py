"""Values that an answer gives only about: "about 5 %", "almost 80", "more than 60 metres".

They say what the passages give in their place: a value that rounds to them, or on their side of the bound and near it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from groundwire.checks.values.units import DATE, VERSION
from groundwire.text.stems import words_of

if TYPE_CHECKING:
    from groundwire.checks.values.statements import ValueStatement
    from groundwire.checks.values.units import TextValue, ValueToken

_BELOW: Final = frozenset(
    ("at most", "up to", "no more than", "not more than", "no longer than", "not exceed", "no later than", "<=", "≤",
     "maximum of", "within", "at maximum", "no greater than")
)  # fmt: skip
_UNDER: Final = frozenset(("less than", "fewer than", "<", "under", "below"))
_ABOVE: Final = frozenset(
    ("at least", "no less than", "no fewer than", "not less than", ">=", "≥", "minimum of", "at minimum")
)
_OVER: Final = frozenset(
    ("more than", "greater than", "longer than", "larger than", "higher than", ">", "over", "above", "exceeds",
     "exceeding")
)  # fmt: skip
_ABOUT: Final = words_of("about around approximately approx roughly nearly almost some circa ~")
_PHRASES: Final = {
    **dict.fromkeys(_BELOW, "<="),
    **dict.fromkeys(_UNDER, "<"),
    **dict.fromkeys(_ABOVE, ">="),
    **dict.fromkeys(_OVER, ">"),
    **dict.fromkeys(_ABOUT, "~"),
}
_DATES: Final = {"before": "<", "until": "<", "till": "<", "prior to": "<", "after": ">", "since": ">"}
_BOUNDING: Final = frozenset(phrase.rpartition(" ")[2] for phrase in (*_PHRASES, *_DATES))
"""Words and marks with which these phrases end."""
_NEAR: Final = Fraction(1, 4)  # of a bound, that a value may be away from it
_ROUNDED: Final = Fraction(1, 20)  # of a value, that its rounding may be away from it
_HALF: Final = Fraction(1, 2)
_NO_NUMBERS: Final = frozenset((DATE, VERSION))
"""What else a number may be read as, that is no nearer to another than any."""


def bound_of(tokens: Sequence[ValueToken], kind: str) -> str:
    """Return "<", "<=", ">", ">=" or "~" where the words before a value of a kind bound it, or an empty text."""
    if not tokens or tokens[-1].text not in _BOUNDING:  # as nearly always
        return ""
    last = [token.text for token in tokens[-3:]]
    for phrase in (" ".join(last[start:]) for start in range(len(last))):
        if found := _PHRASES.get(phrase) or (kind == "date" and _DATES.get(phrase)):
            return found
    return ""


def is_strict(bound: str) -> bool:
    """Tell whether a bound excludes the value itself."""
    return bound in {"<", ">"}


def resolved(said: Sequence[ValueStatement], there: Iterable[ValueStatement]) -> Sequence[ValueStatement]:
    """Return statements of an answer whose approximate values say what passages give in their place too."""
    if not any(value.bound for statement in said for value in statement.given):
        return said
    given: dict[str, set[str]] = {}
    for statement in there:
        for value in statement.given:
            for key in value.covers if value.amount else ():
                given.setdefault(key.partition(" ")[0], set()).add(key)
    return [_resolved(statement, given) for statement in said]


def _resolved(statement: ValueStatement, given: dict[str, set[str]]) -> ValueStatement:
    tokens = [_loose(token, given) for token in statement.tokens]
    if all(new is token for new, token in zip(tokens, statement.tokens, strict=True)):
        return statement
    covers = [token.value.covers for token in tokens if token.value]
    return replace(statement, tokens=tokens, says=statement.says.union(*covers), _values=None, clauses=None)


def _loose(token: ValueToken, given: dict[str, set[str]]) -> ValueToken:
    value = token.value
    if value is None or value.amount is None or not value.bound:
        return token
    if any(key in given.get(key.partition(" ")[0], ()) for key in value.keys):
        return token  # as it stands
    keys = {
        other
        for key in value.keys
        for other in given.get(key.partition(" ")[0], ())
        if key.partition(" ")[0] not in _NO_NUMBERS and _holds(value, _number(key), _number(other))
    }
    if not keys:
        return token
    return token._replace(value=value._replace(keys=value.keys | keys, covers=value.covers | keys))


def _number(key: str) -> Fraction:
    return Fraction(key.partition(" ")[2])


def _holds(value: TextValue, own: Fraction, given: Fraction) -> bool:
    if value.bound == "~":
        digits = value.amount.literal.replace(".", "").rstrip("0") if value.amount else ""
        step = abs(own) / (int(digits) or 1) if digits.isdigit() else Fraction(0)  # of the last digit
        return abs(own - given) <= max(_ROUNDED * abs(given), min(_HALF * step, _NEAR * abs(given)))
    return (own < given if value.bound[0] == ">" else own > given) and abs(own - given) <= _NEAR * abs(own)
