"""The gate for claims: prepare a batch, settle it in one step of state, derive the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Protocol

import structlog

from groundwire.attestation import Keys
from groundwire.decide.build import Envelope, build_decision
from groundwire.decide.claims import ClaimCase, Prejudgement, prejudge
from groundwire.decide.reading import UNREAD, read
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.citations import CitationDesk
from groundwire.gate.dedup import dedup_query, dedup_scheme
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import Prepared
from groundwire.gate.recorded import Payload, derive
from groundwire.gate.results import DeadLetter, Decided, Deferred, Provisional, Result, Standby
from groundwire.messages.base import to_milliseconds
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision, DedupFacts, Facts
from groundwire.messages.decode import decode_claim
from groundwire.messages.headers import ATTESTATION, header
from groundwire.messages.identity import fingerprint
from groundwire.messages.inbound import InboundRecord
from groundwire.policy import Policy
from groundwire.state.model import Answer, Ask, Conflict, GivenUp, Limits, Outcome, State, Waiting
from groundwire.verify.citations import CitationVerifier
from groundwire.version import __version__

_BREATH: Final = 50  # claims that are read before the event loop gets a turn

log = structlog.get_logger()


class Policies(Protocol):
    """Finds effective policies by their hash."""

    async def get(self, sha256: str) -> Policy | None:
        """Return the policy, or None where it is not known here."""
        ...


class ClaimGate:
    """Decides claims; the same code behind workers, `groundwire check` and the library.

    Args:
        policy: what decides.
        policies: earlier policies, for records that are sent again after a change.
        state: identity, duplicates, parents, the queue.
        verifier: checks citations.
        keys: sign records; empty where attestation is not used.
        now: the wall clock, for `decided_at`; everything else goes by the record's timestamp.

    Raises:
        UsageError: for a policy that this process cannot follow.
    """

    def __init__(
        self,
        policy: Policy,
        policies: Policies,
        state: State,
        verifier: CitationVerifier,
        *,
        keys: Keys,
        now: Callable[[], datetime],
    ) -> None:
        self._policy = policy
        self._policies = policies
        self._state = state
        self._desk = CitationDesk(verifier, policy)
        self._keys = keys
        self._now = now
        self._scheme = dedup_scheme(policy)
        limits = policy.limits
        self._limits = Limits(limits.review_per_user, limits.review_per_tenant, limits.review_total)

    async def prepare(
        self, records: Sequence[InboundRecord], *, ask_network: bool = False
    ) -> list[Prepared | DeadLetter]:
        """Decode and read a batch and look its citations up; state is not asked yet.

        Args:
            records: in the order of their offsets.
            ask_network: ask for citations that are not cached, instead of leaving their claims to wait.

        Returns:
            One entry for each record, in order.
        """
        batch: list[Prepared | DeadLetter] = []
        for number, record in enumerate(records, 1):
            try:
                batch.append(self._read(record, decode_claim(record.value)))
            except RecordError as error:
                batch.append(DeadLetter(record, error))
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        await self._desk.look_up(
            [entry for entry in batch if isinstance(entry, Prepared)], ask_network=ask_network
        )
        return batch

    async def settle(self, batch: Sequence[Prepared | DeadLetter], *, deferred: bool = False) -> list[Result]:
        """Decide a prepared batch in one atomic step of state; may be repeated, with the same outcome.

        Args:
            batch: what `prepare` returned.
            deferred: whether the records come from `deferred`, and do not wait again.

        Returns:
            One result for each entry, in order.

        Raises:
            StateUnavailable: state is out of reach; nothing is known of the batch.
            StateLost: state has to be rebuilt first.
        """
        claims = [entry for entry in batch if isinstance(entry, Prepared)]
        if not claims:
            return [entry for entry in batch if isinstance(entry, DeadLetter)]
        asks = [self._ask(entry) for entry in claims]
        answers = iter(await self._state.step(asks, self._limits, deferred=deferred))
        return [
            entry if isinstance(entry, DeadLetter) else await self._result(entry, next(answers))
            for entry in batch
        ]

    def provisional(self, batch: Sequence[Prepared | DeadLetter]) -> list[Result]:
        """Decide a prepared batch without state: revision 0, nothing approved, the same bytes each time."""
        return [
            entry if isinstance(entry, DeadLetter) else Provisional(entry.record, self._without_state(entry))
            for entry in batch
        ]

    def _read(self, record: InboundRecord, claim: Claim) -> Prepared:
        value = record.value or b""
        try:
            print_ = fingerprint(claim)
        except ValueError as exc:
            raise RecordError(ErrorCode.INVALID_RECORD, f"cannot be put into canonical form: {exc}") from None
        attestation = self._keys.check(
            header(record.headers, ATTESTATION),
            value,
            tenant=claim.tenant_id,
            source=claim.source,
            at=record.origin.timestamp,
        )
        error = None
        try:
            reading, dedup = read(claim.content, self._policy), dedup_query(claim, self._policy)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unreadable", exc, offset=record.offset)
            reading, dedup, error = UNREAD, None, type(exc).__name__
        fact = attestation.fact() if attestation else None
        return Prepared(record, claim, print_, reading, dedup, fact, error, findings={})

    def _ask(self, entry: Prepared) -> Ask:
        try:
            judged = self._prejudge(entry)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unjudged", exc, offset=entry.record.offset)
            entry.fail(exc)
            judged = self._prejudge(entry)
        horizon = entry.claim.validity_horizon
        return Ask(
            subject=entry.subject,
            fingerprint=entry.fingerprint,
            origin=entry.origin,
            base_tier=judged.base_tier,
            capped=judged.capped,
            wait=entry.wait,
            dedup=entry.dedup,
            dedup_failed=entry.error is not None,
            parents=entry.parents,
            horizon=to_milliseconds(horizon) if horizon else 0,
            payload=self._payload(entry, judged).to_bytes(),
            record=entry.record.value or b"",
        )

    def _prejudge(self, entry: Prepared) -> Prejudgement:
        return prejudge(
            entry.claim,
            entry.reading,
            self._policy,
            entry.findings,
            clock=entry.clock,
            attestation=entry.attestation,
            relevance=entry.relevance,
            error=entry.error,
        )

    def _payload(self, entry: Prepared, judged: Prejudgement) -> Payload:
        return Payload(
            capture_time=entry.claim.captured_at or entry.clock,
            decided_at=self._now(),
            engine=__version__,
            policy_sha256=self._policy.sha256,
            policy_version=self._policy.version,
            scheme=self._scheme,
            base=judged.base.code,
            cap=judged.cap,
            metadata=entry.claim.metadata,
            findings=entry.findings,
            attestation=entry.attestation,
            relevance=entry.relevance,
            error=entry.error,
        )

    async def _result(self, entry: Prepared, answer: Answer) -> Result:
        match answer:
            case Conflict():
                message = "claim_id: this id was used for another claim of the same tenant and user"
                return DeadLetter(entry.record, RecordError(ErrorCode.CLAIM_ID_CONFLICT, message, "claim_id"))
            case GivenUp():
                message = "a worker died several times over this record"
                return DeadLetter(entry.record, RecordError(ErrorCode.WORKER_CRASH, message))
            case Waiting(publish=True):
                return Deferred(entry.record)
            case Waiting():
                return Standby(entry.record)
            case Outcome():
                return Decided(entry.record, await self._derive(entry, answer), answer.fresh)

    async def _derive(self, entry: Prepared, outcome: Outcome) -> Decision:
        sha256 = Payload.from_bytes(outcome.payload).policy_sha256
        policy = self._policy if sha256 == self._policy.sha256 else await self._policies.get(sha256)
        if policy is None:
            log.warning("policy.unknown", sha256=sha256, hint="put its file into GROUNDWIRE_POLICIES_DIR")
        reading = entry.reading if policy in {None, self._policy} else read(entry.claim.content, policy)
        return derive(entry.claim, reading, policy, self._policy, outcome)

    def _without_state(self, entry: Prepared) -> Decision:
        clock = entry.clock
        facts = Facts(
            clock=clock,
            dedup=DedupFacts(status="failed", scheme=self._scheme, matches=[]),
            attestation=entry.attestation,
            error=entry.error,
        )
        case = ClaimCase(entry.claim, entry.reading, self._policy, facts, {})
        envelope = Envelope(
            revision=0,
            fingerprint=entry.fingerprint,
            origin=entry.record.origin,
            subject_origin=None,
            decided_at=clock,
            capture_time=entry.claim.captured_at or clock,
            metadata=entry.claim.metadata,
            engine=__version__,
            policy_sha256=self._policy.sha256,
            policy_version=self._policy.version,
        )
        return build_decision(case, envelope, case.outcome())
