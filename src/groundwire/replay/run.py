"""Replaying what was read: each decision again, and what came out otherwise; asks neither network nor Redis."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from groundwire.errors import RecordError
from groundwire.gate.claims import Policies
from groundwire.gate.faults import report_fault
from groundwire.gate.gate import decode_record, subject_of
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.identity import event_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.compare import differences
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Mismatch, Missing, gather
from groundwire.replay.job import Job
from groundwire.replay.rate import Rate
from groundwire.replay.reading import Report, place_name
from groundwire.replay.summary import Replayed, Status, Summary
from groundwire.version import __version__

PAGE: Final = 500
"""Records between two points from which an interrupted replay goes on."""


class Writer(Protocol):
    """Where derived decisions go."""

    async def resume(self, written: int) -> None:
        """Begin, or go on behind the first `written` bytes or records."""

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:
        """Write a decision that a record brought; `value` is what is written of it."""

    async def flush(self) -> int:
        """Make sure that everything is there for good; return how much it is."""
        ...


Decide = Callable[[InboundRecord, Decision], Awaitable[Decision | None]]
"""Decides a record again, given the recorded decision; None where it has no decision."""


class Known:
    """Policies at hand, and those that others keep.

    Args:
        policies: at hand.
        others: asked for the rest.
    """

    def __init__(self, policies: Iterable[Policy], others: Policies) -> None:
        self._policies = {policy.sha256: policy for policy in policies}
        self._others = others

    async def get(self, sha256: str) -> Policy | None:
        """Return the policy with this hash, or None."""
        return self._policies.get(sha256) or await self._others.get(sha256)


@dataclass(frozen=True, slots=True)
class Task:
    """How a replay decides.

    Attributes:
        name: stands in `replay` of each decision.
        policies: find the policies that decided.
        policy: decides instead; None: each decision's own.
        simulate: decides instead of the recorded facts; None: they stay.
    """

    name: str
    policies: Policies
    policy: Policy | None = None
    simulate: Decide | None = None

    @property
    def by_bytes(self) -> bool:
        """Whether every byte has to be the same, not only tier and reason."""
        return self.policy is None and self.simulate is None


class Replayer:
    """Replays a job.

    Args:
        job: what was read; keeps what is found.
        task: how to decide.
        writer: where decisions go.
        rate: how fast.
        report: told how far it has come.
    """

    def __init__(self, job: Job, task: Task, writer: Writer, rate: Rate, report: Report) -> None:
        self._job = job
        self._task = task
        self._writer = writer
        self._rate = rate
        self._report = report
        self._summary = Summary()

    async def run(self) -> Summary:
        """Replay what is left of the job."""
        known = self._job.known("progress")
        if known is None or self._task.simulate:  # what a simulation knows is in memory alone
            self._job.forget_results()
        progress = json.loads(known) if known and not self._task.simulate else {}
        self._summary = Summary.from_json(progress.get("summary", {}))
        await self._writer.resume(progress.get("written", 0))
        after, total = progress.get("after"), self._job.spool.count()
        while page := self._job.spool.page(after, PAGE, by_turn=self._task.simulate is not None):
            self._job.begin()
            for record, mark in page:
                for replayed in await self._replay(record):
                    await self._take(record, replayed)
                self._summary.records += 1
                after = mark
            written = await self._writer.flush()
            plain = {
                "after": after,
                "written": written,
                "summary": self._summary.as_json(),
                "total": total,  # for who looks at the file meanwhile
            }
            self._job.note(progress=json.dumps(plain))
            self._job.commit()
            self._report("replayed", self._summary.records, total)
            await self._rate.after(len(page))
        return self._summary

    async def _take(self, record: InboundRecord, replayed: Replayed) -> None:
        self._summary.add(replayed)
        before, after, value = replayed.before, replayed.after, replayed.value
        if replayed.status in {Status.DIFFERS, Status.MISSING}:
            old = before.to_bytes() if before else None
            self._job.add_change(self._summary.changes, old, value, replayed.fields)
        if after is not None and value is not None:
            await self._writer.write(record, after, value)

    async def _replay(self, record: InboundRecord) -> list[Replayed]:
        values = self._job.spool.decisions_of(record)
        if not values:
            return [Replayed(self._without_decision(record))]
        decisions = [(value, Decision.model_validate_json(value)) for value in values]
        if not self._task.by_bytes and any(decision.revision for _, decision in decisions):
            decisions = [each for each in decisions if each[1].revision]  # provisional ones are overridden
        return [await self._decide(record, value, decision) for value, decision in decisions]

    async def _decide(self, record: InboundRecord, value: bytes, decision: Decision) -> Replayed:
        try:
            after = await self._derive(record, decision)
        except Missing as exc:
            return Replayed(Status.MISSING, decision, None, (str(exc),))
        except Mismatch as exc:
            return Replayed(Status.DIFFERS, decision, None, (exc.path,))
        except Exception as exc:  # noqa: BLE001 - facts may hold anything: what cannot be derived does not follow
            report_fault("replay.underivable", exc, partition=record.partition, offset=record.offset)
            return Replayed(Status.DIFFERS, decision, None, ("$.facts",))
        if after is None:
            return Replayed(Status.FACTS_MISSING, decision)
        derived = after.to_bytes()
        fields = self._fields(value, derived, decision, after)
        status = Status.DIFFERS if fields else Status.EQUAL
        return Replayed(status, decision, after, fields, marked(derived, self._task.name))

    async def _derive(self, record: InboundRecord, decision: Decision) -> Decision | None:
        if (record.sha256, record.origin.timestamp) != (decision.origin.sha256, decision.origin.timestamp):
            raise Mismatch("$.origin", "another record stands there")
        if self._task.simulate:
            return await self._task.simulate(record, decision)
        name = decision.policy.sha256
        policy = self._task.policy or await self._task.policies.get(name)
        if policy is None:
            raise Missing(f"policy {name[:64]}")
        return rederive(decision, gather(decision, self._job.spool), policy)

    def _fields(self, value: bytes, derived: bytes, decision: Decision, after: Decision) -> tuple[str, ...]:
        """Return what differs: of tier and reason, or of all that the gate published."""
        if not self._task.by_bytes:
            pairs = (
                (name, getattr(decision, name), getattr(after, name)) for name in ("tier", "reason_code")
            )
            return tuple(f"$.{name}" for name, old, new in pairs if old != new)
        if self._job.spool.is_unlike(decision.decision_id):
            return ("$",)  # published twice, with other bytes
        if derived == value:
            return ()
        paths = differences(json.loads(value), json.loads(derived))
        allowed = {"$.engine"} if decision.engine != __version__ else set()
        return tuple(path for path in paths if path not in allowed)

    def _without_decision(self, record: InboundRecord) -> Status:
        """Say how a record ended that brought no decision about."""
        place = place_name(record.topic or "", str(record.partition), str(record.offset))
        if self._job.spool.has_ended(place):
            return Status.DEAD_LETTER
        try:
            if (record.topic or "").endswith(TopicName.REVIEW_DECISIONS):
                return self._without_revision(record, decode_review_decision(record.value).action_id)
            decode_record(record)
            return Status.REPEAT if self._job.spool.is_decided(subject_of(record)) else Status.FACTS_MISSING
        except RecordError:
            return Status.DEAD_LETTER

    def _without_revision(self, record: InboundRecord, action_id: str) -> Status:
        """Say it of an action; a refusal that stands is told of by the action's id, any other by its record."""
        has_ended = self._job.spool.has_ended
        if has_ended(event_id("refused_action", record.origin.model_dump(mode="json"))):
            return Status.REFUSED
        if has_ended(event_id("review_action", action_id)):
            return Status.REPEAT
        return Status.REFUSED if has_ended(event_id("refused_action", action_id)) else Status.FACTS_MISSING


def marked(value: bytes, name: str) -> bytes:
    """Return a decision with the name of its replay, which is the last of its fields.

    Raises:
        ValueError: it is none that was just derived.
    """
    before, none, rest = value.rpartition(b"null}")
    if not before.endswith(b'"replay":') or not none or rest:
        raise ValueError("replay is not the last field")
    return before + json.dumps(name).encode() + b"}"
