"""The gate: prepare a batch, put it to state in one step, derive the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, assert_never

from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.claims import ClaimGate
from groundwire.gate.kinds import GateRules, KindGate, Policies, Step, report_underived
from groundwire.gate.lookups import Assessor, ModelQuestions, TenantCorpus
from groundwire.gate.responses import ResponseGate
from groundwire.gate.types import (
    LARGE,
    AlreadyDeferred,
    DeadLetter,
    Deferred,
    Prepared,
    PreparedClaim,
    PreparedResponse,
    Provisional,
    Result,
    of_kind,
    portions,
    put_back,
    queue_limits,
)
from groundwire.keys.attestation import Keys
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decode import decode_claim, decode_either, decode_response
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.records import Claim, LlmResponse
from groundwire.messages.topics import TopicName, record_key
from groundwire.policy import Policy
from groundwire.state.model import (
    Conflict,
    GivenUp,
    Outcome,
    State,
    StepAnswer,
    StepRequest,
    Waiting,
)
from groundwire.verify.citations import CitationVerifier

_AT_ONCE: Final = 50  # records that are read, or decided, before the event loop gets a turn

GateEntry = Prepared | DeadLetter | Deferred
Answered = tuple[Step[Any, Any, Any], StepAnswer]
_T = TypeVar("_T")


class Lookups(NamedTuple):
    verifier: CitationVerifier
    resolver: TenantCorpus | None = None  # of entities and relations; None: nobody knows them
    # the model that is asked about claims of responses; None: rules alone verify
    assessor: Assessor | None = None
    patience: float = 0.0
    """Seconds for which citations whose host failed are looked up again before a person gets the claim."""


class Gate:
    """Decides claims and responses; the same code behind workers and `groundwire check`.

    Args:
        policies: earlier policies, for records that are sent again after a change.
        state: identity, duplicates, parents, the queue.
        keys: sign records; empty where attestation is not used.
        now: the wall clock, for `decided_at`; everything else goes by the record's timestamp.
        fan_out: whether claims of responses are sent on; else their decisions say that they are not.
    """

    def __init__(
        self,
        policy: Policy,
        policies: Policies,
        state: State,
        lookups: Lookups,
        *,
        keys: Keys,
        now: Callable[[], datetime],
        fan_out: bool = True,
    ) -> None:
        self._state = state
        self._patience = lookups.patience
        self._now = now
        rules = GateRules(policy, policies, keys, now)
        self._claims = ClaimGate(rules, lookups.verifier, lookups.patience)
        models = ModelQuestions(lookups.assessor, policy) if lookups.assessor is not None else None
        self._responses = ResponseGate(rules, lookups.resolver, models, fan_out=fan_out)
        self._kinds: dict[type, KindGate[Any, Any, Any]] = {
            PreparedClaim: self._claims,
            PreparedResponse: self._responses,
        }
        self._limits = queue_limits(policy)

    async def prepare(
        self, records: Sequence[InboundRecord], *, ask_network: bool = False
    ) -> list[GateEntry]:
        """Decode a batch, run the checks that need no state and look up what claims cite: an entry for each record.

        `ask_network` asks for citations that are not cached, instead of leaving their claims to wait.
        """
        batch: list[GateEntry] = []
        async for part in _parts(records):
            begun = [
                (await asyncio.to_thread(self._prepare, [record]))[0]
                if len(record.value or b"") >= LARGE
                else record
                for record in part
            ]
            batch += put_back(begun, self._prepare(of_kind(begun, InboundRecord)), InboundRecord)
        for kind, gate in self._kinds.items():
            checked = await gate.check(of_kind(batch, kind), ask_network=ask_network)
            batch = put_back(batch, checked, kind)
        return batch

    async def look_up(self, entry: PreparedClaim) -> PreparedClaim | Deferred:
        """Ask the network what a claim waits for, prepared without."""
        (looked_up,) = await self._claims.check([entry], ask_network=True)
        return looked_up

    async def ask_model(self, batch: Sequence[GateEntry]) -> list[GateEntry]:
        """Return a prepared batch with what the model says of its responses; it may be cancelled and repeated."""
        asked = await self._responses.ask_model(of_kind(batch, PreparedResponse), self._state)
        return put_back(batch, asked, PreparedResponse)

    async def apply_step(self, batch: Sequence[GateEntry], *, deferred: bool = False) -> list[Result]:
        """Decide a prepared batch, entries of one kind in one step of state; may be repeated, with the same outcome.

        Raises:
            StateUnavailable, StateLost: nothing is known of the batch.
        """
        decided: list[Result] = []
        due: list[Prepared] = of_kind(batch, PreparedClaim, PreparedResponse)
        for kind, some in groupby(due, attrgetter("__class__")):
            entries = list(some)
            for portion in portions(entries, _replaced) if kind is PreparedResponse else [entries]:
                decided += await self._step(self._kinds[kind], portion, deferred=deferred)
        return put_back(batch, decided, PreparedClaim, PreparedResponse)

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:
        """Say whether a record that crashes workers becomes a dead letter; not where state holds its outcome."""
        return await give_up(decode_record(record).subject)

    def provisional(self, batch: Sequence[GateEntry]) -> list[Result]:
        """Decide a prepared batch without state: revision 0, nothing approved, the same bytes each time."""
        return [
            Provisional(entry.record, self._kinds[type(entry)].provisional(entry))
            if isinstance(entry, Prepared)
            else entry
            for entry in batch
        ]

    def _prepare(self, records: Sequence[InboundRecord]) -> list[GateEntry]:
        decoded = [self._decode(record) for record in records]
        claims = [
            (record, said) for record, said in zip(records, decoded, strict=True) if isinstance(said, Claim)
        ]
        return put_back(decoded, self._claims.prepare(claims), Claim)

    def _decode(self, record: InboundRecord) -> Claim | PreparedResponse | DeadLetter | Deferred:
        if record.retry and self._patience and record.retry.due > to_milliseconds(self._now()):
            return Deferred(record)
        try:
            content = decode_record(record)
            return content if isinstance(content, Claim) else self._responses.prepare(record, content)
        except RecordError as error:
            return DeadLetter(record, error)

    async def _step(
        self, gate: KindGate[Any, Any, Any], entries: Sequence[Prepared], *, deferred: bool
    ) -> list[Any]:
        """Decide entries of one kind."""
        looked_up = await gate.look_up(entries, self._state)
        steps = [gate.step_of(entry) async for part in _parts(looked_up) for entry in part]
        answers = await self._state.step([step.request for step in steps], self._limits, deferred=deferred)
        answered, decided = list(zip(steps, answers, strict=True)), list[Result | Exception]()
        async for part in _parts(answered):
            decided += await _decided(gate, part)
        if any(isinstance(result, Exception) for result in decided):
            await self._decide_again(gate, answered, decided)
        return decided

    async def _decide_again(
        self,
        gate: KindGate[Any, Any, Any],
        answered: Sequence[Answered],
        decided: list[Result | Exception],
    ) -> None:
        """Put to state as internal errors what broke, and what was decided by it: nothing is published yet."""
        errors: dict[Subject, Exception] = {}
        for (step, answer), result in zip(answered, decided, strict=True):
            if not isinstance(answer, Outcome):
                continue
            if isinstance(result, Exception):
                report_underived(step.entry.subject, answer, result)
                errors[step.entry.subject] = result
            elif answer.fresh and (broken := errors.keys() & _named(step.request, answer)):
                errors[step.entry.subject] = errors[broken.pop()]
        due = [n for n, (step, _) in enumerate(answered) if step.entry.subject in errors]
        failed = [answered[n][0].entry.failed(errors[answered[n][0].entry.subject]) for n in due]
        steps = [gate.step_of(entry) for entry in failed]
        answers = await self._state.step([replace(step.request, again=True) for step in steps], self._limits)
        repeated = await _decided(gate, list(zip(steps, answers, strict=True)), again=True)
        for n, result in zip(due, repeated, strict=True):
            decided[n] = result


async def _decided(
    gate: KindGate[Any, Any, Any], answered: Sequence[Answered], *, again: bool = False
) -> list[Result | Exception]:
    known = [(step, answer) for step, answer in answered if isinstance(answer, Outcome)]
    made = iter(await gate.decide(known, again=again))
    return [
        next(made) if isinstance(answer, Outcome) else _undecided(step.entry, answer)
        for step, answer in answered
    ]


def _named(request: StepRequest, outcome: Outcome) -> set[Subject]:
    """Return the subjects by which a record was decided."""
    matches = {request.subject._replace(subject_id=match.subject_id) for match in outcome.matches}
    return matches.union(parent for _, parent in request.parents)


def _undecided(entry: Prepared, answer: Conflict | GivenUp | Waiting) -> Result:
    record = entry.record
    match answer:
        case Conflict():
            kind = entry.subject.kind
            message = f"{kind}_id: this id was used for another {kind} of the same tenant and user"
            return DeadLetter(record, RecordError(ErrorCode.CLAIM_ID_CONFLICT, message, f"{kind}_id"))
        case GivenUp():
            message = "a worker died several times over this record"
            return DeadLetter(record, RecordError(ErrorCode.WORKER_CRASH, message))
        case Waiting(publish=True):
            return Deferred(record, record_key(entry.subject.tenant_id, entry.subject.user_id))
        case Waiting():
            return AlreadyDeferred(record)
        case _:
            assert_never(answer)


def _replaced(entry: Prepared) -> Subject | None:
    return entry.parent if isinstance(entry, PreparedResponse) else None


def decode_record(record: InboundRecord) -> Claim | LlmResponse:
    """Decode a record as its topic wants it; without one of the input topics, as it says itself."""
    topic = record.topic or ""
    if topic.endswith(TopicName.LLM_RESPONSES):
        return decode_response(record.value)
    if topic.endswith(TopicName.CLAIMS):
        return decode_claim(record.value)
    return decode_either(record.value)


async def _parts(items: Sequence[_T]) -> AsyncIterator[Sequence[_T]]:
    """Cut a batch into parts, between which the event loop gets a turn."""
    for start in range(0, len(items), _AT_ONCE):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + _AT_ONCE]
