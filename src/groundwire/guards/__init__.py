"""Entity grounding and relation preservation as stages of a pipeline, and as plain functions (S3-01..S3-33).

    guard = EntityGroundingGuard()
    result = guard.check([{"id": "act-7"}], {"act-7": {"confidence": 0.9}})

In a pipeline, run entity grounding between retrieval and the model, relation preservation on the draft answer:
either failing blocks what comes after it (S3-14, S3-32, C-56). Events carry ids and reasons; what `execute`
hands back to the pipeline also holds the entities and claims that the pipeline put in.
"""

from groundwire.guards.entities import EntityGroundingGuard
from groundwire.guards.relations import RelationPreservationGuard
from groundwire.guards.resolvers import EntityResolver, LookupResolver, RelationResolver
from groundwire.guards.stage import StageKind, StageOutput

__all__ = [
    "EntityGroundingGuard",
    "EntityResolver",
    "LookupResolver",
    "RelationPreservationGuard",
    "RelationResolver",
    "StageKind",
    "StageOutput",
]
