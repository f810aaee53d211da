"""`groundwire tail`: the records of a topic as lines for a person or a program."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from groundwire.cli.options import Deployment, StartParam, deployment_options
from groundwire.cli.output import TEXT_CELLS, bytes_json, compact_json, echo_json, fit, print_line
from groundwire.errors import RecordError
from groundwire.kafka.reader import Start, follow
from groundwire.messages.base import format_time, from_milliseconds
from groundwire.messages.decode import parse_json, unframed
from groundwire.messages.headers import InboundRecord, failure_of
from groundwire.messages.topics import TopicName

_DECISIONS: Final = {TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED}
_STYLES: Final = {"approved": "green", "review": "yellow", "blocked": "red"}


def columns_of(topic: TopicName) -> dict[str, int]:
    """Return the columns of a topic's table and their widths; the last one takes what is left of the line."""
    if topic in _DECISIONS:
        names = {"verdict": 8, "reason": 22, "tenant:user": 22, "id": 22, "claim": TEXT_CELLS}
    elif topic is TopicName.DEAD_LETTER:
        names = {"error": 19, "attempts": 8, "failed at": 32, "key": 22, "message": TEXT_CELLS}
    else:
        names = {"partition": 9, "offset": 10, "key": 22, "value": TEXT_CELLS}
    return {"time": 24, **names}


def heading(topic: TopicName) -> Text:
    columns = columns_of(topic)
    return Text(fit(list(columns), list(columns.values())), style="bold")


def row(record: InboundRecord, topic: TopicName) -> Text:
    """Return a record's line of a table; nothing in it reaches the terminal but as text."""
    if topic in _DECISIONS:
        cells = _decision_cells(record)
    elif topic is TopicName.DEAD_LETTER:
        fields = {name: "?" if value is None else str(value) for name, value in _dead_letter(record).items()}
        where = f"{fields['topic']}[{fields['partition']}]@{fields['offset']}"
        cells = [fields["error"], fields["attempts"], where, _text(record.key), fields["message"]]
    else:
        cells = [str(record.partition), str(record.offset), _text(record.key), _text(record.value)]
    line = fit([_time(record), *cells], list(columns_of(topic).values()))
    return Text(line, style=_STYLES.get(cells[0], ""))


def as_json(record: InboundRecord, topic: TopicName) -> str:
    """Return a record as one line of JSON.

    A value that is JSON comes as it is, Avro and Protobuf as JSON; a dead letter, or a value that is none, stands in an
    object with `error`, where it failed or stands, and `key` and `value` as text (`_base64` where they are not UTF-8).
    """
    if topic is TopicName.DEAD_LETTER:
        return compact_json(_dead_letter(record))
    try:
        plain = unframed(record.value)
        parsed = parse_json(plain)
    except RecordError as exc:
        where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        return compact_json({"error": str(exc.code), "message": exc.message, **where, **_content(record)})
    text = (plain or b"").decode()
    return compact_json(parsed) if any(char < " " for char in text) else text


def _dead_letter(record: InboundRecord) -> dict[str, Any]:
    failure = failure_of(record)
    return {
        "error": failure.code,
        "message": failure.message,
        "attempts": failure.attempts,
        "topic": failure.topic,
        "partition": failure.partition,
        "offset": failure.offset,
        "at": _time(record),
        **_content(record),
    }


def _content(record: InboundRecord) -> dict[str, str | None]:
    return {**bytes_json("key", record.key), **bytes_json("value", record.value)}


def _decision_cells(record: InboundRecord) -> list[str]:
    try:
        parsed = parse_json(record.value)
    except RecordError:
        parsed = None
    if not isinstance(parsed, dict):
        place = f"{record.partition}@{record.offset}"
        return ["?", "not a decision", _text(record.key), place, _text(record.value)]
    fields = {name: value for name, value in parsed.items() if isinstance(value, str)}
    evidence = parsed.get("evidence")
    claim = evidence.get("claim") if isinstance(evidence, dict) else None
    return [
        fields.get("verdict", "?"),
        fields.get("reason_code", "?"),
        f"{fields.get('tenant_id', '?')}:{fields.get('user_id', '?')}",
        fields.get("subject_id", "?"),
        # what was answered is not published: why it is here stands in its place, and says that it does
        claim if isinstance(claim, str) else f"({fields.get('kind', 'no claim')}) {fields.get('reason', '')}",
    ]


def _time(record: InboundRecord) -> str:
    try:
        return format_time(from_milliseconds(record.timestamp))
    except (OverflowError, ValueError):
        return str(record.timestamp)


def _text(data: bytes | None) -> str:
    return "" if data is None else data[: 4 * TEXT_CELLS].decode("utf-8", "replace")


@click.command(name="tail")
@click.argument("topic", type=click.Choice([str(topic) for topic in TopicName]), metavar="TOPIC")
@click.option(
    "--from",
    "start",
    type=StartParam("earliest", "latest"),
    metavar="earliest|latest|OFFSET|TIME",
    help="Where to begin.  [default: latest; earliest with --until-end]",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition alone.")
@click.option("--until-end", is_flag=True, help="Stop where the topic ends now, instead of following it.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    help="Output.  [default: table on a terminal, else json]",
)
@deployment_options
def tail(
    topic: str,
    *,
    deployment: Deployment,
    start: Start | None,
    partition: int | None,
    until_end: bool,
    limit: int | None,
    layout: str | None,
) -> None:
    """Print the records of TOPIC as they come: approved, review, blocked, dead-letter or any other.

    JSON is one line a record: the record as it came, a dead letter with its error, place and content. Ctrl-C
    ends it: exit status 0, or 130 where an end was asked for and not reached.

    Example: groundwire tail dead-letter --from 2026-01-31T12:00:00Z --until-end --format json
    """
    begin: Start = start if start is not None else "earliest" if until_end else "latest"
    name, known = f"{deployment.prefix}{topic}", TopicName(topic)
    console = Console(highlight=False)

    async def read(*, table: bool) -> None:
        count = 0
        where = deployment.brokers, {name: begin}, deployment.seconds
        async with aclosing(follow(*where, partition=partition, until_end=until_end)) as records:
            async for record in records:
                if table and not count:
                    print_line(console, heading(known))
                if table:
                    print_line(console, row(record, known))
                else:
                    echo_json(await asyncio.to_thread(as_json, record, known))  # it may ask for a schema
                count += 1
                if count == limit:
                    return

    try:
        asyncio.run(read(table=layout == "table" or (layout is None and sys.stdout.isatty())))
    except KeyboardInterrupt:
        raise SystemExit(130 if until_end or limit else 0) from None
