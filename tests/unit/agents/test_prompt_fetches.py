"""How long a worker's fetch may keep records of other partitions waiting."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agents.app import build_app
from agents.departure import PunctualThread
from agents.fetching import FETCH_WAIT, PromptApp, PromptConsumer, PromptThread
from groundwire.settings import Settings


def test_a_busy_partition_waits_a_tenth_of_a_second_at_most_for_a_fetch_of_silent_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_faust_makes_it: Any = SimpleNamespace(_fetch_max_wait_ms=1500)
    monkeypatch.setattr(PunctualThread, "_create_worker_consumer", lambda *_: as_faust_makes_it)
    consumer = PromptThread.__new__(PromptThread)._create_worker_consumer(None)
    assert consumer._fetch_max_wait_ms == FETCH_WAIT == 100


def test_workers_fetch_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(build_app("claims", Settings()), PromptApp)
    assert build_app("claims", Settings())._new_transport().Consumer is PromptConsumer
    monkeypatch.setattr(PunctualThread, "__init__", lambda *_made, **_options: None)
    consumer: Any = SimpleNamespace(loop=None, beacon=None)
    assert isinstance(PromptConsumer._new_consumer_thread(consumer), PromptThread)
