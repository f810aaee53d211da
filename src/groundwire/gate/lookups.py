"""What responses rest on outside the record: the tenant's corpus, and a language model's view of their claims.

What was answered is recorded with the decision. A model is asked before state is, and once of each response: one that
state has decided already is decided by what was recorded. Whatever goes wrong makes the check unavailable, which is a
review.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from groundwire.epistemic.asking import assess
from groundwire.epistemic.model import Client
from groundwire.epistemic.plan import OVER_BUDGET, VerifierFacts
from groundwire.epistemic.types import ModelCall, VerificationConfig
from groundwire.errors import StateUnavailable
from groundwire.gate.response_checks import (
    Broken,
    ClaimReport,
    ResponseReading,
    evidence_of,
    plan_claims,
    read_again,
)
from groundwire.gate.types import PreparedResponse, run_in_thread
from groundwire.logs import report_fault
from groundwire.messages.base import canonical_json
from groundwire.messages.identity import Subject
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.state.model import State
from groundwire.verify.models import HttpModel

_T = TypeVar("_T")

MAX_ASKED: Final = 2_000
"""Entities, and pairs of a relation, of one response that are looked up."""

MAX_ANSWER_BYTES: Final = 50_000
"""JSON of what is found, each of entities and relations: it stands in the decision, whole."""


class Corpus(Protocol):
    """Knows entities and relations, such as `groundwire.state.corpus.CorpusIndex`.

    Its methods raise StateUnavailable where it is out of reach: it is asked again. Whatever else they raise, for a
    corpus that is not there among others, makes the check unavailable.
    """

    async def entities(self, tenant: str, ids: Sequence[str], /) -> Mapping[str, Mapping[str, Any]]: ...

    async def relations(
        self, tenant: str, pairs: Collection[tuple[str, str]], /
    ) -> Sequence[Mapping[str, Any]]:
        """Return every relation between the subjects and objects of these pairs, in either direction."""
        ...


class TenantCorpus(NamedTuple):
    """A corpus, and the tenants whose responses are checked against it; `*` stands for all."""

    corpus: Corpus
    tenants: frozenset[str]

    def covers(self, tenant_id: str) -> bool:
        return not self.tenants.isdisjoint((tenant_id, "*"))


class TooMuch(Exception):
    """More than a decision can hold."""


def resolvable(response: LlmResponse, resolver: TenantCorpus | None) -> tuple[str, ...]:
    """Name the checks for which a resolver has to be asked: what a response brings itself can only lower its answer."""
    if resolver is None or not resolver.covers(response.tenant_id):
        return ()
    asked = {"entities": response.entities, "relations": response.claims}
    return tuple(check for check, parts in asked.items() if parts is not None)


async def resolve(entry: PreparedResponse, resolver: TenantCorpus | None, policy: Policy) -> PreparedResponse:
    """Ask the corpus for what a response names; what cannot be answered makes its check unavailable.

    A corpus that is out of reach raises StateUnavailable: it is asked again.
    """
    inputs, checks = entry.inputs, resolvable(entry.response, resolver)
    if resolver is None or not checks:
        return entry
    for check in checks:
        try:
            answer = await _ask(check, entry.response, resolver.corpus)
            inputs = inputs._replace(**{check: answer})
        except StateUnavailable:
            raise
        except Exception as exc:  # noqa: BLE001 - fails closed: the check is unavailable
            report_fault("resolver.failed", exc, check=check, offset=entry.record.offset)
            inputs = inputs.with_broken({check: type(exc).__name__})
    read = partial(read_again, entry.reading, ("entities", "relations"), entry.response, policy, inputs)
    return with_reading(entry._replace(inputs=inputs), await run_in_thread(entry, read))


async def _ask(check: str, response: LlmResponse, corpus: Corpus) -> Any:  # noqa: ANN401 - a JSON value, handed on
    found: object
    if check == "entities":
        ids = list(dict.fromkeys(entity.id for entity in response.entities or ()))
        known = await corpus.entities(response.tenant_id, _few(ids))
        found = {name: dict(known[name]) for name in ids if name in known}
    else:
        pairs = list(dict.fromkeys((claim.subject, claim.object) for claim in response.claims or ()))
        found = [dict(truth) for truth in await corpus.relations(response.tenant_id, _few(pairs))]
    text = json.dumps(found, ensure_ascii=False, allow_nan=False)
    if len(text.encode()) > MAX_ANSWER_BYTES:
        raise TooMuch(f"the corpus answered more than {MAX_ANSWER_BYTES} bytes")
    return json.loads(text)  # as it is read back, so that the first decision and a later one see the same


def _few(asked: list[_T]) -> list[_T]:
    if len(asked) > MAX_ASKED:
        raise TooMuch(f"{len(asked)} look-ups in one response, more than {MAX_ASKED}")
    return asked


MAX_SECONDS: Final = 60.0
"""For all questions about one response, whatever the policy says: a worker that gets on no longer is taken for dead."""

MAX_FACTS_BYTES: Final = 60_000
"""JSON of what a model said of one response: it stands in the decision, whole."""

OnAnswer = Callable[[VerifierFacts, float], None]
"""Called with what was asked about a response, and how many seconds that took."""


class Assessor(NamedTuple):
    client: Client
    at_once: int = 2  # responses; the others wait for their turn, and the time that they have begins with it
    on_answer: OnAnswer = lambda _facts, _seconds: None


def assessor_of(model: HttpModel, on_answer: OnAnswer | None = None) -> Assessor:
    """Return what asks a model: about half as many responses at once as it takes requests, for each has several."""
    assessor = Assessor(model, max(1, model.limits.concurrency // 2))
    return assessor._replace(on_answer=on_answer) if on_answer is not None else assessor


class ModelQuestions:
    """Asks a model about prepared responses, those of a batch beside each other; belongs to one event loop."""

    def __init__(self, assessor: Assessor, policy: Policy) -> None:
        self._assessor = assessor
        self._policy = policy
        self._config = capped(policy.verification)
        self._places = asyncio.Semaphore(assessor.at_once)

    async def ask(self, responses: Sequence[PreparedResponse], state: State) -> list[PreparedResponse]:
        """Ask about each response whose claims were checked, and of which state has not recorded an outcome.

        A response that stands several times in the batch is asked about once. Where state is out of reach, nobody is
        asked.
        """
        due: dict[tuple[Subject, str], PreparedResponse] = {}
        for entry in responses:
            if not is_asked(entry):
                due.setdefault((entry.subject, entry.fingerprint), entry)
        if not due:
            return list(responses)
        recorded = await state.held([subject for subject, _ in due])
        fresh = [key for key, known in zip(due, recorded, strict=True) if known is None]
        answers = await asyncio.gather(*(self._ask(due[key]) for key in fresh))
        asked = dict(zip(fresh, answers, strict=True))
        result = []
        for entry in responses:
            key = entry.subject, entry.fingerprint
            if not is_asked(entry) and key in asked:
                said, reading = asked[key]
                rules, inputs = entry.reading.claims, entry.inputs._replace(verifier=said)
                answered = entry._replace(by_rules=rules, inputs=inputs)
                result.append(with_reading(answered, replace(entry.reading, claims=reading.claims)))
            else:
                result.append(entry)
        return result

    async def _ask(self, entry: PreparedResponse) -> tuple[dict[str, Any] | None, ResponseReading]:
        """Return what a model says of a response, and the reading in which that speaks for its claims."""
        reading = entry.reading
        try:
            said = await self._assess(entry)
            if said is not None:
                inputs = entry.inputs._replace(verifier=said, error=None)
                again = partial(read_again, reading, ("claims",), entry.response, self._policy, inputs)
                reading = await run_in_thread(entry, again)
        except Exception as exc:  # noqa: BLE001 - fails closed: the check is unavailable
            report_fault("model.failed", exc, offset=entry.record.offset)
            return None, replace(reading, claims=Broken(type(exc).__name__))
        return said, reading

    async def _assess(self, entry: PreparedResponse) -> dict[str, Any] | None:
        response, config = entry.response, self._config
        plan = await run_in_thread(
            entry, partial(plan_claims, response, evidence_of(response), config, ask=True)
        )
        if not plan.due and not plan.truncated:
            return None
        async with self._places:
            began = time.monotonic()
            facts = await assess(plan, self._assessor.client, config)
        if facts is None:
            return None
        self._assessor.on_answer(facts, time.monotonic() - began)
        return recordable(facts)


def with_reading(entry: PreparedResponse, reading: ResponseReading) -> PreparedResponse:
    """Return a response with what its checks found; those that have just broken are logged."""
    known, broken = entry.inputs.broken, dict(reading.broken)
    for check, section in broken.items():
        if check not in known and section.cause is not None:
            report_fault("check.broken", section.cause, check=check, offset=entry.record.offset)
    inputs = entry.inputs.with_broken({check: section.error for check, section in broken.items()})
    return entry._replace(reading=reading, inputs=inputs)


def is_asked(entry: PreparedResponse) -> bool:
    return entry.by_rules is not None or not isinstance(entry.reading.claims, ClaimReport)


def capped(config: VerificationConfig) -> VerificationConfig:
    return config.model_copy(update={"budget_seconds": min(config.budget_seconds, MAX_SECONDS)})


def recordable(facts: VerifierFacts) -> dict[str, Any]:
    """Return what a model said as a fact that a decision has room for; raises TooMuch where there is none.

    Where it is too long, its reasons are left out, and what one claim was asked is added up to a call of each kind.
    """
    silent = [one.model_copy(update={"reason": ""}) for one in facts.opinions]
    for shorter in (facts, facts.model_copy(update={"opinions": silent, "calls": _added_up(facts.calls)})):
        said = shorter.model_dump(mode="json")
        if len(canonical_json(said)) <= MAX_FACTS_BYTES:
            return said
    raise TooMuch(f"what the model said takes more than {MAX_FACTS_BYTES} bytes")


def _added_up(calls: Sequence[ModelCall]) -> list[ModelCall]:
    alike: defaultdict[tuple[str, str], list[ModelCall]] = defaultdict(list)
    for call in calls:
        alike[call.claim_id, call.kind].append(call)
    sums = ("input_tokens", "output_tokens", "cost_usd", "requests")
    added = []
    for same in alike.values():
        faults = [call.fault for call in same if call.fault is not None]
        total = {name: sum(getattr(call, name) for call in same) for name in sums}
        fault = OVER_BUDGET if OVER_BUDGET in faults else next(iter(faults), None)
        cached = all(call.cached for call in same)
        added.append(same[0].model_copy(update={**total, "cached": cached, "fault": fault}))
    return added
