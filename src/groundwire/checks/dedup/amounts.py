"""Numbers and units of a claim as they are compared: by value, whatever the unit is called.

90 minutes and 1.5 hours are the same, and so are 2 pm and 14:00. How a number with a unit is written is kept beside
that, so that "30 s" and "30 min" are known to differ in the unit.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from groundwire.checks.values.units import unit_readings
from groundwire.text.quantities import quantities

_LONGEST: Final = 40  # characters of a number that is converted

if TYPE_CHECKING:
    from collections.abc import Sequence


def amounts(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Return kind and value of what is counted: N numbers with no unit, n and Q with one, U units without a number."""
    numbers, units = quantities(tokens)
    found: list[tuple[str, str]] = []
    for unit in units:
        value, _, name = unit.partition(" ") if unit[0].isdigit() or unit[0] == "-" else ("", "", unit)
        while name[:1].isdigit():  # "2 30 pm"
            rest, _, name = name.partition(" ")
            value = f"{value} {rest}"
        member = value if value in numbers else ""
        if not member:
            member = next((number for number in numbers if number.lstrip("<>=") == value), "")
        if not member or name.startswith("/"):
            found.append(("U", unit))
            continue
        bound, at = member.removesuffix(value), numbers.index(member)
        if alone := value if name == "x" else _clock(value, name):  # "three times", "2 pm"
            numbers[at] = bound + alone
        else:
            if name == "m" and "m" in tokens:
                name = "metre"  # "30 m" is a length; "30m" may be minutes
            del numbers[at]
            found += [("n", member), ("Q", bound + _in_base_units(value, name))]
    return [("N", number) for number in numbers] + found


def _clock(value: str, name: str) -> str:
    """Return an hour of half a day as one of the whole day: "14 0" for 2 pm, as 14:00 is read."""
    hour, _, minute = value.partition(" ")
    if name not in {"am", "pm"} or not hour.isdecimal() or len(hour) > 2:
        return ""
    return f"{int(hour) % 12 + 12 * (name == 'pm')} {minute or 0}"


@lru_cache(1 << 12)
def _in_base_units(value: str, name: str) -> str:
    readings, _ = unit_readings(name)
    if not readings or len(value) > _LONGEST:
        return f"{value} {name}"
    dimension, factor = readings[0]
    try:
        return f"{Fraction(value) * factor} {dimension}"
    except ValueError:
        return f"{value} {name}"
