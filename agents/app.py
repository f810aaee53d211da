"""The roles of workers, and the Faust app of one."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from faust.auth import Credentials, OAuthCredentials, SASLCredentials, SSLCredentials

from agents.book import LARGE
from agents.faust_patches import NoTables, WorkerApp, check_versions
from groundwire.config import Settings, kafka_security
from groundwire.kafka import name_client
from groundwire.kafka.connection import MAX_RECORD_BYTES
from groundwire.kafka.sign_in import tokens
from groundwire.messages.headers import InboundRecord, deferred_record
from groundwire.messages.topics import TopicName


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """What differs between workers: each role reads one input topic in its own consumer group.

    Attributes:
        max_records: of a fetch, and of a batch.
        deferred: reads `deferred`: may use the network, and waits for state (X-14, C-14).
        provisional: decides without state after the grace period if the policy says `state_outage = "defer"`.
        original: the record to decide for the one read.
        max_bytes: of a batch, smallest first (half a second of CPU); None: all that are not large.
        large: bytes of a record from which on others do not wait for it.
    """

    name: str
    topic: TopicName
    max_records: int
    deferred: bool = False
    provisional: bool = False
    original: Callable[[InboundRecord], InboundRecord] = lambda record: record
    max_bytes: int | None = None
    large: int = LARGE


ROLES: Final = {
    role.name: role
    for role in (
        WorkerRole("claims", TopicName.CLAIMS, 500, provisional=True),
        WorkerRole("deferred", TopicName.DEFERRED, 100, deferred=True, original=deferred_record),
        # a kilobyte of a response takes up to seven milliseconds
        WorkerRole(
            "responses", TopicName.LLM_RESPONSES, 50, provisional=True, max_bytes=64_000, large=16_000
        ),
        WorkerRole("reviews", TopicName.REVIEW_DECISIONS, 100),
    )
}
"""The roles by the names that `groundwire worker` takes."""


METADATA_AGE: Final = 30_000
"""Milliseconds until clients ask which partitions there are: new ones, and those of a topic that was declared again."""


def topics_of(name: str) -> list[TopicName]:
    """Return the topics that must exist before a role starts: its input, and all outputs."""
    others = {TopicName.CLAIMS, TopicName.LLM_RESPONSES, TopicName.REVIEW_DECISIONS} - {ROLES[name].topic}
    return [topic for topic in TopicName if topic not in others]


MAX_RECORDS_WITH_MODEL: Final = 8
"""Records of a fetch and of a batch if a language model is asked about each: a batch waits for all answers."""


def role_of(name: str, *, with_model: bool = False) -> WorkerRole:
    role = ROLES[name]
    return replace(role, max_records=MAX_RECORDS_WITH_MODEL) if with_model else role


def build_app(name: str, settings: Settings, *, with_model: bool = False) -> WorkerApp:
    """Build the app of a role. Raises: UsageError: another Faust, or unreadable GROUNDWIRE_KAFKA_... files."""
    check_versions()
    broker = ";".join(f"kafka://{address}" for address in settings.bootstrap)
    session, security = settings.session_timeout, kafka_security()
    credentials: Credentials | None = None
    if (provider := tokens()) is not None:
        credentials = OAuthCredentials(oauth_cb=provider, ssl_context=security.context())
    elif security.sasl_username is not None:
        credentials = SASLCredentials(
            username=security.sasl_username,
            password=security.password(),
            ssl_context=security.context(),
            mechanism=security.sasl_mechanism,
        )
    elif security.encrypted:
        credentials = SSLCredentials(context=security.context())
    return WorkerApp(
        settings.group_prefix + name,
        broker=broker,
        broker_client_id=name_client(settings.topic_prefix, name),
        broker_credentials=credentials,
        store="memory://",
        processing_guarantee="at_least_once",  # exactly_once swallows errors, and decisions are idempotent
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        TableManager=NoTables,
        web_enabled=False,
        logging_config=None,
        loghandlers=[],
        consumer_auto_offset_reset="earliest",
        consumer_metadata_max_age_ms=METADATA_AGE,
        producer_metadata_max_age_ms=METADATA_AGE,
        consumer_group_instance_id=settings.instance_id,
        consumer_max_fetch_size=4 * 1024 * 1024,
        broker_max_poll_records=role_of(name, with_model=with_model).max_records,
        broker_max_poll_interval=86_400.0,  # longer than any pause: a member that exceeds it never rejoins
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 5,
        broker_rebalance_timeout=max(60.0, session),
        broker_request_timeout=max(30.0, session),
        broker_commit_interval=1.0,
        producer_request_timeout=30.0,
        producer_max_request_size=MAX_RECORD_BYTES,
        # with the default of 16 kB, eight decisions, 500 claims took 2.5 times as long to publish
        producer_max_batch_size=131_072,
        stream_wait_empty=True,  # else SIGTERM commits what is not finished
        stream_buffer_maxsize=1024,
    )


def declare_agent(app: WorkerApp, name: str, topic_prefix: str, submit: Callable[[Any], None]) -> None:
    """Declare the one agent of a role: it submits each fetch, undecoded, so that a bad record is a dead letter."""
    topic = ROLES[name].topic
    raw = app.topic(topic_prefix + topic, value_serializer="raw", allow_empty=True, internal=False)

    @app.agent(raw, name=topic)
    async def submit_fetches(fetches: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in fetches.noack().events():
            submit(event)


def quiet_faust() -> None:
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mode.timers").setLevel(logging.ERROR)  # under load a commit is late


def tune_gc() -> None:
    """Tune garbage collection for batches, and exclude everything loaded so far: a full collection takes 0.1 s.

    A collection blocks the event loop for as long as it has objects: 0.3 s with 50,000; Python's 700 gives 40 a batch.
    What a batch makes is freed without: the middle generation, which holds it meanwhile, is rarely worth a look.
    """
    gc.freeze()
    gc.set_threshold(5_000, 50, 20)
