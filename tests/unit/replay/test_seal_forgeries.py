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
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.erasure import Erasure, Erasures
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.topics import TopicName
from groundwire.replay import seals
from groundwire.replay.seals import read_seals
from groundwire.replay.store import Store
from tests.unit.replay.sealing import NOW, OWN_KEY, Chain, Desk, decided, retraction

REVIEWS, CLAIMS = TopicName.REVIEW_DECISIONS, TopicName.CLAIMS


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def tombstone(until: datetime) -> InboundRecord:
    headers = tuple(Erasure("acme", "ann", until).headers)
    return InboundRecord("t.retractions", 0, 0, 0, OWN_KEY, None, headers)


def of_ann(revision: int, at: datetime) -> bytes:
    name = decision_id(Subject("acme", "ann", Kind.CLAIM, "c1"), revision)
    who = {"tenant_id": "acme", "user_id": "ann", "decided_at": format_time(at)}
    return decided(revision, decision_id=name, **who)


def test_a_retraction_without_a_seal_is_excused_by_what_is_under_way_now_alone(tmp_path: Path):
    for why, behind, age, named in (
        ("of the topic that it comes of", REVIEWS, timedelta(), False),
        ("of another topic", CLAIMS, timedelta(), True),
        ("before what is under way", REVIEWS, timedelta(hours=1), True),
        ("dated into the future", REVIEWS, timedelta(days=-400), True),
    ):
        chain = Chain(tmp_path)
        chain.evidence.under_way = {behind: NOW - timedelta(minutes=1)}
        forged = replace(retraction(), timestamp=to_milliseconds(NOW - age))
        assert bool(chain.faults(forged)) is named, why


def test_a_sealed_retraction_under_another_users_key_is_named(desk: Desk):
    evidence = desk.evidence(desk.sealed())
    evidence.note_published(retraction())
    before = len(list(evidence.faults()))
    for number, key in enumerate((b"acme:bob", b"globex:ann", None), 1):
        evidence.note_published(replace(retraction(), key=key, offset=1 + number))
        assert len(list(evidence.faults())) == before + number


def test_a_tombstone_excuses_what_it_erases_of_its_own_user_up_to_its_time_alone(tmp_path: Path):
    early = NOW - timedelta(hours=1)
    dated = tuple(
        (name, format_time(early).encode() if name == "ce_time" else value)
        for name, value in retraction().headers
    )
    event = {"at": NOW, "tenant_id": "acme", "actor": "dpo", "subject_id": None, "decision_id": None}

    def audited(kind: str) -> InboundRecord:
        name, detail = event_id(kind, own.id), {"action": "erase", "tombstone": own.id}
        told = AuditEvent.model_validate(event | {"event_id": name, "type": kind, "detail": detail})
        return InboundRecord(
            "t.audit", 0, 5, 0, b"acme", told.model_dump_json().encode(), (("ce_id", name.encode()),)
        )

    own = Erasure("acme", "ann", NOW)
    for why, erasure, record, named in (
        ("a retraction of its user", own, retraction(), False),
        ("of another user", Erasure("acme", "nobody", NOW), retraction(b"acme:nobody"), True),
        (
            "whatever its header says",
            Erasure("acme", "ann", early),
            replace(retraction(), headers=dated),
            True,
        ),
        ("its own event", own, audited("retraction"), False),
        ("an event of another user's", Erasure("acme", "bob", NOW), audited("retraction"), True),
        ("another event", own, audited("refused_action"), True),
    ):
        key, headers = f"acme:{erasure.user_id}".encode(), tuple(erasure.headers)
        stands = InboundRecord("t.retractions", 0, 0, 0, key, None, headers)
        assert bool(Chain(tmp_path).faults(stands, record)) is named, why


def test_a_dead_letters_event_needs_a_seal_but_not_the_note_that_somebody_sent_it_back(chain: Chain):
    for number, (redriven, named) in enumerate((({"letter": "x", "action": "redrive"}, 0), ({}, 1))):
        event = AuditEvent(
            event_id=str(number),
            type="dead_letter",
            at=NOW,
            tenant_id="",
            actor="op",
            subject_id=None,
            decision_id=None,
            detail={"code": "invalid_json", **redriven},
        )
        value, headers = event.model_dump_json().encode(), (("ce_id", str(number).encode()),)
        assert len(chain.faults(InboundRecord("t.audit", 0, number, 0, b"", value, headers))) == named


def test_what_was_sealed_before_an_erasure_supersedes_nothing_behind_it(desk: Desk):
    evidence = desk.evidence(desk.sealed(of_ann(2, NOW)))
    later = of_ann(1, NOW + timedelta(minutes=2))
    assert evidence.is_superseded(later)
    evidence.note_published(tombstone(NOW + timedelta(minutes=1)))
    assert not evidence.is_superseded(later)


def test_what_is_erased_is_told_by_its_value_and_not_by_its_key_or_headers():
    erasures = Erasures()
    assert not erasures.cover_value(of_ann(1, NOW))
    erasures.note(tombstone(NOW))
    assert erasures.cover_value(of_ann(1, NOW))
    assert erasures.cover_value(retraction(b"nobody").value or b"")
    assert not erasures.cover_value(of_ann(1, NOW + timedelta(seconds=1)))
    told = json.loads(of_ann(1, NOW))
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


async def test_where_nothing_was_sealed_yet_a_retraction_is_excused_by_what_its_group_has_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    now, end, partition = datetime.now(UTC), 5, TopicPartition("t.review-decisions", 0)
    new_key(tmp_path / "keys.toml", "gate", tenants=[], roles=["seal"], asymmetric=True)
    keys = SealKeys(tmp_path / "keys.toml")
    for why, committed, kept, age, named in (
        ("all is committed", 5, [YEAR] * 5, 300 * DAY, True),
        ("all is committed, and it is of now", 5, [YEAR] * 5, timedelta(), True),
        ("before what is not committed", 3, [YEAR, YEAR, YEAR, HOUR, HOUR], DAY, True),
        ("of what is not committed", 3, [YEAR, YEAR, YEAR, HOUR, HOUR], timedelta(), False),
        ("before all that is kept", None, [DAY, HOUR], 300 * DAY, True),
        ("of what is kept", None, [DAY, HOUR], HOUR, False),
        ("retention has taken what is not committed", 2, [DAY, HOUR], HOUR, False),
        ("nothing is kept", 3, [], HOUR, True),
        ("the input is dated into the future", None, [-YEAR], timedelta(), False),
        ("the input is dated before all times", None, [10_000 * YEAR], timedelta(), False),
    ):
        dated = [to_milliseconds(now) - each // timedelta(milliseconds=1) for each in kept]
        inputs = [
            InboundRecord(partition.topic, 0, end - len(dated) + n, time, None, b"")
            for n, time in enumerate(dated)
        ]
        forged = replace(retraction(), timestamp=to_milliseconds(now - age))
        broker = Broker({partition.topic: inputs, "t.retractions": [forged]}, end)

        @asynccontextmanager
        async def reader(*_arguments: object, broker: Broker = broker) -> AsyncIterator[Broker]:
            yield broker

        async def told(_brokers: str, group: str, *_: object, committed: int | None = committed) -> object:
            is_known = group.endswith("reviews") and committed is not None
            return {partition: OffsetAndMetadata(committed, "")} if is_known else {}

        monkeypatch.setattr(seals, "open_reader", reader)
        monkeypatch.setattr(seals, "committed_of", told)
        evidence = await read_seals(Settings(topic_prefix="t."), keys, Store(None))
        assert [fault.kind for fault in evidence.faults()] == ["unsealed"] * named, why
