"""What the benchmark of latency sends, and at which rate, without a worker."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import AsyncMock

from bench.claims import claims
from bench.parts import latency
from bench.processes import Speed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

REACHED = 1_200.0


async def test_half_load_is_half_of_what_the_same_worker_reached_before_and_follows_single_claims(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[str, str, float]] = []
    workers: list[Any] = []

    @asynccontextmanager
    async def running(commands: Any, _given: Any) -> AsyncIterator[list[int]]:
        workers.append(commands)
        yield []

    @asynccontextmanager
    async def watching(*_words: Any, **_settings: Any) -> AsyncIterator[Any]:
        yield AsyncMock(speed=AsyncMock(return_value=Speed(REACHED, 0.0)))

    async def taken(
        _bootstrap: str, topic: str, _consumer: Any, name: str, count: int, rate: float
    ) -> list[float]:
        sent.append((topic, name, rate))
        return [1.0] * count

    for name, fake in {
        "running": running,
        "watching": watching,
        "declare": AsyncMock(),
        "fill": AsyncMock(),
        "AIOKafkaConsumer": watching,
        "_taken": taken,
    }.items():
        monkeypatch.setattr(latency, name, fake)
    turn = await latency._turn("b", "r", "x.", 4_000, 50)
    assert sent == [("x.claims", "lone", 10.0), ("x.claims", "half", REACHED / 2)]
    assert len(workers) == 1
    assert (turn.rate, len(turn.lone)) == (REACHED / 2, 50)


def test_no_stretch_repeats_a_text_of_another_so_that_none_is_decided_as_a_duplicate_of_it() -> None:
    texts = [
        {json.loads(value)["content"] for _, value in claims(1_000, name=name, seed=seed)}
        for name, seed in latency._SEEDS.items()
    ]
    assert len(set.union(*texts)) == sum(map(len, texts))


def test_what_ninety_nine_of_a_hundred_took_is_never_more_than_the_slowest_took() -> None:
    assert latency._cut(list(range(50)), 50) == 24.5
    assert latency._cut([1.0] * 49 + [9.0], 99) <= 9.0
