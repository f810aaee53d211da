"""Quote grounding: a quote counts only where its source holds it (S1-16..S1-48).

No I/O, and no single step takes long, so that it can run in a thread beside an event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Final, Literal

from groundwire.checks.quote_text import (
    LONGEST,
    OutOfSteps,
    Steps,
    best_windows,
    comparison_form,
    differs,
    mark_words,
    require_rapidfuzz,
    standing,
)
from groundwire.messages.events import Event, text_hash
from groundwire.text.negation import Clauses

_MOST_KEYS: Final = 10  # that an error names
MAX_DOMAIN: Final = 100
"""Most characters of a domain's name in an error or an event."""
MAX_EVENTS: Final = 1000
"""Most rejections of one source that get an event each; the summary counts them all."""
MAX_DOMAINS: Final = 100
"""Most domains that an event names."""
ADVISED_THRESHOLD: Final = 0.8
"""Least fuzzy threshold that still tells a quote from a paraphrase (S1-26, C-37)."""

_NEAR: Final = 0.1  # below the threshold: a rejected quote that scores so much carries its score (S2-44)
_STEPS: Final = 12_000  # of fuzzy comparing, for each character of source and quotes
_MATTER_STEPS: Final = 2000  # that reading the numbers and negations of a window costs for each character

QuoteMode = Literal["substring", "fuzzy"]
RejectionReason = Literal["empty", "too_short", "not_found", "too_long", "number", "negation", "work_limit"]


class EvidenceSchemaError(ValueError):
    """Extracted evidence has another shape than domain -> list of strings.

    `domains` are those at fault, by name; empty where the whole is no object.
    """

    def __init__(self, message: str, domains: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.domains = tuple(domains)


def validate_evidence_schema(value: object, domains: Sequence[str] = ()) -> dict[str, list[str]]:
    """Read extracted evidence (S1-31, S1-32): the quotes of `domains` first, in that order, then others as they came.

    Blank and repeated quotes of a domain are dropped; quotes stay as written. Raises: EvidenceSchemaError, which
    names the domains, never a quote.
    """
    if not isinstance(value, Mapping):
        raise EvidenceSchemaError(
            f"evidence must be an object of domain -> list of strings, got {type(value).__name__}"
        )
    wrong = [
        key
        for key, quotes in value.items()
        if not (
            isinstance(key, str)
            and isinstance(quotes, list | tuple)
            and all(isinstance(quote, str) for quote in quotes)
        )
    ]
    if wrong:
        names = [key[:MAX_DOMAIN] if isinstance(key, str) else type(key).__name__ for key in wrong]
        shown = ", ".join(map(repr, names[:_MOST_KEYS]))
        more = f" and {len(names) - _MOST_KEYS} more" if len(names) > _MOST_KEYS else ""
        raise EvidenceSchemaError(f"evidence must be a list of strings for each domain: {shown}{more}", names)
    found: dict[str, list[str]] = {domain: [] for domain in domains}
    for key, quotes in value.items():
        kept: dict[str, str] = {}
        for quote in quotes:
            if bare := quote.strip():
                kept.setdefault(bare, quote)
        found[key] = list(kept.values())
    return found


class EvidenceGroundingError(ValueError):
    """The source holds none of the quotes (S1-41)."""


@dataclass(frozen=True, slots=True)
class QuoteRules:
    """When a quote counts as held by its source (S1-02, S1-03, S1-30)."""

    mode: QuoteMode = "substring"
    fuzzy_threshold: float = 0.85  # least score of a fuzzy match, inclusive: 0.5 to 1.0
    min_characters: int = 0  # in normal form
    min_words: int = 0
    word_boundaries: bool = False  # a substring has to begin and end at a word's
    remove_soft: bool = False  # soft hyphens and word joiners do not count either (S1-15)

    def __post_init__(self) -> None:
        if self.mode not in {"substring", "fuzzy"}:
            raise ValueError('mode must be "substring" or "fuzzy"')
        if not 0.5 <= self.fuzzy_threshold <= 1.0:
            raise ValueError("fuzzy_threshold must be from 0.5 to 1.0")


@dataclass(frozen=True, slots=True)
class EvidenceGroundingStats:
    """How many quotes their source holds (S1-33, S1-34)."""

    extracted_count: int
    validated_count: int
    rejected_count: int
    rejected_by_domain: dict[str, int]  # has every domain, with 0 where none was rejected


@dataclass(frozen=True, slots=True)
class RejectedQuote:
    """A quote that its source does not hold; never its text (S1-39)."""

    domain: str
    quote_hash: str  # first 12 hexadecimal characters of its SHA-256 (S1-37)
    quote_len: int
    score: float | None  # of the nearest window; None: not compared, or far below the threshold (S2-44)
    why: RejectionReason


@dataclass(frozen=True, slots=True)
class PolarityNote:
    """A validated quote, by its place in its domain, that occurs only behind a negation in its clause (C-41)."""

    domain: str
    index: int


@dataclass(frozen=True, slots=True)
class QuoteGrounding:
    """The validated quotes by domain, every domain included (S1-22), the rejected ones, and notes on the validated."""

    validated: dict[str, list[str]]
    stats: EvidenceGroundingStats
    rejected: tuple[RejectedQuote, ...]
    polarity: tuple[PolarityNote, ...]
    mode: QuoteMode
    transcript_hash: str
    transcript_len: int

    @property
    def failure(self) -> dict[str, Any] | None:
        """The failure record of evidence of which the source holds nothing, else None (S1-40)."""
        if self.stats.validated_count or not self.stats.extracted_count:
            return None
        return {
            "category": "EVIDENCE_HALLUCINATION",
            "severity": "ERROR",
            "stage": "evidence_extraction",
            "extracted_count": self.stats.extracted_count,
            "mode": self.mode,
        }

    def events(self) -> list[Event]:
        """Return a warning for each rejection and one summary where there were any (S1-35, S1-36)."""
        found = []
        for quote in self.rejected[:MAX_EVENTS]:
            payload = {
                "domain": quote.domain[:MAX_DOMAIN],
                "quote_hash": quote.quote_hash,
                "quote_len": quote.quote_len,
                "transcript_hash": self.transcript_hash,
                "transcript_len": self.transcript_len,
                "mode": self.mode,
            }
            if quote.score is not None:
                payload["score"] = quote.score
            found.append(Event("evidence_quote_rejected", payload))
        if found:
            domains = list(self.stats.rejected_by_domain.items())
            summary = {
                "extracted_count": self.stats.extracted_count,
                "validated_count": self.stats.validated_count,
                "rejected_count": self.stats.rejected_count,
                "rejected_by_domain": {name[:MAX_DOMAIN]: count for name, count in domains[:MAX_DOMAINS]},
                "transcript_hash": self.transcript_hash,
            }
            if len(domains) > MAX_DOMAINS:
                summary["truncated"] = len(domains) - MAX_DOMAINS
            found.append(Event("evidence_grounding_complete", summary, level="info"))
        return found


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
    why: RejectionReason | None = None
    score: float | None = None
    negated: bool = False


def ground_quotes(
    evidence: Mapping[str, Sequence[str]], transcript: str, rules: QuoteRules
) -> QuoteGrounding:
    """Look for each quote of `validate_evidence_schema` in its source (S1-16..S1-34).

    The time grows in proportion to the text; fuzzy comparison has a bounded share of it, and quotes left over then are
    rejected. Raises: RuntimeError for fuzzy mode without rapidfuzz (S1-07).
    """
    if rules.mode == "fuzzy":
        require_rapidfuzz()
    forms = {
        quote: comparison_form(quote, remove_soft=rules.remove_soft)
        for quote in dict.fromkeys(chain.from_iterable(evidence.values()))
    }
    steps = Steps(_STEPS * (len(transcript) + sum(map(len, forms.values()))))
    source = _Source(transcript, rules, steps)
    outcomes: dict[str, _Outcome] = {}
    fit: list[str] = []
    for form in forms.values():
        if not form:
            outcomes[form] = _Outcome("empty")
        elif len(form) < rules.min_characters or len(form.split()) < rules.min_words:
            outcomes[form] = _Outcome("too_short")
        else:
            fit.append(form)
    for form, held in source.standing(fit).items():
        if held:
            negated = source.clauses.always_negates(form, whole_words=rules.word_boundaries)
            outcomes[form] = _Outcome(negated=negated)
        else:
            outcomes[form] = source.nearly(form) if rules.mode == "fuzzy" else _Outcome("not_found")
    outcomes = {quote: outcomes[form] for quote, form in forms.items()}
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
    extracted = sum(map(len, evidence.values()))
    by_domain = Counter(quote.domain for quote in rejected)
    stats = EvidenceGroundingStats(
        extracted_count=extracted,
        validated_count=extracted - len(rejected),
        rejected_count=len(rejected),
        rejected_by_domain={domain: by_domain[domain] for domain in evidence},
    )
    return QuoteGrounding(
        validated, stats, tuple(rejected), tuple(polarity), rules.mode, text_hash(transcript), len(transcript)
    )


class _Source:
    def __init__(self, transcript: str, rules: QuoteRules, steps: Steps) -> None:
        self.text = comparison_form(transcript, remove_soft=rules.remove_soft)
        self._rules = rules
        self._steps = steps

    @cached_property
    def clauses(self) -> Clauses:
        return Clauses(self.text)

    def standing(self, quotes: list[str]) -> dict[str, bool]:
        if not self._rules.word_boundaries:
            return dict(standing(quotes, self.text))
        marked = {quote: mark_words(quote) for quote in quotes}
        found = dict(standing(marked.values(), mark_words(self.text)))
        return {quote: found[mark] for quote, mark in marked.items()}

    def nearly(self, quote: str) -> _Outcome:
        """Look for a window that a quote nearly matches and that says the same (S1-25, S1-28, S1-29)."""
        if len(quote) > min(len(self.text), LONGEST):
            return _Outcome("too_long")
        threshold = self._rules.fuzzy_threshold
        outcome = _Outcome("not_found")
        try:
            for window in best_windows(quote, self.text, max(0.0, threshold - _NEAR), self._steps):
                why: RejectionReason | None = "not_found"
                if window.score >= threshold - 1e-9:  # rounding must not decide
                    self._steps.spend(len(quote) * (_MATTER_STEPS + len(quote) // 16))
                    why = differs(quote, self.text, window)
                score = round(window.score, 4)
                if why is None:
                    return _Outcome(None, score, self.clauses.negates(window.start))
                if score > (outcome.score or 0.0):
                    outcome = _Outcome(why, score)
        except OutOfSteps:
            return _Outcome("work_limit", outcome.score)
        return outcome
