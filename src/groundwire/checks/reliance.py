"""Whether a claim rests on what it cites, or denies it, contradicts it, strikes it out or only names it. English only.

The words of the citation's clause that lead to it, and those that follow it, decide: "not kept in memory, see ADR-003"
rests on it, and "not mentioned in ADR-003" does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile
from typing import Final

from groundwire.text.lists import words_in
from groundwire.text.normalise import nfkc
from groundwire.text.stems import stem, words_of

DENIED: Final = "denied or set against"
"""Why such a citation gives no credit."""
UNLED: Final = "no word leads to it"
"""Why an ADR that a text names without resting on it gives no credit."""


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


_WORD: Final = re.compile(r"[^\W\d_]+(?:['\u2019-][^\W\d_]+)*|\d+|[^\w\s]|\n[^\S\n]*\n")
_BOUNDARY: Final = frozenset(',;:.!?()[]{}"\u201c\u201d\u2014\u2013')
_MARKS: Final = frozenset(")]\"'\u201c\u201d*`")  # of links, quotations and emphasis around a citation
_WINDOW: Final = 120  # characters on each side, more where they are mostly blank
_FAR: Final = 4_096  # a citation so far from every word gives no credit
_STEPS: Final = 8  # words on each side

_BE: Final = words_of("is are was were be been being am remains remained stays became got")
_NOUNS: Final = words_in(__package__, "nouns")
_PREPOSITIONS: Final = words_in(__package__, "prepositions")
_GOVERNED: Final = [[word] for word in sorted(_PREPOSITIONS | {"see"})]
_LIGHT: Final = _BE | words_in(__package__, "light")
# What a source does, and what is done with one: a denial of it denies the source.
_SAYS: Final = _stems(
    "say said state mention document describe cover contain list specify discuss find found record define decide "
    "support back follow match comply conform agree reflect implement apply adopt accept approve base basis rest "
    "ground rely write wrote written exist hold held stand stood trace evidence lay set prove confirm applies "
    "complies relies seen heard trust heed obey use take took read know consult open understand"
)
_PASSED: Final = _LIGHT | _NOUNS | {"to", "be", "about", "something", "anything"}
_NOT: Final = words_in(__package__, "not")
# Prepositions may be between: "contrary to what is said in".
_AGAINST: Final = _stems(
    "unlike contrary contrast spite versus vs contradict oppose conflict differ deviate depart disagree instead "
    "rather regardless irrespective odds prior violate breach defiance disregard except compared opposed false untrue "
    "wrong incorrect forget away hell tired sick fed bored stop quit cease universe dream fantasy joke"
)
# None may: "superseded by ADR-003" rests on it, "supersedes ADR-003" does not.
_DIRECTLY_AGAINST: Final = _stems(
    "despite notwithstanding without before until pending unless if whether except besides outside supersede replace "
    "deprecate revoke withdraw repeal reject retract override overrule ignore bypass bypasses predate whatever "
    "although though once break broke broken flout defy defies distrust dispute doubt infringe circumvent sidestep "
    "evade undermine undo undid reverse dismiss skip challenge supposed supposedly alleged allegedly hypothetical "
    "so-called made-up would-be over ditch drop scrap abandon leave left quit screw damn hate mock whereas while"
)
# What is still to be written: "Open: write ADR-003".
_TO_WRITE: Final = words_of("write create propose prepare finish author submit")
_WRITING: Final = [[word] for word in sorted(_TO_WRITE)]
_OPEN: Final = words_of("open todo next planned pending draft proposal idea backlog missing wanted")
_FORBIDS: Final = _stems("forbid forbids prohibit ban disallow outlaw exclude veto")
_DEMANDS: Final = _stems("demand require want ask say prescribe mandate call forbid expect")

# "against" alone is none: a design is checked against a decision.
_ONLY_BEHIND: Final = {
    "against": _stems("go goes went vote voted decide decided argue argued run ran act acted stand stood"),
    "place": _stems("in"),
}
"""Words that deny only behind others: "went against", "in place of"."""
_VOID: Final = _stems(
    "superseded replaced deprecated revoked withdrawn repealed rejected retracted overruled reverted retired "
    "abandoned obsolete outdated void missing wrong false incorrect draft proposed pending unwritten fictional gone "
    "invalid nonexistent dead lost unknown unrelated irrelevant inapplicable fake bogus imaginary invented myth hoax "
    "joke fiction stale expired damned cursed ignored overridden unread"
)
_COUNTERS: Final = _stems(
    "contradict disagree conflict notwithstanding aside predate omit ignore typo else mistake talk lost "
    "fail expired suck"
)
_YET: Final = words_of("yet remains remain")
_OTHERWISE: Final = _stems("otherwise opposite nothing contrary differently")
_SUBJECTS: Final = words_of("this that these those it there")  # behind a citation: of a clause of their own
_RELATIVE: Final = words_of("which that who now since")


_WEAK: Final = words_of("about to for from over than beyond past around without like")
_BEFORE_WEAK: Final = words_of(
    "thanks due owing according refer refers back up down link links linked point points adheres adhere adherence "
    "conforms pursuant respect note notes based derived taken comes follows"
)
"""Prepositions that lead to a citation only behind some words: "thanks to", "as opposed to" hardly."""
_LEADING: Final = words_in(__package__, "leading")
_LEADING_STEMS: Final = _SAYS | _AGAINST | _DIRECTLY_AGAINST | _VOID | _COUNTERS


def denied(text: str, start: int, end: int, *, led: bool = False) -> str:
    """Return `DENIED` where a text denies what it cites, or sets itself against it; else an empty text.

    With `led` also `UNLED`, where no word leads to the citation: "we outgrew ADR-003", "nobody cares about ADR-003".
    """
    reach = _WINDOW  # blanks push no word out of it
    while reach < min(start, _FAR) and _blank(text[start - reach : start]):
        reach *= 2
    before = [*dropwhile(_MARKS.__contains__, _words(text[max(0, start - reach) : start])[::-1])]
    width = _WINDOW
    while width < min(len(text) - end, _FAR) and _blank(text[end : end + width]):
        width *= 2
    behind = [*dropwhile(_MARKS.__contains__, _words(text[end : end + width]))]
    if not (before or behind) and max(start, len(text) - end) >= _FAR:
        return DENIED
    if _is_denied(before, behind):
        return DENIED
    apart = text[max(0, start - 2) : start].isspace()
    return UNLED if led and not apart and not _is_led(before, behind) else ""


def _is_denied(before: Sequence[str], behind: Sequence[str]) -> bool:
    if _leads_against(before) or before[:1] in _WRITING or (behind[:1] == ["?"] and len(behind) > 1):
        return True
    said = stem(behind[0]) if behind else ""
    if said in _FORBIDS and (before or any(word in ".!?;" for word in behind[:-1])):
        return True  # "we use it, which ADR-003 forbids"
    if before[:1] == ["where"] and said in _DEMANDS:
        return True
    if behind[:1] in ([","], ["("]):
        return len(behind) > 1 and (
            stem(behind[1]) in _VOID or (behind[1] in _RELATIVE and _is_denial(behind[2:]))
        )
    # "had it been accepted"
    return before[:1] not in _GOVERNED and (behind[:1] == ["been"] or _is_denial(behind))


def _is_led(before: Sequence[str], behind: Sequence[str]) -> bool:
    word, earlier = [*before, "", ""][:2]
    if not earlier.isalpha() and stem("".join(behind[:1])) in _SAYS:
        return True  # "perhaps ADR-003 says more"
    if word in _WEAK:
        return not earlier.isalpha() or leads(earlier) or earlier in _BEFORE_WEAK
    return not word.isalpha() or word in _ONLY_BEHIND or leads(word)


def leads(word: str) -> bool:
    """Return whether a word in front of a citation leads to it, rather than naming whose it is."""
    word = word.lower()
    return (
        word in _NOUNS
        or word in _PREPOSITIONS
        or word in _LIGHT
        or word in _LEADING
        or word.endswith(("ing", "ed", "ly"))
        or _negates(word)
        or stem(word) in _LEADING_STEMS
    )


def _blank(text: str) -> bool:
    return len("".join(text.split())) < _WINDOW // 2


def _words(text: str) -> list[str]:
    return [word.lower().replace("\u2019", "'") for word in _WORD.findall(nfkc(text))]


def _negates(word: str) -> bool:
    return word in _NOT or word.endswith("n't")


def _leads_against(words: Sequence[str]) -> bool:
    direct = True
    for word, earlier in zip(words[:_STEPS], [*words[1 : _STEPS + 1], ""], strict=False):
        if word in _ONLY_BEHIND:
            return stem(earlier) in _ONLY_BEHIND[word]
        if word in _BOUNDARY or not word[0].isalpha():
            return word in {":", ")", "]"} and earlier in _OPEN
        if _negates(word) or stem(word) in _AGAINST:
            return True
        if direct and (stem(word) in _DIRECTLY_AGAINST or stem(word) in _VOID):
            return True
        if not (word in _NOUNS or word in _PREPOSITIONS or word in _LIGHT or stem(word) in _SAYS):
            return False
        direct = direct and word not in _PREPOSITIONS
    return False


def _is_denial(words: Sequence[str]) -> bool:
    is_ = negated = says = False
    for earlier, word in zip(("", *words), words[:_STEPS], strict=False):
        base = stem(word)
        if word == "to" and earlier in _YET:  # "yet to be written"
            is_ = negated = True
        if (
            base in _COUNTERS
            or (base in _OTHERWISE and (says or earlier == "has"))
            or (base == "silent" and is_)
        ):
            return True
        if base in _VOID and is_:
            return not negated
        if base in _SAYS:
            if negated:
                return True
            says = True
        elif _negates(word):
            negated = True
            is_ = is_ or word.removesuffix("n't") in _BE
        elif word in _BE:
            is_ = True
        elif (word in _SUBJECTS and not says) or word not in _PASSED:
            break
    return is_ and negated
