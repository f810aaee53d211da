"""The life cycle of a subject, row by row, over both implementations of state."""

from dataclasses import replace

import pytest

from groundwire.messages.decisions import Kind, MatchClass, Place
from groundwire.state.model import QueueLimits, State, SubjectState, Waiting
from tests.state.claims import FULL, TEXT, decide, origin, step_one, stored, subject

A, P, J, R, B, V = (
    SubjectState.APPROVED,
    SubjectState.PENDING,
    SubjectState.JOINED,
    SubjectState.REFUSED,
    SubjectState.BLOCKED,
    SubjectState.REVIEW,
)
OTHER = "backups of the billing database are written to a second region every night at two o'clock"
NEVER = TEXT.replace("retries", "never retries")


# New subjects


async def test_a_record_with_line_breaks_comes_back_as_it_was(state: State, claims):
    ask = replace(claims.ask(tier=2), record=b'\n{"content":\r\n\x00"\xff"}\n\n')
    await decide(state, ask)
    (outcome,) = await decide(state, ask)
    assert outcome.record == ask.record


# The same subject again


async def test_subjects_of_other_users_tenants_and_kinds_are_others(state: State, claims):
    asks = [claims.ask("c1"), claims.ask("c1", user="bob"), claims.ask("c1", tenant="umbrella")]
    response = claims.ask("c1", text=None)
    asks.append(replace(response, subject=subject("c1", kind=Kind.RESPONSE)))
    assert [outcome.state for outcome in await decide(state, *asks)] == [A, A, A, A]


# Waiting


async def test_a_claim_waits_behind_one_of_the_same_user(state: State, claims):
    await step_one(state, claims.ask("c1", wait=True))
    assert await step_one(state, claims.ask("c2", OTHER)) == Waiting(publish=True)
    (other_user,) = await decide(state, claims.ask("c2", OTHER, user="bob"))
    (other_tenant,) = await decide(state, claims.ask("c2", OTHER, tenant="umbrella"))
    assert (other_user.state, other_tenant.state) == (A, A)


async def test_once_nobody_waits_claims_of_the_user_are_decided_at_once(state: State, claims):
    first, second = claims.ask("c1", wait=True), claims.ask("c2", OTHER)
    await state.step([first, second], QueueLimits())
    await decide(state, first, second, deferred=True)
    (outcome,) = await decide(state, claims.ask("c3", "a third claim about something else"))
    assert outcome.state is A


async def test_a_claim_in_waiting_is_neither_found_nor_an_approved_parent(state: State, claims):
    await step_one(state, claims.ask("c1", wait=True, user="ada"))
    (outcome,) = await decide(state, claims.ask("c2", parents=[subject("c1")]), deferred=True)
    assert outcome.state is P
    assert not outcome.matches
    assert [parent.state for parent in outcome.parents] == ["waiting"]


# Refused and joined: decided afresh by a later record


async def test_a_record_answered_while_it_was_joined_is_not_decided_afresh_when_it_comes_again(
    state: State, claims
):
    """A worker whose partition has gone on without it may ask once more, and die before it publishes."""
    leader, joined = claims.ask("c1", tier=2), claims.ask("c2", tier=2)
    pending, first = await decide(state, leader, joined)
    later = claims.again(joined, wait=True)
    assert await decide(state, later) == [replace(first, fresh=False)]  # published, and its offset committed
    final = replace(pending, state=A, tier=1, revision=2, record=b"", first_origin=leader.origin)
    await state.reassert([stored(leader, final)])
    assert await decide(state, later) == [replace(first, fresh=False)]
    assert await state.waiting_count() == 0
    (afresh,) = await decide(state, claims.again(joined))
    assert (afresh.state, afresh.revision) == (B, 2)


async def test_a_record_answered_while_another_waited_is_not_decided_afresh_when_it_comes_again(
    state: State, claims
):
    ask = claims.ask(tier=2, wait=True)
    await step_one(state, ask)
    later = claims.again(ask)
    assert await step_one(state, later) == Waiting(publish=False)  # its offset is committed
    (refused,) = await decide(state, ask, deferred=True, limits=FULL)
    assert await decide(state, later) == [replace(refused, fresh=False)]
    assert await state.waiting_count() == 0
    (afresh,) = await decide(state, claims.again(ask, wait=False))
    assert (afresh.state, afresh.revision) == (P, 2)


async def test_a_waiting_record_is_not_decided_by_an_older_one_that_has_an_outcome(state: State, claims):
    """`deferred` may hold an older record of the claim, sent twice by a worker that died in between."""
    ask = claims.ask(tier=2, wait=True)
    await step_one(state, ask)
    (first,) = await decide(state, ask, deferred=True, limits=FULL)
    later = claims.again(ask)
    assert await step_one(state, later) == Waiting(publish=True)
    assert await decide(state, ask, deferred=True) == [replace(first, fresh=False)]
    (refused,) = await decide(state, later, deferred=True, limits=FULL)
    assert (refused.revision, refused.origin) == (2, later.origin)
    assert await decide(state, later) == [replace(refused, fresh=False)]
    (afresh,) = await decide(state, claims.again(ask, wait=False))
    assert (afresh.state, afresh.revision) == (P, 3)


# A later record may take the place of what an earlier one came to, before anybody has published that


async def test_a_record_that_comes_again_says_what_it_came_to_although_a_later_one_was_decided_afresh(
    state: State, claims
):
    first = claims.ask(tier=2)
    records = [first, claims.again(first), claims.again(first)]
    answers = await decide(state, *records, limits=FULL)
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
    assert (await step_one(state, ask)) == replace(joined, fresh=False)


@pytest.mark.parametrize("deferred", [False, True])
async def test_so_does_one_whose_claim_waits_again_and_that_is_not_begun_anew(state: State, claims, deferred):
    ask = claims.ask(tier=2)
    (refused,) = await decide(state, ask, limits=FULL)
    later = claims.again(ask, wait=True)
    assert await step_one(state, later) == Waiting(publish=True)
    assert await step_one(state, ask, deferred=deferred) == replace(refused, fresh=False)
    assert await state.waiting_count() == 1
    assert (await step_one(state, later, deferred=True)).revision == 2


async def test_another_record_is_told_what_stands_now(state: State, claims):
    first = claims.ask(tier=2)
    copy = claims.again(first)
    await decide(state, first, claims.again(first), limits=FULL)
    assert (await step_one(state, copy)).revision == 2


# Near-duplicates


async def test_a_copy_of_an_approved_claim_is_blocked(state: State, claims):
    first, copy = await decide(state, claims.ask("c1"), claims.ask("c2", tier=2))
    assert (first.state, copy.state, copy.tier) == (A, B, 3)
    (match,) = copy.matches
    assert (match.subject_id, match.inter, match.union) == ("c1", 17, 17)
    assert (match.difference, match.match_class) == ("none", MatchClass.APPROVED)


async def test_claims_in_other_scopes_are_no_duplicates(state: State, claims):
    outcomes = await decide(
        state, claims.ask("c1"), claims.ask("c2", user="bob"), claims.ask("c3", tenant="umbrella")
    )
    assert [outcome.state for outcome in outcomes] == [A, A, A]
    assert not any(outcome.matches for outcome in outcomes)


async def test_a_claim_is_not_its_own_duplicate(state: State, claims):
    """Nor once state has forgotten the subject and only the index still knows it."""
    ask = claims.ask("c1")
    forgotten = replace(ask, subject=subject("c1", kind=Kind.RESPONSE))
    await decide(state, forgotten)
    (outcome,) = await decide(state, ask)
    assert (outcome.state, list(outcome.matches)) == (A, [])


async def test_a_blocked_claim_is_no_duplicate_of_anything(state: State, claims):
    await decide(state, claims.ask("c1", tier=3))
    (outcome,) = await decide(state, claims.ask("c2"))
    assert (outcome.state, list(outcome.matches)) == (A, [])


async def test_a_material_difference_lowers_tier_1_and_leaves_tier_2(state: State, claims):
    await decide(state, claims.ask("c1", f"{TEXT} or worse {OTHER}"))
    conflicting = f"{TEXT} or worse {OTHER}".replace("retries", "never retries")
    one, two = await decide(state, claims.ask("c2", conflicting), claims.ask("c3", conflicting, 2))
    assert (one.state, one.tier) == (P, 2)
    assert (two.state, two.tier) == (J, 2)  # the one before it is pending
    assert [match.difference for match in one.matches] == ["negation"]


async def test_with_material_difference_off_any_near_duplicate_is_one(state: State, claims):
    text = f"{TEXT} or worse {OTHER}"
    await decide(state, claims.ask("c1", text))
    (outcome,) = await decide(
        state, claims.ask("c2", text.replace("retries", "never retries"), material=False)
    )
    assert outcome.state is B
    assert [match.difference for match in outcome.matches] == ["negation"]


async def test_a_pending_claim_that_differs_materially_is_not_joined(state: State, claims):
    text = f"{TEXT} or worse {OTHER}"
    await decide(state, claims.ask("c1", text, 2))
    (outcome,) = await decide(state, claims.ask("c2", text.replace("retries", "never retries"), 2))
    assert outcome.state is P
    assert [match.difference for match in outcome.matches] == ["negation"]


async def test_an_approved_claim_past_its_horizon_is_no_duplicate(state: State, claims):
    await decide(state, claims.ask("c1", horizon=1_003))
    before = replace(claims.ask("c2"), origin=origin(50, timestamp=1_002))
    after = replace(claims.ask("c3"), origin=origin(51, timestamp=1_003))
    one, two = await decide(state, before, after)
    assert (one.state, two.state) == (B, A)


@pytest.mark.parametrize("changed", [TEXT, f"{TEXT} upstream", TEXT.replace("failed ", "")])
@pytest.mark.parametrize("name", ["c2", "c1"])
async def test_a_text_that_a_person_rejected_lowers_tier_1(state: State, claims, changed, name):
    """Also under the id of the rejected claim, once state has forgotten that subject."""
    long = f" {OTHER} and all of this has been so since the beginning"
    ask = claims.ask("c1", TEXT + long, 2)
    if name == "c1":
        ask = replace(ask, subject=subject("c1", kind=Kind.RESPONSE))  # stands for what is forgotten
    (pending,) = await decide(state, ask)
    rejected = replace(pending, state=B, tier=3, revision=2, record=b"")
    await state.reassert([stored(ask, rejected, rejected=True)])
    (outcome,) = await decide(state, claims.ask(name, changed + long))
    assert (outcome.state, outcome.tier) == (P, 2)
    assert [match.match_class for match in outcome.matches] == [MatchClass.REJECTED]


async def test_what_is_blocked_anyway_still_reports_its_matches_and_parents(state: State, claims):
    await decide(state, claims.ask("c1"))
    (outcome,) = await decide(state, claims.ask("c2", tier=3, parents=[subject("c1")]))
    assert [match.subject_id for match in outcome.matches] == ["c1"]
    assert [parent.state for parent in outcome.parents] == ["approved"]


async def test_matches_come_nearest_first_then_earliest_then_by_id(state: State, claims):
    words = [f"word{n}" for n in range(60)]
    told = {"far": (0, 61), "y": (1, 60), "x": (1, 60), "é": (1, 60), "a": (5, 60)}
    for turned, (name, (time, size)) in enumerate(told.items(), start=1):
        text = [*words[turned:], *words[:turned], *["more"] * (size - 60)]  # in another order: nothing joins
        ask = replace(claims.ask(name, " ".join(text), 2), origin=origin(turned, timestamp=time))
        assert [outcome.state for outcome in await decide(state, ask)] == [P]
    (outcome,) = await decide(state, claims.ask("new", " ".join(words)))
    assert [match.subject_id for match in outcome.matches] == ["x", "y", "é", "a", "far"]
    assert [(match.inter, match.union) for match in outcome.matches] == [(60, 60)] * 4 + [(60, 61)]


async def test_five_matches_are_reported_and_those_that_decide_are_among_them(state: State, claims):
    words = [f"word{n}" for n in range(60)]
    asks = [claims.ask(f"p{n}", " ".join(words[n:] + words[:n]), 2, material=True) for n in range(1, 7)]
    outcomes = await decide(state, *asks)
    assert [outcome.state for outcome in outcomes] == [P] * 6
    (plain,) = await decide(state, claims.ask("q", " ".join([*words, "more"]), 2))
    assert plain.state is P
    (last,) = await decide(state, claims.ask("new", " ".join(words), 2))
    assert last.state is J
    assert [match.subject_id for match in last.matches] == ["p1", "p2", "p3", "p4", "q"]


async def test_a_match_reports_any_text_as_its_id(state: State, claims):
    name = 'a "quote"\\ / \n\t\x7f\x01 ü 漢 😀 [1,2] \x1f'
    await decide(state, claims.ask(name))
    ask = claims.ask("c2")
    (outcome,) = await decide(state, ask)
    assert [match.subject_id for match in outcome.matches] == [name]
    assert await decide(state, ask) == [replace(outcome, fresh=False)]


# Parents and caps


async def test_a_parent_is_reported_with_its_state_and_only_approved_ones_keep_tier_1(state: State, claims):
    texts = [f"claim number {word} stands alone" for word in ("uno", "dos", "tres", "cuatro", "cinco")]
    a, p, b = claims.ask("A", texts[0]), claims.ask("P", texts[1], 2), claims.ask("B", texts[2], 3)
    await decide(state, a, p, b, claims.ask("J", texts[1], 2))
    await decide(state, claims.ask("R", texts[3], 2), limits=FULL)
    parents = [subject(name) for name in ("A", "P", "J", "R", "B", "nobody", "A")]
    (lowered,) = await decide(state, claims.ask("c1", parents=parents))
    assert [(parent.id, parent.state) for parent in lowered.parents] == [
        ("A", "approved"),
        ("P", "pending"),
        ("J", "joined"),
        ("R", "refused"),
        ("B", "blocked"),
        ("nobody", "unknown"),
        ("A", "approved"),
    ]
    assert (lowered.state, lowered.tier) == (P, 2)
    (kept,) = await decide(state, claims.ask("c2", OTHER, parents=[subject("A"), subject("A")]))
    assert kept.state is A


async def test_a_response_can_be_a_parent(state: State, claims):
    answer = subject("r1", kind=Kind.RESPONSE)
    await decide(state, replace(claims.ask("r1", text=None), subject=answer))
    (outcome,) = await decide(state, claims.ask(parents=[answer]))
    assert outcome.state is A


async def test_a_claim_cannot_vouch_for_itself(state: State, claims):
    (outcome,) = await decide(state, claims.ask("c1", parents=[subject("c1")]))
    assert (outcome.state, outcome.parents[0].state) == (P, "unknown")


async def test_parents_stay_as_they_were_when_the_claim_was_decided(state: State, claims):
    ask = claims.ask("c2", OTHER, parents=[subject("c1")])
    (before,) = await decide(state, ask)
    await decide(state, claims.ask("c1"))
    assert await decide(state, ask) == [replace(before, fresh=False)]


async def test_a_failed_deduplication_approves_nothing_and_indexes_nothing(state: State, claims):
    (outcome,) = await decide(state, claims.ask("c1", failed=True))
    assert (outcome.state, outcome.dedup_status, list(outcome.matches)) == (P, "failed", [])
    (other,) = await decide(state, claims.ask("c2", tier=2))
    assert (other.state, list(other.matches)) == (P, [])


async def test_with_deduplication_disabled_nothing_is_compared(state: State, claims):
    outcomes = await decide(state, claims.ask("c1", None), claims.ask("c2", None), claims.ask("c3", None, 2))
    assert [outcome.state for outcome in outcomes] == [A, A, P]
    assert {outcome.dedup_status for outcome in outcomes} == {"disabled"}
    assert await state.queue_depth() == 1


# The review queue


@pytest.mark.parametrize(
    ("limits", "place"),
    [
        (QueueLimits(per_user=1, per_tenant=1, total=1), Place.USER_FULL),
        (QueueLimits(per_user=9, per_tenant=1, total=1), Place.TENANT_FULL),
        (QueueLimits(per_user=9, per_tenant=9, total=1), Place.TOTAL_FULL),
        (QueueLimits(per_user=9, per_tenant=9, total=9), Place.FREE),
    ],
)
async def test_the_first_limit_that_is_reached_is_named(state: State, claims, limits, place):
    first, second = await decide(state, claims.ask("c1", tier=2), claims.ask("c2", OTHER, 2), limits=limits)
    assert (first.place, second.place) == (Place.FREE, place)
    assert await state.queue_depth() == (2 if place is Place.FREE else 1)


async def test_places_are_counted_by_user_and_by_tenant(state: State, claims):
    user, tenant = QueueLimits(per_user=1), QueueLimits(per_tenant=1)
    await decide(state, claims.ask("c1", tier=2))
    (other_user,) = await decide(state, claims.ask("c2", tier=2, user="bob"), limits=user)
    (same_tenant,) = await decide(state, claims.ask("c3", tier=2, user="eve"), limits=tenant)
    (other_tenant,) = await decide(state, claims.ask("c4", tier=2, tenant="umbrella"), limits=tenant)
    assert [other_user.place, same_tenant.place, other_tenant.place] == [
        Place.FREE,
        Place.TENANT_FULL,
        Place.FREE,
    ]


async def test_a_tenant_takes_no_more_bytes_than_it_may_and_has_them_back_when_decided(state: State, claims):
    """Bytes are counted by tenant, whatever the number of places, and no other tenant's claim is refused for them."""
    first, second = claims.ask("c1", tier=2), claims.ask("c2", OTHER, 2)
    limits = QueueLimits(tenant_bytes=len(first.record) + len(second.record) - 1)
    held, refused, other = await decide(
        state, first, second, claims.ask("c3", OTHER, 2, tenant="umbrella"), limits=limits
    )
    assert [held.place, refused.place, other.place] == [Place.FREE, Place.TENANT_FULL, Place.FREE]
    await state.reassert([stored(first, replace(held, state=A, tier=1, revision=2, record=b""))])
    (again,) = await decide(state, claims.ask("c4", OTHER, 2), limits=limits)
    assert again.place is Place.FREE


async def test_a_decided_claim_gives_its_place_back(state: State, claims):
    one = QueueLimits(per_user=1, per_tenant=1, total=1)
    ask = claims.ask("c1", tier=2)
    (pending,) = await decide(state, ask, limits=one)
    await state.reassert([stored(ask, replace(pending, state=A, tier=1, revision=2, record=b""))])
    assert await state.queue_depth() == 0
    (next_one,) = await decide(state, claims.ask("c2", OTHER, 2), limits=one)
    assert next_one.place is Place.FREE


# Responses


async def test_a_response_that_a_person_is_asked_for_is_pending_or_refused_like_a_claim(state: State, claims):
    one = QueueLimits(per_user=1)
    pending = claims.respond("r1", 2, queued=True)
    (first,) = await decide(state, pending, limits=one)
    assert (first.state, first.place, first.record) == (P, Place.FREE, b"answer r1")
    later = claims.respond("r2", 2, queued=True)
    (refused,) = await decide(state, later, limits=one)
    assert (refused.state, refused.tier, refused.place, refused.record) == (R, 2, Place.USER_FULL, b"")
    (claim,) = await decide(state, claims.ask(tier=2), limits=one)
    assert claim.place is Place.USER_FULL  # the places are those of claims
    await state.reassert([stored(pending, replace(first, state=A, tier=1, revision=2, record=b""))])
    (afresh,) = await decide(state, claims.again(later), limits=one)
    assert (afresh.state, afresh.revision) == (P, 2)


async def test_a_response_does_not_wait_behind_claims_of_its_user(state: State, claims):
    await step_one(state, claims.ask("c1", wait=True))
    outcomes = await decide(
        state, claims.respond("r1"), claims.respond("r2", 2), claims.respond("r3", 2, queued=True)
    )
    assert [outcome.state for outcome in outcomes] == [A, V, P]
    assert await step_one(state, claims.ask("c2", OTHER)) == Waiting(publish=True)


async def test_equal_answers_are_no_duplicates_of_each_other_or_of_claims(state: State, claims):
    outcomes = await decide(
        state, claims.ask("c1"), claims.respond("r1"), claims.respond("r2"), claims.respond("r3", 2)
    )
    assert [outcome.state for outcome in outcomes] == [A, A, A, V]
    assert not any(outcome.matches for outcome in outcomes)


async def test_a_tier_2_that_is_not_queued_joins_nothing(state: State, claims):
    await decide(state, claims.ask("c1", tier=2))
    (outcome,) = await decide(state, replace(claims.ask("c2", tier=2), queued=False))
    assert (outcome.state, outcome.place) == (V, Place.NOT_NEEDED)
    (later,) = await decide(state, claims.ask("c3", tier=2))
    assert [match.subject_id for match in later.matches] == ["c1"]  # nor is it found


async def test_only_an_approved_response_keeps_what_derives_from_it_in_tier_1(state: State, claims):
    """Claims that were extracted from a response rest on it."""
    limits = QueueLimits(per_user=2)
    await decide(
        state,
        claims.respond("approved"),
        claims.respond("review", 2),
        claims.respond("blocked", 3),
        claims.respond("pending", 2, queued=True),
        limits=limits,
    )
    await decide(state, claims.respond("refused", 2, queued=True), limits=FULL)
    names = ("approved", "review", "blocked", "pending", "refused", "unknown")
    texts = [f"what {name} answers say stands on its own" for name in names]
    parents = [subject(name, kind=Kind.RESPONSE) for name in names]
    outcomes = await decide(
        state,
        *[claims.ask(f"{p.subject_id}#1", t, parents=[p]) for p, t in zip(parents, texts, strict=True)],
    )
    assert [outcome.parents[0].state for outcome in outcomes] == list(names)
    assert [outcome.state for outcome in outcomes] == [A, P, P, P, P, P]
    (claim,) = await decide(state, claims.ask("c1", OTHER, parents=[subject("approved")]))
    assert claim.parents[0].state == "unknown"  # a claim of the same name is another subject


# Looking back


async def test_payloads_are_those_of_current_outcomes_in_the_order_asked_for(state: State, claims):
    texts = ("a claim to be approved", "backups wait for a person to look", "a third text that is blocked")
    asks = [
        *[claims.ask(f"c{tier}", text, tier) for tier, text in enumerate(texts, 1)],
        *[claims.respond(f"r{tier}", tier) for tier in (1, 2, 3)],
        claims.respond("r4", 2, queued=True),
    ]
    asks = [replace(ask, payload=f'{{"n":{n}}}'.encode()) for n, ask in enumerate(asks)]
    await decide(state, *asks)
    await step_one(state, claims.ask("waiting", OTHER, wait=True))
    subjects = [subject("waiting"), *[ask.subject for ask in reversed(asks)], subject("r1"), asks[0].subject]
    expected = [None, *[ask.payload for ask in reversed(asks)], None, asks[0].payload]
    assert await state.payloads(subjects) == expected
    assert await state.payloads([]) == []


async def test_what_many_payloads_begin_with_comes_back_with_each_of_them(state: State, claims):
    lines = [b'{"engine":"%d"}\t{"n":%d}' % (n % 2, n) for n in range(6)] + [b"{}\t{}", b'{"no":"tab"}']
    asks = [replace(claims.ask(f"c{n}", f"{n} {n}", 1 + n % 3), payload=line) for n, line in enumerate(lines)]
    again = [claims.again(ask, payload=b"other\tline") for ask in asks]
    for answers in (await decide(state, *asks), await decide(state, *again)):
        assert [answer.payload for answer in answers] == lines
    subjects = [ask.subject for ask in asks]
    assert await state.payloads(subjects) == lines
    assert [entry and entry.payload for entry in await state.held(subjects)] == lines


async def test_the_payload_of_the_highest_revision_counts(state: State, claims):
    ask = claims.ask(tier=2)
    await decide(state, ask, limits=FULL)
    later = claims.again(ask, payload=b'{"n":2}')
    await decide(state, later)
    assert await state.payloads([ask.subject]) == [b'{"n":2}']


# Batches


async def test_an_empty_batch_has_no_answers(state: State):
    assert await state.step([], QueueLimits()) == []


async def test_a_batch_sees_what_it_decided_itself(state: State, claims):
    ask = claims.ask("c1", tier=2)
    refused, pending, again = await decide(
        state,
        ask,
        claims.ask("c2", tier=2),
        ask,
    )
    assert [refused.state, pending.state] == [P, J]
    assert again == replace(refused, fresh=False)


async def test_a_batch_of_more_than_a_thousand_keys_parents_and_claims_is_answered_in_order(
    state: State, claims
):
    long = " ".join(f"word{n}" for n in range(3_000))
    parents = [subject(f"p{n}") for n in range(50)]
    asks = [claims.ask("long", long), claims.ask("copy", long)]
    asks += [
        claims.ask(f"c{n}", f"the number {n} is of interest to user {n}", user=f"u{n}", parents=parents)
        for n in range(300)
    ]
    outcomes = await decide(state, *asks)
    assert [outcome.origin for outcome in outcomes] == [ask.origin for ask in asks]
    assert [outcome.state for outcome in outcomes] == [A, B, *[P] * 300]


# What is known to be published


async def test_a_known_outcome_fills_in_for_a_lost_one_and_never_replaces_a_newer_one(state: State, claims):
    ask = claims.ask(tier=2)
    (refused,) = await decide(state, ask, limits=FULL)
    (pending,) = await decide(state, claims.again(ask))
    assert await state.reassert([stored(ask, refused), stored(ask, pending)]) == 0
    lost = claims.ask("lost", OTHER, 2)
    known = replace(pending, fingerprint=lost.fingerprint, origin=lost.origin, record=b"record")
    assert await state.reassert([stored(lost, known)]) == 1
    assert await decide(state, lost) == [replace(known, fresh=False)]
    assert await state.queue_depth() == 2
    (joined,) = await decide(state, claims.ask("c9", OTHER, 2))
    assert joined.state is J


@pytest.mark.parametrize("expected", [A, V, B, P, R])
async def test_a_known_outcome_of_a_response_is_taken_over(state: State, claims, expected):
    tiers = {A: 1, V: 2, B: 3, P: 2, R: 2}
    ask = claims.respond("r1", tiers[expected], queued=expected in {P, R})
    limits = FULL if expected is R else QueueLimits()
    (known,) = await decide(state, ask, limits=limits)
    lost = replace(ask, subject=subject("r1", user="bob", kind=Kind.RESPONSE))
    assert await state.reassert([stored(lost, known)]) == 1
    assert await decide(state, lost) == [replace(known, fresh=False)]
    assert known.state is expected
    assert await state.payloads([lost.subject]) == [ask.payload]
    assert await state.queue_depth() == (2 if expected is P else 0)
    (claim,) = await decide(state, claims.ask("c1", user="bob", tier=3, parents=[lost.subject]))
    assert claim.parents[0].state == expected.name.lower()


async def test_a_known_outcome_ends_the_waiting_of_its_claim(state: State, claims):
    ask = claims.ask(wait=True)
    await step_one(state, ask)
    twin = replace(ask, subject=subject("c1", user="bob"))
    (known,) = await decide(state, twin, deferred=True)
    assert await state.reassert([stored(ask, known)]) == 1
    assert await state.waiting_count() == 0
    (next_one,) = await decide(state, claims.ask("c2", OTHER))
    assert next_one.state is A
