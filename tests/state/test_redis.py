"""What only Redis can do wrong: keys and lifetimes, epochs, races, failing servers, rebuilds, in-order writes."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime

import pytest
from redis.asyncio import Redis

from agents import recovery
from agents.lease import PartitionLease
from deploy.embedded import RedisServer
from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable, UsageError
from groundwire.messages.decisions import Place
from groundwire.messages.identity import digest
from groundwire.policy import Policy
from groundwire.state.codec import short_bytes
from groundwire.state.memory import MemoryState
from groundwire.state.model import (
    GivenUp,
    InFlightMark,
    Outcome,
    QueueLimits,
    RefusedAction,
    Reviewed,
    StoredOutcome,
    SubjectState,
    SubjectStatus,
    Waiting,
)
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import SharedConnection, connect
from tests.state.claims import (
    FULL,
    LIMITS,
    LONG,
    OTHER,
    SCHEME,
    TEXT,
    A,
    B,
    Claims,
    P,
    People,
    R,
    decide,
    dedup,
    payloads_of,
    review_one,
    stored,
    subject,
)
from tests.state.conftest import Overtaken, start, state_at

DAY = 86_400
MANY = QueueLimits(per_user=10_000)
BLOCKED = {"state": B, "tier": 3, "revision": 2, "record": b""}


def word(number: int) -> str:
    return f"word{chr(97 + number // 26)}{chr(97 + number % 26)}"


def circles(count: int) -> list[str]:
    """Return texts of the same words in other orders: all are candidates, none is a duplicate."""
    words = ["amber", "birch", "cedar", "dogwood", "elder", "fir"]
    return [" ".join(words[n:] + words[:n]) for n in range(count)]


def entry_key(prefix: str, ask) -> str:
    return f"{prefix}s:{short_bytes(ask.subject.digest).decode()}"


@asynccontextmanager
async def opened(server: RedisServer, prefix: str = "gw.", **options) -> AsyncIterator[RedisState]:
    """State on a server, without an epoch of its own."""
    state = RedisState(connect(server.url, patience=1.0), prefix, scheme=SCHEME, partitions=1, **options)
    try:
        yield state
    finally:
        await state.close()


async def rebuild(state: RedisState, *known) -> None:
    async with state.rebuilding() as rebuilding:
        await rebuilding.clear()
        await rebuilding.load(known)
        await rebuilding.start_epoch("rebuilt")
    await state.adopt_epoch()


@pytest.fixture
def calls(monkeypatch):
    """Record the commands that a state sends from now on."""

    def record(state: RedisState) -> list[tuple]:
        sent, call = [], state.server.call
        monkeypatch.setattr(state.server, "call", lambda *command: sent.append(command) or call(*command))
        return sent

    return record


async def test_every_key_has_the_prefix_and_a_documented_form(redis_state, redis, prefix, claims):
    """X-04."""
    forms = (
        *(rf"{kind}:[\w-]{{22}}" for kind in ("s", "[bkm]", "d", "x", "a", "w")),
        "q",
        r"f:[\w.-]+:\d+",
        "policy:[0-9a-f]{64}",
        "epoch",
        "scheme",
    )
    asks = [claims.ask("c1"), claims.ask("c2", OTHER, 2), claims.ask("c3", wait=True)]
    response = claims.respond("r1")
    asks[:0] = [response, claims.ask("c0", None, parents=[response.subject])]
    await redis_state.step(asks, LIMITS)
    acts = [("retract", response), ("reject", asks[3])]
    await redis_state.review([People(claims).act(action, ask) for action, ask in acts])
    await redis_state.mark("groundwire.claims", 3, InFlightMark(1, 2, 0))
    await redis_state.put_policy("0" * 64, b"{}")
    names = [key.decode().removeprefix(prefix) for key in await redis.keys(f"{prefix}*")]
    assert {form for form in forms for name in names if re.fullmatch(form, name)} == set(forms)
    assert [name for name in names if not any(re.fullmatch(form, name) for form in forms)] == []


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
    await decide(redis_state, claims.again(asks["joined"]))
    for name in ("refused", "refused before"):
        asks[name] = claims.ask(name, f"something else entirely {name}", 2)
        await decide(redis_state, asks[name], limits=FULL)
    await decide(redis_state, claims.again(asks["refused before"]))
    asks["waiting"] = claims.ask("w", wait=True)
    await redis_state.step([asks["waiting"]], LIMITS)
    seconds = {name: await redis.ttl(entry_key(prefix, ask)) for name, ask in asks.items()}
    kept = {name for name, ttl in seconds.items() if ttl == -1}
    pending = {"pending", "refused before", "waiting", "response pending"}
    assert kept == {"approved", "response approved"} | pending
    assert all(31 * DAY - 60 < seconds[name] <= 31 * DAY for name in seconds if name not in kept)
    others = [key for key in await redis.keys(f"{prefix}*") if key[len(prefix) :][:2] not in (b"s:", b"r:")]
    assert {await redis.ttl(key) for key in others} == {-1}


async def test_actions_and_what_people_blocked_live_91_days_or_as_set(
    redis_server, redis, prefix, claims, people
):
    for name, days, options in (("a.", 91, {}), ("b.", 200, {"action_ttl": 200 * DAY})):
        state, own = await start(state_at(redis_server.url, prefix + name, **options)), prefix + name
        asks = {how: claims.ask(how, f"{how} {TEXT}", 2) for how in ("approve", "edit", "reject", "expire")}
        lost = (await decide(state, *asks.values()))[3]
        acts = [people.act(action, ask) for action, ask in asks.items()]
        answers = await state.review([*acts, people.act("reject", claims.ask("nobody"))])
        keys = await redis.keys(f"{own}a:*")
        blocked = [entry_key(own, asks[action]) for action in ("reject", "expire")]
        ttls = [await redis.ttl(key) for key in (*keys, *blocked)]
        by_gate = claims.ask("by gate", tier=3)
        (gates,) = await decide(state, by_gate)
        known = [stored(asks["reject"], answers[2].outcome, rejected=True)]
        known += [stored(asks["expire"], replace(lost, **BLOCKED, fresh=False))]
        await rebuild(state, *known, stored(by_gate, replace(gates, fresh=False)))
        ttls += [await redis.ttl(key) for key in blocked]
        assert [days * DAY - 60 < ttl <= days * DAY for ttl in ttls] == [True] * 9, ttls
        assert 0 < await redis.ttl(entry_key(own, by_gate)) <= 31 * DAY
        await state.close()


async def test_a_batch_that_cannot_be_read_writes_nothing_and_counters_at_zero_leave_no_key(
    redis_state, redis, prefix, claims
):
    ask, waiting = claims.ask("c1", OTHER, 2), claims.ask("w", wait=True)
    torn = claims.ask("c2", user="bob", tier=2)
    members = f"{prefix}m:{short_bytes(torn.dedup.scope).decode()}"
    await redis.set(members, "not a hash")
    with pytest.raises(StateUnavailable, match="WRONGTYPE"):
        await redis_state.step([ask, waiting, torn], LIMITS)
    assert (await redis_state.queue_depth(), await redis_state.waiting_count()) == (0, 0)
    await redis.delete(members)
    await redis_state.step([ask, waiting], LIMITS)
    (pending,) = await decide(redis_state, torn)
    assert (await redis_state.queue_depth(), await redis_state.waiting_count()) == (2, 1)
    _, first = await decide(redis_state, waiting, ask, deferred=True)
    for each, outcome in ((torn, pending), (ask, first)):
        await redis_state.reassert([stored(each, replace(outcome, state=A, revision=2, record=b""))])
    assert not await redis.exists(f"{prefix}q")
    user = short_bytes(digest("acme", "ada")).decode()
    assert not await redis.exists(f"{prefix}w:{user}")


@pytest.mark.slow
async def test_many_claims_of_a_scope_are_found_and_forgotten_as_in_memory(redis_state, claims):
    """Enough claims for the index to change its layout."""
    memory, roomy = MemoryState(), QueueLimits(per_user=1000)
    texts = [f"{TEXT} {word(n)}" for n in range(450)]
    asks = [claims.ask(f"c{n}", text, 2) for n, text in enumerate(texts)]
    again = [claims.ask(f"again {n}", text, 3) for n, text in enumerate(texts)]
    for batch in (asks[:100], asks[100:], again):
        ours, theirs = [await decide(state, *batch, limits=roomy) for state in (redis_state, memory)]
        assert ours == theirs
    assert all(outcome.matches for outcome in ours)
    for ask in asks[::2]:
        (outcome,) = await decide(memory, ask)
        for state in (redis_state, memory):
            await state.reassert([stored(ask, replace(outcome, **BLOCKED))])
    later = [claims.ask(f"later {n}", text, 3) for n, text in enumerate(texts)]
    ours, theirs = [await decide(state, *later) for state in (redis_state, memory)]
    assert ours == theirs
    assert [bool(outcome.matches) for outcome in ours] == [False, True] * 225


async def test_two_prefixes_share_nothing_and_clearing_leaves_what_is_not_rebuilt(
    redis_server, redis, claims
):
    async with opened(redis_server, "g[a]*.") as state, opened(redis_server, "ga.") as neighbour:
        for each in (state, neighbour):
            await start(each)
            outcomes = await decide(each, claims.ask("c1"), claims.ask("c2", OTHER, 2))
            assert [(outcome.state, outcome.fresh) for outcome in outcomes] == [(A, True), (P, True)]
            child = claims.ask("c4", "a text that rests on another", parents=[subject("c1")])
            await each.step([child, claims.ask("c3", wait=True)], LIMITS)
        await redis.set("g[a]*.citation:x", "kept")
        await state.put_policy("0" * 64, b"kept")
        await state.mark("t", 0, InFlightMark(1, 2, 0))
        left = {key for key in await redis.keys("*") if key.startswith(b"ga.")}
        async with state.rebuilding() as rebuilding:
            await rebuilding.clear()
        names = await redis.keys("*")
        assert {key for key in names if key.startswith(b"ga.")} == left
        kept = {b"g[a]*.citation:x", b"g[a]*.policy:" + b"0" * 64, b"g[a]*.f:t:0"}
        assert {key for key in names if key.startswith(b"g[a]*.")} == kept
        with pytest.raises(StateLost):
            await state.step([claims.ask("c4")], LIMITS)


async def test_too_much_to_compare_fails_deduplication_but_no_approval(redis_server, prefix, claims, people):
    async with opened(redis_server, prefix, max_candidates=3) as state:
        await start(state)
        asks = [claims.ask(f"c{n}", text, 2) for n, text in enumerate(circles(6))]
        # the fourth is not compared with more than three; the fifth finds three, as the fourth is not indexed
        statuses = [outcome.dedup_status for outcome in await decide(state, *asks)]
        assert statuses == ["ok"] * 4 + ["failed"] * 2
        (outcome,) = await decide(state, claims.ask("c9", circles(1)[0]))
        assert (outcome.state, outcome.tier, outcome.dedup_status) == (P, 2, "failed")
        acts = [people.act("approve", asks[0]), people.act("edit", asks[5], text=OTHER)]
        outcomes = [answer.outcome for answer in await state.review(acts)]
        found = [(one.state, one.dedup_status, list(one.matches)) for one in outcomes]
        assert found == [(A, "failed", []), (A, "ok", [])]
    async with opened(redis_server, f"{prefix}bytes.", max_candidates=1) as state:
        await start(state)
        words = [word(n) for n in range(43)]  # 18 + 9 · 43 bytes: one over 400
        under, over = " ".join(words[:42]), " ".join(words)
        for name in ("c1", "c2"):
            outcomes = await decide(state, claims.ask(name, under), claims.ask(name, over, user="bob"))
        assert [outcome.dedup_status for outcome in outcomes] == ["ok", "failed"]


async def test_candidates_that_exceed_one_answer_take_several_calls_and_the_outcomes_are_those_of_memory(
    redis_state, claims, calls
):
    memory, roomy = MemoryState(), QueueLimits(per_user=1000)
    words = [f"{word(n % 676)}{word(n // 676)}" for n in range(3_000)]  # 27 kB a claim
    pending = [claims.ask(f"c{n}", " ".join(words[n:] + words[:n]), 2) for n in range(50)]
    asks = [claims.ask(f"d{n}", " ".join(words[60 + n :] + words[: 60 + n]), 3) for n in range(3)]
    for state in (memory, redis_state):
        await decide(state, *pending, limits=roomy)
    sent = calls(redis_state)
    assert await decide(redis_state, *asks) == await decide(memory, *asks)
    assert len(sent) == 3 * len(("fetch", "the last candidates", "commit"))


@pytest.mark.slow
async def test_looking_back_at_thousands_takes_one_call_each(redis_state, claims, calls):
    asks = [claims.respond(f"r{n}", 2, queued=True) for n in range(1_000)]
    outcomes = await decide(redis_state, *asks, limits=MANY)
    subjects = [*[ask.subject for ask in asks], *[subject(f"nobody {n}") for n in range(9_000)]]
    for each in (redis_state.statuses, redis_state.held):
        await each(subjects[:1])  # the server has the script
    sent = calls(redis_state)
    assert await redis_state.statuses(subjects * 2) == ([SubjectStatus(P, 1)] * 1_000 + [None] * 9_000) * 2
    held = await redis_state.held(subjects * 2)
    assert [entry.record for entry in held[:1_000]] == [outcome.record for outcome in outcomes]
    assert [entry.payload for entry in held[:1_000]] == [ask.payload for ask in asks]
    assert [len(command) < 10_010 for command in sent] == [True] * 2, "each subject is sent once"


async def test_of_identical_claims_or_of_two_reviewers_at_once_exactly_one_counts(
    redis_server, redis_state, prefix, claims, people
):
    async with opened(redis_server, prefix) as left, opened(redis_server, prefix) as right:
        for turn in range(20):
            text = f"{TEXT} in the round of {word(turn)} and {word(turn + 20)}"
            asks = [claims.ask(f"{turn}-{n}", text) for n in range(10)]
            answers = await asyncio.gather(
                *(state.step([ask], LIMITS) for state, ask in zip((left, right) * 5, asks, strict=True))
            )
            assert sorted(outcome.state for (outcome,) in answers) == [A] + [B] * 9
            ask = claims.respond(f"r{turn}", 2, queued=True)
            await decide(redis_state, ask)
            acts = [people.act(action, ask) for action in ("approve", "reject")][:: 1 if turn % 2 else -1]
            answers = await asyncio.gather(left.review(acts[:1]), right.review(acts[1:]))
            (won,) = [answer for (answer,) in answers if isinstance(answer, Reviewed)]
            (lost,) = [answer for (answer,) in answers if isinstance(answer, RefusedAction)]
            assert lost.code in {"stale", "not_pending"}
            current = SubjectStatus(won.outcome.state, 2)
            assert [lost.current] == await redis_state.statuses([ask.subject]) == [current]
    assert await redis_state.queue_depth() == 0


async def test_state_that_lost_its_epoch_is_lost_to_every_call_and_nothing_is_changed(
    redis_server, redis_state, redis, prefix, claims, people
):
    ask = claims.ask(tier=2)
    (first,) = await decide(redis_state, ask)
    await redis.delete(f"{prefix}epoch")
    attempts = [redis_state.step([claims.ask()], LIMITS), redis_state.review([people.act("approve", ask)])]
    attempts += [redis_state.give_up(ask.subject), redis_state.reassert([stored(ask, first)])]
    attempts += [each([ask.subject]) for each in (redis_state.held, redis_state.statuses)]
    for attempt in attempts:
        with pytest.raises(StateLost):
            await attempt
    assert len(await redis.keys(f"{prefix}s:*")) == 1
    assert await redis.keys(f"{prefix}a:*") == []
    assert await redis_state.read_epoch() is None
    async with opened(redis_server, f"empty-{prefix}") as empty:
        assert await empty.open() is None
        for attempt in (empty.step([claims.ask()], LIMITS), empty.held([subject()])):
            with pytest.raises(StateLost, match="no epoch"):
                await attempt


async def test_state_that_another_worker_rebuilt_is_lost_until_its_epoch_is_adopted(
    redis_server, redis_state, prefix, claims
):
    async with opened(redis_server, prefix) as other:
        await decide(other, claims.ask())  # a step opens state
        assert other.epoch == redis_state.epoch
        await start(other)
        with pytest.raises(StateLost):
            await redis_state.step([claims.ask()], LIMITS)
        assert await redis_state.read_epoch() == other.epoch != redis_state.epoch
        assert await redis_state.adopt_epoch() == other.epoch
        await decide(redis_state, claims.ask())
    newer = state_at(redis_server.url, prefix, scheme="partition-9/words-9/signature-9/9000")
    with pytest.raises(SchemeMismatch, match="groundwire rebuild"):
        await newer.open()
    await start(newer)
    assert await newer.open() == newer.epoch
    with pytest.raises(SchemeMismatch):
        await redis_state.adopt_epoch()
    await newer.close()


async def test_a_server_that_lost_its_scripts_gets_them_again(redis_state, redis, claims, people):
    ask = claims.ask(tier=2)
    act = people.act("approve", ask)
    (first,) = await decide(redis_state, ask)
    await redis.script_flush()
    assert await decide(redis_state, ask) == [replace(first, fresh=False)]
    for attempt in (
        redis_state.review([act]),
        redis_state.statuses([ask.subject]),
        redis_state.held([ask.subject]),
    ):
        await redis.script_flush()
        assert (await attempt)[0].revision == 2


async def test_a_killed_server_is_unavailable_and_keeps_its_outcomes_unless_it_starts_empty(
    own_server, claims
):
    ask = claims.ask()
    async with opened(own_server) as state:
        await start(state)
        (first,) = await decide(state, ask)
        own_server.kill()
        for attempt in (state.step([ask], LIMITS), state.held([ask.subject])):
            with pytest.raises(StateUnavailable):
                await attempt
        own_server.start()
        assert await decide(state, ask) == [replace(first, fresh=False)]
        own_server.kill()
        own_server.start(keep_data=False)
        with pytest.raises(StateLost):
            await state.step([claims.ask()], LIMITS)


async def test_a_server_that_lost_a_write_between_fetch_and_commit_decides_nothing(
    own_server, prefix, claims, monkeypatch
):
    """What the checks of a commit would have found is gone."""
    monkeypatch.setattr(recovery, "stored_outcome", lambda value, _policy: value)
    state = Overtaken(connect(own_server.url), prefix, scheme=SCHEME, partitions=1)
    await start(state)
    first, second = claims.ask("c1", "the harbour is closed"), claims.ask("c2", "the harbour is closed")
    log = own_server.directory / "appendonlydir"
    kept = own_server.directory / "kept"
    reads: list[StoredOutcome] = []

    async def read(_since: datetime):
        for outcome in reads:
            yield outcome

    def lose_last_write() -> None:
        own_server.kill()
        shutil.rmtree(log)
        shutil.copytree(kept, log)
        own_server.start()

    async def overtake() -> None:
        (outcome,) = await decide(other, first)
        reads.append(stored(first, outcome))
        await asyncio.to_thread(lose_last_write)

    other = state_at(own_server.url, prefix)

    def reconciler() -> recovery.StateReconciler:
        return recovery.StateReconciler(state, Policy(), PolicyStore(None, None), read)

    await reconciler().before_step([0], PartitionLease())
    await other.open()
    shutil.copytree(log, kept)
    state.overtake = overtake
    with pytest.raises(StateUnavailable):
        await state.step([second], LIMITS)
    # a worker that starts now has never seen the run before
    await reconciler().before_step([0], PartitionLease())
    (answer,) = await state.step([second], LIMITS)
    assert (answer.state, answer.matches[0].subject_id) == (B, "c1")
    await state.close()
    await other.close()


async def test_a_rebuild_during_which_the_server_restarts_is_refused(own_server, prefix):
    """What was just loaded may be lost."""
    state = await start(state_at(own_server.url, prefix))
    async with state.rebuilding() as rebuild:
        await rebuild.clear()
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        with pytest.raises(StateUnavailable, match="restarted"):
            await rebuild.start_epoch("half")
    assert await (await start(state)).adopt_epoch()
    await state.close()


async def test_a_frozen_server_is_unavailable_and_its_late_answer_goes_to_nobody(own_server, claims):
    client = Redis.from_url(own_server.url, socket_timeout=None)
    state = await start(RedisState(client, "gw.", scheme=SCHEME, partitions=1, patience=0.5))
    own_server.pause()
    try:
        async with asyncio.timeout(60):
            with pytest.raises(StateUnavailable):
                await state.step([claims.ask()], LIMITS)
    finally:
        own_server.resume()
    (outcome,) = await decide(state, claims.ask("c2", OTHER))
    assert outcome.origin.offset == 2
    await state.close()


async def test_a_server_that_refuses_writes_is_unavailable_and_holds_no_half_step(own_server, claims):
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
        await client.replicaof("127.0.0.1", 1)
        with pytest.raises(StateUnavailable, match="ReadOnly"):
            await state.step([claims.ask("c4", None)], LIMITS)
        await client.aclose()


async def test_an_entry_that_cannot_be_read_is_unavailable(redis_state, redis, prefix, claims):
    ask = claims.ask()
    await decide(redis_state, ask)
    key = entry_key(prefix, ask)
    await redis.set(key, (await redis.get(key)).replace(b"\non\n", b"\n??\n"))
    with pytest.raises(StateUnavailable):
        await redis_state.step([ask], LIMITS)
    await redis.set(key, "Q 2 1 not an entry")
    for attempt in (redis_state.held([ask.subject]), redis_state.statuses([ask.subject])):
        with pytest.raises(StateUnavailable):
            await attempt


async def test_a_server_that_may_forget_is_refused_unless_that_is_allowed_or_hidden(own_server):
    client = connect(own_server.url)
    await client.config_set("appendonly", "no")
    async with opened(own_server) as state, opened(own_server, require_aof=False) as lenient:
        with pytest.raises(UsageError, match="appendonly"):
            await state.open()
        assert await lenient.open() is None
        await client.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(UsageError, match="noeviction"):
            await lenient.open()
    await client.execute_command("ACL", "SETUSER", "gate", "on", ">pw", "~*", "+@all", "-config", "-info")
    hidden = RedisState(
        connect(own_server.url.replace("//", "//gate:pw@")), "gw.", scheme=SCHEME, partitions=1
    )
    assert await hidden.open() is None, "a managed server often does not show its settings"
    await hidden.close()
    await client.aclose()
    decoding = Redis.from_url(own_server.url, decode_responses=True)
    with pytest.raises(UsageError, match="decode"):
        RedisState(decoding, "gw.", scheme=SCHEME, partitions=1)
    for lifetime in ({"idempotency_ttl": 0}, {"action_ttl": -1}):
        with pytest.raises(ValueError, match="above 0"):
            RedisState(client, "gw.", scheme=SCHEME, partitions=1, **lifetime)
    await decoding.aclose()


async def test_a_request_that_would_break_the_layout_is_an_error(redis_state, claims, people):
    for changes in (
        {"payload": b"two\nlines"},
        {"payload": b"two\nlines\trest"},
        {"fingerprint": "abc"},
        {"dedup": replace(dedup(TEXT, subject()), signature=b"short")},
        {"dedup": replace(dedup(TEXT, subject()), probed=[b"seven b"])},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - whichever of them
            await redis_state.step([replace(claims.ask(), **changes)], LIMITS)
    await decide(redis_state, claims.ask(tier=2))
    for changes in ({"payload": b"two\nlines"}, {"refused": "not a code"}, {"refused": "Stale\n"}):
        with pytest.raises(ValueError):  # noqa: PT011 - whichever of them
            await redis_state.review([people.act("approve", claims.ask(), **changes)])


def test_an_address_that_is_no_redis_is_refused_and_no_password_is_shown():
    for url in ("redis://:12/secret@host:6379/0", "redis+cluster://:pa#ss@host:1", "redis://:s?s@host"):
        with pytest.raises(UsageError, match="%2F") as refused:
            connect(url)
        assert not re.search(r"ss|12", str(refused.value).replace("password", ""))
    for url in (
        *("redis+cluster://host:x", "redis+cluster://host/3", "redis+cluster://h:1,h:y/0"),
        *("redis+cluster://h:1,redis://h:2", "redis+cluster://", "redis-cluster://h:1", "h:1"),
    ):
        with pytest.raises(UsageError, match="GROUNDWIRE_REDIS_URL"):
            connect(url)


async def test_after_a_rebuild_a_published_action_is_answered_and_a_lost_one_carried_out_again(
    redis_state, claims, people
):
    """A revision that was not published is lost: the subject is as pending as before."""
    published, lost, unknown = claims.ask("c1", tier=2), claims.ask("c2", OTHER, 2), claims.ask("c3", LONG, 2)
    outcomes = await decide(redis_state, published, lost, unknown)
    acts = [people.act("approve", ask) for ask in (published, lost)]
    refused, rejects = people.act("reject", lost, revision=9), people.act("reject", unknown)
    first, second, third, fourth = await redis_state.review([*acts, refused, rejects])
    pending = stored(lost, replace(outcomes[1], fresh=False))
    await rebuild(redis_state, stored(published, first.outcome), pending)
    assert await redis_state.queue_depth() == 1
    again = people.act("approve", lost, action_id=acts[1].action_id)
    answers = await redis_state.review([acts[0], again, refused, rejects])
    expected = Reviewed(2, replace(second.outcome, origin=again.origin))
    assert answers == [first, expected, third, RefusedAction("unknown", None)]
    await redis_state.step([replace(unknown, wait=True)], LIMITS)
    waiting = SubjectStatus(SubjectState.WAITING, 0)
    assert await review_one(redis_state, rejects) == RefusedAction("waiting", waiting)
    await redis_state.reassert([stored(unknown, fourth.outcome, rejected=True)])
    assert await review_one(redis_state, rejects) == fourth, "no refusal took the place of the answer"
    await rebuild(redis_state, pending)
    other = await review_one(redis_state, people.act("approve", lost, action_id="another"))
    stale = RefusedAction("stale", SubjectStatus(A, 2))
    assert await review_one(redis_state, again) == stale, "the revision is another action's by now"
    await review_one(redis_state, people.act("retract", lost, revision=2))
    assert await review_one(redis_state, again) == stale
    act = people.act("approve", lost, action_id="another")
    assert await review_one(redis_state, act) == other, "the superseded one keeps its answer"


@pytest.mark.parametrize(("ttl", "held"), [(60, 0), pytest.param(5, 12, marks=pytest.mark.slow)])
async def test_only_one_worker_rebuilds_and_keeps_its_lock(
    redis_server, redis_state, redis, prefix, ttl, held
):
    """Held longer than the lock lasts unless it is renewed."""
    async with opened(redis_server, prefix) as other:
        async with redis_state.rebuilding(ttl=ttl) as first:
            await asyncio.sleep(held)
            async with other.rebuilding() as second:
                assert second is None
            await first.start_epoch("still ours")
        with suppress(RuntimeError):
            async with other.rebuilding() as third:
                assert third is not None
                raise RuntimeError
        assert not await redis.exists(f"{prefix}rebuild")


async def test_a_rebuild_ends_though_the_renewal_of_its_lock_loses_a_cancellation(
    redis_state, redis, prefix, monkeypatch
):
    renewing, lost = asyncio.Event(), []

    async def renew(_fence):
        while True:
            renewing.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                if lost:
                    raise
                lost.append("the first")

    monkeypatch.setattr("groundwire.state.redis.Rebuild.renew", renew)
    async with asyncio.timeout(60) as limit, redis_state.rebuilding():
        await renewing.wait()
    assert lost
    assert not limit.expired()
    assert not await redis.exists(f"{prefix}rebuild")


async def test_who_lost_the_lock_changes_and_releases_nothing(
    redis_server, redis_state, redis, prefix, claims
):
    ask = claims.ask()
    (outcome,) = await decide(redis_state, ask)
    async with redis_state.rebuilding() as stalled, opened(redis_server, prefix) as other:
        await redis.delete(f"{prefix}rebuild")
        async with other.rebuilding() as holder:
            await holder.start_epoch("by another")
            attempts = [stalled.clear(), stalled.load([stored(ask, outcome)]), stalled.start_epoch("mine")]
            for attempt in attempts:
                with pytest.raises(StateUnavailable, match="lock"):
                    await attempt
        await redis.set(f"{prefix}rebuild", "another")
    assert await redis.get(f"{prefix}rebuild") == b"another"
    async with opened(redis_server, prefix) as other:
        assert await other.open() == "by another"
        assert await decide(other, ask) == [replace(outcome, fresh=False)]


async def test_marks_and_policies_are_kept(redis_state, redis, prefix):
    assert await redis_state.marks("groundwire.claims", 0) is None
    await redis_state.mark("groundwire.claims", 0, InFlightMark(10, 19, 0), answered=False)
    await redis_state.mark("groundwire.claims", 0, InFlightMark(10, 10, 2))
    assert await redis_state.marks("groundwire.claims", 0) == InFlightMark(10, 10, 2)
    assert await redis_state.marks("groundwire.claims", 1) is None
    assert DAY - 60 < await redis.ttl(f"{prefix}f:groundwire.claims:0") <= DAY
    await redis_state.mark("groundwire.claims", 0, None)
    assert await redis_state.marks("groundwire.claims", 0) is None
    assert await redis_state.get_policy("0" * 64) is None
    await redis_state.put_policy("0" * 64, b'{"version":"default"}')
    assert await redis_state.get_policy("0" * 64) == b'{"version":"default"}'


async def test_a_waiting_claim_that_is_given_up_holds_up_nobody_and_is_unknown_to_people(
    redis_state, redis, prefix, claims, people
):
    assert await redis_state.give_up(subject("nobody"))
    assert not await redis.keys(f"{prefix}s:*")
    decided = replace(claims.ask("decided", LONG), record=b'{\n"text":\n\n"a record with an empty line"}')
    (before,) = await decide(redis_state, decided)
    assert not await redis_state.give_up(decided.subject), "what is decided is not given up"
    assert await decide(redis_state, decided) == [replace(before, fresh=False)]
    ask, other = claims.ask(tier=2, wait=True), claims.ask("c2", "quite another text that nobody sent before")
    later = claims.again(ask)
    assert await redis_state.step([ask, later], LIMITS) == [Waiting(publish=True), Waiting(publish=False)]
    assert await redis_state.give_up(ask.subject)
    assert await redis_state.give_up(ask.subject), "a second time as well"
    assert await redis_state.waiting_count() == 0
    assert isinstance((await redis_state.step([other], LIMITS))[0], Outcome)
    assert await redis_state.step([ask, later], LIMITS) == [GivenUp()] * 2
    for each in (redis_state.held, redis_state.statuses):
        assert await each([ask.subject]) == [None]
    act = people.act("approve", ask, revision=0)
    assert await review_one(redis_state, act) == RefusedAction("unknown", None)
    (afresh,) = await decide(redis_state, claims.again(ask, wait=False))
    assert (afresh.state, afresh.revision) == (P, 1)
    assert (await review_one(redis_state, people.act("approve", ask))).revision == 2


async def test_giving_up_a_record_leaves_the_outcome_before_it(redis_state, claims, people):
    ask = claims.ask("refused", OTHER, 2)
    await decide(redis_state, ask, limits=FULL)
    later = claims.again(ask, wait=True)
    await redis_state.step([later], LIMITS)
    await redis_state.give_up(ask.subject)
    assert await redis_state.held([ask.subject]) == [None]
    assert await redis_state.statuses([ask.subject]) == [SubjectStatus(R, 1)]
    refused = await review_one(redis_state, people.act("approve", ask))
    assert refused == RefusedAction("not_pending", SubjectStatus(R, 1))
    assert await redis_state.step([later], LIMITS) == [GivenUp()]
    leader, joined = claims.ask("c1", tier=2), claims.ask("c2", tier=2)
    await decide(redis_state, leader, joined)
    await review_one(redis_state, people.act("expire", leader))
    first, second = claims.again(joined, wait=True), claims.again(joined)
    await redis_state.step([first, second], LIMITS)
    await redis_state.give_up(joined.subject)
    assert await redis_state.step([first, second], LIMITS) == [GivenUp()] * 2
    (afresh,) = await decide(redis_state, claims.again(joined))
    assert (afresh.state, afresh.revision, afresh.first_origin) == (P, 2, joined.origin)
    answer = await review_one(redis_state, people.act("approve", joined, revision=2))
    assert (answer.revision, answer.outcome.state, answer.outcome.first_origin) == (3, A, joined.origin)
    assert await decide(redis_state, first, second, claims.again(joined)) == [answer.outcome] * 3


async def test_commands_take_effect_in_order_each_gets_its_own_answer_and_a_broken_connection_is_replaced(
    redis_server, prefix
):
    async def call(*command: str) -> object:
        return await line.send(*command)

    redis = connect(redis_server.url.removesuffix("/0") + "/7", patience=20.0)
    line = SharedConnection(redis, 20.0)
    tasks = [asyncio.create_task(call("APPEND", prefix, "x")) for _ in range(100)]
    assert await asyncio.gather(*tasks) == list(range(1, 101))
    with pytest.raises(StateUnavailable, match="INCR: ResponseError"):
        await call("INCR", prefix)
    for unread in ("INCR", "GET"):  # a refusal or an answer that nobody waits for is no other's
        await line.send(unread, prefix, answered=False)
        assert await call("ECHO", unread) == unread.encode()
    for turns in range(12):
        first = asyncio.create_task(call("ECHO", "mine"))
        second = asyncio.create_task(call("GET", prefix))
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        answer = (await asyncio.gather(first, second, return_exceptions=True))[1]
        assert answer == b"x" * 100 or isinstance(answer, StateUnavailable)
        assert await call("GET", prefix) == b"x" * 100
    await redis.client_kill_filter(_id=await call("CLIENT", "ID"))
    with suppress(StateUnavailable):  # what is under way when it breaks
        await call("GET", prefix)
    assert await call("GET", prefix) == b"x" * 100
    await line.close()
    assert [client["db"] for client in await redis.client_list()].count("7") == 1, "the client's own is left"
    await redis.aclose()


@pytest.mark.slow
async def test_what_is_written_arrives_though_the_process_is_killed_at_once(redis_server, redis, prefix):
    sender = """
import asyncio, os, sys
from groundwire.state.server import SharedConnection, connect

async def main():
    line = SharedConnection(connect(sys.argv[1]))
    await line.send("GET", "x")  # connects: the next command is not held up
    die = lambda: os.kill(os.getpid(), 9)
    await line.send("SET", sys.argv[2], "note", answered=False)
    die()

if sys.argv[3] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""
    for loop in ("asyncio", "uvloop"):
        command = [sys.executable, "-c", sender, redis_server.url, prefix + loop, loop]
        environment = os.environ | {"PYTHONPATH": "src"}
        killed = await asyncio.to_thread(subprocess.run, command, env=environment, check=False)
        assert killed.returncode == -9
        async with asyncio.timeout(60):
            while await redis.get(prefix + loop) != b"note":  # noqa: ASYNC110 - Redis sends no event
                await asyncio.sleep(0.01)


async def test_what_follows_a_lost_request_of_its_batch_is_decided_again(redis_server, prefix):
    """The scope may have the expected version by chance: another worker changed it as often."""
    async with opened(redis_server, prefix) as other:
        await start(other)
        state = Overtaken(connect(redis_server.url), prefix, scheme=SCHEME, partitions=1)
        await state.adopt_epoch()
        for user, texts, theirs in (
            ("ann", (OTHER, TEXT), TEXT),
            ("bob", (OTHER, f"never {TEXT}"), LONG),
            ("cy", (LONG, LONG), f"never {TEXT}"),
        ):
            claims, memory = Claims(), MemoryState()
            first = claims.ask("b", theirs, user=user)
            asks = [claims.ask(f"a{n}", text, user=user) for n, text in enumerate(texts)]
            expected = await decide(memory, first, *asks)

            async def overtake(first=first) -> None:
                await decide(other, first)

            state.overtake = overtake
            assert await decide(state, *asks) == expected[1:]
        await state.close()


async def test_the_last_place_that_two_workers_see_free_goes_to_one_of_them(redis_server, prefix):
    """Each row: the limits, and the places of tenants that are taken before."""
    rows = [
        (QueueLimits(total=2), ["t0"], Place.TOTAL_FULL),
        (QueueLimits(total=1, reserved=2), ["t0", "acme"], Place.TOTAL_FULL),
        (QueueLimits(total=2, reserved=2), ["t0"], Place.FREE),
    ]
    async with opened(redis_server, prefix) as other:
        for number, (limits, taken, expected) in enumerate(rows):
            await start(other)
            claims = Claims(1_000 * number)
            state = Overtaken(connect(redis_server.url), prefix, scheme=SCHEME, partitions=1)
            await state.adopt_epoch()
            before = [claims.ask(f"b{n}", None, 2, tenant=tenant) for n, tenant in enumerate(taken)]
            await decide(other, *before, limits=replace(limits, total=9))
            theirs, ours = claims.ask("theirs", None, 2), claims.ask("ours", None, 2, user="bob")

            async def overtake(theirs=theirs, limits=limits) -> None:
                await decide(other, theirs, limits=limits)

            state.overtake = overtake
            (outcome,) = await decide(state, ours, limits=limits)
            assert outcome.place is expected, limits
            await state.close()


async def test_a_payload_is_read_by_those_who_never_wrote_its_prefix_also_after_it_was_lost(
    redis_server, redis_state, redis, prefix, claims
):
    for name in ("c1", "c2"):
        await decide(redis_state, replace(claims.ask(name, None), payload=b"prefix\trest"))
        async with opened(redis_server, prefix) as other:
            assert await payloads_of(other, [subject(name)]) == [b"prefix\trest"]
        await redis.delete(f"{prefix}c")


async def test_counters_of_0_2_0_are_counted_on(redis_state, redis, prefix, claims):
    await decide(redis_state, claims.ask("c1", TEXT, 2))
    await redis.hset(f"{prefix}q", "total", f"{1:065d}")
    await decide(redis_state, claims.ask("c2", OTHER, 2))
    assert await redis_state.queue_depth() == 2


async def test_an_answer_of_another_worker_counts_though_the_batch_only_named_the_claim_as_a_parent_before(
    redis_server, prefix
):
    claims = Claims()
    other = await start(RedisState(connect(redis_server.url), prefix, scheme=SCHEME, partitions=1))
    state = Overtaken(connect(redis_server.url), prefix, scheme=SCHEME, partitions=1)
    try:
        leader, joined = claims.ask("leader", tier=2), claims.ask("joined", tier=2)
        _, outcome = await decide(other, leader, joined)
        recorded = replace(outcome, fresh=False)
        child = claims.ask("child", None, parents=[joined.subject])
        again, later = claims.again(joined), claims.again(joined)

        async def overtake() -> None:
            assert await decide(other, later) == [recorded]

        state.overtake = overtake
        await state.step([child, again], LIMITS)
        await state.review([People(Claims(1000)).act("approve", leader)])
        assert await decide(state, later) == [recorded]  # it was answered: it is not decided afresh
    finally:
        await state.close()
        await other.close()


async def test_a_claim_with_thousands_of_derived_ones_can_be_retracted(redis_state, claims, people):
    parent = claims.respond("r")
    await decide(redis_state, parent)
    for first in range(0, 4_500, 500):
        await decide(
            redis_state,
            *[claims.ask(f"c{n}", None, parents=[parent.subject]) for n in range(first, first + 500)],
        )
    assert (await review_one(redis_state, people.act("retract", parent))).affected_total == 4_500


async def test_a_claim_that_left_the_index_in_the_same_batch_is_no_missing_candidate(redis_state):
    memory, claims, people = MemoryState(), Claims(), People(Claims(1000))
    asks = [claims.ask(name, text, 2) for name, text in (("a", TEXT), ("b", f"never {TEXT}"))]
    actions = [people.act("expire", asks[0]), people.act("approve", asks[1])]
    for state in (memory, redis_state):
        await decide(state, *asks)
    answers = await redis_state.review(actions)
    assert answers == await memory.review(actions)
    assert answers[1].outcome.dedup_status == "ok"
