"""Quote grounding: a quote counts only where it stands in its source (S1-16..S1-48).

`validate_evidence_schema` reads extracted evidence, `ground_quotes` looks for each quote by the rules given,
and a `QuoteGrounding` says what was found, as report, events and failure record. Nothing here does I/O, and no single
step takes long, so that it can run in a thread beside an event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

from groundwire.checks.quote_text import (
    LONGEST,
    OutOfSteps,
    Steps,
    Window,
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

    Attributes:
        domains: The domains at fault, by name; empty where the whole is no object.
    """

    def __init__(self, message: str, domains: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.domains = tuple(domains)


def validate_evidence_schema(value: object, domains: Sequence[str] = ()) -> dict[str, list[str]]:
    """Read extracted evidence (S1-31, S1-32).

    Repeated quotes of a domain are dropped, the first stays, and so are blank ones. Quotes stay as written.

    Args:
        value: What a generator gave, such as parsed JSON.
        domains: Domains that the result holds even where the value does not have them, with no quotes.

    Returns:
        The quotes of each domain: those of `domains` first, in that order, then others as they came.

    Raises:
        EvidenceSchemaError: Something is not of that shape; names the domains, never a quote.
    """
    if not isinstance(value, Mapping):
        raise EvidenceSchemaError(
            f"evidence must be an object of domain -> list of strings, got {type(value).__name__}"
        )
    wrong = [key for key, quotes in value.items() if not (isinstance(key, str) and _is_list(quotes))]
    if wrong:
        names = [key[:MAX_DOMAIN] if isinstance(key, str) else type(key).__name__ for key in wrong]
        shown = ", ".join(map(repr, names[:_MOST_KEYS]))
        more = f" and {len(names) - _MOST_KEYS} more" if len(names) > _MOST_KEYS else ""
        raise EvidenceSchemaError(f"evidence must be a list of strings for each domain: {shown}{more}", names)
    found: dict[str, list[str]] = {domain: [] for domain in domains}
    found.update((key, _different(quotes)) for key, quotes in value.items())
    return found


def _is_list(quotes: object) -> bool:
    return isinstance(quotes, list | tuple) and all(isinstance(quote, str) for quote in quotes)


def _different(quotes: Sequence[str]) -> list[str]:
    kept: dict[str, str] = {}
    for quote in quotes:
        if bare := quote.strip():
            kept.setdefault(bare, quote)
    return list(kept.values())


class EvidenceGroundingError(ValueError):
    """Not one of the quotes stands in the source (S1-41)."""


@dataclass(frozen=True, slots=True)
class QuoteRules:
    """When a quote counts as standing in its source.

    Attributes:
        mode: `substring`, or `fuzzy` for those that nearly stand there too (S1-02, S1-27).
        fuzzy_threshold: Least score of a fuzzy match, inclusive: 0.5 to 1.0 (S1-03).
        min_characters: Shorter quotes, in normal form, are rejected (S1-30).
        min_words: Quotes of fewer words are rejected (S1-30).
        word_boundaries: A substring has to begin and end at a word's (S1-30).
        remove_soft: Soft hyphens and word joiners do not count either (S1-15).

    Raises:
        ValueError: An unknown mode, or a threshold out of range.
    """

    mode: QuoteMode = "substring"
    fuzzy_threshold: float = 0.85
    min_characters: int = 0
    min_words: int = 0
    word_boundaries: bool = False
    remove_soft: bool = False

    def __post_init__(self) -> None:
        """Check mode and threshold."""
        if self.mode not in {"substring", "fuzzy"}:
            raise ValueError('mode must be "substring" or "fuzzy"')
        if not 0.5 <= self.fuzzy_threshold <= 1.0:
            raise ValueError("fuzzy_threshold must be from 0.5 to 1.0")


@dataclass(frozen=True, slots=True)
class EvidenceGroundingStats:
    """How many quotes stand in their source (S1-33, S1-34).

    Attributes:
        extracted_count: Quotes that there were.
        validated_count: Of these, the ones that stand there.
        rejected_count: The others.
        rejected_by_domain: The others by domain; every domain is there, with 0 where none was rejected.
    """

    extracted_count: int
    validated_count: int
    rejected_count: int
    rejected_by_domain: dict[str, int]


@dataclass(frozen=True, slots=True)
class RejectedQuote:
    """A quote that does not stand in its source; never its text (S1-39).

    Attributes:
        domain: Where it was extracted for.
        quote_hash: First 12 hexadecimal characters of its SHA-256 (S1-37).
        quote_len: Its length in characters.
        score: Of the window that it comes nearest to, 0 to 1; None where it was not compared that way or
            comes nowhere near the threshold (S2-44).
        why: `empty`, `too_short`, `not_found`, `too_long` (longer than the source, or than is compared),
            `number` or `negation` (differs in one from what it nearly matches), `work_limit`.
    """

    domain: str
    quote_hash: str
    quote_len: int
    score: float | None
    why: RejectionReason


@dataclass(frozen=True, slots=True)
class PolarityNote:
    """A validated quote that stands only where a negation precedes it in its clause (C-41).

    Attributes:
        domain: Of the quote.
        index: Its place among the validated quotes of the domain, from 0.
    """

    domain: str
    index: int


@dataclass(frozen=True, slots=True)
class QuoteGrounding:
    """What comparing quotes with their source gave.

    Attributes:
        validated: The quotes that stand there, as written and in their order; every domain is there (S1-22).
        stats: Their numbers.
        rejected: The others.
        polarity: Notes on validated quotes.
        mode: How they were compared.
        transcript_hash: Of the source.
        transcript_len: Length of the source in characters.
    """

    validated: dict[str, list[str]]
    stats: EvidenceGroundingStats
    rejected: tuple[RejectedQuote, ...]
    polarity: tuple[PolarityNote, ...]
    mode: QuoteMode
    transcript_hash: str
    transcript_len: int

    @property
    def failure(self) -> dict[str, Any] | None:
        """The failure record of evidence of which nothing stands in its source, else None (S1-40)."""
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
        if not self.rejected:
            return []
        return [*map(self._rejection, self.rejected[:MAX_EVENTS]), self._summary()]

    def _rejection(self, quote: RejectedQuote) -> Event:
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
        return Event("evidence_quote_rejected", payload)

    def _summary(self) -> Event:
        domains = list(self.stats.rejected_by_domain.items())
        payload = {
            "extracted_count": self.stats.extracted_count,
            "validated_count": self.stats.validated_count,
            "rejected_count": self.stats.rejected_count,
            "rejected_by_domain": {name[:MAX_DOMAIN]: count for name, count in domains[:MAX_DOMAINS]},
            "transcript_hash": self.transcript_hash,
        }
        if len(domains) > MAX_DOMAINS:
            payload["truncated"] = len(domains) - MAX_DOMAINS
        return Event("evidence_grounding_complete", payload, level="info")


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

    why: RejectionReason | None = None
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

    def _verdict(self, quote: str, window: Window, threshold: float) -> RejectionReason | None:
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


def _unfit(form: str, rules: QuoteRules) -> RejectionReason | None:
    if not form:
        return "empty"
    if len(form) < rules.min_characters or len(form.split()) < rules.min_words:
        return "too_short"
    return None
