"""Where a deployment is, and its approvals as they come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from groundwire.config import Settings, setting_error
from groundwire.kafka.reader import Start, open_reader
from groundwire.messages.decisions import Verdict
from groundwire.messages.topics import TopicName

if TYPE_CHECKING:
    from groundwire.client.table import ApprovedTable, Change

SECONDS: Final = 10.0
"""How long the broker may take to answer."""


def settings_of(brokers: str | None, topic_prefix: str | None, keys_file: Path | None = None) -> Settings:
    """Return the settings of the environment, but for what is given. Raises: UsageError."""
    given = {"brokers": brokers, "topic_prefix": topic_prefix, "keys_file": keys_file}
    try:
        return Settings.model_validate({name: value for name, value in given.items() if value is not None})
    except ValidationError as exc:
        raise setting_error(Settings, exc) from None


async def changes(
    table: ApprovedTable,
    *,
    brokers: str | None = None,
    topic_prefix: str | None = None,
    until_end: bool = False,
    at_end: Callable[[], object] | None = None,
) -> AsyncGenerator[Change, None]:
    """Read all that was ever approved or withdrawn into a table, go on with what comes, and yield each change.

    It reads without a group and commits nothing: whoever starts again reads from the beginning.

    Args:
        table: takes in what is read.
        brokers: `host:port,...`; GROUNDWIRE_BROKERS where None.
        topic_prefix: before every topic's name; GROUNDWIRE_TOPIC_PREFIX where None.
        until_end: stop where the topics ended at the start.
        at_end: called once, when all that stood there at the start is taken in and yielded.

    Raises:
        ValueError: a record cannot be read.
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer.
    """
    settings = settings_of(brokers, topic_prefix)
    topics = [TopicName.RETRACTIONS, *map(TopicName.of, Verdict)]
    starts: dict[str, Start] = dict.fromkeys((settings.topic_prefix + topic for topic in topics), "earliest")
    async with open_reader(settings.brokers, SECONDS) as reader:
        await reader.begin(starts)
        async with aclosing(reader.rest()) as pages:
            async for page in pages:
                for record in page:
                    for change in table.apply(record):
                        yield change
        if at_end:
            at_end()
        while not until_end:
            for record in await reader.batch():
                for change in table.apply(record):
                    yield change
