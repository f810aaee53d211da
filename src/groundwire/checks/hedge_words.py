"""The grammar of hedges: which words make one, and what must follow them.

Patterns are written for text in normal form (`groundwire.checks.text`). In them a plain space stands for
`SPACE`, and "n~t" for "n't" in any spelling. Every repetition is bounded, so matching takes linear time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from groundwire.checks.text import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

SPACE = "(?:[*_]{0,3} [*_]{0,3})"  # words stay neighbours when one of them is emphasised
# What words are made of, less the scripts that write without spaces: there a word may touch its neighbours.
LETTER = re.compile(r"[0-9A-Za-z\u00c0-\u1fff]")
_L = LETTER.pattern
# A word, with or without emphasis, but no part of an identifier: "_no idea_", not "no idea_box".
LEFT = f"(?<!{_L})(?<!{_L}_)(?<!{_L}__)"
RIGHT = f"(?!{_L})(?!_{{1,2}}{_L})"

_NOT = "(?:not|never|cannot|(?:do|did|ca|could|wo|would|have|had|must)n~t)"
_ADVERB = (
    r"(?:\w{1,15}ly|just|still|also|even|always|often|sometimes|now|then|sort of|kind of|kinda|rather|quite|"
    "too|very|well|of course|for one|for my part|do|did|have|had|been|be|am|are|was|were|would|could|can|"
    "may|might|must|will|should|so|dare|"
    f"(?:have|had|used|tend|seem|like|led|inclined|starting|beginning) to|100 ?%|{_NOT})"
)
_ADVERBS = f"(?:,? {_ADVERB},?){{0,4}}"
_SHORT = "(?:['`](?:m|re|d|ve|ll))?"  # what a contraction leaves of "am", "have", "would"
_QUESTION = "(?:whether|if|how|why|what|which|who|when|where|about|of)"
_SURE = (
    r"(?: (?:\w{1,15}ly|so|too|very|quite|that|all that|yet|even|be|say|tell|for|a?(?: ?100)? ?%|"
    "(?:100|hundred) percent)){0,3} "
    # "I'm not certain" is the first person's; "the order is not certain" is a fact.
    "(?:sure|(?:certain|confident)(?= (?:whether|if|that|how|why|what|which|when|where|who|about)))"
)
_WRONG = "(?:wrong|mistaken|incorrect|confused|misremember(?:ed|ing)|misread|misunderst(?:ood|anding))"
_RATHER = "pretty fairly reasonably almost mostly"
_RATHER_SURE = "(?:sure|certain|confident)"
# What the first person does: uncertainty once it is negated, and speculation as it stands.
_WE_DO_NOT = "know|certain|confident|have (?:any|an?|the) (?:idea|clue)"
_I_DO_NOT = f"{_WE_DO_NOT}|remember|recall|checked|verified|tested|confirmed"
_WE_DO = (
    "th(?:ink(?:ing)?|ought)|guess(?:ed|ing)?|believ(?:ed?|ing)|assum(?:ed?|ing)|suppos(?:e|ing)|"
    "supposed(?! to)|suspect(?:ed|ing)?|presum(?:ed?|ing)|imagin(?:ed?|ing)|reckon(?:ed|ing)?|"
    "speculat(?:ed?|ing)|surmised?|conjectured?|hypothesi[sz](?:ed?|ing)|doubt(?:ed)?|wonder(?:ed|ing)?|"
    "(?:feel|felt|feeling) (?:like|that|as if|as though)|"
    r"(?:have|get|got|under) (?:an?|the)(?: \w{1,15})? (?:feeling|hunch|suspicion|impression)"
)
_I_DO = rf"{_WE_DO}|bet|betting|wager|gather|figured?(?! out)|(?:(?<=['`]d\s)|(?<=would\s))say"
_NUMBER = (
    "(?:one(?! another)|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    "(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|"
    "hundreds?|thousands?|millions?|billions?|dozens?|half|several|"
    "an? (?:dozen|hundred|thousand|million|billion|couple|few|handful|half|third|quarter))"
)
_COMPOUND = "(?:factor|way|phase|party|step|tier|stage|time|click)"  # "learn about two-factor logins"
_QUANTITY = (
    r"[*_`\"'(\[]{0,3}(?:[<>≤≥≈~+\u2212-]{0,2} ?(?:(?:US|CA|AU)?[$€£¥₹] ?|(?:USD|EUR|GBP|CHF|JPY|CNY|INR) ?)?"
    rf"[+\u2212-]?\.?\d|{_NUMBER}\b)"
)


def _first_person(do_not: str, do: str) -> str:
    """Return what follows "I" or "we" in a hedge: adverbs, then a verb; the group names the category."""
    wrong = rf"(?:may|might|could|can|would){_ADVERBS} (?:be|have)(?: \w{{1,15}}){{0,3}}? {_WRONG}"
    unknown = f"(?:,? {_NOT}{_ADVERBS} (?:{do_not})| uncertain| {wrong})"
    speculation = f" (?:{do}|(?:{'|'.join(_RATHER.split())}) {_RATHER_SURE})"
    return (
        f"{_SHORT}{_ADVERBS}(?:(?P<admitted_uncertainty>{unknown})|(?P<personal_speculation>{speculation}))"
    )


# Category, the words that a hedge begins with, and what must follow them. The first rule that fits applies.
_RULES = (
    # A URL is stepped over: its words are not the speaker's. It ends at doubled punctuation, "x.io--maybe".
    ("url", "http https", r"://(?:[\w~/?#@$&*+=%]|[-.:!](?=[\w/]))+"),
    ("", "I im", _first_person(_I_DO_NOT, _I_DO)),
    ("", "we", _first_person(_WE_DO_NOT, _WE_DO)),
    (
        "admitted_uncertainty",
        "if unless",
        rf" (?:I|we){_SHORT}(?: (?:am|are|not|\w{{1,15}}ly)){{0,3}} {_WRONG}",
    ),
    ("admitted_uncertainty", "if", " (?:memory serves|I (?:recall|remember))"),
    ("admitted_uncertainty", "not never cannot", _SURE),
    ("admitted_uncertainty", "isn aren wasn weren don doesn didn can couldn won wouldn", f"['`]t{_SURE}"),
    ("admitted_uncertainty", "don", r"(?:(?<=^don)|(?<=[.!?;:]\sdon))['`]t know"),
    ("admitted_uncertainty", "unsure dunno idk afaik afaict iirc", ""),
    ("admitted_uncertainty", "no", " (?:idea|clue)"),
    ("admitted_uncertainty", "uncertain unclear", f" {_QUESTION}"),
    ("admitted_uncertainty", "far", r" as (?:I|we)(?: \w{1,15}){0,2}? (?:know|tell|remember|recall)"),
    (
        "admitted_uncertainty",
        "to from",
        r"(?: the best of)? my(?: \w{1,15})? (?:knowledge(?! base)|memory|recollection)",
    ),
    ("personal_speculation", "my our", r"(?: \w{1,15})? (?:guess|hunch|gut feeling)"),
    # Not the impressions that an advertiser counts, nor what stands in "our view layer".
    (
        "personal_speculation",
        "my our",
        r"(?: \w{1,15})? (?:suspicion|impression|assumption|belief|opinion|sense)(?= (?:is|was)\b|,|:)",
    ),
    ("personal_speculation", "in", r" (?:my|our)(?: \w{1,15})? (?:opinion(?! mining)|view(?=,)|judge?ment)"),
    ("personal_speculation", "seem seems looks feels", " to me"),
    ("personal_speculation", "imo imho methinks", ""),
    # Where nobody is said to be sure, the speaker is. "The job is almost certain to fail" is a forecast.
    *(
        ("personal_speculation", word, rf"(?:(?<!\w\s{word})|(?<=but\s{word})) {_RATHER_SURE}")
        for word in _RATHER.split()
    ),
    ("technical_hedge", _RATHER, f" {_RATHER_SURE}"),
    # Bare "maybe" blocks; "perhaps" only where it proposes something (C-01).
    ("suggestion", "maybe", ""),
    ("suggestion", "perhaps", rf"(?=,? (?:we|I|you|they)(?:,? {_ADVERB},?)? (?:could|should|can|might)\b)"),
    ("technical_hedge", "may might perhaps typically often usually sometimes occasionally ordinarily", ""),
    ("technical_hedge", "probably possibly presumably potentially conceivably arguably supposedly", ""),
    ("technical_hedge", "apparently seemingly allegedly likely unlikely", ""),
    (
        "technical_hedge",
        "generally normally frequently commonly",
        "(?! (?:available|distributed|asked|known|called))",
    ),
    ("technical_hedge", "seem seems seemed", "(?= (?:to|like|that|as))"),
    ("technical_hedge", "appear appears appeared tend tends tended", "(?= to(?! (?:the|an?)\\b))"),
    ("approximation", "approximately approx roughly circa ballpark", ""),
    ("approximation", "more", " or less"),
    ("approximation", "give", " or take"),
    ("approximation", "around nearly almost", f"(?= {_QUANTITY})"),  # C-24
    ("approximation", "around", "(?= (?:noon|midday|midnight))"),
    ("approximation", "about", rf"(?= {_QUANTITY})(?! \w{{1,15}}-{_COMPOUND})"),
)


@dataclass(frozen=True)
class Rule:
    """A category of hedges (if empty, the group that matched names it), and what must follow the word."""

    category: str
    _pattern: str

    @cached_property
    def rest(self) -> re.Pattern[str]:
        """What must follow, compiled when a text first holds the word: all of them take a sixth of a second."""
        return re.compile(self._pattern, re.IGNORECASE)


def _file_rules() -> dict[str, list[Rule]]:
    rules: dict[str, list[Rule]] = {}
    for category, words, rest in _RULES:
        pattern = rest.replace("n~t", "n['`]?t").replace(" ", SPACE)
        rule = Rule(category, f"{pattern}{RIGHT if pattern else ''}")
        for word in words.lower().split():
            rules.setdefault(word, []).append(rule)
    return rules


RULES = _file_rules()
_FIRST_WORDS = frozenset(word.encode() for word in RULES)
_WORD = re.compile(f"{LEFT}(?-i:[A-Za-z]+){RIGHT}", re.IGNORECASE)
# To small letters, and a space for each other character.
_LETTERS = bytes(code if chr(code).islower() else ord(" ") for code in bytes(range(128)).lower().ljust(256))


def may_begin(text: str) -> bool:
    """Look whether `first_words` may find one in a text, in normal form or not."""
    if text.isascii():
        return not _FIRST_WORDS.isdisjoint(_runs(text))
    return any(first_words(plain(text)))


def first_words(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield start, end and small letters of each word of a text that a rule is filed under, in text order."""
    runs = _runs(text)
    last = start = 0
    for place in [at for at, run in enumerate(runs) if run in _FIRST_WORDS]:
        start += sum(map(len, runs[last:place])) + place - last
        if _WORD.match(text, start):
            yield start, start + len(runs[place]), runs[place].decode()
        last = place


def _runs(text: str) -> list[bytes]:
    """Return the Latin letters of a text between one other character and the next, often none."""
    return text.encode("ascii", "replace").translate(_LETTERS).split(b" ")


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
    rf"\b(?:on|by|since|until|till|from|before|after) (?:the )?{_DAY} |\d(?:st|nd|rd|th) (?:of )?|"
    rf"\b{_MONTHS}(?:,? | ?[-\u2013/] ?| (?:and|or|to|through|until|till) ))$",
    re.IGNORECASE,
)
_WINDOW = 24  # characters: longer than anything that the patterns around "May" match

# Where an operator's added "could" or "should" states a fact (C-21, C-22); "may not" stays a hedge.
_FACTUAL = re.compile(
    r"(?:could|can|should|would|must|shall) not\b|should (?:\w{1,15}ly |always )?be (?:exactly |set to |"
    rf"(?:at (?:least|most)|(?:less|more|greater|fewer) than|below|above|under|over) )?{_QUANTITY}",
    re.IGNORECASE,
)


def is_month(text: str, start: int, end: int) -> bool:
    """Tell whether text[start:end] is the month of May: any case before a year, else only as "May" (C-23)."""
    word = text[start:end]
    if word.lower() != "may":
        return False
    after = text[end : end + _WINDOW]
    if _YEAR_AFTER.match(after):
        return True
    return word == "May" and bool(
        _MONTH_AFTER.match(after) or _MONTH_BEFORE.search(text[max(0, start - _WINDOW) : start])
    )


def is_factual(text: str, start: int, end: int) -> bool:
    """Tell whether an added modal states a fact: "could not", "should be 5". Added phrases always count."""
    word = text[start:end].lower()
    return (" " not in word or word == "should be") and _FACTUAL.match(text, start) is not None
