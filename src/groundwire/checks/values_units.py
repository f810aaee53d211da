"""Amounts in the form in which the values of an answer and of its sources are compared.

A value is a set of keys, each a dimension and a magnitude in that dimension's base unit: "5 s", "5 seconds"
and "5000 ms" share the key ``time 5``, "1k" and "1,000" the key ``number 1000``, "$1.2 million" and
"$1,200,000" the key ``usd 1200000``. Two values are equal when they share a key; one text may stand for
several ("5m" is minutes, metres or millions). Spellings of units are those of `quantities`.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.quantities import quantities

if TYPE_CHECKING:
    from collections.abc import Iterable

NUMBER: Final = "number"
VERSION: Final = "version"
DATE: Final = "date"

_TIME: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "day": Fraction(86400),
    "week": Fraction(604800),
}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
_CURRENCIES: Final = frozenset(("usd", "eur", "gbp", "jpy", "inr", "chf", "cny", "cent"))
_SHARES: Final = frozenset(("%", "‰", "pp", "bp"))
_PREFIXES: Final = ("", "k", "m", "g", "t", "p")
_MAGNITUDES: Final = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
    "k": 10**3,
    "mn": 10**6,
    "mln": 10**6,
    "bn": 10**9,
    "bln": 10**9,
    "tn": 10**12,
}
_MONEY_MAGNITUDES: Final = {"m": 10**6, "b": 10**9, "t": 10**12}
_MAX_UNIT: Final = 24  # characters; no unit is longer


def _scales() -> dict[str, tuple[tuple[str, Fraction], ...]]:
    """Return unit -> its readings: dimension and factor to the dimension's base unit."""
    table: dict[str, tuple[tuple[str, Fraction], ...]] = {}
    table.update({unit: (("time", factor),) for unit, factor in _TIME.items()})
    table.update({unit: (("months", Fraction(factor)),) for unit, factor in _MONTHS.items()})
    for power, prefix in enumerate(_PREFIXES):
        # "1 GB" is said of 1000 MB and of 1024 MB; "1 GiB" only of 1024 MiB.
        decimal, binary = Fraction(1000**power), Fraction(1024**power)
        table[f"{prefix}b" if prefix else "byte"] = (("bytes", decimal), ("bytes-1024", binary))
        table[f"{prefix}ib"] = (("binary-bytes", binary),)
        table[f"{prefix}bit"] = (("bits", decimal),)
    table["hz"], table["khz"] = (("hz", Fraction(1)),), (("hz", Fraction(10**3)),)
    table["mhz"], table["ghz"] = (("hz", Fraction(10**6)),), (("hz", Fraction(10**9)),)
    for unit, factor in (("mm", 1), ("cm", 10), ("metre", 1000), ("km", 10**6)):
        table[unit] = (("length", Fraction(factor)),)
    for unit, factor in (("mg", 1), ("g", 1000), ("kg", 10**6), ("t", 10**9)):
        table[unit] = (("mass", Fraction(factor)),)
    table["x"] = (("x", Fraction(1)),)
    # A lone letter after a number says several things: minutes, metres or millions.
    table["m"] = (("time", Fraction(60)), ("length", Fraction(1000)), (NUMBER, Fraction(10**6)))
    return table


_SCALES: Final = _scales()


class Amount(NamedTuple):
    """A number as read: `readings` are what its unit may be; without a unit, one plain reading."""

    magnitude: Fraction
    literal: str
    readings: tuple[tuple[str, Fraction], ...] = ()
    rate: str = ""

    @property
    def keys(self) -> frozenset[str]:
        """The keys under which it is compared."""
        keys = {
            f"{dimension}{self.rate} {_shown(self.magnitude * factor)}" for dimension, factor in self.readings
        }
        if not self.readings:
            keys.add(f"{NUMBER}{self.rate} {_shown(self.magnitude)}")
            if self.literal and not self.rate:  # "version 3.11" is said by "3.11" as well
                keys.add(version_key(self.literal))
        return frozenset(keys)

    @property
    def kind(self) -> str:
        """The kind of value, as a report names it."""
        dimensions = {dimension for dimension, _ in self.readings}
        if dimensions & {"time", "months"}:
            return "duration"
        if dimensions & _SHARES:
            return "percent"
        if dimensions & _CURRENCIES:
            return "amount"
        return "quantity" if (dimensions - {NUMBER}) or self.rate else NUMBER


def dimensions(keys: Iterable[str]) -> frozenset[str]:
    """Return the dimensions of keys: only values that share one can be two values of the same thing."""
    return frozenset(key.partition(" ")[0] for key in keys)


def version_key(literal: str) -> str:
    """Return the key of a version: "2.0" is "2", but "3.10" is not "3.1"."""
    parts = literal.lstrip("+").split(".")
    while len(parts) > 1 and not parts[-1].strip("0"):
        parts.pop()
    return f"{VERSION} {'.'.join(part.lstrip('0') or '0' for part in parts)}"


@lru_cache(1 << 12)
def unit_readings(word: str, *, attached: bool = False) -> tuple[tuple[tuple[str, Fraction], ...], str]:
    """Return what a word after a number says as a unit, and its rate ("MB/s": bytes, "/s").

    Args:
        word: In lower case.
        attached: It touches the number; "3in" is a length, "3 in a row" is not.

    Returns:
        Readings and rate; both empty where the word is no unit.
    """
    if not word or len(word) > _MAX_UNIT:
        return (), ""
    _, units = quantities([f"1{word}"] if attached else ["1", word])
    readings: tuple[tuple[str, Fraction], ...] = ()
    rate = ""
    for name in (unit.removeprefix("1 ") for unit in units):
        if name.startswith("/"):
            rate = name
        elif name not in {"am", "pm"}:
            readings = _SCALES.get(name, ((name, Fraction(1)),))
    if word == "times":
        readings = ((NUMBER, Fraction(1)), ("x", Fraction(1)))
    return readings, rate


def magnitude(word: str, *, money: bool = False) -> int:
    """Return the factor that a word such as "million" or "bn" says, or 0."""
    return _MAGNITUDES.get(word, 0) or (_MONEY_MAGNITUDES.get(word, 0) if money else 0)


def _shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"
