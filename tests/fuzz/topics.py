"""The other topics: what the gate itself wrote, and what somebody wrote there who should not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

from agents.outputs import Output, outputs
from groundwire.gate.closings import Closings
from groundwire.gate.results import DeadLetter, Decided
from groundwire.messages.base import to_milliseconds
from groundwire.messages.headers import deferred_headers, deferred_record
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.policies import PolicyStore
from groundwire.policy import Policy
from groundwire.rebuild import stored_outcomes
from groundwire.replay.files import FileRecords
from groundwire.replay.verify import Status, Verifier
from groundwire.review.board import Board
from groundwire.review.model import Query
from groundwire.review.people import Scope
from groundwire.review.records import TopicRecord
from tests.fuzz import examples
from tests.fuzz.entry import Case, Entry, hold, listening, quiet
from tests.fuzz.letters import some_letter
from tests.fuzz.records import check_outputs, some_headers, some_policy
from tests.fuzz.structure import mutated, written
from tests.fuzz.texts import scratched
from tests.unit.gate.test_review_gate import Office
from tests.unit.gate.world import NOW, TOPIC, World

SCOPES: Final = (
    Scope("lead", frozenset({"default", "acme"}), frozenset()),
    Scope(examples.USER, frozenset(), frozenset({"default"})),
    Scope("eve", frozenset(), frozenset({"globex"})),
)


class Deferred:
    """Puts records on `deferred`, with an origin that is true, or is not."""

    def __init__(self, heard: Callable[[], str]) -> None:
        self._heard = heard

    async def __call__(self, rng: Random) -> int:
        """Send one record."""
        world = World(policy=some_policy(rng))
        value = written(rng, mutated(rng, examples.claim(rng)))
        first = world.record(value, headers=some_headers(rng, value), topic=TOPIC)
        headers = list(deferred_headers(first))
        for _ in range(rng.choice((0, 1, 2))):
            name, held = headers.pop(rng.randrange(len(headers)))
            broken = rng.choice(
                (None, b"", b"-1", b"9" * 19, b"-9223372036854775808", scratched(rng, held or b""))
            )
            headers.insert(rng.randint(0, len(headers)), (name, broken))  # type: ignore[arg-type]
        record = deferred_record(
            InboundRecord(f"{TOPIC}x", 1, 2, first.timestamp, first.key, value, tuple(headers))
        )
        results = await world.results(record)
        hold(len(results) == 1 and isinstance(results[0], Decided | DeadLetter), f"ends as {results}"[:100])
        check_outputs(results)
        quiet(self._heard())
        return len(value)


class Published:
    """Holds what the gate wrote, and has it read with some of it changed: by the console, a rebuild, and `verify`."""

    def __init__(
        self, made: Sequence[Output], values: Sequence[bytes], folder: Path, heard: Callable[[], str]
    ) -> None:
        self._made, self._heard, self._folder = made, heard, folder
        self._decisions = [
            one for one in (json.loads(each.value or b"null") for each in made) if one and "facts" in one
        ]
        (folder / "policies").mkdir()
        (folder / "records").write_bytes(b"\n".join(values) + b"\n")
        (folder / "none").write_bytes(b"")
        self._found = FileRecords(folder / "records", folder / "none")
        self._policies = PolicyStore(folder / "policies", None)

    async def ready(self) -> None:
        """Keep the policy that decided."""
        await self._policies.put(Policy())

    def close(self) -> None:
        """Let go of files."""
        self._found.close()

    async def __call__(self, rng: Random) -> int:
        """Read one to six records."""
        await self.ready()
        records = [self._record(rng, number) for number in range(rng.randint(1, 6))]
        values = [record.value for record in records if record.value is not None]
        self._board(records)
        await self._rebuilt(values)
        for value in values:
            await self._verified(value)
        quiet(self._heard(), faults=True)  # of what no gate wrote, a rebuild says so
        return sum(map(len, values))

    def _record(self, rng: Random, number: int) -> TopicRecord:
        if rng.random() < 0.1:
            key, value, headers = some_letter(rng)
            return TopicRecord(
                TopicName.DEAD_LETTER, 0, number, to_milliseconds(NOW), key, value, tuple(headers)
            )
        one = rng.choice(self._made)
        plain = json.loads(one.value or b"null")
        value = one.value if rng.random() < 0.1 else written(rng, mutated(rng, plain, 0, 3))
        value = value if rng.random() < 0.98 else None
        topic = one.topic if rng.random() < 0.9 else rng.choice([*TopicName])
        time = rng.choice((to_milliseconds(NOW), to_milliseconds(NOW), 0, -1, 253_402_300_799_999))
        return TopicRecord(topic, 0, number, time, one.key, value, tuple(one.headers))

    def _board(self, records: Sequence[TopicRecord]) -> None:
        board = Board(clock=lambda: NOW)
        try:
            board.add(records)
            board.add(records)
            board.candidates()
            for person in SCOPES:
                board.pending(person, Query())
                board.counts(person)
                board.dead_letters(person)
                board.agreement(person, datetime(2026, 1, 1, tzinfo=UTC))
            board.settle({})
            board.forget(NOW)
        finally:
            board.close()

    async def _rebuilt(self, values: Sequence[bytes]) -> None:
        closings = Closings()
        for value in values:
            closings.note(value)

        async def read() -> AsyncIterator[bytes]:
            for value in values:
                yield value

        async for _ in stored_outcomes(read(), Policy(), closings):  # type: ignore[arg-type]
            pass

    async def _verified(self, value: bytes) -> None:
        verifier = Verifier(self._found, self._policies)
        finding = await verifier.verify(value)
        if finding.status is Status.EQUAL:
            recorded = json.loads(value)
            same = [one for one in self._decisions if all(one[name] == recorded[name] for name in _KNOWN)]
            told = [one[name] == recorded[name] for one in same[:1] for name in _TOLD]
            hold(all(told), "verified equal, though its verdict was changed")


_KNOWN: Final = ("decision_id", "facts", "policy")
_TOLD: Final = ("verdict", "tier", "approved", "reason_code", "checks_passed", "checks_failed", "evidence")


async def _everything() -> tuple[list[Output], list[bytes]]:
    """Let a gate decide, and people act, so that every kind of record is published."""
    office = Office()
    found: list[Output] = []
    values: list[bytes] = []
    rng = Random("published")  # the same for every run
    for number in range(12):
        value = json.dumps({**examples.claim(rng, number), "tenant_id": "default"}).encode()
        values.append(value)
        results = await office.results(office.record(value))
        found += outputs(results)
        decisions = [one.decision for one in results if isinstance(one, Decided)]
        office.publish(*decisions)
        for decision in decisions:
            kind = {"review": rng.choice(("approve", "reject", "edit")), "approved": "retract"}.get(
                decision.verdict
            )
            if kind:
                fields = {"content": "Water is wet"} if kind == "edit" else {}
                record = office.action(kind, decision, **fields)
                values.append(record.value or b"")
                found += outputs(await office.carry_out(record))
    for number in range(4):
        value = json.dumps({**examples.response(rng, number), "tenant_id": "default"}).encode()
        values.append(value)
        found += outputs(await office.results(office.record(value, topic="groundwire.llm-responses")))
    return found, values


@asynccontextmanager
async def _deferred() -> AsyncIterator[Case]:
    with listening() as heard:
        yield Deferred(heard)


@asynccontextmanager
async def _published() -> AsyncIterator[Case]:
    with listening() as heard, TemporaryDirectory() as folder:
        made, values = await _everything()
        case = Published(made, values, Path(folder), heard)
        heard()
        try:
            yield case
        finally:
            case.close()


ENTRIES: Final = (Entry("deferred", _deferred, 3), Entry("published", _published, 2))
