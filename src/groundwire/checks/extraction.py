"""Claims of an answer: the sentences that state something and can be read alone (X-15). English only.

Each goes through the claim gate as a claim of its own, so a sentence is rather left out than made up: no text is joined
or rephrased. Hedged sentences stay: the claim gate sends them to review or blocks them (S2-21, S2-22).
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from groundwire.checks.marks import Citable, without_marks
from groundwire.text.lists import words_in
from groundwire.text.normalise import tidy
from groundwire.text.refusals import tells_no_answer
from groundwire.text.sentences import sentences
from groundwire.text.stems import words_of
from groundwire.text.tokens import tokenize

LONGEST: Final = 1_000
"""Characters of a claim; a longer sentence is left out."""
SHORTEST: Final = 3
"""Words of a claim; a sentence of fewer is left out."""

_QUOTED: Final = re.compile(r"(?:> ?)+|\[[ xX]\] ")
_CODE: Final = re.compile(r"(`[^`]*`)")
_EMPHASIS: Final = re.compile(
    r"\*\*|~~|(?<![\w*])\*(?=[^\s*])|(?<=[^\s*])\*(?![\w*])|"
    r"(?<![\w_])_{1,2}(?=[^\W_][^_]{0,300}_)|(?<=[^\s_])_{1,2}(?!\w)"
)
_SPACE_BEFORE: Final = re.compile(r" (?=[.,;!?](?:\s|$))")
_CLOSERS: Final = "\"'\u201d\u2019)*_` "
_WORD: Final = re.compile(r"[^\W_][\w'-]*")

_META: Final = re.compile(
    r"(?:here(?:'s| is| are| comes)|below (?:is|are)|the following\b|sure\b|certainly\b|absolutely\b|of course\b|"
    r"hello\b|hi\b|hey\b|dear\b|thanks\b|thank you|great question|good question|"
    r"i hope|i'm sorry|i am sorry|i apologi[sz]e|sorry\b|i'd be happy|i would be happy|i'll\b|i will\b|i can help|"
    r"as an ai\b|let me\b|let's|let us|feel free|if you (?:have|need|want|would like)\b|do let me|"
    r"in this (?:answer|response)|this (?:answer|response)\b|the (?:answer|response) (?:below|above))",
    re.IGNORECASE,
)
_PRONOUNS: Final = words_of("it it's its they they're their he she his her him them")
_POINTERS: Final = words_of("this that these those such")
_AUXILIARIES: Final = words_in(__package__, "auxiliaries")
_NO_VERBS: Final = words_in(__package__, "no_verbs")
_BEFORE_NOUNS: Final = words_in(__package__, "before_nouns")
_COMMON_VERBS: Final = words_in(__package__, "common_verbs")
_COMMANDS: Final = words_in(__package__, "commands")


def extract_claims(answer: str, limit: int, citable: Citable | None = None) -> list[str]:
    """Return the claims of an answer, in text order, each once (X-15, S2-21, S2-22).

    Claims are as written, without marks of citation, list markers, emphasis and superfluous white space. Extracting
    from the claims, one a paragraph, gives the claims again.
    """
    claims: list[str] = []
    seen: set[str] = set()
    for span in sentences(without_marks(answer, citable)):
        if len(claims) >= limit:
            break
        if span.code or len(span.text) > 2 * LONGEST or span.text.startswith(("#", "|")):
            continue
        claim = _clean(span.text)
        same = " ".join(tokenize(claim))
        if same not in seen and _is_claim(claim):
            seen.add(same)
            claims.append(claim)
    return claims


def _clean(sentence: str) -> str:
    text = _QUOTED.sub("", tidy(sentence), count=1) if sentence.startswith((">", "[")) else tidy(sentence)
    pieces = _CODE.split(text)
    pieces[::2] = [_EMPHASIS.sub("", piece) for piece in pieces[::2]]
    return _SPACE_BEFORE.sub("", tidy("".join(pieces)))


def _is_claim(text: str) -> bool:
    if len(text) > LONGEST or text.rstrip(_CLOSERS)[-1:] in {"?", ":", ""}:
        return False
    if _clean(text) != text or [span.text for span in sentences(text)] != [text]:
        return False  # under its markup is another: a heading, a list
    if text.startswith(("#", "|")) or _META.match(text.lstrip("\"'(")) or tells_no_answer(text):
        return False
    words = [word.lower() for word in _WORD.findall(_CODE.sub(" x ", text))]
    return (
        len(words) >= SHORTEST
        and not (words[0] in _PRONOUNS or (words[0] in _POINTERS and _may_be_verb(words[1])))
        and not (words[0] in _COMMANDS and words[1] not in _AUXILIARIES)
        and any(_may_be_verb(word) and before not in _BEFORE_NOUNS for before, word in pairwise(words))
    )


def _may_be_verb(word: str) -> bool:
    if word in _AUXILIARIES or word in _COMMON_VERBS:
        return True
    ending = word.endswith(("ed", "s")) and not word.endswith(("ss", "us", "'s", "is"))
    return len(word) > 3 and ending and word not in _NO_VERBS
