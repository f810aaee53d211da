"""State over a Redis Cluster: what only a cluster can do wrong."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha1

import pytest
from aiokafka.partitioner import DefaultPartitioner
from click.testing import CliRunner
from redis.crc import key_slot

from agents import recovery
from groundwire.cli.main import main
from groundwire.cli.state import measure
from groundwire.errors import StateLost, StateUnavailable, UsageError
from groundwire.messages.decisions import CitationState, Place
from groundwire.messages.topics import record_key
from groundwire.policy import Policy
from groundwire.state import buckets, queue_use
from groundwire.state.corpus import CorpusIndex
from groundwire.state.model import InFlightMark, Outcome, QueueLimits, ReviewAction, SubjectState
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import Script, connect
from groundwire.verify.results import CitationCheck, RedisCache, cache_key
from tests.services.fixtures import or_skip
from tests.services.redis_cluster import LocalCluster
from tests.state.claims import LIMITS, SCHEME, Claims, People, decide, stored
from tests.state.conftest import start

USERS = [f"user-{n}" for n in range(60)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    """A cluster that tests may put out of order, and leave as it was."""
    with or_skip(LocalCluster) as cluster:
        yield cluster


@pytest.fixture
def replicated() -> Iterator[LocalCluster]:
    """A cluster of three primaries with a replica each, to break."""
    with or_skip(lambda: LocalCluster(replicas=1)) as cluster:
        yield cluster


@asynccontextmanager
async def opened(cluster: LocalCluster, prefix: str | None = None, **options) -> AsyncIterator[RedisState]:
    """State over a cluster, with an epoch of its own unless it has a prefix."""
    name = prefix or f"{secrets.token_hex(8)}."
    state = RedisState(connect(cluster.url, patience=2.0), name, scheme=SCHEME, **options)
    try:
        yield await start(state) if prefix is None else state
    finally:
        await state.close()


def slot_of(user: str) -> int:
    return buckets.slots()[buckets.bucket_of("acme", user)]


def asks_of(claims: Claims, round_: int = 0):
    """Return a claim of each user; those of a round are new, and say nothing that others say."""
    text = None if round_ else "the harbour is closed at night"
    return [claims.ask(f"c{round_}", text, user=user) for user in USERS]


async def settled(state: RedisState) -> None:
    """Wait until nothing is away."""
    watching = state.server._watching  # type: ignore[attr-defined]
    if watching is not None:
        await watching


# Buckets


def test_a_user_is_in_the_bucket_that_the_partition_of_the_users_records_says():
    for partitions in (1, 8, 64, 256):
        for user in USERS:
            partition = DefaultPartitioner()(record_key("acme", user), list(range(partitions)), [])
            assert buckets.bucket_of("acme", user) % partitions == partition


def test_buckets_are_spread_evenly_however_many_primaries_share_the_slots():
    assert list(buckets.slots()) == sorted(set(buckets.slots()))
    for primaries in range(1, 17):
        share = 16384 / primaries
        counts = [sum(int(slot / share) == at for slot in buckets.slots()) for at in range(primaries)]
        assert max(counts) - min(counts) <= 2


async def test_every_key_of_a_user_has_the_tag_of_the_users_bucket(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        asks = asks_of(claims)
        await state.step(asks, LIMITS)
        await state.review([People(claims).act("retract", asks[0])])
        found = [key async for page in state.server.scan(state._prefix + "*", 1000) for key in page]
        used = {buckets.bucket_of("acme", user) for user in USERS}
        tags = {buckets.tags()[bucket].encode() for bucket in used}
        begun = {key.split(b"}")[0] + b"}" for key in found if b"}epoch" not in key and b"}scheme" not in key}
        tenant = buckets.tags()[buckets.bucket_of("acme", "")].encode()
        assert {name.removeprefix(state._prefix.encode()) for name in begun} == tags | {tenant}


async def test_answers_stand_in_the_order_of_the_batch(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        asks = asks_of(claims)
        tiers = [claims.ask("c1", None, 1 + at % 3, user=user) for at, user in enumerate(USERS)]
        answers = await decide(state, *asks, *tiers)
        assert [answer.origin for answer in answers] == [ask.origin for ask in (*asks, *tiers)]
        assert [answer.tier for answer in answers[len(asks) :]] == [ask.base_tier for ask in tiers]


# Limits of tenants and of the queue


@pytest.mark.parametrize(
    ("limits", "place"),
    [
        (QueueLimits(per_tenant=5), Place.TENANT_FULL),
        (QueueLimits(total=5), Place.TOTAL_FULL),
        (QueueLimits(tenant_bytes=100), Place.TENANT_FULL),
    ],
)
async def test_a_limit_counts_the_places_in_all_buckets(own_cluster, limits, place):
    claims = Claims()
    async with opened(own_cluster) as state, opened(own_cluster, state._prefix) as other:
        asks = [claims.ask("c", f"{user} is for review", 2, user=user) for user in USERS]
        answers = [(await decide(state, ask, limits=limits))[0] for ask in asks[:10]]
        assert [answer.state for answer in answers].count(SubjectState.PENDING) <= 5
        (answer,) = await decide(other, asks[10], limits=limits)  # which has to count first
        assert (answer.state, answer.place) == (SubjectState.REFUSED, place)


async def test_a_worker_that_stood_still_counts_before_it_gives_a_place(own_cluster):
    claims = Claims()
    limits = QueueLimits(per_tenant=5)
    async with opened(own_cluster) as state, opened(own_cluster, state._prefix) as other:
        await other.adopt_epoch()
        first, *asks = [claims.ask("c", f"{user} is for review", 2, user=user) for user in USERS[:7]]
        await decide(state, first, limits=limits)
        await decide(other, *asks[:4], limits=limits)
        state._queue._looked -= 10
        (answer,) = await decide(state, asks[5], limits=limits)
        assert (answer.state, answer.place) == (SubjectState.REFUSED, Place.TENANT_FULL)


async def test_a_count_that_a_server_has_held_up_is_soon_followed_by_the_next(own_cluster, monkeypatch):
    claims = Claims()
    async with opened(own_cluster) as state:
        node = own_cluster.primary_of(slot_of(USERS[0]))
        node.pause()
        try:
            await state.queue_depth()
        finally:
            node.resume()
        await settled(state)
        await asyncio.sleep(queue_use.LONGEST)
        look, looks = state._queue._look, []
        monkeypatch.setattr(state._queue, "_look", lambda: looks.append(1) or look())
        await state.step(asks_of(claims), LIMITS)
        await asyncio.sleep(0.2)
        assert len(looks) == 1


async def test_places_that_were_given_back_are_free_after_the_next_look(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        limits = QueueLimits(per_tenant=1)
        first, *others = [claims.ask("c", f"{user} is for review", 2, user=user) for user in USERS[:4]]
        await decide(state, first, limits=limits)
        assert (await decide(state, others[0], limits=limits))[0].state is SubjectState.REFUSED
        await state.review([People(claims).act("reject", first)])
        assert await state.queue_depth() == 0  # counts the buckets
        assert (await decide(state, others[1], limits=limits))[0].state is SubjectState.PENDING


@pytest.fixture
def rarely_counted(monkeypatch) -> None:
    """Buckets are counted once, so that only the ledger tells what is given afterwards."""
    monkeypatch.setattr(queue_use, "LOOK", 600.0)
    monkeypatch.setattr(queue_use, "LONGEST", 600.0)


@asynccontextmanager
async def two_workers(cluster: LocalCluster) -> AsyncIterator[tuple[RedisState, RedisState]]:
    """Two workers on one state, who have both counted, and in which one place is taken."""
    async with opened(cluster) as one, opened(cluster, one._prefix) as other:
        await other.adopt_epoch()
        await decide(one, Claims().ask("first", "the first is for review", 2, user="first"))
        assert (await one.queue_depth(), await other.queue_depth()) == (1, 1)
        yield one, other


def for_review(users: list[str], claims: Claims | None = None):
    claims = claims or Claims()
    return [claims.ask(f"c{n}", f"{user} has {n}", 2, user=user) for n, user in enumerate(users)]


def places(answers) -> int:
    return [answer.state for answer in answers].count(SubjectState.PENDING)


@pytest.mark.parametrize("giver", [0, 1], ids=["by itself", "by another worker"])
async def test_a_place_that_is_given_while_the_buckets_are_counted_is_not_missed(
    own_cluster, monkeypatch, rarely_counted, giver
):
    limits = QueueLimits(per_tenant=4)
    async with two_workers(own_cluster) as workers:
        asks = for_review(USERS[:5])
        state = workers[0]
        each, given = state.server.each, []

        async def each_held_up(commands, *, some=False):
            answers = await each(commands, some=some)
            if not given:
                given.append(asks)
                for ask in asks[:3]:
                    given.extend(await decide(workers[giver], ask, limits=limits))
            return answers

        monkeypatch.setattr(state.server, "each", each_held_up)
        await state.queue_depth()
        assert places(given[1:]) == 3
        assert places(await decide(state, asks[4], limits=limits)) == 0


@pytest.mark.parametrize("size", [1, 7])
async def test_workers_that_take_turns_give_as_many_places_as_there_are(own_cluster, rarely_counted, size):
    limits = QueueLimits(per_tenant=20)
    async with two_workers(own_cluster) as workers:
        asks, given = for_review(USERS), 1
        for turn, first in enumerate(range(0, len(asks), size)):
            given += places(await decide(workers[turn % 2], *asks[first : first + size], limits=limits))
        assert given == 20


@pytest.mark.parametrize("limits", [QueueLimits(per_tenant=5), QueueLimits(total=5)])
async def test_a_step_gives_no_more_places_than_there_are_in_however_many_buckets(own_cluster, limits):
    async with opened(own_cluster) as state:
        assert places(await decide(state, *for_review(USERS), limits=limits)) == 5


async def test_what_others_give_in_the_same_bucket_is_counted_once(own_cluster, rarely_counted):
    limits = QueueLimits(per_tenant=11, per_user=20)
    async with two_workers(own_cluster) as workers:
        asks = for_review(["the same"] * 12)
        answers = [(await decide(workers[n % 2], ask, limits=limits))[0] for n, ask in enumerate(asks)]
        assert [one.place for one in answers] == [Place.FREE] * 10 + [Place.TENANT_FULL] * 2


async def test_where_another_ledger_has_begun_the_buckets_are_counted_again(own_cluster, rarely_counted):
    limits = QueueLimits(per_tenant=3)
    async with two_workers(own_cluster) as (state, other):
        asks = for_review(USERS[:4])
        await decide(other, asks[0], limits=limits)
        await state.server.call("UNLINK", state._queue._ledger)
        await decide(other, asks[1], limits=limits)
        assert places(await decide(state, asks[2], limits=limits)) == 0


async def test_while_the_server_of_the_ledger_is_away_the_users_of_others_are_decided_within_limits(
    own_cluster, rarely_counted
):
    limits = QueueLimits(per_tenant=4)
    node = own_cluster.primary_of(buckets.slots()[0])
    users = [user for user in USERS if own_cluster.primary_of(slot_of(user)) is not node]
    async with two_workers(own_cluster) as (state, _):
        node.kill()
        answers = [(await decide(state, ask, limits=limits))[0] for ask in for_review(users[:8])]
        assert places(answers) == 3
        own_cluster.restart(node)
        await settled(state)


async def test_what_a_step_gave_before_a_server_failed_is_known_to_other_workers(own_cluster, rarely_counted):
    limits = QueueLimits(per_tenant=20)
    node = own_cluster.primary_of(buckets.slots()[-1])
    there = [user for user in USERS if own_cluster.primary_of(slot_of(user)) is node]
    others = [user for user in USERS if user not in there]
    async with two_workers(own_cluster) as (state, other):
        node.kill()
        asks = for_review([there[0], *others[:4], *others[4:30]])
        with pytest.raises(StateUnavailable):
            await decide(state, *asks[:5], limits=limits)
        assert places(await decide(other, *asks[5:], limits=limits)) == 15
        own_cluster.restart(node)
        await settled(state)
        await settled(other)


async def test_the_queue_and_what_tenants_have_of_it_are_summed_over_the_buckets(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        asks = [claims.ask("c", f"{user} is for review", 2, user=user) for user in USERS]
        await decide(state, *asks)
        places, stored_bytes = await state.tenants_use()
        assert (await state.queue_depth(), places) == (len(USERS), {b"acme": len(USERS)})
        assert stored_bytes == {b"acme": sum(len(ask.record) for ask in asks)}


# Actions


async def test_an_action_id_is_used_once_within_a_tenant_whichever_buckets_its_users_are_in(own_cluster):
    claims = Claims()
    people = People(claims)
    async with opened(own_cluster) as state:
        asks = [claims.ask("c", f"{user} is for review", 2, user=user) for user in USERS[:8]]
        await decide(state, *asks)
        acts = [people.act(ReviewAction.APPROVE, ask, action_id="one") for ask in asks]
        first, *others = await state.review(acts)
        assert first.state is SubjectState.APPROVED
        assert {other.code for other in others} == {"action_id_reused"}
        assert (await state.review(acts[:1]))[0].state is SubjectState.APPROVED


# Servers that are lost, away, or others than before


async def test_a_shard_that_lost_its_data_is_noticed_and_state_is_none_until_it_is_rebuilt(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        await state.step(asks_of(claims), LIMITS)
        node = own_cluster.primary_of(slot_of(USERS[0]))
        own_cluster.ask(node, "FLUSHALL")
        with pytest.raises(StateLost):
            await state.step(asks_of(claims, 1), LIMITS)
        assert await state.adopt_epoch() is None
        await start(state)
        assert await state.adopt_epoch() is not None
        assert len(await state.step(asks_of(claims, 1), LIMITS)) == len(USERS)


async def test_scripts_that_the_servers_have_forgotten_are_sent_again(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        for node in own_cluster.primaries:
            own_cluster.ask(node, "SCRIPT", "FLUSH")
        assert len(await state.step(asks_of(claims), LIMITS)) == len(USERS)


async def test_an_old_map_of_the_slots_is_corrected_by_the_servers(own_cluster):
    claims = Claims()
    slot = slot_of(USERS[0])
    source = own_cluster.primary_of(slot)
    target = next(node for node in own_cluster.primaries if node is not source)
    async with opened(own_cluster) as state:
        asks = asks_of(claims)
        before = await state.step(asks, LIMITS)
        own_cluster.move(slot, source, target)
        assert [one.revision for one in await state.step(asks, LIMITS)] == [one.revision for one in before]
        assert not any(one.fresh for one in await state.step(asks, LIMITS))
        own_cluster.move(slot, target, source)


async def test_a_bucket_that_is_half_moved_decides_nothing_and_the_others_do(own_cluster):
    claims = Claims()
    slot = slot_of(USERS[0])
    source = own_cluster.primary_of(slot)
    target = next(node for node in own_cluster.primaries if node is not source)
    users_there = {user for user in USERS if slot_of(user) == slot}
    async with opened(own_cluster) as state:
        asks = asks_of(claims)
        await state.step(asks, LIMITS)
        moved, go_on = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()

        def pause() -> None:
            loop.call_soon_threadsafe(moved.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

        moving = asyncio.create_task(asyncio.to_thread(own_cluster.move, slot, source, target, pause=pause))
        await moved.wait()
        with pytest.raises(StateUnavailable):
            await state.step(asks, LIMITS)
        assert {buckets.bucket_of("acme", user) for user in users_there} == set(state.away())
        there = [ask for ask in asks if ask.subject.user_id in users_there]
        with pytest.raises(StateUnavailable):
            await state.step(there, LIMITS)
        async with opened(
            own_cluster, state._prefix
        ) as reader:  # nobody is told that it holds nothing, either
            await reader.adopt_epoch()
            with pytest.raises(StateUnavailable):
                await reader.statuses([ask.subject for ask in there])
        others = [ask for ask in asks if ask.subject.user_id not in users_there]
        assert not any(one.fresh for one in await state.step(others, LIMITS))
        go_on.set()
        await moving
        await settled(state)
        assert not any(one.fresh for one in await state.step(asks, LIMITS))
        own_cluster.move(slot, target, source)


async def test_where_a_primary_without_a_replica_is_away_the_users_of_the_others_are_decided(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        await state.step(asks_of(claims), LIMITS)
        node = own_cluster.primary_of(slot_of(USERS[0]))
        there = [user for user in USERS if own_cluster.primary_of(slot_of(user)) is node]
        node.kill()
        asks = asks_of(claims, 1)
        with pytest.raises(StateUnavailable):
            await state.step(asks, LIMITS)
        others = [ask for ask in asks if ask.subject.user_id not in there]
        assert all(isinstance(one, Outcome) for one in await state.step(others, LIMITS))
        assert {state.bucket_of(ask.subject) for ask in asks if ask not in others} <= set(state.away())
        assert await state.queue_depth() == 0
        own_cluster.restart(node)
        await settled(state)
        answers = await state.step(asks, LIMITS)
        fresh = {ask.subject.user_id for ask, one in zip(asks, answers, strict=True) if one.fresh}
        assert fresh == set(there)


async def test_a_worker_that_starts_while_a_shard_is_away_decides_for_the_others(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        node = own_cluster.primary_of(slot_of(USERS[0]))
        there = [user for user in USERS if own_cluster.primary_of(slot_of(user)) is node]
        node.kill()
        async with opened(own_cluster, state._prefix) as late:
            assert await late.open() == state.epoch
            others = [ask for ask in asks_of(claims) if ask.subject.user_id not in there]
            assert len(await late.step(others, LIMITS)) == len(others)
        own_cluster.restart(node)


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [("maxmemory", 1, 0), ("min-replicas-to-write", 1, 0)],
    ids=["OOM", "NOREPLICAS"],
)
async def test_a_shard_that_refuses_what_is_asserted_again_holds_up_its_own_users_alone(
    own_cluster, monkeypatch, name, wrong, right
):
    claims = Claims()
    monkeypatch.setattr(recovery, "stored_outcome", lambda value, _policy: value)
    async with opened(own_cluster) as state, opened(own_cluster) as other:
        asks = asks_of(claims)
        answers = await decide(state, *asks)
        outcomes = [stored(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        reads = 0

        async def read(_since):
            nonlocal reads
            reads += 1
            for outcome in outcomes:
                yield outcome

        reconciler = recovery.StateReconciler(other, Policy(), PolicyStore(None, None), read)
        await reconciler.before_step()
        reconciler.answered()
        other.server.watch_servers()
        reconciler._runs.clear()  # every server is another one
        node = own_cluster.primary_of(slot_of(USERS[0]))
        there = [user for user in USERS if own_cluster.primary_of(slot_of(user)) is node]
        own_cluster.ask(node, "CONFIG", "SET", name, wrong)
        try:
            with pytest.raises(StateUnavailable):
                await reconciler.before_step()
            await asyncio.sleep(1)
            assert {buckets.bucket_of("acme", user) for user in there} <= set(other.away())
            await reconciler.before_step()
            assert reads == 2
            others = [ask for ask in asks if ask.subject.user_id not in there]
            assert not any(one.fresh for one in await other.step(others, LIMITS))
        finally:
            own_cluster.ask(node, "CONFIG", "SET", name, right)
        await settled(other)
        await reconciler.before_step()
        assert reads == 3
        assert not any(one.fresh for one in await other.step(asks, LIMITS))


async def test_a_bucket_that_refuses_again_and_again_is_asked_less_and_less_often(own_cluster):
    async with opened(own_cluster) as state:
        bucket = buckets.bucket_of("acme", USERS[0])
        refusing = Script(
            source := "return redis.error_reply('ERR no')",
            sha1(source.encode(), usedforsecurity=False).hexdigest(),
        )
        pauses = []
        for _ in range(3):
            with pytest.raises(StateUnavailable):
                await state.server.run_each(refusing, state._prefix, {bucket: ((), ())}, needed=True)
            assert set(state.away()) == {bucket}
            began = time.monotonic()
            await settled(state)
            pauses.append(time.monotonic() - began)
        assert pauses[1] > 1.5 * pauses[0]
        assert pauses[2] > 1.5 * pauses[1]


@pytest.mark.slow
async def test_a_replica_that_takes_over_decides_nothing_until_it_was_compared(replicated):
    claims = Claims()
    async with opened(replicated) as state:
        state.server.watch_servers()
        first = state.server.doubtful()
        state.server.trust(before := await state.server.server_runs(first), first)
        asks = asks_of(claims)
        await state.step(asks, LIMITS)
        slot = slot_of(USERS[0])
        node = replicated.primary_of(slot)
        node.kill()
        with pytest.raises(StateUnavailable):
            await state.step(asks, LIMITS)
        await settled(state)
        assert replicated.primary_of(slot) is not node
        bucket = buckets.bucket_of("acme", USERS[0])
        doubtful = state.server.doubtful()
        assert bucket in doubtful
        with pytest.raises(StateUnavailable):
            await state.step(asks, LIMITS)
        after = await state.server.server_runs(doubtful)
        assert after[bucket] != before[bucket]
        state.server._lose(slot, ("EXISTS", buckets.tags()[bucket] + "never"), ConnectionError())
        await settled(state)
        state.server.trust(after, doubtful)
        with pytest.raises(StateUnavailable):  # it failed once more since it was asked
            await state.step(asks, LIMITS)
        state.server.trust(after, state.server.doubtful())
        assert not any(one.fresh for one in await state.step(asks, LIMITS))


@pytest.mark.slow
async def test_nothing_is_lost_or_decided_twice_while_slots_are_moved(own_cluster):
    claims = Claims()
    first, second, _ = own_cluster.primaries
    moved = [slot for slot in {slot_of(user) for user in USERS} if own_cluster.primary_of(slot) is first]

    def reshard() -> None:
        for source, target in ((first, second), (second, first)):
            for slot in moved:
                own_cluster.move(slot, source, target)

    async with opened(own_cluster) as state:
        moving = asyncio.create_task(asyncio.to_thread(reshard))
        known: dict[object, Outcome] = {}
        round_ = 0
        while not moving.done() or round_ < 3:
            asks = asks_of(claims, round_)
            answers = await _until_answered(state, asks)
            for ask, answer in zip(asks, answers, strict=True):
                known[ask.subject] = answer
            round_ += 1
        await moving
        held = await state.held(list(known))
        assert [one and (one.state, one.revision) for one in held] == [
            (answer.state, answer.revision) for answer in known.values()
        ]
        assert {answer.revision for answer in known.values()} == {1}


async def _until_answered(state: RedisState, asks) -> list[Outcome]:
    while True:
        try:
            return await state.step(asks, LIMITS)
        except StateUnavailable:
            await asyncio.sleep(0.05)


async def test_a_rebuild_starts_over_where_slots_were_moved_while_state_was_cleared(own_cluster, monkeypatch):
    slot = slot_of(USERS[0])
    source = own_cluster.primary_of(slot)
    target = next(node for node in own_cluster.primaries if node is not source)
    async with opened(own_cluster) as state, state.rebuilding() as rebuild:
        assert rebuild
        clear = rebuild._clear

        async def clear_and_move(pattern: str) -> None:
            await clear(pattern)
            if own_cluster.primary_of(slot) is source:
                await asyncio.to_thread(own_cluster.move, slot, source, target)

        monkeypatch.setattr(rebuild, "_clear", clear_and_move)
        with pytest.raises(StateUnavailable, match="moved"):
            await rebuild.clear()
    own_cluster.move(slot, target, source)


async def test_a_rebuild_is_taken_over_as_a_whole_or_not_at_all(own_cluster):
    async with opened(own_cluster) as state, opened(own_cluster, state._prefix) as other:
        async with state.rebuilding() as rebuild, other.rebuilding() as refused:
            assert (rebuild is not None, refused) == (True, None)
        async with other.rebuilding() as rebuild:
            assert rebuild


async def test_what_is_reasserted_goes_to_the_buckets_of_its_users(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state, opened(own_cluster) as other:
        asks = asks_of(claims)
        answers = await decide(state, *asks)
        outcomes = [stored(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        assert await other.reassert(outcomes) == len(USERS)
        assert await other.reassert(outcomes) == 0
        held = await other.statuses([ask.subject for ask in asks])
        assert {status and status.state for status in held} == {SubjectState.APPROVED}


# What else is kept in the same Redis


async def test_a_tenants_corpus_is_loaded_and_replaced_in_one_slot(own_cluster):
    index = CorpusIndex(connect(own_cluster.url), f"{secrets.token_hex(8)}.")
    truth = {"subject": "Acme", "relation": "sued", "object": "Globex"}
    for tenant in ("acme", "umbrella"):
        await index.load(tenant, entities={"e1": {"confidence": 0.5}}, relations=[truth])
        await index.load(tenant, entities={"e2": {"confidence": 0.9}}, relations=[truth], replace=True)
        assert set(await index.entities(tenant, ["e1", "e2"])) == {"e2"}
        assert len(await index.relations(tenant, [("Globex", "Acme")])) == 1
        assert await index.forget(tenant)
    await index.close()


async def test_the_size_of_state_is_that_of_all_primaries_by_the_kinds_of_one(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        await state.step(asks_of(claims), LIMITS)
        found = await measure(state.server, state, state._prefix, 1_000, lambda _: None)
        assert found.kinds["outcomes"].number == len(USERS)
        assert set(found.kinds) == {"outcomes", "index", "epoch, scheme"}
        used = [own_cluster.ask(node, "INFO", "memory")["used_memory"] for node in own_cluster.primaries]
        assert found.used > max(used)


async def test_citations_are_cached_in_all_slots(own_cluster):
    redis = connect(own_cluster.url)
    cache = RedisCache(redis, f"{secrets.token_hex(8)}.")
    check = CitationCheck(CitationState.VERIFIED, "HTTP 200", datetime(2026, 1, 1, tzinfo=UTC))
    keys = [cache_key("url", "", f"https://docs.example/{n}") for n in range(20)]
    for key in keys[:10]:
        await cache.put(key, check)
    assert await cache.get_many(keys) == dict.fromkeys(keys[:10], check)
    await redis.aclose()


async def test_policies_and_marks_are_kept_wherever_their_slot_is(own_cluster):
    async with opened(own_cluster) as state:
        for number in range(8):
            await state.put_policy(f"{number:064x}", b"{}")
            await state.mark("groundwire.claims", number, InFlightMark(number, number + 1, 0))
        assert {await state.get_policy(f"{number:064x}") for number in range(8)} == {b"{}"}
        marks = [await state.marks("groundwire.claims", number) for number in range(8)]
        assert marks == [InFlightMark(number, number + 1, 0) for number in range(8)]
        await state.mark("groundwire.claims", 3, None)
        assert await state.marks("groundwire.claims", 3) is None


async def test_a_policy_is_known_while_a_primary_is_away_and_none_is_unknown_then(own_cluster):
    async with opened(own_cluster) as state:
        await state.put_policy("0" * 64, b"{}")
        assert await state.get_policy("1" * 64) is None
        for node in own_cluster.primaries:
            node.kill()
            assert await state.get_policy("0" * 64) == b"{}"
            await state.put_policy("2" * 64, b"{}")
            with pytest.raises(StateUnavailable):
                await state.get_policy("1" * 64)
            own_cluster.restart(node)
            await settled(state)
        assert await state.get_policy("2" * 64) == b"{}"


# Addresses, and what must not be


async def test_one_redis_is_no_cluster_and_a_cluster_no_redis_and_each_is_told_how_it_is_written(
    own_cluster, redis_server
):
    wrong = RedisState(connect(redis_server.url.replace("redis:", "redis+cluster:")), "gw.", scheme=SCHEME)
    with pytest.raises(UsageError, match="write redis:// for"):
        await wrong.open()
    await wrong.close()
    wrong = RedisState(connect(own_cluster.primaries[0].url), "gw.", scheme=SCHEME)
    with pytest.raises(UsageError, match=r"write redis\+cluster://"):
        await wrong.open()
    await wrong.close()


async def test_servers_that_were_not_made_a_cluster_yet_are_refused_with_the_command_that_does(monkeypatch):
    monkeypatch.setattr(LocalCluster, "_join", lambda _self: None)
    with LocalCluster(1) as apart:
        async with opened(apart, "gw.") as state:
            with pytest.raises(UsageError, match="redis-cli --cluster create"):
                await state.open()


@pytest.mark.parametrize("command", [["state", "size"], ["rebuild", "--yes"]])
async def test_a_command_that_is_given_one_server_of_a_cluster_says_how_the_cluster_is_written(
    own_cluster, command
):
    env = {"GROUNDWIRE_REDIS_URL": own_cluster.primaries[0].url, "GROUNDWIRE_BROKERS": "127.0.0.1:1"}
    result = await asyncio.to_thread(CliRunner().invoke, main, command, env=env)
    assert result.exit_code == 2
    assert "write redis+cluster://" in result.stderr


async def test_a_rebuild_refuses_a_server_that_workers_would_refuse(own_cluster):
    node = own_cluster.primaries[1]
    own_cluster.ask(node, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    env = {"GROUNDWIRE_REDIS_URL": own_cluster.url, "GROUNDWIRE_BROKERS": "127.0.0.1:1"}
    result = await asyncio.to_thread(CliRunner().invoke, main, ["rebuild", "--yes"], env=env)
    own_cluster.ask(node, "CONFIG", "SET", "maxmemory-policy", "noeviction")
    assert result.exit_code == 2
    assert "set maxmemory-policy to noeviction" in result.stderr


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "yes")],
)
async def test_a_primary_that_would_forget_is_named(own_cluster, name, wrong, right):
    node = own_cluster.primaries[1]
    own_cluster.ask(node, "CONFIG", "SET", name, wrong)
    async with opened(own_cluster, "gw.") as state:
        with pytest.raises(UsageError, match=f"{node.port} .*set {name} to {right}"):
            await state.open()
    own_cluster.ask(node, "CONFIG", "SET", name, right)


async def test_slots_that_nobody_has_are_counted(own_cluster):
    slot = key_slot(b"nobody")
    for node in own_cluster.primaries:
        own_cluster.ask(node, "CLUSTER", "DELSLOTS", slot)
    async with opened(own_cluster, "gw.") as state:
        with pytest.raises(UsageError, match="no primary has 1 of the slots"):
            await state.open()
    own_cluster.ask(own_cluster.primaries[int(slot / (16384 / 3))], "CLUSTER", "ADDSLOTS", slot)


@pytest.mark.parametrize(
    "url", ["redis://:12/secret@host:6379/0", "redis+cluster://:pa#ss@host:1", "redis://:s?s@host"]
)
def test_a_password_that_would_be_taken_for_a_path_is_refused_and_not_shown(url):
    with pytest.raises(UsageError, match="%2F") as refused:
        connect(url)
    assert "ss" not in str(refused.value).replace("password", "")
    assert "12" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis+cluster://host:x",
        "redis+cluster://host/3",
        "redis+cluster://h:1,h:y/0",
        "redis+cluster://h:1,redis://h:2",
        "redis+cluster://",
        "redis-cluster://h:1",
        "h:1",
    ],
)
def test_an_address_of_a_cluster_that_is_none_is_refused(url):
    with pytest.raises(UsageError, match="GROUNDWIRE_REDIS_URL"):
        connect(url)
