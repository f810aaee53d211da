"""The roles of workers, and the Faust app of one: its settings, its agent, its garbage collection."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from agents.faust_patches import BatchApp, NoTables, check_versions
from agents.partitions import PartitionWorkers
from groundwire.config import KafkaSecurity, Settings, kafka_security
from groundwire.kafka.connection import MAX_RECORD_BYTES
from groundwire.kafka.names import name_client
from groundwire.messages.headers import InboundRecord, deferred_record
from groundwire.messages.topics import TopicName
from topics.wire import raw_topic


@dataclass(frozen=True, slots=True)
class WorkerRole:
    """What differs between workers: one role reads one input topic, in a consumer group of its own.

    Attributes:
        topic: the input topic; its name labels the worker's metrics.
        max_records: records of one fetch, and so of a batch at most.
        deferred: records come from `deferred`: the network may be asked, and state is waited for (X-14, C-14).
        provisional: records are decided without state once it has been away for longer than the grace period,
            where the policy says `state_outage = "defer"`; else state is waited for without limit.
        original: gives the record that is decided for the one that was read.
        together: bytes of records whose checks run together, the smallest of a batch first, so that those behind in
            their partition wait for half a second of a processor; None: what is not large runs together.
    """

    topic: TopicName
    max_records: int
    deferred: bool = False
    provisional: bool = False
    original: Callable[[InboundRecord], InboundRecord] = lambda record: record
    together: int | None = None


ROLES: Final = {
    "claims": WorkerRole(TopicName.CLAIMS, 500, provisional=True),
    # it waits for the network
    "deferred": WorkerRole(TopicName.DEFERRED, 100, deferred=True, original=deferred_record),
    # they are large, and a kilobyte of one takes up to seven milliseconds
    "responses": WorkerRole(TopicName.LLM_RESPONSES, 50, provisional=True, together=64_000),
    "reviews": WorkerRole(TopicName.REVIEW_DECISIONS, 100),
}
"""The roles by the names that `groundwire worker` takes."""

_INPUTS: Final = {TopicName.CLAIMS, TopicName.LLM_RESPONSES, TopicName.REVIEW_DECISIONS}


def topics_of(name: str) -> list[TopicName]:
    """Return the topics that must exist before a role starts: the one that it reads, and all that workers write."""
    return [topic for topic in TopicName if topic not in _INPUTS or topic == ROLES[name].topic]


MAX_RECORDS_WITH_MODEL: Final = 8
"""Records of one fetch where a language model is asked about each: answers take seconds, and a batch waits for all."""


def build_app(name: str, settings: Settings, *, with_model: bool = False) -> BatchApp:
    """Build the app of one role.

    Args:
        name: the role's.
        settings: of the process.
        with_model: whether a language model is asked about each record.

    Raises:
        UsageError: Faust is not the version that Groundwire's batches were written for, or a file of
            GROUNDWIRE_KAFKA_... cannot be read.
    """
    check_versions()
    broker = ";".join(f"kafka://{address}" for address in settings.bootstrap)
    session = settings.session_timeout
    return BatchApp(
        settings.group_prefix + name,
        broker=broker,
        broker_client_id=name_client(settings.topic_prefix, name),
        broker_credentials=_credentials(kafka_security()),
        store="memory://",
        processing_guarantee="at_least_once",  # exactly_once swallows errors; decisions are idempotent instead
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        TableManager=NoTables,
        web_enabled=False,
        logging_config=None,
        loghandlers=[],
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=settings.instance_id,
        consumer_max_fetch_size=4 * 1024 * 1024,
        broker_max_poll_records=MAX_RECORDS_WITH_MODEL if with_model else ROLES[name].max_records,
        broker_max_poll_interval=86_400.0,  # longer than any pause: who leaves the group this way never rejoins
        broker_session_timeout=session,
        broker_heartbeat_interval=session / 5,
        broker_rebalance_timeout=max(60.0, session),
        broker_request_timeout=max(30.0, session),
        broker_commit_interval=1.0,
        producer_request_timeout=30.0,
        producer_max_request_size=MAX_RECORD_BYTES,
        # A sender waits for a full batch of its partition to be acknowledged. With 16 kB, which is the default and
        # holds eight decisions, 500 claims took 2.5 times as long to publish. A decision may be larger than this.
        producer_max_batch_size=131_072,
        stream_wait_empty=True,  # else SIGTERM commits what is not finished
        stream_buffer_maxsize=1024,
    )


def declare_agent(app: BatchApp, name: str, topic_prefix: str, workers: PartitionWorkers) -> None:
    """Declare the one agent of a role: it hands each batch of its topic to the workers of its partitions."""
    topic = ROLES[name].topic

    @app.agent(raw_topic(app, topic_prefix + topic), name=topic)
    async def submit_batches(batches: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in batches.noack().events():
            workers.submit(event)


def _credentials(security: KafkaSecurity) -> Credentials | None:
    """Return how Faust authenticates to the brokers; None for a plain connection."""
    if security.sasl_username is not None:
        return SASLCredentials(
            username=security.sasl_username,
            password=security.password(),
            ssl_context=security.context(),
            mechanism=security.sasl_mechanism,
        )
    return SSLCredentials(context=security.context()) if security.encrypted else None


def quiet_faust() -> None:
    """Log only warnings of Faust and its drivers."""
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mode.timers").setLevel(logging.ERROR)  # under load a commit is late


_GC_THRESHOLDS: Final = (5_000, 10, 100)
"""New objects after which Python looks for cycles among them, and how often it does until it looks among older ones.

A pass holds up the event loop for a time that grows with the objects it looks at: with 50,000 new ones a large response
held it up by 0.3 s, with Python's 700 there are 40 passes a batch. Older ones are rarely looked at: few form cycles.
"""


def tune_gc() -> None:
    """Tune the garbage collector for batches: their objects form no cycles, and a full collection takes 0.1 s.

    What is loaded by now is never collected, so that it is left out of every collection to come.
    """
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
