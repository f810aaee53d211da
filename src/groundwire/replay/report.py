"""The report of a replay as table, JSON or page, and the writers of its decisions: to a file or a replay topic."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewTopic
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError

from groundwire import __version__
from groundwire.config import Settings
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.gate.kinds import Policies
from groundwire.kafka.connection import admin, unavailable
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import InboundRecord, decision_headers
from groundwire.messages.topics import TopicName, record_key
from groundwire.policy import Policy
from groundwire.replay.reading import PATIENCE
from groundwire.replay.store import Job


class ReplayStatus(StrEnum):
    """The result of replaying a decision, or a record without one.

    `equal`: the same bytes, or under another policy the same tier and reason; `missing`: its record or policy was not
    found; `cannot_tell`: the facts lack what the other policy needs; `facts_missing`: no topic holds an outcome of the
    record; `repeat`: its subject was decided on another record; `dead_letter`, `refused`: how the record ended.
    """

    EQUAL = "equal"
    DIFFERS = "differs"
    MISSING = "missing"
    CANNOT_TELL = "cannot_tell"
    FACTS_MISSING = "facts_missing"
    REPEAT = "repeat"
    DEAD_LETTER = "dead_letter"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of replaying one decision; None for what was not recorded, or could not be derived.

    `fields`: JSON paths that differ, why nothing could be derived, or policy keys that the facts cannot decide.
    `value`: the derived decision as written, with the replay's name.
    """

    status: ReplayStatus
    before: Decision | None = None
    after: Decision | None = None
    fields: tuple[str, ...] = ()
    value: bytes | None = None


@dataclass(slots=True)
class Summary:
    """The counts of a replay.

    `reasons`: decisions by recorded and derived verdict with reason; `policies`: decisions by hash of their policy;
    `unreplayable`: decisions by policy key that the facts cannot decide; `changes`: decisions listed in the report.
    """

    records: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    reasons: Counter[tuple[str, str]] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)
    unreplayable: Counter[str] = field(default_factory=Counter)
    other_engine: int = 0
    changes: int = 0

    def add(self, replayed: Replayed) -> None:
        self.statuses[replayed.status.value] += 1
        before = replayed.before
        if replayed.status is ReplayStatus.CANNOT_TELL:
            self.unreplayable.update(replayed.fields)
        if before is not None:
            is_derived = replayed.after is not None and replayed.status is not ReplayStatus.CANNOT_TELL
            outcome = _verdict(replayed.after) if replayed.after and is_derived else replayed.status.value
            self.reasons[_verdict(before), outcome] += 1
            self.policies[before.policy.sha256] += 1
            self.other_engine += before.engine != __version__
        if replayed.status in {ReplayStatus.DIFFERS, ReplayStatus.MISSING}:
            self.changes += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "records": self.records,
            "statuses": dict(sorted(self.statuses.items())),
            "reasons": [
                {"from": old, "to": new, "count": n}
                for (old, new), n in sorted(self.reasons.items(), key=_changed_first)
            ],
            "policies": dict(self.policies),
            "unreplayable": dict(self.unreplayable),
            "other_engine": self.other_engine,
            "changes": self.changes,
        }

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Summary:
        counters = {name: Counter(plain[name]) for name in ("statuses", "policies", "unreplayable")}
        reasons = Counter({(row["from"], row["to"]): row["count"] for row in plain["reasons"]})
        return cls(**plain | counters | {"reasons": reasons})


def _changed_first(row: tuple[tuple[str, str], int]) -> tuple[bool, int, tuple[str, str]]:
    (old, new), count = row
    return old == new, -count, (old, new)


def _verdict(decision: Decision) -> str:
    return f"{decision.verdict} {decision.reason_code}"


Change = dict[str, Any]
"""A decision that came out otherwise: `fields`, and `before` and `after`, each a decision or None."""

MAX_ROWS: Final = 200
"""Decisions that the table names."""


def as_table(job: Job, summary: Summary) -> Iterator[str]:
    outcomes = sum(summary.statuses.values())
    yield f"{summary.records} records replayed" + (
        f", {outcomes} outcomes" if outcomes != summary.records else ""
    )
    for status, count in sorted(summary.statuses.items()):
        yield f"{count:>9}  {status}"
    yield from unreplayable_lines(summary)
    if summary.other_engine:
        yield f"{summary.other_engine:>9}  of another engine"
    rows = sorted(summary.reasons.items(), key=_changed_first)
    moved = [(old, new, n) for (old, new), n in rows if old != new]
    if moved:
        yield ""
        yield f"{'decisions':>9}  recorded -> replayed"
    for old, new, count in moved:
        yield f"{count:>9}  {old} -> {new}"
    for index, change in enumerate(islice(changes_of(job), MAX_ROWS)):
        if not index:
            yield ""
        fields, (before, after) = change["fields"], (change["before"], change["after"])
        shown = " ".join(fields[:5]) + (" ..." if len(fields) > 5 else "")
        known = after or before or {}
        who = f"{known['tenant_id']}:{known['user_id']} {known['kind']} {known['subject_id']}"
        verdicts = [f"{one['verdict']} {one['reason_code']}" if one else "nothing" for one in (before, after)]
        yield f"{known['decision_id']}  {who}  {' -> '.join(verdicts)}  {shown}"
    if summary.changes > MAX_ROWS:
        yield f"and {summary.changes - MAX_ROWS} more: --format json lists them all"


RELEVANCE: Final = "verify_claim_relevance"


def unreplayable_lines(summary: Summary) -> Iterator[str]:
    for key, count in sorted(summary.unreplayable.items()):
        instead = (
            "it was not recorded whether sources support claims: send a sample to groundwire check"
            if key == RELEVANCE
            else "more is compared than was recorded: --simulate compares anew"
        )
        yield f"{count:>9}  unreplayable from the facts, for {key}: {instead}"


def as_json(job: Job, name: str, summary: Summary) -> Iterator[str]:
    """Yield the parts of one JSON object."""
    head = {"name": name, **summary.as_json()}
    yield json.dumps(head, ensure_ascii=False)[:-1] + ', "changed": ['
    for index, change in enumerate(changes_of(job)):
        yield (", " if index else "") + json.dumps(change, ensure_ascii=False)
    yield "]}\n"


def changes_of(job: Job) -> Iterator[Change]:
    """Yield changed decisions, other verdicts first."""
    for before, after, fields in job.changes():
        both = {"before": before, "after": after}
        yield {"fields": fields, **{name: json.loads(one) if one else None for name, one in both.items()}}


REPLAY: Final = "replay."
"""Begins the name of every topic that a replay may write to, behind the deployment's prefix."""

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")


def replay_topic(given: str, prefix: str) -> str:
    """Return the full name of an output topic. Raises: UsageError."""
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
    """Create an output topic unless it exists. Raises: BrokerUnavailable.

    A broker that refuses admin requests may create it on first use.
    """
    try:
        async with asyncio.timeout(PATIENCE), admin(settings.brokers, PATIENCE) as client:
            if topic not in await client.list_topics():
                await client.create_topics([NewTopic(topic, settings.partitions, settings.replication)])
    except IncompatibleBrokerVersion:
        return
    except (KafkaError, TimeoutError) as exc:
        raise unavailable(settings.brokers, PATIENCE, f"create {topic}") from exc


class Nowhere:
    async def resume(self, written: int) -> None: ...

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None: ...

    async def flush(self) -> int:
        return 0


class FileWriter:
    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("r+b" if path.exists() else "w+b")
        except OSError as exc:
            raise UsageError(f"--output: {path}: {exc.strerror}") from None

    async def resume(self, written: int) -> None:
        """Continue after the first `written` bytes. Raises: UsageError where the file has fewer."""
        if self._file.seek(0, 2) < written:
            raise UsageError(
                "--output: the file is shorter than it was left; remove the job file to begin anew"
            )
        self._file.truncate(written)
        self._file.seek(written)

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:  # noqa: ARG002 - as Writer
        self._file.write(value + b"\n")

    async def flush(self) -> int:
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


class TopicWriter:
    """Publishes decisions on a replay topic.

    After an interruption, what was published after the last commit is published again, with the same bytes and `ce_id`.
    """

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._sent: list[asyncio.Future[Any]] = []
        self._written = 0

    async def resume(self, written: int) -> None:
        self._written = written

    async def write(self, record: InboundRecord, decision: Decision, value: bytes) -> None:
        key = record_key(decision.tenant_id, decision.user_id)
        headers = decision_headers(decision, record.headers)
        self._sent.append(await self._producer.send(self._topic, value, key=key, headers=headers))
        self._written += 1

    async def flush(self) -> int:
        """Wait for all acknowledgements; return how many records were sent. Raises: BrokerUnavailable."""
        try:
            await asyncio.gather(*self._sent)
        except KafkaError as exc:
            raise BrokerUnavailable(f"{self._topic} does not take decisions: {type(exc).__name__}") from exc
        self._sent = []
        return self._written


MAX_BYTES: Final = 2_000_000
"""Of a page; what does not fit goes to a file beside it."""

_ROOM: Final = 2_000
"""Of these, for what follows the details."""
_POLICIES: Final = 5
"""Recorded policies that are compared with the one that decides instead: those of most decisions."""


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """How a recorded policy differs from the deciding one: key, old and new value; None: it is not stored."""

    name: str
    decisions: int
    rows: list[tuple[str, Any, Any]] | None


async def policy_changes(summary: Summary, policies: Policies, policy: Policy | None) -> list[PolicyChange]:
    if policy is None:
        return []
    changes = []
    for sha256, count in summary.policies.most_common(_POLICIES):
        known = await policies.get(sha256)
        old, new = (each.model_dump(mode="json") if each else {} for each in (known, policy))
        rows = [(key, old[key], new[key]) for key in new if key in old and old[key] != new[key]]
        name = f"{known.version if known else 'not at hand'} ({sha256[:12]})"
        changes.append(PolicyChange(name, count, rows if known else None))
    return changes


def write_page(path: Path, job: Job, summary: Summary, policies: list[PolicyChange]) -> None:
    """Write the page; details beyond its size go to `<name>.rest.jsonl`. Raises: UsageError, ImportError."""
    rest = path.with_suffix(".rest.jsonl")
    parts, left = _page(job, summary, policies, rest.name)
    try:
        with path.open("w", encoding="utf-8") as page:
            page.writelines(parts)
        if left_out := next(left, None):
            with rest.open("w", encoding="utf-8") as file:
                for change in (left_out, *left):
                    file.write(json.dumps(change, ensure_ascii=False) + "\n")
    except OSError as exc:
        raise UsageError(f"--html: {exc.filename}: {exc.strerror}") from None


def _page(
    job: Job, summary: Summary, policies: list[PolicyChange], rest: str
) -> tuple[Iterator[str], Iterator[Change]]:
    """Return the parts of the page, and the changes left over once all parts are consumed; everything is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an extra of its own

    environment = Environment(
        loader=PackageLoader("groundwire.replay"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    head, detail, foot = (environment.get_template(f"{name}.html") for name in ("report", "change", "foot"))
    moves: Counter[tuple[str, str]] = Counter()  # decisions from verdict to verdict
    for (old, new), count in summary.reasons.items():
        moves[old.split()[0], new.split()[0]] += count
    rows = [(*pair, count) for pair, count in moves.items()]
    # what changed first, of that the most
    totals = sorted(rows, key=lambda row: (row[0] == row[1], -row[2], row))
    counts = summary.as_json()
    changes = changes_of(job)
    left: list[Change] = []

    def parts() -> Iterator[str]:
        top = head.render(order=job.order, summary=counts, totals=totals, policies=policies)
        size, shown = len(top.encode()) + _ROOM, 0
        yield top
        for change in changes:
            part = detail.render(change=change)
            size += len(part.encode())
            if size > MAX_BYTES:
                left.append(change)
                break
            shown += 1
            yield part
        yield foot.render(shown=shown, left=summary.changes - shown, rest=rest)

    def others() -> Iterator[Change]:
        yield from left
        yield from changes

    return parts(), others()
