"""Forgeries by whoever may write to output topics, and knows what excuses a record that no seal covers."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata

from groundwire.config import Settings
from groundwire.keys.file import new_key
from groundwire.keys.seal_keys import SealKeys
from groundwire.messages.base import format_time, to_milliseconds
from groundwire.messages.decisions import AuditEvent, Decision, Kind
from groundwire.messages.erasure import Erasure, Erasures
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.topics import TopicName
from groundwire.replay import seals
from groundwire.replay.seals import read_seals
from groundwire.replay.store import Store
from tests.unit.console.rooms import make_decision
from tests.unit.replay.test_seal_chains import NOW, Chain, retraction
from tests.unit.replay.test_seal_evidence import Desk, sealed

REVIEWS, CLAIMS = TopicName.REVIEW_DECISIONS, TopicName.CLAIMS
OWN_KEY = b"acme:ann"


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def tombstone(until: datetime) -> InboundRecord:
    headers = tuple(Erasure("acme", "ann", until).headers)
    return InboundRecord("t.retractions", 0, 0, 0, OWN_KEY, None, headers)


@pytest.mark.parametrize(
    ("behind", "age", "named"),
    [
        pytest.param(REVIEWS, timedelta(), False, id="of the topic that it comes of"),
        pytest.param(CLAIMS, timedelta(), True, id="of another topic"),
        pytest.param(REVIEWS, timedelta(hours=1), True, id="before what is under way"),
        pytest.param(REVIEWS, timedelta(days=-400), True, id="dated into the future"),
    ],
)
def test_a_retraction_without_a_seal_is_excused_by_what_is_under_way_now_alone(
    chain: Chain, behind: TopicName, age: timedelta, *, named: bool
):
    chain.evidence.under_way = {behind: NOW - timedelta(minutes=1)}
    forged = replace(retraction(OWN_KEY), timestamp=to_milliseconds(NOW - age))
    assert bool(chain.faults(forged)) is named


@pytest.mark.parametrize("key", [b"acme:bob", b"globex:ann", None])
def test_a_sealed_retraction_under_another_users_key_is_named(desk: Desk, key: bytes | None):
    true = retraction(OWN_KEY)
    evidence = desk.evidence(sealed(desk))
    evidence.note_published(true)
    before = len(list(evidence.faults()))
    evidence.note_published(replace(true, key=key, offset=2))
    assert len(list(evidence.faults())) == before + 1


def test_a_tombstone_excuses_no_retraction_of_a_later_time_whatever_its_header_says(chain: Chain):
    until = NOW - timedelta(hours=1)
    early = tuple(
        (name, format_time(until).encode() if name == "ce_time" else value)
        for name, value in retraction(OWN_KEY).headers
    )
    assert chain.faults(tombstone(until), replace(retraction(OWN_KEY), headers=early))


@pytest.mark.parametrize(
    ("detail", "named"),
    [
        pytest.param({"code": "invalid_json"}, True, id="of a worker"),
        pytest.param(
            {"code": "invalid_json", "letter": "x", "action": "redrive"}, False, id="of a redriving"
        ),
    ],
)
def test_a_dead_letters_event_needs_a_seal_but_not_the_note_that_somebody_sent_it_back(
    chain: Chain, detail: dict[str, str], *, named: bool
):
    event = AuditEvent(
        event_id="e",
        type="dead_letter",
        at=NOW,
        tenant_id="",
        actor="op",
        subject_id=None,
        decision_id=None,
        detail=detail,
    )
    record = InboundRecord("t.audit", 0, 0, 0, b"", event.model_dump_json().encode(), (("ce_id", b"e"),))
    assert bool(chain.faults(record)) is named


@pytest.mark.parametrize(("age", "is_lost"), [(1, False), (300, False), (340, True), (365, True)])
def test_a_beginning_of_audit_that_is_deleted_before_its_retention_is_no_excuse(
    desk: Desk, age: int, *, is_lost: bool
):
    evidence = desk.evidence(desk.history("deleted"), now=NOW + timedelta(days=age))
    assert evidence.has_lost_seals(7) is is_lost
    assert not evidence.has_lost_seals(0)


def decided(revision: int, at: datetime) -> bytes:
    told = make_decision("c1", revision=revision, verdict="approved")
    told |= {"tenant_id": "acme", "user_id": "ann", "decided_at": format_time(at)}
    told["decision_id"] = decision_id(Subject("acme", "ann", Kind.CLAIM, "c1"), revision)
    return Decision.model_validate(told).to_bytes()


@pytest.mark.parametrize(("erased", "is_superseded"), [(False, True), (True, False)])
def test_what_was_sealed_before_an_erasure_supersedes_nothing_behind_it(
    desk: Desk, *, erased: bool, is_superseded: bool
):
    evidence = desk.evidence(sealed(desk, decided(2, NOW)))
    if erased:
        evidence.note_published(tombstone(NOW + timedelta(minutes=1)))
    assert evidence.is_superseded(decided(1, NOW + timedelta(minutes=2))) is is_superseded


def test_what_is_erased_is_told_by_its_value_and_not_by_its_key_or_headers():
    erasures = Erasures()
    assert not erasures.cover_value(decided(1, NOW))
    erasures.note(tombstone(NOW))
    assert erasures.cover_value(decided(1, NOW))
    assert erasures.cover_value(retraction(b"nobody").value or b"")
    assert not erasures.cover_value(decided(1, NOW + timedelta(seconds=1)))
    told = json.loads(decided(1, NOW))
    for value in (b"", b"[" * 100_000, b"7", b"{}", json.dumps(told | {"decided_at": 7}).encode()):
        assert not erasures.cover_value(value)


class Broker:
    """Stands for the reader of `read_seals`: each topic is one partition, and holds the last records before `end`."""

    def __init__(self, held: Mapping[str, list[InboundRecord]], end: int) -> None:
        self._held, self._end = held, end
        self.positions: dict[TopicPartition, int] = {}

    async def ends(self, *topics: str) -> dict[TopicPartition, int]:
        return {TopicPartition(topic, 0): self._end if topic in self._held else 0 for topic in topics}

    async def offsets(self, _start: str, ends: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {each: end - len(self._held.get(each.topic, ())) for each, end in ends.items()}

    async def begin(self, starts: Mapping[str, str], **_continued: object) -> None:
        self.seek(dict.fromkeys(await self.ends(*starts), 0), {})

    def seek(self, begin: dict[TopicPartition, int], _ends: dict[TopicPartition, int]) -> None:
        self.positions = dict(begin)

    async def rest(self) -> AsyncGenerator[list[InboundRecord], None]:
        for each, first in self.positions.items():
            yield [record for record in self._held.get(each.topic, ()) if record.offset >= first]


HOUR, DAY, YEAR = timedelta(hours=1), timedelta(days=1), timedelta(days=365)


@pytest.mark.parametrize(
    ("committed", "kept", "age", "named"),
    [
        pytest.param(5, [YEAR] * 5, 300 * DAY, True, id="all is committed"),
        pytest.param(5, [YEAR] * 5, timedelta(), True, id="all is committed, and it is of now"),
        pytest.param(3, [YEAR, YEAR, YEAR, HOUR, HOUR], DAY, True, id="before what is not committed"),
        pytest.param(3, [YEAR, YEAR, YEAR, HOUR, HOUR], timedelta(), False, id="of what is not committed"),
        pytest.param(None, [DAY, HOUR], 300 * DAY, True, id="before all that is kept"),
        pytest.param(None, [DAY, HOUR], HOUR, False, id="of what is kept"),
        pytest.param(2, [DAY, HOUR], HOUR, False, id="retention has taken what is not committed"),
        pytest.param(3, [], HOUR, True, id="nothing is kept"),
        pytest.param(None, [-YEAR], timedelta(), False, id="the input is dated into the future"),
        pytest.param(None, [10_000 * YEAR], timedelta(), False, id="the input is dated before all times"),
    ],
)
async def test_where_nothing_was_sealed_yet_a_retraction_is_excused_by_what_its_group_has_not_committed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    committed: int | None,
    kept: list[timedelta],
    age: timedelta,
    *,
    named: bool,
):
    now, end = datetime.now(UTC), 5
    dated = [to_milliseconds(now) - each // timedelta(milliseconds=1) for each in kept]
    inputs = [
        InboundRecord("t.review-decisions", 0, end - len(dated) + n, time, None, b"")
        for n, time in enumerate(dated)
    ]
    forged = replace(retraction(OWN_KEY), timestamp=to_milliseconds(now - age))
    broker = Broker({"t.review-decisions": inputs, "t.retractions": [forged]}, end)

    @asynccontextmanager
    async def reader(*_arguments: object) -> AsyncIterator[Broker]:
        yield broker

    async def told(_brokers: str, group: str, *_: object) -> dict[TopicPartition, OffsetAndMetadata]:
        partition = TopicPartition("t.review-decisions", 0)
        is_known = group.endswith("reviews") and committed is not None
        return {partition: OffsetAndMetadata(committed, "")} if is_known else {}

    monkeypatch.setattr(seals, "open_reader", reader)
    monkeypatch.setattr(seals, "committed_of", told)
    new_key(tmp_path / "keys.toml", "gate", tenants=[], roles=["seal"], asymmetric=True)
    evidence = await read_seals(Settings(topic_prefix="t."), SealKeys(tmp_path / "keys.toml"), Store(None))
    assert [fault.kind for fault in evidence.faults()] == ["unsealed"] * named
