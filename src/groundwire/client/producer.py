"""Sends claims and answers, and waits for what the gate makes of them."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, Unpack

from groundwire.client.fields import ClaimFields, ResponseFields
from groundwire.client.following import SECONDS, Outcome, Outcomes, current, settings_of
from groundwire.config import Settings
from groundwire.errors import ErrorCode, RecordError, UsageError
from groundwire.kafka.connection import producer
from groundwire.kafka.produce import HeaderList, naming_refusal
from groundwire.keys.attestation import Keys, Role
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.headers import ATTESTATION
from groundwire.messages.identity import Subject, fingerprint
from groundwire.messages.records import Claim, LlmResponse
from groundwire.messages.topics import TopicName, record_key

Record = TypeVar("Record", Claim, LlmResponse)


class Sent(NamedTuple):
    """A record that the broker has acknowledged."""

    subject: Subject
    outcome: Outcome


class Producer:
    """Sends records as the wire contract asks: keyed by user, idempotent, acknowledged by all copies.

        async with Producer() as gate:
            sent = await gate.claim("Search runs on PostgreSQL, see ADR-003.", user_id="maria")
            decision = await gate.decided(sent)

    Decisions are followed from the moment of entering on, all that the deployment publishes: share one producer among
    the agents of a process.

    Args:
        brokers: `host:port,...`; GROUNDWIRE_BROKERS where None.
        topic_prefix: before every topic's name; GROUNDWIRE_TOPIC_PREFIX where None.
        attest: id of the key with which records are signed; None: they are not.
        keys_file: has that key; GROUNDWIRE_KEYS_FILE where None.
        attest_responses: sign answers too; no where the chunks are not what a retriever found.
        seconds: how long the broker may take to answer.

    Raises:
        UsageError: a setting is wrong, or there is no such key.
    """

    def __init__(
        self,
        *,
        brokers: str | None = None,
        topic_prefix: str | None = None,
        attest: str | None = None,
        keys_file: Path | None = None,
        attest_responses: bool = True,
        seconds: float = SECONDS,
    ) -> None:
        self._settings = settings_of(brokers, topic_prefix, keys_file)
        self._prefix = self._settings.topic_prefix
        self._attest = attest
        self._keys = None if attest is None else _keys(self._settings, attest)
        self._signed = {Claim, LlmResponse} if attest_responses else {Claim}
        self._seconds = seconds
        self._outcomes = Outcomes(self._settings.brokers, self._prefix, seconds)
        self._open = AsyncExitStack()
        self._client: Any = None

    @property
    def roles(self) -> list[Role]:
        """What the key with which records are signed may do beside vouching for claims."""
        return [role for key_id, key in self._keys or () if key_id == self._attest for role in key.roles]

    async def __aenter__(self) -> Self:
        """Connect. Raises: UsageError for a missing topic, BrokerUnavailable."""
        async with AsyncExitStack() as opening:
            await opening.enter_async_context(self._outcomes.following())
            self._client = await opening.enter_async_context(producer(self._settings.brokers, self._seconds))
            self._open = opening.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        await self._open.aclose()

    async def claim(self, content: str, **fields: Unpack[ClaimFields]) -> Sent:
        """Send a claim; the same one sent again is the same subject and gets the same decision.

        Raises:
            RecordError: the gate could not read it; nothing was sent.
            BrokerUnavailable: the broker did not take it; it may be sent again.
        """
        return await self._send(TopicName.CLAIMS, Claim, "claim_id", {"content": content, **fields})

    async def response(self, answer: str | None, **fields: Unpack[ResponseFields]) -> Sent:
        """Send an answer of a language model with what it was grounded on. Raises: as `claim`."""
        return await self._send(
            TopicName.LLM_RESPONSES, LlmResponse, "response_id", {"answer": answer, **fields}
        )

    async def decided(self, sent: Sent, seconds: float = 60.0) -> Decision:
        """Wait for the decision of what this producer sent.

        Args:
            sent: what `claim` or `response` returned.
            seconds: how long; a citation that must be asked on the network takes longer than others.

        Returns:
            The first decision that is published after the sending; never a provisional one. A person may take it on
            from `review` later: `status` says so.

        Raises:
            RecordError: the record ended as a dead letter: with the code `claim_id_conflict` where the id was used for
                something else, whose decision this one never gets.
            TimeoutError: there was none in time; the record stands, and will be decided.
            UsageError: decisions can no longer be followed, such as where a topic was deleted. Other errors with which
                following ended are raised here too.
        """
        async with asyncio.timeout(seconds):
            outcome = await asyncio.shield(sent.outcome)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def status(self, subject: Subject, seconds: float = 60.0) -> Decision | None:
        """Return where a subject stands now, whoever sent it; None where nothing is known of it, or it was erased.

        An approval that was withdrawn is blocked, for the reason `retracted`. Reads the user's partition of the topics
        of decisions and of `retractions` from its beginning: some tens of thousands of records a second.

        Raises:
            TimeoutError: the partition is not read in `seconds`.
            BrokerUnavailable: the broker does not answer in time.
        """
        async with asyncio.timeout(seconds):
            return await current(self._settings.brokers, self._prefix, subject, self._seconds)

    async def _send(
        self, topic: TopicName, model: type[Record], id_field: str, fields: dict[str, Any]
    ) -> Sent:
        for field, given in fields.items():
            _require_json(field, given)
        record = validate(model, {id_field: "-", **fields})
        if id_field not in fields:  # named after all that it says
            record = record.model_copy(update={id_field: _fingerprint(record)[:32]})
        value = record.model_dump_json(exclude_unset=True).encode()
        record = validate(model, parse_json(value))  # what the gate will see
        outcome = self._outcomes.of(record.subject, _fingerprint(record), value)
        name = f"{self._prefix}{topic}"
        with naming_refusal(record.subject.subject_id, name):
            async with asyncio.timeout(self._seconds + 1):  # the client's own limit comes first
                key = record_key(record.tenant_id, record.user_id)
                await self._client.send_and_wait(name, value, key=key, headers=self._headers(model, value))
        return Sent(record.subject, outcome)

    def _headers(self, model: type[Claim | LlmResponse], value: bytes) -> HeaderList:
        if self._keys is None or self._attest is None or model not in self._signed:
            return []
        return [(ATTESTATION, self._keys.sign(self._attest, value))]


def _require_json(name: str, given: object) -> None:
    """Raise RecordError for values that JSON cannot hold, such as NaN and sets, instead of sending something else."""

    def time(value: object) -> str:
        if isinstance(value, datetime):
            return value.isoformat()
        raise TypeError

    try:
        json.dumps(given, default=time, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        message = f"{name}: holds a value that JSON cannot hold ({type(exc).__name__})"
        raise RecordError(ErrorCode.INVALID_RECORD, message, name) from None


def _fingerprint(record: Claim | LlmResponse) -> str:
    try:
        return fingerprint(record)
    except ValueError as exc:
        raise RecordError(ErrorCode.INVALID_RECORD, f"cannot be put into canonical form: {exc}") from None


def _keys(settings: Settings, key_id: str) -> Keys:
    if settings.keys_file is None:
        raise UsageError("attest needs a keys file: set GROUNDWIRE_KEYS_FILE")
    keys = Keys.load(settings.keys_file)
    keys.sign(key_id, b"")  # an unknown key is an error before anything is sent
    return keys
