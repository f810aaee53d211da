"""Sources that an answer names in brackets and that are not there, such as `[source: doc-9]` (S4-06, S4-24)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

_BRACKETS: Final = re.compile(r"\[([^\[\]\n]{1,200})\](?![\[(:])")  # no link of Markdown, nor where one leads
_SOURCE: Final = re.compile(
    r"(?:sources?|cit(?:e[sd]?|ation)|ref(?:erence)?s?|evidence)\s*:\s*", re.IGNORECASE
)
_COUNT: Final = re.compile(r"[0-9]{1,3}")
_DIGITS: Final = re.compile(r"[0-9]+")
_LINES: Final = re.compile(r"(?::|#l)[0-9]{1,9}(?:-l?[0-9]{1,9})?\Z")  # of a file: `:12-14`, `#L12`


class Citable:
    """What a text may cite in brackets.

    Args:
        names: of the evidence, as the text may spell them; of files the last part of their path will do.
        numbered: how many there are for `[source:1]`, `[source:2]`, ...; None where somebody else looks at these.
    """

    def __init__(self, names: Iterable[str], numbered: int | None) -> None:
        self._known = {name.casefold() for name in names}
        self._shapes = {shape for name in self._known if (shape := _shape(name))}
        self._counted = any(_COUNT.fullmatch(name) for name in self._known)
        self._known |= {name.rpartition("/")[2] for name in self._known}
        self._numbered = numbered

    def not_there(self, text: str) -> tuple[str, ...]:
        """Return what a text cites and cannot, once each, in its order.

        Brackets cite where they say so (`source:`, `ref:`, ...), or hold what is one of the names but for its digits.

        Example:
            >>> Citable(["doc-1"], 1).not_there("It retries [doc-9] twice [doc-1]. It waits [citation needed].")
            ('doc-9',)
        """
        named = _named(text) if self._known else ()
        return tuple(
            dict.fromkeys(name for name, said in named if self._is_missing(name.casefold(), said=said))
        )

    def _is_missing(self, name: str, *, said: bool) -> bool:
        if name in self._known or _LINES.sub("", name) in self._known:
            return False
        if _COUNT.fullmatch(name):
            numbered = self._numbered if said or self._counted else None
            return numbered is not None and not 1 <= int(name) <= numbered
        return said or _shape(name) in self._shapes


def _named(text: str) -> Iterator[tuple[str, bool]]:
    """Yield what stands in brackets, each name by itself, and whether they say that it is a source."""
    for found in _BRACKETS.finditer(text):
        said = _SOURCE.match(found[1])
        for part in re.split("[,;]", found[1][said.end() if said else 0 :]):
            if name := part.strip(" `'\""):
                yield name, said is not None


def _shape(name: str) -> str | None:
    """Return what names of one kind have in common: all but their digits; None without both."""
    return None if name.isdigit() or not _DIGITS.search(name) else _DIGITS.sub("0", name)
