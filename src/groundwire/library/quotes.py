"""Quotes checked against the text that they were taken from, with events and metrics (S1-01..S1-48)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from groundwire import metrics
from groundwire.arguments import takes
from groundwire.checks.quote_text import normalize_for_quote_match
from groundwire.checks.quotes import (
    ADVISED_THRESHOLD,
    EvidenceGroundingError,
    EvidenceGroundingStats,
    EvidenceSchemaError,
    PolarityNote,
    QuoteGrounding,
    QuoteRules,
    ground_quotes,
    threshold_advice,
    validate_evidence_schema,
)
from groundwire.library.events import Sink, emit
from groundwire.messages.events import Event

__all__ = [
    "EvidenceGroundingError",
    "EvidenceGroundingStats",
    "EvidenceQuoteSettings",
    "EvidenceSchemaError",
    "GroundedEvidence",
    "count_quotes",
    "ground_evidence",
    "normalize_for_quote_match",
    "validate_evidence_grounding",
    "validate_evidence_schema",
]


class EvidenceQuoteSettings(BaseSettings):
    """How quotes are checked; each field from `GROUNDWIRE_<FIELD IN CAPITALS>` (S1-01..S1-06).

    The defaults are the first step of a rollout: validation on, by substring. Fuzzy matching is opt-in, once
    rejections turn out to be mere differences in spacing and punctuation (S1-47). Each field means what the policy's
    key of the same name means; `fail_on_all_rejected` raises where not one quote stands in the transcript.

    Raises:
        pydantic.ValidationError: A mode that there is not, a threshold out of range.

    Example:
        >>> EvidenceQuoteSettings(evidence_quote_validation_mode="fuzzy").evidence_quote_fuzzy_threshold
        0.85
    """

    model_config = SettingsConfigDict(
        env_prefix="GROUNDWIRE_", extra="ignore", frozen=True, env_ignore_empty=True
    )

    evidence_quote_validation_enabled: bool = True
    evidence_quote_validation_mode: Literal["substring", "fuzzy"] = "substring"
    evidence_quote_fuzzy_threshold: Annotated[float, Field(ge=0.5, le=1.0)] = 0.85
    evidence_quote_fail_on_all_rejected: bool = False
    evidence_quote_log_rejections: bool = True
    evidence_quote_min_characters: Annotated[int, Field(ge=0, le=1000)] = 0
    evidence_quote_min_words: Annotated[int, Field(ge=0, le=100)] = 0
    evidence_quote_word_boundaries: bool = False
    evidence_quote_remove_soft: bool = False

    @property
    def rules(self) -> QuoteRules:
        """The same as rules of the check."""
        return QuoteRules(
            mode=self.evidence_quote_validation_mode,
            fuzzy_threshold=self.evidence_quote_fuzzy_threshold,
            min_characters=self.evidence_quote_min_characters,
            min_words=self.evidence_quote_min_words,
            word_boundaries=self.evidence_quote_word_boundaries,
            remove_soft=self.evidence_quote_remove_soft,
        )


@dataclass(frozen=True, slots=True)
class GroundedEvidence:
    """Evidence after its check, for records downstream.

    Attributes:
        evidence: Domain -> quotes: those that stand in the transcript; all, where nothing was checked.
        validated: Whether anything was checked (S1-43).
        llm_evidence_extracted_count: Quotes that the generator gave (S1-44).
        llm_evidence_rejected_count: Of these, rejected ones; None where nothing was checked.
        stats: The counts of the check; None where nothing was checked.
        failure: The failure record where not one quote stands in the transcript (S1-40), else None.
        polarity: Quotes that stand only behind a negation (C-41).
    """

    evidence: dict[str, list[str]]
    validated: bool
    llm_evidence_extracted_count: int
    llm_evidence_rejected_count: int | None
    stats: EvidenceGroundingStats | None = None
    failure: dict[str, Any] | None = None
    polarity: tuple[PolarityNote, ...] = ()


@takes(evidence=Mapping, transcript_text=str, fuzzy_threshold=float | int)
def validate_evidence_grounding(
    evidence: Mapping[str, Sequence[str]],
    transcript_text: str,
    *,
    mode: Literal["substring", "fuzzy"] = "substring",
    fuzzy_threshold: float = 0.85,
    log_rejections: bool = True,
    sink: Sink | None = None,
) -> tuple[dict[str, list[str]], EvidenceGroundingStats]:
    """Keep the quotes that stand in a transcript (S1-16..S1-38).

    A quote is accepted if its normal form is a substring of the transcript's; in fuzzy mode also if a window
    of the transcript scores at least the threshold and holds the same numbers, units and negations.

    Args:
        evidence: Domain -> quotes.
        transcript_text: The text that the quotes were taken from.
        mode: `substring`, or `fuzzy`, which needs rapidfuzz.
        fuzzy_threshold: Least score of a fuzzy match, 0.5 to 1.0; below 0.8 it is warned of (S1-26).
        log_rejections: Send `evidence_quote_rejected` for each rejected quote and one
            `evidence_grounding_complete`, with counts and hashes.
        sink: Where events go; by default the process's own sink, at first the log.

    Returns:
        The accepted quotes as they were, every domain kept, and their counts.

    Raises:
        EvidenceSchemaError: A domain holds something other than a list of quotes; names it.
        RuntimeError: Fuzzy mode without rapidfuzz.
        ValueError: Another mode, or a threshold out of range.

    Example:
        >>> evidence = {"sleep": ["I CAN'T sleep"], "mood": ["I feel hopeless"]}
        >>> kept, stats = validate_evidence_grounding(
        ...     evidence, "I can't sleep at night.", log_rejections=False
        ... )
        >>> kept, stats.rejected_by_domain
        ({'sleep': ["I CAN'T sleep"], 'mood': []}, {'sleep': 0, 'mood': 1})
    """
    rules = QuoteRules(mode=mode, fuzzy_threshold=fuzzy_threshold)
    if texts := [domain for domain, quotes in evidence.items() if isinstance(quotes, str)]:
        raise EvidenceSchemaError(f"not a list of quotes: {', '.join(texts)}")
    found = _ground(evidence, transcript_text, rules, sink, log_rejections=log_rejections)
    return found.validated, found.stats


def ground_evidence(
    raw: object,
    transcript_text: str,
    settings: EvidenceQuoteSettings | None = None,
    *,
    domains: Sequence[str] = (),
    sink: Sink | None = None,
) -> GroundedEvidence:
    """Check extracted evidence from its shape to its failure policy (S1-31, S1-40..S1-44).

    Where not one quote stands in the transcript, the event `evidence_failure` is sent and counted, whatever
    the settings say of rejections (S1-42, C-42).

    Args:
        raw: What a generator extracted, such as parsed JSON: domain -> list of quotes.
        transcript_text: The text that the quotes were taken from.
        settings: By default from the environment.
        domains: Domains that the result holds in any case (S1-32).
        sink: Where events go; by default the process's own sink.

    Returns:
        The quotes that may be used (S1-45); where validation is off, `raw` as it is, marked unvalidated.

    Raises:
        EvidenceSchemaError: `raw` has another shape.
        EvidenceGroundingError: Nothing stands in the transcript, under `evidence_quote_fail_on_all_rejected`.
        RuntimeError: Fuzzy mode without rapidfuzz.

    Example:
        >>> settings = EvidenceQuoteSettings(evidence_quote_log_rejections=False)
        >>> grounded = ground_evidence({"sleep": ["I cannot rest"]}, "I sleep well.", settings, sink=print)
        >>> grounded.evidence, grounded.failure["category"]
        ({'sleep': []}, 'EVIDENCE_HALLUCINATION')
    """
    settings = settings or EvidenceQuoteSettings()
    evidence = validate_evidence_schema(raw, domains)
    if not settings.evidence_quote_validation_enabled:
        untouched = (
            {str(domain): list(quotes) for domain, quotes in raw.items()} if isinstance(raw, Mapping) else {}
        )
        extracted = sum(map(len, untouched.values()))
        metrics.QUOTES.labels("unvalidated").inc(extracted)
        return GroundedEvidence(
            untouched,
            validated=False,
            llm_evidence_extracted_count=extracted,
            llm_evidence_rejected_count=None,
        )
    log_rejections = settings.evidence_quote_log_rejections
    found = _ground(evidence, transcript_text, settings.rules, sink, log_rejections=log_rejections)
    if found.failure:
        metrics.QUOTE_FAILURES.labels(found.mode).inc()
        emit(Event("evidence_failure", found.failure | {"transcript_hash": found.transcript_hash}), sink)
        if settings.evidence_quote_fail_on_all_rejected:
            raise EvidenceGroundingError(
                "evidence was extracted, but not one quote of it stands in the transcript"
            )
    return GroundedEvidence(
        evidence=found.validated,
        validated=True,
        llm_evidence_extracted_count=found.stats.extracted_count,
        llm_evidence_rejected_count=found.stats.rejected_count,
        stats=found.stats,
        failure=found.failure,
        polarity=found.polarity,
    )


def count_quotes(validated: Mapping[str, Sequence[str]], rejected: int) -> None:
    """Count what a check left: quotes by result, quotes of each domain, domains left empty (S1-48)."""
    metrics.QUOTES.labels("validated").inc(sum(map(len, validated.values())))
    metrics.QUOTES.labels("rejected").inc(rejected)
    for quotes in validated.values():
        metrics.QUOTES_PER_ITEM.observe(len(quotes))
        metrics.QUOTE_ITEMS.labels("supported" if quotes else "empty").inc()


def _ground(
    evidence: Mapping[str, Sequence[str]],
    transcript: str,
    rules: QuoteRules,
    sink: Sink | None,
    *,
    log_rejections: bool,
) -> QuoteGrounding:
    if rules.mode == "fuzzy" and threshold_advice(rules.fuzzy_threshold):
        low = {"threshold": rules.fuzzy_threshold, "advised": ADVISED_THRESHOLD}
        emit(Event("evidence_quote_threshold_low", low), sink)
    found = ground_quotes(evidence, transcript, rules)
    count_quotes(found.validated, found.stats.rejected_count)
    for event in found.events() if log_rejections else ():
        emit(event, sink)
    return found
