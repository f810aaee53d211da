"""LLM responses at the gate: read, what they lack looked up, put to state, and their decisions derived."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from groundwire.checks.quotes import threshold_advice
from groundwire.decide.build import Envelope, build_response_decision
from groundwire.decide.fan_out import extract
from groundwire.decide.regenerate import regenerate_request
from groundwire.decide.response_reading import (
    NOT_PROVIDED,
    Broken,
    ResponseReading,
    found,
    read_response,
    with_corpus,
    without_claims,
)
from groundwire.decide.responses import INTERNAL, STATE, ResponseCase, broken_checks, list_broken
from groundwire.gate.aside import aside
from groundwire.gate.claims import Policies, policy_that_decided
from groundwire.gate.faults import report_fault
from groundwire.gate.models import Assessor, ModelDesk, is_asked
from groundwire.gate.prepared import PreparedResponse, canonical_form, in_canonical_order
from groundwire.gate.recorded_responses import ResponsePayload, derive_response, recorded_case
from groundwire.gate.resolvers import Resolver, lacking, resolve
from groundwire.gate.results import Decided
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Decision, Facts
from groundwire.messages.events import Event
from groundwire.messages.identity import Subject
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.responses import LlmResponse
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy
from groundwire.state.model import Ask, Outcome, State
from groundwire.version import __version__

MAX_ID: Final = 190
"""Characters of a response's id: a longer `in_reply_to` names none, and a decision has no room for it."""

_TIERS: Final = tuple(IngestionTier)
_UNREAD: Final = ResponseReading(**{f.name: NOT_PROVIDED for f in fields(ResponseReading)})
_CHECKS: Final = tuple(field.name for field in fields(ResponseReading))


class ResponseDesk:
    """Decides responses; see `groundwire.gate.gate.Gate` for the arguments."""

    def __init__(
        self,
        policy: Policy,
        policies: Policies,
        resolver: Resolver | None,
        *,
        now: Callable[[], datetime],
        fan_out: bool,
        assessor: Assessor | None = None,
    ) -> None:
        self._policy = policy
        self._policies = policies
        self._resolver = resolver
        self._now = now
        self._fan_out = fan_out
        self._models = ModelDesk(assessor, policy) if assessor is not None else None

    def read(self, record: InboundRecord, response: LlmResponse) -> PreparedResponse:
        """Take a response over; nothing is checked yet. Raises: RecordError without a canonical form."""
        return take_over(record, response)

    async def look_up(self, responses: Sequence[PreparedResponse]) -> None:
        """Run the checks; those that a resolver answers are run again once it was asked."""
        for entry in responses:
            try:
                read = partial(read_response, entry.response, self._policy, verifier=entry.verifier)
                entry.take_in(await aside(entry, read))
                if entry.response.fan_out and self._fan_out:
                    limit = self._policy.limits.max_claims_per_response
                    entry.extraction = await aside(entry, partial(extract, entry.response.answer, limit))
            except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
                report_fault("response.unreadable", exc, offset=entry.record.offset)
                _give_up(entry, exc)

    async def ask_model(self, responses: Sequence[PreparedResponse], state: State) -> None:
        """Ask the model about claims, where there is one and state has not recorded what it said.

        Raises:
            StateUnavailable, StateLost: as `State.payloads`; nobody was asked.
        """
        if self._models is not None:
            await self._models.ask(responses, state)

    async def resolve(self, responses: Sequence[PreparedResponse]) -> None:
        """Ask the corpus for what responses lack, all at once.

        Raises:
            StateUnavailable: it is out of reach; those that were answered are not asked again.
        """
        await asyncio.gather(*(self._resolve(entry) for entry in responses if not entry.resolved))

    async def _resolve(self, entry: PreparedResponse) -> None:
        if self._resolver is not None and lacking(entry, self._resolver):
            await resolve(entry, self._resolver)
            read = partial(
                with_corpus,
                entry.reading,
                entry.response,
                self._policy,
                entities=entry.entities,
                relations=entry.relations,
                broken=entry.broken,
            )
            entry.take_in(await aside(entry, read))
        entry.resolved = True

    async def look_back(self, responses: Sequence[PreparedResponse], state: State) -> None:
        """Find what is known of the responses that some of these replace.

        Raises:
            StateUnavailable, StateLost: as `State.payloads`.
        """
        replies = [(entry, entry.parent) for entry in responses if entry.parent]
        if not replies:
            return
        payloads = await state.payloads([parent for _, parent in replies])
        for (entry, parent), payload in zip(replies, payloads, strict=True):
            known = ResponsePayload.from_bytes(payload) if payload else None
            entry.reply_to = reply_to(parent, known)

    def ask(self, entry: PreparedResponse) -> Ask:
        """Return what state is asked about a response."""
        if self._models is not None and not is_asked(entry):
            entry = _forgotten(entry)
        try:
            case = self._case(entry)
            standing, regeneration = case.standing(), case.regeneration
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("response.unjudged", exc, offset=entry.record.offset)
            _give_up(entry, exc)
            case = self._case(entry)
            standing, regeneration = case.standing(), None
        payload = ResponsePayload(
            decided_at=self._now(),
            engine=__version__,
            policy_sha256=self._policy.sha256,
            policy_version=self._policy.version,
            code=standing.code,
            asked_mode=regeneration.mode if regeneration else None,
            attempt=case.attempt,
            entities=entry.entities,
            relations=entry.relations,
            verifier=entry.verifier,
            extraction=kept(entry.extraction, standing.tier),
            reply_to=entry.reply_to,
            error=entry.error,
        )
        return Ask(
            subject=entry.subject,
            fingerprint=entry.fingerprint,
            origin=entry.origin,
            base_tier=_TIERS.index(standing.tier) + 1,
            capped=False,
            wait=False,
            dedup=None,
            dedup_failed=False,
            parents=[],
            horizon=0,
            payload=payload.to_bytes(),
            record=b"",  # what people decide of a response rests on its published decision
            queued=self._policy.verification.on_failure == "ask",
        )

    async def decided(self, entry: PreparedResponse, outcome: Outcome) -> Decided:
        """Derive the decision of a response's recorded outcome, and what it asks of the generator."""
        payload = ResponsePayload.from_bytes(outcome.payload)
        policy = await policy_that_decided(payload.policy_sha256, self._policy, self._policies)
        reading = entry.reading
        if policy not in {None, self._policy} or not _found_the_same(entry, payload):
            read = partial(
                read_response,
                entry.response,
                policy or self._policy,
                entities=payload.entities,
                relations=payload.relations,
                verifier=payload.verifier,
                broken=broken_checks(payload.error),
            )
            reading = await aside(entry, read)
        case = recorded_case(entry.response, reading, policy or self._policy, outcome, payload)
        derive = partial(derive_response, case, outcome, payload, known_policy=policy is not None)
        decision = await aside(entry, derive)
        request = None
        if payload.review is None:  # what a person decided asks for nothing more
            request = await aside(entry, partial(regenerate_request, case, decision))
        events = list(_events(entry, case)) if outcome.fresh else []
        return Decided(entry.record, decision, outcome.fresh, request, events)

    def without_state(self, entry: PreparedResponse) -> Decision:
        """Decide a response provisionally; see `provisional_response`."""
        entry = _as_unasked(entry)
        missing = dict.fromkeys((STATE, *lacking(entry, self._resolver)), "StateUnavailable")
        broken = missing | {check: error for check, error in entry.broken.items() if check not in missing}
        return provisional_response(entry, self._policy, broken)

    def _case(self, entry: PreparedResponse) -> ResponseCase:
        facts = Facts(
            clock=entry.clock,
            entities=entry.entities,
            relations=entry.relations,
            verifier=entry.verifier,
            extraction=entry.extraction,
            reply_to=entry.reply_to,
            error=entry.error,
        )
        return ResponseCase(entry.response, entry.reading, self._policy, facts)


def take_over(record: InboundRecord, response: LlmResponse) -> PreparedResponse:
    """Return a response of which nothing is checked yet. Raises: RecordError without a canonical form."""
    form = canonical_form(response)
    ordered = in_canonical_order(response, json.loads(form))
    return PreparedResponse(record, ordered, sha256_hex(form), _UNREAD)


def provisional_response(entry: PreparedResponse, policy: Policy, broken: Mapping[str, str]) -> Decision:
    """Decide a response while state is out of reach: nothing approved or looked up, the same bytes each time.

    Args:
        entry: what its checks found.
        policy: what decides.
        broken: what broke -> class of the error: `state`, and the checks that could not be made without it.
    """
    facts = Facts(
        clock=entry.clock,
        extraction=[] if entry.response.fan_out else None,
        reply_to=reply_to(entry.parent, None) if entry.parent else None,
        error=list_broken(broken),
    )
    not_made = {check: Broken(error) for check, error in broken.items() if check in _CHECKS}
    case = ResponseCase(entry.response, replace(entry.reading, **not_made), policy, facts)
    envelope = Envelope(
        revision=0,
        fingerprint=entry.fingerprint,
        origin=entry.record.origin,
        subject_origin=None,
        decided_at=entry.clock,
        capture_time=entry.clock,
        metadata={},
        engine=__version__,
        policy_sha256=policy.sha256,
        policy_version=policy.version,
    )
    return build_response_decision(case, envelope, case.outcome())


def policy_advice(policy: Policy) -> list[str]:
    """Return what an operator should be told of a policy before it decides."""
    advice = threshold_advice(policy.evidence_quote_fuzzy_threshold)
    return [f"evidence_quote_fuzzy_threshold: {advice}"] if advice else []


def reply_to(parent: Subject, known: ResponsePayload | None) -> dict[str, Any]:
    """Return what is known of the response that a reply replaces, as a fact."""
    return {
        "response_id": parent.subject_id[:MAX_ID],
        "mode": known.asked_mode if known else None,
        "attempt": known.attempt if known else None,
    }


def _give_up(entry: PreparedResponse, error: Exception) -> None:
    """Give up on judging a response: it goes to review, as an internal error (S0-23)."""
    name = type(error).__name__
    entry.broken = {INTERNAL: name} | dict.fromkeys(_CHECKS, name)
    entry.reading = ResponseReading(**{check: Broken(name) for check in _CHECKS})
    entry.extraction = [] if entry.extraction is not None else None


def _forgotten(entry: PreparedResponse) -> PreparedResponse:
    """Return a response as it is put to state where nobody was asked about it, as its outcome is recorded.

    Should state have forgotten that meanwhile, it is a review.
    """
    again = replace(entry, broken=dict(entry.broken))
    again.take_in(without_claims(entry.reading, "NotAsked"))
    return again


def _as_unasked(entry: PreparedResponse) -> PreparedResponse:
    """Return a response as the rules alone see it: what it was before a model was asked."""
    if entry.by_rules is None or INTERNAL in entry.broken:
        return entry
    broken = {check: error for check, error in entry.broken.items() if check != "claims"}
    return replace(entry, reading=replace(entry.reading, claims=entry.by_rules), broken=broken, verifier=None)


def _found_the_same(entry: PreparedResponse, payload: ResponsePayload) -> bool:
    """Say whether the recorded facts are what this very record found, as they are unless it was sent again."""
    found = (entry.entities, entry.relations, entry.verifier, entry.error)
    return found == (payload.entities, payload.relations, payload.verifier, payload.error)


def kept(extraction: list[str] | None, tier: IngestionTier) -> list[str] | None:
    """Keep no claims of a blocked response: they go nowhere."""
    return [] if extraction is not None and tier == IngestionTier.BLOCK else extraction


def _events(entry: PreparedResponse, case: ResponseCase) -> Iterator[Event]:
    reading, tenant = case.reading, entry.response.tenant_id
    quotes, entities, relations = found(reading.quotes), found(reading.entities), found(reading.relations)
    versions = found(reading.versions)
    if quotes and case.policy.evidence_quote_log_rejections:
        yield from quotes.events()
    if entities:
        yield from entities.events(tenant)
    if relations:
        yield from relations.events(tenant)
    if versions:
        yield from versions.events(tenant)
