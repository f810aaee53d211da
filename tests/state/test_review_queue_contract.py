"""What a review queue promises, whichever store it has (S0-125..S0-137, S0-140, S0-142, C-28..C-30)."""

import asyncio
import math
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from groundwire.library.review_queue import (
    MemoryReviewStore,
    PendingMemory,
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueue,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from groundwire.library.review_queue.redis_store import RedisReviewStore
from groundwire.messages.decisions import IngestionTier
from tests.state.conftest import SERVERS
from tests.state.review_queues import CLAIM, START, Clock, Hanging, Stored, evidence, put, result

WEEK = 7 * 86_400


@pytest.fixture(params=["memory", "redis", "cluster"])
async def store(request, prefix: str) -> AsyncIterator:
    if request.param == "memory":
        yield MemoryReviewStore()
        return
    redis = RedisReviewStore(request.getfixturevalue(f"redis_{SERVERS[request.param]}").url, prefix)
    yield redis
    await redis.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def make(store, clock, stored):
    """Makes queues over one store."""

    def queue(callback=stored, **settings) -> ReviewQueue:
        return ReviewQueue(callback, **{"store": store, "clock": clock, **settings})

    return queue


@pytest.fixture
def queue(make) -> ReviewQueue:
    return make()


@pytest.fixture
def hanging() -> Hanging:
    return Hanging()


# What goes in comes out


async def test_an_item_comes_back_with_all_that_was_enqueued(queue):
    given = evidence(
        "Ünïcode 🦉 \x00 \"'",
        source_id="ADR-003",
        validity_horizon=datetime(2030, 1, 1, tzinfo=UTC),
        metadata={"n": {"a": [1, 2.5, None, True, "é"]}},
    )
    why = result(given, similarity_score=None, conflicting_memory_id=None, tier=IngestionTier.FLAG_REVIEW)
    metadata = {"ticket": 7, "huge": 2**70, "nested": {"": []}}
    queue_id = await put(
        queue, "ada", given.claim, evidence=given, validation_result=why, metadata=metadata, tenant_id="acme"
    )
    (item,) = await queue.get_pending("ada", tenant_id="acme")
    expected = PendingMemory(
        queue_id=queue_id,
        user_id="ada",
        content=given.claim,
        memory_type="fact",
        source="ai_synthesis",
        evidence=given,
        submitted_at=datetime.fromtimestamp(START, UTC),
        validation_result=why,
        metadata=metadata,
        tenant_id="acme",
    )
    assert item == expected
    assert item.submitted_at.tzinfo is UTC
    assert await queue.get_by_id(queue_id, "ada", tenant_id="acme") == expected


async def test_queue_ids_are_unique_uuids(make):
    queue = make(max_per_user=300)
    ids = [await put(queue) for _ in range(200)]
    assert len({uuid.UUID(queue_id) for queue_id in ids}) == 200


async def test_a_limit_may_be_given_and_is_ten_else_and_the_oldest_come_first(queue):
    ids = [await put(queue) for _ in range(12)]
    assert [item.queue_id for item in await queue.get_pending("ada")] == ids[:10]
    assert [item.queue_id for item in await queue.get_pending("ada", limit=3)] == ids[:3]
    assert [item.queue_id for item in await queue.get_pending("ada", limit=99)] == ids


async def test_what_is_done_to_an_item_changes_nothing_in_the_queue(queue):
    metadata = {"a": [1]}
    await put(queue, metadata=metadata)
    metadata["a"].append(2)
    (item,) = await queue.get_pending("ada")
    item.metadata["a"].append(3)
    item.evidence.claim = item.content = "changed"
    (again,) = await queue.get_pending("ada")
    assert (again.metadata, again.evidence.claim, again.content) == ({"a": [1]}, CLAIM, CLAIM)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("user_id", ["", "u" * 201, None, 7, "\ud800"]),
        ("content", ["", "c" * 20_001, None]),
        ("memory_type", ["rumour"]),
        ("source", ["", "s" * 101]),
        ("tenant_id", ["", "a:b"]),
        ("evidence", [None, {"claim": CLAIM}]),
        ("validation_result", [None, {"tier": "tier_2"}, object()]),
        ("metadata", [[1], {"when": datetime(2026, 1, 1, tzinfo=UTC)}, {"pair": (1, 2)}, {"set": {1}}]),
        ("metadata", [{"odd": math.nan}, {1: "one"}, {"o": object()}, {"long": "m" * 16_001}]),
    ],
)
async def test_what_cannot_be_kept_as_it_is_is_refused_with_the_field_named(queue, field, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"^({field}|item)\b") as refused:
            await put(queue, **{field: value})
        assert CLAIM not in str(refused.value)
    assert await queue.get_pending("ada") == []


async def test_results_evidence_and_items_that_nobody_could_read_again_are_refused(queue):
    odd = evidence()
    odd.capture_time = datetime(2026, 1, 1)  # noqa: DTZ001 - on purpose
    large = evidence(metadata={"long": "m" * 256_000})
    fields = [("approved", "yes"), ("tier", "tier_9"), ("checks_passed", ("a",)), ("evidence", None)]
    for name, value in [*fields, ("similarity_score", math.nan)]:
        with pytest.raises(ValueError, match=r"^validation_result"):
            await put(queue, validation_result=result(**{name: value}))
    with pytest.raises(ValueError, match=r"^evidence"):
        await put(queue, evidence=odd)
    with pytest.raises(ValueError, match=r"^item: is \d+ bytes as JSON, more than 256000"):
        await put(queue, evidence=large)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None, "10"])
async def test_a_limit_below_one_or_no_number_is_an_error(queue, limit):
    with pytest.raises(ValueError, match=r"^limit"):
        await queue.get_pending("ada", limit=limit)
    with pytest.raises(ValueError, match=r"^limit"):
        await queue.history("ada", limit=limit)


@pytest.mark.parametrize(
    ("name", "values"),
    [(name, [0, -1, True, 1.5, None]) for name in ("max_per_user", "max_total", "audit_rows")]
    + [(name, [0, -1, math.inf, math.nan, True, "9"]) for name in ("lease", "review_ttl")]
    + [("callback", [None]), ("delegates", [["dana"], {"acme": "dana"}])],
)
async def test_a_setting_out_of_range_is_refused_and_named(make, name, values):
    for value in values:
        with pytest.raises(ValueError, match={"callback": "store_callback"}.get(name, name)):
            make(**{name: value})


# Approving and rejecting


async def test_an_approval_stores_once_and_returns_the_memory_id(queue, stored):
    queue_id = await put(queue)
    assert await queue.approve(queue_id, reviewer="ada") == f"memory-{queue_id}"
    assert stored.calls == [(queue_id, CLAIM)]
    assert await queue.get_pending("ada") == []
    assert await queue.get_by_id(queue_id, "ada") is None


async def test_a_rejection_stores_nothing_and_its_reason_is_kept(queue, stored):
    queue_id = await put(queue)
    assert await queue.reject(queue_id, reviewer="ada", reason="Incorrect, we use JWT") is None
    assert stored.calls == []
    assert await queue.get_pending("ada") == []
    row = (await queue.history("ada"))[0]
    assert (row.action, row.detail, row.queue_id) == ("reject", "Incorrect, we use JWT", queue_id)


@pytest.mark.parametrize("reason", ["", "r" * 2_001, None, 7])
async def test_a_rejection_needs_a_reason_of_some_length(queue, reason):
    queue_id = await put(queue)
    with pytest.raises(ValueError, match=r"^reason"):
        await queue.reject(queue_id, "ada", reason)
    assert await queue.get_by_id(queue_id, "ada")


@pytest.mark.parametrize("first", ["approve", "reject"])
async def test_who_decides_twice_hears_what_became_of_it_and_nothing_is_stored_again(
    queue, stored, clock, first
):
    queue_id = await put(queue)
    await (queue.approve(queue_id, "ada") if first == "approve" else queue.reject(queue_id, "ada", "no"))
    calls = len(stored.calls)
    for _ in range(2):
        for call in (queue.approve(queue_id, "ada"), queue.reject(queue_id, "ada", "no")):
            with pytest.raises(ReviewNotFound, match="not found") as refused:
                await call
            assert not isinstance(refused.value, ReviewUnauthorized)
            assert refused.value.state == ("stored" if first == "approve" else "rejected")
            assert refused.value.memory_id == (f"memory-{queue_id}" if first == "approve" else None)
    clock.now += WEEK
    with pytest.raises(ReviewNotFound, match="not found"):
        await queue.approve(queue_id, "ada")
    assert len(stored.calls) == calls


@pytest.mark.parametrize(
    "queue_id", ["", "nobody's", str(uuid.UUID(int=7)), "*", "\x00", "\ud800", "q" * 10_000]
)
async def test_an_unknown_id_is_not_found_however_it_is_made(queue, stored, queue_id):
    for call in (queue.approve(queue_id, "ada"), queue.reject(queue_id, "ada", "no")):
        with pytest.raises(ReviewNotFound, match="not found"):
            await call
    assert await queue.get_by_id(queue_id, "ada") is None
    assert stored.calls == []
    assert (await queue.history("ada"))[0].queue_id == queue_id[:200]


async def test_of_two_approvals_at_the_same_time_one_calls_back(queue, stored):
    queue_id = await put(queue)
    answers = await asyncio.gather(
        *[queue.approve(queue_id, "ada") for _ in range(20)], return_exceptions=True
    )
    assert stored.calls == [(queue_id, CLAIM)]
    assert sorted(type(answer).__name__ for answer in answers) == ["ReviewNotFound"] * 19 + ["str"]


async def test_an_approval_and_a_rejection_at_the_same_time_do_not_both_count(queue, stored):
    for number in range(50):
        queue_id = await put(queue)
        calls = [queue.approve(queue_id, "ada"), queue.reject(queue_id, "ada", "no")]
        if number % 2:
            calls.reverse()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, ReviewNotFound) for answer in answers) == 1
        assert ((queue_id, CLAIM) in stored.calls) == any(isinstance(answer, str) for answer in answers)


async def test_while_it_is_stored_an_item_is_not_pending_and_can_be_seen_by_its_owner(make):
    seen = []

    async def look(evidence, queue_id):
        seen.append(await queue.get_pending("ada"))
        seen.append((await queue.get_by_id(queue_id, "ada")).state)
        with pytest.raises(ReviewNotFound, match="approving"):
            await queue.reject(queue_id, "ada", "no")
        return "m"

    queue = make(look)
    await queue.approve(await put(queue), "ada")
    assert seen == [[], "approving"]


# The callback


async def test_the_callback_gets_the_evidence_and_what_it_has_parameters_for(make):
    calls = []

    def plain(evidence):
        calls.append((evidence,))
        return "m1"

    def named(given, *, queue_id, item):
        calls.append((given, queue_id, item.queue_id, item.metadata))
        return "m2"

    def open_to_all(*args, **kwargs):
        calls.append((args, kwargs))
        return "m3"

    for number, callback in enumerate((plain, named, open_to_all), 1):
        queue = make(callback)
        queue_id = await put(queue, metadata={"a": 1})
        assert await queue.approve(queue_id, "ada") == f"m{number}"
    assert calls[0] == (evidence(),)
    assert (calls[1][0], calls[1][3]) == (evidence(), {"a": 1})
    assert calls[1][1] == calls[1][2]
    assert calls[2] == ((evidence(),), {})


async def test_numbers_and_uuids_are_ids_too(make):
    for given in (7, uuid.UUID(int=1), "m"):
        queue = make(lambda _, given=given: given)
        assert await queue.approve(await put(queue), "ada") == str(given)


async def test_a_callback_that_returns_no_id_has_failed(make):
    for answer in (None, "", True, {}, b"m", 1.5):
        queue = make(lambda _, answer=answer: answer)
        queue_id = await put(queue)
        with pytest.raises(ReviewStoreFailed, match="store_failed"):
            await queue.approve(queue_id, "ada")
        assert (await queue.get_by_id(queue_id, "ada")).last_error == "store_failed"


async def test_after_a_failure_the_item_is_pending_again_in_its_old_place(queue, stored):
    first, second = await put(queue), await put(queue)
    stored.error = RuntimeError("disk full")
    with pytest.raises(ReviewStoreFailed, match="store_failed") as failed:
        await queue.approve(first, "ada")
    assert failed.value.__cause__ is stored.error
    assert "disk full" not in str(failed.value)
    items = await queue.get_pending("ada")
    assert [(item.queue_id, item.last_error, item.attempts) for item in items] == [
        (first, "store_failed", 1),
        (second, None, 0),
    ]
    stored.error = None
    assert await queue.approve(first, "ada") == f"memory-{first}"
    assert [queue_id for queue_id, _ in stored.calls] == [first, first]


async def test_a_failed_item_still_counts_and_has_its_place_kept_while_it_is_stored(make, stored):
    """An item that comes back must find room, so one that is being approved is not out of the count."""
    refused = []

    async def fail(evidence):
        try:
            await put(queue, "bob")
        except ReviewQueueFull as full:
            refused.append(full.scope)
        raise OSError

    queue = make(fail, max_total=1)
    queue_id = await put(queue)
    with pytest.raises(ReviewStoreFailed):
        await queue.approve(queue_id, "ada")
    assert refused == ["total"]


async def test_a_callback_that_takes_too_long_is_cancelled_and_has_failed(make, hanging):
    queue = make(hanging, lease=0.05)
    queue_id = await put(queue)
    with pytest.raises(ReviewStoreFailed, match="TimeoutError"):
        await queue.approve(queue_id, "ada")
    assert hanging.ends[0].cancelled()
    assert (await queue.get_pending("ada"))[0].last_error == "store_failed"


async def test_a_caller_that_is_cancelled_leaves_the_item_pending(make, hanging):
    queue = make(hanging)
    task, end = await hanging.approve(queue, await put(queue))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert end.cancelled()
    assert [item.last_error for item in await queue.get_pending("ada")] == ["store_failed"]


# Leases


async def test_a_lease_holds_to_its_last_instant_and_then_no_more(make, hanging, clock):
    queue = make(hanging)
    queue_id = await put(queue)
    task, end = await hanging.approve(queue, queue_id)
    clock.now += 59.999
    assert await queue.get_pending("ada") == []
    clock.now += 0.001
    assert [item.last_error for item in await queue.get_pending("ada")] == ["store_interrupted"]
    end.set_result("m")
    assert await task == "m"  # nobody else took it: what was stored counts
    assert await queue.get_pending("ada") == []


async def test_whoever_is_late_does_not_take_the_item_from_who_came_after(make, hanging, clock):
    queue = make(hanging)
    queue_id = await put(queue)
    first, first_end = await hanging.approve(queue, queue_id)
    clock.now += 60
    second, second_end = await hanging.approve(queue, queue_id)
    first_end.set_exception(OSError())
    with pytest.raises(ReviewStoreFailed):
        await first
    assert (await queue.get_by_id(queue_id, "ada")).state == "approving"
    assert await queue.get_pending("ada") == []
    second_end.set_result("m")
    assert await second == "m"


async def test_what_a_late_callback_stored_counts_though_a_second_one_fails(make, hanging, clock):
    queue = make(hanging)
    queue_id = await put(queue)
    first, first_end = await hanging.approve(queue, queue_id)
    clock.now += 60
    second, second_end = await hanging.approve(queue, queue_id)
    first_end.set_result("m")
    assert await first == "m"
    second_end.set_exception(OSError())
    assert await second == "m"
    with pytest.raises(ReviewNotFound, match="stored"):
        await queue.approve(queue_id, "ada")


async def test_a_memory_stored_after_the_item_was_rejected_is_an_error_that_names_it(make, hanging, clock):
    queue = make(hanging)
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


# Who may what


@pytest.mark.parametrize(
    "reviewer", ["bob", "Ada", "ada ", " ada", "ada\x00", "", "\ud800", "ada" * 1000, "default:ada"]
)
async def test_only_the_owner_decides_and_the_item_stays(queue, stored, reviewer):
    queue_id = await put(queue)
    for call in (queue.approve(queue_id, reviewer), queue.reject(queue_id, reviewer, "mine now")):
        with pytest.raises(PermissionError, match="Unauthorized"):
            await call
    assert stored.calls == []
    assert [item.queue_id for item in await queue.get_pending("ada")] == [queue_id]


@pytest.mark.parametrize("reviewer", [None, 7, b"ada", ["ada"]])
async def test_a_reviewer_that_is_no_text_is_an_error(queue, reviewer):
    queue_id = await put(queue)
    with pytest.raises(ValueError, match=r"^reviewer"):
        await queue.approve(queue_id, reviewer)
    assert await queue.get_by_id(queue_id, "ada")


async def test_an_outsider_cannot_tell_an_item_of_others_from_none(queue):
    """The same type, text but for the id, attributes and history; whatever state the item is in."""
    seen = []
    pending, approved, rejected = [await put(queue) for _ in range(3)]
    await queue.approve(approved, "ada")
    await queue.reject(rejected, "ada", "no")
    for queue_id in (pending, approved, rejected, str(uuid.uuid4())):
        for call in (queue.approve(queue_id, "eve"), queue.reject(queue_id, "eve", "no")):
            with pytest.raises(ReviewUnauthorized) as refused:
                await call
            error = refused.value
            assert error.args == (str(error),)
            seen.append((type(error), str(error).replace(queue_id, ""), error.state, error.memory_id))
        assert await queue.get_by_id(queue_id, "eve") is None
        rows = await queue.history("eve", limit=2)
        seen.append([(r.action, r.actor, r.detail, r.delegated, r.queue_id == queue_id) for r in rows])
    assert seen[:3] * 4 == seen


async def test_users_of_the_same_name_in_two_tenants_are_two(queue):
    queue_id = await put(queue, tenant_id="acme")
    for tenant in ("default", "globex", "acm", "acme.", "ACME"):
        assert await queue.get_pending("ada", tenant_id=tenant) == []
        assert await queue.get_by_id(queue_id, "ada", tenant_id=tenant) is None
        assert await queue.history("ada", tenant_id=tenant) == []
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(queue_id, "ada", tenant_id=tenant)
    assert await queue.approve(queue_id, "ada", tenant_id="acme")


async def test_no_names_of_tenant_and_user_run_together(queue):
    queue_id = await put(queue, "b:c", tenant_id="a")
    for tenant, user in (("a:b", "c"), ("a3:b", ":c"), ("", "ab:c"), ("ab", ":c"), ("ab:c", "")):
        assert await queue.get_by_id(queue_id, user, tenant_id=tenant) is None


async def test_a_delegated_reviewer_decides_in_their_tenant_and_is_named_in_the_owners_history(make, stored):
    queue = make(delegates={"acme": ["dana"]})
    approved, rejected = await put(queue, tenant_id="acme"), await put(queue, tenant_id="acme")
    elsewhere = await put(queue, tenant_id="globex")
    await queue.approve(approved, "dana", tenant_id="acme")
    await queue.reject(rejected, "dana", "no", tenant_id="acme")
    for tenant in ("acme", "globex", "default"):
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(elsewhere, "dana", tenant_id=tenant)
    rows = await queue.history("ada", tenant_id="acme")
    assert [(row.action, row.actor, row.delegated) for row in rows] == [
        ("reject", "dana", True),
        ("stored", "dana", True),
        ("approve", "dana", True),
        ("enqueue", "ada", False),
        ("enqueue", "ada", False),
    ]
    assert await queue.get_by_id(elsewhere, "dana", tenant_id="globex") is None


async def test_nobody_is_delegated_by_default(queue):
    queue_id = await put(queue)
    for reviewer in ("default", "admin", "groundwire"):
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(queue_id, reviewer)


@pytest.mark.parametrize("awaited", [True, False])
async def test_a_function_may_say_who_is_delegated_and_only_true_is_a_yes(make, awaited):
    for answer in (True, False, 1, "yes", None):

        async def later(answer=answer):
            return answer

        asked = []

        def role(*who, answer=answer, asked=asked, later=later):
            asked.append(who)
            return later() if awaited else answer

        queue = make(delegates=role)
        approving = queue.approve(await put(queue), "dana")
        if answer is True:
            assert await approving
        else:
            with pytest.raises(ReviewUnauthorized):
                await approving
        assert asked == [("default", "dana")]


async def test_where_the_function_fails_nothing_is_decided(make, stored):
    def role(tenant, reviewer):
        raise OSError

    queue = make(delegates=role)
    queue_id = await put(queue)
    with pytest.raises(OSError, match=r"^$"):
        await queue.approve(queue_id, "dana")
    assert (stored.calls, len(await queue.get_pending("ada"))) == ([], 1)


# Limits


async def test_a_user_has_a_hundred_items_and_no_more_and_others_have_theirs(queue):
    ids = [await put(queue) for _ in range(100)]
    with pytest.raises(ReviewQueueFull, match="review_queue_full: the user has 100") as full:
        await put(queue)
    assert (full.value.scope, full.value.limit) == ("user", 100)
    assert [item.queue_id for item in await queue.get_pending("ada", 1000)] == ids
    await put(queue, "bob")
    await put(queue, tenant_id="acme")
    await queue.reject(ids[50], "ada", "no")
    await put(queue)
    with pytest.raises(ReviewQueueFull):
        await put(queue)


@pytest.mark.slow
async def test_the_queue_has_ten_thousand_items_and_no_more_and_nobody_loses_one(queue):
    given = {"evidence": evidence(), "validation_result": result()}
    for user in range(100):
        await asyncio.gather(*[put(queue, f"u{user}", **given) for _ in range(100)])
    for user in ("u0", "new"):
        with pytest.raises(ReviewQueueFull) as full:
            await put(queue, user, **given)
        assert (full.value.scope, full.value.limit) == (("user", 100) if user == "u0" else ("total", 10_000))
    for number in (0, 57, 99):
        assert len(await queue.get_pending(f"u{number}", 200)) == 100
    (item,) = await queue.get_pending("u57", 1)
    await queue.approve(item.queue_id, "u57")
    await put(queue, "new", **given)
    with pytest.raises(ReviewQueueFull, match="the queue in total has 10000"):
        await put(queue, "new", **given)


# Expiry


async def test_an_item_waits_for_less_than_its_time_and_has_expired_at_its_end(make, clock, stored):
    queue = make(review_ttl=3600)
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


async def test_without_a_time_items_wait_for_ever(queue, clock):
    queue_id = await put(queue)
    clock.now += 100 * 365 * 86_400
    assert await queue.approve(queue_id, "ada")


async def test_items_that_have_expired_make_room(make, clock):
    queue = make(review_ttl=60, max_total=3, max_per_user=2)
    for user in ("ada", "ada", "bob"):
        await put(queue, user)
    clock.now += 60
    for user in ("eve", "ada", "ada"):
        await put(queue, user)
    with pytest.raises(ReviewQueueFull):
        await put(queue, "bob")


async def test_a_users_own_expired_items_make_room_however_many_of_others_are_older(make, clock):
    queue = make(review_ttl=60, max_per_user=101)
    for user in ("bob", "ada"):
        for _ in range(101):
            await put(queue, user)
    clock.now += 60
    assert await put(queue, "ada")


# History


async def test_every_action_and_every_attempt_is_in_the_history_newest_first(queue, stored, clock):
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


async def test_a_history_has_only_the_users_rows(queue):
    for user in ("ada", "bob"):
        await queue.approve(await put(queue, user), user)
    mine = await queue.history("ada")
    assert {row.actor for row in mine} == {"ada"}
    assert len({row.queue_id for row in mine}) == 1
    assert await queue.history("eve") == []


async def test_trying_in_vain_pushes_nothing_that_was_done_out_of_a_history(make):
    queue = make(audit_rows=5)
    queue_id = await put(queue)
    for _ in range(20):
        with pytest.raises(ReviewUnauthorized):
            await queue.approve(queue_id, "eve")
    rows = [(row.action, row.actor) for row in await queue.history("ada")]
    assert rows == [("denied", "eve")] * 5 + [("enqueue", "ada")]
    for _ in range(20):
        await put(queue)
    assert [row.action for row in await queue.history("ada")].count("enqueue") == 5


async def test_a_refused_enqueue_is_in_the_history(make):
    queue = make(max_per_user=1)
    await put(queue)
    with pytest.raises(ReviewQueueFull):
        await put(queue)
    row = (await queue.history("ada"))[0]
    assert (row.action, row.detail) == ("denied", "queue_full")


async def test_reasons_may_be_any_text(queue):
    reason = "no \n 1 2 3 \x00 \ud800 ü \"'"
    await queue.reject(await put(queue), "ada", reason)
    assert (await queue.history("ada"))[0].detail == reason


async def test_times_are_the_stores_own_where_no_clock_is_given(make):
    queue = make(clock=None)
    before = datetime.now(UTC) - timedelta(hours=1)
    await put(queue)
    (item,) = await queue.get_pending("ada")
    assert before < item.submitted_at < before + timedelta(hours=2)
    assert await queue.approve(item.queue_id, "ada")
