"""Which words of a statement belong to which of its values."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from typing import Final

from groundwire.checks.reading.adjuncts import PHRASE_ENDS
from groundwire.checks.reading.units import CURRENCIES, TextValue, ValueToken, unit_readings
from groundwire.text.lists import words_in
from groundwire.text.stems import stem

OWN: Final = 12
"""Words that a value binds at most."""

_LINKS: Final = frozenset((",", "and", "or", "/", "to", "-", "&"))
_JOINTS: Final = frozenset((",", "and", "or", "/", "&"))
_MEASURES: Final = words_in(__package__, "measures")
_MEASURE_STEMS: Final = {stem(word): word for word in sorted(_MEASURES)}
_PRICED: Final = frozenset(map(stem, words_in(__package__, "priced")))
_PAIRED: Final = frozenset(("respectively", "between"))
_COMMENTS: Final = frozenset(("#", "/", "-", "("))
_PASSED: Final = frozenset(("a", "an", "the", *"()[]{}\"'=:"))
_STOPS: Final = frozenset(",;.|!?")
_NAME_PART: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_.\-]+")
_EDGE: Final = ""
_PHRASES: Final = {
    phrase: bound
    for bound, phrases in (
        ("<=", ("at most;up to;no more than;not more than;no longer than;not exceed;no later than;<=;≤;maximum of;"
                "within;at maximum;no greater than")),
        ("<", "less than;fewer than;<;under;below"),
        (">=", "at least;no less than;no fewer than;not less than;>=;≥;minimum of;at minimum"),
        (">", "more than;greater than;longer than;larger than;higher than;>;over;above;exceeds;exceeding"),
        ("~", "about;around;approximately;approx;roughly;some;circa;~"),
        ("~<", "nearly;almost;close to"),
    )
    for phrase in phrases.split(";")
}  # fmt: skip
_DATES: Final = {"before": "<", "until": "<", "till": "<", "prior to": "<", "after": ">", "since": ">"}
_BOUNDING: Final = frozenset(phrase.rpartition(" ")[2] for phrase in (*_PHRASES, *_DATES))
"""Words and marks with which these phrases end."""


class Binder:
    """Binds the values of one statement, in time linear in its length.

    `valued` are the places of the tokens with a value, `heads`, of a row of a table, the words of each column's
    heading.
    """

    def __init__(
        self,
        tokens: Sequence[ValueToken],
        texts: Sequence[str],
        valued: Sequence[int],
        heads: Sequence[Sequence[str]],
    ) -> None:
        self._tokens = tokens
        self._texts = texts
        self._heads = heads
        self._values = [at for at in valued if (value := tokens[at].value) and not value.implied]
        several = len(self._values) > 1
        self._rows = self._groups(_LINKS) if several else {}  # share their words: "5-10 s"
        # and the words beside the row
        self._group = self._groups(_JOINTS) if several and self._is_plain() else {}
        self._own = self._owned()
        self._column = list(accumulate(int(token.text == "|") for token in tokens)) if heads else []

    def bind(self, place: int) -> tuple[frozenset[str], tuple[str, str]]:
        first, last = self._group.get(place, (place, place))
        own = frozenset(self._own.get(place, ()))
        if self._heads:
            column = self._column[place]
            return own.union(self._heads[column] if column < len(self._heads) else ()), (_EDGE, _EDGE)
        return own, (self._beside(first, -1), self._beside(last, 1))

    def named_unit(self, place: int, value: TextValue) -> TextValue:
        """Add the unit that a name or a comment gives: `timeout_ms = 5`, "timeout (s): 5", `5  # seconds`."""
        amount = value.amount
        if amount is None or amount.readings or amount.rate:
            return value
        column = self._column[place] if self._heads else 0
        heads = self._heads[column] if column < len(self._heads) else ()
        unit = next((_MEASURE_STEMS[word] for word in heads if word in _MEASURE_STEMS), "")
        unit = unit or self._unit_before(place) or self._unit_behind(place)
        if not unit:
            behind = self._texts[place + 1 : place + 2]
            said = (
                *heads,
                *(stem for token in self._tokens[max(0, place - 4) : place] for stem in token.stems),
            )
            if _PRICED.isdisjoint(said) or (behind and behind[0] not in PHRASE_ENDS | {"}"}):
                return value
            prices = (amount._replace(readings=unit_readings(one)[0]).keys for one in CURRENCIES)
            return value._replace(covers=value.covers.union(*prices))  # "price: 24.9" is told as "$24.90"
        keys = value.keys | amount._replace(readings=unit_readings(unit)[0]).keys
        return value._replace(keys=keys, covers=value.covers | keys)

    def _unit_before(self, place: int) -> str:
        for back in range(place - 1, max(place - 6, -1), -1):
            token = self._tokens[back]
            if token.value and not token.value.implied:
                break
            parts = [part.lower() for part in _NAME_PART.split(token.written[:64])]
            opened = back > 0 and self._tokens[back - 1].text in {"in", "("}
            if parts[-1] in _MEASURES and (len(parts) > 1 or opened):
                return parts[-1]
        return ""

    def _unit_behind(self, place: int) -> str:
        if place + 1 >= len(self._tokens) or self._tokens[place + 1].text not in _COMMENTS | {",", ";"}:
            return ""
        behind = self._tokens[place + 1 : place + 6]
        marked = any(token.text in _COMMENTS for token in behind[:3])
        for token in behind if marked else ():
            if token.text in _MEASURES:
                return token.text
            if not token.mark and token.text != "in":
                break
        return ""

    def _is_plain(self) -> bool:
        """Return whether no words are in a row too: in "A and B are 5 and 10" each value has its place."""
        tokens, texts = self._tokens, self._texts
        joined = not _JOINTS.isdisjoint(texts) and any(
            text in _JOINTS
            and 0 < place < len(tokens) - 1
            and not (tokens[place - 1].value or tokens[place + 1].value or tokens[place - 1].mark)
            for place, text in enumerate(texts)
        )
        return not joined and _PAIRED.isdisjoint(texts)

    def _groups(self, links: frozenset[str]) -> dict[int, tuple[int, int]]:
        """Map values in a row ("5, 10 and 20 users") to the first and last of the row."""
        tokens = self._tokens
        rows: list[list[int]] = []
        for place in self._values:
            between = tokens[rows[-1][-1] + 1 : place] if rows else ()
            # a row of bare numbers, as of a telephone, is one value in pieces
            if rows and len(between) <= 2 and all(token.text in links for token in between):
                rows[-1].append(place)
            else:
                rows.append([place])
        return {place: (row[0], row[-1]) for row in rows for place in row}

    def _owned(self) -> dict[int, list[str]]:
        owned: dict[int, list[str]] = {}
        before = range(0)  # the clause before, if it holds no value
        bare: Sequence[int] = ()  # values that still want words
        done = 0
        ends = [
            n for n, text in enumerate(self._texts) if text in PHRASE_ENDS and self._tokens[n].value is None
        ]
        for start, end in list(zip([0, *(end + 1 for end in ends)], [*ends, len(self._tokens)], strict=True)):
            behind = bisect_left(self._values, end, done)
            values, done = self._values[done:behind], behind
            if not values:
                before = range(start, end)
                if bare:
                    owned |= dict.fromkeys(bare, self._words(before))
                    bare = ()
                continue
            # each word to the nearest value, to both where two are as near
            for index, place in enumerate(values):
                low = (values[index - 1] + place + 1) // 2 if index else start
                high = (place + values[index + 1]) // 2 + 1 if index + 1 < len(values) else end
                owned[place] = self._words(_outwards(place, low, high)) or self._words(before)
            bare = [place for place in values if not owned[place]]
            before = range(0)
        rows = {span: None for span in self._rows.values() if span[0] != span[1]}
        if "respectively" in self._texts:
            for first, last in rows:
                owned.update(self._respective(first, last, owned))
            return owned
        for first, last in rows:
            members = (
                [place for place in self._values if first <= place <= last] if last - first < 400 else []
            )
            union = list(dict.fromkeys(chain.from_iterable(owned.get(place, ()) for place in members)))[:OWN]
            owned.update(dict.fromkeys(members, union))
        return owned

    def _respective(self, first: int, last: int, owned: Mapping[int, list[str]]) -> dict[int, list[str]]:
        """Give each value of a row the item of its place in the list before it: "A and B hold 5 and 10"."""
        values = [place for place in self._values if first <= place <= last]
        items: list[str] = []
        for place in range(first - 1, -1, -1):
            joined = self._texts[place + 1] in _JOINTS or (place and self._texts[place - 1] in _JOINTS)
            if joined and self._tokens[place].stems and len(items) < len(values):
                items.append(self._tokens[place].stems[-1])
        if len(items) != len(values):
            return {}
        shared = [word for place in values for word in owned.get(place, ()) if word not in items]
        pairs = zip(values, reversed(items), strict=True)
        return {place: [item, *shared][:OWN] for place, item in pairs}

    def _words(self, places: Iterable[int]) -> list[str]:
        words: dict[str, None] = {}
        tokens = self._tokens
        for place in places:
            words |= dict.fromkeys(tokens[place].stems)  # marks and values have none
            if len(words) >= OWN:
                break
        return list(words)[:OWN]

    def _beside(self, place: int, step: int) -> str:
        place += step
        while 0 <= place < len(self._tokens) and self._tokens[place].text in _PASSED:
            place += step
        if not 0 <= place < len(self._tokens) or self._tokens[place].text in _STOPS:
            return _EDGE
        token = self._tokens[place]
        if token.value and not token.value.implied:
            return "#"
        stems = token.stems
        return stems[0] if stems else token.text


def _outwards(place: int, low: int, high: int) -> Iterator[int]:
    """Yield the places of a range around one of them, the nearest first; of two as near, the one before it."""
    for distance in range(1, max(place - low + 1, high - place)):
        if place - distance >= low:
            yield place - distance
        if place + distance < high:
            yield place + distance


def bound_of(tokens: Sequence[ValueToken], kind: str) -> str:
    """Return "<", "<=", ">", ">=" or "~" where the words before a value of a kind bound it, or an empty text."""
    if not tokens or tokens[-1].text not in _BOUNDING:  # as nearly always
        return ""
    last = [token.text for token in tokens[-3:]]
    for phrase in (" ".join(last[start:]) for start in range(len(last))):
        if found := _PHRASES.get(phrase) or (kind == "date" and _DATES.get(phrase)):
            return found
    return ""
