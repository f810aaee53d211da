"""Does a source speak of what the claim says (S0-155)?

A lexical measure: the share of the claim's content words that occur in the source. It sees neither negation
nor meaning, so it can show that a source is beside the point, never that it supports a claim; its result may
only lower a tier.
"""

import re

from groundwire.checks.citations import CitationDetector
from groundwire.checks.nfkc import nfkc

MINIMUM_RELEVANCE = 0.5
"""Share of content words from which a source counts as relevant."""

_WORD = re.compile(r"[^\W_]+")
_STEM = 6  # letters that must agree: postgres and postgresql, migrate and migration
_STOP_WORDS = frozenset(
    """
    a about above accord according after again against all also am an and any are as at be because been before
    being below between both but by can cannot could did do does doing done down during each either every few
    for from further had has have having he her here hers him his how i if in into is it its itself just like
    may me might more most must my neither no nor not now of off on once only onto or other our ours out over
    own per please same see shall she should since so some such than that the their theirs them then there
    these they this those through thus to too under until up upon us via was we were what when where whether
    which while who whom whose why will with within without would yes yet you your yours
    adr commit issue
    """.split()  # noqa: SIM905 - a word list reads better as prose
)


def relevance(claim_text: str, source_text: str) -> float:
    """Return how much of a claim's vocabulary a source shares.

    Stop words and citations in the claim do not count; words agree when their first six letters do, after
    plural, -ing and -ed endings are cut off.

    Args:
        claim_text: The claim, with its citations.
        source_text: Text of the cited source.

    Returns:
        0..1, rounded to 4 decimals; 0 for a claim without content words, since nothing then shows relevance.
    """
    claimed = _content(_without_citations(claim_text))
    if not claimed:
        return 0.0
    return round(len(claimed & _content(source_text)) / len(claimed), 4)


def _without_citations(text: str) -> str:
    kept, at = [], 0
    for citation in CitationDetector().detect(text):
        kept.append(text[at : citation.start])
        at = citation.end
    return " ".join([*kept, text[at:]])


def _content(text: str) -> set[str]:
    words = _WORD.findall(nfkc(text).casefold())
    return {
        _stem(w) for w in words if w not in _STOP_WORDS and (len(w) > 1 or not w.isascii() or w.isdigit())
    }


def _stem(word: str) -> str:
    """Fold inflections: stores, stored and storing are one word."""
    if not word.isalpha():
        return word  # a number or an identifier is itself
    if word.endswith("ies") and len(word) > 4:
        word = word[:-3] + "y"
    elif word.endswith(("ss", "us", "is")):
        pass  # class, status, analysis: no plural
    elif word.endswith("s") and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    word = word.removesuffix("e")
    if len(word) > 3 and word[-1] == word[-2]:  # planned as plan, calls as called
        word = word[:-1]
    return word[:_STEM]
