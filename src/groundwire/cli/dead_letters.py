"""`groundwire dead-letters`: list and show records that could not be decided, and send them again.

A record is sent to its topic, partition and time, and then noted in the audit. After a crash in between the next run
sends it again, and the gate answers the repeat with the same decision.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from typing import Any, Final, NamedTuple

import click
from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, KafkaError, MessageSizeTooLargeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from rich.console import Console
from rich.text import Text

from groundwire.cli import options
from groundwire.cli.output import ReadProgress, bytes_json, columns, compact_json, echo_json, fit, print_line
from groundwire.errors import BrokerUnavailable, ErrorCode
from groundwire.kafka.connection import MAX_AHEAD, MAX_RECORD_BYTES, producer, unavailable
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.kafka.reader import RecordPlace, Start, follow
from groundwire.messages import headers as named
from groundwire.messages.base import format_time, from_milliseconds, to_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.messages.topics import TopicName
from groundwire.review.records import read_dead_letter

_BATCH: Final = 20
"""Records sent before their acknowledgements are awaited."""

_REFUSALS: Final = (InvalidTimestampError, MessageSizeTooLargeError)

_SKEW: Final = timedelta(hours=1, minutes=5)
"""By how much a letter's time may exceed that of its redrive: it is the record's, which may be an hour ahead."""


class Letter:
    """A record of the dead-letter topic, what it says of its failure, and what becomes of it.

    Attributes:
        id: in the audit; equal in two letters of one failure, which a crash of the worker leaves.
        redriven: when, by whom and to where its record was sent; None: it was not.
    """

    def __init__(self, record: InboundRecord) -> None:
        self.record, self.failure = record, named.failure_of(record)
        self.failed = read_dead_letter(record)
        self.origin = dict[str, Any](zip(RecordPlace._fields, self.failure[2:5], strict=True))
        self.name = f"{record.partition}@{record.offset}"
        self.headers = [(name, value) for name, value in record.headers if name not in named.OF_LETTERS]
        self.omitted = named.header(record.headers, named.VALUE_OMITTED)
        self.id = event_id("dead_letter", ["redriven", *self.failure[2:], record.sha256])
        self.redriven: dict[str, Any] | None = None
        self.outcome = self.why = ""

    def why_not(self, prefix: str, most: int) -> str:
        """Return why its record is not sent: only input topics of this deployment are written to."""
        failure, record = self.failure, self.record
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(record.key, record.value, [*record.headers])
        whys = {
            "not_a_dead_letter": failure.code not in set(ErrorCode) or None in failure[3:5] + failure[6:],
            "not_an_input_topic": failure.topic not in {f"{prefix}{name}" for name in INPUT_TOPICS},
            "too_many_attempts": (failure.attempts or 0) >= most,
            "value_omitted": self.omitted is not None,
            "too_large": size > MAX_RECORD_BYTES,
        }
        return next((why for why, holds in whys.items() if holds), "")

    @property
    def again(self) -> InboundRecord:
        """The record to send: its own headers, and the count of failures, with which the gate goes on."""
        failure, record = self.failure, self.record
        headers = [*self.headers, (named.ATTEMPTS, str(failure.attempts).encode())]
        time = -1 if failure.timestamp is None else failure.timestamp
        return InboundRecord(
            failure.topic, failure.partition or 0, 0, time, record.key, record.value, headers
        )

    def note(self, topic: str) -> InboundRecord:
        """Return the audit event of its redrive: of no tenant, as the gate's own of a dead letter, without text."""
        failure, record, sent = self.failure, self.record, self.redriven or {}
        stands = {name: sent[name] for name in RecordPlace._fields}
        detail: dict[str, Any] = {"action": "redriven", "letter": self.id, "code": failure.code}
        detail["attempts"] = failure.attempts
        detail |= {
            "partition": record.partition,
            "offset": record.offset,
            "origin": self.origin,
            "stands": stands,
        }
        fields = {"type": "dead_letter", "at": sent["at"], "actor": sent["actor"], "detail": detail}
        event = AuditEvent.made(event_id=self.id, tenant_id="", subject_id=None, decision_id=None, **fields)
        headers = named.event_headers("audit", self.id, format_time(event.at), "", self.headers)
        return InboundRecord(topic, -1, 0, -1, b"", event.model_dump_json().encode(), headers)

    def as_json(self) -> dict[str, Any]:
        failed, value = self.failed, self.record.value
        return {
            "letter": self.name,
            "at": from_milliseconds(self.record.timestamp),
            "error": failed.code,
            "message": failed.message,
            "attempts": self.failure.attempts,
            **self.origin,
            **bytes_json("key", self.record.key),
            "tenant_id": failed.tenant_id,
            "user_id": failed.user_id,
            "size": None if value is None else len(value),
            **({"value_omitted": self.omitted} if self.omitted else {}),
            "state": "redriven" if self.redriven else "open",
            "redriven": self.redriven,
            **({"outcome": self.outcome, "why": self.why or None} if self.outcome else {}),
        }


class Selection(NamedTuple):
    """Letters that meet every condition; an empty set or None is no condition. `topic`: of the record, with prefix."""

    start: Start = "earliest"
    end: int | datetime | None = None
    partition: int | None = None
    codes: AbstractSet[str] = frozenset()
    topic: str | None = None
    tenant: str | None = None
    key: bytes | None = None
    names: AbstractSet[str] = frozenset()

    def has(self, letter: Letter) -> bool:
        record, failed, start, end = letter.record, letter.failed, self.start, self.end
        begun = record.timestamp >= to_milliseconds(start) if isinstance(start, datetime) else True
        ended = record.timestamp >= to_milliseconds(end) if isinstance(end, datetime) else False
        return begun and not (
            ended
            or (isinstance(end, int) and record.offset >= end)
            or (self.codes and failed.code not in self.codes)
            or (self.names and letter.name not in self.names)
            or self.topic not in {None, failed.topic}
            or self.tenant not in {None, failed.tenant_id}
            or self.key not in {None, record.key}
        )


class Log:
    """Topics that are read to their ends, without a consumer group, and written by `sender`, None in a dry run."""

    def __init__(
        self, where: options.Deployment, sender: AIOKafkaProducer | None, on_read: Callable[[], None]
    ) -> None:
        self.prefix, self._where, self._sender, self._on_read = where.prefix, where, sender, on_read

    async def read(
        self, topic: TopicName, start: Start, partition: int | None = None
    ) -> AsyncGenerator[InboundRecord, None]:
        where, starts = self._where, {f"{self.prefix}{topic}": start}
        read = follow(where.brokers, starts, where.seconds, partition=partition, until_end=True)
        async with aclosing(read) as records:
            async for record in records:
                self._on_read()
                yield record

    async def send(self, records: Sequence[InboundRecord]) -> list[RecordPlace | None]:
        """Send records to their topics, partitions and times, -1 for any, and return where they are.

        None: it is larger than its topic takes. One that is older has the time of sending.
        Raises: BrokerUnavailable: some may be on their topic all the same.
        """
        sender: Any = self._sender  # None in a dry run, which sends nothing
        futures = []
        try:
            async with asyncio.timeout(self._where.seconds):
                for one in records:
                    there = await sender.partitions_for(one.topic)
                    place = {"partition": one.partition if one.partition in there else None}
                    if 0 <= one.timestamp < time.time() * 1000 + MAX_AHEAD:
                        place["timestamp_ms"] = one.timestamp
                    sending = sender.send(one.topic, one.value, one.key, headers=list(one.headers), **place)
                    futures.append(await sending)
                done: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
                for n, (one, each) in enumerate(zip(records, done, strict=True)):
                    if isinstance(each, _REFUSALS) and len(records) > 1:  # with others of its batch
                        (done[n],) = await self.send([one])
                    elif isinstance(each, InvalidTimestampError) and one.timestamp >= 0:
                        (done[n],) = await self.send([replace(one, timestamp=-1)])
                    elif isinstance(each, MessageSizeTooLargeError):
                        done[n] = None
                    elif isinstance(each, BaseException):
                        raise each
        except TimeoutError as exc:
            raise unavailable(self._where.brokers, self._where.seconds, "acknowledge records") from exc
        except KafkaError as exc:
            raise BrokerUnavailable(f"the broker does not take a record: {type(exc).__name__}") from exc
        return [each and RecordPlace(each.topic, each.partition, each.offset) for each in done]


async def selected(log: Log, selection: Selection) -> AsyncGenerator[Letter, None]:
    """Yield letters, with what the audit says of their redrive: none was before the first letter's time."""

    async def read() -> AsyncGenerator[Letter, None]:
        start = selection.start
        if selection.names and start == "earliest":
            start = min(int(name.partition("@")[2]) for name in selection.names)
        async with aclosing(log.read(TopicName.DEAD_LETTER, start, selection.partition)) as records:
            async for record in records:
                if selection.has(letter := Letter(record)):
                    yield letter

    redriven: dict[str, dict[str, Any]] = {}
    first = min([letter.record.timestamp async for letter in read()], default=None)
    since = from_milliseconds(max((first or 0) - int(_SKEW.total_seconds() * 1000), 0))
    async with aclosing(log.read(TopicName.AUDIT, "latest" if first is None else since)) as audit:
        async for record in audit:
            if b'"redriven"' in (record.value or b""):  # those of the gate need not be parsed
                event = AuditEvent.of_type(record.value, "dead_letter")
                match event and event.detail:
                    case {
                        "letter": str(name),
                        "stands": {"topic": _, "partition": _, "offset": _} as place,
                    } if event:
                        redriven.setdefault(name, {"at": event.at, "actor": event.actor, **place})
    async with aclosing(read()) as letters:
        async for letter in letters:
            letter.redriven = redriven.get(letter.id)
            yield letter


async def redrive_letters(
    log: Log, selection: Selection, actor: str | None, *, most: int, rate: float, limit: int | None
) -> AsyncGenerator[Letter, None]:
    """Send letters' records back, or say what would be sent where there is no actor. Raises: BrokerUnavailable."""

    async def send(letters: Sequence[Letter]) -> None:
        at = datetime.now(UTC)
        for letter, place in zip(letters, await log.send([one.again for one in letters]), strict=True):
            letter.outcome, letter.why = ("redriven", "") if place else ("refused", "too_large")
            letter.redriven = {"at": at, "actor": actor, **place._asdict()} if place else None
        notes = [one.note(f"{log.prefix}{TopicName.AUDIT}") for one in letters if one.redriven]
        if None in await log.send(notes):
            raise BrokerUnavailable(
                "audit does not take the note of a redrive: its max.message.bytes is too low"
            )

    chosen, batch = set[str](), list[Letter]()
    async with aclosing(selected(log, selection)) as letters:
        async for letter in letters:
            letter.outcome, letter.why = "refused", letter.why_not(log.prefix, most)
            if letter.redriven or letter.id in chosen:
                letter.outcome, letter.why = "skipped", "already_redriven"
            elif not letter.why:
                letter.outcome = "redrive"
                chosen.add(letter.id)
            if letter.outcome != "redrive" or actor is None:
                yield letter
            else:
                batch.append(letter)
            if len(batch) >= min(_BATCH, rate):
                await send(batch)
                for one in batch:
                    yield one
                await asyncio.sleep(len(batch) / rate)
                batch = []
            if len(chosen) == limit:
                break
    await send(batch)
    for one in batch:
        yield one


class NameParam(click.ParamType):
    """A letter as `list` names it: partition@offset."""

    name = "letter"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        numbers = str(value).split("@")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
            self.fail(f"{value!r} is not PARTITION@OFFSET, such as 2@17", param, ctx)
        return f"{int(numbers[0])}@{int(numbers[1])}"


_TOPICS: Final = click.Choice([str(topic) for topic in (*INPUT_TOPICS, TopicName.DEFERRED)])
_CODES: Final = click.Choice(list(map(str, ErrorCode)))
_START, _END = options.StartParam("earliest", "latest"), options.StartParam()
_NUMBER, _RATE = click.IntRange(min=1), options.FiniteRange(min=0, min_open=True)
_FROM: Final = "Letters from this offset or time on; a letter has the time of its record."
_SELECTION: Final = (
    click.option("--code", "codes", multiple=True, type=_CODES, help="Repeatable."),
    click.option("--topic", type=_TOPICS, help="Where the record came in, without the prefix."),
    click.option("--tenant", help="The owner, where key and value agree on it."),
    click.option("--key", help="The record's key, TENANT:USER."),
    click.option(
        "--from", "start", type=_START, default="earliest", metavar="earliest|OFFSET|TIME", help=_FROM
    ),
    click.option("--to", "end", type=_END, metavar="OFFSET|TIME", help="Letters before this offset or time."),
    click.option("--partition", type=click.IntRange(min=0), help="Only this one of the dead-letter topic."),
)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(*, deployment: options.Deployment, names: tuple[str, ...] = (), **others: Any) -> None:  # noqa: ANN401
        chosen = {name: others.pop(name) for name in ("start", "end", "partition", "tenant", "topic", "key")}
        if chosen["topic"] is not None:
            chosen["topic"] = f"{deployment.prefix}{chosen['topic']}"
        if chosen["key"] is not None:
            chosen["key"] = chosen["key"].encode("utf-8", "surrogateescape")
        chosen |= {"codes": frozenset(others.pop("codes")), "names": frozenset(names)}
        command(deployment=deployment, selection=Selection(**chosen), **others)

    return options.deployment_options(options.format_option(options.with_options(_SELECTION, run)))


@click.group(name="dead-letters")
def dead_letters() -> None:
    """List records that could not be decided, and send them again once the cause is fixed.

    A letter is named by where it stands on the dead-letter topic: PARTITION@OFFSET.

    Example: groundwire dead-letters list --code worker_crash --from 2026-01-31T12:00:00Z
    """


@dead_letters.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only letters that were not sent back.")
@selecting
def list_letters(only_open: bool, **given: Any) -> None:  # noqa: ANN401, FBT001
    """List dead letters, and whether they were sent back; never their values.

    Example: groundwire dead-letters list --code worker_crash --tenant acme --open --format json
    """
    if not _print(selected, **given, shown=lambda letter: not (only_open and letter.redriven)):
        click.echo("no dead letter matches", err=True)


@dead_letters.command(name="show")
@click.argument("name", metavar="LETTER", type=NameParam())
@click.option("--value", is_flag=True, help="Show the record's value too.")
@options.deployment_options
@options.format_option
def show(name: str, **given: Any) -> None:  # noqa: ANN401
    """Show the dead letter at PARTITION@OFFSET: why it failed, its key and headers, what became of it.

    Exit status: 0, or 1 where there is no such letter, 2 for usage and a broker out of reach.

    Example: groundwire dead-letters show 2@17 --value
    """
    partition, offset = map(int, name.split("@"))
    one = Selection(offset, offset + 1, partition, names={name})
    if not _print(selected, **given, selection=one, whole=True):
        click.echo(f"there is no dead letter at {name}", err=True)
        raise SystemExit(1)


@dead_letters.command(name="redrive")
@click.argument("names", metavar="[LETTER]...", nargs=-1, type=NameParam())
@click.option("--yes", is_flag=True, help="Do it; without this nothing is sent, only said.")
@click.option(
    "--max-attempts", "most", type=_NUMBER, default=3, show_default=True, help="Refuse after N failures."
)
@click.option("--rate", type=_RATE, default=50.0, show_default=True, help="At most N records a second.")
@click.option("--limit", type=_NUMBER, metavar="N", help="Stop after N records.")
@click.option("--actor", metavar="NAME", help="Who does it, for the audit.  [default: your login name]")
@selecting
def redrive(
    *,
    selection: Selection,
    layout: str,
    yes: bool,
    actor: str | None,
    most: int,
    rate: float,
    limit: int | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """Send records back to their topic, partition and time: bytes, key, headers, and the count of failures.

    Without LETTERs, all that the filters mean. What the audit notes as sent is not sent again; a run that was broken
    off may have the next one repeat records, which changes no decision. What fails again is a new dead letter.

    Exit status: 0 when every letter was sent, now or before, 1 when some were refused or are not there, 2 for usage
    and a broker out of reach, 130 when broken off.

    Example: groundwire dead-letters redrive --code worker_crash --limit 20 --yes
    """
    try:
        actor = actor or getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        actor = "unknown"
    counts, missing = Counter[str](), set() if limit else set(selection.names)

    def note(letter: Letter) -> bool:
        missing.discard(letter.name)
        counts[f"{letter.outcome} ({letter.why})" if letter.why else letter.outcome] += 1
        return True

    read = partial(redrive_letters, actor=actor if yes else None, most=most, rate=rate, limit=limit)
    try:
        _print(read, selection=selection, layout=layout, shown=note, sends=yes, **given)
    finally:
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no letter selected"
        click.echo(said + ("; --yes sends them" if "redrive" in counts else ""), err=layout == "json")
    for name in sorted(missing):
        click.echo(f"there is no dead letter at {name} that matches", err=True)
    if missing or any(outcome.startswith("refused") for outcome in counts):
        raise SystemExit(1)


_COLUMNS: Final = {
    "letter": 10,
    "error": 19,
    "attempts": 8,
    "state": 36,
    "came from": 32,
    "at": 24,
    "key": 22,
}


def _print(
    read: Callable[[Log, Selection], AsyncGenerator[Letter, None]],
    *,
    deployment: options.Deployment,
    selection: Selection,
    layout: str,
    shown: Callable[[Letter], bool] = lambda _letter: True,
    sends: bool = False,
    whole: bool = False,
    value: bool = False,
) -> int:
    """Print letters as they come: as JSON, `whole` or as a line of a table; return how many."""
    console, count = Console(highlight=False), 0

    def line(cells: Sequence[str], style: str = "") -> None:
        print_line(console, Text(fit(cells, [*_COLUMNS.values(), 200]).rstrip(), style=style))

    def print_one(letter: Letter) -> None:
        fields = letter.as_json()
        if whole:
            fields["headers"] = [{"name": name, **bytes_json("value", data)} for name, data in letter.headers]
            fields |= bytes_json("value", letter.record.value) if value else {}
        if layout == "json":
            echo_json(compact_json(fields))
            return
        place, sent = "{topic}[{partition}]@{offset}".format_map, letter.redriven
        state = f"{letter.outcome or fields['state']} {letter.why or (place(sent) if sent else '')}".rstrip()
        key = (letter.record.key or b"").decode("utf-8", "backslashreplace")
        fields |= {"state": state, "came from": place(fields), "key": key}
        cells = {
            name: "-" if of is None else of if isinstance(of, str) else compact_json(of)
            for name, of in fields.items()
        }
        if whole:
            click.echo("\n".join(columns(list(cells.items()))))
            return
        if count == 1:
            line([*_COLUMNS, "message"], "bold")
        line([cells[name] for name in (*_COLUMNS, "message")])

    async def main(reading: ReadProgress) -> None:
        nonlocal count
        async with AsyncExitStack() as stack:
            opened = producer(deployment.brokers, deployment.seconds, idempotent=False)
            log = Log(deployment, await stack.enter_async_context(opened) if sends else None, reading.advance)
            async for letter in await stack.enter_async_context(aclosing(read(log, selection))):
                if shown(letter):
                    reading.printing()
                    count += 1
                    print_one(letter)

    with ReadProgress() as reading:
        asyncio.run(main(reading))
    return count
