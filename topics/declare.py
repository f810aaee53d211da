"""Creates the topics of the catalogue, and compares a cluster with it; workers never create topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, TopicAlreadyExistsError, for_code

from groundwire.config import Settings
from groundwire.errors import BrokerUnavailable, StateUnavailable, UsageError
from groundwire.kafka import name_client
from groundwire.kafka.connection import unavailable
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.kafka.sign_in import client_options
from groundwire.messages.topics import TopicName
from groundwire.state.redis import LAYOUT, RedisState
from groundwire.state.server import connect
from topics.catalog import CATALOG, MAX_MESSAGE_BYTES

log = structlog.get_logger()

_STATE = "state (GROUNDWIRE_REDIS_URL)"
_TIME = "message.timestamp.type"
_RETENTION = ("retention.ms", "retention.bytes")
_LARGEST = "max.message.bytes"
_AGES = ("retention.ms", "message.timestamp.before.max.ms", "message.timestamp.difference.max.ms")
_TRANSIT = 100_000  # milliseconds until a record is on its topic, and between two clocks
_BATCH = 1_000  # bytes of a record batch besides key, value and headers
_WAIT = 30.0  # seconds until a created topic must be known to the cluster


@dataclass(frozen=True, slots=True)
class TopicFinding:
    """A problem of a topic.

    Attributes:
        fatal: workers cannot run, a record may choose its own time, or records expire before the documented retention.
    """

    topic: str
    problem: str
    fatal: bool = True


async def declare(settings: Settings) -> list[str]:
    """Create missing topics; existing ones stay as they are. Returns the names created, without the prefix.

    Raises: BrokerUnavailable; UsageError: the cluster refused to create a topic.
    """
    admin = await _connect(settings)
    try:
        present = set(await admin.list_topics())
        missing = [spec for spec in CATALOG if settings.topic_prefix + spec.name not in present]
        new = [
            NewTopic(
                settings.topic_prefix + spec.name,
                settings.partitions,
                settings.replication,
                topic_configs=spec.config,
            )
            for spec in missing
        ]
        try:
            response = await admin.create_topics(new) if new else None
        except IncompatibleBrokerVersion:
            raise UsageError(
                "this broker cannot create topics on request; create them with its own tools, then `topics check`"
            ) from None
        errors: Any = response.topic_errors if response else ()  # type: ignore[attr-defined] # built by name
        there = set()  # created concurrently
        for topic, code, *detail in errors:
            if code and issubclass(for_code(code), TopicAlreadyExistsError):
                there.add(topic)
            elif code:
                reason = detail[0] if detail and detail[0] else for_code(code).__name__
                raise UsageError(f"topic {topic}: {reason}")
        names = {topic.name for topic in new}
        async with asyncio.timeout(_WAIT):
            while not names <= set(await admin.list_topics()):  # noqa: ASYNC110 - the cluster sends no event
                await asyncio.sleep(0.1)
    finally:
        await admin.close()
    return [str(spec.name) for spec in missing if settings.topic_prefix + spec.name not in there]


async def check(settings: Settings) -> list[TopicFinding]:
    """Compare the topics with the catalogue, and partitions with state. Raises: BrokerUnavailable, UsageError."""
    admin = await _connect(settings)
    try:
        wanted = {settings.topic_prefix + spec.name: spec.config for spec in CATALOG}
        described = {topic["topic"]: topic for topic in await admin.describe_topics(list(wanted))}
        there = [name for name in wanted if name in described and not described[name]["error_code"]]
        missing = [name for name in wanted if name not in there]
        findings = [TopicFinding(name, "does not exist; run `groundwire topics declare`") for name in missing]
        counts = {name: len(described[name]["partitions"]) for name in there}
        findings += await compare_partitions(settings, counts)
        configs = await _configs(admin, there)
    finally:
        await admin.close()
    inputs = {settings.topic_prefix + topic for topic in INPUT_TOPICS}
    for name, actual in configs.items():
        for key in ("cleanup.policy", *_RETENTION, _TIME, _LARGEST):
            value, want = actual.get(key), wanted[name][key]
            if value is None or value == want:
                continue
            fatal = key == "cleanup.policy" or (key == _TIME and want == "LogAppendTime")
            if key in _RETENTION:  # -1 keeps everything
                fatal = int(value) >= 0 and (int(want) < 0 or int(value) < int(want))
            if key == _LARGEST:
                if int(value) > int(want):
                    continue
                fatal = name not in inputs and int(value) < MAX_MESSAGE_BYTES
            problem = f"{key} is {value}, the catalogue says {want}"
            findings.append(TopicFinding(name, problem, fatal=fatal))
    return [*findings, *_larger_than_letters(settings.topic_prefix, configs)]


def _larger_than_letters(prefix: str, configs: Mapping[str, Mapping[str, str]]) -> Iterator[TopicFinding]:
    """Name the inputs whose records may be larger than a dead letter."""
    of_letters = configs.get(prefix + TopicName.DEAD_LETTER, {}).get(_LARGEST)
    for topic in INPUT_TOPICS:
        largest = configs.get(prefix + topic, {}).get(_LARGEST)
        if of_letters and largest and int(largest) > int(of_letters):
            problem = f"{_LARGEST} is {largest}, that of {TopicName.DEAD_LETTER} {of_letters}:"
            problem += " dead letters of larger records go without the value"
            yield TopicFinding(prefix + topic, problem, fatal=False)


async def letter_limits(settings: Settings) -> tuple[int, int]:
    """Return the bytes of a dead letter that its topic takes, and the milliseconds for which it keeps an old one.

    Those of Kafka's default and of the catalogue if the broker does not tell.
    """
    topic, configs = settings.topic_prefix + TopicName.DEAD_LETTER, dict[str, dict[str, str]]()
    with suppress(BrokerUnavailable):
        admin = await _connect(settings)
        try:
            configs = await _configs(admin, [topic])
        finally:
            await admin.close()
    config = configs.get(topic, {})
    ages = [86_400_000 * (TopicName.DEAD_LETTER.retention_days or 0)]
    ages += [int(config[name]) for name in _AGES if int(config.get(name) or -1) >= 0]
    return int(config.get(_LARGEST) or MAX_MESSAGE_BYTES) - _BATCH, min(ages) - _TRANSIT


async def _configs(admin: AIOKafkaAdminClient, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the configuration of topics, as far as the broker tells it."""
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in topics]
    try:
        responses = await admin.describe_configs(asked)
    except (IncompatibleBrokerVersion, KafkaError):
        return {}  # not every broker shows its configuration
    return {
        name: {entry[0]: entry[1] for entry in entries}
        for response in responses
        for _, _, _, name, entries in response.resources  # type: ignore[attr-defined] # built by name
    }


async def compare_partitions(settings: Settings, counts: Mapping[str, int]) -> list[TopicFinding]:
    """Compare the partitions of topics of users' records with those of claims, and in a cluster with state's."""
    redis = connect(settings.redis_url)
    claims = settings.topic_prefix + TopicName.CLAIMS
    wanted = counts.get(claims, settings.partitions)
    state = RedisState(redis, settings.topic_prefix, scheme="", partitions=wanted)
    findings: list[TopicFinding] = []
    if state.is_cluster and settings.partitions != wanted:
        findings.append(
            TopicFinding(claims, f"has {wanted} partitions, GROUNDWIRE_PARTITIONS is {settings.partitions}")
        )
    for name, count in counts.items():
        if count != wanted and TopicName(name.removeprefix(settings.topic_prefix)).is_of_users:
            problem = f"has {count} partitions, {TopicName.CLAIMS} has {wanted}"
            findings.append(TopicFinding(name, problem, fatal=state.is_cluster))
    try:
        for scheme in await state.schemes() if state.is_cluster else ():
            if not scheme.endswith(state.scheme.removeprefix(f"/{LAYOUT}")):
                problem = f"has {wanted} partitions, state is of scheme {scheme}; run `groundwire rebuild`"
                findings.append(TopicFinding(claims, problem))
        if away := sorted(state.server.away()):
            problem = (
                f"its primary does not answer for partitions {', '.join(map(str, away))}; users there wait"
            )
            findings.append(TopicFinding(_STATE, problem, fatal=False))
    except StateUnavailable as exc:  # workers wait for it too
        if state.is_cluster:
            findings.append(TopicFinding(_STATE, f"does not answer: {exc}", fatal=False))
    finally:
        await state.close()
    return findings


async def _connect(settings: Settings) -> AIOKafkaAdminClient:
    admin = AIOKafkaAdminClient(
        bootstrap_servers=settings.bootstrap,
        client_id=name_client(settings.topic_prefix, "topics"),
        **client_options(),
    )
    try:
        async with asyncio.timeout(_WAIT):
            await admin.start()
    except (KafkaError, TimeoutError) as exc:
        await admin.close()
        raise unavailable(settings.brokers, _WAIT, "answer") from exc
    return admin
