"""What callers write: the fields of claims and of answers, typed for mypy and editors.

They say of records what `groundwire.messages.records` says, whose models check them; a test holds one against the
other. (Annotations are no strings here: a TypedDict could not tell then which of its fields are required.)
"""

from datetime import datetime
from typing import Any, NotRequired, Required

from typing_extensions import TypedDict  # before Python 3.12 pydantic reads no other

from groundwire.messages.records import MemoryType, Mode

_Time = datetime | str
"""With an offset."""


class ClaimFields(TypedDict, total=False):
    """Fields of a Claim beside its content; without a `claim_id` it is named after all that is claimed."""

    claim_id: str
    tenant_id: str
    user_id: Required[str]
    memory_type: MemoryType
    source: str
    source_id: str | None
    captured_at: _Time
    validity_horizon: _Time | None
    derived_from: list[str]
    metadata: dict[str, Any]


class ChunkFields(TypedDict):
    """A passage that was retrieved for the answer."""

    chunk_id: str
    file: str
    content: str
    start_line: int
    end_line: int
    revision: NotRequired[str]
    indexed_at: NotRequired[_Time]
    version: NotRequired[str]
    document_id: NotRequired[str]


class SourceFields(TypedDict):
    """A place that the answer cites."""

    file: str
    snippet: NotRequired[str]
    start_line: NotRequired[int]
    end_line: NotRequired[int]


class EntityFields(TypedDict):
    """Something that the answer names."""

    id: str
    name: NotRequired[str]
    role: NotRequired[str]
    provenance_id: NotRequired[str]


class RelationFields(TypedDict):
    """A subject, a relation and an object: of the answer, or as ground truth."""

    subject: str
    relation: str
    object: str
    timestamp: NotRequired[_Time]
    version: NotRequired[str]
    qualifiers: NotRequired[dict[str, Any]]


class StepFields(TypedDict):
    """A step of reasoning and the spans that it cites."""

    claim: str
    cites: NotRequired[list[str]]


class ResponseFields(TypedDict, total=False):
    """Fields of an LlmResponse beside its answer; without a `response_id` it is named after all that it holds."""

    response_id: str
    tenant_id: str
    user_id: Required[str]
    query: str | None
    mode: Mode
    scope: str | None
    in_reply_to: str | None
    confidence: float
    chunks: list[ChunkFields]
    sources: list[SourceFields]
    current_revisions: dict[str, str]
    transcript: str
    evidence: dict[str, list[str]]
    entities: list[EntityFields]
    corpus_index: dict[str, dict[str, Any]]
    claims: list[RelationFields]
    relations: list[RelationFields]
    hop_results: list[Any]
    steps: list[StepFields]
    context: dict[str, str]
    verify: bool
    fan_out: bool
    metadata: dict[str, Any]
