"""A language model at the gate: asked about the claims of responses before state is, and once of each response.

What it said is recorded with the decision. A response that state has decided already is decided by what was recorded:
nobody is asked again. Whatever goes wrong makes the check unavailable, which is a review.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from groundwire.decide.response_claims import ClaimReport, evidence_of, plan_claims
from groundwire.decide.response_reading import with_verifier, without_claims
from groundwire.epistemic.assess import assess
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.facts import OVER_BUDGET, VerifierFacts
from groundwire.epistemic.model import Client
from groundwire.epistemic.types import ModelCall
from groundwire.gate.aside import aside
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import PreparedResponse
from groundwire.gate.resolvers import TooMuch
from groundwire.messages.base import canonical_json
from groundwire.messages.identity import Subject
from groundwire.policy import Policy
from groundwire.state.model import State
from groundwire.verify.models import HttpModel

MAX_SECONDS: Final = 60.0
"""For all questions about one response, whatever the policy says: a worker that gets on no longer is taken for dead."""

MAX_FACTS_BYTES: Final = 60_000
"""JSON of what a model said of one response: it stands in the decision, whole."""

Told = Callable[[VerifierFacts, float], None]
"""Hears of what was asked about a response, and how many seconds that took."""


def _unheard(_facts: VerifierFacts, _seconds: float) -> None:
    """Hear of nothing."""


class Assessor(NamedTuple):
    """A language model that is asked about the claims of responses.

    Attributes:
        client: the model.
        at_once: responses that it is asked about at the same time; the others wait for their turn, and the time that
            they have begins with it.
        told: hears of what was asked.
    """

    client: Client
    at_once: int = 2
    told: Told = _unheard


def assessor_of(model: HttpModel, told: Told = _unheard) -> Assessor:
    """Return what asks a model: about half as many responses at once as it takes requests, for each has several."""
    return Assessor(model, max(1, model.limits.concurrency // 2), told)


class ModelDesk:
    """Asks a model about prepared responses, those of a batch beside each other; belongs to one event loop.

    Args:
        assessor: the model.
        policy: what decides; its `[verification]` says about which claims a model is asked.
    """

    def __init__(self, assessor: Assessor, policy: Policy) -> None:
        self._assessor = assessor
        self._policy = policy
        self._config = capped(policy.verification)
        self._places = asyncio.Semaphore(assessor.at_once)

    async def ask(self, responses: Sequence[PreparedResponse], state: State) -> None:
        """Ask about each response whose claims were checked, and of which state has not recorded an outcome.

        One that is called off begins again with the next call; one that was asked about is not asked about again.

        Raises:
            StateUnavailable, StateLost: as `State.payloads`; nobody was asked.
        """
        due: dict[tuple[Subject, str], list[PreparedResponse]] = {}
        for entry in responses:
            if not is_asked(entry):
                due.setdefault((entry.subject, entry.fingerprint), []).append(entry)
        if not due:
            return
        recorded = await state.payloads([subject for subject, _ in due])
        fresh = [entries for entries, known in zip(due.values(), recorded, strict=True) if known is None]
        await asyncio.gather(*(self._ask(entries) for entries in fresh))

    async def _ask(self, entries: Sequence[PreparedResponse]) -> None:
        """Ask about a response, which may have come several times, and let what was said speak for its claims."""
        first = entries[0]
        said: dict[str, Any] | None = None
        try:
            said = await self._assess(first)
            reading = first.reading
            if said is not None:
                read = partial(with_verifier, reading, first.response, self._policy, verifier=said)
                reading = await aside(first, read)
        except Exception as exc:  # noqa: BLE001 - fails closed: the check is unavailable
            report_fault("model.failed", exc, offset=first.record.offset)
            said, reading = None, without_claims(first.reading, type(exc).__name__)
        for entry in entries:
            entry.by_rules, entry.verifier = entry.reading.claims, said
            entry.take_in(replace(entry.reading, claims=reading.claims))

    async def _assess(self, entry: PreparedResponse) -> dict[str, Any] | None:
        """Return what a model says, as it is recorded; None where there is nothing to ask."""
        response, config = entry.response, self._config
        plan = await aside(entry, partial(plan_claims, response, evidence_of(response), config, ask=True))
        if not plan.due and not plan.truncated:
            return None
        async with self._places:
            began = time.monotonic()
            facts = await assess(plan, self._assessor.client, config)
        if facts is None:
            return None
        self._assessor.told(facts, time.monotonic() - began)
        return recordable(facts)


def is_asked(entry: PreparedResponse) -> bool:
    """Say whether a model was asked about a response, or need not be: its claims were not checked."""
    return entry.by_rules is not None or not isinstance(entry.reading.claims, ClaimReport)


def capped(config: VerificationConfig) -> VerificationConfig:
    """Return a configuration whose questions end before the worker that asks them is taken for dead."""
    return config.model_copy(update={"budget_seconds": min(config.budget_seconds, MAX_SECONDS)})


def recordable(facts: VerifierFacts) -> dict[str, Any]:
    """Return what a model said as a fact that a decision has room for.

    Where it is too long, its reasons are left out, and what one claim was asked is added up to a call of each kind.

    Raises:
        TooMuch: it is too long all the same.
    """
    silent = [one.model_copy(update={"reason": ""}) for one in facts.opinions]
    for shorter in (facts, facts.model_copy(update={"opinions": silent, "calls": _added_up(facts.calls)})):
        said = shorter.model_dump(mode="json")
        if len(canonical_json(said)) <= MAX_FACTS_BYTES:
            return said
    raise TooMuch(f"what the model said takes more than {MAX_FACTS_BYTES} bytes")


def _added_up(calls: Sequence[ModelCall]) -> list[ModelCall]:
    """Add up the calls of a kind about a claim; that a budget did not reach is not lost."""
    sums: dict[tuple[str, str], ModelCall] = {}
    for call in calls:
        key = (call.claim_id, call.kind)
        sums[key] = _sum(sums[key], call) if key in sums else call
    return list(sums.values())


def _sum(one: ModelCall, other: ModelCall) -> ModelCall:
    faults = [call.fault for call in (one, other) if call.fault is not None]
    return one.model_copy(
        update={
            "cached": one.cached and other.cached,
            "input_tokens": one.input_tokens + other.input_tokens,
            "output_tokens": one.output_tokens + other.output_tokens,
            "cost_usd": one.cost_usd + other.cost_usd,
            "requests": one.requests + other.requests,
            "fault": OVER_BUDGET if OVER_BUDGET in faults else next(iter(faults), None),
        }
    )
