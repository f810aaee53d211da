"""What people do to subjects, row by row, over both implementations of state (S0-129..S0-142)."""

from dataclasses import replace

import pytest

from groundwire.messages.decisions import Kind, MatchClass, ParentFact, Place
from groundwire.state.model import (
    MAX_AFFECTED,
    HeldEntry,
    Outcome,
    QueueLimits,
    RefusedAction,
    ReviewAction,
    Reviewed,
    State,
    SubjectState,
    SubjectStatus,
)
from tests.state.claims import FULL, TEXT, Claims, decide, in_state, review_one, step_one, stored, subject

A, P, J, R, B, W = (
    SubjectState.APPROVED,
    SubjectState.PENDING,
    SubjectState.JOINED,
    SubjectState.REFUSED,
    SubjectState.BLOCKED,
    SubjectState.WAITING,
)
OTHER = "backups of the billing database are written to a second region every night at two o'clock"
LONG = f"{TEXT} or worse {OTHER}"
NEVER = LONG.replace("retries", "never retries")
FOUR = ("approve", "edit", "reject", "expire")
APPROVED, PENDING, REJECTED = MatchClass.APPROVED, MatchClass.PENDING, MatchClass.REJECTED


async def found(state: State, claims: Claims, text: str = TEXT, *, name: str = "probe"):
    """Return what another claim of this text finds: name and class of each."""
    (outcome,) = await decide(state, claims.ask(f"{name} {claims.offset}", text, 3), deferred=True)
    return [(match.subject_id, match.match_class) for match in outcome.matches]


# What the actions come to


async def test_an_approved_claim_is_retracted_whether_the_gate_or_a_person_approved_it(
    state: State, claims, people
):
    one, two = claims.ask("c1"), claims.ask("c2", OTHER, 2)
    await decide(state, one, two)
    first, _, second = await state.review(
        [people.act("retract", one), people.act("approve", two), people.act("retract", two, revision=2)]
    )
    assert (first.revision, first.outcome.first_origin) == (2, one.origin)
    assert (second.revision, second.outcome.first_origin) == (3, two.origin)
    assert [(o.state, o.tier) for o in (first.outcome, second.outcome)] == [(B, 3)] * 2
    assert await decide(state, one, two) == [first.outcome, second.outcome]
    assert await state.payloads([one.subject]) == [b'{"by":"retract"}']


async def test_the_first_record_stays_named_after_a_claim_was_refused_and_sent_again(
    state: State, claims, people
):
    ask = claims.ask(tier=2)
    await decide(state, ask, limits=FULL)
    await decide(state, claims.again(ask))
    answer = await review_one(state, people.act("approve", ask, revision=2))
    assert (answer.revision, answer.outcome.first_origin) == (3, ask.origin)


@pytest.mark.parametrize("action", ["approve", "edit"])
async def test_a_claim_that_no_longer_holds_is_blocked_instead_of_approved(
    state: State, claims, people, action
):
    ask = claims.ask(tier=2)
    await decide(state, ask)
    answer = await review_one(state, people.act(action, ask, expired=True))
    assert (answer.outcome.state, answer.outcome.tier, answer.outcome.dedup_status) == (B, 3, "ok")
    assert await found(state, claims) == []
    assert await state.queue_depth() == 0


# Compared once more


@pytest.mark.parametrize("action", ["approve", "edit"])
async def test_what_an_approved_claim_says_already_is_blocked_instead_of_approved(
    state: State, claims, people, action
):
    ask = claims.ask("c1", TEXT if action == "approve" else OTHER, 2)
    await decide(state, ask, claims.ask("c2", TEXT))
    answer = await review_one(state, people.act(action, ask, text=TEXT))
    assert (answer.outcome.state, answer.outcome.tier) == (B, 3)
    assert [(m.subject_id, m.match_class) for m in answer.outcome.matches] == [("c2", APPROVED)]
    assert await found(state, claims) == [("c2", APPROVED)]
    assert await found(state, claims, OTHER) == []
    assert await state.queue_depth() == 0


async def test_an_approved_claim_past_its_horizon_stops_nobody(state: State, claims, people):
    ask = claims.ask("c1", tier=2)
    until = claims.offset + 1_000 + 2
    await decide(state, ask, claims.ask("c2", horizon=until))
    first = people.act("approve", ask)
    assert first.origin.timestamp == until
    assert (await review_one(state, first)).outcome.state is A


@pytest.mark.parametrize("material", [True, False])
async def test_a_material_difference_is_no_duplicate_to_a_person_where_the_policy_sees_one(
    state: State, claims, people, material
):
    ask = claims.ask("c1", LONG, 2, material=material)
    await decide(state, ask, claims.ask("c2", NEVER))
    answer = await review_one(state, people.act("approve", ask))
    assert answer.outcome.state is (A if material else B)
    assert [(m.subject_id, m.difference) for m in answer.outcome.matches] == [("c2", "negation")]


async def test_neither_a_pending_nor_a_rejected_match_stops_a_person(state: State, claims, people):
    texts = {"c1": OTHER, "c2": LONG.replace("upload", "download"), "c3": LONG}
    asks = {name: claims.ask(name, text, 2) for name, text in texts.items()}
    await decide(state, *asks.values())
    await review_one(state, people.act("reject", asks["c2"]))
    edit = people.act("edit", asks["c1"], text=texts["c3"])
    answer = await review_one(state, edit)
    assert answer.outcome.state is A
    assert {m.subject_id: m.match_class for m in answer.outcome.matches} == {"c2": REJECTED, "c3": PENDING}


async def test_a_claim_is_not_the_duplicate_of_itself_however_it_is_edited(state: State, claims, people):
    ask = claims.ask("c1", LONG, 2)
    await decide(state, ask)
    answer = await review_one(state, people.act("edit", ask, text=LONG + " quietly"))
    assert (answer.outcome.state, list(answer.outcome.matches)) == (A, [])


async def test_the_facts_are_those_of_the_approval_but_for_the_parents(state: State, claims, people):
    """The person decided knowing them."""
    await decide(state, claims.ask("dup", LONG, 2))
    ask = claims.ask("c1", NEVER, 2, parents=[subject("p"), subject("q")])
    (before,) = await decide(state, ask)
    assert [m.subject_id for m in before.matches] == ["dup"]
    await decide(state, claims.ask("p", "what the claim rests on"))
    answer = await review_one(state, people.act("edit", ask, text=OTHER))
    assert answer.outcome.parents == [ParentFact(id=n, state="unknown") for n in ("p", "q")]
    assert (answer.outcome.dedup_status, list(answer.outcome.matches)) == ("ok", [])


@pytest.mark.parametrize("action", ["reject", "expire", "retract"])
async def test_without_a_comparison_the_recorded_facts_stay(state: State, claims, people, action):
    ask = claims.ask("c1", NEVER, 2, parents=[subject("p")])
    await decide(state, claims.ask("dup", LONG, 2))
    (before,) = await decide(state, ask)
    revision = 1
    if action == "retract":
        before = (await review_one(state, people.act("approve", ask))).outcome
        revision = 2
    answer = await review_one(state, people.act(action, ask, revision=revision, dedup=None))
    facts = (before.dedup_status, before.matches, before.parents, Place.NOT_NEEDED)
    after = answer.outcome
    assert (after.dedup_status, after.matches, after.parents, after.place) == facts
    assert [m.subject_id for m in after.matches] == ["dup"]


@pytest.mark.parametrize("given", [True, False])
async def test_an_approval_stands_where_the_text_cannot_be_compared(state: State, claims, people, given):
    ask = claims.ask("c1", tier=2, failed=True)
    await decide(state, ask, claims.ask("c2"))
    act = people.act("approve", ask, dedup_failed=True, **({} if given else {"dedup": None}))
    answer = await review_one(state, act)
    assert (answer.outcome.state, answer.outcome.dedup_status) == (A, "failed")
    assert await found(state, claims) == [("c2", APPROVED)]


async def test_an_approval_stands_where_deduplication_is_disabled(state: State, claims, people):
    ask = claims.ask("c1", None, 2)
    await decide(state, ask)
    answer = await review_one(state, people.act("approve", ask))
    assert (answer.outcome.state, answer.outcome.dedup_status) == (A, "disabled")


# Found by others


@pytest.mark.parametrize(
    ("action", "expected"), [("approve", APPROVED), ("reject", REJECTED), ("expire", None)]
)
@pytest.mark.parametrize("failed", [True, False])
async def test_others_find_the_text_as_a_person_decided_it(
    state: State, claims, people, action, expected, failed
):
    """Also where it could not be compared before, and so was not found."""
    ask = claims.ask("c1", tier=2, failed=failed)
    await decide(state, ask)
    assert await found(state, claims) == ([] if failed else [("c1", PENDING)])
    await review_one(state, people.act(action, ask))
    assert await found(state, claims) == ([] if expected is None else [("c1", expected)])


async def test_a_rejected_text_is_remembered_even_where_it_could_not_be_compared(
    state: State, claims, people
):
    ask = claims.ask("c1", tier=2, failed=True)
    await decide(state, ask)
    await review_one(state, people.act("reject", ask, dedup_failed=True))
    assert await found(state, claims) == [("c1", REJECTED)]


@pytest.mark.parametrize("failed", [True, False])
async def test_an_edited_claim_is_found_by_its_new_text_alone(state: State, claims, people, failed):
    ask = claims.ask("c1", tier=2, failed=failed)
    await decide(state, ask)
    await review_one(state, people.act("edit", ask, text=OTHER))
    assert await found(state, claims) == []
    assert await found(state, claims, OTHER) == [("c1", APPROVED)]
    await review_one(state, people.act("retract", ask, revision=2))
    assert await found(state, claims) == []
    assert await found(state, claims, OTHER) == [("c1", REJECTED)]


async def test_an_edit_that_cannot_be_compared_takes_the_old_text_out_of_the_index(
    state: State, claims, people
):
    ask = claims.ask("c1", tier=2)
    await decide(state, ask)
    answer = await review_one(state, people.act("edit", ask, text=OTHER, dedup_failed=True))
    assert answer.outcome.dedup_status == "failed"
    assert await found(state, claims) == await found(state, claims, OTHER) == []


async def test_a_text_is_as_old_as_its_approval(state: State, claims, people):
    """Of two equally near the earlier approved one comes first."""
    words = [f"word{n}" for n in range(60)]
    texts = [" ".join(words[n:] + words[:n]) for n in range(3)]
    first, second = claims.ask("first", texts[0], 2), claims.ask("second", texts[1], 2)
    await decide(state, first, second)
    await state.review([people.act("approve", second), people.act("approve", first)])
    (outcome,) = await decide(state, claims.ask("c9", texts[2], 3))
    assert [match.subject_id for match in outcome.matches] == ["second", "first"]


async def test_the_horizon_given_with_an_approval_counts(state: State, claims, people):
    ask = claims.ask("c1", tier=2)
    await decide(state, ask)
    act = people.act("approve", ask)
    await review_one(state, replace(act, horizon=act.origin.timestamp + 2))
    assert await found(state, claims) == [("c1", APPROVED)]
    assert await found(state, claims) == []


async def test_a_rejected_text_counts_against_the_same_id_and_a_later_claim_does_not_take_it_away(
    state: State, claims, people
):
    ask = claims.ask("c1", tier=2)
    await decide(state, ask)
    await review_one(state, people.act("reject", ask))
    other_kind = claims.ask("c1")  # stands for the subject once state has forgotten it
    other_kind = replace(other_kind, subject=subject("c1", kind=Kind.RESPONSE))
    (later,) = await decide(state, other_kind)
    assert (later.state, [m.match_class for m in later.matches]) == (P, [REJECTED])
    await review_one(state, people.act("expire", other_kind))
    assert await found(state, claims) == [("c1", REJECTED)]


async def test_a_rejected_claim_is_not_found_where_deduplication_is_disabled(state: State, claims, people):
    ask = claims.ask("c1", None, 2)
    await decide(state, ask)
    assert (await review_one(state, people.act("reject", ask))).outcome.state is B


async def test_an_approved_parent_keeps_a_claim_in_tier_1_and_a_retracted_one_does_not(
    state: State, claims, people
):
    parent = claims.ask("p", tier=2)
    await decide(state, parent)
    await review_one(state, people.act("approve", parent))
    (one,) = await decide(state, claims.ask("c1", OTHER, parents=[parent.subject]))
    await review_one(state, people.act("retract", parent, revision=2))
    (two,) = await decide(state, claims.ask("c2", "a third text", parents=[parent.subject]))
    assert (one.state, two.state, two.parents[0].state) == (A, P, "blocked")


# Places


@pytest.mark.parametrize("action", FOUR)
@pytest.mark.parametrize(
    "one",
    [QueueLimits(per_user=1), QueueLimits(per_tenant=1), QueueLimits(total=1)],
    ids=["user", "tenant", "total"],
)
async def test_a_decision_gives_the_place_back_once(state: State, claims, people, action, one):
    ask = claims.ask("c1", tier=2)
    await decide(state, ask, limits=one)
    act = people.act(action, ask)
    for each in (act, act, people.act("reject", ask, revision=2)):
        await review_one(state, each)
    _, full = await decide(state, claims.ask("c2", OTHER, 2), claims.ask("c3", "a third", 2), limits=one)
    assert (await state.queue_depth(), full.state) == (1, R)


async def test_the_place_of_the_hundredth_and_of_nobody_else_is_given_back(state: State, claims, people):
    asks = [claims.ask(f"c{n}", f"text number {n} of the user", 2) for n in range(101)]
    *_, last, refused = await decide(state, *asks)
    assert (last.state, refused.state, refused.place) == (P, R, Place.USER_FULL)
    await review_one(state, people.act("reject", asks[7]))
    again, more = await decide(state, claims.again(asks[100]), claims.ask("c101", OTHER, 2))
    assert (again.state, more.place) == (P, Place.USER_FULL)
    (other,) = await decide(state, claims.ask("c1", OTHER, 2, user="bob"))
    assert other.state is P


async def test_of_ten_thousand_places_in_all_one_is_given_back(state: State, claims, people):
    limits = QueueLimits(per_user=10_000, per_tenant=20_000)
    asks = [claims.respond(f"r{n}", 2, user=f"u{n % 200}", queued=True) for n in range(10_001)]
    outcomes = []
    for first in range(0, len(asks), 1_000):
        await state.queue_depth()  # a cluster counts its buckets now, and not while the batch is under way
        outcomes += await decide(state, *asks[first : first + 1_000], limits=limits)
    assert [outcome.state for outcome in outcomes] == [P] * 10_000 + [R]
    assert outcomes[-1].place is Place.TOTAL_FULL
    await review_one(state, people.act("approve", asks[0]))
    again, more = await decide(
        state, claims.again(asks[-1]), claims.respond("one more", 2, queued=True), limits=limits
    )
    assert (again.state, more.place, await state.queue_depth()) == (P, Place.TOTAL_FULL, 10_000)
    standings = await state.statuses([ask.subject for ask in asks])
    assert standings == [SubjectStatus(A, 2), *[SubjectStatus(P, 1)] * 9_999, SubjectStatus(P, 2)]


# Refusals


STANDINGS = {
    "approved": SubjectStatus(A, 1),
    "pending": SubjectStatus(P, 1),
    "joined": SubjectStatus(J, 1),
    "refused": SubjectStatus(R, 1),
    "blocked": SubjectStatus(B, 1),
    "rejected": SubjectStatus(B, 2),
    "waiting": SubjectStatus(W, 0),
}


@pytest.mark.parametrize("action", ReviewAction)
@pytest.mark.parametrize("name", STANDINGS)
async def test_an_action_that_cannot_be_is_refused_and_changes_nothing(
    state: State, claims, people, action, name
):
    ask = await in_state(state, claims, people, name)
    possible = name == ("approved" if action == "retract" else "pending")
    before, depth = await step_one(state, ask), await state.queue_depth()
    seen = await found(state, claims, f"{name} {TEXT}")
    current = STANDINGS[name]
    refusals = [
        people.act(action, ask, revision=current.revision + 1),
        people.act(action, ask, revision=current.revision - 1),
        people.act(action, ask, revision=current.revision, refused="unauthorized"),
    ]
    if not possible:
        refusals.append(people.act(action, ask, revision=current.revision))
    codes = ["stale", "stale", "unauthorized", "not_approved" if action == "retract" else "not_pending"]
    if name == "waiting":
        codes = ["waiting", "waiting", "unauthorized", "waiting"]
    answers = [RefusedAction(code, current) for code in codes[: len(refusals)]]
    assert await state.review(refusals) == answers
    assert await step_one(state, ask) == before
    assert await state.statuses([ask.subject]) == [current]
    assert (await state.queue_depth(), await found(state, claims, f"{name} {TEXT}")) == (depth, seen)
    if possible:
        await review_one(state, people.act(action, ask, revision=1))
        assert await state.statuses([ask.subject]) == [
            SubjectStatus(A if action in {"approve", "edit"} else B, 2)
        ]
    assert await state.review(refusals) == answers  # as they were refused, whatever came since


@pytest.mark.parametrize("action", ReviewAction)
async def test_nobody_decides_what_state_does_not_hold(state: State, claims, people, action):
    act = people.act(action, claims.ask(tier=2))
    assert await state.review([act, act]) == [RefusedAction("unknown", None)] * 2
    assert await state.statuses([act.subject]) == await state.held([act.subject]) == [None]


async def test_what_is_decided_between_the_look_and_the_action_is_not_approved_unseen(
    state: State, claims, people
):
    """Who found no entry has nothing from which the next revision could be derived."""
    ask = claims.ask(tier=2)
    await decide(state, ask)
    act = people.act("approve", ask, payload=b"")
    assert await review_one(state, act) == RefusedAction("unknown", SubjectStatus(P, 1))
    assert await state.queue_depth() == 1


async def test_of_two_actions_in_one_batch_the_first_counts(state: State, claims, people):
    ask = claims.ask(tier=2)
    await decide(state, ask)
    first, second, third = await state.review(
        [people.act("reject", ask), people.act("approve", ask), people.act("approve", ask, revision=2)]
    )
    assert isinstance(first, Reviewed)
    assert [second, third] == [
        RefusedAction("stale", SubjectStatus(B, 2)),
        RefusedAction("not_pending", SubjectStatus(B, 2)),
    ]


async def test_no_actions_have_no_answers(state: State):
    assert await state.review([]) == await state.held([]) == await state.statuses([]) == []


# The same action again


@pytest.mark.parametrize("action", FOUR)
async def test_an_action_that_comes_again_gets_its_answer_again(state: State, claims, people, action):
    ask = claims.ask(tier=2, parents=[subject("p")])
    await decide(state, ask)
    act = people.act(action, ask)
    first = await review_one(state, act)
    later = people.act(action, ask, action_id=act.action_id, payload=b'{"by":"another record"}')
    assert await state.review([act, later]) == [first] * 2
    refused = replace(act, refused="unauthorized", expected_revision=9)
    assert await review_one(state, refused) == first


@pytest.mark.parametrize("action", ["approve", "edit"])
async def test_an_approval_that_comes_again_is_told_what_it_was_though_it_was_retracted_since(
    state: State, claims, people, action
):
    parent, ask = claims.ask("p", "another text"), claims.ask(tier=2, parents=[subject("p")])
    await decide(state, parent, ask)
    act = people.act(action, ask)
    first, retracted = await state.review([act, people.act("retract", ask, revision=2)])
    assert (first.outcome.state, retracted.outcome.state) == (A, B)
    for again in (act, replace(act, refused="unattested", only_recorded=True)):
        assert await review_one(state, again) == replace(first, fresh=False)


async def test_an_action_id_is_used_once(state: State, claims, people):
    """A first record stands, with another subject or another action behind it."""
    one, two = claims.ask("c1", tier=2), claims.ask("c2", OTHER, 2)
    await decide(state, one, two)
    act = people.act("approve", one, action_id="x")
    first, *reused, again = await state.review(
        [
            act,
            people.act("approve", two, action_id="x"),
            people.act("retract", one, action_id="x", revision=2),
            people.act("approve", claims.ask("c3"), action_id="x"),
            act,
        ]
    )
    assert reused == [RefusedAction("action_id_reused", None)] * 3
    assert isinstance(first, Reviewed)
    assert again == first
    assert await state.statuses([one.subject, two.subject]) == [SubjectStatus(A, 2), SubjectStatus(P, 1)]


async def test_an_action_id_that_was_refused_cannot_be_used_for_another_action(state: State, claims, people):
    ask = claims.ask(tier=2)
    await decide(state, ask)
    refused, reused = await state.review(
        [
            people.act("approve", ask, action_id="x", refused="unattested"),
            people.act("reject", ask, action_id="x"),
        ]
    )
    assert refused == RefusedAction("unattested", SubjectStatus(P, 1))
    assert reused == RefusedAction("action_id_reused", None)
    assert await state.queue_depth() == 1


async def test_action_ids_of_other_tenants_are_others(state: State, claims, people):
    asks = [claims.ask("c1", tier=2), claims.ask("c1", tier=2, tenant="umbrella")]
    await decide(state, *asks)
    answers = await state.review([people.act("approve", ask, action_id="x") for ask in asks])
    assert [answer.outcome.state for answer in answers] == [A, A]


@pytest.mark.parametrize("action_id", ["", "a b", "a\nb", "+2 \0", "x" * 5_000, "ü漢"])
async def test_any_text_may_be_an_action_id(state: State, claims, people, action_id):
    ask = claims.ask(tier=2)
    await decide(state, ask)
    act = people.act("approve", ask, action_id=action_id)
    answer = await review_one(state, act)
    assert (answer.revision, await review_one(state, act)) == (2, answer)


# Who is affected by a retraction


async def test_a_retraction_names_the_approved_claims_that_rest_on_the_subject(state: State, claims, people):
    """One level, by id, whoever approved them and whichever way; approved at the time of the retraction."""
    parent = claims.ask("p")
    rests = [subject("p"), subject("p"), subject("q")]
    texts = {name: f"{name * 3} text" for name in ("b", "a", "é", "pending", "blocked", "human", "gone")}
    tiers = {"pending": 2, "human": 2, "blocked": 3}
    kids = {n: claims.ask(n, t, tiers.get(n, 1), parents=rests[:1]) for n, t in texts.items()}
    await decide(state, parent, *kids.values())
    grandchild = claims.ask("grandchild", "a text further down", parents=[subject("b")])
    twice = claims.ask("twice", "named twice and with another", 2, parents=rests)
    await decide(state, grandchild, twice)
    await state.review(
        [
            people.act("approve", kids["human"]),
            people.act("edit", twice, text="named again"),
            people.act("retract", kids["gone"]),
        ]
    )
    act = people.act("retract", parent)
    answer = await review_one(state, act)
    assert answer.affected == ("a", "b", "human", "twice", "é")
    assert answer.affected_total == 5
    assert answer.outcome.record == b""
    await review_one(state, people.act("retract", kids["a"]))
    assert await review_one(state, act) == answer
    assert (await state.held([parent.subject]))[0].record == b""
    assert await decide(state, parent) == [answer.outcome]


async def test_a_claim_may_rest_on_what_is_approved_later_and_on_responses(state: State, claims, people):
    child = claims.ask("c1", OTHER, 2, parents=[subject("r", kind=Kind.RESPONSE)])
    await decide(state, child)
    await review_one(state, people.act("approve", child))
    response = claims.respond("r")
    await decide(state, response, claims.ask("c2", TEXT, parents=[subject("r")]))  # on the claim of that name
    answer = await review_one(state, people.act("retract", response))
    assert (answer.affected, answer.affected_total) == (("c1",), 1)


async def test_a_claim_that_rests_on_itself_is_not_affected(state: State, claims, people):
    ask = claims.ask("c1", tier=2, parents=[subject("c1")])
    await decide(state, ask)
    await review_one(state, people.act("approve", ask))
    answer = await review_one(state, people.act("retract", ask, revision=2))
    assert (answer.affected, answer.affected_total) == ((), 0)


async def test_at_most_a_thousand_are_named_and_all_are_counted(state: State, claims, people):
    parent = claims.respond("r")
    kids = [
        replace(claims.ask(f"{n}", None, parents=[parent.subject]), record=b"")
        for n in range(MAX_AFFECTED + 7)
    ]
    await decide(state, parent, *kids)
    act = people.act("retract", parent)
    answer = await review_one(state, act)
    assert answer.affected_total == MAX_AFFECTED + 7
    assert list(answer.affected) == sorted(ask.subject.subject_id for ask in kids)[:MAX_AFFECTED]
    assert await review_one(state, act) == answer


async def test_affected_ids_may_be_any_text_and_come_by_their_bytes(state: State, claims, people):
    names = ['a "quote"\\ / \n\t\x7f\x01', "漢", "😀", "ü", "Z", "a", "_", "a-b", "aB", "ab", "a b", "\x1f"]
    parent = claims.respond("r")
    await decide(state, parent, *[claims.ask(name, None, parents=[parent.subject]) for name in names])
    answer = await review_one(state, people.act("retract", parent))
    assert list(answer.affected) == sorted(names, key=str.encode)


# What is held


async def test_held_entries_are_what_the_step_answered(state: State, claims, people):
    asks = [
        claims.ask("c1", parents=[subject("p")]),
        claims.ask("c2", OTHER, 3),
        claims.respond("r1", 2, queued=True),
        claims.ask("edited", "a text to be edited", 2),
    ]
    outcomes = await decide(state, *asks)
    outcomes[3] = (await review_one(state, people.act("edit", asks[3], text="another"))).outcome
    waiting = claims.ask("w", wait=True)
    await step_one(state, waiting)
    names = [*[ask.subject for ask in reversed(asks)], waiting.subject, subject("nobody"), asks[0].subject]
    held = await state.held(names)
    expected = [*reversed(outcomes), None, None, outcomes[0]]
    for entry, outcome in zip(held, expected, strict=True):
        if outcome is None:
            assert entry is None
            continue
        assert isinstance(entry, HeldEntry)
        for name in ("state", "revision", "fingerprint", "payload", "record"):
            assert getattr(entry, name) == getattr(outcome, name)
    assert held[1].record == b"answer r1"


async def test_standings_are_in_the_order_asked_for(state: State, claims, people):
    asks = [await in_state(state, claims, people, name) for name in STANDINGS if name != "waiting"]
    asks.append(await in_state(state, claims, people, "waiting"))
    subjects = [subject("nobody"), *[ask.subject for ask in reversed(asks)], asks[0].subject]
    expected = [None, *[STANDINGS[ask.subject.subject_id] for ask in reversed(asks)], STANDINGS["approved"]]
    assert await state.statuses(subjects) == expected


# What a rebuild brings back


def loaded(ask, outcome: Outcome, **changes):
    """Return what a rebuild reads of an outcome: the parents are those of its record."""
    return stored(ask, outcome, parents=[parent for _, parent in ask.parents], **changes)


async def test_what_people_decided_is_reasserted_as_it_was(state: State, claims, people):
    """Index, parents and revisions: later claims and actions are decided as by the state that was there."""
    known = {}
    for action in ("approve", "reject", "expire"):
        ask = claims.ask(action, f"{action} {TEXT}", 2, parents=[subject("p")])
        (before,) = await decide(state, replace(ask, subject=subject(action, user="lost"), dedup=None))
        outcome = replace(
            before,
            dedup_status="ok",
            state=A if action == "approve" else B,
            tier=1 if action == "approve" else 3,
            revision=2,
            first_origin=ask.origin,
            fresh=False,
            record=b"",
            place=Place.NOT_NEEDED,
        )
        known[action] = ask, outcome
    assert await state.reassert([loaded(a, o, rejected=n == "reject") for n, (a, o) in known.items()]) == 3
    for ask, outcome in known.values():
        assert await decide(state, ask) == [outcome]
    assert [await found(state, claims, f"{name} {TEXT}") for name in known] == [
        [("approve", APPROVED)],
        [("reject", REJECTED)],
        [],
    ]
    parent = claims.ask("p", OTHER)
    await decide(state, parent)
    answer = await review_one(state, people.act("retract", parent))
    assert (answer.affected, answer.affected_total) == (("approve",), 1)
    approved, _ = known["approve"]
    answer = await review_one(state, people.act("retract", approved, revision=2))
    assert (answer.revision, answer.outcome.state) == (3, B)
    assert await found(state, claims, f"approve {TEXT}") == [("approve", REJECTED)]


async def test_a_retraction_that_was_reasserted_still_tells_who_is_affected(state: State, claims, people):
    parent, kid = claims.ask("p"), claims.ask("kid", OTHER, parents=[subject("p")])
    (approved, _) = await decide(state, parent, kid)
    act = people.act("retract", parent)
    answer = await review_one(state, act)
    newer = replace(answer.outcome, revision=3, fresh=False)
    await state.reassert([stored(parent, newer, rejected=True)])
    assert await review_one(state, act) == Reviewed(2, newer, ("kid",), 1)
    assert approved.state is A
