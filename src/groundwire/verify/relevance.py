"""Whether what a claim cites supports it (S0-155).

The verifier of responses judges: the claim is held against the texts of all that it cites together, word by word, with
their negations, values and names. So a source that says the opposite, or gives another value, supports nothing. The
result may only lower a tier: a high support shows that the words agree, not that the claim is true.
"""

import re
from collections.abc import Sequence

from groundwire.checks.citations import CitationDetector
from groundwire.checks.support.verify import check_answer
from groundwire.text.stems import content_words

MAX_SOURCES = 60_000  # characters of sources that a claim is held against; it bounds the time

_WORD = re.compile(r"[^\W_]+")


def relevance(claim_text: str, sources: Sequence[str]) -> list[float]:
    """Return, for each source, the support of the claim by all of them, 0..1, rounded to 4 decimals.

    It is 0 for a source that has no content word of the claim, or comes after `MAX_SOURCES` characters of others.
    """
    kept, at = [], 0
    for citation in CitationDetector().detect(claim_text):
        kept.append(claim_text[at : citation.start])
        at = citation.end
    claim = " ".join([*kept, claim_text[at:]])
    claimed = _content(claim)
    shown: list[str] = []
    counts: list[bool] = []
    room = MAX_SOURCES
    for source in sources:
        room -= len(source)
        counts.append(room >= 0 and not claimed.isdisjoint(_content(source)))
        shown += [source] * counts[-1]
    support = round(check_answer(claim, shown, declared=True).support, 4) if shown else 0.0
    return [support if counted else 0.0 for counted in counts]


def _content(text: str) -> set[str]:
    return {stem for word in _WORD.findall(text) for stem in content_words(word)}
