"""People's actions where only Redis can go wrong: races, lifetimes, rebuilds, and how much is done in one call."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from groundwire.errors import StateLost, StateUnavailable
from groundwire.messages.decisions import MatchClass
from groundwire.messages.identity import digest
from groundwire.state.codec import short
from groundwire.state.model import (
    GivenUp,
    QueueLimits,
    RefusedAction,
    Reviewed,
    SubjectState,
    SubjectStatus,
)
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.state.claims import LIMITS, TEXT, decide, review_one, stored, subject
from tests.state.conftest import start, state_at

A, P, B, R = SubjectState.APPROVED, SubjectState.PENDING, SubjectState.BLOCKED, SubjectState.REFUSED
OTHER = "backups of the billing database are written to a second region every night at two o'clock"
DAY = 86_400
MANY = QueueLimits(per_user=10_000)


@pytest.fixture
async def redis(redis_server) -> AsyncIterator[Redis]:
    client = connect(redis_server.url)
    yield client
    await client.aclose()


def entry_key(prefix, ask) -> str:
    return f"{prefix}s:{short(ask.subject.digest)}"


def action_key(prefix, act) -> str:
    own = ("expire", act.subject.digest.hex()) if act.action == "expire" else ()
    return f"{prefix}a:{short(digest(act.subject.tenant_id, act.action_id, *own))}"


# Races


async def test_of_two_reviewers_at_once_exactly_one_decides_each_of_a_thousand_items(
    redis_server, redis_state, prefix, claims, people
):
    asks = [claims.respond(f"r{n}", 2, queued=True) for n in range(1_000)]
    await decide(redis_state, *asks, limits=MANY)
    winners = set()
    async with AsyncExitStack() as stack:
        states = [state_at(redis_server.url, prefix) for _ in range(2)]
        for state in states:
            stack.push_async_callback(state.close)

        async def race(number: int) -> None:
            ask = asks[number]
            acts = [people.act(action, ask) for action in ("approve", "reject")]
            turned = acts[:: 1 if number % 2 else -1]
            answers = await asyncio.gather(
                *[state.review([act]) for state, act in zip(states, turned, strict=True)]
            )
            (won,) = [answer for (answer,) in answers if isinstance(answer, Reviewed)]
            (lost,) = [answer for (answer,) in answers if isinstance(answer, RefusedAction)]
            assert won.revision == won.outcome.revision == 2
            assert lost.code in {"stale", "not_pending"}
            assert lost.current == SubjectStatus(won.outcome.state, 2)
            assert await redis_state.statuses([ask.subject]) == [lost.current]
            winners.add(won.outcome.state)

        for first in range(0, len(asks), 20):
            await asyncio.gather(*[race(number) for number in range(first, first + 20)])
    assert winners <= {A, B}
    assert await redis_state.queue_depth() == 0


async def test_one_action_that_two_workers_carry_out_at_once_is_carried_out_once(
    redis_server, redis_state, prefix, claims, people
):
    other = state_at(redis_server.url, prefix)
    for n in range(50):
        ask = claims.ask(f"c{n}", f"{TEXT} in round {n}", 2)
        await decide(redis_state, ask)
        act = people.act("approve", ask)
        answers = await asyncio.gather(*[state.review([act]) for state in (redis_state, other) * 3])
        assert [answer for (answer,) in answers] == [answers[0][0]] * 6
        assert answers[0][0].outcome.revision == 2
    await other.close()


# Lifetimes


async def test_actions_and_what_people_blocked_are_kept_for_91_days_and_what_they_approved_for_good(
    redis_state, redis, prefix, claims, people
):
    asks = {name: claims.ask(name, f"{name} {TEXT}", 2) for name in ("approve", "edit", "reject", "expire")}
    await decide(redis_state, *asks.values())
    acts = [people.act(action, ask) for action, ask in asks.items()]
    acts.append(people.act("reject", claims.ask("nobody")))
    await redis_state.review(acts)
    for act in acts:
        assert 91 * DAY - 60 < await redis.ttl(action_key(prefix, act)) <= 91 * DAY
    seconds = [await redis.ttl(entry_key(prefix, ask)) for ask in asks.values()]
    assert seconds[:2] == [-1, -1]
    assert all(91 * DAY - 60 < ttl <= 91 * DAY for ttl in seconds[2:])
    for key in await redis.keys(f"{prefix}[kmd]:*"):
        assert await redis.ttl(key) == -1, key


async def test_the_lifetime_of_actions_can_be_set(redis_server, prefix, claims, people):
    state = state_at(redis_server.url, prefix, action_ttl=200 * DAY)
    await start(state)
    act = people.act("reject", claims.ask())
    await state.review([act])
    assert 200 * DAY - 60 < await state.server.call("TTL", action_key(prefix, act)) <= 200 * DAY
    await state.close()


async def test_what_was_rejected_is_found_when_its_entry_is_gone_and_a_new_one_does_not_take_it_away(
    redis_state, redis, prefix, claims, people
):
    ask = claims.ask("c1", tier=2)
    await decide(redis_state, ask)
    await review_one(redis_state, people.act("reject", ask))
    assert b" -\n" in (await redis.get(entry_key(prefix, ask)))  # the entry does not own what is found
    await redis.delete(entry_key(prefix, ask))
    for revision, action in enumerate(("expire", "reject"), 1):
        again = claims.ask("c1", tier=2)
        (outcome,) = await decide(redis_state, again)
        assert (outcome.state, outcome.revision) == (P, 1), revision
        rejected = [match for match in outcome.matches if match.match_class is MatchClass.REJECTED]
        assert [match.subject_id for match in rejected] == ["c1"]
        await review_one(redis_state, people.act(action, again))
        await redis.delete(entry_key(prefix, again))
    members = await redis.hgetall(f"{prefix}m:{short(ask.dedup.scope)}")
    assert sorted(value[:1] for name, value in members.items() if name != b"n") == [b"X", b"X"]


@pytest.mark.parametrize("action", ["approve", "reject"])
async def test_a_claim_that_stays_in_the_index_keeps_its_place_there(
    redis_state, redis, prefix, claims, people, action
):
    """No id is left behind in a bucket for somebody to clear away."""
    ask = claims.ask("c1", tier=2)
    await decide(redis_state, ask)
    scope = short(ask.dedup.scope)
    before = await redis.get(f"{prefix}k:{scope}")
    await review_one(redis_state, people.act(action, ask))
    assert before
    assert await redis.get(f"{prefix}k:{scope}") == before
    member = await redis.hget(f"{prefix}m:{scope}", b"\1\0\0\0")
    class_ = "A" if action == "approve" else "X"
    assert member.startswith(f"{class_}{1_000 + claims.offset} 0  c1\0".encode())
    assert member.endswith(ask.dedup.signature)


async def test_a_retracted_entry_shows_whom_it_affected(redis_state, redis, prefix, claims, people):
    parent = claims.ask("p")
    await decide(redis_state, parent, claims.ask("c1", OTHER, parents=[parent.subject]))
    await review_one(redis_state, people.act("retract", parent))
    assert (await redis.get(entry_key(prefix, parent))).endswith(b'\n{"by":"retract"}\n[1,["c1"]]')


# Records that were given up


async def test_what_stands_for_a_record_that_was_given_up_is_nothing_to_people(redis_state, claims, people):
    ask = claims.ask(tier=2, wait=True)
    await redis_state.step([ask], LIMITS)
    assert await redis_state.held([ask.subject]) == [None]
    await redis_state.give_up(ask.subject)
    assert await redis_state.held([ask.subject]) == [None]
    assert await redis_state.statuses([ask.subject]) == [None]
    assert await review_one(redis_state, people.act("approve", ask, revision=0)) == RefusedAction(
        "unknown", None
    )
    (afresh,) = await decide(redis_state, claims.again(ask, wait=False))
    assert (afresh.state, afresh.revision) == (P, 1)
    assert (await review_one(redis_state, people.act("approve", ask))).revision == 2


async def test_a_record_given_up_after_a_refusal_leaves_the_refusal_standing(redis_state, claims, people):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask, limits=QueueLimits(per_user=0))
    later = claims.again(ask, wait=True)
    await redis_state.step([later], LIMITS)
    await redis_state.give_up(ask.subject)
    assert await redis_state.held([ask.subject]) == [None]
    assert await redis_state.statuses([ask.subject]) == [SubjectStatus(R, 1)]
    refused = await review_one(redis_state, people.act("approve", ask))
    assert refused == RefusedAction("not_pending", SubjectStatus(R, 1))
    assert await redis_state.step([later], LIMITS) == [GivenUp()]
    (afresh,) = await decide(redis_state, claims.again(ask))
    assert (afresh.state, afresh.revision) == (P, 2)


async def test_a_joined_claim_given_up_after_the_other_was_decided_is_decided_by_a_later_record_alone(
    redis_state, claims, people
):
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
    assert not await redis_state.give_up(joined.subject)
    assert await decide(redis_state, first, second, claims.again(joined)) == [answer.outcome] * 3


# Rebuilds


async def rebuild(state: RedisState, *known) -> None:
    async with state.rebuilding() as rebuilding:
        await rebuilding.clear()
        await rebuilding.load(known)
        await rebuilding.start_epoch("rebuilt")
    await state.adopt_epoch()


async def test_after_a_rebuild_a_published_action_is_answered_and_a_lost_one_carried_out_again(
    redis_state, claims, people
):
    """Nobody knows of a revision that was not published: the subject is as pending as before."""
    published, lost = claims.ask("c1", tier=2), claims.ask("c2", OTHER, 2)
    outcomes = await decide(redis_state, published, lost)
    acts = [people.act("approve", ask) for ask in (published, lost)]
    refused = people.act("reject", lost, revision=9)
    first, second, third = await redis_state.review([*acts, refused])
    known = [stored(published, first.outcome), stored(lost, replace(outcomes[1], fresh=False))]
    await rebuild(redis_state, *known)
    assert await redis_state.queue_depth() == 1
    again = people.act("approve", lost, action_id=acts[1].action_id)
    answers = await redis_state.review([acts[0], again, refused])
    assert answers == [first, Reviewed(2, replace(second.outcome, origin=again.origin)), third]
    assert await redis_state.queue_depth() == 0


async def test_a_loaded_rejection_does_not_own_what_is_found_of_it(
    redis_state, redis, prefix, claims, people
):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask)
    rejected = await review_one(redis_state, people.act("reject", ask))
    written = await redis.get(entry_key(prefix, ask))
    await rebuild(redis_state, stored(ask, rejected.outcome, rejected=True))
    assert await redis.get(entry_key(prefix, ask)) == written


async def test_an_action_on_what_a_rebuild_no_longer_finds_is_unknown(redis_state, claims, people):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask)
    act = people.act("reject", ask)
    await review_one(redis_state, act)
    await rebuild(redis_state)
    assert await review_one(redis_state, act) == RefusedAction("unknown", None)
    waiting = claims.ask(tier=2, wait=True)
    await redis_state.step([waiting], LIMITS)
    # what it came to may yet be found: a refusal takes the place of nothing
    assert (await review_one(redis_state, act)).code == "waiting"


async def test_an_action_that_was_carried_out_is_not_answered_from_a_claim_that_waits(
    redis_state, claims, people
):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask)
    act = people.act("reject", ask)
    await review_one(redis_state, act)
    await rebuild(redis_state)
    await redis_state.step([replace(ask, wait=True)], LIMITS)
    refused = RefusedAction("waiting", SubjectStatus(SubjectState.WAITING, 0))
    assert await review_one(redis_state, act) == refused


# Work


def circles(count: int) -> list[str]:
    words = ["amber", "birch", "cedar", "dogwood", "elder", "fir"]
    return [" ".join(words[n:] + words[:n]) for n in range(count)]


async def opened(redis_server, prefix, **options) -> RedisState:
    return await start(state_at(redis_server.url, prefix, **options))


async def test_an_approval_stands_where_there_is_too_much_to_compare(redis_server, prefix, claims, people):
    state = await opened(redis_server, prefix, max_candidates=3)
    asks = [claims.ask(f"c{n}", text, 2) for n, text in enumerate(circles(6))]
    await decide(state, *asks)
    answer = await review_one(state, people.act("approve", asks[0]))
    assert (answer.outcome.state, answer.outcome.dedup_status) == (A, "failed")
    assert list(answer.outcome.matches) == []
    answer = await review_one(state, people.act("edit", asks[5], text=OTHER))
    assert (answer.outcome.state, answer.outcome.dedup_status) == (A, "ok")
    await state.close()


async def test_actions_that_compare_much_are_carried_out_in_several_calls(
    redis_server, prefix, claims, people, monkeypatch
):
    state = await opened(redis_server, prefix, max_candidates=3)
    asks = [claims.ask(f"c{n}", text, 2) for n, text in enumerate(circles(3))]
    parent = claims.respond("r")
    kids = [claims.ask(f"k{n}", None, parents=[parent.subject]) for n in range(4)]
    await decide(state, *asks, parent, *kids)
    await review_one(state, people.act("reject", claims.ask("nobody")))  # the server has the script
    calls = []
    call = state.server.call
    monkeypatch.setattr(state.server, "call", lambda *command: calls.append(command) or call(*command))
    acts = [people.act("retract", parent), *[people.act("approve", ask) for ask in asks]]
    acts[2:2] = [people.act("expire", claims.ask(f"nobody {n}")) for n in range(50)]
    answers = await state.review(acts)
    assert len(calls) == 4  # whoever rests on the response, then each approval with what comes before it
    assert await state.review(acts) == answers
    assert len(calls) == 5
    await state.close()


async def test_ten_thousand_standings_and_entries_take_one_call_each(
    redis_state, claims, people, monkeypatch
):
    asks = [claims.respond(f"r{n}", 2, queued=True) for n in range(1_000)]
    outcomes = await decide(redis_state, *asks, limits=MANY)
    subjects = [*[ask.subject for ask in asks], *[subject(f"nobody {n}") for n in range(9_000)]]
    for each in (redis_state.statuses, redis_state.held):
        await each(subjects[:1])
    calls = []
    call = redis_state.server.call
    monkeypatch.setattr(redis_state.server, "call", lambda *command: calls.append(command) or call(*command))
    assert await redis_state.statuses(subjects * 2) == ([SubjectStatus(P, 1)] * 1_000 + [None] * 9_000) * 2
    held = await redis_state.held(subjects * 2)
    assert [entry.record for entry in held[:1_000]] == [outcome.record for outcome in outcomes]
    assert len(calls) == 2
    assert len(calls[1]) < 10_010


# State that is out of order


async def test_a_flushed_state_is_lost_to_people_too_and_nothing_is_changed(
    redis_state, redis, prefix, claims, people
):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask)
    await redis.delete(f"{prefix}epoch")
    for call in (
        redis_state.review([people.act("approve", ask)]),
        redis_state.held([ask.subject]),
        redis_state.statuses([ask.subject]),
    ):
        with pytest.raises(StateLost):
            await call
    assert await redis.keys(f"{prefix}a:*") == []
    assert (await redis.get(entry_key(prefix, ask))).startswith(b"P 2 1 ")


async def test_a_server_that_lost_its_scripts_is_given_those_of_people_again(
    redis_state, redis, claims, people
):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask)
    await redis.script_flush()
    act = people.act("approve", ask)
    answer = await review_one(redis_state, act)
    await redis.script_flush()
    assert await redis_state.statuses([ask.subject]) == [SubjectStatus(A, 2)]
    assert (await redis_state.held([ask.subject]))[0].revision == 2
    assert await review_one(redis_state, act) == answer


async def test_entries_that_cannot_be_read_are_unavailable(redis_state, redis, prefix, claims, people):
    ask = claims.ask(tier=2)
    await decide(redis_state, ask)
    await redis.set(entry_key(prefix, ask), "Q 2 1 what is this")
    for call in (redis_state.held([ask.subject]), redis_state.statuses([ask.subject])):
        with pytest.raises(StateUnavailable):
            await call


@pytest.mark.parametrize(
    "changes", [{"payload": b"two\nlines"}, {"refused": "not a code"}, {"refused": "Stale\n"}]
)
async def test_an_action_that_would_break_the_layout_is_an_error(redis_state, claims, people, changes):
    with pytest.raises(ValueError):  # noqa: PT011 - whichever of them
        await redis_state.review([people.act("approve", claims.ask(), **changes)])
