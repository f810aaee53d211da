"""What a claim joins that its evidence keeps apart: names, things of one kind, an owner, an order, the word of "only".

All its words may be held, and in one place; what is wrong is what belongs to what.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from groundwire.checks.reading.adjuncts import AdjunctKind
from groundwire.checks.reading.statements import Statement
from groundwire.checks.reading.units import ValueToken
from groundwire.checks.support.atoms import LIGHT, Atom
from groundwire.checks.support.evidence import Evidence, Part, same
from groundwire.checks.support.roles import own_parts
from groundwire.text.clauses import FUNCTION_WORDS
from groundwire.text.stems import words_of
from groundwire.text.work import spend

_LOOKED: Final = 4  # sentences that hold most of a claim
_ALL: Final = 0.9  # of a claim, that one sentence has to hold lest it is joined of two
_MOST: Final = 0.6  # of a claim's words, that a sentence in another order has to hold
_TOLD: Final = 0.5  # of the words of an event, that a part with a date has to hold
_WITHIN: Final = 6  # hours, or months of no year, that two moments are apart at most
_MOMENTS: Final = frozenset(("date ", "clock"))
_DEED: Final = 2  # words of a deed
_OPENING: Final = 3  # words with which a part says who
_NOTHING: Final = frozenset[str]()
_PRONOUNS: Final = words_of("it its this that these those he she they his her their him them such both")
_DETERMINERS: Final = words_of("the a an his her its their our my your this that")


def joins_apart(atom: Atom, masks: Mapping[int, int], evidence: Evidence) -> bool:
    """Return whether a claim makes one of what the evidence tells apart."""
    start, end = atom.units[0].start, atom.units[-1].start
    own = [token for token in atom.statement.tokens if start <= token.start <= end or token.text == "only"]
    ranked = sorted(masks, key=lambda number: (-masks[number].bit_count(), number))[:_LOOKED]
    there = [evidence.sentences[number].statement for number in ranked]
    spend(len(own) + sum(len(other.tokens) for other in there))
    return (
        _mixes_names(own, evidence)
        or any(_moves_only(own, other.tokens) or _owned_by_another(own, other.tokens) for other in there)
        or _reverses(atom.statement, there)
        or _is_dated_otherwise(atom.statement, ranked, evidence)
        or _bridges(atom, masks, ranked, evidence)
        or _is_deed_of_another(atom, ranked, evidence)
    )


def _is_deed_of_another(atom: Atom, ranked: Iterable[int], evidence: Evidence) -> bool:
    """Return whether a later part of a claim, that names nobody, is said of somebody else than its first part names."""
    first, *others = own_parts(atom)
    names = _names(first, evidence)
    there = [part for number in ranked for part in evidence.parts(number)]
    joined = {two.start for one, two in pairwise(atom.statement.tokens) if one.text in {"and", ","}}
    for part in others if names else ():
        said = [keys for keys in part.keys if keys]
        if len(said) < _DEED or part.tokens[0].start not in joined or _names(part, evidence):
            continue
        held = [other for other in there if all(map(other.says, said))]
        if held and all(_names(other, evidence) and not other.says(names) for other in held):
            return True
    return False


def _names(part: Part, evidence: Evidence) -> frozenset[str]:
    """Return the names with which a part begins."""
    begin = [*zip(part.tokens, part.keys, strict=True)][:_OPENING]
    return _NOTHING.union(
        *(keys for token, keys in begin if _is_name(token) and evidence.names.issuperset(token.stems))
    )


def _is_name(token: ValueToken) -> bool:
    return token.written[:1].isupper() and bool(token.stems) and token.value is None


def _mixes_names(own: Sequence[ValueToken], evidence: Evidence) -> bool:
    """Return whether two words side by side are each of another name in the evidence: "Lars Berg"."""
    pairs = [(one, other) for one, other in pairwise(own) if _is_name(one) and _is_name(other)]
    return any(
        (first := one.stems[-1]) in evidence.neighbours
        and (last := other.stems[0]) in evidence.neighbours
        and last not in evidence.neighbours[first]
        and first not in evidence.neighbours[last]
        and not evidence.asks_together(first, last)
        for one, other in pairs
    )


def _moves_only(own: Sequence[ValueToken], there: Sequence[ValueToken]) -> bool:
    mine, theirs = _focus(own), _focus(there)
    if not (mine and theirs) or not mine.isdisjoint(theirs):
        return False
    held = _said(own)
    return not theirs.isdisjoint(held) and len(held & _said(there)) >= _ALL * len(held)


def _focus(tokens: Sequence[ValueToken]) -> frozenset[str]:
    """Return the word that "only" is about: the one behind it, or, at the end of a clause, the one before."""
    for at, token in enumerate(tokens):
        if token.text == "only" and not (at and tokens[at - 1].text in {"not", "the", "an"}):
            behind = next((one for one in tokens[at + 1 : at + 3] if one.stems or one.value), None)
            before = next((one for one in reversed(tokens[:at]) if one.stems or one.value), None)
            one = behind or before
            return same(one.stems) if one and one.stems else _NOTHING
    return _NOTHING


def _owned_by_another(own: Sequence[ValueToken], there: Sequence[ValueToken]) -> bool:
    """Return whether a claim gives to one name what a sentence gives to another: "Ann's house", "the house of Bea"."""
    mine, theirs = [*_owners(own)], [*_owners(there)]
    if not (mine and theirs):
        return False
    said = _said(there)
    return any(
        not thing.isdisjoint(other_thing)
        and not (owner <= other or other <= owner)
        and not owner.isdisjoint(said)
        and not any((owner <= one or one <= owner) and not thing.isdisjoint(two) for one, two in theirs)
        for owner, thing in mine
        for other, other_thing in theirs
    )


def _owners(tokens: Sequence[ValueToken]) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
    for at, token in enumerate(tokens):
        things = [one for one in tokens[at + 1 : at + 4] if one.stems]
        if _is_name(token) and token.text.endswith(("'s", "s'")):
            if things:
                yield _name_at(tokens, at, -1), same(things[0].stems)
                yield _name_at(tokens, at, -1), same(things[-1].stems)
        elif token.text == "of" and at and tokens[at - 1].stems:
            named = next(
                (place for place in range(at + 1, min(at + 3, len(tokens))) if _is_name(tokens[place])), 0
            )
            if named:
                yield _name_at(tokens, named, 1), same(tokens[at - 1].stems)


def _name_at(tokens: Sequence[ValueToken], at: int, step: int) -> frozenset[str]:
    found = _NOTHING
    while 0 <= at < len(tokens) and _is_name(tokens[at]):
        found |= same(tokens[at].stems)
        at += step
    return found


class _Order(NamedTuple):
    earlier: frozenset[str]
    later: frozenset[str]


def _reverses(own: Statement, there: Iterable[Statement]) -> bool:
    mine = _order(own)
    if mine is None:
        return False
    said = mine.earlier | mine.later
    for other in there:
        theirs = _order(other)
        if theirs is None or len(said & _said(other.tokens)) < _MOST * len(said):
            continue
        first, last = theirs.earlier - theirs.later, theirs.later - theirs.earlier
        if not mine.earlier.isdisjoint(last) and not (mine.later and mine.later.isdisjoint(first)):
            return True
    return False


def _is_dated_otherwise(own: Statement, ranked: Iterable[int], evidence: Evidence) -> bool:
    """Return whether the evidence gives what a claim calls earlier a later date or time: "08:31 paid", "08:57 sent"."""
    mine = _order(own)
    if mine is None:
        return False
    dated = [(part, when) for number in ranked for part in evidence.parts(number) if (when := _moment(part))]
    first = _when(mine.earlier - mine.later, dated)
    last = _when(mine.later - mine.earlier, dated)
    if first is None or last is None or first.kind != last.kind or first.fields <= last.fields:
        return False
    # past midnight, or new year, the earlier one has the larger number
    return first.has_year or first.fields[0] - last.fields[0] <= _WITHIN


class _Moment(NamedTuple):
    kind: str  # date or clock, and the fields that it gives; those of two kinds cannot be compared
    has_year: bool
    fields: tuple[int, ...]


def _when(event: frozenset[str], dated: Iterable[tuple[Part, _Moment]]) -> _Moment | None:
    """Return the moment of the part that holds most of an event's words; None where none holds half of them."""
    shares = [(len(event & part.all) / len(event), when) for part, when in dated] if event else []
    most = max((share for share, _ in shares), default=0.0)
    found = {when for share, when in shares if share == most >= _TOLD}
    return found.pop() if len(found) == 1 else None


def _moment(part: Part) -> _Moment | None:
    """Return the date or time of a part that gives one alone."""
    found = {key for token in part.tokens if token.value for key in token.value.keys if key[:5] in _MOMENTS}
    if len(found) != 1:
        return None
    kind, _, said = found.pop().partition(" ")
    fields = re.split(r"[.:]", said.lstrip("?"))
    given = "".join("x" if field else "-" for field in fields)
    has_year = kind == "date" and fields[0] != ""
    return _Moment(
        f"{kind} {given} {said[:1] == '?'}",
        has_year,
        tuple(int(field) for field in fields if field.isdecimal()),
    )


def _order(statement: Statement) -> _Order | None:
    """Return what a sentence says comes earlier and later: "A before B", "after A, B", "first A, then B"."""
    tokens, texts = statement.tokens, statement.texts
    for kind, link, words, main in statement.adjuncts:
        if kind not in {AdjunctKind.BEFORE, AdjunctKind.AFTER}:
            continue
        front = tokens[:link] if link else tokens[main.start : main.stop]
        one, other = _said(front), _said(tokens[words.start : words.stop])
        if one and other:
            late = kind is AdjunctKind.AFTER or (texts[link] == "until" and "not" in texts[:link])
            return _Order(other, one) if late else _Order(one, other)
    at = texts.index("first") if "first" in texts else -1
    if at == 0 or (at > 0 and texts[at - 1] not in _DETERMINERS):
        then = next(
            (place for place in range(at, len(texts)) if texts[place] in {"then", "next"}), len(texts)
        )
        return _Order(_said(tokens[:then]), _said(tokens[then + 1 :]))
    return None


def _said(tokens: Iterable[ValueToken]) -> frozenset[str]:
    return _NOTHING.union(
        *(same(token.stems) for token in tokens if token.stems),
        *(token.value.keys for token in tokens if token.value and not token.value.implied),
    )


def _bridges(atom: Atom, masks: Mapping[int, int], ranked: Sequence[int], evidence: Evidence) -> bool:
    """Return whether a claim is put together of two sentences that speak of two things of one kind.

    "Ann leads the red team" and "the blue team is in Bonn" do not say where Ann is.
    """
    weights = [unit.weight for unit in atom.units]
    total = sum(weights)

    def share(mask: int) -> float:
        return sum(weight for place, weight in enumerate(weights) if mask >> place & 1) / total

    if not ranked or share(masks[ranked[0]]) >= _ALL:
        return False
    best = ranked[0]
    spend(len(masks))
    for other in ranked[1:]:
        joined = masks[best] | masks[other]
        if share(joined) < _ALL or not masks[other] & ~masks[best]:
            continue
        one, two = (evidence.sentences[number].statement.tokens for number in (best, other))
        if _are_apart(one, two, _said(atom.statement.tokens)):
            return True
    return False


def _are_apart(one: Sequence[ValueToken], other: Sequence[ValueToken], claimed: frozenset[str]) -> bool:
    mine, theirs = _kinds(one), _kinds(other)
    shared = [kind for kind in mine if kind in theirs]
    names = {stem for token in one if _is_name(token) for stem in token.stems}
    linked = {stem for token in other if _is_name(token) for stem in token.stems} & names - {*shared}
    if linked or not _PRONOUNS.isdisjoint(token.text for token in other[:3]):
        return False
    return any(
        mine[kind].isdisjoint(theirs[kind]) and (mine[kind] | theirs[kind]).isdisjoint(claimed)
        for kind in shared
    )


def _kinds(tokens: Sequence[ValueToken]) -> dict[str, frozenset[str]]:
    """Return the stem of each word beside a name or a number, with that: "the red team", "gate 7"."""
    found: dict[str, frozenset[str]] = {}
    for one, two in pairwise(tokens):
        for token, beside in ((one, two), (two, one)):
            if token.stems and token.text not in FUNCTION_WORDS and not token.value:
                number = beside is two and beside.value is not None and not beside.value.implied
                if number or (_is_name(beside) and (beside is one or _is_name(token))):
                    said = beside.value.keys if beside.value else frozenset(beside.stems)
                    stem = token.stems[-1]
                    if stem not in LIGHT:
                        found[stem] = found.get(stem, _NOTHING) | said
    return found
