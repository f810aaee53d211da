"""Claims that a response makes go through the claim gate as claims of their own (X-15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from groundwire.checks.extraction import extract_claims
from groundwire.decide.claims import AI_SYNTHESIS
from groundwire.decide.json_size import json_size
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision
from groundwire.messages.tiers import IngestionTier

MAX_EXTRACTION_BYTES: Final = 60_000
"""Bytes of all extracted claims as JSON: they stand in the decision, whole."""

RESPONSE_PARENT: Final = "response:"


def extract(answer: str | None, limit: int) -> list[str]:
    """Return the claims of an answer that are fanned out: the first ones, as many as have room."""
    claims: list[str] = []
    room = MAX_EXTRACTION_BYTES
    for text in extract_claims(answer or "", limit):
        room -= json_size(text)
        if room < 0:
            break
        claims.append(text)
    return claims


def fan_out(decision: Decision) -> Sequence[Claim]:
    """Return the claims that a response's decision sends to the claim gate; none for a blocked one.

    The same decision gives the same claims, so that sending them again changes nothing.
    """
    if decision.tier == IngestionTier.BLOCK:
        return ()
    parent = RESPONSE_PARENT + decision.subject_id
    return [
        Claim(
            claim_id=f"{decision.subject_id}#{number}",
            tenant_id=decision.tenant_id,
            user_id=decision.user_id,
            content=text,
            source=AI_SYNTHESIS,
            source_id=parent,
            derived_from=[parent],
        )
        for number, text in enumerate(decision.facts.extraction or (), 1)
    ]
