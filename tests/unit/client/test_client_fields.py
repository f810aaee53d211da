"""The typed fields that callers write are those of the records that the gate reads."""

from __future__ import annotations

from groundwire.client import fields
from groundwire.messages import records

PAIRS = [
    (fields.ClaimFields, records.Claim, {"content", "claim_id", "schema_version"}),
    (fields.ResponseFields, records.LlmResponse, {"answer", "response_id", "schema_version"}),
    (fields.ChunkFields, records.Chunk, set()),
    (fields.SourceFields, records.Source, set()),
    (fields.EntityFields, records.Entity, set()),
    (fields.RelationFields, records.RelationClaim, set()),
    (fields.StepFields, records.Step, set()),
]


def test_typed_fields_are_those_of_the_model():
    for typed, model, given in PAIRS:
        assert set(typed.__annotations__) | given == set(model.model_fields)
        required = {name for name, field in model.model_fields.items() if field.is_required()}
        assert set(typed.__required_keys__) == required - given
