"""Who does what to whom, and what a claim adds: a remark or a name.

"Urchins eat otters" holds no word that "Otters eat urchins" lacks, so each part of a claim is compared with the parts
of the evidence that hold most of its words. The claim is wrong where

- the two exchange what is on the two sides of a word, or behind "from" and "to"; a passive is read as active;
- a part of the evidence says all the rest of another name, day or measure, in the same place, and none says most of it
  of the one that the claim names.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nsmallest
from itertools import chain
from typing import Final

from groundwire.checks.reading.units import ValueToken, dimensions
from groundwire.checks.support.atoms import LIGHT, Atom
from groundwire.checks.support.evidence import Evidence, Part, Sides, parts
from groundwire.text.clauses import role_of
from groundwire.text.lists import words_in
from groundwire.text.stems import stem, words_of
from groundwire.text.work import spend

_LOOKED: Final = 4  # sentences in which a part is looked for
_REACH: Final = 4  # words on a side of a verb
_MOST: Final = 0.75  # of a part, that another has to hold to say the same with exchanged sides
_LEAST: Final = 2  # words that a part has to say of a name, day or measure
_LESS: Final = 0.5  # of these, that the evidence may say of that one, where it says all of another
_COMPARED: Final = 12  # units of work that it takes to compare two parts

_NO_VERB_AFTER: Final = words_in(__package__, "no_verb_after")
_MUTUAL: Final = frozenset(
    map(
        stem,
        words_of("meet met marry married differ resemble link relate compare border join between versus"),
    )
)
"""Stems of words whose two sides say the same the other way round."""
_WEEK: Final = words_of("monday tuesday wednesday thursday friday saturday sunday")
_DAYS: Final = frozenset(map(stem, chain.from_iterable((day, f"{day}s") for day in _WEEK)))
_DOES: Final = 3  # words that say enough of what somebody does, where who does it is no name
_WHOLE: Final = 2  # sentences whose order of words is compared with that of a whole claim
_TWO: Final = 2
_ENOUGH: Final = 5  # words and values of a claim whose order says something
_LISTS: Final = words_of(", and or & / as than")
_PASSIVE: Final = words_of("is are was were been be being")
_ARTICLES: Final = words_of("the a an")
_PARTICLES: Final = words_of("de del der di da la le van von bin al")
_TITLES: Final = frozenset(map(stem, words_in(__package__, "titles")))

_NOTHING: Final = frozenset[str]()


def misplaced(atom: Atom, masks: Mapping[int, int], evidence: Evidence) -> bool:
    for part in [part for part in own_parts(atom) if sum(map(bool, part.keys)) > _LEAST]:
        places = {token.start for token in part.tokens}
        own = sum(1 << at for at, unit in enumerate(atom.units) if unit.start in places)
        ranked = nsmallest(_LOOKED, ((-(masks[number] & own).bit_count(), number) for number in masks))
        found = [other for _, number in ranked for other in evidence.parts(number)]
        spend(len(masks) // 8 + _COMPARED * len(found))
        near: list[Part] = []
        for other in found:
            held = [not keys.isdisjoint(other.all) for keys in part.keys if keys]
            if sum(held) > _LEAST and sum(held) >= _MOST * len(held):
                near.append(other)
        if (near and _exchanges(part, near, evidence)) or _is_said_of_another(part, found, evidence):
            return True
    whole = nsmallest(_WHOLE, ((-mask.bit_count(), number) for number, mask in masks.items()))
    return any(_transposes(atom, evidence.sentences[number].statement.tokens) for _, number in whole)


def _transposes(atom: Atom, there: Sequence[ValueToken]) -> bool:
    """Return whether a claim says all its words, each once, in the order of a sentence but for two that are exchanged.

    In a list, and on the two sides of "and", any order says the same.
    """
    start, end = atom.units[0].start, atom.units[-1].start
    own = [token for token in atom.statement.tokens if start <= token.start <= end]
    words = Counter(map(_written, own))
    said = [at for at, token in enumerate(own) if words[_written(token)] == 1 and _written(token)]
    places: dict[str, int] = {}
    for at, token in enumerate(there):
        if (word := _written(token)) and places.setdefault(word, at) != at:
            places[word] = -1
    spend(len(own) + len(there))
    order = [places.get(_written(own[at]), -1) for at in said]
    if len(said) < _ENOUGH or -1 in order:
        return False
    moved = [at for at, (one, other) in enumerate(zip(order, sorted(order), strict=True)) if one != other]
    if len(moved) != _TWO or _is_list(own[said[moved[0]] + 1 : said[moved[1]]]):
        return False
    if _is_passive(own) != _is_passive(there):
        return False
    # "from the disk to the vault" is "to the vault from the disk"
    roles = [(_role_before(own, said[at]), _role_before(there, order[at])) for at in moved]
    return roles[0] == roles[1] or any(one != other for one, other in roles)


def _is_passive(tokens: Sequence[ValueToken]) -> bool:
    texts = [token.text for token in tokens]
    return "by" in texts and not _PASSIVE.isdisjoint(
        texts[max(0, texts.index("by") - _REACH) : texts.index("by")]
    )


def _role_before(tokens: Sequence[ValueToken], at: int) -> str:
    return next((token.text for token in reversed(tokens[:at]) if token.text not in _ARTICLES), "")


def _written(token: ValueToken) -> str:
    return min(token.value.keys) if token.value and not token.value.implied else " ".join(token.stems)


def _is_list(between: Sequence[ValueToken]) -> bool:
    texts = {token.text for token in between}
    rest = [
        token for token in between if not (token.stems or token.text in _LISTS or token.text in _ARTICLES)
    ]
    return not (rest or texts.isdisjoint(_LISTS))


def own_parts(atom: Atom) -> Iterator[Part]:
    start, end = atom.units[0].start, atom.units[-1].end
    yield from parts(token for token in atom.statement.tokens if token.start < end and token.end > start)


def _exchanges(part: Part, near: Sequence[Part], evidence: Evidence) -> bool:
    ends = _apart(_ends(part))
    pivots = [(keys, _apart(_sides(part, at))) for at, keys in enumerate(part.keys) if _is_pivot(part, at)]
    return (all(ends) and any(_crossed(ends, _ends(other)) for other in near)) or any(
        _crossed(sides, _given_sides(other, there, evidence))
        for keys, sides in pivots
        if all(sides)
        for other in near
        if not keys.isdisjoint(other.all)
        for there in (next(place for place, those in enumerate(other.keys) if not keys.isdisjoint(those)),)
        if _is_pivot(other, there)
    )


def _is_pivot(part: Part, at: int) -> bool:
    token = part.tokens[at]
    if (
        not part.keys[at]
        or token.value
        or token.written[:1].isupper()
        or not part.keys[at].isdisjoint(_MUTUAL)
    ):
        return False
    return part.text(at - 1) not in _NO_VERB_AFTER and part.text(at + 1) != "of"


def _given_sides(part: Part, at: int, evidence: Evidence) -> Sides:
    place = id(part), at
    if place not in evidence.sides:
        evidence.sides[place] = _sides(part, at)
    return evidence.sides[place]


def _sides(part: Part, at: int) -> Sides:
    before = _beside(part, range(at - 1, -1, -1))
    for place in (at + 1, at + 2):
        if part.text(place) == "by":
            return _beside(part, range(place + 1, len(part.tokens))), before
    return before, _beside(part, range(at + 1, len(part.tokens)))


def _beside(part: Part, places: Iterable[int]) -> frozenset[str]:
    found: list[frozenset[str]] = []
    tokens, keys = part.tokens, part.keys
    for at in places:
        if role_of(tokens[at].text) or len(found) >= _REACH:
            break
        if keys[at]:
            found.append(keys[at])
    return _NOTHING.union(*found)


def _ends(part: Part) -> Sides:
    """Return what is behind "from" and behind "to", as far as the next preposition."""
    if not any(token.text == "from" for token in part.tokens):
        return _NOTHING, _NOTHING  # as nearly always: one end alone tells nothing
    found: dict[str, set[str]] = {"from": set(), "to": set()}
    last = ""
    for token, keys in zip(part.tokens, part.keys, strict=True):
        if role_of(token.text):
            last = "to" if token.text == "into" else token.text
        elif last in found:
            found[last] |= keys
    return frozenset(found["from"]), frozenset(found["to"])


def _apart(sides: Sides) -> Sides:
    left, right = sides
    return left - right, right - left


def _crossed(one: Sides, other: Sides) -> bool:
    """Return whether what `_apart` gives of one is on the other sides of the other."""
    (a, b), (c, d) = one, _apart(other)
    return not (a.isdisjoint(d) or b.isdisjoint(c)) and a.isdisjoint(c)


def _is_said_of_another(part: Part, found: Sequence[Part], evidence: Evidence) -> bool:
    content = [at for at, keys in enumerate(part.keys) if keys]
    for group in _groups(part, content, evidence):
        said = part.keys[group[0]]
        rest = [part.keys[at] for at in content if at not in group]
        if len(rest) < _LEAST or not any(key in evidence.postings for key in said):
            continue  # what is invented is seen elsewhere
        there = [other for other in found if other.says(said)]
        if part.tokens[group[0]].value and any(
            all(token.value for token, keys in zip(other.tokens, other.keys, strict=True) if keys)
            for other in there
        ):
            continue  # values alone: "25 % from 60 minutes, and 50 % from 120 minutes"
        nearest = max((_share(rest, other) for other in there), default=0.0)
        others = (other for other in found if not other.says(said) and _share(rest, other) == 1)
        if nearest <= _LESS and any(_has_rival(part, group[0], other, evidence) for other in others):
            return True
    return False


def _share(keys: Sequence[frozenset[str]], other: Part) -> float:
    return sum(map(other.says, keys)) / len(keys)


def _groups(part: Part, content: Sequence[int], evidence: Evidence) -> Iterator[list[int]]:
    name: list[int] = []
    for at in content:
        value = part.tokens[at].value
        measured = bool(value and value.amount and value.amount.readings)
        if name and (part.text(at) in _PARTICLES or (value and not measured) or _is_name(part, at, evidence)):
            name.append(at)
            continue
        if name:
            yield name
            name = []
        if not part.keys[at].isdisjoint(_DAYS) or (measured and value and not value.ranged):
            yield [at]
        elif (at == content[0] or role_of(part.text(at - 1))) and _is_name(part, at, evidence):
            name = [at]
    if name:
        yield name
    if len(content) > _DOES and part.text(content[0] - 1) in _ARTICLES:  # who does it
        yield [content[0]]


def _is_name(part: Part, at: int, evidence: Evidence) -> bool:
    token = part.tokens[at]
    if not (token.written[:1].isupper() and token.stems) or part.text(at + 1) in _NO_VERB_AFTER:
        return False
    inside = at > 0 or (len(part.tokens) > 1 and part.tokens[1].written[:1].isupper())
    return inside or not evidence.names.isdisjoint(token.stems)


def _has_rival(part: Part, at: int, other: Part, evidence: Evidence) -> bool:
    if value := part.tokens[at].value:
        kinds = dimensions(value.keys)
        given = (token.value for token in other.tokens if token.value and not token.value.implied)
        return any(not kinds.isdisjoint(dimensions(each.covers)) for each in given)
    capitals = "".join(filter(str.isupper, part.tokens[at].written))
    if len(capitals) > 1 and capitals in "".join(word.text[:1] for word in other.tokens).upper():
        return False
    strange = [place for place, keys in enumerate(other.keys) if keys and keys.isdisjoint(part.all)]
    if not part.keys[at].isdisjoint(_DAYS):
        return any(not other.keys[place].isdisjoint(_DAYS) for place in strange)
    names = [
        place
        for place in strange
        if _is_name(other, place, evidence) and other.keys[place].isdisjoint(_TITLES)
    ]
    if role_of(part.text(at - 1)):
        return any(other.text(place - 1) == part.text(at - 1) for place in names)
    if not _is_name(part, at, evidence):
        doer = next(place for place, keys in enumerate(other.keys) if keys)
        return other.text(doer - 1) in _ARTICLES and not any(
            map(role_of, (word.text for word in part.tokens[:at]))
        )
    first = next((place for place, keys in enumerate(other.keys) if not keys.isdisjoint(part.all)), 0)
    passive = not _PASSIVE.isdisjoint(token.text for token in (*part.tokens, *other.tokens))
    return any(place < first or passive for place in names)


_REMARK_WORDS: Final = 2  # words of a remark
_PADDED: Final = 4.0  # cost of a part that nothing given has a word of, in a claim that is held but for it
_REMARK: Final = 1.0  # cost of a part, half of whose words or more nothing given has
_NAME: Final = re.compile(r"[^\W\d_][^\W\d_A-Z]{2,}(?:'s|')?(?:-[^\W\d_]+)*")


def cost_of_additions(atom: Atom, evidence: Evidence) -> float:
    """Return what it costs a claim to add what nothing given holds."""
    foreign, strange, held, count = False, False, True, 0
    for part in own_parts(atom):
        known = [evidence.knows(each) for each in part.keys if each and not each <= LIGHT]
        lacking = len(known) - sum(known)
        foreign = foreign or (lacking >= _REMARK_WORDS and not any(known))
        strange = strange or (lacking >= _REMARK_WORDS and lacking >= len(known) / 2)
        held = held and (all(known) or (lacking >= _REMARK_WORDS and not any(known)))
        count += sum(known)
    if foreign and held and count > _REMARK_WORDS:
        return _PADDED
    return _REMARK if strange else 0.0


def names_somebody_else(atom: Atom, evidence: Evidence) -> bool:
    """Return whether a claim gives a name that neither evidence nor question holds, nor the start of a word of it.

    No names: abbreviations, words of a title, and what is behind a colon, a bracket or a quotation mark.
    """
    names = {unit.start for unit in atom.units if unit.name and not evidence.recalls(unit.stem)}
    if not names:
        return False
    start, end = atom.units[0].start, atom.units[-1].start
    words = (token for token in atom.statement.tokens if token.stems and start <= token.start <= end)
    if all(token.written[:1].isupper() for token in words):
        return False
    tokens = atom.statement.tokens
    return any(
        token.start in names
        and _NAME.fullmatch(token.written) is not None
        and not (at and tokens[at - 1].mark and tokens[at - 1].text != ",")
        and not any(
            (beside.written[:1].isupper() and any(map(evidence.recalls, beside.stems)))
            for beside in (*tokens[max(0, at - 1) : at], *tokens[at + 1 : at + 2])
        )
        for at, token in enumerate(tokens)
    )
