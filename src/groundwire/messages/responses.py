"""LlmResponse 1.0: what a generator answered, with what it was given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from groundwire.messages.base import InputRecord, Metadata, ShortId, TenantId, Time


class _Part(InputRecord):
    """A part of a response: as strict as the whole."""


class Chunk(_Part):
    """A passage that was retrieved for the answer."""

    chunk_id: str
    file: str
    content: str
    start_line: int
    end_line: int
    revision: str | None = None
    indexed_at: Time | None = None
    version: str | None = None
    document_id: str | None = None


class Source(_Part):
    """A place that the answer cites."""

    file: str
    snippet: str | None = None
    start_line: int | None = None
    end_line: int | None = None


class Entity(_Part):
    """Something that the answer names."""

    id: str
    name: str | None = None
    role: str | None = None
    provenance_id: str | None = None


class IndexEntry(BaseModel):
    """What the corpus knows of an entity; further keys are the corpus's own."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    confidence: Annotated[float, Field(ge=0, le=1)]
    role: str | None = None


class RelationClaim(_Part):
    """A subject, a relation and an object: of the answer, or as ground truth."""

    subject: str
    relation: str
    object: str
    timestamp: Time | None = None
    version: str | None = None
    qualifiers: dict[str, Any] | None = None


class Step(_Part):
    """A step of reasoning and the spans that it cites."""

    claim: str
    cites: list[str] = Field(default_factory=list)


class LlmResponse(InputRecord):
    """An answer of a language model with whatever it was grounded on; a check runs when what it needs is here."""

    response_id: Annotated[str, Field(min_length=1, max_length=190)]
    tenant_id: TenantId = "default"
    user_id: ShortId
    query: str | None = None
    mode: Literal["instant", "auto", "thinking"] = "auto"
    scope: str | None = None
    in_reply_to: str | None = None
    answer: str | None
    confidence: Annotated[float, Field(ge=0, le=1)] = 1.0
    chunks: list[Chunk] | None = None
    sources: list[Source] | None = None
    current_revisions: dict[str, str] | None = None
    transcript: str | None = None
    evidence: dict[str, list[str]] | None = None
    entities: list[Entity] | None = None
    corpus_index: dict[str, IndexEntry] | None = None
    claims: list[RelationClaim] | None = None
    relations: list[RelationClaim] | None = None
    hop_results: list[Any] | None = None
    steps: list[Step] | None = None
    context: dict[str, str] | None = None
    verify: bool = True
    fan_out: bool = False
    metadata: Metadata = Field(default_factory=dict)
    schema_version: str = "1.0"
