"""The cache of one process: what only it can do wrong. What both caches promise is in tests/state."""

import math
import sys
import threading

from groundwire.library.query_cache import QueryCache
from tests.state.query_caches import response


def test_an_entry_is_served_to_the_last_instant_and_no_longer_for_a_clock_that_is_set_back():
    for moment, served in (
        (math.nextafter(120, 0), True),
        *((one, False) for one in (120, -1, -3600, math.nan)),
    ):
        cache = QueryCache(clock=iter([0.0, *[moment] * 9]).__next__)
        cache.set("k", response(), mode="instant", scope="x")
        assert (cache.get("k") is not None) is served, moment


def test_nothing_is_left_of_entries_that_are_gone():
    now = [0.0]
    cache = QueryCache(3, clock=lambda: now[0])
    for number in range(50):
        now[0] += 50
        mode = ["instant", "auto", "thinking"][number % 3]
        cache.set(f"k{number % 7}", response(), mode=mode, scope=f"s{number}")
    now[0] += 900
    cache.set("new", response(), scope="new")
    assert list(cache._kept) == ["new"], "without being asked for"
    now[0] += 900
    assert cache.invalidate_scope("any") == len(cache._kept) == 0


def test_threads_may_share_it():
    cache, errors, interval = QueryCache(5), [], sys.getswitchinterval()

    def use(number):
        try:
            for turn in range(300):
                cache.set(f"k{turn % 9}", response(), scope=f"s{turn % 3}")
                cache.get(f"k{(turn + number) % 9}")
                cache.invalidate_scope(f"s{number % 3}")
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert len(cache._kept) <= 5


def test_a_cache_keeps_only_what_held_and_says_why_it_refuses():
    counts = {"sourcesVerified": 1, "sourcesTotal": 1, "fieldsVerified": 0, "fieldsTotal": 0}
    good = {"answer": "5", "confidence": 0.9, "warnings": [], "validation": counts}
    for changed, why in [
        ({}, None),
        ({"confidence": 0.2}, "low_confidence"),
        ({"warnings": [{"type": "UNSUPPORTED_VALUE"}]}, "unsupported"),
        ({"validation": {"sourcesVerified": 1, "sourcesTotal": 2}}, "unsupported"),
        ({"validation": {"fieldsVerified": 0, "fieldsTotal": 1}}, "unsupported"),
        ({"validation": None}, "unvalidated"),
        ({"answer": (n for n in "ab")}, "unstorable"),
    ]:
        cache = QueryCache()
        assert cache.set("k", good | changed) is (why is None)
        assert cache.why_refused(good | changed) == why
