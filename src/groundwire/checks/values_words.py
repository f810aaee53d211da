"""The words by which a value is told from another: lower case, lightly stemmed, no function words.

English only. Stems are cut at six letters, so that "configure", "configured" and "configuration" are one word;
that some different words fall together costs little, as several words decide.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_PART: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STEM: Final = 6  # letters
_FUNCTION_WORDS: Final = frozenset(
    """
    a an the this that these those it its itself they them their he him his she her hers we us our you your i me my
    who whom whose which what when where why how there here
    is are was were be been being am isn't aren't wasn't weren't do does did done doing has have had having
    will would shall should can could may might must ought
    of in on at by for with from to into onto over under above below between among across through during before after
    since until till against about as per via within without than then up down out off
    and or but nor so yet if unless while whereas although though because however also too both either neither
    not no never none nothing cannot n't don't doesn't didn't won't can't couldn't shouldn't wouldn't hasn't haven't
    hadn't more most less least fewer such each every any all some other another same own very just only even still
    again once
    set sets equal equals value values approximately roughly around exactly total e.g i.e etc
    """.split()
)
_ENDINGS: Final = ("ingly", "edly", "ings", "ied", "ies", "ing", "ed", "es", "ly", "s", "e", "y")


def content_words(word: str) -> tuple[str, ...]:
    """Return the stems that a word or an identifier holds: `connectTimeout_ms` has three.

    Args:
        word: As written; case tells where the parts of an identifier begin.
    """
    return _content_words(word) if len(word) <= 64 else _uncached(word[:256])


def is_function_word(word: str) -> bool:
    """Tell whether a word, in lower case, says nothing by which values could be told apart."""
    return word in _FUNCTION_WORDS


def _uncached(word: str) -> tuple[str, ...]:
    if word.lower() in _FUNCTION_WORDS:
        return ()
    parts = (part for run in _PART.findall(word) for part in _CAMEL.split(run))
    return tuple(stem(part) for part in parts if part.lower() not in _FUNCTION_WORDS)


def _stem(word: str) -> str:
    word = word.lower().removesuffix("'s").rstrip("'")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            if ending in {"ing", "ed"} and len(word) > 3 and word[-1] == word[-2] not in "lsz":
                word = word[:-1]  # "running", "stopped"
            break
    return word[:_STEM].removesuffix("i") if len(word) > 3 else word[:_STEM]


stem = lru_cache(1 << 14)(_stem)
_content_words = lru_cache(1 << 14)(_uncached)
