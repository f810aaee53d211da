"""The gate as a function: one claim in, a tier and its reasons out, with no services and nothing kept.

It decides by the same code as the stream. What needs state is not there: claims have no identity, no parents
and no queue, and stored memories come from a provider.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import get_args

from groundwire.arguments import takes
from groundwire.checks.dedup.signature import basis_points
from groundwire.errors import RecordError
from groundwire.gate.build import CONFIDENCE
from groundwire.gate.claim_case import UNREAD, ClaimCase, ClaimInputs, list_checks, primary_source, read_claim
from groundwire.gate.claims import CitationLookup
from groundwire.gate.types import PreparedClaim
from groundwire.library.dedup import (
    DedupChecker,
    Embedder,
    EmbedFunction,
    MemoryProvider,
    plain_rules,
    report,
)
from groundwire.logs import report_fault
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import DedupFacts, EvidenceObject, IngestionTier
from groundwire.messages.decode import validate
from groundwire.messages.headers import InboundRecord
from groundwire.messages.records import Claim, MemoryType
from groundwire.policy import GroundedIngestionConfig
from groundwire.verify.citations import CitationVerifier, default_verifier

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ValidationResult:
    """What validating a claim gave (S0-147).

    Attributes:
        tier: where the claim goes.
        approved: true for tier 1 only (S0-148).
        reason: why, in a sentence.
        evidence: where the claim comes from and how far it can be trusted.
        checks_passed: as in a Decision, for example `citation_present`.
        checks_failed: as in a Decision, for example `hedge_words_detected: maybe`.
        similarity_score: Jaccard or cosine, 0..1, of the memory that bears on the claim, else None (S0-118).
        conflicting_memory_id: the id of that memory, else None.
        checks_skipped: what was not looked at, for example `dedup_skipped` (S0-113).
    """

    tier: IngestionTier
    approved: bool
    reason: str
    evidence: EvidenceObject
    checks_passed: list[str]
    checks_failed: list[str]
    similarity_score: float | None
    conflicting_memory_id: str | None
    checks_skipped: list[str] = field(default_factory=list)


class IngestionValidator:
    """Decides single claims within a process (S0-151).

    Args:
        provider: stored memories; may be left out where deduplication is off.
        enable_dedup: compare claims with the provider's memories; off, duplicates pass (S0-113).
        config: the policy; the defaults where None.
        embedder: turns a text into a vector, for `dedup_method = "vector"` (S0-116).
        verifier: checks citations; without one, `docs/adrs` and the git repository of the working directory,
            and URLs of the public internet.

    Raises:
        ValueError: deduplication has no provider, or its method no embedder.

    Example:
        >>> import asyncio
        >>> validator = IngestionValidator(enable_dedup=False)
        >>> result = asyncio.run(validator.validate("Maybe we could try GraphQL", "fact", "ai_synthesis", "ada"))
        >>> result.tier.value, result.approved, result.reason
        ('tier_3', False, 'Contains personal speculation')
        >>> result.checks_failed[0]
        'hedge_words_detected: Maybe'
    """

    @takes(config=GroundedIngestionConfig | None)
    def __init__(
        self,
        provider: MemoryProvider | None = None,
        enable_dedup: bool = True,  # noqa: FBT001, FBT002 - the published signature
        *,
        config: GroundedIngestionConfig | None = None,
        embedder: Embedder | EmbedFunction | None = None,
        verifier: CitationVerifier | None = None,
    ) -> None:
        self._policy = config or GroundedIngestionConfig()
        self._verifier = verifier
        self._dedup: DedupChecker | None = None
        if not (enable_dedup and self._policy.enable_dedup):
            return
        if provider is None:
            raise ValueError("a provider of memories is needed, or enable_dedup=False")
        by_meaning = self._policy.dedup_method == "vector"
        if by_meaning and embedder is None:
            raise ValueError("dedup_method 'vector' needs an embedder")
        self._dedup = DedupChecker(
            provider, self._policy.dedup_threshold, embedder=embedder if by_meaning else None
        )

    async def validate(self, content: str, memory_type: str, source: str, user_id: str) -> ValidationResult:
        """Decide a claim.

        Args:
            content: the statement, 1 to 20,000 characters.
            memory_type: `fact`, `preference` or `decision`.
            source: who says so, for example `user` or `ai_synthesis`.
            user_id: owner of the memories that it is compared with.

        Raises:
            ValueError: an argument is not what a Claim holds; the message names it. Nothing else is raised:
                whatever breaks can only lower the tier (S0-21).
        """
        clock = datetime.now(UTC)
        fields = {"content": content, "memory_type": memory_type, "source": source, "user_id": user_id}
        try:
            claim = validate(Claim, {"claim_id": str(uuid.uuid4()), **fields})
        except RecordError as error:
            raise ValueError(error.message) from None
        prepared = await self._prepare(claim, clock)
        dedup = await self._compare(claim)
        inputs = prepared.inputs
        facts = inputs.facts(clock).model_copy(update={"dedup": dedup, "parents": []})
        case = ClaimCase(claim, prepared.reading, self._policy, facts, inputs.findings)
        outcome, checks = case.outcome(), list_checks(case)
        match = case.conflicting(outcome.code)
        return ValidationResult(
            tier=outcome.tier,
            approved=outcome.tier == IngestionTier.AUTO_APPROVE,
            reason=outcome.reason,
            evidence=EvidenceObject(
                claim=claim.content,
                capture_time=case.facts.clock,
                confidence=CONFIDENCE[outcome.tier],
                source_id=primary_source(case),
            ),
            checks_passed=checks.passed,
            checks_failed=checks.failed,
            similarity_score=round(match.inter / match.union, 4) if match else None,
            conflicting_memory_id=match.subject_id if match else None,
            checks_skipped=checks.skipped,
        )

    async def _prepare(self, claim: Claim, clock: datetime) -> PreparedClaim:
        record = InboundRecord(None, 0, 0, to_milliseconds(clock), None, None)
        unread = PreparedClaim(record, claim, "", UNREAD, None, ClaimInputs({}))
        try:
            prepared = unread._replace(reading=read_claim(claim.content, self._policy))
            if prepared.reading.citations:
                # a new one a call: it belongs to one event loop
                verifier = self._verifier or default_verifier()
                try:
                    lookup = CitationLookup(verifier, self._policy)
                    (prepared,) = await lookup.look_up([prepared], ask_network=True)
                finally:
                    if self._verifier is None:
                        await verifier.close()
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unjudged", exc)
            return unread.failed(exc)
        return prepared

    async def _compare(self, claim: Claim) -> DedupFacts:
        if self._dedup is None:
            return DedupFacts(status="disabled", scheme="disabled", matches=[])
        policy = self._policy
        try:
            types = [claim.memory_type] if policy.dedup_scope == "user_type" else get_args(MemoryType)
            matches = await self._dedup.matches(claim.content, claim.user_id, types)
            points = basis_points(policy.dedup_threshold)
            rules = plain_rules(points, material_difference=policy.dedup_material_difference)
            return report(matches, rules)
        except Exception as exc:  # noqa: BLE001 - whatever broke: the claim cannot be shown to be new
            logger.warning("deduplication failed: %s", type(exc).__name__)
            return DedupFacts(status="failed", scheme="exact", matches=[])
