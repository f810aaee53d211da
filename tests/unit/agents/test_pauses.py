"""Readiness says whether a worker decides, liveness whether a restart would help."""

from __future__ import annotations

import pytest

from agents.pauses import Pauses
from agents.tenure import Released, Tenure

PATIENCE = 120.0


@pytest.fixture
def time() -> list[float]:
    return [1000.0]


@pytest.fixture
def pauses(time: list[float]) -> Pauses:
    return Pauses(lambda: time[0])


def test_a_worker_is_ready_once_it_has_joined_and_while_it_waits_for_nothing(pauses: Pauses):
    assert not pauses.ready()
    pauses.partitions = 0
    assert pauses.ready()
    pauses.begin("state")
    assert not pauses.ready()
    pauses.end("state")
    assert pauses.ready()


def test_an_event_loop_that_stands_still_is_dead(pauses: Pauses, time: list[float]):
    time[0] += PATIENCE + 1
    assert not pauses.alive(PATIENCE)
    pauses.tick()
    assert pauses.alive(PATIENCE)


def test_work_that_does_not_get_on_is_dead_unless_it_is_known_why(pauses: Pauses, time: list[float]):
    pauses.under_way = 1
    time[0] += PATIENCE + 1
    pauses.tick()
    assert not pauses.alive(PATIENCE)
    pauses.begin("broker")
    assert pauses.alive(PATIENCE)
    pauses.end("broker")
    pauses.progress()
    assert pauses.alive(PATIENCE)


def test_an_idle_worker_is_alive_however_long_it_idles(pauses: Pauses, time: list[float]):
    time[0] += 10 * PATIENCE
    pauses.tick()
    assert pauses.alive(PATIENCE)


def test_work_that_has_only_begun_is_given_time(pauses: Pauses, time: list[float]):
    time[0] += 10 * PATIENCE
    pauses.tick()
    pauses.starts()
    assert pauses.alive(PATIENCE)


async def test_a_pause_for_good_ends_with_the_tenure(pauses: Pauses):
    tenure = Tenure()
    tenure.end()
    with pytest.raises(Released):
        await pauses.wait_if("dead_letters", lambda: True, tenure)
    assert pauses.current == {"dead_letters"}


async def test_a_pause_ends_with_its_cause(pauses: Pauses):
    pauses.begin("dead_letters")
    await pauses.wait_if("dead_letters", lambda: False, Tenure())
    assert not pauses.current
