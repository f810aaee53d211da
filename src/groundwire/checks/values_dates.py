"""Reads dates, times of day and versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groundwire.checks.values_tokens import Raw, Reading, Token, Value, plain, valued
from groundwire.checks.values_units import DATE, version_key
from groundwire.checks.values_words import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

_MONTH_NAMES: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH: Final = {
    name[:length]: n for n, name in enumerate(_MONTH_NAMES, start=1) for length in (3, len(name))
}
_MONTH["sept"] = 9
_DATE_OPENERS: Final = words_of(
    "in of since by until till from early late mid last next this every to and during before after through"
)


def date_keys(year: str | None, month: int, day: str | None) -> set[str]:
    """Return the key of a date; parts that are not said are left out of it."""
    parts = (year or "", f"{month}" if month else "", day.lstrip("0") if day else "")
    return {f"{DATE} {'.'.join(parts)}"}


def _dated(readings: Sequence[tuple[str | None, int, str | None]]) -> Value:
    """Return a date; what it covers is the date with any of its parts left out, but no day alone."""
    keys: set[str] = set()
    covers: set[str] = set()
    for year, month, day in readings:
        keys |= date_keys(year, month, day)
        for y in {year, None}:
            for m, d in {(month, day), (month, None), (0, None)}:
                if y or m:
                    covers |= date_keys(y, m, d)
    return Value("date", frozenset(keys), frozenset(covers | keys))


def iso(raw: Sequence[Raw], place: int, _: Sequence[Token]) -> Reading:
    """Read 2024-05-03, with or without a time, and 2024-05."""
    match = raw[place]
    return valued(match, _dated([(match["iy"], int(match["im"]), match["id"])])), place + 1


def slash(raw: Sequence[Raw], place: int, _: Sequence[Token]) -> Reading:
    """03/05/2024 is the 3rd of May to some and the 5th of March to others: either is equal to it."""
    match = raw[place]
    one, other = match["sa"], match["sb"]
    dates = [(match["sy"], int(m), d) for m, d in ((one, other), (other, one)) if 1 <= int(m) <= 12]
    return valued(match, _dated(dates or [(match["sy"], 0, None)])), place + 1


def named(raw: Sequence[Raw], place: int, before: Sequence[Token]) -> Reading:
    """Read "3 May 2024", "May 3", "May 2024"; "May" alone only where a month is meant."""
    match = raw[place]
    name, year = match["mon"].lower(), match["y"]
    day = match["d1"] or match["d2"]
    if not (day or year):
        opened = bool(before) and before[-1].text in _DATE_OPENERS
        full = len(name) > 3 or name == "may"
        if not full or not match["mon"][0].isupper() or (name in {"may", "march"} and not opened):
            return plain(raw, place)
    return valued(match, _dated([(year, _MONTH[name], day)])), place + 1


def clock(raw: Sequence[Raw], place: int, _: Sequence[Token]) -> Reading:
    """Read a time of day; "5:30" may be either half of the day."""
    match = raw[place]
    hour, minute, half = int(match["ch"] or match["ph"]), match["cm"] or "00", match["half"]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    exact, open_half = f"clock {hour}:{minute}", f"clock ?{hour % 12}:{minute}"
    keys = {exact} if half or hour > 12 else {open_half}
    return valued(match, Value("date", frozenset(keys), frozenset({exact, open_half}))), place + 1


def version(raw: Sequence[Raw], place: int, _: Sequence[Token]) -> Reading:
    """Read "v1.2.3" and "version 2"."""
    match = raw[place]
    keys = frozenset({version_key(match["ver"].lower())})
    return valued(match, Value("version", keys, keys)), place + 1


def quarter(raw: Sequence[Raw], place: int, _: Sequence[Token]) -> Reading:
    """Read "Q3"."""
    keys = frozenset({f"quarter {raw[place][0][1]}"})
    return valued(raw[place], Value("date", keys, keys)), place + 1
