"""Negations of a claim, in the one form in which claims are compared (S0-121).

English only. What reverses a statement word by word (not, never, un-, -less, "fails to") is a negation;
pairs of opposites ("allows" and "blocks", "all" and "some") are not.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from groundwire.checks.tokens import PerToken

if TYPE_CHECKING:
    from collections.abc import Sequence

FULL: Final = "not"
WEAK: Final = "rarely"

_FULL_LIST: Final = """
not no never none neither nor nothing nobody nowhere noone without w/o cannot unless except excluding excludes
excluded exclude lack lacks lacked lacking false
dont doesnt didnt isnt arent wasnt werent wont cant couldnt shouldnt wouldnt mustnt neednt hasnt havent hadnt
disable disables disabled disabling disallow disallows disallowed disconnected invalid inactive incorrect
incompatible inconsistent insecure incomplete inaccessible impossible immutable irreversible irrelevant
inaccurate insufficient != !== ≠ ¬
"""
_BEFORE_TO_LIST: Final = "fail fails failed failing refuse refuses refused refusing decline declines declined"
_FULL_WORDS: Final = frozenset(_FULL_LIST.split())
_BEFORE_TO: Final = frozenset(_BEFORE_TO_LIST.split())
_WEAK_WORDS: Final = frozenset(("hardly", "barely", "scarcely", "rarely", "seldom"))
# un- but not under, until, unit, union, unique, unify, Unix; non- but not nonce; -less but not regardless.
_AFFIX: Final = re.compile(
    r"un(?!der|til|to$|it|ion|iq|if[ioy]|ivers|ix|ic[oa]|ison|ilateral|ary|cle|ctuous)[a-z-]{3,}$"
    r"|non(?!e$|etheless|ce|sens)[a-z-]{3,}$"
    r"|(?!regard|neverthe|nonethe|wire|harm|blame)[a-z]{3,}less(?:ly|ness)?$"
)
_JOINED: Final = re.compile(r"[-_/]")


def negations(tokens: Sequence[str]) -> list[str]:
    """Return `FULL` or `WEAK` for each negation among the tokens of a claim, in text order.

    Args:
        tokens: From `groundwire.checks.tokens.tokenize`.
    """
    found: list[str] = []
    for place, (token, negated) in enumerate(zip(tokens, _OF_TOKENS.of(tokens), strict=True)):
        if negated:
            found += negated
        elif token in _BEFORE_TO and tokens[place + 1 : place + 2] == ["to"]:
            found.append(FULL)
    return found


def may_negate(token: str) -> bool:
    """Tell whether a token can be a negation, or begin one: `negations` finds none among others."""
    return token in _BEFORE_TO or bool(_OF_TOKENS[token])


def _of_token(token: str) -> tuple[str, ...]:
    if token in _FULL_WORDS or token.endswith("n't"):
        return (FULL,)
    if token in _WEAK_WORDS:
        return (WEAK,)
    if token[0] == "!":  # "!ready"
        return (FULL,)
    if _AFFIX.match(token):
        return (FULL,)
    parts = _JOINED.split(token)
    if len(parts) == 1:
        return ()
    return tuple(FULL for part in parts if part in {"non", "un"} or part in _FULL_WORDS)


_OF_TOKENS: Final = PerToken(_of_token, 1 << 14)
