"""LLM responses at the gate: prepared, put to state, decided; and what people decide of them (S2-40)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from groundwire.checks.quotes import threshold_advice
from groundwire.gate.build import Stamp
from groundwire.gate.kinds import GateRules, KindGate, Step, attempted, decide_provisionally, or_failed
from groundwire.gate.lookups import ModelQuestions, TenantCorpus, is_asked, resolvable, resolve, with_reading
from groundwire.gate.record import ReplyAttempt, ResponsePayload, derive_one, next_decision
from groundwire.gate.response_case import STATE, ResponseCase, extract, regenerate_request
from groundwire.gate.response_checks import (
    CHECKS,
    INTERNAL,
    NOT_PROVIDED,
    Broken,
    ResponseReading,
    list_broken,
    read_again,
    read_response,
)
from groundwire.gate.tree import reviewed
from groundwire.gate.types import (
    Decided,
    DecisionQuery,
    Find,
    PreparedResponse,
    PreparedReview,
    canonical_form,
    record_origin,
    run_in_thread,
)
from groundwire.logs import report_fault
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Decision, Facts, IngestionTier, Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.state.model import (
    HeldEntry,
    Outcome,
    ReviewAction,
    ReviewRequest,
    State,
    StepRequest,
    SubjectState,
)

MAX_ID: Final = 190
"""Characters of a response's id: a longer `in_reply_to` names none, and a decision has no room for it."""

_UNREAD: Final = ResponseReading(**dict.fromkeys(CHECKS, NOT_PROVIDED))
_FREE: Final = ("evidence", "current_revisions", "context", "hop_results")
"""Fields of a response that hold objects with keys of the sender's."""


ResponseStep = Step[PreparedResponse, ResponseCase, ResponsePayload]


class ResponseGate(KindGate[PreparedResponse, ResponseCase, ResponsePayload]):
    def __init__(
        self,
        rules: GateRules,
        resolver: TenantCorpus | None,
        models: ModelQuestions | None,
        *,
        fan_out: bool,
    ) -> None:
        super().__init__(rules)
        self._resolver = resolver
        self._models = models
        self._fan_out = fan_out

    def prepare(self, record: InboundRecord, response: LlmResponse) -> PreparedResponse:
        """Return a response of which only the signature is checked. Raises: RecordError without a canonical form."""
        return self._attested(prepare_response(record, response))

    async def check(
        self,
        entries: Sequence[PreparedResponse],
        *,
        ask_network: bool,  # noqa: ARG002 - as of claims
    ) -> list[PreparedResponse]:
        """Run the checks; those that a resolver or a model answers are run again once it was asked."""
        return [await self._checked(entry) for entry in entries]

    async def _checked(self, entry: PreparedResponse) -> PreparedResponse:
        response, policy = entry.response, self._policy
        try:
            reading = await run_in_thread(entry, partial(read_response, response, policy, entry.inputs))
            entry = with_reading(entry, reading)
            if response.fan_out and self._fan_out:
                limit = policy.limits.max_claims_per_response
                claims = await run_in_thread(entry, partial(extract, response, limit))
                entry = entry._replace(extraction=claims)
        except Exception as exc:  # noqa: BLE001 - fails closed: it is a review, whatever broke
            report_fault("response.unreadable", exc, offset=entry.record.offset)
            return entry.failed(exc)
        return entry

    async def ask_model(
        self, responses: Sequence[PreparedResponse], state: State
    ) -> Sequence[PreparedResponse]:
        return responses if self._models is None else await self._models.ask(responses, state)

    async def look_up(self, responses: Sequence[PreparedResponse], state: State) -> list[PreparedResponse]:
        """Ask the corpus for what responses name, all at once, and state for those that they replace."""
        resolved = await asyncio.gather(*(resolve(one, self._resolver, self._policy) for one in responses))
        parents = [entry.parent for entry in resolved if entry.parent]
        if not parents:
            return resolved
        held = dict(zip(parents, await state.held(parents), strict=True))
        return [
            entry._replace(reply_to=reply_to(entry.parent, held[entry.parent])) if entry.parent else entry
            for entry in resolved
        ]

    def _signer(self, entry: PreparedResponse) -> dict[str, Any]:
        return {"tenant": entry.response.tenant_id, "role": "grounding"}

    def _step(self, entry: PreparedResponse) -> ResponseStep:
        judged = entry
        if self._models is not None and not is_asked(entry):
            # its outcome is recorded; should state have forgotten that meanwhile, it is a review
            judged = with_reading(entry, replace(entry.reading, claims=Broken("NotAsked")))
        facts = Facts(
            clock=entry.record.clock,
            extraction=entry.extraction,
            reply_to=entry.reply_to,
            **judged.inputs._asdict(),
        )
        case = ResponseCase(entry.response, judged.reading, self._policy, facts)
        base, asked = case.before_queue(), case.regeneration
        payload = ResponsePayload(
            stamp=Stamp.of(self._policy, self._now()),
            base_code=base.code,
            attempt=ReplyAttempt(asked.mode if asked else None, case.attempt),
            inputs=judged.inputs,
            extraction=publishable(entry.extraction, base.tier),
            reply_to=entry.reply_to,
        )
        request = StepRequest(
            subject=case.subject,
            fingerprint=entry.fingerprint,
            origin=record_origin(entry.record),
            base_tier=base.number,
            payload=payload.to_bytes(),  # without the record: people decide on the published decision
            queued=self._policy.verification.on_failure == "ask",
        )
        return Step(entry, case, payload, request)

    async def _recorded(
        self, entry: PreparedResponse, recorded: Outcome
    ) -> tuple[ResponseCase, ResponsePayload]:
        payload = ResponsePayload.from_bytes(recorded.payload)
        policy = await self._rules.policy_that_decided(payload.stamp)
        # the recorded facts are what this very record found, unless it was sent again
        checks = CHECKS if policy is not self._policy else entry.inputs.differing(payload.inputs)
        reading = entry.reading
        if checks:
            read = partial(read_again, reading, checks, entry.response, policy, payload.inputs)
            reading = await run_in_thread(entry, read)
        case = ResponseCase(entry.response, reading, policy, payload.facts(recorded))
        return case.recorded_as(payload.base_code), payload

    async def decide(
        self, answered: Sequence[tuple[ResponseStep, Outcome]], *, again: bool
    ) -> list[Decided | Exception]:
        decided = []
        for step, recorded in answered:
            known = await self._known(step, recorded)
            attempt = or_failed if again or known[1].review else attempted
            deciding = partial(attempt, partial(_decided, step.entry.record), known)
            decided.append(await run_in_thread(step.entry, deciding))
        return decided

    def _provisional(self, entry: PreparedResponse) -> Decision:
        entry = _by_rules(entry)
        missing = dict.fromkeys((STATE, *resolvable(entry.response, self._resolver)), "StateUnavailable")
        more = {check: error for check, error in entry.inputs.broken.items() if check not in missing}
        return provisional_response(entry, self._policy, missing | more)


def _decided(record: InboundRecord, known: tuple[ResponseCase, ResponsePayload, Outcome]) -> Decided:
    case, payload, recorded = known
    decision = derive_one(known)
    # People ask for nothing, and what the gate's own revision asked for may not be published yet. It asks for nothing
    # where it approves: a person approved what was retracted.
    action = payload.review and payload.review["action"]
    own = recorded.revision - (2 if action == ReviewAction.RETRACT else 1 if action else 0)
    request = regenerate_request(case, decision_id(case.subject, own))
    events = [
        event
        for check, result in (case.reading.results if recorded.fresh else ())
        for event in check.events(result, decision.tenant_id, case.policy)
    ]
    requested_at = payload.gate_decided_at or payload.stamp.decided_at
    return Decided(record, decision, recorded.fresh, request, requested_at, events)


def prepare_response(record: InboundRecord, response: LlmResponse) -> PreparedResponse:
    """Return a response of which nothing is checked yet. Raises: RecordError without a canonical form."""
    form = canonical_form(response)
    canonical = json.loads(form)
    # the same fingerprint must give the same decision, whatever order its keys were sent in
    update = {name: canonical[name] for name in _FREE if getattr(response, name) is not None}
    for name in ("claims", "relations"):
        if statements := getattr(response, name):
            update[name] = [
                statement.model_copy(update={"qualifiers": plain["qualifiers"]})
                if statement.qualifiers
                else statement
                for statement, plain in zip(statements, canonical[name], strict=True)
            ]
    ordered = response.model_copy(update=update)
    return PreparedResponse(record, ordered, sha256_hex(form), _UNREAD)


def provisional_response(entry: PreparedResponse, policy: Policy, broken: Mapping[str, str]) -> Decision:
    """Decide a response while state is out of reach: nothing approved or looked up, the same bytes each time."""
    facts = Facts(
        clock=entry.record.clock,
        extraction=[] if entry.response.fan_out else None,
        reply_to=reply_to(entry.parent, None) if entry.parent else None,
        attestation=entry.inputs.attestation,
        error=list_broken(broken),
    )
    not_made = {check: Broken(error) for check, error in broken.items() if check in CHECKS}
    case = ResponseCase(entry.response, replace(entry.reading, **not_made), policy, facts)
    return decide_provisionally(case, entry, policy)


def policy_advice(policy: Policy) -> list[str]:
    advice = threshold_advice(policy.evidence_quote_fuzzy_threshold)
    return [f"evidence_quote_fuzzy_threshold: {advice}"] if advice else []


def reply_to(parent: Subject, held: HeldEntry | None) -> dict[str, Any]:
    """Return what is known of the response that a reply replaces, as a fact; `held` is what state recorded of it."""
    known = ResponsePayload.from_bytes(held.payload).attempt if held else ReplyAttempt(None, None)
    return {
        "response_id": parent.subject_id[:MAX_ID],
        "mode": known.asked_mode,
        "attempt": known.number,
    }


def publishable(extraction: list[str] | None, tier: IngestionTier) -> list[str] | None:
    """Return the extracted claims that are published: none of a blocked response, they go nowhere."""
    return [] if extraction is not None and tier == IngestionTier.BLOCK else extraction


def _by_rules(entry: PreparedResponse) -> PreparedResponse:
    """Return a response as the rules alone see it: what it was before a model was asked."""
    broken = entry.inputs.broken
    if entry.by_rules is None or INTERNAL in broken:
        return entry
    kept = {check: error for check, error in broken.items() if check != "claims"}
    inputs = entry.inputs._replace(verifier=None, error=list_broken(kept))
    return entry._replace(reading=replace(entry.reading, claims=entry.by_rules), inputs=inputs)


class ResponseReviews:
    """Works out what people's actions on responses come to, from published decisions: state keeps no text of them."""

    def __init__(self, find: Find, *, now: Callable[[], datetime]) -> None:
        self._find = find
        self._now = now

    def parents(self, held: HeldEntry) -> Sequence[tuple[str, Subject]]:  # noqa: ARG002 - as of claims
        return ()

    def query(self, entry: PreparedReview, held: HeldEntry) -> DecisionQuery | None:
        verdict = Verdict.APPROVED if held.state is SubjectState.APPROVED else Verdict.REVIEW
        since = ResponsePayload.from_bytes(held.payload).stamp.decided_at
        return DecisionQuery(verdict, decision_id(entry.subject, held.revision), since)

    def request(self, entry: PreparedReview, held: HeldEntry, published: Decision | None) -> ReviewRequest:
        if entry.action is ReviewAction.EDIT:
            return entry.request("not_editable")
        if entry.action is ReviewAction.OVERRULE:
            return entry.request("not_overrulable")
        if published is None:
            return entry.request("not_published", forget=True)  # it may be when the action comes again
        before = ResponsePayload.from_bytes(held.payload)
        payload = replace(
            before,
            stamp=before.stamp._replace(decided_at=self._now()),
            base_code=reviewed(entry.action, expired=False, duplicate=False).code,
            review=entry.fact(edited=False),
            gate_decided_at=before.gate_decided_at or before.stamp.decided_at,
        )
        return entry.request(payload=payload.to_bytes())

    async def next_decision(
        self, subject: Subject, recorded: Outcome, before: Decision | None
    ) -> Decision | None:
        """Make the decision of a response that a person decided, or find it where the action comes again.

        None where no topic holds it any more, nor the one that it superseded.
        """
        payload = ResponsePayload.from_bytes(recorded.payload)
        if before is None:
            own, superseded = (decision_id(subject, recorded.revision - back) for back in (0, 1))
            decided = Verdict.APPROVED if recorded.state is SubjectState.APPROVED else Verdict.BLOCKED
            retracted = (payload.review or {}).get("action") == ReviewAction.RETRACT
            rested_on = Verdict.APPROVED if retracted else Verdict.REVIEW
            found = await self._find(
                [
                    DecisionQuery(decided, own, payload.stamp.decided_at),
                    DecisionQuery(rested_on, superseded, payload.gate_decided_at),
                ]
            )
            if own in found:
                return found[own]
            before = found.get(superseded)
        return next_decision(before, recorded, payload) if before else None
