"""Claims and responses at the gate: put to state, and decided by its answer or without it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from groundwire.gate.build import Case, Envelope, Stamp, build_decision
from groundwire.gate.record import ClaimPayload, Recorded, ResponsePayload
from groundwire.gate.types import Decided, Deferred, Prepared, PreparedClaim, PreparedResponse
from groundwire.keys.attestation import Keys
from groundwire.logs import report_fault, write_event
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import ATTESTATION, header
from groundwire.messages.identity import Subject, decision_id
from groundwire.policy import Policy
from groundwire.state.model import Outcome, State, StepRequest, SubjectState

_T = TypeVar("_T")
_Entry = TypeVar("_Entry", PreparedClaim, PreparedResponse)
_Case = TypeVar("_Case", bound=Case)
_Payload = TypeVar("_Payload", ClaimPayload, ResponsePayload)


class Policies(Protocol):
    async def get(self, sha256: str) -> Policy | None: ...


class GateRules(NamedTuple):
    """What every part of a gate decides by; see `groundwire.gate.gate.Gate` for the fields."""

    policy: Policy
    policies: Policies
    keys: Keys
    now: Callable[[], datetime]

    async def policy_that_decided(self, stamp: Stamp) -> Policy:
        """Return the policy of a recorded outcome, or this one where that is not known any more."""
        sha256 = stamp.policy_sha256
        policy = self.policy if sha256 == self.policy.sha256 else await self.policies.get(sha256)
        if policy is None:
            write_event(
                "warning", "policy.unknown", sha256=sha256, hint="put its file into GROUNDWIRE_POLICIES_DIR"
            )
        return policy or self.policy


class Step(NamedTuple, Generic[_Entry, _Case, _Payload]):
    """A record as it is put to state; `case` is what was known of it then."""

    entry: _Entry
    case: _Case
    payload: _Payload
    request: StepRequest


class KindGate(ABC, Generic[_Entry, _Case, _Payload]):
    """Decides records of one kind. What breaks on the way makes them reviews (S0-23)."""

    def __init__(self, rules: GateRules) -> None:
        self._rules = rules
        self._policy, self._now = rules.policy, rules.now

    def step_of(self, entry: _Entry) -> Step[_Entry, _Case, _Payload]:
        return self._or_failed(self._step, entry)

    def provisional(self, entry: _Entry) -> Decision:
        """Decide a record without state. No wall clock counts: a repeat has the same bytes."""
        return self._or_failed(self._provisional, self._attested(entry, now=entry.record.clock))

    def _attested(self, entry: _Entry, *, now: datetime | None = None) -> _Entry:
        """Check the header `gw-attestation` of a record, by the wall clock or that of a provisional decision."""
        record = entry.record
        signed = header(record.headers, ATTESTATION)
        if signed is None:
            return entry
        at = max(record.clock, now or self._now())  # who sends a record may choose its own
        found = self._rules.keys.check(signed, record.value or b"", at=at, **self._signer(entry))
        return entry._replace(inputs=entry.inputs._replace(attestation=found.fact())) if found else entry

    def _or_failed(self, decide: Callable[[_Entry], _T], entry: _Entry) -> _T:
        try:
            return decide(entry)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault(f"{entry.subject.kind}.unjudged", exc, offset=entry.record.offset)
            return decide(entry.failed(exc))

    async def _known(
        self, step: Step[_Entry, _Case, _Payload], recorded: Outcome
    ) -> tuple[_Case, _Payload, Outcome]:
        """Return what a decision is derived from; what this very step recorded need not be read back."""
        if recorded.fresh:
            return step.case.with_facts(step.payload.facts(recorded)), step.payload, recorded
        case, payload = await self._recorded(step.entry, recorded)
        return case, payload, recorded

    @abstractmethod
    async def check(self, entries: Sequence[_Entry], *, ask_network: bool) -> Sequence[_Entry | Deferred]: ...

    async def look_up(self, entries: Sequence[_Entry], state: State) -> Sequence[_Entry]:  # noqa: ARG002 - of responses
        """Ask what is asked once nothing else is open."""
        return entries

    @abstractmethod
    async def decide(
        self, answered: Sequence[tuple[Step[_Entry, _Case, _Payload], Outcome]], *, again: bool
    ) -> Sequence[Decided | Exception]:
        """Derive decisions; where one of the gate's own breaks, the error, and an internal error `again`."""

    @abstractmethod
    def _signer(self, entry: _Entry) -> dict[str, Any]:
        """Return who may sign a record, as arguments of `Keys.check`."""

    @abstractmethod
    def _step(self, entry: _Entry) -> Step[_Entry, _Case, _Payload]: ...

    @abstractmethod
    def _provisional(self, entry: _Entry) -> Decision: ...

    @abstractmethod
    async def _recorded(self, entry: _Entry, recorded: Outcome) -> tuple[_Case, _Payload]:
        """Return the case and the payload by which an earlier step decided a record."""


def attempted(decide: Callable[[Recorded], _T], known: Recorded) -> _T | Exception:
    """Decide a record, or return what broke: it takes no other record along. Raises: MemoryError."""
    try:
        return decide(known)
    except MemoryError:  # says nothing of the record: another process decides it
        raise
    except Exception as exc:  # noqa: BLE001 - fails closed
        return exc


def or_failed(decide: Callable[[Recorded], _T], known: Recorded) -> _T:
    """Decide a record; what breaks makes it an internal error, but for what a person decided. Raises: MemoryError."""
    decided = attempted(decide, known)
    if not isinstance(decided, Exception):
        return decided
    case, payload, recorded = known
    report_underived(case.subject, recorded, decided)
    case = case.failed(decided)
    if payload.review is None:
        recorded = replace(recorded, tier=case.judged().number, state=SubjectState.REVIEW)
    return decide((case, payload, recorded))


def report_underived(subject: Subject, recorded: Outcome, error: Exception) -> None:
    report_fault(f"{subject.kind}.underived", error, decision_id=decision_id(subject, recorded.revision))


def decide_provisionally(case: Case, entry: Prepared, policy: Policy) -> Decision:
    """Return the decision that is published while state is out of reach."""
    stamp = Stamp.of(policy, entry.record.clock)
    envelope = Envelope(0, entry.fingerprint, entry.record.origin, subject_origin=None, stamp=stamp)
    return build_decision(case, envelope, case.outcome())
