"""What only Redis can do wrong: keys and lifetimes, epochs, servers that are out of order, rebuilds."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable, UsageError
from groundwire.messages.identity import digest
from groundwire.state.codec import short
from groundwire.state.memory import MemoryState
from groundwire.state.model import GivenUp, InFlightMark, Outcome, QueueLimits, SubjectState, Waiting
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.services.redis_servers import start_redis
from tests.state.claims import LIMITS, SCHEME, TEXT, People, decide, dedup, stored, subject
from tests.state.conftest import start, state_at

OTHER = "backups of the billing database are written to a second region every night at two o'clock"
DAY = 86_400


def name(number: int) -> str:
    """Return a word that stands for a number."""
    return f"word{chr(97 + number // 26)}{chr(97 + number % 26)}"


def postings(ask, number: int) -> bytes:
    """Return what stands in the page of a scope for a claim."""
    return b"".join(key[:4] + number.to_bytes(4, "little") for key in ask.dedup.stored)


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that a test may put out of order."""
    with start_redis() as server:
        yield server


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = connect(redis_server.url)
    yield client
    await client.aclose()


@asynccontextmanager
async def opened(server: RedisServer, prefix: str = "gw.", **options) -> AsyncIterator[RedisState]:
    """State over a server, without an epoch of its own."""
    state = RedisState(connect(server.url, patience=1.0), prefix, scheme=SCHEME, **options)
    try:
        yield state
    finally:
        await state.close()


# Keys


KEYS = (
    r"s:[\w-]{22}",
    r"[bkm]:[\w-]{22}",
    r"d:[\w-]{22}",
    r"x:[\w-]{22}",
    r"a:[\w-]{22}",
    r"w:[\w-]{22}",
    "q",
    r"f:[\w.-]+:\d+",
    "policy:[0-9a-f]{64}",
    "epoch",
    "scheme",
)


async def test_every_key_has_the_prefix_and_a_documented_form(redis_state, redis, prefix, claims):
    """X-04."""
    asks = [claims.ask("c1"), claims.ask("c2", OTHER, 2), claims.ask("c3", wait=True)]
    response = claims.respond("r1")
    asks[:0] = [response, claims.ask("c0", None, parents=[response.subject])]
    await redis_state.step(asks, LIMITS)
    acts = [("retract", response), ("reject", asks[3])]
    await redis_state.review([People(claims).act(action, ask) for action, ask in acts])
    await (await redis_state.mark("groundwire.claims", 3, InFlightMark(1, 2, 0)))
    await redis_state.put_policy("0" * 64, b"{}")
    names = [key.decode().removeprefix(prefix) for key in await redis.keys(f"{prefix}*")]
    assert {form for form in KEYS for name in names if re.fullmatch(form, name)} == set(KEYS)
    assert [name for name in names if not any(re.fullmatch(form, name) for form in KEYS)] == []


async def test_only_outcomes_without_a_place_in_index_or_queue_expire(redis_state, redis, prefix, claims):
    asks = {
        "approved": claims.ask("a"),
        "blocked": claims.ask("b", tier=3),
        "pending": claims.ask("p", OTHER, 2),
        "joined": claims.ask("j", OTHER, 2),
        "response approved": claims.respond("r1"),
        "response in review": claims.respond("r2", 2),
        "response pending": claims.respond("r3", 2, queued=True),
    }
    await decide(redis_state, *asks.values())
    asks["refused"] = claims.ask("r", "something else entirely", 2)
    await decide(redis_state, asks["refused"], limits=QueueLimits(per_user=0))
    asks["waiting"] = claims.ask("w", wait=True)
    await redis_state.step([asks["waiting"]], LIMITS)
    seconds = {name: await redis.ttl(f"{prefix}s:{short(ask.subject.digest)}") for name, ask in asks.items()}
    kept = {name for name, ttl in seconds.items() if ttl == -1}
    assert kept == {"approved", "pending", "waiting", "response approved", "response pending"}
    assert all(31 * DAY - 60 < seconds[name] <= 31 * DAY for name in seconds if name not in kept)
    for key in await redis.keys(f"{prefix}*"):
        if not key.startswith(f"{prefix}s:".encode()):
            assert await redis.ttl(key) == -1, key


async def test_a_refused_claim_that_becomes_pending_no_longer_expires(redis_state, redis, prefix, claims):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask, limits=QueueLimits(per_user=0))
    await decide(redis_state, claims.again(ask))
    assert await redis.ttl(f"{prefix}s:{short(ask.subject.digest)}") == -1


async def test_a_joined_claim_whose_record_came_again_still_expires_and_keeps_the_time_of_that(
    redis_state, redis, prefix, claims
):
    joined = claims.ask("j", OTHER, 2)
    await decide(redis_state, claims.ask("p", OTHER, 2), joined)
    later = claims.again(joined)
    await decide(redis_state, later)
    key = f"{prefix}s:{short(joined.subject.digest)}"
    header = (await redis.get(key)).split(b"\n")[0].split(b" ")
    assert (len(header), header[8]) == (9, b"%d" % later.origin.timestamp)
    assert 31 * DAY - 60 < await redis.ttl(key) <= 31 * DAY


async def test_what_a_record_was_answered_outlives_that_another_is_given_up(redis_state, claims):
    ask = claims.ask(tier=2, wait=True)
    later = claims.again(ask)
    await redis_state.step([ask, later], LIMITS)
    assert await redis_state.give_up(ask.subject)
    assert await redis_state.step([later], LIMITS) == [GivenUp()]
    assert await redis_state.payloads([ask.subject]) == [None]
    (afresh,) = await decide(redis_state, claims.again(ask, wait=False))
    assert afresh.state is SubjectState.PENDING


async def test_counters_that_are_back_at_zero_leave_nothing_behind(redis_state, redis, prefix, claims):
    waiting, ask = claims.ask("w", wait=True), claims.ask("c1", OTHER, 2)
    await redis_state.step([waiting], LIMITS)
    _, pending = await decide(redis_state, waiting, ask, deferred=True)
    await redis_state.reassert(
        [stored(ask, replace(pending, state=SubjectState.APPROVED, revision=2, record=b""))]
    )
    assert not await redis.exists(f"{prefix}q")
    assert not await redis.exists(f"{prefix}w:{short(digest('acme', 'ada'))}")


async def test_what_is_decided_before_an_error_ends_a_script_is_counted_and_nothing_else(
    redis_state, redis, prefix, claims
):
    ask, waiting, torn = (
        claims.ask("c1", OTHER, 2),
        claims.ask("w", wait=True),
        claims.ask("c2", user="bob", tier=2),
    )
    members = f"{prefix}m:{short(torn.dedup.scope)}"
    await redis.set(members, "what no hash is")
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await redis_state.step([ask, waiting, torn], LIMITS)
    assert (await redis_state.queue_depth(), await redis_state.waiting_count()) == (1, 1)
    await redis.delete(members)
    await decide(redis_state, torn)
    assert await redis_state.queue_depth() == 2


async def test_the_counters_are_looked_up_by_name_and_not_searched(redis_state, redis, prefix, claims):
    await decide(redis_state, claims.ask("c1", tier=2))
    assert await redis.object("ENCODING", f"{prefix}q") == b"hashtable"
    assert await redis_state.queue_depth() == 1


async def test_ids_of_claims_that_left_the_index_are_dropped_when_they_are_looked_up(
    redis_state, redis, prefix, claims
):
    ask, other = claims.ask("c1", OTHER, 2), claims.ask("c2", TEXT)
    pending, _ = await decide(redis_state, ask, other)
    blocked = replace(pending, state=SubjectState.BLOCKED, tier=3, revision=2, record=b"")
    await redis_state.reassert([stored(ask, blocked)])
    scope = short(ask.dedup.scope)
    assert await redis.hlen(f"{prefix}m:{scope}") == 2  # the counter, and the one that is left
    key = f"{prefix}k:{scope}"
    assert await redis.get(key) == postings(ask, 1) + postings(other, 2)
    (outcome,) = await decide(redis_state, claims.ask("c3", OTHER, 3))
    assert not outcome.matches
    assert await redis.get(key) == postings(other, 2)


async def test_a_key_keeps_the_ids_of_claims_that_are_still_there(redis_state, redis, prefix, claims):
    text = "keys, caches, stores"  # few words: one part
    first, second = claims.ask("c1", text, 2), claims.ask("c2", "stores, caches, keys", 2)
    pending, _ = await decide(redis_state, first, second)
    blocked = replace(pending, state=SubjectState.BLOCKED, tier=3, revision=2, record=b"")
    await redis_state.reassert([stored(first, blocked)])
    (outcome,) = await decide(redis_state, claims.ask("c3", text, 3))
    assert [match.subject_id for match in outcome.matches] == ["c2"]
    assert await redis.get(f"{prefix}k:{short(first.dedup.scope)}") == postings(second, 2)


@pytest.mark.slow
async def test_among_many_claims_each_key_has_a_bucket_and_all_are_found_and_forgotten_as_among_few(
    redis_state, redis, prefix, claims
):
    """The texts have some key in common with one another, so that buckets hold several ids."""
    memory, roomy = MemoryState(), QueueLimits(per_user=1000)
    texts = [f"{TEXT} {name(n)}" for n in range(450)]
    asks = [claims.ask(f"c{n}", text, 2) for n, text in enumerate(texts)]
    again = [claims.ask(f"again {n}", text, 3) for n, text in enumerate(texts)]
    scope, key = short(asks[0].dedup.scope), asks[0].dedup.stored[0][:4]
    for batch in (asks[:100], asks[100:], again):
        ours, theirs = [await decide(state, *batch, limits=roomy) for state in (redis_state, memory)]
        assert ours == theirs
    assert all(outcome.matches for outcome in ours)
    assert await redis.get(f"{prefix}k:{scope}") == b"*"
    assert (await redis.hget(f"{prefix}b:{scope}", key)).startswith(b"\1\0\0\0")
    for ask in asks[::2]:
        (outcome,) = await decide(memory, ask)
        blocked = replace(outcome, state=SubjectState.BLOCKED, tier=3, revision=2, record=b"")
        for state in (redis_state, memory):
            await state.reassert([stored(ask, blocked)])
    later = [claims.ask(f"later {n}", text, 3) for n, text in enumerate(texts)]
    ours, theirs = [await decide(state, *later) for state in (redis_state, memory)]
    assert ours == theirs
    assert [bool(outcome.matches) for outcome in ours] == [False, True] * 225
    assert not (await redis.hget(f"{prefix}b:{scope}", key) or b"").startswith(b"\1\0\0\0")


async def test_two_prefixes_share_nothing(redis_server, redis_state, claims):
    await decide(redis_state, claims.ask("c1"))
    async with opened(redis_server, "other.") as other:
        await start(other)
        (outcome,) = await decide(other, claims.ask("c1", OTHER))
        assert outcome.fresh
        (copy,) = await decide(other, claims.ask("c2"))
        assert copy.state is SubjectState.APPROVED


# Work


async def test_too_many_candidates_fail_the_deduplication(redis_server, prefix, claims):
    async with opened(redis_server, prefix, max_candidates=3) as state:
        await start(state)
        words = ["amber", "birch", "cedar", "dogwood", "elder", "fir"]
        texts = [" ".join(words[n:] + words[:n]) for n in range(6)]
        asks = [claims.ask(f"c{n}", text, 2) for n, text in enumerate(texts)]
        outcomes = await decide(state, *asks)
        # the fourth is not compared with more than three; the fifth finds three, as the fourth is not indexed
        assert [outcome.dedup_status for outcome in outcomes] == ["ok"] * 4 + ["failed"] * 2
        (outcome,) = await decide(state, claims.ask("c9", texts[0]))
        assert (outcome.state, outcome.tier, outcome.dedup_status) == (SubjectState.PENDING, 2, "failed")


async def test_too_many_bytes_to_compare_fail_the_deduplication(redis_server, prefix, claims):
    async with opened(redis_server, prefix, max_candidates=1) as state:
        await start(state)
        words = [name(n) for n in range(43)]  # 18 + 9 · 43 bytes: one over 400
        await decide(
            state, claims.ask("c1", " ".join(words[:42])), claims.ask("d1", " ".join(words), user="bob")
        )
        under, over = await decide(
            state, claims.ask("c2", " ".join(words[:42])), claims.ask("d2", " ".join(words), user="bob")
        )
        assert (under.dedup_status, over.dedup_status) == ("ok", "failed")


async def test_a_batch_that_compares_much_is_decided_in_several_calls(
    redis_server, prefix, claims, monkeypatch
):
    async with opened(redis_server, prefix, max_candidates=3) as state:
        await start(state)
        words = ["amber", "birch", "cedar", "dogwood", "elder", "fir"]
        await decide(state, *[claims.ask(f"c{n}", " ".join(words[n:] + words[:n]), 2) for n in range(3)])
        calls = []
        call = state.server.call
        monkeypatch.setattr(state.server, "call", lambda *command: calls.append(command) or call(*command))
        asks = [claims.ask(f"d{n}", " ".join(words), 3) for n in range(4)]
        asks[1:1] = [claims.ask(f"e{n}", f"something {name(n)}, else {name(n + 50)}") for n in range(50)]
        outcomes = await decide(state, *asks)
        assert [outcome.origin for outcome in outcomes] == [ask.origin for ask in asks]
        # the first, then the fifty others with the next, then the last two
        assert len(calls) == 4
        assert await decide(state, *asks) == [replace(outcome, fresh=False) for outcome in outcomes]
        assert len(calls) == 5


# Races


async def test_of_identical_claims_at_once_exactly_one_is_approved(redis_server, redis_state, prefix, claims):
    async with opened(redis_server, prefix) as left, opened(redis_server, prefix) as right:
        for round_ in range(20):
            text = f"{TEXT} in the round of {name(round_)} and {name(round_ + 20)}"
            asks = [claims.ask(f"{round_}-{n}", text) for n in range(10)]
            answers = await asyncio.gather(
                *(state.step([ask], LIMITS) for state, ask in zip((left, right) * 5, asks, strict=True))
            )
            states = sorted(outcome.state for (outcome,) in answers)
            assert states == [SubjectState.APPROVED] + [SubjectState.BLOCKED] * 9


# Epoch and scheme


async def test_state_without_an_epoch_is_lost(redis_server, prefix, claims):
    async with opened(redis_server, prefix) as state:
        assert await state.open() is None
        with pytest.raises(StateLost, match="no epoch"):
            await state.step([claims.ask()], LIMITS)


async def test_a_flushed_state_is_lost_and_a_step_changes_nothing(redis_state, redis, prefix, claims):
    await redis.delete(f"{prefix}epoch")
    with pytest.raises(StateLost):
        await redis_state.step([claims.ask()], LIMITS)
    assert await redis.keys(f"{prefix}s:*") == []
    assert await redis_state.read_epoch() is None


async def test_state_that_another_worker_rebuilt_is_lost_until_its_epoch_is_taken(
    redis_server, redis_state, prefix, claims
):
    async with opened(redis_server, prefix) as other:
        await start(other)
        with pytest.raises(StateLost):
            await redis_state.step([claims.ask()], LIMITS)
        assert await redis_state.read_epoch() == other.epoch != redis_state.epoch
        assert await redis_state.adopt_epoch() == other.epoch
        await decide(redis_state, claims.ask())


async def test_a_step_before_open_opens_state(redis_server, redis_state, prefix, claims):
    async with opened(redis_server, prefix) as other:
        await decide(other, claims.ask())
        assert other.epoch == redis_state.epoch


async def test_keys_of_another_scheme_are_refused_and_the_way_out_is_named(redis_server, redis_state, prefix):
    other = state_at(redis_server.url, prefix, scheme="partition-9/words-9/signature-9/9000")
    with pytest.raises(SchemeMismatch, match="groundwire rebuild"):
        await other.open()
    async with other.rebuilding() as rebuild:
        await rebuild.clear()
        await rebuild.start_epoch("new")
    assert await other.open() == "new"
    with pytest.raises(SchemeMismatch):
        await redis_state.adopt_epoch()
    await other.close()


async def test_looking_back_asks_once_and_finds_a_lost_state_as_a_step_does(
    redis_server, redis_state, redis, prefix, claims, monkeypatch
):
    asks = [claims.respond(f"r{n}", 2, queued=n % 2 == 0) for n in range(1500)]
    await decide(redis_state, *asks, limits=QueueLimits(per_user=9999))
    calls = []
    call = redis_state.server.call
    await redis_state.payloads([asks[0].subject])  # the server has the script
    monkeypatch.setattr(redis_state.server, "call", lambda *command: calls.append(command) or call(*command))
    found = await redis_state.payloads([ask.subject for ask in asks] * 2)
    assert found == [ask.payload for ask in asks] * 2
    assert len(calls) == 1
    await redis.set(f"{prefix}epoch", "of another rebuild")
    with pytest.raises(StateLost):
        await redis_state.payloads([asks[0].subject])
    async with opened(redis_server, f"empty-{prefix}") as empty:
        with pytest.raises(StateLost, match="no epoch"):
            await empty.payloads([asks[0].subject])


async def test_looking_back_at_a_server_that_is_gone_is_unavailable(own_server, claims):
    async with opened(own_server) as state:
        await start(state)
        own_server.kill()
        with pytest.raises(StateUnavailable):
            await state.payloads([subject()])


# Servers out of order


async def test_a_server_that_lost_its_scripts_is_given_them_again(redis_state, redis, claims):
    ask = claims.ask()
    (first,) = await decide(redis_state, ask)
    await redis.script_flush()
    assert await decide(redis_state, ask) == [replace(first, fresh=False)]


async def test_a_killed_server_is_unavailable_and_has_its_outcomes_when_it_is_back(own_server, claims):
    ask = claims.ask()
    async with opened(own_server) as state:
        await start(state)
        (first,) = await decide(state, ask)
        own_server.kill()
        with pytest.raises(StateUnavailable):
            await state.step([ask], LIMITS)
        own_server.start()
        assert await decide(state, ask) == [replace(first, fresh=False)]


async def test_a_server_that_started_empty_is_lost(own_server, claims):
    async with opened(own_server) as state:
        await start(state)
        own_server.kill()
        own_server.start(keep_data=False)
        with pytest.raises(StateLost):
            await state.step([claims.ask()], LIMITS)


async def test_a_frozen_server_is_unavailable_in_bounded_time(own_server, claims):
    client = Redis.from_url(own_server.url, socket_timeout=None)
    state = await start(RedisState(client, "gw.", scheme=SCHEME, patience=0.5))
    own_server.pause()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(StateUnavailable):
                await state.step([claims.ask()], LIMITS)
    finally:
        own_server.resume()
    (outcome,) = await decide(state, claims.ask("c2", OTHER))
    assert outcome.origin.offset == 2  # the answer is not that of the step before
    await state.close()


async def test_a_replica_is_unavailable(own_server, claims):
    async with opened(own_server) as state:
        await start(state)
        client = connect(own_server.url)
        await client.replicaof("127.0.0.1", 1)
        with pytest.raises(StateUnavailable, match="ReadOnly"):
            await state.step([claims.ask()], LIMITS)
        await client.aclose()


async def test_a_server_out_of_memory_is_unavailable_and_holds_no_half_step(own_server, claims):
    async with opened(own_server) as state:
        await start(state)
        client = connect(own_server.url)
        await client.config_set("maxmemory", 1)
        asks = [claims.ask("c1"), claims.ask("c2", OTHER, 2), claims.ask("c3", wait=True)]
        with pytest.raises(StateUnavailable, match="OutOfMemory"):
            await state.step(asks, LIMITS)
        await client.config_set("maxmemory", 0)
        assert sorted(await client.keys("*")) == [b"gw.epoch", b"gw.scheme"]
        answers = await state.step(asks, LIMITS)
        assert [isinstance(answer, Outcome | Waiting) for answer in answers] == [True] * 3
        await client.aclose()


async def test_an_answer_that_cannot_be_read_is_unavailable(redis_state, redis, prefix, claims):
    ask = claims.ask()
    await decide(redis_state, ask)
    key = f"{prefix}s:{short(ask.subject.digest)}"
    await redis.set(key, (await redis.get(key)).replace(b"\non\n", b"\n??\n"))
    with pytest.raises(StateUnavailable):
        await redis_state.step([ask], LIMITS)


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [("maxmemory-policy", "allkeys-lru", "noeviction"), ("appendonly", "no", "appendonly")],
)
async def test_a_server_that_would_forget_is_refused(own_server, setting, value, named):
    client = connect(own_server.url)
    await client.config_set(setting, value)
    async with opened(own_server) as state:
        with pytest.raises(UsageError, match=named):
            await state.open()
    await client.aclose()


async def test_a_server_without_aof_is_taken_where_it_is_allowed(own_server):
    client = connect(own_server.url)
    await client.config_set("appendonly", "no")
    async with opened(own_server, require_aof=False) as state:
        assert await state.open() is None
    await client.aclose()


async def test_a_server_that_does_not_show_its_settings_is_taken(own_server):
    client = connect(own_server.url)
    await client.config_set("maxmemory-policy", "allkeys-lru")
    await client.execute_command("ACL", "SETUSER", "gate", "on", ">pw", "~*", "+@all", "-config", "-info")
    async with opened(own_server) as state:
        state.server._redis.connection_pool.connection_kwargs |= {"username": "gate", "password": "pw"}
        assert await state.open() is None
    await client.aclose()


async def test_redis_cluster_is_refused(redis_server, prefix, monkeypatch):
    async with opened(redis_server, prefix) as state:
        call = state.server.call

        async def clustered(*command):
            return {"cluster_enabled": 1} if command[0] == "INFO" else await call(*command)

        monkeypatch.setattr(state.server, "call", clustered)
        with pytest.raises(UsageError, match="Cluster"):
            await state.open()


async def test_a_client_that_decodes_is_refused(redis_server):
    client = Redis.from_url(redis_server.url, decode_responses=True)
    with pytest.raises(UsageError):
        RedisState(client, "gw.", scheme=SCHEME)
    await client.aclose()


@pytest.mark.parametrize(
    "changes",
    [
        {"payload": b"two\nlines"},
        {"fingerprint": "abc"},
        {"dedup": replace(dedup(TEXT, subject()), signature=b"short")},
        {"dedup": replace(dedup(TEXT, subject()), probed=[b"seven b"])},
    ],
)
async def test_an_ask_that_would_break_the_layout_is_an_error(redis_state, claims, changes):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever of them
        await redis_state.step([replace(claims.ask(), **changes)], LIMITS)


# Rebuilding


async def test_clearing_leaves_what_is_not_this_state(redis_server, redis, claims):
    left = {}
    async with opened(redis_server, "g[a]*.") as state, opened(redis_server, "ga.") as neighbour:
        for each in (state, neighbour):
            await start(each)
            await decide(each, claims.ask("c1"), claims.ask("c2", OTHER, 2))
            child = claims.ask("c4", "a text that rests on another", parents=[subject("c1")])
            await each.step([child, claims.ask("c3", wait=True)], LIMITS)
        await redis.set("g[a]*.citation:x", "kept")
        await state.put_policy("0" * 64, b"kept")
        await (await state.mark("t", 0, InFlightMark(1, 2, 0)))
        left = {key for key in await redis.keys("*") if key.startswith(b"ga.")}
        async with state.rebuilding() as rebuild:
            await rebuild.clear()
        assert {key for key in await redis.keys("*") if key.startswith(b"ga.")} == left
        names = {key for key in await redis.keys("*") if key.startswith(b"g[a]*.")}
        assert names == {b"g[a]*.citation:x", b"g[a]*.policy:" + b"0" * 64, b"g[a]*.f:t:0"}
        with pytest.raises(StateLost):
            await state.step([claims.ask("c4")], LIMITS)


async def test_a_rebuilt_state_answers_as_the_one_before(redis_state, claims):
    """Outcomes loaded in any order, several revisions of one subject among them."""
    limits = QueueLimits(per_user=2)
    refused = claims.ask("refused", "a text of its own that nobody else has", 2)
    asks = [
        claims.ask("approved", parents=[subject("nobody")], tier=2),
        claims.ask("plain", OTHER),
        claims.ask("copy", OTHER),
        claims.ask("joined", tier=2),
        claims.ask("pending", "something else waits for a person here", 2),
        refused,
        claims.respond("r1"),
        claims.respond("r2", 2),
        claims.respond("r3", 2, queued=True),
        claims.respond("r4", 2, queued=True, user="bob"),
        claims.respond("r5", 3),
    ]
    outcomes = await decide(redis_state, *asks, limits=limits)
    assert [outcome.state.value for outcome in outcomes] == list("PABJPRAVRPB")
    human = replace(
        outcomes[0], state=SubjectState.APPROVED, tier=1, revision=2, record=b"", first_origin=asks[0].origin
    )
    joined_to = {"joined": asks[0].subject}
    known = [
        stored(a, o, joined_to=joined_to.get(a.subject.subject_id))
        for a, o in zip(asks, outcomes, strict=True)
    ]
    async with redis_state.rebuilding() as rebuild:
        await rebuild.clear()
        assert await rebuild.load([stored(asks[0], human), *reversed(known)]) == 11
        assert await rebuild.load(known) == 0
        await rebuild.start_epoch("rebuilt")
    await redis_state.adopt_epoch()
    again = await decide(redis_state, *asks, limits=limits)
    assert again == [replace(o, fresh=False) for o in (human, *outcomes[1:])]
    assert await redis_state.queue_depth() == 2
    (afresh,) = await decide(redis_state, claims.again(asks[3]))
    assert (afresh.state, afresh.revision) == (SubjectState.BLOCKED, 2)
    (now_pending,) = await decide(redis_state, claims.again(refused), limits=limits)
    assert (now_pending.state, now_pending.revision) == (SubjectState.PENDING, 2)


async def test_only_one_worker_rebuilds(redis_server, redis_state, prefix):
    async with opened(redis_server, prefix) as other:
        async with redis_state.rebuilding() as first, other.rebuilding() as second:
            assert first is not None
            assert second is None
        async with other.rebuilding() as third:
            assert third is not None


async def test_the_lock_is_renewed_for_as_long_as_it_is_held(redis_server, redis_state, prefix):
    async with opened(redis_server, prefix) as other, redis_state.rebuilding(ttl=0.3) as rebuild:
        await asyncio.sleep(0.8)
        async with other.rebuilding() as second:
            assert second is None
        await rebuild.start_epoch("still ours")


async def test_who_lost_the_lock_changes_nothing(redis_server, redis_state, redis, prefix, claims):
    ask = claims.ask()
    (outcome,) = await decide(redis_state, ask)
    async with redis_state.rebuilding() as stalled, opened(redis_server, prefix) as other:
        await redis.delete(f"{prefix}rebuild")
        async with other.rebuilding() as holder:
            await holder.start_epoch("by another")
            for attempt in (
                stalled.clear(),
                stalled.load([stored(ask, outcome)]),
                stalled.start_epoch("mine"),
            ):
                with pytest.raises(StateUnavailable, match="lock"):
                    await attempt
    async with opened(redis_server, prefix) as other:
        assert await other.open() == "by another"
        assert await decide(other, ask) == [replace(outcome, fresh=False)]


async def test_who_lost_the_lock_does_not_release_that_of_another(redis_server, redis_state, redis, prefix):
    async with redis_state.rebuilding():
        await redis.set(f"{prefix}rebuild", "another")
    assert await redis.get(f"{prefix}rebuild") == b"another"


async def test_after_a_rebuild_that_failed_the_lock_is_free(redis_state, redis, prefix):
    with pytest.raises(RuntimeError):
        async with redis_state.rebuilding():
            raise RuntimeError
    assert not await redis.exists(f"{prefix}rebuild")


# Marks and policies


async def test_a_mark_stays_a_day_or_until_it_is_settled(redis_state, redis, prefix):
    assert await redis_state.marks("groundwire.claims", 0) is None
    await redis_state.mark("groundwire.claims", 0, InFlightMark(10, 19, 0))
    await (await redis_state.mark("groundwire.claims", 0, InFlightMark(10, 10, 2)))
    assert await redis_state.marks("groundwire.claims", 0) == InFlightMark(10, 10, 2)
    assert await redis_state.marks("groundwire.claims", 1) is None
    assert DAY - 60 < await redis.ttl(f"{prefix}f:groundwire.claims:0") <= DAY
    await (await redis_state.mark("groundwire.claims", 0, None))
    assert await redis_state.marks("groundwire.claims", 0) is None


async def test_a_policy_is_kept_under_its_hash(redis_state):
    assert await redis_state.get_policy("0" * 64) is None
    await redis_state.put_policy("0" * 64, b'{"version":"default"}')
    assert await redis_state.get_policy("0" * 64) == b'{"version":"default"}'


# Records that are given up


@pytest.mark.parametrize("tier", [1, 2, 3])
async def test_a_decided_subject_is_never_given_up(redis_state, claims, tier):
    ask = replace(claims.ask("c1", tier=tier), record=b'{\n"text":\n\n"a record with an empty line"}')
    (before,) = await decide(redis_state, ask)
    assert not await redis_state.give_up(ask.subject)
    (after,) = await decide(redis_state, ask)
    assert after.state == before.state


async def test_an_unknown_subject_may_be_given_up_and_leaves_no_trace(redis_state, redis, prefix):
    assert await redis_state.give_up(subject("nobody"))
    assert not await redis.keys(f"{prefix}s:*")


async def test_a_waiting_claim_that_is_given_up_holds_up_nobody_and_a_later_record_is_decided(
    redis_state, claims
):
    waiting = claims.ask("c1", wait=True)
    other = claims.ask("c2", "quite another text that nobody has sent before")
    assert await redis_state.step([waiting], LIMITS) == [Waiting(publish=True)]
    assert await redis_state.give_up(waiting.subject)
    assert await redis_state.waiting_count() == 0
    assert isinstance((await redis_state.step([other], LIMITS))[0], Outcome)
    assert await redis_state.step([waiting], LIMITS) == [GivenUp()]
    assert await redis_state.give_up(waiting.subject), "a second time as well"
    later = claims.ask("c1")
    assert (await decide(redis_state, later))[0].revision == 1
