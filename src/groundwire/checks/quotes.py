"""Quote grounding: a quote counts only where it stands in its source (S1-16..S1-48).

Pure, and made of short steps, so that it can run in a thread beside an event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from groundwire.checks.quote_fuzzy import (
    LONGEST,
    OutOfSteps,
    Steps,
    Window,
    best_windows,
    require_rapidfuzz,
)
from groundwire.checks.quote_matter import differs
from groundwire.checks.quote_polarity import Clauses
from groundwire.checks.quote_results import (
    EvidenceGroundingError,
    EvidenceGroundingStats,
    PolarityNote,
    QuoteGrounding,
    QuoteRules,
    RejectedQuote,
    Why,
)
from groundwire.checks.quote_schema import EvidenceSchemaError, validate_evidence_schema
from groundwire.checks.quote_search import standing
from groundwire.checks.quote_text import comparison_form, mark_words
from groundwire.messages.events import text_hash

__all__ = [
    "EvidenceGroundingError",
    "EvidenceGroundingStats",
    "EvidenceSchemaError",
    "PolarityNote",
    "QuoteGrounding",
    "QuoteRules",
    "RejectedQuote",
    "ground_quotes",
    "threshold_advice",
    "validate_evidence_schema",
]

ADVISED_THRESHOLD: Final = 0.8
"""Least fuzzy threshold that still tells a quote from a paraphrase (S1-26, C-37)."""

_NEAR: Final = 0.1  # below the threshold: a rejected quote that scores so much carries its score (S2-44)
_STEPS: Final = 12_000  # of fuzzy comparing, for each character of source and quotes
_MATTER_STEPS: Final = 2000  # that reading the numbers and negations of a window costs for each character


def threshold_advice(threshold: float) -> str | None:
    """Return a warning for a fuzzy threshold that is too low to mean anything, else None (S1-26)."""
    if threshold >= ADVISED_THRESHOLD:
        return None
    return (
        f"a fuzzy threshold below {ADVISED_THRESHOLD} accepts paraphrases and so checks nothing; "
        "1.0 is exact, 0.9 very close, 0.85 the default"
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What became of one quote, however often it was extracted."""

    why: Why | None = None
    score: float | None = None
    negated: bool = False


def ground_quotes(
    evidence: Mapping[str, Sequence[str]], transcript: str, rules: QuoteRules
) -> QuoteGrounding:
    """Look for each quote in its source (S1-16..S1-34).

    The source is brought into normal form once, and so is each quote, however often it comes. The time grows
    in proportion to the text; fuzzy comparing has a share of it, and quotes left over then are rejected.

    Args:
        evidence: Domain -> quotes, as from `validate_evidence_schema`.
        transcript: The source.
        rules: When a quote counts.

    Raises:
        RuntimeError: Fuzzy mode without rapidfuzz (S1-07).
    """
    if rules.mode == "fuzzy":
        require_rapidfuzz()
    outcomes = _outcomes(dict.fromkeys(chain.from_iterable(evidence.values())), transcript, rules)
    validated: dict[str, list[str]] = {}
    rejected: list[RejectedQuote] = []
    polarity: list[PolarityNote] = []
    for domain, quotes in evidence.items():
        kept = validated[domain] = []
        for quote in quotes:
            found = outcomes[quote]
            if found.why is not None:
                rejected.append(RejectedQuote(domain, text_hash(quote), len(quote), found.score, found.why))
                continue
            if found.negated:
                polarity.append(PolarityNote(domain, len(kept)))
            kept.append(quote)
    stats = _stats(evidence, rejected)
    return QuoteGrounding(
        validated, stats, tuple(rejected), tuple(polarity), rules.mode, text_hash(transcript), len(transcript)
    )


def _stats(evidence: Mapping[str, Sequence[str]], rejected: list[RejectedQuote]) -> EvidenceGroundingStats:
    extracted = sum(map(len, evidence.values()))
    by_domain = Counter(quote.domain for quote in rejected)
    return EvidenceGroundingStats(
        extracted_count=extracted,
        validated_count=extracted - len(rejected),
        rejected_count=len(rejected),
        rejected_by_domain={domain: by_domain[domain] for domain in evidence},
    )


class _Source:
    """A source in the form in which quotes are compared with it."""

    def __init__(self, transcript: str, rules: QuoteRules, steps: Steps) -> None:
        self.text = comparison_form(transcript, remove_soft=rules.remove_soft)
        self._rules = rules
        self._steps = steps
        self._clauses: Clauses | None = None

    @property
    def clauses(self) -> Clauses:
        if self._clauses is None:
            self._clauses = Clauses(self.text)
        return self._clauses

    def standing(self, quotes: list[str]) -> dict[str, bool]:
        """Tell of each quote whether it stands here as it is."""
        if not self._rules.word_boundaries:
            return dict(standing(quotes, self.text))
        marked = {quote: mark_words(quote) for quote in quotes}
        found = dict(standing(marked.values(), mark_words(self.text)))
        return {quote: found[mark] for quote, mark in marked.items()}

    def negated(self, quote: str) -> bool:
        return self.clauses.always_negates(quote, whole_words=self._rules.word_boundaries)

    def nearly(self, quote: str) -> _Outcome:
        """Look for a window that a quote nearly matches and that says the same (S1-25, S1-28, S1-29)."""
        if len(quote) > min(len(self.text), LONGEST):
            return _Outcome("too_long")
        threshold = self._rules.fuzzy_threshold
        outcome = _Outcome("not_found")
        try:
            for window in best_windows(quote, self.text, max(0.0, threshold - _NEAR), self._steps):
                why, score = self._verdict(quote, window, threshold), round(window.score, 4)
                if why is None:
                    return _Outcome(None, score, self.clauses.negates(window.start))
                if score > (outcome.score or 0.0):
                    outcome = _Outcome(why, score)
        except OutOfSteps:
            return _Outcome("work_limit", outcome.score)
        return outcome

    def _verdict(self, quote: str, window: Window, threshold: float) -> Why | None:
        if window.score < threshold - 1e-9:  # rounding must not decide
            return "not_found"
        self._steps.spend(len(quote) * (_MATTER_STEPS + len(quote) // 16))
        return differs(quote, self.text, window)


def _outcomes(quotes: Iterable[str], transcript: str, rules: QuoteRules) -> dict[str, _Outcome]:
    forms = {quote: comparison_form(quote, remove_soft=rules.remove_soft) for quote in quotes}
    steps = Steps(_STEPS * (len(transcript) + sum(map(len, forms.values()))))
    source = _Source(transcript, rules, steps)
    outcomes = {form: _Outcome(why) for form in forms.values() if (why := _unfit(form, rules))}
    fit = [form for form in forms.values() if form not in outcomes]
    outcomes.update(_compared(fit, source, rules))
    return {quote: outcomes[form] for quote, form in forms.items()}


def _compared(forms: list[str], source: _Source, rules: QuoteRules) -> Iterator[tuple[str, _Outcome]]:
    for form, stands in source.standing(forms).items():
        if stands:
            yield form, _Outcome(negated=source.negated(form))
        elif rules.mode == "fuzzy":
            yield form, source.nearly(form)
        else:
            yield form, _Outcome("not_found")


def _unfit(form: str, rules: QuoteRules) -> Why | None:
    """Return why a quote is not even looked for, else None."""
    if not form:
        return "empty"
    if len(form) < rules.min_characters or len(form.split()) < rules.min_words:
        return "too_short"
    return None
