"""The Faust app of a worker, with the settings that make it safe."""

from __future__ import annotations

import logging
from typing import Final

from faust.auth import Credentials, SASLCredentials, SSLCredentials

from agents.batches import BatchApp, check_versions
from agents.fetching import PromptApp
from agents.tables import NoTables
from groundwire.client.kafka import MAX_RECORD_BYTES
from groundwire.security import KafkaSecurity, kafka_security
from groundwire.settings import Settings

MAX_RECORDS = {"claims": 500, "deferred": 100, "responses": 50, "reviews": 100}
"""Records of one fetch, and so of a batch at most; `deferred` waits for the network, and responses are large."""

ASKED_ABOUT: Final = 8
"""Records of one fetch where a language model is asked about them: settled together, and answers take seconds."""


def build_app(role: str, settings: Settings, *, most: int | None = None) -> BatchApp:
    """Build the app for one role; each role is a consumer group of its own.

    Args:
        role: which one.
        settings: of the process.
        most: records of one fetch, where they are fewer than others of the role have.

    Raises:
        UsageError: Faust is not the version that Groundwire's batches were written for, or a file of
            GROUNDWIRE_KAFKA_... cannot be read.
    """
    check_versions()
    broker = ";".join(f"kafka://{address}" for address in settings.bootstrap)
    session = settings.session_timeout
    return PromptApp(
        settings.group_prefix + role,
        broker=broker,
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
        broker_max_poll_records=most or MAX_RECORDS[role],
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


def _credentials(security: KafkaSecurity) -> Credentials | None:
    """Say to Faust how the brokers are spoken to."""
    if security.sasl_username is not None:
        return SASLCredentials(
            username=security.sasl_username,
            password=security.password(),
            ssl_context=security.context(),
            mechanism=security.sasl_mechanism,
        )
    return SSLCredentials(context=security.context()) if security.encrypted else None


def quiet_faust() -> None:
    """Hear of Faust and its drivers only what is worth a look."""
    for name in ("faust", "mode", "aiokafka"):
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("mode.timers").setLevel(logging.ERROR)  # a late commit is no news under load
