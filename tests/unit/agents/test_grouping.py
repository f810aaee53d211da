"""Small batches that are processed together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.grouping import MOST, Grouped
from groundwire.errors import StateUnavailable

Call = Callable[[Sequence[int]], Awaitable[list[int]]]


def doubling(calls: list[list[int]]) -> Call:
    async def call(items: Sequence[int]) -> list[int]:
        calls.append(list(items))
        await asyncio.sleep(0)
        return [2 * item for item in items]

    return call


@given(st.lists(st.lists(st.integers(), max_size=MOST + 50), max_size=20), st.lists(st.integers(0, 3)))
def test_each_caller_gets_the_results_of_its_own_items(batches: list[list[int]], pauses: list[int]) -> None:
    calls: list[list[int]] = []
    grouped = Grouped(doubling(calls))

    async def ask(batch: list[int], turns: int) -> list[int]:
        for _ in range(turns):
            await asyncio.sleep(0)
        return await grouped(batch)

    async def ask_all() -> list[list[int]]:
        turns = pauses + [0] * len(batches)
        return await asyncio.gather(*[ask(batch, turns[at]) for at, batch in enumerate(batches)])

    assert asyncio.run(ask_all()) == [[2 * item for item in batch] for batch in batches]
    assert all(len(call) <= MOST or call in batches for call in calls)


async def test_what_comes_during_a_call_is_called_for_together() -> None:
    calls: list[list[int]] = []
    begun, going = asyncio.Event(), asyncio.Event()

    async def call(items: Sequence[int]) -> list[int]:
        calls.append(list(items))
        begun.set()
        await going.wait()
        return list(items)

    grouped = Grouped(call)
    first = asyncio.create_task(grouped([0]))
    await begun.wait()
    others = [asyncio.create_task(grouped([number])) for number in range(1, 4)]
    await asyncio.sleep(0)
    going.set()
    await asyncio.gather(first, *others)
    assert calls == [[0], [1, 2, 3]]


async def test_whoever_waits_for_a_call_that_is_cancelled_waits_no_longer() -> None:
    grouped = Grouped(doubling([]))
    waiting = asyncio.create_task(grouped([1]))
    await asyncio.sleep(0)
    assert grouped._calling is not None
    await asyncio.sleep(0)
    grouped._calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_batch_of_half_a_group_waits_for_no_other() -> None:
    calls: list[list[int]] = []
    grouped = Grouped(doubling(calls))
    large = list(range(MOST // 2))
    await asyncio.gather(grouped([1]), grouped(large))
    assert large in calls


async def test_a_fault_over_one_batch_is_raised_to_its_caller_alone() -> None:
    async def call(items: Sequence[int]) -> list[int]:
        if 13 in items:
            raise ValueError
        return list(items)

    grouped = Grouped(call)
    found = await asyncio.gather(grouped([1, 2]), grouped([13]), grouped([3]), return_exceptions=True)
    assert found[0] == [1, 2]
    assert isinstance(found[1], ValueError)
    assert found[2] == [3]


async def test_state_that_does_not_answer_is_asked_once_for_all() -> None:
    calls = 0

    async def call(_: Sequence[int]) -> list[int]:
        nonlocal calls
        calls += 1
        raise StateUnavailable

    grouped = Grouped(call)
    found = await asyncio.gather(grouped([1]), grouped([2]), return_exceptions=True)
    assert [type(one) for one in found] == [StateUnavailable] * 2
    assert calls == 1


async def test_a_caller_that_is_cancelled_leaves_the_others_their_results() -> None:
    grouped = Grouped(doubling([]))
    cancelled, other = asyncio.create_task(grouped([1])), asyncio.create_task(grouped([2]))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await other == [4]
    with pytest.raises(asyncio.CancelledError):
        await cancelled
