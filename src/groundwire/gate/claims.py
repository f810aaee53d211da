"""Claims at the gate: read, their citations looked up, put to state, and their decisions derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

import structlog

from groundwire.attestation import Keys
from groundwire.decide.build import Envelope, build_decision
from groundwire.decide.claims import ClaimCase, Prejudgement, prejudge
from groundwire.decide.reading import UNREAD, read
from groundwire.gate.citations import CitationDesk
from groundwire.gate.dedup import dedup_query, dedup_scheme, make_ready
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import PreparedClaim, canonical_form
from groundwire.gate.recorded import Payload, derive
from groundwire.gate.results import Decided
from groundwire.messages.base import from_milliseconds, sha256_hex, to_milliseconds
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision, DedupFacts, Facts
from groundwire.messages.headers import ATTESTATION, header
from groundwire.messages.inbound import InboundRecord
from groundwire.policy import Policy
from groundwire.state.model import Ask, Outcome
from groundwire.verify.citations import CitationVerifier
from groundwire.version import __version__

log = structlog.get_logger()


class Policies(Protocol):
    """Finds effective policies by their hash."""

    async def get(self, sha256: str) -> Policy | None:
        """Return the policy, or None where it is not known here."""
        ...


async def policy_that_decided(sha256: str, current: Policy, policies: Policies) -> Policy | None:
    """Return the policy of a recorded outcome, or None where it is not known here any more."""
    policy = current if sha256 == current.sha256 else await policies.get(sha256)
    if policy is None:
        log.warning("policy.unknown", sha256=sha256, hint="put its file into GROUNDWIRE_POLICIES_DIR")
    return policy


class ClaimDesk:
    """Decides claims; see `groundwire.gate.gate.Gate` for the arguments."""

    def __init__(
        self,
        policy: Policy,
        policies: Policies,
        verifier: CitationVerifier,
        *,
        keys: Keys,
        now: Callable[[], datetime],
    ) -> None:
        self._policy = policy
        self._policies = policies
        self._citations = CitationDesk(verifier, policy)
        self._keys = keys
        self._now = now
        self._scheme = dedup_scheme(policy)
        make_ready(policy)

    def read(self, record: InboundRecord, claim: Claim) -> PreparedClaim:
        """Read a claim's text. Raises: RecordError where it has no canonical form."""
        print_ = sha256_hex(canonical_form(claim))
        attestation = self._keys.check(
            header(record.headers, ATTESTATION),
            record.value or b"",
            tenant=claim.tenant_id,
            source=claim.source,
            at=from_milliseconds(record.timestamp),
        )
        error = None
        try:
            reading, dedup = read(claim.content, self._policy), dedup_query(claim, self._policy)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unreadable", exc, offset=record.offset)
            reading, dedup, error = UNREAD, None, type(exc).__name__
        fact = attestation.fact() if attestation else None
        return PreparedClaim(record, claim, print_, reading, dedup, fact, error, findings={})

    async def look_up(self, claims: Sequence[PreparedClaim], *, ask_network: bool) -> None:
        """Look up what the claims cite."""
        await self._citations.look_up(claims, ask_network=ask_network)

    def ask(self, entry: PreparedClaim) -> Ask:
        """Return what state is asked about a claim."""
        try:
            judged = self._prejudge(entry)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("claim.unjudged", exc, offset=entry.record.offset)
            entry.fail(exc)
            judged = self._prejudge(entry)
        horizon = entry.claim.validity_horizon
        entry.asked = self._payload(entry, judged)
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
            payload=entry.asked.to_bytes(),
            record=entry.record.value or b"",
        )

    async def decided(self, entry: PreparedClaim, outcome: Outcome) -> Decided:
        """Derive the decision of a claim's recorded outcome."""
        # what this very step recorded need not be read back
        payload = (outcome.fresh and entry.asked) or Payload.from_bytes(outcome.payload)
        policy = await policy_that_decided(payload.policy_sha256, self._policy, self._policies)
        claim = payload.as_decided(entry.claim)
        as_read = claim is entry.claim and (policy is None or policy is self._policy)
        reading = entry.reading if as_read else read(claim.content, policy or self._policy)
        decision = derive(claim, reading, policy, self._policy, outcome, payload)
        return Decided(entry.record, decision, outcome.fresh)

    def without_state(self, entry: PreparedClaim) -> Decision:
        """Decide a claim provisionally; see `provisional_claim`."""
        return provisional_claim(entry, self._policy)

    def _prejudge(self, entry: PreparedClaim) -> Prejudgement:
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

    def _payload(self, entry: PreparedClaim, judged: Prejudgement) -> Payload:
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
            relevance=entry.relevance or None,
            error=entry.error,
        )


def provisional_claim(entry: PreparedClaim, policy: Policy) -> Decision:
    """Decide a claim while state is out of reach: nothing approved, nothing looked up, the same bytes each time."""
    clock = entry.clock
    facts = Facts(
        clock=clock,
        dedup=DedupFacts(status="failed", scheme=dedup_scheme(policy), matches=[]),
        attestation=entry.attestation,
        error=entry.error,
    )
    case = ClaimCase(entry.claim, entry.reading, policy, facts, {})
    envelope = Envelope(
        revision=0,
        fingerprint=entry.fingerprint,
        origin=entry.record.origin,
        subject_origin=None,
        decided_at=clock,
        capture_time=entry.claim.captured_at or clock,
        metadata=entry.claim.metadata,
        engine=__version__,
        policy_sha256=policy.sha256,
        policy_version=policy.version,
    )
    return build_decision(case, envelope, case.outcome())
