"""One line of a corpus file: an entity, or a relation, that answers are checked against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Self

from pydantic import Field, model_validator

from groundwire.messages.base import InputRecord, Omissible
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.responses import IndexEntry, RelationClaim

MAX_ENTRY_BYTES: Final = 16_000


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
        size = len(self.model_dump_json().encode())
        if size > MAX_ENTRY_BYTES:
            raise ValueError(f"is {size} bytes as JSON, more than {MAX_ENTRY_BYTES}")
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


def decode_corpus_line(value: bytes | None) -> CorpusLine:
    """Decode a line of a corpus file. Raises: RecordError naming the field at fault."""
    return validate(CorpusLine, parse_json(value))
