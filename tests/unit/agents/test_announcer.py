"""What happens to a worker's state and policy reaches the audit topic, once, under an id that it always has."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from agents.announcer import Announcer
from agents.outputs import Output
from agents.pauses import Pauses
from agents.recovery import Recovery
from groundwire.errors import BrokerUnavailable
from groundwire.messages.identity import event_id

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


class Broker:
    def __init__(self) -> None:
        self.away = False
        self.published: list[Output] = []

    async def publish(self, outputs):
        if self.away:
            raise BrokerUnavailable("away")
        self.published += outputs

    @property
    def events(self):
        return [json.loads(output.value or b"") for output in self.published]


class State:
    """Lost once, until it is rebuilt."""

    def __init__(self, epoch: str | None) -> None:
        self.epoch = epoch
        self.carried: str | None = None

    async def adopt_epoch(self):
        self.epoch = self.carried
        return self.epoch

    async def rebuild(self, *, only_lost: bool):
        assert only_lost
        self.carried = "new"
        return True


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def announcer(broker) -> Announcer:
    times = (NOW + timedelta(seconds=n) for n in range(100))
    return Announcer(broker, now=lambda: next(times))


async def test_an_event_of_a_worker_belongs_to_no_tenant_and_is_published_once(broker, announcer):
    announcer.tell("state_rebuilt", {"epoch": "e"})
    broker.away = True
    await announcer.publish()
    broker.away = False
    await announcer.publish()
    await announcer.publish()
    (output,) = broker.published
    assert (output.topic, output.key) == ("audit", b"")
    (event,) = broker.events
    assert (event["tenant_id"], event["actor"], event["subject_id"]) == ("", "groundwire", None)
    assert event["event_id"] == event_id("state_rebuilt", {"epoch": "e"})


async def test_what_can_come_again_is_told_by_its_time_and_what_cannot_is_the_same_event(broker, announcer):
    for recurs in (True, True, False, False):
        announcer.tell("policy_loaded", {"sha256": "s"}, recurs=recurs)
    await announcer.publish()
    one, two, three, four = [event["event_id"] for event in broker.events]
    assert len({one, two, three}) == 3
    assert three == four
    assert {json.dumps(event["detail"]) for event in broker.events} == {'{"sha256": "s"}'}


@pytest.mark.parametrize("known", ["old", None])
async def test_the_loss_of_state_and_its_rebuild_are_told_with_their_epochs(broker, announcer, known):
    state = State(known)
    recovery = Recovery(state, state, None, Pauses())  # type: ignore[arg-type]
    recovery.tell = announcer.tell
    await recovery.recover(_tenure())
    await announcer.publish()
    told = [(event["type"], event["detail"]["epoch"]) for event in broker.events]
    assert told == [("state_lost", known), ("state_rebuilt", "new")]


def _tenure():
    async def pause(_seconds: float) -> None:
        await asyncio.sleep(3600)

    return SimpleNamespace(over=False, pause=pause)
