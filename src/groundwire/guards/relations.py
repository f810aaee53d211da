"""The guard of what is said of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from groundwire.checks.relations import Claim, RelationIndex, RelationPreservation, preserve_each
from groundwire.guards.resolvers import RelationResolver, asking, at_once, settled, truths_of
from groundwire.guards.stage import (
    DEFAULT_TENANT,
    StageKind,
    StageOutput,
    emit_all,
    sink_of,
    tenant_of,
    unavailable,
)
from groundwire.telemetry import Sink


class RelationPreservationGuard:
    """Stops what says other things of its entities than the sources do (S3-15).

    Args:
        relation_resolver: Where the ground truth comes from.
        strict_versions: A claim without a version, where the truth has one, is a violation (C-53).
        require_qualifiers: A claim needs every qualifier that the truth has (S3-26).
        sink: Where events go; by default to the context's `event_sink`, else to the process's own.
    """

    name = "relation_preservation_guard"
    kind = StageKind.GUARD

    def __init__(
        self,
        relation_resolver: RelationResolver,
        *,
        strict_versions: bool = False,
        require_qualifiers: bool = False,
        sink: Sink | None = None,
    ) -> None:
        self._ask = asking(relation_resolver)
        self._strict_versions = strict_versions
        self._require_qualifiers = require_qualifiers
        self._sink = sink

    def check(self, claims: Iterable[Claim], *, tenant_id: str = DEFAULT_TENANT) -> RelationPreservation:
        """Compare claims with the ground truth and emit `knowledge.rp.violation` where one differs.

        Args:
            claims: `{subject, relation, object, timestamp?, version?, qualifiers?}`.
            tenant_id: Named in the event.

        Raises:
            TypeError: The resolver is asynchronous, then await `execute`; or what it gives is no ground truth.
            Exception: Whatever the resolver raises.
        """
        preservation = self._preserve(
            (claim, truths_of(claim, at_once(self._ask(claim)))) for claim in claims
        )
        emit_all(preservation.events(tenant_id), self._sink)
        return preservation

    async def execute(self, ctx: Any) -> StageOutput:  # noqa: ANN401 - any pipeline's context
        """Check `claims` of the stage `draft_answer`, with `hop_results` of `multi_hop_retrieval` as evidence.

        Returns:
            `grounded_claims`, their number, and `hop_evidence` (S3-23), and `version_unspecified`, the places
            of claims without a version, where there are any; or the error `relation_preservation_failed` with
            `violations` (S3-22), or `relations_unavailable` where the resolver could not be asked.
        """
        try:
            hops = ctx.inputs.get_from("multi_hop_retrieval", "hop_results", default=[])
            claims = list(ctx.inputs.get_from("draft_answer", "claims", default=[]) or [])
            answers = [(claim, truths_of(claim, await settled(self._ask(claim)))) for claim in claims]
            preservation = self._preserve(answers)
        except Exception as error:  # noqa: BLE001 - whatever broke, nothing is known to hold
            return unavailable("relations_unavailable", error)
        emit_all(preservation.events(tenant_of(ctx)), self._sink or sink_of(ctx))
        if preservation.violations:
            violations = [{"claim": claims[one.index], **one.as_dict()} for one in preservation.violations]
            return StageOutput.fail(error="relation_preservation_failed", data={"violations": violations})
        unspecified = list(preservation.unspecified)
        more = {"version_unspecified": unspecified} if unspecified else {}
        return StageOutput.ok(grounded_claims=preservation.claim_count, hop_evidence=hops, **more)

    def _preserve(self, answers: Iterable[tuple[Claim, RelationIndex]]) -> RelationPreservation:
        return preserve_each(
            answers, strict_versions=self._strict_versions, require_qualifiers=self._require_qualifiers
        )
