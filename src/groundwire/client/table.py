"""Keeps what is approved and not withdrawn, whichever order records come in and however often."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from groundwire.messages.base import KafkaRecord
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.erasure import Erasures
from groundwire.messages.identity import Subject, subject_of_decision
from groundwire.messages.records import Retraction

__all__ = ["ApprovedTable", "Change", "Decision", "Memory", "Retraction"]


class Memory(NamedTuple):
    """A claim that is approved.

    Attributes:
        valid_until: from when on it no longer holds; None: no end.
        decided_at: with `decision_id` it names the decision: a user who was erased may get an id once more.
    """

    subject: Subject
    content: str
    memory_type: str
    source: str
    confidence: str
    valid_until: datetime | None
    decision_id: str
    revision: int
    decided_at: datetime


class Change(NamedTuple):
    """What a record changed: a memory to store under its subject, or, where it is None, to take away."""

    subject: Subject
    memory: Memory | None


class _Held(NamedTuple):
    revision: int
    decided_at: datetime
    decision_id: str
    memory: Memory | None

    def overtakes(self, other: _Held) -> bool:
        """Whether the other is over whatever else comes: with a user, its revisions begin anew after an erasure."""
        return self.revision >= other.revision and self.decided_at >= other.decided_at


class ApprovedTable:
    """The approved claims of `approved`, `review`, `blocked` and `retractions`, in memory.

    Of a subject the highest revision is true; a retraction counts also where it comes before the approval that it
    withdraws, and a tombstone, which erases a user, before what it erases. Whoever keeps the memories elsewhere carries
    out the changes that `apply` returns.
    """

    def __init__(self) -> None:
        self._held: dict[Subject, list[_Held]] = {}
        self._retracted: dict[str, datetime] = {}
        self._erasures = Erasures()

    def apply(self, record: KafkaRecord) -> list[Change]:
        """Take in a record of one of the four topics and return what it changed; other records change nothing.

        Raises:
            ValueError: a record of these types cannot be read.
        """
        if record.value is None:
            erasure, changes = self._erasures.note(record), list[Change]()
            for subject, held in list(self._held.items()) if erasure else ():
                if erasure and subject[:2] == erasure[:2]:
                    changes += self._hold(subject, [one for one in held if one.decided_at > erasure.until])
            return changes
        said = dict(record.headers).get("ce_type", b"").decode(errors="replace")
        if said == Decision.ce_type:
            return self._decided(Decision.from_record(record))
        if said == Retraction.ce_type:
            return self._withdrawn(Retraction.from_record(record))
        return []

    def memories(self, tenant_id: str, user_id: str, *, at: datetime | None = None) -> list[Memory]:
        """Return what is stored of a user at a time, now where none is given, by id; what has expired is left out."""
        moment = at or datetime.now(UTC)
        owner = tenant_id, user_id
        found = [memory for subject in self._held if subject[:2] == owner and (memory := self._now(subject))]
        return sorted(one for one in found if one.valid_until is None or one.valid_until > moment)

    def _now(self, subject: Subject) -> Memory | None:
        return (
            max(self._held[subject], key=lambda one: one.revision).memory if subject in self._held else None
        )

    def _decided(self, decision: Decision) -> list[Change]:
        subject = subject_of_decision(decision)
        held = self._held.get(subject, [])
        if self._erasures.cover(decision.tenant_id, decision.user_id, decision.decided_at):
            return []
        if not held and not decision.approved and decision.supersedes is None:
            return []  # nothing came before it that it could withdraw
        withdrawn = self._retracted.get(decision.decision_id)
        memory, evidence = None, decision.evidence  # a response has none: its answer is not repeated
        # an id comes again where a subject was erased and decided anew: what withdrew the old one leaves the new one
        if decision.approved and evidence and not (withdrawn and decision.decided_at <= withdrawn):
            memory = Memory(
                subject,
                evidence.claim,
                decision.memory_type or "fact",
                decision.source or "",
                str(evidence.confidence),
                evidence.validity_horizon,
                decision.decision_id,
                decision.revision,
                decision.decided_at,
            )
        new = _Held(decision.revision, decision.decided_at, decision.decision_id, memory)
        if any(one.overtakes(new) for one in held):
            return []
        return self._hold(subject, [*(one for one in held if not new.overtakes(one)), new])

    def _withdrawn(self, retraction: Retraction) -> list[Change]:
        name, at = retraction.supersedes, retraction.at
        self._retracted[name] = at = max(at, self._retracted.get(name, at))
        subject = Subject(
            retraction.tenant_id, retraction.user_id, Kind(retraction.kind), retraction.subject_id
        )
        held = self._held.get(subject, [])
        return self._hold(
            subject,
            [
                one._replace(memory=None) if one.decision_id == name and one.decided_at <= at else one
                for one in held
            ],
        )

    def _hold(self, subject: Subject, held: list[_Held]) -> list[Change]:
        """Hold what may still be true of a subject; the highest revision is."""
        before = self._now(subject)
        self._held[subject] = held
        if not held:
            del self._held[subject]
        after = self._now(subject)
        return [Change(subject, after)] if after != before else []
