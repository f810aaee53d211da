"""Hedges: words by which a speaker says that a claim may not hold (S0-78 to S0-103).

Nothing else in the text takes a hedge back (C-02, S0-89). It is another's word or none at all in a quotation or code
span, in a name, a URL or an identifier, and as the month of May; in doubt it is the speaker's own.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple
from unicodedata import normalize

from groundwire.arguments import takes
from groundwire.checks.hedge_rules import CHUNKS, RULES, HedgeTokens
from groundwire.text.normalise import plain, read
from groundwire.text.tokens import PerToken
from groundwire.text.visible import splits_words, visible, without_markup

_WINDOW: Final = 64
"""Characters beside a quotation that may introduce it."""

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
    rf"[ ,]? ?(?:{_BEARER})\b|"
    r" (?:is|was|are|were|has been|became|becomes) (?:a|an|the|one|our|its|his|her|their|not|no|printed|shown|"
    r"displayed|written|logged|returned|used|set|called|deprecated|removed|renamed|defined|added|replaced|allowed|reserved|part|of|in|on)\b|"
    r" (?:means|meant|reads|appears|appeared|stands|closes|opens|returns|takes|expects|matches|denotes|marks)\b",
    re.IGNORECASE,
)
# What somebody says or asks in a quotation, as a clause of its own: words that are only set off are the speaker's.
_SAID: Final = re.compile(r"(?:^|\W)(?:I|[Ww]e)(?:'\w{1,3})? [\w']{1,30} \w")
# Who says it is somebody else: a word of saying, of a text or of a person beside it.
_SPEAKERS: Final = re.compile(
    r"\b(?:said|says?|wrote|writes?|written|asked|asks?|told|tells?|repl(?:y|ies|ied)|answer(?:s|ed)?|report(?:s|ed)?|"
    r"complain(?:s|ed)?|put|quot(?:es?|ed)|call(?:s|ed)?|read|post(?:s|ed)?|comment(?:s|ed)?|message|ticket|review|"
    r"interview|survey|feedback|thread|email|testers?|users?|customers?|clients?|patients?|students?|guests?|"
    r"h(?:e|er|is)|she|they|their|people|somebody|someone)\b",
    re.IGNORECASE,
)
_CODE: Final = re.compile(r"[_(){}\[\]=<>$\\/|&+*#@\d]|[a-z][A-Z]|--|\w[.:]\w")


def reported(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield where a sentence of the text quotes, and whether it reports those words: introduced quotations, and code.

    Words in a quotation that nothing introduces are the speaker's: We "probably" use it. So are those in a code span
    in the place of the sentence's own: I `think` we use it. A whole clause in quotation marks, beside a word for who
    says it, is reported.
    """
    if not any(mark in text for mark in _QUOTING):
        return
    for found in _QUOTED.finditer(text):
        start, end = found.span()
        before, after = text[max(0, start - _WINDOW) : start], text[end : end + _WINDOW]
        as_code = found["code"] and (_CODE.search(found["code"]) or _DETERMINED.search(before))
        spoken = _SAID.search(found[0]) and _SPEAKERS.search(before + after)
        asked = found[0][-2] == "?" and (before.strip(" *_-") or after.strip(" *_.,"))
        told = as_code or _INTRODUCED.search(before) or _FOLLOWED.match(after)
        clause = " " in found[0]
        if told or clause:
            yield start, end, bool(told or spoken or asked)


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
    """Return whether text[start:end] is a part of a name: "the Maybe type", "the likely! macro", "I Think Inc."."""
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
    """Return whether text[start:end] is the month of May: any case before a year, else only as "May" (C-23)."""
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
    """Return whether an added modal states a fact: "could not", "should be 5". Added phrases always count."""
    word = text[start:end].lower()
    return (" " not in word or word == "should be") and _FACTUAL.match(text, start) is not None


Lexicon = Literal["none", "scientific"]
LEXICONS: Final[dict[Lexicon, str]] = {"scientific": "hedges_scientific.txt"}
"""Name -> the file beside this one: a phrase to a line, comments behind "#"."""


@cache
def hedge_lexicon(name: Lexicon) -> tuple[str, ...]:
    """Return the phrases of a lexicon, for `HedgeDetector(review=...)`. Raises: ValueError for an unknown name."""
    if name == "none":
        return ()
    if name not in LEXICONS:
        raise ValueError(f"hedge_lexicon must be none or {', '.join(LEXICONS)}, got {name!r}")
    lines = (files("groundwire.checks") / LEXICONS[name]).read_text("utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


class HedgeAction(StrEnum):
    """What a hedge does to the claim that holds it, strictest first (S0-78)."""

    BLOCK = "block"
    REVIEW = "review"
    CONTINUE = "none"


class Hedge(NamedTuple):
    """One hedge; `text` is exactly `original[start:end]`, in characters of the original text."""

    text: str
    category: str
    action: HedgeAction
    start: int
    end: int


class HedgeResult(NamedTuple):
    """The hedges of a text, summed up.

    `is_speculative` says that there is a hedge of any kind (C-25); `action` is that of the strictest, and
    `hedge_words` are as written, in text order, each written form once.
    """

    is_speculative: bool
    action: HedgeAction
    hedge_words: list[str]


class _Match(NamedTuple):
    category: str
    action: HedgeAction
    start: int
    end: int


_ACTIONS = {
    "personal_speculation": HedgeAction.BLOCK,
    "admitted_uncertainty": HedgeAction.BLOCK,
    "suggestion": HedgeAction.BLOCK,
    "technical_hedge": HedgeAction.REVIEW,
    "approximation": HedgeAction.REVIEW,
    "question": HedgeAction.REVIEW,
}


class HedgeDetector:
    """Finds hedges, in English.

    Args:
        block: further words or phrases that block: literal text, matched as whole words in any case (S0-103).
        review: the same, for review. What is built in stays: of hedges that overlap the stricter one counts.
    """

    @takes(block=Iterable, review=Iterable)
    def __init__(self, *, block: Iterable[str] = (), review: Iterable[str] = ()) -> None:
        added = ((HedgeAction.BLOCK, _compile(block)), (HedgeAction.REVIEW, _compile(review)))
        self._added = [(action, pattern) for action, pattern in added if pattern is not None]

    @takes(text=str)
    def find(self, text: str) -> list[Hedge]:
        """Return the hedges of a text, in text order and without overlaps."""
        return [hedge for hedge, _ in self._found(text)]

    @takes(text=str)
    def analyze(self, text: str) -> HedgeResult:
        """Sum up the hedges of a text: the strictest action, and the words (S0-85 to S0-87, S0-93)."""
        return self.read(text)[1]

    def read(self, text: str) -> tuple[list[Hedge], HedgeResult]:
        """Return what `find` and `analyze` return, in one pass."""
        found = self._found(text)
        telling = [(hedge, words) for hedge, words in found if hedge.action is not HedgeAction.CONTINUE]
        if not telling:
            none = HedgeResult(is_speculative=False, action=HedgeAction.CONTINUE, hedge_words=[])
            return [hedge for hedge, _ in found], none
        blocks = any(hedge.action is HedgeAction.BLOCK for hedge, _ in telling)
        words = list(dict.fromkeys(words for _, words in telling))
        strictest = HedgeAction.BLOCK if blocks else HedgeAction.REVIEW
        return [hedge for hedge, _ in found], HedgeResult(
            is_speculative=True, action=strictest, hedge_words=words
        )

    def _found(self, text: str) -> list[tuple[Hedge, str]]:
        # "I\u200bthink" hides a space, "may\u200bbe" splits a word: such a text is read both ways (S0-102).
        ways = (False, True) if splits_words(text) else (False,)
        bare = text
        if not text.isascii():
            bare = _ACCENTED.sub(
                lambda word: "".join(
                    char if char.isascii() else normalize("NFD", char)[0] for char in word[0]
                ),
                _MARKS.sub("\u200b", _ACUTE.sub("'\u200b", text)).translate(_LOOKS),
            )
            if len(ways) == 1 and not self._added and not may_begin(plain(without_markup(bare))):
                return []  # saves the map of positions, which costs most in other scripts
        found: list[tuple[Hedge, str]] = []
        for split in ways:
            reading = read(bare, split=split)
            shown = reading.text
            matches = [match for match in built_in(shown) if not is_month(shown, match.start, match.end)]
            for action, pattern in self._added:
                for added in pattern.finditer(shown):
                    place = added.span()
                    if not is_month(shown, *place) and not is_factual(shown, *place):
                        matches.append(_Match("configured", action, *place))
            spans = list(reported(shown)) if matches else []
            for category, action, first, last in matches:
                start, end = reading.span(first, last)
                before = bisect_right(spans, (first, last, True)) - 1
                quoted = before >= 0 and last <= spans[before][1]
                silent = (quoted and spans[before][2]) or is_name(shown, first, last)
                # a clause in quotation marks may be another's words: it is seen by a person
                done = HedgeAction.REVIEW if quoted and action is HedgeAction.BLOCK else action
                done = HedgeAction.CONTINUE if silent else done
                words = " ".join(visible(text[start:end], split=split).split())
                found.append((Hedge(text[start:end], category, done, start, end), words))
        kept: list[tuple[Hedge, str]] = []
        for entry in sorted(found, key=lambda entry: entry[0].start):
            if not kept or entry[0].start >= kept[-1][0].end:
                kept.append(entry)
            elif _rank(entry[0]) > _rank(kept[-1][0]):
                kept[-1] = entry  # of two that overlap the stricter, the longer, the first
        return kept


def built_in(text: str) -> Iterator[_Match]:
    asked = _ASKED.match(text)
    if asked:
        yield _Match("question", HedgeAction.REVIEW, *asked.span())
    tokens = HedgeTokens(text)
    spans: list[tuple[int, int]] = []
    for index in [index for index, word in enumerate(tokens.each) if word in RULES]:
        left, right = tokens.beside(index)
        before: list[str] = []
        behind = ""
        for rule in RULES[tokens.each[index]]:
            if not rule.may_stand(left, right):
                continue
            if not before:
                before, after = tokens.around(index)
                behind = " ".join(["", *after])
            if not rule.may_begin(before) or not (found := rule.match(before, behind)):
                continue
            if rule.category in _ACTIONS:
                spans = spans or tokens.spans()
                start = spans[max(0, index - found[0])][0]
                end = spans[min(index + found[1], len(spans) - 1)][1]
                yield _Match(rule.category, _ACTIONS[rule.category], start, end)
            break


_MARKS: Final = re.compile("[\u0300-\u036f\u20d0-\u20f0]")
"""Marks that letters carry one by one: "m\\u0301aybe" reads as the word without them."""
_ACUTE: Final = re.compile("(?<=n) \u0301(?=t\\b)")
"""The apostrophe of "don\u00b4t" as NFKC writes it."""
_LOOKS: Final = str.maketrans(
    "\u0410\u0412\u0415\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0405\u0421\u0422\u0423\u0425\u0430\u0432\u0435\u0456\u0458\u043a"
    "\u043c\u043d\u043e\u0440\u0455\u0441\u0442\u0443\u0445\u0501\u04bb\u0391\u0392\u0395\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4"
    "\u03a5\u03a7\u03b1\u03b9\u03bd\u03bf",
    "ABEIJKMHOPSCTYXabeijkmhopsctyxdhABEHIKMNOPTYXaivo",
)
"""The letters of Cyrillic and Greek that look like Latin ones, small or as capitals."""
_ACCENTED: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]{4,}")
"""Words that are long enough that their accents tell no other word apart: Vietnamese "m\u00e1y" is no "may"."""


# A question is known by its mark, which is a word of the grammar, or by how it begins.
_ASKED: Final = re.compile(
    r"(?:(?:is|are|was|were|do|does|did|can|could|should|would|has|have|will) (?:it|we|you|they|he|she|there|i|any\w*)|"
    r"(?:is|are|was|were|does|did|has|could|would|should) (?:the|an?|this|these|those|our|your|my|his|her|their|its)|"
    r"(?:(?-i:Is|Are|Was|Were|Does|Did|Could|Would|Can) (?-i:[A-Z][a-z])\w*)|what if|what about|how about|"
    r"(?:why|where|when|how|what|who) (?:is|are|was|were|do|does|did|can|could|should|would|will|has|have) "
    r"(?:it|we|you|they|he|she|there|i|the|an?|this|that|these|our|your|my|his|her|their))\b",
    re.IGNORECASE,
)


def may_begin(text: str) -> bool:
    """Cheap pre-check: return whether a text, in normal form except for white space, may hold a hedge."""
    chunks = text.split()
    return any(_TELLING.of(chunks)) or text.endswith("?") or _ASKED.match(text) is not None


_TELLING: Final = PerToken(lambda chunk: not RULES.keys().isdisjoint(CHUNKS[chunk][0]), 1 << 14)
"""Whether the text between two blanks holds a word that a rule is filed under."""


# Words stay neighbours when one of them is emphasised, and a word is no part of an identifier.
_SPACE: Final = "(?:[*_]{0,3} [*_]{0,3})"
_LETTER: Final = re.compile(r"[0-9A-Za-z\u00c0-\u1fff]")
_LEFT: Final = f"(?<!{_LETTER.pattern})(?<!{_LETTER.pattern}_)(?<!{_LETTER.pattern}__)"
_RIGHT: Final = f"(?!{_LETTER.pattern})(?!_{{1,2}}{_LETTER.pattern})"


def _compile(phrases: Iterable[str]) -> re.Pattern[str] | None:
    wanted = {read(phrase).text.strip() for phrase in phrases} - {""}
    patterns = []
    for phrase in sorted(wanted, key=lambda phrase: (-len(phrase), phrase)):
        left = _LEFT if _LETTER.match(phrase[0]) else ""
        right = _RIGHT if _LETTER.match(phrase[-1]) else ""
        patterns.append(left + _SPACE.join(map(re.escape, phrase.split(" "))) + right)
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


_STRICT: Final = {HedgeAction.CONTINUE: 0, HedgeAction.REVIEW: 1, HedgeAction.BLOCK: 2}


def _rank(hedge: Hedge) -> tuple[int, int]:
    return _STRICT[hedge.action], hedge.end - hedge.start
