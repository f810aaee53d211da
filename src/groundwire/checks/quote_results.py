"""The rules by which quotes are compared with their source, and what comparing gave (S1-33..S1-44)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from groundwire.checks.quote_schema import MAX_DOMAIN
from groundwire.messages.events import Event

Mode = Literal["substring", "fuzzy"]
Why = Literal["empty", "too_short", "not_found", "too_long", "number", "negation", "work_limit"]

MAX_EVENTS: Final = 1000
"""Most rejections of one source that get an event each; the summary counts them all."""
MAX_DOMAINS: Final = 100
"""Most domains that an event names."""


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
        ValueError: A mode or a threshold that there is not.
    """

    mode: Mode = "substring"
    fuzzy_threshold: float = 0.85
    min_characters: int = 0
    min_words: int = 0
    word_boundaries: bool = False
    remove_soft: bool = False

    def __post_init__(self) -> None:
        """Look whether the rules are ones."""
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
    why: Why


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
    mode: Mode
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
