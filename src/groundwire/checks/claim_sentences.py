"""Technical claims: the sentences of an answer that need a source tag (S2-20, S2-21).

Every sentence and every code block is one, except

- a heading, a question, and a lead-in, which ends with a colon: what follows it makes the statement;
- a refusal, a sentence that only says that the sources do not hold the answer;
- courtesy and talk about the answer itself ("I hope this helps", "Here is a summary") without anything technical;
- a fragment of fewer than three words (two, with a full stop) without anything technical.

A digit, a code span and an identifier are technical. When in doubt a sentence is a claim: a tag that is
missing only brings a person to look.
"""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_TECHNICAL = re.compile(r"[0-9`]|\w[_./]\w|[a-z][A-Z]|\w\(")
_HEADING = re.compile(r"#{1,6}\s")
_EMPHASIS = re.compile(r"(\*\*|__)[^*_]+\1")
_END = re.compile(r"[?:\uff1f\uff1a](?=[\s*_\"'\u201d\u2019)\]]*$)")
_FEW = 3  # words of a sentence
_TALK_WORDS = 12
_TALK = re.compile(
    r"\W*(?:i hope (?:this|that|it)\b|let me know\b|feel free\b|happy to\b|glad to\b|thanks?\b|of course\W*$|"
    r"(?:here|below) (?:is|are)\b|here's\b)",
    re.IGNORECASE,
)

_SOURCES = r"(?:provided|given|available|supplied) (?:sources?|documents?|documentation|context)\b"
_SOURCE_WORDS = ("source", "document", "context")  # one of which stands in whatever `_SOURCES` matches
_FOUND = (
    "(?:found|mentioned|stated|specified|documented|described|covered|contained|given|shown|included|present)"
)
_REFUSAL = re.compile(
    rf"(?:not|n't)(?: be)? {_FOUND} (?:in|by) (?:the |any of the )?{_SOURCES}|"
    rf"\bno (?P<none>[^.]{{1,120}}?) {_FOUND} in (?:the |any of the )?{_SOURCES}|"
    rf"(?:not|n't) find (?P<sought>[^.]{{1,120}}?) in (?:the |any of the )?{_SOURCES}|"
    rf"\b{_SOURCES} (?:do|does)(?: not|n't) "
    r"(?P<lack>mention|contain|say|specify|cover|describe|include|state|answer|provide|show|document)\b",
    re.IGNORECASE,
)
_APOLOGY = re.compile(
    r"\W*(?:(?:i'm|i am) (?:sorry|afraid)|sorry|unfortunately|regrettably|my apologies)\b\W*(?:(?:but|that) )?",
    re.IGNORECASE,
)
_HELPER = re.compile(r"\b(?:is|are|was|were|has been|have been|could|can|did|do)\s*$", re.IGNORECASE)
_CONCLUSION = re.compile(
    r",? (?:so|and|therefore|hence|thus) (?:i|we) (?:cannot|can't|can not|could not|couldn't|am unable to) "
    r"(?:answer|say|tell|help|confirm|determine)\b(?: (?:it|this|that|you|the|your|question|further|for sure))*",
    re.IGNORECASE,
)
_TOPIC = re.compile(
    r"(?:the |any |an? )?(?:information|details?|documentation|answers?|values?|defaults?|descriptions?) "
    r"(?:about|on|of|for|to|regarding|concerning) ",
    re.IGNORECASE,
)
_AND = re.compile(r"\b(?:and|or)\b|,", re.IGNORECASE)
# What makes of a refusal a sentence that says something else too.
_MORE = re.compile(
    r"[0-9,;:\u2013\u2014(]| - |\b(?:and|or|but|so|yet|because|since|as|while|whereas|which|though|although|"
    r"however|therefore|instead|is|are|was|were|has|have|had|must|should|defaults? to|uses?|returns?|supports?|"
    r"sets?)\b",
    re.IGNORECASE,
)


def is_claim(text: str, *, code: bool = False) -> bool:
    """Tell whether a sentence, less its source tags, is a technical claim.

    Args:
        text: the sentence, or a fenced code block with its fences.
        code: it is a code block: a claim unless it is empty.
    """
    if code:
        return _WORD.search(text.partition("\n")[2]) is not None
    plain = " ".join(text.replace("\u2019", "'").split())
    if says_nothing(plain) or _HEADING.match(plain) or _END.search(plain) or is_refusal(plain):
        return False
    if _TECHNICAL.search(plain):
        return True
    words = len(_WORD.findall(plain))
    talk = words <= _TALK_WORDS and _TALK.match(plain)
    # "Backoff doubles." says something; and scripts that write without spaces have no few words.
    fragment = words < _FEW - plain.endswith(".") and plain.isascii()
    return not (talk or fragment or _EMPHASIS.fullmatch(plain))


def is_refusal(sentence: str) -> bool:
    """Tell whether a sentence only says that the sources do not hold something (S2-21).

    "The retention period was not found in the provided sources" does; whatever states a number or something
    else beside it does not.
    """
    folded = sentence.casefold()
    if not any(word in folded for word in _SOURCE_WORDS):  # as nearly always
        return False
    plain = " ".join(sentence.replace("\u2019", "'").split())
    found = _REFUSAL.search(plain)
    if found is None:
        return False
    before = plain[: found.start()]
    apology = _APOLOGY.match(before)
    before = _HELPER.sub("", before[apology.end() :] if apology else before)
    if _TOPIC.match(before):
        before = _AND.sub(" ", before)
    none = _HELPER.sub("", found["none"] or "")
    behind = _CONCLUSION.sub("", plain[found.end() :])
    # A list of what is missing states nothing: "retries or timeouts".
    parts = [
        _AND.sub(" ", f"{none} {found['sought'] or ''}"),
        _AND.sub(" ", behind) if found["lack"] else behind,
    ]
    return not any(_MORE.search(part) for part in [before, *parts])


def is_table_rule(text: str) -> bool:
    """Tell whether a span is the rule below the head of a table ("|---|---|")."""
    return text.lstrip().startswith("|") and "-" in text and says_nothing(text)


def says_nothing(text: str) -> bool:
    """Tell whether a span holds no letter and no digit."""
    return not any(char.isalnum() for char in text)
