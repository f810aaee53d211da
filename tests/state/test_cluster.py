"""State on a Redis Cluster: what only a cluster can do wrong."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import pytest
from aiokafka.partitioner import DefaultPartitioner
from click.testing import CliRunner
from redis.crc import key_slot

from agents import recovery
from agents.lease import PartitionLease
from deploy.embedded import RedisServer
from groundwire.cli.main import main
from groundwire.cli.state import measure
from groundwire.config import Settings
from groundwire.errors import SchemeMismatch, StateError, StateLost, StateUnavailable, UsageError
from groundwire.messages.decisions import CitationState, Place
from groundwire.messages.topics import TopicName, partition_of, record_key
from groundwire.policy import Policy
from groundwire.state.corpus import CorpusIndex
from groundwire.state.model import InFlightMark, Outcome, QueueLimits
from groundwire.state.partitions import slots, tags
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from groundwire.verify.results import CitationCheck, RedisCache, cache_key
from tests.services.fixtures import or_skip
from tests.services.redis_servers import LocalCluster
from tests.state.claims import LIMITS, Claims, P, People, R, decide, stored
from tests.state.conftest import PARTITIONS, start, state_at
from topics.declare import compare_partitions

USERS = [f"user-{n}" for n in range(60)]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    """A cluster that tests may break, and leave as it was."""
    with or_skip(LocalCluster) as cluster:
        yield cluster


@asynccontextmanager
async def opened(cluster: LocalCluster, name: str | None = None, **options) -> AsyncIterator[RedisState]:
    """State on a cluster; without a name, with a prefix and an epoch of its own."""
    state = state_at(cluster.url, name or f"{secrets.token_hex(8)}.", patience=2.0, **options)
    try:
        yield await start(state) if name is None else state
    finally:
        await state.close()


def slot_of(user: str) -> int:
    return slots(PARTITIONS)[partition_of("acme", user, PARTITIONS)]


def asks_of(claims: Claims, turn: int = 0):
    """Return a claim of each user; those of a later turn are new."""
    text = None if turn else "the harbour is closed at night"
    return [claims.ask(f"c{turn}", text, user=user) for user in USERS]


def for_review(users: list[str], claims: Claims | None = None):
    claims = claims or Claims()
    return [claims.ask(f"c{n}", f"{user} has {n}", 2, user=user) for n, user in enumerate(users)]


def places(answers) -> int:
    return [answer.state for answer in answers].count(P)


def users_on(cluster: LocalCluster, node: RedisServer) -> set[str]:
    return {user for user in USERS if cluster.primary_of(slot_of(user)) is node}


async def settled(*states: RedisState) -> None:
    """Wait until no primary counts as away."""
    async with asyncio.timeout(60):
        while any(state.server.away() for state in states):  # noqa: ASYNC110 - Redis sends no event
            await asyncio.sleep(0.05)


def test_a_user_is_on_the_partition_of_their_key_and_tags_spread_evenly_over_primaries():
    for partitions in (1, 3, 8, 12, 64, 100, 256):
        for user in USERS:
            key = record_key("acme", user)
            assert partition_of("acme", user, partitions) == DefaultPartitioner()(
                key, list(range(partitions)), []
            )
        assert "{0}" in tags(partitions), "where the scheme of any state is found"
        assert list(slots(partitions)) == sorted(set(slots(partitions)))
        for primaries in range(1, 17):
            share = 16384 / primaries
            counts = [sum(int(slot / share) == at for slot in slots(partitions)) for at in range(primaries)]
            assert max(counts) - min(counts) <= 2


async def test_a_limit_counts_the_places_of_all_partitions_as_of_the_last_count(own_cluster, monkeypatch):
    async def at_once(*asks, limits, state):
        monkeypatch.setattr(state._queue, "_looked", float("-inf"))  # a second has passed
        return await decide(state, *asks, limits=limits)

    for limits, place in (
        (QueueLimits(per_tenant=5), Place.TENANT_FULL),
        (QueueLimits(total=5), Place.TOTAL_FULL),
        (QueueLimits(tenant_bytes=65), Place.TENANT_FULL),
    ):
        name = f"{secrets.token_hex(8)}."
        async with opened(own_cluster, name) as state, opened(own_cluster, name) as other:
            await start(state)
            await other.adopt_epoch()
            asks = for_review(USERS)
            for ask in asks[:5]:
                (answer,) = await at_once(ask, limits=limits, state=state)
                assert answer.state is P
            for worker, ask in ((state, asks[5]), (other, asks[6])):
                (answer,) = await at_once(ask, limits=limits, state=worker)
                assert (answer.state, answer.place) == (R, place)
            one = for_review([USERS[7]] * 8)
            most = QueueLimits(per_user=5)
            assert places(await decide(other, *one, limits=most)) == 5, "a user's limit needs no count"


async def test_workers_share_what_is_free_however_long_ago_they_counted(own_cluster):
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name) as state, opened(own_cluster, name) as other:
        await start(state)
        await other.adopt_epoch()
        state._queue._pause = other._queue._pause = float("inf")
        taken = 0
        for worker, users in ((other, USERS[:1]), (state, USERS[1:8]), (other, USERS[8:20])):
            taken += places(await decide(worker, *for_review(users), limits=QueueLimits(total=10)))
        assert taken == 10
        for limits in (QueueLimits(total=30), QueueLimits(per_tenant=50)):
            most = limits.total if limits.total == 30 else limits.per_tenant
            asks = [for_review([f"{most}-{n}-{at}" for n in range(20)]) for at in range(4)]
            workers = (state, other, state, other)
            await asyncio.gather(
                *[decide(one, *some, limits=limits) for one, some in zip(workers, asks, strict=True)]
            )
            assert most <= await state.queue_depth() <= most + PARTITIONS


async def test_the_places_of_all_partitions_are_summed_up_and_given_back(own_cluster):
    async with opened(own_cluster, name := f"{secrets.token_hex(8)}.") as state:
        await start(state)
        asks = for_review(USERS)
        await decide(state, *asks)
        assert await state.queue_depth() == len(USERS)
        sizes = {b"acme": sum(len(ask.record) for ask in asks)}
        assert await state.tenants_use() == ({b"acme": len(USERS)}, sizes)
        found = await measure(state.server, state, name, 1_000, lambda _: None)
        assert found.kinds["outcomes"].number == len(USERS)
        used = [own_cluster.ask(node, "INFO", "memory")["used_memory"] for node in own_cluster.primaries]
        assert found.used > max(used), "the size is that of all primaries"
        people = People(Claims(1_000))
        await state.review([people.act("reject", ask) for ask in asks])
        assert await state.queue_depth() == 0
        assert places(await decide(state, *for_review(["new"]), limits=QueueLimits(per_tenant=1))) == 1


async def test_a_primary_that_hangs_holds_up_nobody_elses_step_and_its_places_still_count(own_cluster):
    async with opened(own_cluster) as state:
        node = own_cluster.primary_of(slot_of(USERS[0]))
        there = users_on(own_cluster, node)
        others = [user for user in USERS if user not in there]
        asks = for_review(sorted(there)[:3])
        await decide(state, *asks)
        assert await state.queue_depth() == 3
        node.pause()
        try:
            began = asyncio.get_running_loop().time()
            waiting = asyncio.create_task(decide(state, *for_review(sorted(there)[3:4])))
            limits = QueueLimits(per_tenant=5)
            for number, ask in enumerate(for_review(others[:4])):
                await asyncio.sleep(0.3)
                (answer,) = await decide(state, ask, limits=limits)
                assert number > 1 or answer.state is P
            assert asyncio.get_running_loop().time() - began < 1.9, "shorter than the patience"
            with pytest.raises(StateUnavailable):
                await waiting
            assert await state.queue_depth() > 3
        finally:
            node.resume()
        await asyncio.to_thread(own_cluster.wait_until, own_cluster.is_whole)
        await settled(state)


async def test_another_number_of_partitions_is_refused_until_a_rebuild_which_keeps_policies_alone(
    own_cluster,
):
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name, partitions=12) as before, opened(own_cluster, name) as state:
        await start(before)
        await before.step(asks_of(Claims()), LIMITS)
        await before.put_policy("0" * 64, b"{}")
        with pytest.raises(SchemeMismatch, match=r"12 partitions.*8 partitions.*groundwire rebuild"):
            await state.open()
        settings = Settings(redis_url=own_cluster.url, topic_prefix=name, partitions=12)
        counts = {f"{name}{topic}": 12 for topic in TopicName} | {f"{name}audit": 1}
        assert await compare_partitions(settings, counts) == []
        findings = await compare_partitions(settings, counts | {f"{name}claims": 8, f"{name}deferred": 8})
        assert len(findings) == len(TopicName) - 3, (
            "all others but audit, heads and dead-letter, setting and state"
        )
        assert all(finding.fatal for finding in findings)
        async with before.rebuilding(), state.rebuilding() as refused:
            assert refused is None
        await start(state)
        with pytest.raises(StateLost):
            await before.step(asks_of(Claims(), 1), LIMITS)
        with pytest.raises(SchemeMismatch):
            await before.adopt_epoch()
        assert await state.get_policy("0" * 64) == b"{}"
        gone = set(tags(12)) - set(tags(8))
        left = [key async for keys in state.server.scan(name + "*", 1_000) for key in keys]
        assert gone
        assert not [key for key in left if any(tag.encode() in key for tag in gone)]
        assert all(one.fresh for one in await state.step(asks_of(Claims()), LIMITS))


async def test_a_worker_of_the_number_before_decides_nothing_afresh_while_a_rebuild_clears(own_cluster):
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name, partitions=12) as before, opened(own_cluster, name) as state:
        await start(before)
        asks = asks_of(Claims())
        await before.step(asks, LIMITS)
        scan, answers = state.server.scan, list[Outcome]()

        async def scan_slowly(pattern: str, _size: int):
            async for keys in scan(pattern, 10):
                yield keys
                for ask in asks:
                    with suppress(StateError):
                        answers.extend(await before.step([ask], LIMITS))

        state.server.scan = scan_slowly
        async with state.rebuilding() as rebuild:
            await rebuild.clear()
        assert answers
        assert not any(answer.fresh for answer in answers)


async def test_a_primary_that_lost_its_data_makes_state_lost_until_it_is_rebuilt(own_cluster):
    claims = Claims()
    async with opened(own_cluster) as state:
        await state.step(asks_of(claims), LIMITS)
        own_cluster.ask(own_cluster.primary_of(slot_of(USERS[0])), "FLUSHALL")
        with pytest.raises(StateLost):
            await state.step(asks_of(claims, 1), LIMITS)
        assert await state.adopt_epoch() is None
        await start(state)
        assert await state.adopt_epoch() is not None
        for node in own_cluster.primaries:
            own_cluster.ask(node, "SCRIPT", "FLUSH")
        assert len(await state.step(asks_of(claims, 1), LIMITS)) == len(USERS), "scripts are sent again"


async def test_a_moved_partition_is_found_and_one_that_is_half_moved_decides_nothing(own_cluster):
    claims, slot = Claims(), slot_of(USERS[0])
    source = own_cluster.primary_of(slot)
    target = next(node for node in own_cluster.primaries if node is not source)
    users_there = {user for user in USERS if slot_of(user) == slot}
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name) as state, opened(own_cluster, name) as reader:
        await start(state)
        asks = asks_of(claims)
        await state.step(asks, LIMITS)
        moved, go_on, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()

        def pause() -> None:
            loop.call_soon_threadsafe(moved.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

        moving = asyncio.create_task(asyncio.to_thread(own_cluster.move, slot, source, target, pause=pause))
        await moved.wait()
        with pytest.raises(StateUnavailable):
            await state.step(asks, LIMITS)
        there = [ask for ask in asks if ask.subject.user_id in users_there]
        assert not state.server.away(), "its server answers"
        with pytest.raises(StateUnavailable):
            await state.step(there, LIMITS)
        await reader.adopt_epoch()
        with pytest.raises(StateUnavailable):  # rather than an empty answer
            await reader.statuses([ask.subject for ask in there])
        others = [ask for ask in asks if ask not in there]
        assert not any(one.fresh for one in await state.step(others, LIMITS))
        go_on.set()
        await moving
        await settled(state)
        assert not any(one.fresh for one in await state.step(asks, LIMITS))
        own_cluster.move(slot, target, source)
        assert not any(one.fresh for one in await state.step(asks, LIMITS)), "an old slot map is corrected"


async def test_while_a_primary_without_a_replica_is_away_the_users_of_the_others_are_decided(own_cluster):
    claims = Claims()
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name) as state, opened(own_cluster, name) as late:
        await start(state)
        await state.step(asks_of(claims), LIMITS)
        node = own_cluster.primary_of(slot_of(USERS[0]))
        there = users_on(own_cluster, node)
        node.kill()
        asks = asks_of(claims, 1)
        with pytest.raises(StateUnavailable):
            await state.step(asks, LIMITS)
        others = [ask for ask in asks if ask.subject.user_id not in there]
        assert all(isinstance(one, Outcome) for one in await state.step(others, LIMITS))
        assert {state.partition_of(ask.subject) for ask in asks if ask not in others} <= set(
            state.server.away()
        )
        assert await state.probe() == {state.partition_of(ask.subject) for ask in asks if ask not in others}
        settings = Settings(redis_url=own_cluster.url, topic_prefix=name, partitions=len(state.prefixes))
        (finding,) = await compare_partitions(settings, {})
        assert "primary does not answer" in finding.problem
        assert not finding.fatal
        assert await state.queue_depth() == 0
        assert await late.open() == state.epoch, "a worker that starts now decides for the others"
        assert not any(one.fresh for one in await late.step(others, LIMITS))
        own_cluster.restart(node)
        await settled(state, late)
        assert await state.probe() == set()
        answers = await state.step(asks, LIMITS)
        assert {ask.subject.user_id for ask, one in zip(asks, answers, strict=True) if one.fresh} == there


def reconciler_of(state: RedisState, outcomes=(), reads: list[datetime] | None = None):
    """Return the reconciler of state; its output topics hold `outcomes`."""

    async def read(since: datetime):
        if reads is not None:
            reads.append(since)
        for outcome in outcomes:
            yield outcome

    return recovery.StateReconciler(state, Policy(), PolicyStore(None, None), read)


async def test_a_primary_that_refuses_reasserted_outcomes_holds_up_its_own_users_alone(
    own_cluster, monkeypatch
):
    claims = Claims()
    monkeypatch.setattr(recovery, "stored_outcome", lambda value, _policy: value)
    for name in ("maxmemory", "min-replicas-to-write"):
        async with opened(own_cluster) as state, opened(own_cluster) as other:
            asks = asks_of(claims)
            answers = await decide(state, *asks)
            outcomes = [stored(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
            reconciler = reconciler_of(other, outcomes)
            node = own_cluster.primary_of(slot_of(USERS[0]))
            there = users_on(own_cluster, node)
            on_node = {partition_of("acme", user, PARTITIONS) for user in there}
            await other.adopt_epoch()
            other.trusted |= dict.fromkeys(range(PARTITIONS), "of another server")
            reconciler._seen |= dict.fromkeys(range(PARTITIONS), ("of another server", 0.0))
            with pytest.raises(StateUnavailable, match="another server"):
                await other.step(asks, LIMITS)
            own_cluster.ask(node, "CONFIG", "SET", name, 1)
            try:
                with pytest.raises(StateUnavailable):
                    await reconciler.before_step(on_node, PartitionLease())
                await reconciler.look()
                others = [ask for ask in asks if ask.subject.user_id not in there]
                assert not any(one.fresh for one in await other.step(others, LIMITS))
                with pytest.raises(StateUnavailable):
                    await other.step([ask for ask in asks if ask not in others], LIMITS)
            finally:
                own_cluster.ask(node, "CONFIG", "SET", name, 0)
            await reconciler.before_step(on_node, PartitionLease())
            assert not any(one.fresh for one in await other.step(asks, LIMITS))


async def test_a_server_that_took_over_or_restarted_decides_nothing_until_it_was_compared():
    """A replica takes over, then the first primary again, which has restarted meanwhile; then another one restarts."""
    claims, reads = Claims(), list[datetime]()
    with or_skip(lambda: LocalCluster(replicas=1)) as cluster:
        async with opened(cluster) as state:
            reconciler = reconciler_of(state, reads=reads)
            slot, asks = slot_of(USERS[0]), asks_of(claims)
            with pytest.raises(StateUnavailable):
                await state.step(asks, LIMITS)
            await reconciler.before_step(range(PARTITIONS), PartitionLease())
            await state.step(asks, LIMITS)
            for _ in range(2):
                node = cluster.primary_of(slot)
                node.kill()
                await asyncio.to_thread(
                    cluster.wait_until, lambda node=node: cluster.primary_of(slot) is not node
                )
                await asyncio.to_thread(cluster.restart, node)
                with pytest.raises(StateUnavailable):
                    await state.step(asks, LIMITS)
                known = len(reads)
                async with asyncio.timeout(20):
                    while not await decides(reconciler, state, asks):  # noqa: ASYNC110 - Redis sends no event
                        await asyncio.sleep(0.1)
                assert len(reads) > known


async def decides(reconciler: recovery.StateReconciler, state: RedisState, asks) -> bool:
    try:
        await reconciler.before_step(range(PARTITIONS), PartitionLease())
        return not any(one.fresh for one in await state.step(asks, LIMITS))
    except StateUnavailable:
        return False


async def test_nothing_is_lost_or_decided_twice_while_slots_are_moved(own_cluster):
    claims = Claims()
    first, second, _ = own_cluster.primaries
    moved = {slot_of(user) for user in users_on(own_cluster, first)}

    def reshard() -> None:
        for source, target in ((first, second), (second, first)):
            for slot in moved:
                own_cluster.move(slot, source, target)

    async with opened(own_cluster) as state:
        moving = asyncio.create_task(asyncio.to_thread(reshard))
        known: dict[object, Outcome] = {}
        turn = 0
        while not moving.done() or turn < 3:
            asks = asks_of(claims, turn)
            try:
                answers = await state.step(asks, LIMITS)
            except StateUnavailable:
                await asyncio.sleep(0.05)
                continue
            known |= zip([ask.subject for ask in asks], answers, strict=True)
            turn += 1
        await moving
        await settled(state)
        held = await state.held(list(known))
        assert [(one.state, one.revision) for one in held] == [
            (one.state, one.revision) for one in known.values()
        ]
        assert {answer.revision for answer in known.values()} == {1}


async def test_a_rebuild_during_which_slots_were_moved_is_refused_and_only_one_worker_rebuilds(own_cluster):
    slot = slot_of(USERS[0])
    source = own_cluster.primary_of(slot)
    target = next(node for node in own_cluster.primaries if node is not source)
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name) as state, opened(own_cluster, name) as other:
        async with state.rebuilding() as rebuild, other.rebuilding() as refused:
            assert refused is None
            await rebuild.clear()
            await asyncio.to_thread(own_cluster.move, slot, source, target)
            with pytest.raises(StateUnavailable, match="moved"):
                await rebuild.start_epoch("half")
        own_cluster.move(slot, target, source)
        await start(other)


async def test_corpus_citations_policies_and_marks_are_kept_wherever_their_slot_is(own_cluster):
    index = CorpusIndex(connect(own_cluster.url), f"{secrets.token_hex(8)}.")
    truth = {"subject": "Acme", "relation": "sued", "object": "Globex"}
    for tenant in ("acme", "umbrella"):
        await index.load(tenant, entities={"e1": {"confidence": 0.5}}, relations=[truth])
        await index.load(tenant, entities={"e2": {"confidence": 0.9}}, relations=[truth], replace=True)
        assert set(await index.entities(tenant, ["e1", "e2"])) == {"e2"}
        assert len(await index.relations(tenant, [("Globex", "Acme")])) == 1
        assert await index.forget(tenant)
    await index.close()
    redis = connect(own_cluster.url)
    cache = RedisCache(redis, f"{secrets.token_hex(8)}.")
    check = CitationCheck(CitationState.VERIFIED, "HTTP 200", datetime(2026, 1, 1, tzinfo=UTC))
    keys = [cache_key("url", "", f"https://docs.example/{n}") for n in range(20)]
    for key in keys[:10]:
        await cache.put(key, check)
    assert await cache.get_many(keys) == dict.fromkeys(keys[:10], check)
    await redis.aclose()
    async with opened(own_cluster) as state:
        marks = [InFlightMark(number, number + 1, 0) for number in range(8)]
        for number, mark in enumerate(marks):
            await state.put_policy(f"{number:064x}", b"{}")
            await state.mark("groundwire.claims", number, mark)
        assert {await state.get_policy(f"{number:064x}") for number in range(8)} == {b"{}"}
        assert [await state.marks("groundwire.claims", number) for number in range(8)] == marks
        await state.mark("groundwire.claims", 3, None)
        assert await state.marks("groundwire.claims", 3) is None


async def test_a_policy_is_found_while_a_primary_is_away_and_its_absence_cannot_be_confirmed(own_cluster):
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


async def test_one_redis_and_a_cluster_are_told_apart_with_how_each_is_written(
    own_cluster, redis_server, monkeypatch
):
    for url, hint in (
        (redis_server.url.replace("redis:", "redis+cluster:"), "write redis:// for"),
        (own_cluster.primaries[0].url, r"write redis\+cluster://"),
    ):
        wrong = state_at(url, "gw.")
        with pytest.raises(UsageError, match=hint):
            await wrong.open()
        await wrong.close()
    monkeypatch.setattr(LocalCluster, "_join", lambda _self: None)
    with LocalCluster(1) as apart:
        async with opened(apart, "gw.") as state:
            with pytest.raises(UsageError, match="redis-cli --cluster create"):
                await state.open()


async def test_a_primary_that_would_forget_and_slots_without_an_owner_are_named(own_cluster):
    node = own_cluster.primaries[1]
    for name, wrong, right in (
        ("maxmemory-policy", "allkeys-lru", "noeviction"),
        ("appendonly", "no", "yes"),
    ):
        own_cluster.ask(node, "CONFIG", "SET", name, wrong)
        async with opened(own_cluster, "gw.") as state:
            with pytest.raises(UsageError, match=f"{node.port} .*set {name} to {right}"):
                await state.open()
        if name == "maxmemory-policy":  # commands refuse what workers refuse
            for command, url, hint in (
                (["state", "size"], own_cluster.primaries[0].url, "write redis+cluster://"),
                (["rebuild", "--yes"], own_cluster.primaries[0].url, "write redis+cluster://"),
                (["rebuild", "--yes"], own_cluster.url, "set maxmemory-policy to noeviction"),
            ):
                env = {"GROUNDWIRE_REDIS_URL": url, "GROUNDWIRE_BROKERS": "127.0.0.1:1"}
                result = await asyncio.to_thread(CliRunner().invoke, main, command, env=env)
                assert (result.exit_code, hint in result.stderr) == (2, True), (command, result.stderr)
        own_cluster.ask(node, "CONFIG", "SET", name, right)
    slot = key_slot(b"nobody")
    for each in own_cluster.primaries:
        own_cluster.ask(each, "CLUSTER", "DELSLOTS", slot)
    async with opened(own_cluster, "gw.") as state:
        with pytest.raises(UsageError, match="no primary has 1 of the slots"):
            await state.open()
    own_cluster.ask(own_cluster.primaries[int(slot / (16384 / 3))], "CLUSTER", "ADDSLOTS", slot)


async def test_a_worker_counts_what_it_granted_itself_in_other_partitions(own_cluster):
    async with opened(own_cluster) as state:
        answers = await decide(state, *for_review(USERS), limits=QueueLimits(per_tenant=5))
        assert places(answers) == 5


async def test_a_server_that_is_used_later_is_no_other_one(own_cluster):
    """Or a rebalance would reread the output topics from the start of the process."""
    reads: list[datetime] = []
    async with opened(own_cluster) as state:
        reconciler = reconciler_of(state, reads=reads)
        await reconciler.before_step([0], PartitionLease())
        await reconciler.before_step(range(PARTITIONS), PartitionLease())
        assert not reads


async def test_a_worker_that_starts_while_a_primary_is_away_counts_its_places_by_their_copy(own_cluster):
    name = f"{secrets.token_hex(8)}."
    async with opened(own_cluster, name) as state, opened(own_cluster, name) as late:
        await start(state)
        node = own_cluster.primary_of(slot_of(USERS[0]))
        there = sorted(users_on(own_cluster, node))
        others = [user for user in USERS if user not in there]
        limits = QueueLimits(per_tenant=5)
        assert places(await decide(state, *for_review(there[:4]), limits=limits)) == 4
        await state.queue_depth()
        node.kill()
        try:
            assert await late.open()
            assert places(await decide(late, *for_review(others[:10]), limits=limits)) == 1
        finally:
            own_cluster.restart(node)
            await settled(state, late)
        await start(late)
        assert await late.queue_depth() == 0


async def test_an_outage_of_one_primary_makes_no_connections_to_others_anew(own_cluster):
    async with opened(own_cluster) as state:
        claims, node = Claims(), own_cluster.primary_of(slot_of(USERS[0]))
        others = [user for user in USERS if user not in users_on(own_cluster, node)]
        healthy = [one for one in own_cluster.primaries if one is not node]

        def connections() -> int:
            stats = [own_cluster.ask(one, "INFO", "stats") for one in healthy]
            return sum(one["total_connections_received"] for one in stats)

        node.kill()
        try:
            with pytest.raises(StateUnavailable):
                await state.step(asks_of(claims), LIMITS)
            await asyncio.sleep(1.0)
            before = connections()
            for number in range(20):
                await state.step([claims.ask(f"z{number}", user=others[number])], LIMITS)
                await asyncio.sleep(0.1)
            assert connections() - before < 10
        finally:
            own_cluster.restart(node)
            await settled(state)
