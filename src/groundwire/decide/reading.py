"""What a claim's text says by itself: its hedges and its citations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from groundwire.checks.citations import Citation, CitationDetector
from groundwire.checks.hedge_lexicon import Lexicon, hedge_lexicon
from groundwire.checks.hedges import Hedge, HedgeAction, HedgeDetector
from groundwire.policy import Policy

MAX_VERIFIED: Final = 100
"""Citations of a text that are verified; the rest give no credit."""

_citations = CitationDetector()


@dataclass(frozen=True, slots=True)
class Reading:
    """Hedges and citations of a text, each in text order."""

    hedges: tuple[Hedge, ...]
    hedge_words: tuple[str, ...]
    action: HedgeAction
    citations: tuple[Citation, ...]

    @property
    def verifiable(self) -> tuple[Citation, ...]:
        """The citations that are verified at all."""
        return self.citations[:MAX_VERIFIED]


_NOTHING: Final = Reading((), (), HedgeAction.CONTINUE, ())

UNREAD: Final = _NOTHING
"""What stands for the text of a claim that the gate's own code could not read."""


def read(content: str, policy: Policy) -> Reading:
    """Read a claim's text; pure, linear in its length."""
    detector = _detector(policy.hedges.block, policy.hedges.review, policy.hedges.lexicon)
    hedges, result = detector.read(content)
    citations = _citations.detect(content)
    if not hedges and not citations:
        return _NOTHING
    return Reading(tuple(hedges), tuple(result.hedge_words), result.action, tuple(citations))


@lru_cache(maxsize=64)
def _detector(block: tuple[str, ...], review: tuple[str, ...], lexicon: Lexicon) -> HedgeDetector:
    return HedgeDetector(block=block, review=(*review, *hedge_lexicon(lexicon)))
