"""What a review queue promises, in memory and in Redis (S0-125..S0-137, S0-139, S0-140, S0-142, C-28..C-31)."""

import asyncio
import math
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost

from groundwire.errors import StateUnavailable, UsageError
from groundwire.library.review_queue import (
    MemoryReviewStore,
    PendingMemory,
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueue,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
    redis_store,
)
from groundwire.library.review_queue.redis_store import RedisReviewStore
from groundwire.messages.decisions import IngestionTier
from groundwire.state.server import connect
from tests.services.redis_servers import start_redis
from tests.state.review_queues import CLAIM, START, Clock, Hanging, Stored, evidence, put, result

WEEK = 7 * 86_400


@pytest.fixture
async def store(url: str | None, prefix: str) -> AsyncIterator:
    if url is None:
        yield MemoryReviewStore()
        return
    store = RedisReviewStore(url, prefix, patience=60)
    yield store
    await store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def make(store, clock, stored):
    """Creates queues over one store."""
    return lambda callback=stored, **fields: ReviewQueue(
        callback, **{"store": store, "clock": clock, **fields}
    )


@pytest.fixture
def queue(make) -> ReviewQueue:
    return make()


@pytest.fixture
def in_redis(redis, prefix, stored) -> ReviewQueue:
    return ReviewQueue(stored, store=RedisReviewStore(redis, prefix))


async def raised(attempt) -> BaseException | None:
    """Return what an attempt raises."""
    return (await asyncio.gather(attempt, return_exceptions=True))[0]


async def test_an_item_comes_back_with_all_that_was_enqueued_as_a_copy(queue):
    given = evidence(
        "Ünïcode 🦉 \x00 \"'",
        source_id="ADR-003",
        validity_horizon=datetime(2030, 1, 1, tzinfo=UTC),
        metadata={"n": {"a": [1, 2.5, None, True, "é"]}},
    )
    why = result(given, similarity_score=None, conflicting_memory_id=None, tier=IngestionTier.FLAG_REVIEW)
    metadata = {"ticket": 7, "huge": 2**70, "nested": {"": []}}
    fields = {"evidence": given, "validation_result": why, "metadata": metadata, "tenant_id": "acme"}
    queue_id = await put(queue, "ada", given.claim, **fields)
    expected = PendingMemory(
        queue_id=queue_id,
        user_id="ada",
        content=given.claim,
        memory_type="fact",
        source="ai_synthesis",
        submitted_at=datetime.fromtimestamp(START, UTC),
        **{**fields, "metadata": {**metadata, "nested": {"": []}}},
    )
    metadata["nested"][""].append(2)
    (item,) = await queue.get_pending("ada", tenant_id="acme")
    assert item == expected
    assert item.submitted_at.tzinfo is UTC
    item.metadata["nested"][""].append(3)
    item.evidence.claim = item.content = "changed"
    assert (await queue.get_by_id(queue_id, "ada", tenant_id="acme")).metadata == expected.metadata


async def test_ten_items_are_listed_unless_a_limit_says_otherwise_the_oldest_first(make):
    queue = make(max_per_user=300)
    ids = [await put(queue) for _ in range(30)]
    assert len({uuid.UUID(queue_id) for queue_id in ids}) == 30
    for limit, most in (({}, 10), ({"limit": 3}, 3), ({"limit": 99}, 99)):
        assert [item.queue_id for item in await queue.get_pending("ada", **limit)] == ids[:most]
    for limit in (0, -1, True, 1.5, None, "10"):
        for attempt in (queue.get_pending("ada", limit=limit), queue.history("ada", limit=limit)):
            with pytest.raises(ValueError, match=r"^limit"):
                await attempt


async def test_what_cannot_be_kept_and_a_setting_out_of_range_are_refused_with_their_name(make):
    queue, odd = make(), evidence()
    odd.capture_time = datetime(2026, 1, 1)  # noqa: DTZ001 - on purpose
    results = [{"approved": "yes"}, {"tier": "tier_9"}, {"checks_passed": ("a",)}, {"evidence": None}]
    metadata = [[1], {"when": datetime(2026, 1, 1, tzinfo=UTC)}, {"pair": (1, 2)}, {"odd": math.nan}]
    metadata += [{1: "one"}, {"o": object()}, {"long": "m" * 16_001}]
    rows = {
        "user_id": ["", "u" * 201, None, 7, "\ud800"],
        "content": ["", "c" * 20_001, None],
        "memory_type": ["rumour"],
        "source": ["", "s" * 101],
        "tenant_id": ["", "a:b"],
        "evidence": [None, {"claim": CLAIM}, odd, evidence(metadata={"long": "m" * 256_000})],
        "validation_result": [None, {"tier": "tier_2"}, object(), *[result(**fields) for fields in results]],
        "metadata": metadata,
    }
    wrong = []
    for field, values in rows.items():
        for value in values:
            error = await raised(put(queue, **{field: value}))
            named = re.match(rf"({field}|item)\b", str(error))
            if not isinstance(error, ValueError) or not named or CLAIM in str(error):
                wrong.append((field, value, error))
    assert wrong == []
    assert await queue.get_pending("ada") == []
    rows = {name: [0, -1, True, 1.5, None] for name in ("max_per_user", "max_total", "audit_rows")}
    rows |= {name: [0, -1, math.inf, math.nan, True, "9"] for name in ("lease", "review_ttl")}
    rows |= {"callback": [None], "delegates": [["dana"], {"acme": "dana"}]}
    for name, values in rows.items():
        for value in values:
            with pytest.raises(ValueError, match={"callback": "store_callback"}.get(name, name)):
                make(**{name: value})


async def test_an_approval_stores_once_a_rejection_nothing_and_both_answer_again(queue, stored, clock):
    approved, rejected = await put(queue), await put(queue)
    assert await queue.approve(approved, reviewer="ada") == f"memory-{approved}"
    for reason in ("", "r" * 2_001, None, 7):
        with pytest.raises(ValueError, match=r"^reason"):
            await queue.reject(rejected, "ada", reason)
    assert [item.queue_id for item in await queue.get_pending("ada")] == [rejected]
    reason = "no \n 1 2 3 \x00 \ud800 ü \"'"
    assert await queue.reject(rejected, reviewer="ada", reason=reason) is None
    assert stored.calls == [(approved, CLAIM)]
    assert await queue.get_pending("ada") == []
    assert await queue.get_by_id(approved, "ada") is None
    row = (await queue.history("ada"))[0]
    assert (row.action, row.detail, row.queue_id) == ("reject", reason, rejected)
    for queue_id, state, memory_id in (
        (approved, "stored", f"memory-{approved}"),
        (rejected, "rejected", None),
    ):
        for attempt in (queue.approve(queue_id, "ada"), queue.reject(queue_id, "ada", "no")):
            error = await raised(attempt)
            assert (type(error), error.state, error.memory_id) == (ReviewNotFound, state, memory_id)
            assert "not found" in str(error)
    clock.now += WEEK
    with pytest.raises(ReviewNotFound, match="not found"):
        await queue.approve(approved, "ada")
    assert len(stored.calls) == 1


async def test_of_several_decisions_at_the_same_time_one_counts(queue, stored):
    queue_id = await put(queue)
    answers = await asyncio.gather(
        *[queue.approve(queue_id, "ada") for _ in range(20)], return_exceptions=True
    )
    assert stored.calls == [(queue_id, CLAIM)]
    assert sorted(type(answer).__name__ for answer in answers) == ["ReviewNotFound"] * 19 + ["str"]
    for order in (1, -1) * 10:
        queue_id = await put(queue)
        calls = [queue.approve(queue_id, "ada"), queue.reject(queue_id, "ada", "no")][::order]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, ReviewNotFound) for answer in answers) == 1
        assert ((queue_id, CLAIM) in stored.calls) == any(isinstance(answer, str) for answer in answers)


async def test_while_it_is_stored_an_item_is_not_pending_but_keeps_its_place(make):
    async def look(evidence, queue_id):
        seen = str(await raised(queue.reject(queue_id, "ada", "no")))
        seen = [await queue.get_pending("ada"), (await raised(put(queue, "bob"))).scope, "approving" in seen]
        assert seen == [[], "total", True]
        assert (await queue.get_by_id(queue_id, "ada")).state == "approving"
        return "m"

    queue = make(look, max_total=1)
    assert await queue.approve(await put(queue), "ada") == "m"


async def test_the_callback_gets_what_it_has_parameters_for_and_has_failed_if_it_returns_no_id(make):
    calls = []

    def plain(evidence):
        calls.append((evidence,))
        return 7

    def named(given, *, queue_id, item):
        calls.append((given, queue_id == item.queue_id, item.metadata))
        return uuid.UUID(int=1)

    def open_to_all(*args, **kwargs):
        calls.append((args, kwargs))
        return "m3"

    for callback, memory_id in ((plain, "7"), (named, str(uuid.UUID(int=1))), (open_to_all, "m3")):
        queue = make(callback)
        assert await queue.approve(await put(queue, metadata={"a": 1}), "ada") == memory_id
    assert calls == [(evidence(),), (evidence(), True, {"a": 1}), ((evidence(),), {})]
    for answer in (None, "", True, {}, b"m", 1.5):
        queue = make(lambda _, answer=answer: answer)
        queue_id = await put(queue)
        with pytest.raises(ReviewStoreFailed, match="store_failed"):
            await queue.approve(queue_id, "ada")
        assert (await queue.get_by_id(queue_id, "ada")).last_error == "store_failed"


async def test_after_a_failure_the_item_is_pending_again_in_its_old_place(queue, make, stored):
    first, second = await put(queue), await put(queue)
    stored.error = RuntimeError("disk full")
    with pytest.raises(ReviewStoreFailed, match="store_failed") as failed:
        await queue.approve(first, "ada")
    assert failed.value.__cause__ is stored.error
    assert "disk full" not in str(failed.value)
    items = await queue.get_pending("ada")
    found = [(item.queue_id, item.last_error, item.attempts) for item in items]
    assert found == [(first, "store_failed", 1), (second, None, 0)]
    stored.error = None
    assert await queue.approve(first, "ada") == f"memory-{first}"
    hanging = Hanging()
    with pytest.raises(ReviewStoreFailed, match="TimeoutError"):  # the callback takes too long
        await make(hanging, lease=0.05).approve(second, "ada")
    task, end = await hanging.approve(make(hanging), second)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert hanging.ends[0].cancelled()
    assert end.cancelled()
    (item,) = await queue.get_pending("ada")
    assert (item.last_error, item.attempts) == ("store_failed", 2)


async def test_a_lease_holds_to_its_last_instant_and_a_late_success_counts(make, clock):
    queue = make(hanging := Hanging())
    task, end = await hanging.approve(queue, await put(queue))
    clock.now += 59.999
    assert await queue.get_pending("ada") == []
    clock.now += 0.001
    assert [item.last_error for item in await queue.get_pending("ada")] == ["store_interrupted"]
    end.set_result("m")
    assert await task == "m"
    assert await queue.get_pending("ada") == []


async def test_who_is_late_takes_the_item_from_nobody_and_its_memory_counts(make, clock):
    queue = make(hanging := Hanging())
    for first_fails in (True, False):
        queue_id = await put(queue)
        first, first_end = await hanging.approve(queue, queue_id)
        clock.now += 60
        second, second_end = await hanging.approve(queue, queue_id)
        (first_end.set_exception(OSError()) if first_fails else first_end.set_result("m"))
        if first_fails:
            with pytest.raises(ReviewStoreFailed):
                await first
            assert (await queue.get_by_id(queue_id, "ada")).state == "approving"
            assert await queue.get_pending("ada") == []
            second_end.set_result("m")
        else:
            assert await first == "m"
            second_end.set_exception(OSError())
        assert await second == "m"
        with pytest.raises(ReviewNotFound, match="stored"):
            await queue.approve(queue_id, "ada")


async def test_a_memory_stored_after_the_item_was_rejected_is_an_error_that_names_it(make, clock):
    queue = make(hanging := Hanging())
    queue_id = await put(queue)
    task, end = await hanging.approve(queue, queue_id)
    clock.now += 60
    await queue.reject(queue_id, "ada", "taking too long")
    end.set_result("m-9")
    with pytest.raises(ReviewOvertaken, match="rejected") as late:
        await task
    assert late.value.memory_id == "m-9"
    row = (await queue.history("ada"))[0]
    assert (row.action, row.detail) == ("stored_late", "m-9")


async def test_only_the_owner_decides_and_an_outsider_cannot_tell_an_item_of_others_from_none(queue, stored):
    """The same type, text but for the id, attributes and history, whatever state the item is in."""
    pending, approved, rejected = [await put(queue) for _ in range(3)]
    await queue.approve(approved, "ada")
    await queue.reject(rejected, "ada", "no")
    stored.calls.clear()
    others = ("bob", "Ada", "ada ", " ada", "ada\x00", "", "\ud800", "ada" * 1000, "default:ada", "admin")
    for reviewer in others:
        for attempt in (queue.approve(pending, reviewer), queue.reject(pending, reviewer, "mine now")):
            with pytest.raises(PermissionError, match="Unauthorized"):
                await attempt
    for reviewer in (None, 7, b"ada", ["ada"]):
        with pytest.raises(ValueError, match=r"^reviewer"):
            await queue.approve(pending, reviewer)
    seen, hostile = [], ["", "nobody's", "*", "\x00", "\ud800", "q" * 10_000]
    for queue_id in (pending, approved, rejected, str(uuid.UUID(int=7)), *hostile):
        for attempt in (queue.approve(queue_id, "eve"), queue.reject(queue_id, "eve", "no")):
            error = await raised(attempt)
            assert error.args == (str(error),)
            text = str(error).replace(queue_id[:200], "") if queue_id else str(error)
            seen.append((type(error), text, error.state, error.memory_id))
        assert await queue.get_by_id(queue_id, "eve") is None
        rows = await queue.history("eve", limit=2)
        seen.append([(r.action, r.actor, r.detail, r.delegated) for r in rows])
        assert {row.queue_id for row in rows} == {queue_id[:200]}
    assert seen[:12] == seen[:3] * 4
    assert seen[0][0] is ReviewUnauthorized
    assert stored.calls == []
    assert [item.queue_id for item in await queue.get_pending("ada")] == [pending]
    for queue_id in (str(uuid.UUID(int=7)), *hostile):
        for attempt in (queue.approve(queue_id, "ada"), queue.reject(queue_id, "ada", "no")):
            with pytest.raises(ReviewNotFound, match="not found"):
                await attempt


async def test_users_of_the_same_name_in_two_tenants_are_two(queue):
    queue_id, other = await put(queue, tenant_id="acme"), await put(queue, "b:c", tenant_id="a")
    for tenant in ("default", "globex", "acm", "acme.", "ACME"):
        assert (
            await queue.get_pending("ada", tenant_id=tenant)
            == await queue.history("ada", tenant_id=tenant)
            == []
        )
        assert await queue.get_by_id(queue_id, "ada", tenant_id=tenant) is None
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(queue_id, "ada", tenant_id=tenant)
    for tenant, user in (("a:b", "c"), ("a3:b", ":c"), ("", "ab:c"), ("ab", ":c"), ("ab:c", "")):
        assert await queue.get_by_id(other, user, tenant_id=tenant) is None
    assert await queue.approve(queue_id, "ada", tenant_id="acme")


async def test_a_delegated_reviewer_decides_in_their_tenant_and_is_named_in_the_owners_history(make):
    queue = make(delegates={"acme": ["dana"]})
    approved, rejected = await put(queue, tenant_id="acme"), await put(queue, tenant_id="acme")
    elsewhere = await put(queue, tenant_id="globex")
    await queue.approve(approved, "dana", tenant_id="acme")
    await queue.reject(rejected, "dana", "no", tenant_id="acme")
    for tenant in ("acme", "globex", "default"):
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(elsewhere, "dana", tenant_id=tenant)
    rows = await queue.history("ada", tenant_id="acme")
    done = [("reject", "dana", True), ("stored", "dana", True), ("approve", "dana", True)]
    assert [(row.action, row.actor, row.delegated) for row in rows] == [
        *done,
        *[("enqueue", "ada", False)] * 2,
    ]
    assert await queue.get_by_id(elsewhere, "dana", tenant_id="globex") is None


async def test_a_function_may_say_who_is_delegated_and_only_true_is_a_yes(make, stored):
    for awaited in (True, False):
        for answer in (True, False, 1, "yes", None, OSError("away")):
            asked = []

            async def later(answer=answer):
                return answer

            def role(*who, answer=answer, asked=asked, later=later, awaited=awaited):
                asked.append(who)
                if isinstance(answer, OSError):
                    raise answer
                return later() if awaited else answer

            queue = make(delegates=role)
            error = await raised(queue.approve(await put(queue), "dana"))
            assert isinstance(error, str if answer is True else (ReviewUnauthorized, OSError)), error
            assert asked == [("default", "dana")]
    assert len(stored.calls) == 2, "where the function fails nothing is decided"


async def test_a_user_has_a_hundred_items_and_no_more(queue):
    ids = [await put(queue) for _ in range(100)]
    with pytest.raises(ReviewQueueFull, match="review_queue_full: the user has 100") as full:
        await put(queue)
    assert (full.value.scope, full.value.limit) == ("user", 100)
    row = (await queue.history("ada"))[0]
    assert (row.action, row.detail) == ("denied", "queue_full")
    assert [item.queue_id for item in await queue.get_pending("ada", 1000)] == ids
    await put(queue, "bob")
    await put(queue, tenant_id="acme")
    await queue.reject(ids[50], "ada", "no")
    await put(queue)
    with pytest.raises(ReviewQueueFull):
        await put(queue)


@pytest.mark.slow
async def test_the_queue_has_ten_thousand_items_and_no_more(queue):
    given = {"evidence": evidence(), "validation_result": result()}
    for user in range(100):
        await asyncio.gather(*[put(queue, f"u{user}", **given) for _ in range(100)])
    for user, expected in (("u0", ("user", 100)), ("new", ("total", 10_000))):
        error = await raised(put(queue, user, **given))
        assert (error.scope, error.limit) == expected
    assert len(await queue.get_pending("u57", 200)) == 100


async def test_an_item_expires_at_the_end_of_its_time_makes_room_and_without_one_never(make, clock, stored):
    queue, patient = make(review_ttl=3600), make()
    queue_id = await put(queue)
    clock.now += 3599.999999
    assert await queue.get_by_id(queue_id, "ada")
    clock.now += 0.000001
    assert await queue.get_by_id(queue_id, "ada") is None
    assert await queue.get_pending("ada") == []
    with pytest.raises(ReviewNotFound, match="expired"):
        await queue.approve(queue_id, "ada")
    assert stored.calls == []
    rows = [(row.action, row.actor) for row in await queue.history("ada")]
    assert rows == [("denied", "ada"), ("expired", "groundwire"), ("enqueue", "ada")]
    queue_id = await put(patient)
    clock.now += 100 * 365 * 86_400
    assert await patient.approve(queue_id, "ada")
    queue = make(review_ttl=60, max_total=3, max_per_user=2)
    for users in (("ada", "ada", "bob"), ("eve", "ada", "ada")):
        for user in users:
            await put(queue, user)
        clock.now += 60 * (users[0] == "ada")
    with pytest.raises(ReviewQueueFull):
        await put(queue, "bob")


@pytest.mark.slow
async def test_a_users_own_expired_items_make_room_however_many_of_others_are_older(make, clock):
    queue = make(review_ttl=60, max_per_user=101)
    for number in range(202):
        await put(queue, "zoe" if number < 101 else "ann")
    clock.now += 60
    assert await put(queue, "ann")


async def test_every_action_and_attempt_is_in_the_owners_history_newest_first(queue, make, stored, clock):
    queue_id = await put(queue)
    clock.now += 1
    with pytest.raises(ReviewUnauthorized):
        await queue.approve(queue_id, "bob")
    stored.error = OSError("secret")
    with pytest.raises(ReviewStoreFailed):
        await queue.approve(queue_id, "ada")
    stored.error = None
    clock.now += 1
    await queue.approve(queue_id, "ada")
    await queue.approve(await put(queue, "zoe"), "zoe")
    rows = await queue.history("ada")
    assert [(row.action, row.actor, row.detail) for row in rows] == [
        ("stored", "ada", f"memory-{queue_id}"),
        ("approve", "ada", None),
        ("store_failed", "ada", "OSError"),
        ("approve", "ada", None),
        ("denied", "bob", "unauthorized"),
        ("enqueue", "ada", None),
    ]
    assert {row.queue_id for row in rows} == {queue_id}
    start = datetime.fromtimestamp(START, UTC)
    assert [(row.timestamp - start) / timedelta(seconds=1) for row in rows] == [2, 2, 1, 1, 1, 0]
    assert await queue.history("ada", limit=2) == rows[:2]
    assert await queue.history("eve") == []
    queue = make(audit_rows=5)
    queue_id = await put(queue, "kim")
    for _ in range(20):
        await raised(queue.approve(queue_id, "eve"))
    rows = [(row.action, row.actor) for row in await queue.history("kim")]
    assert rows == [("denied", "eve")] * 5 + [("enqueue", "kim")], "attempts push no action out"
    for _ in range(20):
        await put(queue, "kim")
    assert [row.action for row in await queue.history("kim")].count("enqueue") == 5
    queue, before = make(clock=None), datetime.now(UTC) - timedelta(hours=1)
    await put(queue, "lee")
    (item,) = await queue.get_pending("lee")
    assert before < item.submitted_at < before + timedelta(hours=2), "the store's own time"


@pytest.mark.slow
async def test_after_a_kill_in_the_middle_of_the_callback_the_item_comes_back(
    redis_server, redis, prefix, stored, in_redis
):
    worker = """
import asyncio, sys
from groundwire.library.review_queue import ReviewQueue
from groundwire.library.review_queue.redis_store import RedisReviewStore

async def store(_evidence):
    print("called", flush=True)
    await asyncio.sleep(600)

url, prefix, queue_id = sys.argv[1:]
asyncio.run(ReviewQueue(store, store=RedisReviewStore(url, prefix)).approve(queue_id, "ada"))
"""
    queue_id = await put(in_redis)
    command = [sys.executable, "-c", worker, redis_server.url, prefix, queue_id]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert await process.stdout.readline() == b"called\n"
    process.kill()
    await process.wait()
    assert await in_redis.get_pending("ada") == []
    with pytest.raises(ReviewNotFound, match="approving"):
        await in_redis.approve(queue_id, "ada")
    later = ReviewQueue(stored, store=RedisReviewStore(redis, prefix), clock=lambda: time.time() + 61)
    (item,) = await later.get_pending("ada")
    assert (item.queue_id, item.last_error, item.attempts) == (queue_id, "store_interrupted", 1)
    assert await later.approve(queue_id, "ada") == f"memory-{queue_id}"


@pytest.mark.slow
async def test_clients_that_race_store_an_item_once_and_pass_no_limit(redis_server, prefix):
    stores = [RedisReviewStore(redis_server.url, prefix, patience=60) for _ in range(4)]
    stored = Stored()
    queues = [ReviewQueue(stored, store=store, max_per_user=7, max_total=20) for store in stores]
    for number in range(50):
        queue_id = await put(queues[0])
        pair = queues[:2][:: 1 if number % 2 else -1]
        answers = await asyncio.gather(*[q.approve(queue_id, "ada") for q in pair], return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answers) == ["ReviewNotFound", "str"]
        assert [called for called, _ in stored.calls].count(queue_id) == 1
    for users in (["ada"] * 40, [f"u{number % 8}" for number in range(80)]):
        calls = [put(queues[number % 4], user) for number, user in enumerate(users)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {str, ReviewQueueFull}
    waiting = [len(await queues[0].get_pending(f"u{number}", 100)) for number in range(8)]
    assert len(await queues[1].get_pending("ada", 100)) == 7
    assert (sum(waiting), max(waiting) <= 7) == (13, True)
    for store in stores:
        await store.close()


async def test_every_key_is_under_the_prefix_and_only_pending_items_stay(redis, prefix, stored, in_redis):
    for user in ("ada", "*", "a:b", "\x00"):
        queue_id = await put(in_redis, user)
        await raised(in_redis.approve(queue_id, "eve"))
    forms = (r"i:[0-9a-f-]{36}", "w", r"[uad]:[0-9a-f]{32}", "number")

    async def names() -> list[str]:
        return [key.decode().removeprefix(f"{prefix}rq:") async for key in redis.scan_iter(f"{prefix}*")]

    assert [name for name in await names() if not any(re.fullmatch(form, name) for form in forms)] == []
    other = ReviewQueue(stored, store=RedisReviewStore(redis, f"{prefix}other."))
    assert await other.get_pending("ada") == await other.history("ada") == []
    with pytest.raises(ReviewUnauthorized):
        await other.approve(queue_id, "\x00")
    waiting = f"{prefix}rq:i:{queue_id}"
    assert [await redis.ttl(key) for key in (waiting, f"{prefix}rq:w")] == [-1, -1]
    await in_redis.approve(queue_id, "\x00")
    assert 0 < await redis.ttl(waiting) <= WEEK
    assert await redis.hget(waiting, "body") is None, "the content goes at once"


async def test_what_was_done_is_not_done_again_where_the_connection_breaks_before_the_answer(
    redis, prefix, stored, monkeypatch
):
    ask = redis_store._ask

    async def lose(connection, *commands):
        answers = await ask(connection, *commands)
        if commands[-1] == ("EXEC",):
            raise ConnectionLost
        return answers

    monkeypatch.setattr(redis_store, "_ask", lose)
    queue = ReviewQueue(stored, store=RedisReviewStore(redis, prefix), max_per_user=2, max_total=2)
    approved, rejected = await put(queue), await put(queue)
    stored.error = OSError()
    with pytest.raises(ReviewStoreFailed):
        await queue.approve(approved, "ada")
    stored.error = None
    await queue.approve(approved, "ada")
    await queue.reject(rejected, "ada", "no")
    assert len(stored.calls) == 2
    rows = [row.action.value for row in await queue.history("ada")]
    assert rows[::-1] == ["enqueue", "enqueue", "approve", "store_failed", "approve", "stored", "reject"]


async def test_a_change_that_is_overtaken_again_and_again_ends_with_patience(
    redis, prefix, stored, monkeypatch
):
    store = RedisReviewStore(redis, prefix, patience=0.2)
    queue = ReviewQueue(stored, store=store)
    queue_id = await put(queue)
    read = RedisReviewStore._read

    async def overtaken(self, connection, change):
        entries = await read(self, connection, change)
        await redis.hset(f"{prefix}rq:i:{queue_id}", "error", uuid.uuid4().hex)
        return entries

    monkeypatch.setattr(RedisReviewStore, "_read", overtaken)
    with pytest.raises(StateUnavailable, match="review queue, reject: TimeoutError"):
        await queue.reject(queue_id, "ada", "no")
    monkeypatch.undo()
    assert [item.queue_id for item in await queue.get_pending("ada")] == [queue_id]


async def test_an_item_that_cannot_be_read_is_an_error_and_is_not_stored(redis, prefix, in_redis, stored):
    queue_id = await put(in_redis)
    await redis.hset(f"{prefix}rq:i:{queue_id}", "body", "{}")
    with pytest.raises(StateUnavailable, match=queue_id):
        await in_redis.get_pending("ada")
    with pytest.raises(ReviewStoreFailed):
        await in_redis.approve(queue_id, "ada")
    assert stored.calls == []
    await in_redis.reject(queue_id, "ada", "unreadable")


async def test_the_queue_survives_a_kill_of_its_server_and_says_what_a_callback_did_meanwhile(
    own_server, prefix
):
    clock, calls, error = Clock(), [], OSError("disk full")
    clock.now = time.time()
    control = connect(own_server.url)
    await control.config_set("appendfsync", "always")
    await control.aclose()

    async def store(evidence, queue_id):
        calls.append(queue_id)
        if len(calls) == 1:
            own_server.pause()
        elif len(calls) == 3:
            own_server.kill()
            raise error
        return "m"

    review_store = RedisReviewStore(own_server.url, prefix, patience=0.5)
    queue = ReviewQueue(store, store=review_store, clock=clock)
    queue_id = await put(queue)
    with pytest.raises(StateUnavailable, match="settle") as lost:
        await queue.approve(queue_id, "ada")
    assert lost.value.__notes__ == [f"the memory of {queue_id} is stored, which could not be noted"]
    own_server.kill()
    with pytest.raises(StateUnavailable, match="review queue, pending: "):
        await queue.get_pending("ada")
    own_server.start()
    assert [row.action for row in await queue.history("ada")] == ["approve", "enqueue"]
    clock.now += 61
    assert await queue.approve(queue_id, "ada") == "m"
    assert calls == [queue_id, queue_id]
    with pytest.raises(ReviewStoreFailed, match="again when its lease has run out") as failed:
        await queue.approve(await put(queue), "ada")
    assert failed.value.__cause__ is error
    await review_store.close()


async def test_a_silent_server_is_waited_for_no_longer_than_patience_says(prefix, stored):
    """Whatever the client's own time limits are; and a late answer goes to nobody else."""
    with start_redis() as server:
        client = Redis.from_url(server.url)
        queue = ReviewQueue(stored, store=RedisReviewStore(client, prefix, patience=0.5))
        ids = [await put(queue) for _ in range(3)]
        server.pause()
        calls = [put(queue), put(queue), queue.reject(ids[0], "ada", "no"), queue.get_pending("ada")]
        async with asyncio.timeout(60):
            answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(answer) for answer in answers} == {StateUnavailable}
        server.resume()
        assert [item.queue_id for item in await queue.get_pending("ada")][:3] in (ids, ids[1:])
        await client.aclose()


async def test_a_server_that_would_lose_items_and_a_client_that_decodes_are_refused(
    own_server, prefix, stored
):
    client = connect(own_server.url)
    await client.config_set("appendonly", "no")
    with pytest.raises(UsageError, match="appendonly"):
        await put(ReviewQueue(stored, store=RedisReviewStore(client, prefix)))
    await put(ReviewQueue(stored, store=RedisReviewStore(client, prefix, require_aof=False)))
    await client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(UsageError, match="noeviction"):
        await put(ReviewQueue(stored, store=RedisReviewStore(client, prefix, require_aof=False)))
    await client.aclose()
    decoding = Redis.from_url(own_server.url, decode_responses=True)
    with pytest.raises(UsageError, match="decode"):
        RedisReviewStore(decoding)
    with pytest.raises(UsageError):
        RedisReviewStore("nowhere")
    await decoding.aclose()
