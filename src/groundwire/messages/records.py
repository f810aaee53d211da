"""The records that come in: Claim, LlmResponse (S2-38), ReviewDecision and lines of a corpus; and the Retraction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from groundwire.messages.base import InputRecord, Metadata, Omissible, OutputRecord, ShortId, TenantId, Time
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject

_T = TypeVar("_T")


class _FirstFault(FailFast):
    """Report the first member at fault alone: the errors of thousands take a hundred times their bytes."""

    __hash__ = object.__hash__  # for `Omissible`: members of a union have one


_Items = Annotated[list[_T], _FirstFault()]

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

    @property
    def subject(self) -> Subject:
        """The identity of the claim."""
        return Subject(self.tenant_id, self.user_id, Kind.CLAIM, self.claim_id)


class Chunk(InputRecord):
    """A passage that was retrieved for the answer."""

    chunk_id: str
    file: str
    content: str
    start_line: int
    end_line: int
    revision: Omissible[str] = None
    indexed_at: Omissible[Time] = None
    version: Omissible[str] = None
    document_id: Omissible[str] = None


class Source(InputRecord):
    """A place that the answer cites."""

    file: str
    snippet: Omissible[str] = None
    start_line: Omissible[int] = None
    end_line: Omissible[int] = None


class Entity(InputRecord):
    """Something that the answer names."""

    id: str
    name: Omissible[str] = None
    role: Omissible[str] = None
    provenance_id: Omissible[str] = None


class IndexEntry(BaseModel):
    """What the corpus knows of an entity; further keys are the corpus's own."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True, hide_input_in_errors=True)

    confidence: Annotated[float, Field(ge=0, le=1)]
    role: Omissible[str] = None


class RelationClaim(InputRecord):
    """A subject, a relation and an object: of the answer, or as ground truth."""

    subject: str
    relation: str
    object: str
    timestamp: Omissible[Time] = None
    version: Omissible[str] = None
    qualifiers: Omissible[dict[str, Any]] = None


class Step(InputRecord):
    """A step of reasoning and the spans that it cites."""

    claim: str
    cites: list[str] = Field(default_factory=list)


Mode = Literal["instant", "auto", "thinking"]
"""How much a generator thinks, from least to most."""


class LlmResponse(InputRecord):
    """An answer of a language model with whatever it was grounded on; a check runs when what it needs is here."""

    response_id: Annotated[str, Field(min_length=1, max_length=190)]
    tenant_id: TenantId = "default"
    user_id: ShortId
    query: str | None = None
    mode: Mode = "auto"
    scope: str | None = None
    in_reply_to: str | None = None
    answer: str | None
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    chunks: Omissible[_Items[Chunk]] = None
    sources: Omissible[_Items[Source]] = None
    current_revisions: Omissible[dict[str, str]] = None
    transcript: Omissible[str] = None
    evidence: Omissible[dict[str, list[str]]] = None
    entities: Omissible[_Items[Entity]] = None
    corpus_index: Omissible[dict[str, IndexEntry]] = None
    claims: Omissible[_Items[RelationClaim]] = None
    relations: Omissible[_Items[RelationClaim]] = None
    hop_results: Omissible[list[Any]] = None
    steps: Omissible[_Items[Step]] = None
    context: Omissible[dict[str, str]] = None
    verify: bool = True
    fan_out: bool = False
    metadata: Metadata = Field(default_factory=dict)
    schema_version: str = "1.0"

    @property
    def subject(self) -> Subject:
        """The identity of the response."""
        return Subject(self.tenant_id, self.user_id, Kind.RESPONSE, self.response_id)


class CorpusEntity(IndexEntry):
    """An entity and its index entry; further fields, such as `provenance_id`, are the corpus's own."""

    id: Annotated[str, Field(min_length=1)]

    @classmethod
    def of(cls, name: str, entry: IndexEntry | Mapping[str, Any]) -> CorpusEntity:
        """Return an index entry with its entity's id. Raises: ValueError."""
        fields = entry.model_dump(exclude_none=True) if isinstance(entry, IndexEntry) else entry
        return cls.model_validate({**fields, "id": name})

    @model_validator(mode="after")
    def _limited(self) -> Self:
        size, limit = len(self.model_dump_json().encode()), 16_000
        if size > limit:
            raise ValueError(f"is {size} bytes as JSON, more than {limit}")
        return self


class CorpusLine(InputRecord):
    """`{"entity": {...}}` or `{"relation": {...}}`."""

    entity: Omissible[CorpusEntity] = None
    relation: Omissible[RelationClaim] = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.entity is None) == (self.relation is None):
            raise ValueError("entity: a line holds an entity or a relation, and not both")
        truth = self.relation
        if truth and not (truth.subject.strip() and truth.relation.strip() and truth.object.strip()):
            raise ValueError("relation: subject, relation and object must not be empty")
        return self


WireKind = Literal["claim", "response"]
Action = Literal["approve", "reject", "edit", "retract", "overrule", "comment", "pass", "expire"]


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

    @property
    def subject(self) -> Subject:
        """The identity of what is decided."""
        return Subject(self.tenant_id, self.user_id, Kind(self.kind), self.subject_id)


class Retraction(OutputRecord):
    """An approval withdrawn; `affected` names approved claims that rest on it, one level, at most 1,000."""

    ce_type: ClassVar = "groundwire.retraction.v1"

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
