"""What both validated-response caches promise: in memory and in Redis (S2-28..S2-34, S2-42, C-47)."""

import math
from collections.abc import AsyncIterator

import pytest

from groundwire import metrics
from groundwire.state.server import connect
from tests.state.conftest import SERVERS
from tests.state.query_caches import START, InMemory, InRedis, response

FIELDS = {"type": "UNVERIFIED_FIELDS", "message": "Unverified fields: [topK]"}


@pytest.fixture(params=["memory", "redis", "cluster"])
async def make(request, prefix: str) -> AsyncIterator:
    """Makes caches of one kind."""
    if request.param == "memory":
        yield InMemory
        return
    server = request.getfixturevalue(f"redis_{SERVERS[request.param]}")
    redis = connect(server.url)
    yield lambda max_entries=1000: InRedis(redis, prefix, max_entries)
    await redis.aclose()


@pytest.fixture
def cache(make) -> InMemory | InRedis:
    return make()


@pytest.fixture
def counted():
    """Says by how much the counters of the cache have grown."""
    families = (metrics.QUERY_CACHE_GETS, metrics.QUERY_CACHE_SETS, metrics.QUERY_CACHE_DROPPED)

    def read():
        samples = [sample for family in families for metric in family.collect() for sample in metric.samples]
        return {next(iter(s.labels.values())): s.value for s in samples if s.name.endswith("_total")}

    before = read()
    return lambda: {name: n - before.get(name, 0) for name, n in read().items() if n != before.get(name, 0)}


async def test_an_entry_has_the_response_and_the_times(cache):
    assert await cache.get("k") is None
    assert await cache.set("k", response(sources=[{"file": "a.md"}])) is True
    entry = await cache.get("k")
    assert entry.response == response(sources=[{"file": "a.md"}])
    assert (entry.timestamp, entry.validated_at) == (START, START)


@pytest.mark.parametrize("confidence", [0.3, 0.30000000000000004, 0.5, 1, 1.0])
async def test_from_a_confidence_of_three_tenths_on_a_response_is_kept(cache, confidence):
    assert await cache.set("k", response(confidence=confidence)) is True
    assert (await cache.get("k")).response["confidence"] == confidence


@pytest.mark.parametrize(
    "confidence",
    [0.29, math.nextafter(0.3, 0), 0, 0.0, -1, 1.01, 85, math.nan, math.inf, True, "0.9", None, [0.9], {}],
)
async def test_below_it_or_without_one_that_can_be_read_it_is_refused(cache, counted, confidence):
    assert await cache.set("k", response(confidence=confidence)) is False
    unsure = response()
    del unsure["confidence"]
    assert await cache.set("k", unsure) is False
    assert await cache.get("k") is None
    assert counted() == {"low_confidence": 2, "miss": 1}


@pytest.mark.parametrize("kind", ["UNVERIFIED_FIELDS", "PHANTOM_FILE", "SNIPPET_MISMATCH"])
async def test_a_response_with_something_invented_is_refused(cache, counted, kind):
    warnings = [{"type": "STALE_INDEX", "message": "old"}, {"type": kind, "message": "made up"}]
    assert await cache.set("k", response(warnings=warnings)) is False
    assert counted() == {kind.lower(): 1}


async def test_other_warnings_keep_no_response_out_and_they_may_be_left_out(cache):
    stale, conflict = {"type": "STALE_INDEX", "message": "old"}, {"type": "VERSION_CONFLICT"}
    for warnings in ([], (), None, [stale], [conflict]):
        assert await cache.set("k", response(warnings=warnings)) is True
    silent = response()
    del silent["warnings"]
    assert await cache.set("k", silent) is True


@pytest.mark.parametrize(
    "warnings", ["PHANTOM_FILE", {"type": "PHANTOM_FILE"}, ["PHANTOM_FILE"], [{}], [{"type": 1}], [None], 7]
)
async def test_warnings_that_cannot_be_read_keep_it_out(cache, counted, warnings):
    assert await cache.set("k", response(warnings=warnings)) is False
    assert counted() == {"unreadable_warnings": 1}


@pytest.mark.parametrize("validation", [None, {}, True, "passed", 0.9, []])
async def test_a_response_that_was_not_validated_is_refused(cache, counted, validation):
    assert await cache.set("k", response(validation=validation)) is False
    unvalidated = response()
    del unvalidated["validation"]
    assert await cache.set("k", unvalidated) is False
    assert counted() == {"unvalidated": 2}


async def test_a_response_that_cannot_be_copied_is_refused(cache, counted):
    assert await cache.set("k", response(lines=(n for n in range(3)))) is False
    assert counted() == {"unstorable": 1}


@pytest.mark.parametrize("mode", ["", "fast", "AUTO", "Instant"])
async def test_an_unknown_mode_is_an_error_that_names_it(cache, mode):
    with pytest.raises(ValueError, match=f"mode: '{mode}' is none of instant, auto, thinking"):
        await cache.set("k", response(confidence=0.1), mode=mode)


@pytest.mark.parametrize(("mode", "minutes"), [("instant", 2), ("auto", 5), ("thinking", 15), (None, 5)])
async def test_an_entry_is_served_for_less_than_its_lifetime_however_often_it_is_and_gone_at_its_end(
    cache, counted, mode, minutes
):
    await cache.set("k", response(), **({"mode": mode} if mode else {}))
    for seconds in (30, minutes * 60 - 60):
        await cache.pass_time(seconds)
        assert await cache.get("k") is not None
    await cache.pass_time(30)
    assert await cache.get("k") is None
    assert counted() == {"stored": 1, "hit": 2, "expired": 1, "miss": 1}


async def test_setting_a_key_again_replaces_response_lifetime_and_scope(cache):
    await cache.set("k", response(answer="old"), mode="instant", scope="x")
    await cache.pass_time(100)
    await cache.set("k", response(answer="new"), mode="auto", scope="y")
    assert await cache.invalidate_scope("x") == 0
    await cache.pass_time(270)
    assert (await cache.get("k")).response["answer"] == "new"
    assert await cache.invalidate_scope("y") == 1
    assert await cache.get("k") is None


async def test_a_refused_response_leaves_what_was_kept(cache):
    await cache.set("k", response(answer="old"), scope="x")
    assert await cache.set("k", response(confidence=0.1), scope="y") is False
    assert (await cache.get("k")).response["answer"] == "old"
    assert await cache.invalidate_scope("x") == 1


async def test_the_least_recently_used_goes_first_and_getting_and_setting_are_uses(make, counted):
    cache = make(3)
    for key in "abc":
        await cache.set(key, response())
    await cache.get("a")
    await cache.set("b", response(answer="again"))
    await cache.set("d", response())
    assert [key for key in "abcd" if await cache.get(key)] == ["a", "b", "d"]
    assert counted()["evicted"] == 1


async def test_an_entry_past_its_time_goes_before_one_that_is_not(make, counted):
    cache = make(2)
    await cache.set("long", response(), mode="thinking")
    await cache.set("short", response(), mode="instant")
    await cache.pass_time(120)
    await cache.set("new", response())
    assert [key for key in ("long", "short", "new") if await cache.get(key)] == ["long", "new"]
    assert "evicted" not in counted()


async def test_a_refused_response_pushes_nothing_out(make):
    cache = make(1)
    await cache.set("a", response())
    await cache.set("b", response(confidence=0.1))
    assert await cache.get("a") is not None


async def test_one_entry_is_the_least_bound(make):
    with pytest.raises(ValueError, match="max_entries"):
        make(0)
    cache = make(1)
    await cache.set("a", response())
    await cache.set("b", response())
    assert [await cache.get("a") is None, await cache.get("b") is None] == [True, False]


async def test_invalidating_a_scope_drops_and_counts_its_entries_and_no_others(cache, counted):
    for number in range(7):
        await cache.set(f"x{number}", response(), scope="x")
    await cache.set("y", response(), scope="y")
    await cache.set("none", response())
    await cache.set("empty", response(), scope="")
    assert await cache.invalidate_scope("nobody's") == 0
    assert await cache.invalidate_scope("x") == 7
    assert await cache.invalidate_scope("x") == 0
    assert [key for key in ("x0", "x6", "y", "none", "empty") if await cache.get(key)] == [
        "y",
        "none",
        "empty",
    ]
    assert await cache.invalidate_scope("") == 1
    assert counted()["invalidated"] == 8


async def test_what_is_past_its_time_is_not_counted_as_invalidated_and_a_scope_can_be_used_again(cache):
    await cache.set("a", response(), mode="instant", scope="x")
    await cache.set("b", response(), mode="auto", scope="x")
    await cache.pass_time(120)
    assert await cache.invalidate_scope("x") == 1
    await cache.set("a", response(), scope="x")
    assert await cache.get("a") is not None
    assert await cache.invalidate_scope("x") == 1


async def test_what_callers_do_to_a_response_changes_nothing_in_the_cache(cache):
    mine = response(sources=[{"file": "a.md"}])
    await cache.set("k", mine)
    mine["sources"][0]["file"] = mine["answer"] = "changed"
    first = await cache.get("k")
    assert first.response == response(sources=[{"file": "a.md"}])
    first.response["sources"].clear()
    with pytest.raises(AttributeError):
        first.timestamp = 0
    assert (await cache.get("k")).response == response(sources=[{"file": "a.md"}])


async def test_no_key_or_scope_can_be_another_however_it_is_made(cache):
    hostile = [
        "",
        " ",
        "\x00",
        "\n",
        "a\nb",
        "e:*",
        "k" * 100_000,
        "\ud800",
        "é",
        "e\u0301",
        "{x}:1",
        "used",
        "due",
    ]
    for text in hostile:
        assert await cache.set(text, response(answer=f"<{text}>"), scope=text)
    for text in hostile:
        assert (await cache.get(text)).response["answer"] == f"<{text}>"
    for text in hostile:
        assert await cache.invalidate_scope(text) == 1


async def test_the_hit_rate_can_be_read_from_the_counters(cache, counted):
    await cache.set("k", response())
    for key in ("k", "k", "k", "other"):
        await cache.get(key)
    assert counted() == {"stored": 1, "hit": 3, "miss": 1}
