"""Calendar dates among the tokens of a text, in parts: year, month, day, day of the week.

English only. "1 May 2024", "May 1st, 2024" and "2024-05-01" have the same parts; "May 2024" has fewer of them, and may
be the same date. Clock times are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from groundwire.text.tokens import PerToken

_MONTHS: Final = (
    "january jan; february feb; march mar; april apr; may; june jun; july jul; august aug; september sep sept; "
    "october oct; november nov; december dec"
)
_WEEKDAYS: Final = "monday; tuesday; wednesday; thursday; friday; saturday; sunday"
# Name of a month or a day, in full or short -> its number.
MONTHS: Final = {name: n for n, names in enumerate(_MONTHS.split(";"), 1) for name in names.split()}
WEEKDAYS: Final = {day: n for n, names in enumerate(_WEEKDAYS.split("; "), 1) for day in (names, f"{names}s")}
_ISO: Final = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?(?:t[\d:.z+-]*)?")
_DOTTED: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_QUARTER: Final = re.compile(r"q[1-4]")
_DAY: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
_YEAR: Final = re.compile(r"(?:1[89]|20)\d\d")
_BEFORE_YEAR: Final = frozenset(
    ("in", "since", "until", "till", "by", "of", "from", "before", "after", "during")
)
_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(?::\d\d)?(?:am|pm)?|\d{1,2}(?:am|pm)|noon|midnight")
_HOURS: Final = frozenset(("am", "pm", "a.m", "p.m", "o'clock"))
_RELATIVE: Final = frozenset(("today", "tomorrow", "yesterday"))
_AMBIGUOUS: Final = frozenset(("may", "march", "mar", "jan", "sun", "sat"))

DatePart = tuple[str, str]
"""Which part of a date it is (Y, M, D, W) and its value."""


def may_date(token: str) -> bool:
    """Tell whether a token can begin a date or be one: `dates` finds none without such a token."""
    return _MAY_DATE[token]


def _may_date(token: str) -> bool:
    return (
        token in MONTHS
        or token in WEEKDAYS
        or token in _RELATIVE
        or any(pattern.fullmatch(token) for pattern in (_QUARTER, _ISO, _DOTTED, _YEAR))
    )


_MAY_DATE: Final = PerToken(_may_date, 1 << 14)


def is_year(token: str) -> bool:
    """Tell whether a token looks like a year."""
    return _YEAR.fullmatch(token) is not None


def may_be_time(token: str) -> bool:
    """Tell whether a token can be a time of the day or a part of one: `clock_times` finds none among others."""
    return token in _HOURS or _CLOCK.fullmatch(token) is not None


def clock_times(tokens: Sequence[str]) -> list[int]:
    """Return the places of the tokens that say a time of the day: "9:15", "8 am", "noon"."""
    found = [place for place, token in enumerate(tokens) if _CLOCK.fullmatch(token)]
    hours = [place for place, token in enumerate(tokens) if place and token in _HOURS]
    return [*found, *hours, *(place - 1 for place in hours if tokens[place - 1].isdecimal())]


def dates(tokens: Sequence[str]) -> list[tuple[DatePart, int]]:
    """Return the parts of the dates among tokens, each with the place of the token that says it."""
    return dates_at(tokens, [place for place, token in enumerate(tokens) if _MAY_DATE[token]])


def dates_at(tokens: Sequence[str], places: Sequence[int]) -> list[tuple[DatePart, int]]:
    """Return what `dates` does; `places` are all those of tokens that `may_date`, in text order."""
    parts: list[tuple[DatePart, int]] = []
    done: set[int] = set()
    for place in places:
        if place not in done:
            found = list(_date_at(tokens, place))
            parts += found
            done.update([at for _, at in found])
    return parts


def _date_at(tokens: Sequence[str], place: int) -> Iterator[tuple[DatePart, int]]:
    token = tokens[place]
    if token in MONTHS:
        yield from _around_month(tokens, place)
    elif token in WEEKDAYS:
        yield ("W", str(WEEKDAYS[token])), place
    elif token in _RELATIVE or _QUARTER.fullmatch(token):
        yield ("M", token), place
    elif found := _ISO.fullmatch(token):
        yield from (
            ((kind, str(int(part))), place) for kind, part in zip("YMD", found.groups(), strict=True) if part
        )
    elif found := _DOTTED.fullmatch(token):
        yield from (((kind, str(int(part))), place) for kind, part in zip("DMY", found.groups(), strict=True))
    elif is_year(token) and place and tokens[place - 1] in _BEFORE_YEAR:
        yield ("Y", token), place


def _around_month(tokens: Sequence[str], place: int) -> Iterator[tuple[DatePart, int]]:
    """Read "4 [of] May [2024]", "May 4[,] [2024]"; a month whose name is another word needs one of these beside it."""
    day = place - 1 - (place > 1 and tokens[place - 1] == "of")
    behind = place + 1
    found: list[tuple[DatePart, int]] = []
    if day >= 0 and (number := _day(tokens[day])):
        found.append((("D", number), day))
    elif behind < len(tokens) and (number := _day(tokens[behind])):
        found.append((("D", number), behind))
        behind += 1
    if behind < len(tokens) and is_year(tokens[behind]):
        found.append((("Y", tokens[behind]), behind))
    stands_alone = tokens[place] not in _AMBIGUOUS or (place and tokens[place - 1] in _BEFORE_YEAR)
    if found or stands_alone:
        yield ("M", str(MONTHS[tokens[place]])), place
        yield from found


def _day(token: str) -> str:
    found = _DAY.fullmatch(token)
    return str(int(found[1])) if found and 0 < int(found[1]) < 32 else ""
