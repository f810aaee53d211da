"""The gate: prepare a batch, settle it in one step of state, derive the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Final, assert_never

from groundwire.attestation import Keys
from groundwire.decide.build import response_subject
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.aside import LARGE
from groundwire.gate.claims import ClaimDesk, Policies
from groundwire.gate.models import Assessor
from groundwire.gate.prepared import Prepared, PreparedClaim, PreparedResponse
from groundwire.gate.resolvers import Resolver
from groundwire.gate.responses import ResponseDesk
from groundwire.gate.results import DeadLetter, Deferred, Provisional, Result, Standby
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Kind
from groundwire.messages.decode import decode_claim, decode_either, decode_response
from groundwire.messages.identity import Subject
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.responses import LlmResponse
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.state.model import Answer, Ask, Conflict, GivenUp, Limits, Outcome, State, Waiting
from groundwire.verify.citations import CitationVerifier

_BREATH: Final = 50  # records that are read, or decided, before the event loop gets a turn

Entry = Prepared | DeadLetter


class Gate:
    """Decides claims and responses; the same code behind workers and `groundwire check`.

    Args:
        policy: what decides.
        policies: earlier policies, for records that are sent again after a change.
        state: identity, duplicates, parents, the queue.
        verifier: checks citations.
        keys: sign records; empty where attestation is not used.
        now: the wall clock, for `decided_at`; everything else goes by the record's timestamp.
        resolver: knows entities and relations that responses do not carry themselves; None: nobody does.
        fan_out: whether claims of responses are sent on; else their decisions say that they are not.
        assessor: the language model that is asked about claims of responses; None: rules alone verify them.

    Raises:
        UsageError: for a policy that this process cannot follow.
    """

    def __init__(  # noqa: PLR0913 - everything that decides
        self,
        policy: Policy,
        policies: Policies,
        state: State,
        verifier: CitationVerifier,
        *,
        keys: Keys,
        now: Callable[[], datetime],
        resolver: Resolver | None = None,
        fan_out: bool = True,
        assessor: Assessor | None = None,
    ) -> None:
        self._state = state
        self._claims = ClaimDesk(policy, policies, verifier, keys=keys, now=now)
        self._responses = ResponseDesk(
            policy, policies, resolver, now=now, fan_out=fan_out, assessor=assessor
        )
        limits = policy.limits
        self._limits = Limits(limits.review_per_user, limits.review_per_tenant, limits.review_total)

    async def prepare(self, records: Sequence[InboundRecord], *, ask_network: bool = False) -> list[Entry]:
        """Decode and read a batch and look up what it rests on; state is not asked yet.

        Args:
            records: in the order of their offsets.
            ask_network: ask for citations that are not cached, instead of leaving their claims to wait.

        Returns:
            One entry for each record, in order.
        """
        batch: list[Entry] = []
        for number, record in enumerate(records, 1):
            if len(record.value or b"") < LARGE:
                batch.append(self._read(record))
            else:
                batch.append(await asyncio.to_thread(self._read, record))
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        await self._claims.look_up(
            [entry for entry in batch if isinstance(entry, PreparedClaim)], ask_network=ask_network
        )
        await self._responses.look_up([entry for entry in batch if isinstance(entry, PreparedResponse)])
        return batch

    async def inquire(self, batch: Sequence[Entry]) -> None:
        """Ask the model about a prepared batch; it takes its time, and may be called off and repeated.

        `settle` does so too, where that was not done.

        Raises:
            StateUnavailable, StateLost: what is recorded is not known, and nobody was asked.
        """
        responses = [entry for entry in batch if isinstance(entry, PreparedResponse)]
        await self._responses.ask_model(responses, self._state)

    async def settle(self, batch: Sequence[Entry], *, deferred: bool = False) -> list[Result]:
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
        await self.inquire(batch)
        answers: list[Answer] = []
        for portion in _portions([entry for entry in batch if not isinstance(entry, DeadLetter)]):
            responses = [entry for entry in portion if isinstance(entry, PreparedResponse)]
            await self._responses.resolve(responses)
            await self._responses.look_back(responses, self._state)
            asks = []
            for number, prepared in enumerate(portion, 1):
                asks.append(self._ask(prepared))
                if number % _BREATH == 0:
                    await asyncio.sleep(0)
            answers += await self._state.step(asks, self._limits, deferred=deferred)
        each = iter(answers)
        results: list[Result] = []
        for number, entry in enumerate(batch, 1):
            results.append(entry if isinstance(entry, DeadLetter) else await self._result(entry, next(each)))
            if number % _BREATH == 0:
                await asyncio.sleep(0)
        return results

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:
        """Say whether a record that brings workers down becomes a dead letter; not where state holds its outcome.

        Raises:
            RecordError: not even its identity can be read.
        """
        return await give_up(subject_of(record))

    def provisional(self, batch: Sequence[Entry]) -> list[Result]:
        """Decide a prepared batch without state: revision 0, nothing approved, the same bytes each time."""
        return [
            entry
            if isinstance(entry, DeadLetter)
            else Provisional(
                entry.record,
                self._claims.without_state(entry)
                if isinstance(entry, PreparedClaim)
                else self._responses.without_state(entry),
            )
            for entry in batch
        ]

    def _read(self, record: InboundRecord) -> Entry:
        try:
            content = decode_record(record)
            if isinstance(content, Claim):
                return self._claims.read(record, content)
            return self._responses.read(record, content)
        except RecordError as error:
            return DeadLetter(record, error)

    def _ask(self, entry: Prepared) -> Ask:
        return self._claims.ask(entry) if isinstance(entry, PreparedClaim) else self._responses.ask(entry)

    async def _result(self, entry: Prepared, answer: Answer) -> Result:
        match answer:
            case Conflict():
                return DeadLetter(entry.record, _conflict(entry))
            case GivenUp():
                message = "a worker died several times over this record"
                return DeadLetter(entry.record, RecordError(ErrorCode.WORKER_CRASH, message))
            case Waiting(publish=True):
                return Deferred(entry.record)
            case Waiting():
                return Standby(entry.record)
            case Outcome():
                if isinstance(entry, PreparedClaim):
                    return await self._claims.decided(entry, answer)
                return await self._responses.decided(entry, answer)
            case _:
                assert_never(answer)


def decode_record(record: InboundRecord) -> Claim | LlmResponse:
    """Decode a record as its topic wants it; without one of the input topics, as it says itself.

    Raises:
        RecordError: as `decode_claim`.
    """
    topic = record.topic or ""
    if topic.endswith(TopicName.LLM_RESPONSES):
        return decode_response(record.value)
    if topic.endswith(TopicName.CLAIMS):
        return decode_claim(record.value)
    return decode_either(record.value)


def subject_of(record: InboundRecord) -> Subject:
    """Return the identity of what a record would have decided. Raises: RecordError, as `decode_record`."""
    content = decode_record(record)
    if isinstance(content, LlmResponse):
        return response_subject(content)
    return Subject(content.tenant_id, content.user_id, Kind.CLAIM, content.claim_id)


def _portions(entries: Sequence[Prepared]) -> Iterator[Sequence[Prepared]]:
    """Cut a batch before each response that replaces one of the same portion: that one is recorded first."""
    portion: list[Prepared] = []
    subjects: set[Subject] = set()
    for entry in entries:
        if isinstance(entry, PreparedResponse) and entry.parent in subjects:
            yield portion
            portion, subjects = [], set()
        portion.append(entry)
        subjects.add(entry.subject)
    if portion:
        yield portion


def _conflict(entry: Prepared) -> RecordError:
    name = "claim_id" if isinstance(entry, PreparedClaim) else "response_id"
    kind = "claim" if isinstance(entry, PreparedClaim) else "response"
    message = f"{name}: this id was used for another {kind} of the same tenant and user"
    return RecordError(ErrorCode.CLAIM_ID_CONFLICT, message, name)
