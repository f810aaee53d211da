"""What a person decided, signed and sent to the gate, and what the gate made of it.

Nothing is changed here: the reviews agent alone changes entries, and checks signature and rights again (S0-131).
"""

from __future__ import annotations

import asyncio
import unicodedata
import uuid
from collections import OrderedDict
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Self

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from pydantic import ValidationError

from groundwire.attestation import Keys
from groundwire.checks.text import tidy
from groundwire.client.kafka import producer, unavailable
from groundwire.client.tail import Start
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.decisions import Kind
from groundwire.messages.headers import ATTESTATION
from groundwire.messages.reviews import Action, ReviewDecision
from groundwire.messages.topics import TopicName, record_key
from groundwire.review.model import Row
from groundwire.review.outcomes import Outcome, outcome_of
from groundwire.review.reading import Positions, Reader, reading
from groundwire.review.records import TopicRecord, read_action

_REMEMBERED: Final = 10_000
"""Actions whose outcome is kept for who asks late."""
_RETRY_SECONDS: Final = 1.0
_UNSEEN: Final = "CZ"
"""Categories of Unicode that have no form: control, format and unassigned characters, and separators."""
_BLANK_PATTERN: Final = "\u2800"

BLANK: Final = "the edited text is blank"
"""Why a text that shows nothing is not approved."""


class RejectReason(StrEnum):
    """Why a person rejects or retracts; the list is closed."""

    INCORRECT = "incorrect"
    OUTDATED = "outdated"
    NOT_VERIFIABLE = "not_verifiable"
    DUPLICATE = "duplicate"
    SENSITIVE = "sensitive"
    OFF_TOPIC = "off_topic"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Target:
    """What is decided, at the revision that the person saw."""

    tenant_id: str
    user_id: str
    kind: Kind
    subject_id: str
    revision: int

    @classmethod
    def of(cls, row: Row) -> Self:
        """Return the target that a row shows."""
        return cls(row.tenant_id, row.user_id, row.kind, row.subject_id, row.revision)


def is_blank(text: str) -> bool:
    """Say whether a text shows nothing: white space and characters without a form are all of it."""
    return not any(
        unicodedata.category(char)[0] not in _UNSEEN and char != _BLANK_PATTERN for char in tidy(text)
    )


def review_decision(
    target: Target,
    action: Action,
    reviewer: str,
    *,
    reason: str | None = None,
    note: str | None = None,
    content: str | None = None,
    action_id: str | None = None,
) -> ReviewDecision:
    """Build the record of what a person decided.

    Args:
        target: what is decided.
        action: approve, reject, edit or retract.
        reviewer: the authenticated name.
        reason: one of `RejectReason`; required to reject.
        note: free text, up to 2,000 characters.
        content: the edited text, with the action edit only.
        action_id: a random one where none is given; the first outcome of an id stands.

    Raises:
        UsageError: naming the field that is wrong.
    """
    if action == "expire":
        raise UsageError("action: expire is the gate's own")
    if reason is None and action == "reject":
        raise UsageError(f"reason: needed to reject; one of {', '.join(RejectReason)}")
    if reason is not None and reason not in list(RejectReason):
        raise UsageError(f"reason: must be one of {', '.join(RejectReason)}")
    if content is not None and is_blank(content):
        raise UsageError(f"content: {BLANK}")
    given = {"reason": reason, "note": note or None, "content": content}
    try:
        return ReviewDecision(
            action_id=action_id or str(uuid.uuid4()),
            tenant_id=target.tenant_id,
            user_id=target.user_id,
            kind=target.kind.value,
            subject_id=target.subject_id,
            expected_revision=target.revision,
            action=action,
            reviewer=reviewer,
            at=datetime.now(UTC),
            **{name: value for name, value in given.items() if value is not None},
        )
    except ValidationError as exc:
        first = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"{field}: {message}" if field else message) from None


class Signer:
    """Signs ReviewDecisions with one key of the keys file.

    Raises:
        UsageError: there is no such key, or it lacks the role reviewer.
    """

    def __init__(self, keys: Keys, key_id: str) -> None:
        keys.sign(key_id, b"")  # an unknown key is told before anything is sent
        if "reviewer" not in dict(keys)[key_id].roles:
            raise UsageError(
                f"the key {key_id!r} has not the role reviewer; `groundwire keys new --role reviewer`"
            )
        self._keys = keys
        self._key_id = key_id

    def covers(self, tenant_id: str) -> bool:
        """Say whether the key may sign for a tenant now: a keys file may have changed."""
        key = dict(self._keys).get(self._key_id)
        return key is not None and "reviewer" in key.roles and tenant_id in key.tenants

    def headers(self, value: bytes) -> list[tuple[str, bytes]]:
        """Return the headers of a record with this value."""
        return [("content-type", b"application/json"), (ATTESTATION, self._keys.sign(self._key_id, value))]


Pending = asyncio.Future[Outcome]


class Actions:
    """Sends what people decide, and tells what became of it; an asynchronous context manager.

    The audit is followed from before the first action is sent, so that no outcome is missed.

    Args:
        brokers: `host:port,...`.
        prefix: before every topic's name.
        signer: the process's key.
        seconds: how long the broker may take to answer.
    """

    def __init__(self, brokers: str, prefix: str, signer: Signer, seconds: float = 10.0) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._signer = signer
        self._seconds = seconds
        self._stack = AsyncExitStack()
        self._outcomes: OrderedDict[tuple[str, str], Pending] = OrderedDict()
        self._client: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        """Start. Raises: UsageError (a topic is missing), BrokerUnavailable."""
        async with AsyncExitStack() as stack:
            reader = AsyncExitStack()
            stack.push_async_exit(reader)
            opened = await reader.enter_async_context(self._audit())
            self._client = await stack.enter_async_context(producer(self._brokers, self._seconds))
            task = asyncio.create_task(self._follow(opened, reader))
            stack.push_async_callback(_cancelled, task)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop; whoever still waits for an outcome gets none."""
        await self._stack.aclose()
        self._client = None

    async def send(self, decision: ReviewDecision) -> None:
        """Sign a record and send it under its user's key; returns once all replicas that count have it.

        Raises:
            UsageError: the key may not sign for the tenant, or the topic does not exist.
            BrokerUnavailable: the broker does not acknowledge; the record may have been taken all the same, so
                send it again under the same action id.
        """
        if self._client is None:
            raise RuntimeError("Actions are used inside `async with`")
        if not self._signer.covers(decision.tenant_id):
            raise UsageError(f"the key may not sign for the tenant {decision.tenant_id!r}")
        self._expect(decision)
        value = decision.model_dump_json(exclude_none=True).encode()
        topic = f"{self._prefix}{TopicName.REVIEW_DECISIONS}"
        key = record_key(decision.tenant_id, decision.user_id)
        try:
            async with asyncio.timeout(self._seconds):
                await self._client.send_and_wait(topic, value, key=key, headers=self._signer.headers(value))
        except UnknownTopicOrPartitionError as exc:
            raise UsageError(f"there is no topic {topic}: `python -m topics declare` creates it") from exc
        except (KafkaError, OSError, TimeoutError) as exc:
            raise unavailable(self._brokers, self._seconds, "acknowledge the action") from exc

    async def outcome(self, decision: ReviewDecision, timeout: float) -> Outcome | None:  # noqa: ASYNC109 - as asked for: it returns None
        """Wait for what becomes of an action that was sent; None where nothing is heard in time (seconds)."""
        waiting = self._expect(decision)
        done, _ = await asyncio.wait([waiting], timeout=timeout)
        return waiting.result() if done and not waiting.cancelled() else None

    def _expect(self, decision: ReviewDecision) -> Pending:
        key = (decision.tenant_id, decision.action_id)
        if key not in self._outcomes:
            self._outcomes[key] = asyncio.get_running_loop().create_future()
            while len(self._outcomes) > _REMEMBERED:
                self._outcomes.popitem(last=False)[1].cancel()
        return self._outcomes[key]

    def _hear(self, record: TopicRecord) -> None:
        event = read_action(record)
        if event is None:
            return
        waiting = self._outcomes.get((event.tenant_id, event.detail["action_id"]))
        if waiting is not None and not waiting.done():
            waiting.set_result(outcome_of(event))

    def _audit(self, positions: Positions | None = None) -> AbstractAsyncContextManager[Reader]:
        starts: dict[TopicName, Start] = {TopicName.AUDIT: "latest"}
        return reading(self._brokers, self._prefix, starts, self._seconds, positions)

    async def _follow(self, reader: Reader, stack: AsyncExitStack) -> None:
        """Read the audit; where it breaks off, go on from there."""
        while True:
            try:
                for record in await reader.batch():
                    self._hear(record)
            except BrokerUnavailable:
                reader = await self._reopen(reader.positions, stack)

    async def _reopen(self, positions: Positions, stack: AsyncExitStack) -> Reader:
        while True:
            await stack.aclose()
            try:
                return await stack.enter_async_context(self._audit(positions))
            except (BrokerUnavailable, UsageError):
                await asyncio.sleep(_RETRY_SECONDS)


async def _cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])
