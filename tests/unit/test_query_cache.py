"""The cache of one process: what only it can do wrong. What both caches promise is in tests/state."""

import doctest
import math
import sys
import threading

import pytest

from groundwire.library import query_cache
from groundwire.library.query_cache import QueryCache, refusal, response_of
from tests.state.query_caches import response


def test_the_example_in_the_documentation_runs():
    result = doctest.testmod(query_cache)
    assert (result.failed, result.attempted > 0) == (0, True)


def test_to_the_last_instant_before_its_end_an_entry_is_served():
    now = [0.0]
    cache = QueryCache(clock=lambda: now[0])
    cache.set("k", response(), mode="instant")
    now[0] = math.nextafter(120, 0)
    assert cache.get("k")
    now[0] = 120.0
    assert cache.get("k") is None


def test_a_clock_that_is_set_back_makes_no_answer_live_longer():
    for moment in (-1.0, -3600.0, math.nan):
        cache = QueryCache(clock=iter([0.0, *[moment] * 9]).__next__)
        cache.set("k", response(), scope="x")
        assert cache.get("k") is None


def test_nothing_is_left_of_entries_that_are_gone():
    now = [0.0]
    cache = QueryCache(3, clock=lambda: now[0])
    for number in range(50):
        now[0] += 50
        cache.set(
            f"k{number % 7}", response(), mode=["instant", "auto", "thinking"][number % 3], scope=f"s{number}"
        )
    now[0] += 900
    assert cache.invalidate_scope("any") == 0
    assert len(cache._kept) == 0


def test_answers_past_their_time_are_let_go_of_without_being_asked_for():
    now = [0.0]
    cache = QueryCache(clock=lambda: now[0])
    for number in range(10):
        cache.set(f"k{number}", response(), mode="instant")
    now[0] = 120.0
    cache.set("new", response())
    assert list(cache._kept) == ["new"]


@pytest.fixture
def hasty_threads():
    """Threads that take turns as often as can be."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def test_threads_may_share_it(hasty_threads):
    cache = QueryCache(5)
    errors = []

    def use(number):
        try:
            for turn in range(300):
                cache.set(f"k{turn % 9}", response(), scope=f"s{turn % 3}")
                cache.get(f"k{(turn + number) % 9}")
                cache.invalidate_scope(f"s{number % 3}")
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(cache._kept) <= 5


def test_a_response_that_is_no_mapping_is_an_error_of_the_caller():
    for value in [[], None, "text"]:
        with pytest.raises((TypeError, AttributeError)):
            QueryCache().set("k", value)


def decision(**fields):
    report = {"confidence": 0.8, "warnings": [], "validation": {"sourcesVerified": 1, "confidence": 0.8}}
    return {"kind": "response", "verdict": "approved", "truncated": None, "report": report, **fields}


def test_a_decision_becomes_a_response_that_a_cache_takes():
    for verdict in ["approved", "review"]:
        made = response_of(decision(verdict=verdict, truncated={"checks_passed": 3}), "5 [source:1]")
        assert made == {"answer": "5 [source:1]", **decision()["report"]}
        assert QueryCache().set("k", made)


def test_a_decision_that_must_not_be_served_is_refused():
    for fields in [
        {"verdict": "blocked"},
        {"kind": "claim"},
        {"report": None},
        {"truncated": {"warnings": 2}},
        {"truncated": {"report.warnings": 2}},
        {"report": {"confidence": 0.8, "warnings": [{"type": "PHANTOM_FILE"}], "validation": {"a": 1}}},
    ]:
        assert refusal(response_of(decision(**fields), "5")) is not None
