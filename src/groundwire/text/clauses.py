"""The parts of an English clause that comparing claims needs: where its verb is, and what each word is to it.

No parser: a few small tables of function words and the endings of the others. The verb splits a claim into what it is
about (before) and what it says of that (behind). Where no verb is found, a claim says everything of nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from groundwire.text.lists import words_in
from groundwire.text.stems import CARDINALS, uninflected, words_of
from groundwire.text.tokens import per_token

BE: Final = words_of("is are was were be been being am isn't aren't wasn't weren't it's")
AUXILIARIES: Final = BE | words_in(__package__, "auxiliaries")
_DETERMINERS: Final = words_in(__package__, "determiners")
_SUBJECTS: Final = words_in(__package__, "subjects")
_PREPOSITION_TABLE: Final = """
in on at to from by for with of into onto over under above below between among through across during since until till
against about as per via within without behind beside near inside outside upon after before than like towards instead
along around beyond despite except
"""
_PREPOSITIONS: Final = _PREPOSITION_TABLE.split()
ADVERBS: Final = words_in(__package__, "adverbs")
_JOINING: Final = words_in(__package__, "joining")
_PRONOUNS: Final = words_in(__package__, "pronouns")
_OTHERS: Final = words_of("up down off out back away done doing having would've there's that's let's let yes")
FUNCTION_WORDS: Final = frozenset(
    (*AUXILIARIES, *_DETERMINERS, *_SUBJECTS, *_PREPOSITIONS, *ADVERBS, *_JOINING, *_PRONOUNS, *_OTHERS)
) - {"inside", "outside", "before", "after"}
_RELATIVE: Final = frozenset(("which", "who", "that"))
_BETWEEN: Final = ADVERBS | {"no"}
_OPENERS: Final = frozenset((*_DETERMINERS, *_PREPOSITIONS, *_SUBJECTS, *_PRONOUNS, *ADVERBS))
_NO_SUBJECT: Final = frozenset((*_DETERMINERS, *_PREPOSITIONS, *_PRONOUNS, *_JOINING))
_NO_VERB_BEFORE: Final = AUXILIARIES | {"of", "which", "who", "that"}
_PLAIN_VERBS: Final = words_of("become begin belong come get go keep live sit take")  # hardly ever nouns
_ROLES: Final = {word: number for number, word in enumerate(_PREPOSITIONS, start=8)}
_TURNING: Final = _DETERMINERS | _ROLES.keys()  # from which words on the role may be another one

# Past forms that have no "-ed", then the verb.
_IRREGULAR_TABLE: Final = """
kept keep; bought buy; sold sell; ran run; run run; went go; gone go; made make; took take; taken take; gave give;
given give; got get; came come; saw see; seen see; knew know; known know; left leave; met meet; began begin;
wrote write; written write; built build; held hold; sent send; told tell; said say; paid pay; lost lose; won win;
found find; stood stand; sat sit; lay lie; led lead; grew grow; grown grow; fell fall; fallen fall; rose rise; risen
rise; spoke speak; spoken speak; chose choose; chosen choose; drew draw; drawn draw; drove drive; driven drive; ate
eat; eaten eat; became become; brought bring; caught catch; taught teach; thought think; felt feel; meant mean; spent
spend; lent lend; threw throw; thrown throw; broke break; broken break; hid hide; hidden hide; wore wear; worn wear;
shown show; hung hang; shot shoot; slept sleep; swam swim; sang sing; sung sing; sank sink; set set; put put; cut cut;
born bear; forbade forbid; forbidden forbid; upheld uphold; withdrew withdraw; withdrawn withdraw; forgot forget;
forgotten forget; overthrew overthrow; undid undo; undone undo; withheld withhold; overcame overcome;
rang ring; shut shut; cost cost; read read; beat beat; split split; died die; lies lie; dying die; lying lie
"""
_IRREGULAR: Final[dict[str, str]] = dict(pair.split() for pair in _IRREGULAR_TABLE.split(";"))


class WordRole(IntEnum):
    """What a word is to its verb; higher numbers are those of prepositions."""

    SUBJECT = 1
    VERB = 2
    OBJECT = 3


class Clause(NamedTuple):
    """Roles of the tokens of a claim: what is behind a preposition has the preposition's, an owner that of "of"."""

    verb: int  # place of the verb or auxiliary; 0 where none was found
    roles: list[int]
    owners: Sequence[int] = ()  # places of the words that name an owner, as in "the pump's limit"


def role_of(preposition: str) -> int:
    """Return the role of what follows a preposition; 0 for other words."""
    return _ROLES.get(preposition, 0)


@per_token
def stem_of(token: str) -> str:
    """Return what the forms of a word have in common: "keep" of "kept", "invoic" of "invoices"."""
    bare = token.removesuffix("'s").rstrip("'")
    return uninflected(_IRREGULAR.get(bare, bare))


def forms_of(verb: str) -> list[str]:
    """Return a word in its base form, and its past forms that have no "-ed"."""
    return [verb, *(past for past, base in _IRREGULAR.items() if base == verb != past)]


def read_clause(
    tokens: Sequence[str],
    first: int,
    names: Collection[str],
    states: Collection[int] = (),
    *,
    behind: int = 0,
    verb: int = 0,
) -> Clause:
    """Read a clause; its verb is at `verb` where that is known, else looked for from the place `behind` on."""
    if not verb and (found := _verb_place(tokens[behind:first], names)):
        verb = behind + found
    roles: list[int] = []
    role: int = WordRole.SUBJECT
    turns = [place for place, token in enumerate(tokens) if token in _TURNING]
    for place in sorted({verb, first, *turns}):
        if place >= len(tokens):
            break
        roles += [role] * (place - len(roles))
        token = tokens[place]
        if place == verb and (place or token in AUXILIARIES):
            role = WordRole.OBJECT
            roles.append(WordRole.VERB)
            continue
        if place == first:
            role = WordRole.OBJECT
        if token in _ROLES:
            counted = token in _BOUNDS and not "".join(tokens[place + 1 : place + 2]).isalpha()
            role = role if counted else _ROLES[token]
        elif token in _DETERMINERS and role >= _FIRST_PREPOSITION and tokens[place - 1] not in _ROLES:
            if place < verb:
                role = WordRole.SUBJECT  # "in Graz the choir"
            elif token in EACH and place > verb:
                role = WordRole.OBJECT  # "by the nurse every morning"
    roles += [role] * (len(tokens) - len(roles))
    owners: list[int] = []
    for place, token in enumerate(tokens) if "'s" in " ".join(tokens) else ():  # as hardly ever
        if token.endswith("'s") and token not in FUNCTION_WORDS:
            start = place
            while start and start - 1 != verb and tokens[start - 1] not in FUNCTION_WORDS:
                start -= 1
            owners += range(max(start, owners[-1] + 1 if owners else 0), place + 1)
    for place in owners:
        roles[place] = _ROLES["of"]
    participle = participle_at(tokens, verb)
    if participle and (participle not in states or "by" in tokens[participle:]):
        roles = [_IN_ACTIVE.get(role, role) for role in roles]
        roles[participle] = WordRole.VERB
    return Clause(verb, roles, owners)


_FIRST_PREPOSITION: Final = 8
EACH: Final = frozenset(("every", "each"))
_BOUNDS: Final = frozenset(("over", "under", "above", "below", "than"))  # in front of a number
_IN_ACTIVE: Final[dict[int, int]] = {WordRole.SUBJECT: WordRole.OBJECT, _ROLES["by"]: WordRole.SUBJECT}
"""Roles in a passive clause -> the same words' in an active one."""


def participle_at(tokens: Sequence[str], verb: int) -> int:
    """Return the place of the participle behind a form of "be", or 0: "is kept", "was not yet removed"."""
    if verb >= len(tokens) or tokens[verb] not in AUXILIARIES:
        return 0
    be = tokens[verb] in BE
    for place in range(verb + 1, min(verb + 5, len(tokens))):
        token = tokens[place]
        if token in BE:
            be = True
        elif token not in _BETWEEN:
            return place if be and is_past(token) else 0
    return 0


def _verb_place(tokens: Sequence[str], names: Collection[str]) -> int:
    relative = False
    before = 0
    for place, token in enumerate(tokens):
        trait, leads = _trait(token), before & _LEADS
        before = trait
        if not (trait & _VERBAL or leads):  # as most
            continue
        if relative and is_past(token):
            relative = False
        elif token in _RELATIVE and place and tokens[place - 1] not in FUNCTION_WORDS:
            relative = True
        elif token in AUXILIARIES or (place and _is_verb(tokens, place, names)):
            if not relative:
                return place
            relative = False
    return 0


def _is_verb(tokens: Sequence[str], place: int, names: Collection[str]) -> bool:
    token, back = tokens[place], place - 1
    if token in FUNCTION_WORDS or not token.isalpha():
        return False
    while back > 0 and tokens[back] in _BETWEEN:
        back -= 1
    before, follower = tokens[back], tokens[place + 1] if place + 1 < len(tokens) else ""
    if before in _NO_SUBJECT:
        return False
    if before in _SUBJECTS:
        return True
    if token in _PLAIN_VERBS and _is_third_person(before):
        return True  # "feature flags come from"
    if follower in _NO_VERB_BEFORE or follower in _PLAIN_VERBS:
        return False
    past, third_person = is_past(token), _is_third_person(token)
    if before in CARDINALS or not before.isalpha():
        # "ticket 310 blocks the release", but "6 bottles", "of 30 days in"
        named = back > 0 and tokens[back - 1] not in _NO_SUBJECT
        return bool(follower) and named and (past or third_person) and _opens(follower, names)
    plural = _is_third_person(before) and (before not in names or not back)
    return third_person or ((past or plural) and _opens(follower, names))


def _opens(follower: str, names: Collection[str]) -> bool:
    if follower in _OPENERS or follower in names or follower in CARDINALS:
        return True
    return follower.endswith("ing") or not follower.isalpha()


def is_past(token: str) -> bool:
    """Return whether a word may be a verb in the past, or its participle."""
    return token in _IRREGULAR or (token.endswith("ed") and len(token) > 4)


def _is_third_person(token: str) -> bool:
    return token.endswith("s") and len(token) > 3 and not token.endswith(("ss", "us", "is", "'s"))


# What `_verb_place` asks of a token, as bits: it has the form of a verb or bears on a relative clause; or the word
# behind it may be a verb that has none.
_VERBAL: Final = 1
_LEADS: Final = 2
_WITHOUT_FORM: Final = _SUBJECTS | _BETWEEN  # behind these


@per_token
def _trait(token: str) -> int:
    plural = _is_third_person(token)
    verbal = plural or is_past(token) or token in AUXILIARIES or token in _RELATIVE
    return verbal * _VERBAL + (plural or token in _WITHOUT_FORM) * _LEADS
