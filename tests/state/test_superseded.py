"""A later record may take the place of what an earlier one came to, before anybody has published that."""

from dataclasses import replace

import pytest

from groundwire.state.model import Limits, Outcome, State, SubjectState, Waiting
from tests.state.claims import decide, step_one

NO_PLACE = Limits(per_user=0)
R, J = SubjectState.REFUSED, SubjectState.JOINED


async def test_a_record_that_comes_again_says_what_it_came_to_although_a_later_one_was_decided_afresh(
    state: State, claims
):
    first = claims.ask(tier=2)
    records = [first, claims.again(first), claims.again(first)]
    answers = await decide(state, *records, limits=NO_PLACE)
    assert [(answer.state, answer.revision, answer.fresh) for answer in answers] == [
        (R, 1, True), (R, 2, True), (R, 3, True),
    ]  # fmt: skip
    again = await decide(state, *records)
    assert [answer.origin for answer in again] == [record.origin for record in records]
    assert [answer.revision for answer in again] == [1, 2, 3]
    assert not any(answer.fresh for answer in again)


async def test_so_does_one_that_was_joined_to_a_claim_which_is_decided_by_now(state: State, claims, people):
    other, ask = claims.ask("other", tier=2), claims.ask(tier=2)
    _, joined = await decide(state, other, ask)
    assert joined.state is J
    await state.review([people.act("reject", other)])
    later = claims.again(ask)
    assert (await step_one(state, later)).revision == 2
    assert (await step_one(state, ask)) == _repeated(joined)


@pytest.mark.parametrize("deferred", [False, True])
async def test_so_does_one_whose_claim_waits_again_and_that_is_not_begun_anew(state: State, claims, deferred):
    ask = claims.ask(tier=2)
    (refused,) = await decide(state, ask, limits=NO_PLACE)
    later = claims.again(ask, wait=True)
    assert await step_one(state, later) == Waiting(publish=True)
    assert await step_one(state, ask, deferred=deferred) == _repeated(refused)
    assert await state.waiting_count() == 1
    assert (await step_one(state, later, deferred=True)).revision == 2


async def test_another_record_is_told_what_stands_now(state: State, claims):
    first = claims.ask(tier=2)
    copy = claims.again(first)
    await decide(state, first, claims.again(first), limits=NO_PLACE)
    assert (await step_one(state, copy)).revision == 2


def _repeated(outcome: Outcome) -> Outcome:
    return replace(outcome, fresh=False)
