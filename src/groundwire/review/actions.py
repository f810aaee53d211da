"""Signs and sends people's decisions, and follows the audit for outcomes; the reviews agent checks rights (S0-131)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, Self

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError
from cachetools import FIFOCache
from pydantic import ValidationError

from groundwire.checks.hedges import HedgeAction
from groundwire.errors import UsageError
from groundwire.gate.claim_case import read_claim
from groundwire.kafka.connection import producer, unavailable
from groundwire.kafka.reader import TopicFollower
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.headers import ATTESTATION, InboundRecord
from groundwire.messages.records import Action, ReviewDecision
from groundwire.messages.topics import TopicName, record_key
from groundwire.policy import Policy
from groundwire.review.model import Row
from groundwire.review.records import read_action
from groundwire.text.visible import is_blank

log = structlog.get_logger()

_APPLIED: Final = {
    "human_approved": "Approved: the memory is published.",
    "human_rejected": "Rejected: nothing is stored, and similar texts come to review from now on.",
    "retracted": "Retracted: the approval is withdrawn; look at the claims based on it.",
    "review_expired": "Expired: nobody reviewed it in time; send the claim again if it still matters.",
    "expired": "Blocked: its validity ended before the approval; send it again with a later horizon.",
    "duplicate": "Blocked: an approved memory already says this.",
    "superseded": "Done, and changed again since; look at its current state.",
}
_REFUSED: Final = {
    "stale": "The item has changed; look at its current revision and decide again.",
    "unknown": "There is no such item, or it was deleted; look at the queue again.",
    "not_pending": "It is not pending; look at its state.",
    "not_approved": "Only an approved item can be retracted; look at its state.",
    "waiting": "The gate is still checking it; try again when it is in the queue.",
    "action_id_reused": "This action id was used for another action; use a new one.",
    "unattested": (
        "The signature was not accepted: the reviews worker needs the keys file (GROUNDWIRE_KEYS_FILE) with this key, "
        "and the key the role reviewer for this tenant, and to be valid."
    ),
    "unauthorized": "Only its owner or a reviewer delegated for the tenant may decide it.",
    "invalid_reason": "The reason must be a code of 1 to 64 letters, digits, dots or dashes; put words into the note.",
    "reserved": "This action or name is reserved for the gate; act under your own name.",
    "personal_speculation": "The edited text speculates and cannot be approved; word it as a fact, or reject it.",
    "not_published": "Its decision is not published yet; try again in a moment.",
    "not_editable": "A response cannot be edited; approve or reject it.",
    "unreadable": "The edited text could not be read; shorten or reword it.",
}

SENTENCES: Final = {**_APPLIED, **_REFUSED}


def speculation_in(content: str, policy: Policy) -> str:
    """Quote the words for which a policy blocks a text; empty where it does not (C-02)."""
    reading = read_claim(content, policy)
    if reading.action is not HedgeAction.BLOCK:
        return ""
    words = dict.fromkeys(hedge.text for hedge in reading.hedges if hedge.action is HedgeAction.BLOCK)
    return f"It says {', '.join(f'“{word}”' for word in words)}."


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The outcome of an action: `code` is the new decision's reason, or why it was refused.

    `revision`: the new one, or of a refused action the current one where known.
    """

    action_id: str
    applied: bool
    code: str
    revision: int | None
    verdict: str | None
    decision_id: str | None

    @property
    def sentence(self) -> str:
        if self.code in SENTENCES:
            return SENTENCES[self.code]
        if self.applied:
            return f"Done, with the code {self.code}; look at its state."
        return (
            f"Refused with the code {self.code}, nothing was changed; look at the item before you try again."
        )


def outcome_of(event: AuditEvent) -> ActionOutcome:
    detail = event.detail
    revision, verdict = detail.get("revision"), detail.get("verdict")
    return ActionOutcome(
        action_id=str(detail.get("action_id")),
        applied=event.type == "review_action",
        code=str(detail.get("outcome") or "unknown_code"),
        revision=revision if type(revision) is int else None,
        verdict=verdict if isinstance(verdict, str) else None,
        decision_id=event.decision_id,
    )


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
class ActionTarget:
    tenant_id: str
    user_id: str
    kind: Kind
    subject_id: str
    revision: int

    @classmethod
    def of(cls, row: Row) -> Self:
        return cls(row.tenant_id, row.user_id, row.kind, row.subject_id, row.revision)


def review_decision(
    target: ActionTarget,
    action: Action,
    reviewer: str,
    *,
    reason: str | None = None,
    note: str | None = None,
    content: str | None = None,
    action_id: str | None = None,
) -> ReviewDecision:
    """Build the record of a person's decision; the first outcome of an `action_id` counts.

    Raises: UsageError, naming the wrong field.
    """
    if action == "expire":
        raise UsageError("action: expire is the gate's own")
    if reason is None and action == "reject":
        raise UsageError(f"reason: needed to reject; one of {', '.join(RejectReason)}")
    if reason is not None and reason not in set(RejectReason):
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
    """Signs ReviewDecisions with a key of role reviewer. Raises: UsageError."""

    def __init__(self, keys: Keys, key_id: str) -> None:
        keys.sign(key_id, b"")  # raises for an unknown key
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
        return [("content-type", b"application/json"), (ATTESTATION, self._keys.sign(self._key_id, value))]


class Actions:
    """Sends people's decisions and reports the outcomes; an asynchronous context manager.

    The audit is followed from before the first action is sent, so that no outcome is missed.
    """

    def __init__(self, brokers: str, prefix: str, signer: Signer, seconds: float = 10.0) -> None:
        self._brokers = brokers
        self._prefix = prefix
        self._signer = signer
        self._seconds = seconds
        self._stack = AsyncExitStack()
        self._outcomes: FIFOCache[tuple[str, str], asyncio.Future[ActionOutcome]] = FIFOCache(10_000)
        self._client: AIOKafkaProducer | None = None

    async def __aenter__(self) -> Self:
        """Start. Raises: UsageError, BrokerUnavailable."""

        def failed(failure: Exception) -> None:
            if not audit.begun:
                raise failure
            log.warning("review_audit.unreadable", error=str(failure))

        audit = TopicFollower(
            self._brokers, {self._prefix + TopicName.AUDIT: "latest"}, self._seconds, failed
        )
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(audit.following(self._note))
            self._client = await stack.enter_async_context(producer(self._brokers, self._seconds))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._client = None

    async def send(self, decision: ReviewDecision) -> None:
        """Sign a record and send it under its user's key; returns once it is acknowledged.

        Raises: UsageError, BrokerUnavailable (the record may be on its topic: send it again under the same id).
        """
        if self._client is None:
            raise RuntimeError("Actions are used inside `async with`")
        if not self._signer.covers(decision.tenant_id):
            raise UsageError(f"the key may not sign for the tenant {decision.tenant_id!r}")
        self._future(decision)
        value = decision.model_dump_json(exclude_none=True).encode()
        topic = f"{self._prefix}{TopicName.REVIEW_DECISIONS}"
        key = record_key(decision.tenant_id, decision.user_id)
        try:
            async with asyncio.timeout(self._seconds):
                await self._client.send_and_wait(topic, value, key=key, headers=self._signer.headers(value))
        except UnknownTopicOrPartitionError as exc:
            raise UsageError(f"there is no topic {topic}: `groundwire topics declare` creates it") from exc
        except (KafkaError, OSError, TimeoutError) as exc:
            raise unavailable(self._brokers, self._seconds, "acknowledge the action") from exc

    async def outcome(self, decision: ReviewDecision, timeout: float) -> ActionOutcome | None:  # noqa: ASYNC109 - as asked for: it returns None
        """Wait for the outcome of an action that was sent; None after `timeout` seconds."""
        waiting = self._future(decision)
        done, _ = await asyncio.wait([waiting], timeout=timeout)
        return waiting.result() if done else None

    def _future(self, decision: ReviewDecision) -> asyncio.Future[ActionOutcome]:
        key = (decision.tenant_id, decision.action_id)
        if key not in self._outcomes:
            self._outcomes[key] = asyncio.get_running_loop().create_future()
        return self._outcomes[key]

    def _note(self, records: Sequence[InboundRecord]) -> None:
        for record in records:
            if event := read_action(record):
                waiting = self._outcomes.get((event.tenant_id, event.detail["action_id"]))
                if waiting is not None and not waiting.done():
                    waiting.set_result(outcome_of(event))
