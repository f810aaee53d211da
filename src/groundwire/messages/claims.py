"""Claim 1.0: what a producer asks to have stored."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groundwire.messages.base import InputRecord, Metadata, Omissible, ShortId, TenantId, Time

MemoryType = Literal["fact", "preference", "decision"]
"""What kind of memory a claim would become (S0-152)."""


class Claim(InputRecord):
    """One statement that an agent, a person or a document asks to have stored.

    Attributes:
        claim_id: with tenant and user, the identity of the claim.
        user_id: owner; only they, or a delegated reviewer, may decide it.
        content: the statement, 1 to 20,000 characters.
        source: who says so; what is neither trusted nor a conversation counts as AI synthesis.
        captured_at: when it was captured; the record's Kafka timestamp where absent.
        validity_horizon: from when on it no longer holds.
        derived_from: claim ids of the same tenant and user, or `response:<id>`, that it rests on.
    """

    claim_id: ShortId
    tenant_id: TenantId = "default"
    user_id: ShortId
    content: Annotated[str, Field(min_length=1, max_length=20_000)]
    memory_type: MemoryType = "fact"
    source: Annotated[str, Field(min_length=1, max_length=100)] = "ai_synthesis"
    source_id: str | None = None
    captured_at: Omissible[Time] = None
    validity_horizon: Time | None = None
    derived_from: Annotated[list[ShortId], Field(max_length=50)] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    schema_version: str = "1.0"

    @model_validator(mode="after")
    def _horizon_after_capture(self) -> Self:
        if self.captured_at and self.validity_horizon and self.validity_horizon < self.captured_at:
            raise ValueError("validity_horizon: lies before captured_at")
        return self
