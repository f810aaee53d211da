"""Where the decisions of a replay go: a file, a topic of its own, or nowhere; never a live topic."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from groundwire.client.kafka import unavailable
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import decision_headers
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName, record_key
from groundwire.security import kafka_security
from groundwire.settings import Settings

REPLAY: Final = "replay."
"""Begins the name of every topic that a replay may write to, behind the deployment's prefix."""

_PATIENCE: Final = 30.0
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def replay_topic(given: str, prefix: str) -> str:
    """Return the whole name of an output topic.

    Args:
        given: `replay.<name>`, with or without the prefix.
        prefix: of the deployment's topics.

    Raises:
        UsageError: it might be a live topic.
    """
    name = given.removeprefix(prefix) if given.startswith(prefix + REPLAY) else given
    own = name.removeprefix(REPLAY)
    if not name.startswith(REPLAY) or not _NAME.fullmatch(own):
        raise UsageError(f"--output-topic: {given!r} is not {REPLAY}<name>: a replay writes to no live topic")
    if own.endswith(tuple(TopicName)):  # a prefix need not end with a dot
        raise UsageError(f"--output-topic: {given!r} may be a live topic of a deployment with another prefix")
    return prefix + name


def replay_name(given: str) -> str:
    """Return a replay's name. Raises: UsageError for one that cannot be part of a topic's name."""
    if not _NAME.fullmatch(given):
        raise UsageError(f"--name: {given!r} is not of letters, digits, dots, dashes and underscores")
    return given


async def create_topic(settings: Settings, topic: str) -> None:
    """Create an output topic, unless it is there.

    A broker that creates no topics on request may do so on first use, or refuses what is then sent.

    Raises:
        BrokerUnavailable: no broker answers.
    """
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap, client_id="groundwire-replay", **kafka_security().options()
    )
    try:
        async with asyncio.timeout(_PATIENCE):
            await admin.start()
            if topic not in await admin.list_topics():
                await admin.create_topics([NewTopic(topic, settings.partitions, settings.replication)])
    except IncompatibleBrokerVersion:
        return
    except (KafkaError, TimeoutError) as exc:
        raise unavailable(settings.brokers, _PATIENCE, f"create {topic}") from exc
    finally:
        await admin.close()


class Nowhere:
    """Writes nothing."""

    async def resume(self, written: int) -> None:
        """Begin."""

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:
        """Leave a decision out."""

    async def flush(self) -> int:
        """Nothing is written."""
        return 0


class FileWriter:
    """Writes one decision a line.

    Args:
        path: the file; what stands in it is replaced.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("r+b" if path.exists() else "w+b")
        except OSError as exc:
            raise UsageError(f"--output: {path}: {exc.strerror}") from None

    async def resume(self, written: int) -> None:
        """Go on behind the first `written` bytes. Raises: UsageError where the file has fewer."""
        if self._file.seek(0, 2) < written:
            raise UsageError(
                "--output: the file is shorter than it was left; remove the job file to begin anew"
            )
        self._file.truncate(written)
        self._file.seek(written)

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:  # noqa: ARG002 - as Writer
        """Write a line."""
        self._file.write(value + b"\n")

    async def flush(self) -> int:
        """Bring everything to the disk; return its bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


class TopicWriter:
    """Publishes decisions as the gate does, on a topic of the replay's own.

    What was published after the last point from which an interrupted replay goes on comes again, with the same
    bytes under the same `ce_id`.

    Args:
        producer: acknowledged by all replicas.
        topic: see `replay_topic`.
    """

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._sent: list[asyncio.Future[Any]] = []
        self._written = 0

    async def resume(self, written: int) -> None:
        """Go on counting."""
        self._written = written

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:
        """Hand a decision to the producer."""
        key = record_key(decision.tenant_id, decision.user_id)
        headers = decision_headers(decision, record.headers)
        self._sent.append(await self._producer.send(self._topic, value, key=key, headers=headers))
        self._written += 1

    async def flush(self) -> int:
        """Wait until everything is acknowledged; return how many were sent. Raises: BrokerUnavailable."""
        try:
            await asyncio.gather(*self._sent)
        except KafkaError as exc:
            raise BrokerUnavailable(f"{self._topic} does not take decisions: {type(exc).__name__}") from exc
        self._sent = []
        return self._written
