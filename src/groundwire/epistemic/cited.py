"""Sources that an answer names in brackets and that are not there, such as `[source: doc-9]` (S4-06, S4-24)."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

_BRACKETS: Final = re.compile(r"\[([^\[\]\n]{1,200})\](?![\[(:])")  # no link of Markdown, nor where one leads
_SOURCE: Final = re.compile(
    r"(?:sources?|cit(?:e[sd]?|ation)|ref(?:erence)?s?|evidence)\s*:\s*", re.IGNORECASE
)
_COUNT: Final = re.compile(r"[0-9]{1,3}")
_DIGITS: Final = re.compile(r"[0-9]+")
_FILE: Final = re.compile(r"[^\s:]+(\.[a-z][a-z0-9]{0,4})", re.IGNORECASE)


def not_there(text: str, ids: Collection[str]) -> tuple[str, ...]:
    """Return what a text cites by name and is none of the ids, once each, in its order.

    Brackets cite where they say so (`source:`, `ref:`, ...), or hold what looks like one of the ids: the same but for
    its digits, or a file of the same kind. A number behind `source:` may also count the ids from 1.

    Example:
        >>> not_there("It retries [doc-9] twice [doc-1]. It waits [citation needed].", ["doc-1", "doc-2"])
        ('doc-9',)
    """
    known = {name.casefold() for name in ids}
    if not known:
        return ()
    shapes = {shape for name in known if (shape := _shape(name))}
    missing = (
        name
        for name, declared in _named(text)
        if name.casefold() not in known
        and (_is_missing_source(name, len(ids)) if declared else _shape(name.casefold()) in shapes)
    )
    return tuple(dict.fromkeys(missing))


def _named(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what stands in brackets, each name by itself, and whether they say that it is a source."""
    for found in _BRACKETS.finditer(text):
        said = _SOURCE.match(found[1])
        for part in re.split("[,;]", found[1][said.end() if said else 0 :]):
            if name := part.strip(" `'\""):
                yield name, said is not None


def _is_missing_source(name: str, count: int) -> bool:
    return not (_COUNT.fullmatch(name) and 1 <= int(name) <= count)


def _shape(name: str) -> str | None:
    """Return what names of one kind have in common: all but their digits, or how a file's name ends."""
    if file := _FILE.fullmatch(name):
        return file[1]
    if name.isdigit() and not _COUNT.fullmatch(name):
        return None  # a year, an amount
    return _DIGITS.sub("0", name) if _DIGITS.search(name) else None
