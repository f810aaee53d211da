"""Where a hedge is somebody else's word or none at all: in a quotation or code span, in a name, as the month of May.

Positions are those of a text in normal form. What is in doubt stays the speaker's own word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_WINDOW: Final = 64
"""Characters beside a quotation in which what introduces it stands."""

# Each mark closes at the next one of its kind; a search looks at each character once.
_QUOTED: Final = re.compile(
    r"(?P<code>``?[^`]+``?)|\"[^\"]+\"|"
    r"\u201c[^\u201c\u201d]+\u201d|\u201e[^\u201e\u201c]+\u201c|\u00ab[^\u00ab\u00bb]+\u00bb|"
    r"(?<![\w'])'(?=\w)(?:[^'\"]|(?<=\w)'(?=\w)){1,150}'(?!\w)"
)
_QUOTING: Final = "`'\"\u201c\u201e\u00ab"
# Nouns of what bears a text or a name, and verbs of saying, printing and naming.
_BEARER: Final = (
    "(?:messages?|posters?|"
    "texts?|errors?|buttons?|labels?|titles?|signs?|fields?|options?|values?|strings?|lines?|phrases?|"
    "words?|mottos?|motto|slogans?|songs?|books?|questions?|headings?|captions?|commands?|keys?|headers?|answers?|warnings?|"
    "prompts?|menus?|items?|tags?|status(?:es)?|pages?|chapters?|sections?|keywords?|terms?|names?|tabs?|banners?|placards?|"
    "columns?|flags?|types?|monads?|macros?|functions?|methods?|classes|class|attributes?|propert(?:y|ies)|variables?|"
    "parameters?|arguments?|modules?|packages?|crates?|librar(?:y|ies)|files?|scripts?|tables?|enums?|constants?|hints?|"
    "annotations?|tokens?|operators?|modifiers?|branch(?:es)?|tests?|topics?|queues?|channels?|links?|footers?|notes?|"
    "comments?|log|logs|entr(?:y|ies)|notices?|stickers?|inscriptions?|headlines?|subjects?|quotes?|quotations?|sayings?|"
    "proverbs?|poems?|films?|albums?|plays?|novels?|episodes?|articles?|brands?|shops?|restaurants?|games?|levels?|modes?|"
    "rules?|states?|events?|hooks?|endpoints?|routes?|icons?|dialogs?|dialogues?|pop-?ups?|checkbox(?:es)?|settings?|"
    "categor(?:y|ies)|choices?|repl(?:y|ies)|responses?|outputs?|issue|editions?|lyrics?|refrain|chorus|badge|badges|plaque|"
    "statement|disclaimer|feedback|remarks?|reviews?|interviews?|transcripts?|sentences?|paragraphs?|passages?|clauses?|letters?|greeting|adverb|verb|noun|variant|placeholder)"
)
_NAMED: Final = (
    "(?:caf[eé]|bar|band|company|firm|ship|boat|horse|club|magazine|project|team|app|site|street|village|hotel|pub|yacht|"
    "group|store|startup|newspaper|theatre|gallery|dog|cat|service|tool|plugin|container|cluster|repository|repo|image|tag)"
)
_SAYING: Final = (
    "(?:says?|said|saying|prints?|printed|printing|shows?|showed|shown|showing|displays?|displayed|displaying|reads|read|"
    "reading|reports?|reported|logs?|logged|logging|returns?|returned|returning|outputs?|emits?|emitted|prompts?|prompted|"
    "asks?|asked|asking|states?|stated|stating|calls?|called|named|names|titled|entitled|labell?ed|headed|captioned|inscribed|marked|writes?|wrote|"
    "written|carries|carried|carry|contains?|contained|containing|replies|replied|answers?|answered|warns?|warned|warning|"
    "responds?|responded|means?|meant|bears?|bearing|announces?|announced|quotes?|quoted|sings?|sang|repeats?|displays|"
    "matches|match|greps?|search(?:es)? for|starts? with|begins? with|ends? with|renders?|raises?|throws?|raised|"
    "complains|complained|entered|typed|types|clicks?|click|press|presses|pressed|select|selects|selected|set|sets|add|adds|"
    "added|removed|removes|remove|renamed|renames|rename|replaces?|replaced|deprecated|deprecates|implements?|defines?)"
)
_LINKS: Final = (
    "(?: (?:is|was|are|were|of|as|with|the|a|an|that|to|out|for|in|on|at|by|says|reads|called|named|line|text|words?|"
    "message|only|just|still|now|then|back|it|simply|literally|him|her|them|us|me|users?|over|above|below|which|saying|"
    r"phrase|either|not|this|its|\d{1,6})){0,3}"
)
_INTRODUCED: Final = re.compile(
    rf"\b(?:{_BEARER}|{_SAYING}|{_NAMED}){_LINKS}[ :,=(]{{0,3}}$|"
    rf"\b{_BEARER} (?:of|on|at|from|by) (?:the |an? |our |its )?[\w-]{{1,30}}(?: (?:reads|says|said)[ :,]{{1,3}}|: )$",
    re.IGNORECASE,
)
_DETERMINED: Final = re.compile(
    r"(?:^|[\s(])(?:the|a|an|this|that|each|every|its|our|their|of|by|from|in|with|via|between|named|called|and|or|"
    rf"{_SAYING})[ (]$",
    re.IGNORECASE,
)
_FOLLOWED: Final = re.compile(
    rf"[ ,]?(?: ?\w{1, 30})? ?(?:{_BEARER})\b|"
    r" (?:is|was|are|were|has been|became|becomes) (?:a|an|the|one|our|its|his|her|their|not|no|printed|shown|"
    r"displayed|written|logged|returned|used|set|called|deprecated|removed|renamed|defined|added|replaced|allowed|reserved|part|of|in|on)\b|"
    r" (?:means|meant|reads|appears|appeared|stands|closes|opens|returns|takes|expects|matches|denotes|marks)\b",
    re.IGNORECASE,
)
# What somebody says or asks in a quotation, as a clause of its own: words that are only set off are the speaker's.
_SAID: Final = re.compile(r"(?:^|\W)(?:I|[Ww]e)(?:'\w{1,3})? [\w']{1,30} \w")
# Who says it is somebody else: a word of saying, of a text or of a person stands beside it.
_SPEAKERS: Final = re.compile(
    r"\b(?:said|says?|wrote|writes?|written|asked|asks?|told|tells?|repl(?:y|ies|ied)|answer(?:s|ed)?|report(?:s|ed)?|"
    r"complain(?:s|ed)?|put|quot(?:es?|ed)|call(?:s|ed)?|read|post(?:s|ed)?|comment(?:s|ed)?|message|ticket|review|"
    r"interview|survey|feedback|thread|email|testers?|users?|customers?|clients?|patients?|students?|guests?|"
    r"h(?:e|er|is)|she|they|their|people|somebody|someone)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"[_(){}\[\]=<>$\\/|&+*#@\d]|[a-z][A-Z]|--|\w[.:]\w")


def reported(text: str) -> Iterator[tuple[int, int]]:
    """Yield where a sentence of the text reports words: quotations that are introduced, and code.

    Words in a quotation that nothing introduces are the speaker's: We "probably" use it. So are those in a code span
    that stand where those of the sentence would: I `think` we use it. A whole clause in quotation marks, beside a word
    for who says it, is theirs.
    """
    if not any(mark in text for mark in _QUOTING):
        return
    for found in _QUOTED.finditer(text):
        start, end = found.span()
        before, after = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
        as_code = found["code"] and (_CODE.search(found["code"]) or _DETERMINED.search(before))
        spoken = _SAID.search(found[0]) and _SPEAKERS.search(before + after)
        asked = found[0][-2] == "?" and (before.strip(" *_-") or after.strip(" *_.,"))
        if (
            as_code
            or (" " in found[0] and (spoken or asked))
            or _INTRODUCED.search(before)
            or _FOLLOWED.match(after)
        ):
            yield start, end


_CAPITALS: Final = re.compile(r"[A-Z][\w']*(?:[\s-][A-Z][\w']*)*")
_COMPANY: Final = re.compile(
    r",? (?:Inc|Ltd|LLC|GmbH|Corp|Co|AG|plc|PLC|Foundation|Records|Group|Labs)\b| & [A-Z]\w"
)
_BEFORE_NAME: Final = re.compile(
    r"(?:^|[\s(])(?:the|a|an|at|by|from|of|with|called|named|its|our|their|and) $", re.IGNORECASE
)
_BEARER_NEXT: Final = re.compile(rf"!?(?: type)? (?:{_BEARER})\b", re.IGNORECASE)
_BEARER_BEFORE: Final = re.compile(rf"(?:{_BEARER}|{_NAMED}) $", re.IGNORECASE)
_IN_SENTENCE: Final = re.compile(r"[\w,;)] $")
_FIRST_PART: Final = re.compile(r"[\w.]{1,30}[/-]$")
_DETERMINER: Final = re.compile(
    r"(?:^|[\s(])(?:the|a|an|this|that|each|every|its|our|their) $", re.IGNORECASE
)


def is_name(text: str, start: int, end: int) -> bool:
    """Tell whether text[start:end] is a part of a name: "the Maybe type", "the likely! macro", "I Think Inc."."""
    written, before, after = text[start:end], text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
    joined = after.startswith("-") and _is_borne(_FIRST_PART.sub("", before))  # "the branch fix/may-leak"
    if written.lower() == "may":
        return joined or _is_named_may(written, before, after)
    if _BEARER_NEXT.match(after) and _DETERMINER.search(before) and " " not in written:
        return True
    if not _CAPITALS.fullmatch(written):
        return joined
    if _COMPANY.match(after) or before.endswith("'s "):
        return True
    inside = _IN_SENTENCE.search(before) is not None and not written.isupper()
    return inside and (_is_borne(before) or _BEFORE_NAME.search(before) is not None)


def _is_borne(before: str) -> bool:
    return _BEARER_BEFORE.search(before, before.rfind(" ", 0, -1) + 1) is not None


# "May" the month (C-23, S0-90, S0-99). All that is in doubt stays the modal verb, and goes to review.
_MONTHS = "(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR_AFTER = re.compile(r"(?: (?:of )?|[-/])(?:1[6-9]|2[01])\d\d(?![^\W_]|[.,]\d)", re.IGNORECASE)
_MONTH_AFTER = re.compile(
    rf",? (?:1[6-9]|2[01])\d\d(?!\w)|(?: (?:the )?|[-/]){_DAY}(?![\w%]|[.:,]\d)|'s\b|"
    rf"(?:,? | ?[-\u2013/] ?| (?:and|or|to|through|until|till) ){_MONTHS}\b"
)
_MONTH_BEFORE = re.compile(
    r"(?:\b(?:in|by|since|until|till|of|early|mid|late|last|next|during|throughout|before|after|from)[ -]|"
    rf"\b(?:on|by|since|until|till|from|before|after) (?:the )?{_DAY} |(?<![\w.,]){_DAY}(?:\. | (?:of )?)|"
    rf"\b{_MONTHS}(?:,? | ?[-\u2013/] ?| (?:and|or|to|through|until|till) ))$",
    re.IGNORECASE,
)
_TITLE: Final = re.compile(r"(?:^|[\s(])(?:Mrs?|Ms|Miss|Dr|Prof|Sir|Lady|Lord|Judge|Captain)\.? $")
_FINITE: Final = re.compile(
    r"(?: (?:is|was|has|had|does|did|and|or|issue|day|road|street|said|went|came|took|made|got|wrote|ran|won|will|"
    r"[A-Z][a-z]+|(?!(?:miss|pass|process|access|discuss|cross|press|need|feed|proceed|exceed|succeed|embed|shed|speed|"
    r"guess|express|address|toss|dress|seed|spread|read|shred)\b)[a-z]{2,}(?:s|ed))\b|[.,;:)]|$| &)"
)


_KEYWORD_BEFORE: Final = re.compile(
    r"(?<![A-Za-z])(?!(?i:it|we|he|she|they|this|that|there|i) )[A-Za-z][a-z-]{0,30} $"
)


def is_month(text: str, start: int, end: int) -> bool:
    """Tell whether text[start:end] is the month of May: any case before a year, else only as "May" (C-23)."""
    word = text[start:end]
    if word.lower() != "may":
        return word == "May's"
    after = text[end : end + _WINDOW]
    if _YEAR_AFTER.match(after):
        return True
    return word == "May" and bool(
        _MONTH_AFTER.match(after) or _MONTH_BEFORE.search(text[max(0, start - _WINDOW) : start])
    )


def _is_named_may(written: str, before: str, after: str) -> bool:
    """Tell whether "May" inside a sentence is a person, a road or the month: no bare verb can follow it.

    "MAY" among small letters is the key word of RFC 2119, which permits.
    """
    if written == "MAY":
        return _KEYWORD_BEFORE.search(before) is not None and after[1:2].islower()
    if written != "May":
        return False
    if re.match(r" (?:[A-Z][a-z]|(?:is|was|has|had|does|did)\b)", after):
        return True
    if _DETERMINER.search(before) or _TITLE.search(before):
        return True
    return bool(before.strip() and _FINITE.match(after) and not re.search(r"[.!?]\s$", before))


# Where an operator's added "could" or "should" states a fact (C-21, C-22); "may not" stays a hedge.
_FACTUAL = re.compile(
    r"(?:could|can|should|would|must|shall) not\b|should (?:\w{1,15}ly |always )?be (?:exactly |set to |"
    r"(?:at (?:least|most)|(?:less|more|greater|fewer) than|below|above|under|over) )?"
    r"[*_`\"'(\[]{0,3}[<>≤≥$€£¥+\u2212-]{0,3} ?"
    r"(?:\.?\d|(?:one|two|three|four|five|six|seven|eight|nine|ten|twelve|zero)\b)",
    re.IGNORECASE,
)


def is_factual(text: str, start: int, end: int) -> bool:
    """Tell whether an added modal states a fact: "could not", "should be 5". Added phrases always count."""
    word = text[start:end].lower()
    return (" " not in word or word == "should be") and _FACTUAL.match(text, start) is not None
