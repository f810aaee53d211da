"""The decision of an LLM response: confidence, verdict and what is asked of the generator; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final, Literal, NamedTuple, get_args

from groundwire.checks.warnings import ReportWarning
from groundwire.decide.json_size import json_size
from groundwire.decide.people import reviewed
from groundwire.decide.response_reading import ResponseReading, found
from groundwire.decide.response_warnings import list_warnings
from groundwire.decide.tree import Standing, stand
from groundwire.messages.decisions import Facts, Place, ReasonCode
from groundwire.messages.responses import LlmResponse, Mode
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy

LOW: Final = 0.3
"""Confidence below which a response is blocked."""
DEGRADED: Final = 0.5
"""Confidence below which a simpler mode is asked for (S2-24)."""
SUFFICIENT: Final = 0.7
"""Confidence from which on a response needs no review for it."""
LAST_ATTEMPT: Final = 2
"""Attempt after which the generator is asked no more."""
MAX_QUERY_BYTES: Final = 300_000
"""Of a query as JSON: a request holds it twice, and a longer one is never asked again."""

INTERNAL: Final = "internal"
"""In `facts.error`: what broke was no single check."""
STATE: Final = "state"
"""In `facts.error`: state was out of reach, and the decision is provisional."""

_DIGITS: Final = 4
_MODES: Final[tuple[Mode, ...]] = get_args(Mode)  # from least to most thinking


Rule = tuple[object, ReasonCode]
"""Something that is true where the rule applies, and the reason that it gives."""


class Regeneration(NamedTuple):
    """What the generator is asked for: a mode, as which attempt, and why."""

    mode: Mode
    attempt: int
    why: Literal["low_confidence", "critical_gap"]


class ResponseCase:
    """A response with everything that bears on it; properties and methods are pure.

    Args:
        response: the record.
        reading: what the checks found.
        policy: the policy of the step that records.
        facts: what came from outside; `place` may still be empty before state is asked.
    """

    def __init__(self, response: LlmResponse, reading: ResponseReading, policy: Policy, facts: Facts) -> None:
        self.response = response
        self.reading = reading
        self.policy = policy
        self.facts = facts

    @property
    def sources_confidence(self) -> float:
        """Mean share of the parts of each source that hold; 1 where the check did not run."""
        sources = found(self.reading.sources)
        return sources.confidence if sources else 1.0

    @property
    def fields_confidence(self) -> float:
        """Share of the mentioned fields that the chunks hold; 1 where the check did not run."""
        fields = found(self.reading.fields)
        return fields.confidence if fields else 1.0

    @cached_property
    def confidence(self) -> float:
        """What the generator reported, less what did not hold, 0..1, 4 decimals (S2-15, C-44)."""
        lost = (1 - self.fields_confidence) + (1 - self.sources_confidence)
        return round(min(max(0.0, self.response.confidence - lost), 1.0), _DIGITS)  # in this order never -0.0

    @cached_property
    def warnings(self) -> list[ReportWarning]:
        """Every warning of the report, in the order of the checks."""
        return list_warnings(self.reading)

    def standing(self) -> Standing:
        """Return tier and reason before the queue: the first rule that applies."""
        for tier, code in self._rules():
            return stand(tier, code)
        return stand(IngestionTier.AUTO_APPROVE, ReasonCode.GROUNDED)

    def outcome(self) -> Standing:
        """Return tier and reason as published: what a person decided, else the standing, then the queue."""
        if self.facts.review is not None:
            return reviewed(self.facts.review["action"], expired=False, duplicate=False)
        standing = self.standing()
        full = self.facts.place not in {Place.FREE, Place.NOT_NEEDED}
        if standing.tier == IngestionTier.FLAG_REVIEW and full:
            return stand(IngestionTier.BLOCK, ReasonCode.REVIEW_QUEUE_FULL)
        return standing

    def _rules(self) -> Iterator[tuple[IngestionTier, ReasonCode]]:
        """Yield what applies, in the order of the contract: the first decides."""
        for applies, code in self._blocks():
            if applies:
                yield IngestionTier.BLOCK, code
        for applies, code in self._reviews():
            if applies:
                yield IngestionTier.FLAG_REVIEW, code

    def _blocks(self) -> Iterator[Rule]:
        entities, relations = found(self.reading.entities), found(self.reading.relations)
        quotes, claims = found(self.reading.quotes), found(self.reading.claims)
        strict = self.policy.evidence_quote_fail_on_all_rejected
        yield entities and entities.missing, ReasonCode.ENTITY_GROUNDING_FAILED
        yield relations and relations.violations, ReasonCode.RELATION_PRESERVATION_FAILED
        yield strict and quotes and quotes.failure, ReasonCode.QUOTES_REJECTED
        yield self.policy.on_critical == "block" and claims and claims.critical, ReasonCode.CRITICAL_GAP
        yield self.confidence < LOW, ReasonCode.LOW_CONFIDENCE

    def _reviews(self) -> Iterator[Rule]:
        reading = self.reading
        sources, tags, fields = found(reading.sources), found(reading.source_tags), found(reading.fields)
        index, quotes, claims = found(reading.index), found(reading.quotes), found(reading.claims)
        phantom = (sources and sources.phantom_files) or (tags and tags.phantom)
        yield INTERNAL in self.broken, ReasonCode.INTERNAL_ERROR
        unavailable = next(reading.broken, None) or (claims and claims.over_budget)
        yield STATE in self.broken or unavailable, ReasonCode.CHECK_UNAVAILABLE
        yield phantom, ReasonCode.PHANTOM_SOURCE
        yield sources and sources.mismatched_files, ReasonCode.SNIPPET_MISMATCH
        yield fields and fields.unverified, ReasonCode.UNVERIFIED_FIELDS
        yield index and index.stale, ReasonCode.STALE_INDEX
        yield quotes and quotes.stats.rejected_count, ReasonCode.QUOTES_REJECTED
        yield self.warnings or (claims and claims.unheld), ReasonCode.FLAGGED_CLAIMS
        yield self.confidence < SUFFICIENT, ReasonCode.LOW_CONFIDENCE
        yield not reading.grounded_on_something, ReasonCode.NOTHING_TO_GROUND_ON

    @cached_property
    def broken(self) -> dict[str, str]:
        """What broke -> class of the error."""
        return broken_checks(self.facts.error)

    @property
    def attempt(self) -> int | None:
        """How often an answer was asked for again before this one; None where nobody knows."""
        reply = self.facts.reply_to
        if reply is None:
            return 0
        return None if reply["attempt"] is None else min(reply["attempt"] + 1, LAST_ATTEMPT)

    @property
    def mode(self) -> Mode:
        """The lower of the sent and the asked mode."""
        asked = (self.facts.reply_to or {}).get("mode")
        sent = self.response.mode
        return sent if asked is None else min(sent, asked, key=_MODES.index)

    @cached_property
    def regeneration(self) -> Regeneration | None:
        """What to ask the generator for, if anything.

        Below 0.5, an answer in the next lower mode (S2-24); else, where the policy retries, one in the same mode
        without the claims that a critical gap parts from their evidence (S4-39). Nothing where the attempt is not
        known: a generator that names no true predecessor would be asked for ever. Nothing by a provisional
        decision either.
        """
        attempt = self.attempt
        if attempt is None or STATE in self.broken or json_size(self.response.query or "") > MAX_QUERY_BYTES:
            return None
        if self.confidence >= DEGRADED:
            return Regeneration(self.mode, attempt + 1, "critical_gap") if self._retries(attempt) else None
        if self._exhausted:
            return None
        return Regeneration(_MODES[_MODES.index(self.mode) - 1], attempt + 1, "low_confidence")

    def _retries(self, attempt: int) -> bool:
        """Whether claims that do not hold bring another attempt."""
        claims = found(self.reading.claims)
        most = min(LAST_ATTEMPT, self.policy.verification.max_retries)
        return claims is not None and claims.found.should_retry and attempt < most

    @property
    def fallback(self) -> str | None:
        """`raw_sources` where the chain has ended without an answer that holds (S2-25)."""
        ended = self.confidence < DEGRADED and self._exhausted and STATE not in self.broken
        return "raw_sources" if ended else None

    @property
    def _exhausted(self) -> bool:
        """Whether there is no simpler mode, or no further attempt."""
        return self.mode == _MODES[0] or self.attempt == LAST_ATTEMPT


def list_broken(broken: Mapping[str, str]) -> str | None:
    """Write what broke as `facts.error` of a response."""
    return ",".join(f"{check}={name}" for check, name in broken.items()) or None


def broken_checks(error: str | None) -> dict[str, str]:
    """Read `facts.error` of a response: check -> class of the error."""
    pairs = (part.partition("=") for part in (error or "").split(",") if part)
    return {check: name for check, _, name in pairs}
