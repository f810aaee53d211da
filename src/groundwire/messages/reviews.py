"""ReviewDecision 1.0, what a person decided, and Retraction 1.0, an approval withdrawn."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from groundwire.messages.base import InputRecord, Omissible, OutputRecord, ShortId, TenantId, Time

WireKind = Literal["claim", "response"]
Action = Literal["approve", "reject", "edit", "retract", "expire"]


class ReviewDecision(InputRecord):
    """One action of a reviewer on one subject; the first outcome of an `action_id` stands."""

    action_id: ShortId
    tenant_id: TenantId = "default"
    user_id: ShortId
    kind: WireKind = "claim"
    subject_id: ShortId
    expected_revision: Annotated[int, Field(ge=1, le=2_147_483_647)]
    action: Action
    reviewer: ShortId
    reason: Omissible[Annotated[str, Field(max_length=100)]] = None
    note: Omissible[Annotated[str, Field(max_length=2_000)]] = None
    content: Omissible[Annotated[str, Field(min_length=1, max_length=20_000)]] = None
    at: Omissible[Time] = None
    schema_version: str = "1.0"

    @model_validator(mode="after")
    def _content_with_edit_only(self) -> Self:
        if (self.action == "edit") != (self.content is not None):
            raise ValueError("content: goes with the action edit, and only with it")
        return self


class Retraction(OutputRecord):
    """An approval withdrawn; `affected` names approved claims that rest on it, one level, at most 1,000."""

    decision_id: str
    supersedes: str
    kind: WireKind
    subject_id: str
    tenant_id: str
    user_id: str
    reason: str | None
    actor: str
    at: Time
    affected: list[str]
    truncated: dict[str, int] | None = None
