"""What a claim adds to what its evidence holds: a remark, an item of a list, a reason, a name, a deed of somebody."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from groundwire.checks.support.atoms import LIGHT, Atom
from groundwire.checks.support.evidence import Evidence
from groundwire.checks.support.roles import own_parts
from groundwire.checks.values.units import ValueToken
from groundwire.text.stems import words_of

_LEAST: Final = 2  # words of a remark
_PADDED: Final = 4.0  # cost of a part that nothing given has a word of, in a claim that is held but for it
_REMARK: Final = (
    1.0  # cost of a part, half of whose words or more nothing given has; of a reason that nothing has
)
_ITEM: Final = 2.0  # cost of an item that nothing given has, in a list that it has otherwise
_ITEMS: Final = 2  # other items of such a list
_UNATTACHED: Final = 1.0  # cost of somebody's deed that only sentences about others have
_HALF: Final = 0.5  # of the deed's words
_NAME: Final = re.compile(r"[^\W\d_][^\W\d_A-Z]{2,}(?:'s|')?(?:-[^\W\d_]+)*")
_REASONS: Final = words_of("because since due owing thanks")
_JOINTS: Final = words_of(", and or")


def cost_of_additions(atom: Atom, masks: Mapping[int, int], evidence: Evidence) -> float:
    """Return what it costs a claim to add what nothing given holds, or to add up what nothing given joins."""
    cost = _UNATTACHED if _is_unattached(atom, masks, evidence) else 0.0
    foreign, strange, held, count = False, False, True, 0
    for part in own_parts(atom):
        known = _known(part.keys, evidence)
        lacking = len(known) - sum(known)
        foreign = foreign or (lacking >= _LEAST and not any(known))
        strange = strange or (lacking >= _LEAST and lacking >= len(known) / 2)
        held = held and (all(known) or (lacking >= _LEAST and not any(known)))
        count += sum(known)
    if foreign and held and count > _LEAST:
        return cost + _PADDED
    return cost + (
        _REMARK if strange or _gives_reason(atom, evidence) else _ITEM * _adds_item(atom, evidence)
    )


def _known(keys: Sequence[frozenset[str]], evidence: Evidence) -> list[bool]:
    return [evidence.knows(each) for each in keys if each and not each <= LIGHT]


def _gives_reason(atom: Atom, evidence: Evidence) -> bool:
    tokens = [token for token in atom.statement.tokens if token.start <= atom.units[-1].start]
    at = next((at for at, token in enumerate(tokens) if token.text in _REASONS), len(tokens))
    behind = {token.start for token in tokens[at + 1 :]}
    reason = [unit for unit in atom.units if unit.start in behind and unit.stem not in LIGHT]
    return bool(reason) and not any(evidence.knows(unit.keys) for unit in reason)


def _adds_item(atom: Atom, evidence: Evidence) -> bool:
    lacking = [unit for unit in atom.units if unit.stem not in LIGHT and not evidence.knows(unit.keys)]
    if len(lacking) != 1 or lacking[0].value:
        return False
    tokens = atom.statement.tokens
    items = [at for at, token in enumerate(tokens) if token.stems and _is_item(tokens, at)]
    return len(items) > _ITEMS and any(tokens[at].start == lacking[0].start for at in items)


def _is_item(tokens: Sequence[ValueToken], at: int) -> bool:
    before, behind = tokens[at - 1].text if at else "", tokens[at + 1].text if at + 1 < len(tokens) else "."
    return before in _JOINTS and (behind in _JOINTS or behind == ".")


def _is_unattached(atom: Atom, masks: Mapping[int, int], evidence: Evidence) -> bool:
    name = _first_name(atom, evidence)
    rest = sum(1 << at for at, unit in enumerate(atom.units) if at >= name and unit.stem not in LIGHT)
    if not name or not rest:
        return False
    own = (1 << name) - 1
    full = max(((mask & own).bit_count() for mask in masks.values()), default=0)
    there = [number for number, mask in masks.items() if full and (mask & own).bit_count() == full]
    if not there or any(
        masks.get(near, 0) & rest for number in there for near in (number - 1, number, number + 1)
    ):
        return False
    return any((mask & rest).bit_count() >= _HALF * rest.bit_count() for mask in masks.values())


def _first_name(atom: Atom, evidence: Evidence) -> int:
    written = {token.start: token.written for token in atom.statement.tokens}
    count = 0
    for unit in atom.units:
        if not written.get(unit.start, "")[:1].isupper() or not unit.stem or unit.stem not in evidence.names:
            break
        count += 1
    return count


def names_somebody_else(atom: Atom, evidence: Evidence) -> bool:
    """Tell whether a claim gives a name that neither evidence nor question holds, nor the start of a word of it.

    No names: abbreviations, words of a title, and what stands behind a colon, a bracket or a quotation mark.
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
