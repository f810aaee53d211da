"""The three tiers (S0-01)."""

from __future__ import annotations

from enum import StrEnum


class IngestionTier(StrEnum):
    """Where a claim goes; compares equal to its wire value."""

    AUTO_APPROVE = "tier_1"
    FLAG_REVIEW = "tier_2"
    BLOCK = "tier_3"


Tier = IngestionTier
