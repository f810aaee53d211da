"""What runs alone after crashes, and when the note of it is written."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.crashes import CrashGuard
from groundwire.errors import StateUnavailable
from groundwire.messages.inbound import InboundRecord
from groundwire.state.model import Mark


class Marks:
    """State, as far as the guard uses it; `delay`, seconds until something is sent, `answer`, until it is answered."""

    def __init__(self, left: Mark | None = None, delay: float = 0.0, answer: float = 0.0) -> None:
        self.mark_held = left
        self.delay = delay
        self.answer = answer
        self.broken = False
        self.answered = left

    async def marks(self, topic, partition):
        if self.broken:
            raise StateUnavailable("gone")
        return self.mark_held

    async def mark(self, topic, partition, mark, *, written=lambda: None):
        await asyncio.sleep(self.delay)
        if self.broken:
            raise StateUnavailable("gone")
        written()
        self.mark_held = mark
        await asyncio.sleep(self.answer)
        self.answered = mark

    async def unmark(self, topic, partition):
        await self.mark(topic, partition, None)


def records(first: int, last: int) -> list[InboundRecord]:
    return [InboundRecord("t", 0, offset, 0, None, b"") for offset in range(first, last + 1)]


async def guard(left: Mark | None) -> CrashGuard:
    made = CrashGuard(Marks(left), "t", 0)
    await made.read()
    return made


def shape(portions):
    return [(portion[0].offset, portion[-1].offset, crashes) for portion, crashes in portions]


async def test_without_a_crash_a_batch_runs_as_one():
    assert shape((await guard(None)).portions(records(0, 9))) == [(0, 9, 0)]


async def test_after_one_crash_a_batch_still_runs_as_one_and_is_marked_so():
    assert shape((await guard(Mark(0, 4, 0))).portions(records(0, 9))) == [(0, 9, 1)]


async def test_after_two_crashes_the_suspects_run_alone_and_the_others_in_their_place():
    portions = (await guard(Mark(3, 4, 1))).portions(records(0, 9))
    assert shape(portions) == [(0, 2, 0), (3, 3, 2), (4, 4, 2), (5, 9, 0)]


async def test_suspects_are_remembered_over_several_batches():
    after = await guard(Mark(0, 9, 1))
    assert len(after.portions(records(0, 3))) == 4
    assert shape(after.portions(records(4, 5))) == [(4, 4, 2), (5, 5, 2)]
    assert shape(after.portions(records(10, 12))) == [(10, 12, 0)]
    assert shape(after.portions(records(13, 14))) == [(13, 14, 0)]


@given(
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 4),
    st.lists(st.integers(1, 8), min_size=1, max_size=8),
)
def test_portions_are_the_batch_in_its_order_and_every_suspect_carries_its_crashes(
    first, more, crashes, sizes
):
    async def run() -> None:
        left = Mark(first, first + more, crashes)
        after = await guard(left)
        begin = 0
        for size in sizes:
            batch = records(begin, begin + size - 1)
            portions = after.portions(batch)
            assert [record for portion, _ in portions for record in portion] == batch
            for portion, survived in portions:
                suspects = [r for r in portion if left.first <= r.offset <= left.last]
                if suspects:
                    assert survived == crashes + 1
                    assert len(portion) == 1 or survived < 2
            begin += size

    asyncio.run(run())


async def test_the_note_is_sent_before_the_records_are_touched_and_its_answer_waited_for_after_a_crash():
    state = Marks(delay=0.01, answer=0.01)
    entered = CrashGuard(state, "t", 0)
    await entered.enter(records(3, 7), 0)
    assert (state.mark_held, state.answered) == (Mark(3, 7, 0), None)
    await entered.enter(records(3, 7), 1)
    assert state.answered == Mark(3, 7, 1)


async def test_a_batch_that_is_given_up_alive_leaves_no_note():
    state = Marks(delay=0.01)
    entered = CrashGuard(state, "t", 0)
    await entered.enter(records(3, 7), 1)
    await entered.let_go()
    assert state.mark_held is None


async def test_a_note_is_not_held_up_by_the_answer_to_the_one_before():
    state = Marks(answer=60.0)
    entered = CrashGuard(state, "t", 0)
    async with asyncio.timeout(2):
        await entered.enter(records(0, 1), 0)
        entered.leave()
        await entered.enter(records(2, 3), 0)
    assert state.mark_held == Mark(2, 3, 0)
    for noting in entered._sending:
        noting.cancel()


@pytest.mark.parametrize("delay", [0.0, 60.0])
async def test_state_that_takes_no_note_holds_up_nothing(delay):
    state = Marks(delay=delay)
    state.broken = True
    entered = CrashGuard(state, "t", 0)
    async with asyncio.timeout(2):
        await entered.read()
        await entered.enter(records(0, 1), 0)
        await entered.let_go()
    assert shape(entered.portions(records(0, 1))) == [(0, 1, 0)]
    for noting in entered._sending:
        noting.cancel()
