"""Recent outcomes are asserted again exactly where another server may have forgotten them."""

# ruff: noqa: ARG005 - stand-ins take what the real parts take

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agents import reassertion as module
from agents.reassertion import WINDOW, Reassertion
from groundwire.errors import BrokerUnavailable, StateUnavailable


class Bench:
    def __init__(self) -> None:
        self.now = 10_000.0
        self.server: str | None = "one"
        self.values = [b"a", b"b", b"c"]
        self.read_since: list[datetime] = []
        self.asserted: list[object] = []
        self.unreadable = False
        self.subject = Reassertion(
            self, None, self.read, self.ask, clock=lambda: self.now  # type: ignore[arg-type]
        )  # fmt: skip

    async def read(self, since):
        self.read_since.append(since)
        if self.unreadable:
            raise BrokerUnavailable("away")
        for value in self.values:
            yield value

    async def ask(self):
        return self.server

    async def reassert(self, outcomes):
        self.asserted += outcomes
        return len(outcomes)

    async def outage(self, server: str | None) -> None:
        await self.subject.before_step()
        self.subject.answered()
        self.subject.failed()
        self.server = server
        await self.subject.before_step()


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(module, "stored_outcome", lambda value, policy: None if value == b"b" else value)
    monkeypatch.setattr(module, "_CHUNK", 1)
    return Bench()


async def test_a_worker_that_has_asked_nothing_yet_asserts_nothing(bench: Bench):
    await bench.subject.before_step()
    assert not bench.read_since


async def test_the_same_server_has_forgotten_nothing(bench: Bench):
    await bench.outage("one")
    assert not bench.read_since


@pytest.mark.parametrize("server", ["two", None])
async def test_another_server_is_told_what_was_published_in_the_minute_before_the_last_answer(bench, server):
    await bench.outage(server)
    assert bench.read_since == [datetime.fromtimestamp(10_000 - WINDOW, UTC)]
    assert bench.asserted == [b"a", b"c"]


async def test_a_server_that_does_not_tell_its_name_counts_as_another_every_time(bench: Bench):
    bench.server = None
    await bench.outage(None)
    assert bench.asserted == [b"a", b"c"]


async def test_it_is_told_once(bench: Bench):
    await bench.outage("two")
    await bench.subject.before_step()
    assert len(bench.read_since) == 1


async def test_where_the_topics_cannot_be_read_nothing_is_asked_of_state(bench: Bench):
    bench.unreadable = True
    with pytest.raises(StateUnavailable):
        await bench.outage("two")
    bench.unreadable = False
    await bench.subject.before_step()
    assert bench.asserted == [b"a", b"c"]
