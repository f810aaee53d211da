"""An action that comes again: what state knows of it, from its own record or from the topics alone."""

from dataclasses import replace

import pytest

from groundwire.messages.identity import digest
from groundwire.state.codec import short
from groundwire.state.memory import MemoryState
from groundwire.state.model import RefusedAction, Reviewed, State, SubjectState, SubjectStatus
from tests.state.claims import Claims, decide, review_one, stored
from tests.state.conftest import start, state_at

A, P, B = SubjectState.APPROVED, SubjectState.PENDING, SubjectState.BLOCKED
ACTIONS = ("approve", "edit", "reject", "expire", "retract")


async def lose(state: State, ask) -> None:
    """Lose the entry of a subject; what became of actions stays."""
    if isinstance(state, MemoryState):
        state._store.put(ask.subject, replace(state._entries[ask.subject], state=B))
        del state._entries[ask.subject]
    else:
        own = state._prefixes[state.bucket_of(ask.subject)]
        await state.server.call("DEL", f"{own}s:{short(ask.subject.digest)}")


async def pending(state: State, claims: Claims, action: str = "approve"):
    ask = claims.ask(tier=1 if action == "retract" else 2)
    (outcome,) = await decide(state, ask)
    return ask, replace(outcome, fresh=False)


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_known_from_the_topics_alone_is_answered_and_no_longer_stale(
    state: State, claims, people, action
):
    other = MemoryState()
    ask, _ = await pending(other, claims, action)
    act = people.act(action, ask)
    first = await review_one(other, act)
    await state.reassert([stored(ask, first.outcome, rejected=True)])
    refused = replace(act, refused="unauthorized", only_recorded=True)
    for again in (refused, act, act):
        answer = await review_one(state, again)
        assert (answer, answer.fresh, answer.at, answer.state) == (
            first, False, act.origin.timestamp, first.state,
        )  # fmt: skip


async def test_a_lost_action_takes_no_credit_for_another_not_even_after_a_later_revision(
    state: State, claims, people
):
    ask, _ = await pending(state, claims)
    lost = people.act("approve", ask)
    await review_one(state, lost)
    await lose(state, ask)
    await decide(state, ask)
    await review_one(state, people.act("approve", ask))
    stale = RefusedAction("stale", SubjectStatus(A, 2))
    assert await review_one(state, lost) == stale
    await review_one(state, people.act("retract", ask, revision=2))
    assert await review_one(state, lost) == stale


async def test_an_action_that_stood_before_a_later_one_says_what_it_brought_and_when(
    state: State, claims, people
):
    ask, _ = await pending(state, claims)
    act = people.act("approve", ask)
    await state.review([act, people.act("retract", ask, revision=2)])
    later = people.act("approve", ask, action_id=act.action_id)
    for again in (act, later):
        answer = await review_one(state, again)
        assert (answer.state, answer.at) == (A, act.origin.timestamp)
        assert (answer.outcome.state, answer.outcome.origin) == (A, act.origin)


async def test_of_two_actions_that_brought_the_same_revision_only_the_one_that_was_superseded_stood(
    state: State, claims, people
):
    ask, _ = await pending(state, claims)
    lost = people.act("approve", ask)
    await review_one(state, lost)
    await lose(state, ask)
    await decide(state, ask)
    act = people.act("approve", ask)
    first, _ = await state.review([act, people.act("retract", ask, revision=2)])
    assert await review_one(state, lost) == RefusedAction("stale", SubjectStatus(B, 3))
    assert await review_one(state, act) == first


async def test_the_same_action_id_with_another_digest_is_another_action(state: State, claims, people):
    ask, _ = await pending(state, claims)
    act = people.act("approve", ask, decisive=b"1" * 16)
    first = await review_one(state, act)
    assert await review_one(state, replace(act, decisive=b"2" * 16)) == RefusedAction(
        "action_id_reused", None
    )
    assert await review_one(state, act) == first


async def test_no_action_of_a_person_uses_up_an_expiry(state: State, claims, people):
    ask, _ = await pending(state, claims)
    other = claims.ask("other")
    await state.review(
        [people.act("retract", ask, action_id="x"), people.act("expire", other, action_id="x")]
    )
    assert isinstance(await review_one(state, people.act("expire", ask, action_id="x")), Reviewed)


@pytest.mark.parametrize("flag", ["forget", "only_recorded"])
async def test_a_refusal_that_is_not_remembered_does_not_stand(state: State, claims, people, flag):
    ask, _ = await pending(state, claims)
    act = people.act("approve", ask)
    refused = await review_one(state, replace(act, refused="not_published", **{flag: True}))
    assert (refused, refused.at) == (RefusedAction("not_published", SubjectStatus(P, 1)), 0)
    assert isinstance(await review_one(state, act), Reviewed)


async def test_what_was_recorded_of_another_record_is_not_told_to_who_may_not_ask(
    state: State, claims, people
):
    ask, _ = await pending(state, claims)
    act = people.act("approve", ask)
    await review_one(state, act)
    other = people.act("approve", ask, action_id=act.action_id, refused="unattested", only_recorded=True)
    assert await review_one(state, other) == RefusedAction("unattested", SubjectStatus(A, 2))


async def test_a_refusal_says_when_it_was_first_made(state: State, claims, people):
    act = people.act("approve", claims.ask())
    later = people.act("approve", claims.ask(), action_id=act.action_id)
    answers = await state.review([act, later])
    assert [answer.at for answer in answers] == [act.origin.timestamp] * 2


@pytest.mark.parametrize("changes", [{"decisive": b"1" * 17}, {"only_recorded": True}])
def test_an_ask_that_says_too_much_or_too_little_is_an_error(claims, people, changes):
    with pytest.raises(ValueError, match=r"decisive|refused"):
        people.act("approve", claims.ask(), **changes)


async def test_a_retraction_looks_at_a_bounded_number_of_claims(redis_server, prefix, claims, people):
    redis = state_at(redis_server.url, prefix, max_candidates=3)
    for state in (await start(redis), MemoryState(max_candidates=3)):
        parent = claims.respond("r")
        kids = [claims.ask(f"k{n}", None, parents=[parent.subject]) for n in range(5)]
        await decide(state, parent, *kids)
        answer = await review_one(state, people.act("retract", parent))
        assert (answer.affected_total, len(answer.affected)) == (3, 3)
    await redis.close()


async def test_what_people_blocked_is_loaded_for_as_long_as_their_actions(
    redis_state, prefix, claims, people
):
    memory = MemoryState()
    ask, _ = await pending(memory, claims)
    outcome = (await review_one(memory, people.act("expire", ask))).outcome
    blocked = claims.ask("c2", tier=3)
    (by_gate,) = await decide(memory, blocked)
    await redis_state.reassert([stored(ask, outcome), stored(blocked, replace(by_gate, fresh=False))])
    ttls = [
        await redis_state.server.call("TTL", f"{prefix}s:{short(a.subject.digest)}") for a in (ask, blocked)
    ]
    assert ttls[0] > 90 * 86_400 > 31 * 86_400 >= ttls[1]


async def test_a_refusal_takes_the_place_of_nothing(redis_state, prefix, claims, people):
    ask, _ = await pending(redis_state, claims)
    act = people.act("approve", ask)
    await review_one(redis_state, act)
    key = f"{prefix}a:{short(digest(ask.subject.tenant_id, act.action_id))}"
    before = await redis_state.server.call("GET", key)
    await lose(redis_state, ask)
    assert (await review_one(redis_state, act)).code == "unknown"
    assert await redis_state.server.call("GET", key) == before
