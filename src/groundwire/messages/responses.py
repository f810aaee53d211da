"""LlmResponse 1.0: what a generator answered, with what it was given."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from groundwire.messages.base import InputRecord, Metadata, Omissible, ShortId, TenantId, Time


class _Part(InputRecord):
    """A part of a response: as strict as the whole."""


class Chunk(_Part):
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


class Source(_Part):
    """A place that the answer cites."""

    file: str
    snippet: Omissible[str] = None
    start_line: Omissible[int] = None
    end_line: Omissible[int] = None


class Entity(_Part):
    """Something that the answer names."""

    id: str
    name: Omissible[str] = None
    role: Omissible[str] = None
    provenance_id: Omissible[str] = None


class IndexEntry(BaseModel):
    """What the corpus knows of an entity; further keys are the corpus's own."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    confidence: Annotated[float, Field(ge=0, le=1)]
    role: Omissible[str] = None


class RelationClaim(_Part):
    """A subject, a relation and an object: of the answer, or as ground truth."""

    subject: str
    relation: str
    object: str
    timestamp: Omissible[Time] = None
    version: Omissible[str] = None
    qualifiers: Omissible[dict[str, Any]] = None


class Step(_Part):
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
    chunks: Omissible[list[Chunk]] = None
    sources: Omissible[list[Source]] = None
    current_revisions: Omissible[dict[str, str]] = None
    transcript: Omissible[str] = None
    evidence: Omissible[dict[str, list[str]]] = None
    entities: Omissible[list[Entity]] = None
    corpus_index: Omissible[dict[str, IndexEntry]] = None
    claims: Omissible[list[RelationClaim]] = None
    relations: Omissible[list[RelationClaim]] = None
    hop_results: Omissible[list[Any]] = None
    steps: Omissible[list[Step]] = None
    context: Omissible[dict[str, str]] = None
    verify: bool = True
    fan_out: bool = False
    metadata: Metadata = Field(default_factory=dict)
    schema_version: str = "1.0"
