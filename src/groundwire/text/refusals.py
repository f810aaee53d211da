"""Technical claims, and refusals: what needs a source tag and what says only that the sources lack the answer (S2-21).

Every sentence and every code block is a technical claim (S2-20), except headings, questions, lead-ins, refusals,
courtesy, and fragments of fewer than three words without a digit, a code span or an identifier. When in doubt a
sentence is a claim: a tag that is missing only brings a person to look.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"\w+")
_TECHNICAL = re.compile(r"[0-9`]|\w[_./]\w|[a-z][A-Z]|\w\(")
_HEADING = re.compile(r"#{1,6}\s")
_EMPHASIS = re.compile(r"(\*\*|__)[^*_]+\1")
_END = re.compile(r"[?:\uff1f\uff1a](?=[\s*_\"'\u201d\u2019)\]]*$)")
_TALK = re.compile(
    r"\W*(?:i hope (?:this|that|it)\b|let me know\b|feel free\b|happy to\b|glad to\b|thanks?\b|of course\W*$|"
    r"(?:here|below) (?:is|are)\b|here's\b|if you(?:'d| would)? (?:have|need|want|like)\b|would you like\b|"
    r"is there anything\b|do you (?:have|need|want)\b|please (?:let|feel|ask|contact|reach)\b|"
    r"you(?:'re| are) welcome\b)",
    re.IGNORECASE,
)

# What was retrieved, by the names that prompts and answers give it, and what it does not do.
_NOUN = r"(?:sources?|documents?|documentation|context|passages?|excerpts?|snippets?|chunks?|material)\b"
_SAY = "mention|say|specify|state|describe|discuss|address|explain|indicate|answer|cover"
_HOLD = "contain|include|provide|show|document|give|define|list"
_SAID = "found|mentioned|stated|specified|described|discussed|addressed|explained|indicated|covered"
_HELD = "documented|contained|given|shown|included|present|provided|available"
_DO_NOT = "(?:do|does|did)(?: not|n't)"
_GIVEN = rf"(?:provided|given|available|supplied|retrieved) {_NOUN}"
_EDGES = " .!*_\"'\u201c\u201d"
_NO_ANSWER = re.compile(
    rf"not (?:{_SAID}|{_HELD}) (?:in|by) (?:the |any |these |your )?(?:{_GIVEN}|{_NOUN})"
    rf"|{_NOUN} {_DO_NOT} (?:{_SAY}|{_HOLD})"
    r"|(?:could|can|did|do|was|were)(?:n't|not| not) (?:able to )?(?:find|locate|determine|answer|know|verify)\b"
    r"|(?:no|any|enough|insufficient) (?:relevant |further |such )?(?:information|evidence|mention) "
    r"(?:was|is|were|about|on|to|available|found|in)\b"
    r"|(?:unable|not able|impossible) to (?:find|locate|determine|answer)",
    re.IGNORECASE,
)
_CONCLUSION = re.compile(
    r",? (?:so|and|therefore|hence|thus) (?:i|we) (?:cannot|can't|can not|could not|couldn't|am unable to) "
    r"(?:answer|say|tell|help|confirm|determine)\b(?: (?:it|this|that|you|the|your|question|further|for sure))*",
    re.IGNORECASE,
)


def is_claim(text: str, *, code: bool = False) -> bool:
    """Return whether a sentence, less its source tags, is a technical claim."""
    if code:
        return _WORD.search(text.partition("\n")[2]) is not None
    plain = " ".join(text.replace("\u2019", "'").split())
    if says_nothing(plain) or _HEADING.match(plain) or _END.search(plain) or lack_of(plain) is not None:
        return False
    if _TECHNICAL.search(plain):
        return True
    words = len(_WORD.findall(plain))
    talk = words <= 12 and _TALK.match(plain)
    # "Backoff doubles." says something; and scripts that write without spaces have no few words.
    fragment = words < 3 - plain.endswith(".") and plain.isascii()
    return not (talk or fragment or _EMPHASIS.fullmatch(plain))


_COURTESY = re.compile(
    r"\W*(?:i hope|hope|let me know|feel free|i am|i'm|i'd be|i would be|happy|glad|pleased|thanks?|sure|certainly|"
    r"of course|absolutely|(?:here|below) (?:is|are)|here(?:'|\u2019)s|please|you(?:'re|\u2019re| are) welcome|"
    r"(?:good|great) question|sorry|have a|if you(?:'d| would)? (?:have|need|want|like)|is there anything|"
    r"any (?:other|more|further)|(?:would|do|did|are) you|(?:can|may|shall|could) i|what else|"
    r"in (?:summary|conclusion|short)(?=\W*$))\b",
    re.IGNORECASE,
)
_WHICH = (
    r"(?:(?:the|these|this|those|any|your|both|all|(?:any|all|either|none) of the(?:se)?) )?"
    r"(?:(?:given|provided|available|supplied|retrieved|above|two|three|first|second|third|other) ){0,3}"
)
_SOURCES = (
    rf"{_WHICH}(?:sources?|documents?|documentation|contexts?|passages?|excerpts?|snippets?|chunks?|materials?|texts?|"
    r"articles?|information|evidence|details?)(?: (?:provided|given|available|supplied|above|\d{1,2}))?"
)
_ADVERBS = r"(?:(?:also|explicitly|specifically|directly|clearly|actually|further|(?:seem|appear) to) ){0,2}"
_TELL = (
    r"(?:mention|say|specif|stat|describ|discuss|address|expla|indicat|answer|cover|contain|includ|provid|show|give|"
    r"defin|list|tell|offer|confirm|clarif|elaborat|detail|refer|note|report|reveal|disclos|identif|suggest|have|hold|"
    r"name)"
    r"\w{0,6}"
)
_TOLD = (
    rf"(?:{_SAID}|given|provided|included|documented|shown|listed|available|clear|known|contained|present|answered|"
    r"determined|detailed)"
)
_WH = "when|where|who|whom|whose|what|which|whether|how|why|if"
_TO_TELL = (
    r"(?:answer|determine|say|tell|confirm|verify|find|locate|help|assist|(?:provide|give) (?:an?|any|more|further|you|"
    r"(?:specific |exact )?(?:information|details|answers?)))"
)
_INFORMATION = (
    r"(?:an?|any|the|enough|sufficient|more|further|access to)? ?(?:\w+ )?(?:information|details?|data|answers?|"
    r"knowledge|context|sources?|documents?)"
)
_SOURCES = rf"(?:{_SOURCES}|(?:the|this|that) (?:notice|page|guide|manual|report|letter|note|section|table))"
_NOT = r"(?:(?:do|does|did|is|are|was|were|can|could|has|have)(?: not|n't)|cannot|never)"
_OPENING = (
    r"\W{0,4}(?:(?:(?:i'm|i am|we're|we are) (?:very )?(?:sorry|afraid)|sorry|unfortunately|regrettably|however|"
    r"therefore|thus|but|and|so|still|though|additionally|also|overall|(?:please )?note|that|as|since|"
    r"it is (?:important|worth) (?:to note|noting)|it should be noted|based on|according to)\b\W{0,3}){0,4}"
)
_LACK = re.compile(
    rf"{_OPENING}(?:{_SOURCES}\W{{0,3}})?(?:"
    rf"{_SOURCES} (?:(?:{_NOT}|never) {_ADVERBS}{_TELL}|lacks?\b|(?:is|are) silent (?:on|about)|leaves? (?:it )?open\b|"
    r"(?:gives?|provides?|contains?|has|have|offers?|makes?|mentions?|says?) (?:no|nothing)\b)(?P<what>.*)|"
    rf"(?:the )?answer (?:is|was) not (?:in|among) {_SOURCES}|"
    rf"(?:i|we) have (?:no|not any) {_INFORMATION}(?P<having>.*)|"
    rf"(?:they|it) {_NOT} {_ADVERBS}(?:mention|say|specify|state|name|tell|describe|discuss|go into)\b(?P<they>.*)|"
    rf"{_SOURCES}(?: here)? {_NOT} (?:let|allow|enable|permit|help) (?:\w+ )?(?:to )?{_TO_TELL}\b(?P<let>.*)|"
    rf"(?:it is|it's) (?:not|un)[ -]?(?:clear|stated|said|specified|known|given)(?: (?:in|by|from) {_SOURCES})?"
    rf"(?P<unclear> (?:{_WH})\b.*)|"
    rf"it isn't (?:clear|stated|said|specified|known|given)(?: (?:in|by|from) {_SOURCES})?(?P<vague> (?:{_WH})\b.*)|"
    rf"(?P<asked>(?:{_WH})\b.{{1,200}}?) (?:(?:is|are|was|were) )?(?:{_NOT}|not) (?:be )?{_ADVERBS}{_TOLD}"
    r"(?: here| anywhere)?|"
    rf"(?P<noun>.{{1,200}}?) (?:{_NOT}|not) {_ADVERBS}(?:stated|specified|mentioned|indicated|disclosed)"
    r"(?: here| anywhere)?|"
    rf"(?:no|nothing) (?P<none_said>.{{0,200}}?) ?(?:is|are|was|were) {_ADVERBS}"
    rf"(?:said|given|stated|mentioned|specified|made|provided)(?: here| in {_SOURCES})?"
    r"(?P<of>(?: (?:about|of|on|regarding|for)\b.*)?)|"
    rf"(?:neither(?: of)?|none of|no|nothing in|nowhere in) {_SOURCES} {_ADVERBS}{_TELL}(?P<neither>.*)|"
    rf"there(?:'s| is| was) nothing(?: in {_SOURCES})?(?P<nothing>(?: (?:about|on|regarding|concerning)\b.*)?)|"
    rf"(?:(?P<absent>.{{1,200}}?) )?{_NOT} (?:appear|occur|feature) (?:anywhere )?in {_SOURCES}|"
    rf"there(?: is| are| was| were|'s) (?:no|not enough|insufficient|not any) {_ADVERBS}(?:\w+ ){{0,2}}"
    r"(?:information|mention|details?|evidence|indication|answer|data|instructions?|explanation)\b(?P<none>.*)|"
    rf"(?:(?P<topic>.{{1,200}}?) )?(?:{_NOT}|not) (?:be )?{_ADVERBS}{_TOLD}(?: anywhere)? (?:in|by|from) {_SOURCES}|"
    r"(?:(?:i'm|we're|it's|(?:i|we|it|this) (?:am|are|is|was|were|would be)) )?"
    rf"(?:unable|not able|impossible|not possible|difficult) to {_TO_TELL}\b(?P<answer>.*)|"
    r"(?:i|we) (?:cannot|can't|can not|could not|couldn't|do not|don't|did not|didn't) "
    rf"{_ADVERBS}(?:know|see|have {_INFORMATION}|{_TO_TELL})\b(?: (?:from|in|by) {_SOURCES})?(?P<cannot>.*)"
    r")",
    re.IGNORECASE | re.DOTALL,
)
# The same in German, French and Spanish: the passages do not tell, or the writer knows nothing of it.
_GERMAN = r"(?:\w+ ){0,3}(?:dokument|quell|unterlag|text|passag|kontext|abschnitt|ausz[u\u00fc]g)\w*"
_GERMAN_NO = (
    r"(?:\w+ ){0,3}?(?:keine?\w*(?: \w+)? (?:angabe|information|hinweis|detail|auskunft|antwort|daten|"
    r"erw[a\u00e4]hnung)\w*|nichts?)"
)
_ROMANCE_WHAT = (
    r"(?:informaci[o\u00f3]n|information|mention|menci[o\u00f3]n|r\u00e9ponse|respuesta|d\u00e9tail|detalle|"
    r"donn\u00e9e|dato)"
)
_ROMANCE = r"(?:\w+ ){0,3}(?:documento?|source|fuente|passage|pasaje|extrait|extracto|texte|texto|contexte|contexto)s?"
_FOREIGN_LACK = re.compile(
    r"\W*(?:(?:leider|es tut mir leid|d\u00e9sol\u00e9e?|malheureusement|lo siento|lamentablemente)\W+"
    r"(?:aber |mais |pero )?)?(?:"
    rf"{_GERMAN} (?:enth[a\u00e4]lt|enthalt|nenn|erw[a\u00e4]hn|sag|geb|mach|liefer|beschreib)\w* {_GERMAN_NO}|"
    rf"(?:in|aus) {_GERMAN} (?:find|steh|geh|gib)\w* {_GERMAN_NO}|"
    rf"(?:dazu|dar[u\u00fc]ber|ich|wir) (?:hab|k[o\u00f6]nn|kann|wei[s\u00df]|find)\w* {_GERMAN_NO}|"
    rf"{_ROMANCE} (?:\w+ )?n(?:e |')\w+ (?:pas|rien|aucune?)(?: (?:d'|de |des )?{_ROMANCE_WHAT}s?)?|"
    rf"je n(?:e sais pas|'ai pas (?:\w+ )?(?:d'|de |assez d')?{_ROMANCE_WHAT}s?)|"
    rf"{_ROMANCE} (?:\w+ )?no \w+(?: ning\w+)?(?: {_ROMANCE_WHAT}\w*)?|"
    rf"no (?:s\u00e9|(?:tengo|tenemos|encontr\w+|hay|dispongo de) (?:\w+ ){{0,2}}{_ROMANCE_WHAT}\w*)"
    r")\b(?P<what>.*)",
    re.IGNORECASE | re.DOTALL,
)
_FOREIGN_DENIAL = re.compile(r"\b(?:keine?\w*|nichts?|ne|no|pas|aucune?)\b|\bn['\u2019]", re.IGNORECASE)
_FOREIGN_PRESUMES = re.compile(
    r"\b(?:dass|weil|obwohl|warum|weshalb|nachdem|bevor|als|que|qui|parce|pourquoi|car|porque|aunque|cuando|sondern|"
    r"aber|mais|pero)\b|[;:]",
    re.IGNORECASE,
)
_LACKING = (
    "no",
    "never",
    "unclear",
    "n't",
    "n\u2019t",
    "unable",
    "lack",
    "difficult",
    "silent",
    "impossible",
    "neither",
    "open",
)
_HOW = r"how(?: (?:many|much|long|often|far|old|to|well|large|big|small|high|tall|deep|wide|fast|soon|heavy|strong))"
_PRESUMES = re.compile(
    rf"\b(?:that(?= (?!questions?\b)\w)|which|whose|after|before|as|while|(?!{_HOW}\b)how)\b",
    re.IGNORECASE,
)
_CAUSES = re.compile(r"\b(?:why|because|since|although)\b", re.IGNORECASE)
_STATES = re.compile(r";|\b(?:is|are|was|were|has|have|uses?)\b", re.IGNORECASE)
_OPENS_QUESTION = re.compile(rf"\W*(?:{_WH})\b", re.IGNORECASE)
_POSSIBLE = re.compile(r"\b(?:that|which)(?: \w+){1,4} (?:may|might|could|would)\b", re.IGNORECASE)
_ASKED = re.compile(r"^\W*(?:which|whose)\b", re.IGNORECASE)
_ASKS = re.compile(r"\b(?:when|where|whom?|what|which|whose)\b", re.IGNORECASE)


def lack_of(clause: str) -> str | None:
    """Return what a clause of up to 1,000 characters says that the sources lack; None: it says something else.

    A noun phrase or a question of whether is lacking ("the price", "whether dogs are admitted"); what is presumed to
    be so ("why the company cheated") is said.

    Example:
        >>> lack_of("The passages do not mention the price."), lack_of("The passages do not say why he cheated.")
        (' the price', None)
    """
    return _lack_of(clause) if len(clause) <= 1_000 else None


@lru_cache(1 << 10)  # value check and verifier ask of the same clauses
def _lack_of(clause: str) -> str | None:
    folded = clause.casefold()
    if not any(word in folded for word in _LACKING) and not _FOREIGN_DENIAL.search(folded):
        return None
    plain = " ".join(clause.replace("\u2019", "'").split()).strip(_EDGES)
    found = _LACK.fullmatch(_CONCLUSION.sub("", plain))
    if found is None:
        found = _FOREIGN_LACK.fullmatch(plain) if _FOREIGN_DENIAL.search(plain) else None
        return None if found is None or _FOREIGN_PRESUMES.search(found["what"]) else found["what"]
    name, what = next(
        ((name, text) for name, text in found.groupdict().items() if text is not None), ("", "")
    )
    if name in {"absent", "topic", "noun"} and _STATES.search(what) and not _OPENS_QUESTION.match(what):
        return None  # "it uses backoff; retries" are not found
    # what is asked behind "whether" is not taken for granted
    given = _POSSIBLE.sub("", _ASKED.sub("", what).partition("whether")[0])
    return None if _PRESUMES.search(given) or _CAUSES.search(what) else what


def presumes(what: str) -> bool:
    """Return whether what is lacking takes something for granted: "when it burned down", unlike "the price"."""
    return _ASKS.search(what) is not None


_SPEAK = (
    r"(?:mention|not|highlight|stat|say|explain|point(?:s|ed)? out|tell|add|emphasi[sz])(?:e|es|s|ed|ing)?"
)
_FRAME = re.compile(
    r"\W*(?:(?:"
    r"(?:based|relying|drawing) (?:\w+ )?on|according to|going by|judging (?:by|from)|"
    r"as (?:stated|mentioned|described|noted|explained|per)(?: in| by)?|per|from|in"
    rf") {_SOURCES}(?: (?:above|below))?(?=\s?,| (?:it|i|we)\b)|"
    rf"(?:{_SOURCES}|it|they) (?:(?:also|only|just) )?{_SPEAK}(?: us)?(?: only)? that\b|"
    r"(?:please )?note that\b|it(?: is|'s|\u2019s) (?:also )?(?:important|essential|crucial|necessary|worth) (?:to )?"
    r"(?:not(?:e|ing)|remember(?:ing)?|mention(?:ing)?|keep in mind)(?: that)?\b|"
    r"(?:therefore|thus|hence|however|additionally|furthermore|moreover|overall|finally|lastly|in (?:summary|"
    r"conclusion|short|general|other words|addition)|"
    r"to (?:summari[sz]e|conclude|sum up)|for (?:example|instance))(?=\s?,)"
    r")",
    re.IGNORECASE,
)


def frame_of(statement: str) -> int:
    """Return how many characters of a statement only frame the rest: "Therefore, going by the documents, ..."."""
    end = 0
    while found := _FRAME.match(statement, end, 120):  # characters that may frame it
        end = found.end()
    return end


def is_wish(clause: str) -> bool:
    return (
        re.match(r"\W*(?:enjoy|have an? |good luck|best of luck|safe travels)", clause, re.IGNORECASE)
        is not None
    )


def is_courtesy(clause: str) -> bool:
    """Return whether a clause begins as courtesy and talk about the answer do: "I hope ...", "Here is ..."."""
    return _COURTESY.match(clause) is not None


def tells_no_answer(sentence: str) -> bool:
    """Return whether a sentence says in any part that something was not found: no claim to be extracted (X-15).

    Unlike a refusal it may say more, and need not name the sources: "I could not find the timeout".
    """
    return _NO_ANSWER.search(sentence) is not None


def is_table_rule(text: str) -> bool:
    return text.lstrip().startswith("|") and "-" in text and says_nothing(text)


def says_nothing(text: str) -> bool:
    return not any(char.isalnum() for char in text)


def claims_nothing(clauses: Iterable[str]) -> bool:
    """Return whether the statements of a text tell what the sources lack, and beside it are courteous at most.

    A text without a word to check may state all the same: "Yes.", "Indeed, he did."
    """
    lacking = {
        clause: tells_no_answer(clause) or any(lack_of(part) is not None for part in _TURN.split(clause))
        for clause in clauses
    }
    return any(lacking.values()) and all(lacks or is_courtesy(clause) for clause, lacks in lacking.items())


_TURN = re.compile(r"\b(?:but|however)\b|:")
