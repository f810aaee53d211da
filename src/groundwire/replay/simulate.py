"""What would have been decided had the records come to an empty deployment: state answers anew, from memory.

Duplicates, parents' states and places in the queue are found by the gate's own state and code. What the outside
answered stays as it was recorded: citations, signatures, resolvers, times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from groundwire.attestation import Keys
from groundwire.decide.response_reading import read_response
from groundwire.decide.responses import broken_checks
from groundwire.gate.claims import Policies
from groundwire.gate.drafts import PreparedReview, Wanted
from groundwire.gate.gate import Gate
from groundwire.gate.prepared import PreparedClaim, PreparedResponse
from groundwire.gate.results import Acted, Decided
from groundwire.gate.reviews import ReviewGate
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import ReviewDecision
from groundwire.policy import Policy
from groundwire.rebuild import stored_outcome
from groundwire.replay.claims import attestation_of, findings_of, relevance_of
from groundwire.replay.inputs import Missing, read_record, subject_of
from groundwire.replay.job import Job
from groundwire.state.memory import MemoryState
from groundwire.verify.citations import CitationVerifier


class Simulation:
    """Decides records as they come; memory grows with the subjects that it has seen.

    Args:
        job: what was read; keeps what was decided, for actions that rest on it.
        policies: find the policies that decided.
        policy: decides instead; None: each decision's own.
    """

    def __init__(self, job: Job, policies: Policies, policy: Policy | None) -> None:
        self._job = job
        self._policies = policies
        self._policy = policy
        self._state = MemoryState()
        self._verifier = CitationVerifier({}, network=False)
        self._now = datetime.fromtimestamp(0, UTC)

    async def load(self, values: Iterable[bytes], policy: Policy) -> None:
        """Take over decisions that were made before: those of a subject in the order of their revisions."""
        self._job.forget_simulated()
        for value in values:
            stored = stored_outcome(value, policy)
            if stored is not None:
                await self._state.reassert([stored])
                self._keep(Decision.model_validate_json(value))

    async def __call__(self, record: InboundRecord, recorded: Decision) -> Decision | None:
        """Decide a record again; None where it has no decision in this course of events.

        Raises:
            Missing: the policy that decided is not at hand.
        """
        name = recorded.policy.sha256
        policy = self._policy or await self._policies.get(name)
        if policy is None:
            raise Missing(f"policy {name[:64]}")
        self._now = recorded.decided_at
        content = read_record(record.value or b"")
        if isinstance(content, ReviewDecision):
            decision = await self._act(record, content, recorded, policy)
        else:
            decision = await self._decide(record, recorded, policy)
        if decision is not None:
            self._keep(decision)
        return decision

    async def _decide(self, record: InboundRecord, recorded: Decision, policy: Policy) -> Decision | None:
        gate = Gate(
            policy,
            self._policies,
            self._state,
            self._verifier,
            keys=Keys.empty(),
            now=lambda: self._now,
            fan_out=recorded.facts.extraction is not None,
        )
        (entry,) = await gate.prepare([record])
        if isinstance(entry, PreparedClaim):
            _as_recorded(entry, recorded, policy)
        elif isinstance(entry, PreparedResponse):
            _as_answered(entry, recorded, policy)
        (result,) = await gate.settle([entry], deferred=True)
        return result.decision if isinstance(result, Decided) else None

    async def _act(
        self, record: InboundRecord, review: ReviewDecision, recorded: Decision, policy: Policy
    ) -> Decision | None:
        (standing,) = await self._state.standings([subject_of(recorded)])
        if standing is None:
            return None
        current = review.model_copy(update={"expected_revision": standing.revision})
        gate = ReviewGate(
            policy,
            self._policies,
            self._state,
            keys=Keys.empty(),
            find=self._find,
            own_key=None,
            now=lambda: self._now,
        )
        key_id = (recorded.facts.review or {}).get("key_id")
        (result,) = await gate.settle([PreparedReview(record, current, "", key_id)])
        return result.decision if isinstance(result, Acted) else None

    async def _find(self, wanted: Sequence[Wanted]) -> dict[str, Decision]:
        found = {one.decision_id: self._job.simulated(one.decision_id) for one in wanted}
        return {name: Decision.model_validate_json(value) for name, value in found.items() if value}

    def _keep(self, decision: Decision) -> None:
        """Keep what an action may rest on: approvals, and responses that wait."""
        if decision.approved or decision.kind == Kind.RESPONSE:
            self._job.add_simulated(decision.decision_id, decision.to_bytes())


def _as_recorded(entry: PreparedClaim, recorded: Decision, policy: Policy) -> None:
    """Give a claim what the outside answered then."""
    facts = recorded.facts
    entry.attestation = attestation_of(facts)
    entry.wait = False
    if facts.error is not None:
        entry.dedup, entry.findings, entry.relevance, entry.error = None, {}, None, facts.error
        return
    entry.findings = findings_of(recorded, entry.reading)
    entry.relevance = relevance_of(facts, entry.reading, entry.findings, policy)


def _as_answered(entry: PreparedResponse, recorded: Decision, policy: Policy) -> None:
    """Give a response what its resolvers answered then."""
    facts = recorded.facts
    entry.entities, entry.relations, entry.resolved = facts.entities, facts.relations, True
    entry.verifier = facts.verifier
    entry.broken = broken_checks(facts.error)
    entry.reading = read_response(
        entry.response,
        policy,
        entities=facts.entities,
        relations=facts.relations,
        verifier=facts.verifier,
        broken=entry.broken,
    )
