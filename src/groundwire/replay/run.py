"""Replays the records of a job: derives each decision again and compares; asks neither network nor Redis.

A replay derives each decision from its record, policy and facts. A simulation finds duplicates, parents and queue
places anew, as if the records had come to an empty deployment.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

from groundwire import __version__
from groundwire.errors import RecordError
from groundwire.gate.claim_case import ClaimInputs
from groundwire.gate.claims import OVERRULABLE
from groundwire.gate.gate import Gate, Lookups, decode_record
from groundwire.gate.kinds import Policies
from groundwire.gate.response_checks import CheckInputs, read_response
from groundwire.gate.reviews import ReviewGate
from groundwire.gate.types import (
    Acted,
    Decided,
    DecisionQuery,
    PreparedClaim,
    PreparedResponse,
    PreparedReview,
)
from groundwire.kafka.reader import RecordPlace
from groundwire.keys.attestation import Keys
from groundwire.logs import report_fault
from groundwire.messages.decisions import CitationState, Decision, Kind, ReasonCode
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id, subject_of_decision
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.derive import attestation_of, findings_of, rederive, relevance_of
from groundwire.replay.inputs import Mismatch, Missing, gather, read_record
from groundwire.replay.reading import Rate, Report
from groundwire.replay.rebuild import stored_outcome
from groundwire.replay.report import RELEVANCE, Replayed, ReplayStatus, Summary
from groundwire.replay.store import Job
from groundwire.replay.verify import differences
from groundwire.state.memory import MemoryState
from groundwire.verify.citations import CitationVerifier

PAGE: Final = 500
"""Records between two commits of the job file, from which an interrupted replay continues."""


class Writer(Protocol):
    async def resume(self, written: int) -> None:
        """Continue after the first `written` bytes or records."""

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None: ...

    async def flush(self) -> int:
        """Persist everything; return its size."""
        ...


Decide = Callable[[InboundRecord, Decision], Awaitable[Decision | None]]
"""Decides a record again, given the recorded decision; None where it has no decision."""


@dataclass(frozen=True, slots=True)
class Task:
    """How a replay decides.

    `policy`: replaces each decision's own; `simulate`: replaces the recorded facts.
    """

    name: str
    policies: Policies
    policy: Policy | None = None
    simulate: Decide | None = None

    @property
    def by_bytes(self) -> bool:
        """Whether all bytes are compared, not only tier and reason."""
        return self.policy is None and self.simulate is None


class Replayer:
    def __init__(self, job: Job, task: Task, writer: Writer, rate: Rate, report: Report) -> None:
        self._job = job
        self._task = task
        self._writer = writer
        self._rate = rate
        self._report = report
        self._summary = Summary()

    async def run(self) -> Summary:
        known = self._job.known("progress")
        if known is None or self._task.simulate:  # a simulation's state is in memory alone
            self._job.forget_results()
        progress = json.loads(known) if known and not self._task.simulate else {}
        self._summary = Summary.from_json(progress["summary"]) if progress else Summary()
        await self._writer.resume(progress.get("written", 0))
        after, total = progress.get("after"), self._job.count()
        while page := self._job.page(after, PAGE, by_turn=self._task.simulate is not None):
            with self._job.transaction():
                for record, mark in page:
                    for replayed in await self._replay(record):
                        self._summary.add(replayed)
                        before, derived, value = replayed.before, replayed.after, replayed.value
                        if replayed.status in {ReplayStatus.DIFFERS, ReplayStatus.MISSING}:
                            old = before.to_bytes() if before else None
                            other = before is None or derived is None or before.verdict != derived.verdict
                            number = self._summary.changes
                            self._job.add_change(number, old, value, replayed.fields, verdict=other)
                        if derived is not None and value is not None:
                            await self._writer.write(record, derived, value)
                    self._summary.records += 1
                    after = mark
                written = await self._writer.flush()
                plain = {"after": after, "written": written, "summary": self._summary.as_json()}
                self._job.note(progress=json.dumps(plain))
            self._report("replayed", self._summary.records, total)
            await self._rate.after(len(page))
        return self._summary

    async def _replay(self, record: InboundRecord) -> list[Replayed]:
        values = self._job.decisions_of(record)
        if not values:
            return [Replayed(self._without_decision(record))]
        decisions = [(value, Decision.model_validate_json(value)) for value in values]
        if not self._task.by_bytes and any(decision.revision for _, decision in decisions):
            decisions = [each for each in decisions if each[1].revision]  # provisional ones are overridden
        return [await self._decide(record, value, decision) for value, decision in decisions]

    async def _decide(self, record: InboundRecord, value: bytes, decision: Decision) -> Replayed:
        found = record.sha256, record.origin.timestamp
        if found != (decision.origin.sha256, decision.origin.timestamp):  # another record is there
            return Replayed(ReplayStatus.DIFFERS, decision, None, ("$.origin",))
        try:
            if self._task.simulate:
                after = await self._task.simulate(record, decision)
            else:
                policy = self._task.policy or await _policy(decision, self._task.policies)
                after = rederive(decision, gather(decision, self._job), policy)
        except Missing as exc:
            return Replayed(ReplayStatus.MISSING, decision, None, (str(exc),))
        except Mismatch as exc:
            return Replayed(ReplayStatus.DIFFERS, decision, None, (exc.path,))
        except Exception as exc:  # noqa: BLE001 - facts may hold anything: what cannot be derived does not follow
            report_fault("replay.underivable", exc, partition=record.partition, offset=record.offset)
            return Replayed(ReplayStatus.DIFFERS, decision, None, ("$.facts",))
        if after is None:
            return Replayed(ReplayStatus.FACTS_MISSING, decision)
        derived = after.to_bytes()
        fields = self._fields(value, derived, decision, after)
        status = ReplayStatus.DIFFERS if fields else ReplayStatus.EQUAL
        other = self._task.policy
        if other is not None and other.sha256 != decision.policy.sha256:
            known = await self._task.policies.get(decision.policy.sha256)
            compared = self._task.simulate is not None
            if keys := unreplayable(decision, after, other, known, compared=compared):
                status, fields = ReplayStatus.CANNOT_TELL, keys
        return Replayed(status, decision, after, fields, marked(derived, self._task.name))

    def _fields(self, value: bytes, derived: bytes, decision: Decision, after: Decision) -> tuple[str, ...]:
        if not self._task.by_bytes:
            pairs = (
                (name, getattr(decision, name), getattr(after, name)) for name in ("tier", "reason_code")
            )
            return tuple(f"$.{name}" for name, old, new in pairs if old != new)
        if self._job.marked("contradicted", decision.decision_id):
            return ("$",)  # published twice, with other bytes
        if derived == value:
            return ()
        paths = differences(json.loads(value), json.loads(derived))
        allowed = {"$.engine"} if decision.engine != __version__ else set()
        return tuple(path for path in paths if path not in allowed)

    def _without_decision(self, record: InboundRecord) -> ReplayStatus:
        has_ended = partial(self._job.marked, "ended")
        if has_ended(str(RecordPlace.of(record))):
            return ReplayStatus.DEAD_LETTER
        try:
            if not (record.topic or "").endswith(TopicName.REVIEW_DECISIONS):
                decided = self._job.marked("decided", decode_record(record).subject.digest)
                return ReplayStatus.REPEAT if decided else ReplayStatus.FACTS_MISSING
            action_id = decode_review_decision(record.value).action_id
        except RecordError:
            return ReplayStatus.DEAD_LETTER
        # the audit identifies a final refusal by the action's id, any other by its record
        if has_ended(event_id("refused_action", record.origin.model_dump(mode="json"))):
            return ReplayStatus.REFUSED
        if has_ended(event_id("review_action", action_id)):
            return ReplayStatus.REPEAT
        refused = has_ended(event_id("refused_action", action_id))
        return ReplayStatus.REFUSED if refused else ReplayStatus.FACTS_MISSING


async def _policy(decision: Decision, policies: Policies) -> Policy:
    name = decision.policy.sha256
    policy = await policies.get(name)
    if policy is None:
        raise Missing(f"policy {name[:64]}")
    return policy


_WHATEVER_IS_NEAR: Final = {ReasonCode.EXPIRED, ReasonCode.PERSONAL_SPECULATION, ReasonCode.DUPLICATE}
"""Reasons that further near-duplicates would not change."""


def unreplayable(
    recorded: Decision, derived: Decision, policy: Policy, before: Policy | None, *, compared: bool = False
) -> tuple[str, ...]:
    """Return the keys of another policy that a claim's facts cannot decide: it compares, or looks up, more.

    `before`: the policy that decided, None where unknown; `compared`: near-duplicates were found anew.
    """
    if recorded.kind != Kind.CLAIM or recorded.facts.review:
        return ()
    keys: list[str] = []
    if policy.enable_dedup and before is not None and not compared:
        if derived.reason_code in _WHATEVER_IS_NEAR:
            pass
        elif before.enable_dedup:
            thresholds = "dedup_threshold", "conflict_threshold", "rejected_threshold"
            keys += [name for name in thresholds if getattr(policy, name) < getattr(before, name)]
            keys += ["dedup_scope"] * (policy.dedup_scope != before.dedup_scope)
        else:
            keys.append("enable_dedup")
    verified = any(citation.state == CitationState.VERIFIED for citation in recorded.citations)
    if policy.verify_claim_relevance and verified and recorded.facts.relevance is None:
        keys += [RELEVANCE] * (derived.reason_code == ReasonCode.CITATION_IRRELEVANT)
    return tuple(keys)


def marked(value: bytes, name: str) -> bytes:
    """Add the replay's name to a decision: `replay` is its last field. Raises: ValueError."""
    before, none, rest = value.rpartition(b"null}")
    if not before.endswith(b'"replay":') or not none or rest:
        raise ValueError("replay is not the last field")
    return before + json.dumps(name).encode() + b"}"


class Simulation:
    """Decides records again in order; memory grows with the subjects seen."""

    def __init__(self, job: Job, policies: Policies, policy: Policy | None) -> None:
        self._job = job
        self._policies = policies
        self._policy = policy
        self._state = MemoryState()
        self._lookups = Lookups(CitationVerifier({}, network=False))
        self._now = datetime.fromtimestamp(0, UTC)

    async def load(self, values: Iterable[bytes], policy: Policy) -> None:
        """Load earlier decisions, those of a subject in revision order."""
        self._job.forget_simulated()
        for value in values:
            stored = stored_outcome(value, policy)
            if stored is not None:
                await self._state.reassert([stored])
                self._keep(Decision.model_validate_json(value))

    async def __call__(self, record: InboundRecord, recorded: Decision) -> Decision | None:
        """Decide a record again; None where it now has no decision. Raises: Missing."""
        policy = self._policy or await _policy(recorded, self._policies)
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
            self._lookups,
            keys=Keys.empty(),
            now=lambda: self._now,
            fan_out=recorded.facts.extraction is not None,
        )
        (entry,) = await gate.prepare([record])
        facts = recorded.facts
        if isinstance(entry, PreparedClaim) and facts.error is not None:
            inputs = ClaimInputs({}, attestation_of(facts), None, facts.error)
            entry = entry._replace(dedup=None, inputs=inputs, wait=False)
        elif isinstance(entry, PreparedClaim):
            findings = findings_of(recorded, entry.reading)
            relevance = relevance_of(facts, entry.reading, findings, policy)
            inputs = ClaimInputs(findings, attestation_of(facts), relevance, entry.inputs.error)
            entry = entry._replace(inputs=inputs, wait=False)
        elif isinstance(entry, PreparedResponse):
            given = facts.entities, facts.relations, facts.verifier, facts.error, attestation_of(facts)
            answers = CheckInputs(*given)
            reading = read_response(entry.response, policy, answers)
            entry = entry._replace(inputs=answers, reading=reading)
        (result,) = await gate.apply_step([entry], deferred=True)
        return result.decision if isinstance(result, Decided) else None

    async def _act(
        self, record: InboundRecord, review: ReviewDecision, recorded: Decision, policy: Policy
    ) -> Decision | None:
        (current,) = await self._state.statuses([subject_of_decision(recorded)])
        if current is None:
            return None
        review = review.model_copy(update={"expected_revision": current.revision})

        async def find(wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
            values = {query.decision_id: self._job.simulated(query.decision_id) for query in wanted}
            return {name: Decision.model_validate_json(value) for name, value in values.items() if value}

        gate = ReviewGate(
            policy,
            self._policies,
            self._state,
            keys=Keys.empty(),
            find=find,
            own_key=None,
            now=lambda: self._now,
        )
        key_id = (recorded.facts.review or {}).get("key_id")
        (result,) = await gate.apply_step([PreparedReview(record, review, "", key_id)])
        return result.decision if isinstance(result, Acted) else None

    def _keep(self, decision: Decision) -> None:
        """Keep what an action may refer to: approvals, blocked claims that may be overruled, and pending responses."""
        if decision.approved or decision.reason_code in OVERRULABLE or decision.kind == Kind.RESPONSE:
            self._job.add_simulated(decision.decision_id, decision.to_bytes())
