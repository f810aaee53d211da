"""What a step decides, on every implementation of state: transitions, duplicates, parents, places, payloads."""

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from groundwire.messages.decisions import Kind, MatchClass, Place
from groundwire.messages.topics import partition_of
from groundwire.state.model import (
    Conflict,
    Outcome,
    QueueLimits,
    Reviewed,
    State,
    StepRequest,
    SubjectState,
    SubjectStatus,
    Waiting,
)
from groundwire.state.redis import RedisState
from tests.state.claims import (
    FULL,
    LIMITS,
    LONG,
    NEVER,
    OTHER,
    TEXT,
    A,
    B,
    Claims,
    J,
    P,
    People,
    R,
    V,
    W,
    decide,
    in_state,
    origin,
    payloads_of,
    review_one,
    step_one,
    stored,
    subject,
)
from tests.state.conftest import PARTITIONS

UNHEARD = "a text that nobody has ever said"
APPROVED = {"state": A, "tier": 1, "revision": 2, "record": b""}


def states(outcomes) -> list:
    return [outcome.state for outcome in outcomes]


async def test_a_step_answers_every_request_in_order(state: State, claims):
    assert await state.step([], QueueLimits()) == []
    ask = replace(claims.ask("c1", tier=2), record=b'\n{"content":\r\n\x00"\xff"}\n\n')
    first, joined, again = await decide(state, ask, claims.ask("c2", tier=2), ask)
    assert (first.state, joined.state, first.record) == (P, J, ask.record)
    assert again == replace(first, fresh=False), "a batch sees what it decided itself"
    long = " ".join(f"word{n}" for n in range(3_000))
    parents = [subject(f"p{n}") for n in range(50)]
    asks = [claims.ask("long", long), claims.ask("copy", long)]
    asks += [
        claims.ask(f"c{n}", f"the number {n} is of interest to user {n}", user=f"u{n}", parents=parents)
        for n in range(300)
    ]
    outcomes = await decide(state, *asks)
    assert [outcome.origin for outcome in outcomes] == [ask.origin for ask in asks]
    assert states(outcomes) == [A, B, *[P] * 300], "more than a thousand keys, parents and claims"


async def test_users_tenants_and_kinds_share_nothing(state: State, claims):
    asks = [claims.ask("c1"), claims.ask("c1", user="bob"), claims.ask("c1", tenant="umbrella")]
    asks.append(replace(claims.ask("c1", text=None), subject=subject("c1", kind=Kind.RESPONSE)))
    outcomes = await decide(state, *asks, claims.ask("c3", user="eve"))
    assert states(outcomes) == [A] * 5
    assert not any(outcome.matches for outcome in outcomes)


async def test_a_claim_waits_behind_waiting_claims_of_its_user_alone(state: State, claims):
    first, second = claims.ask("c1", wait=True), claims.ask("c2", OTHER)
    assert await state.step([first, second], QueueLimits()) == [Waiting(publish=True)] * 2
    others = [claims.ask("c2", OTHER, user="bob"), claims.ask("c2", OTHER, tenant="umbrella")]
    answers = [claims.respond("r1"), claims.respond("r2", 2), claims.respond("r3", 2, queued=True)]
    assert states(await decide(state, *others, *answers)) == [A, A, A, V, P]
    (child,) = await decide(state, claims.ask("c3", parents=[subject("c1")]), deferred=True)
    assert (child.state, child.parents[0].state, list(child.matches)) == (P, "waiting", [])
    await decide(state, first, second, deferred=True)
    (later,) = await decide(state, claims.ask("c4", "a third claim about something else"))
    assert later.state is A


async def test_a_record_that_was_answered_keeps_its_answer(new_state, claims):
    """A worker that lost its partition may ask once more and die before it publishes."""
    state, leader, joined = await new_state(), claims.ask("c1", tier=2), claims.ask("c2", tier=2)
    pending, first = await decide(state, leader, joined)
    later = claims.again(joined, wait=True)
    assert await decide(state, later) == [replace(first, fresh=False)], "answered while its claim was joined"
    await state.reassert([stored(leader, replace(pending, **APPROVED, first_origin=leader.origin))])
    assert await decide(state, later) == [replace(first, fresh=False)]
    assert await state.waiting_count() == 0
    (afresh,) = await decide(state, claims.again(joined))
    assert (afresh.state, afresh.revision) == (B, 2)
    assert await step_one(state, joined) == replace(first, fresh=False)
    state, ask = await new_state(), claims.ask(tier=2, wait=True)
    await step_one(state, ask)
    second = claims.again(ask)
    assert await step_one(state, second) == Waiting(publish=False)
    (first,) = await decide(state, ask, deferred=True, limits=FULL)
    assert await decide(state, second) == [replace(first, fresh=False)], "answered while another waited"
    later = claims.again(ask)
    assert await step_one(state, later) == Waiting(publish=True)
    for deferred in (False, True):  # an older record on `deferred` does not decide the one that waits
        assert await step_one(state, ask, deferred=deferred) == replace(first, fresh=False)
    assert await state.waiting_count() == 1
    (refused,) = await decide(state, later, deferred=True, limits=FULL)
    assert (refused.revision, refused.origin) == (2, later.origin)
    assert await decide(state, later) == [replace(refused, fresh=False)]
    (afresh,) = await decide(state, claims.again(ask, wait=False))
    assert (afresh.state, afresh.revision) == (P, 3)


async def test_each_of_several_records_of_a_refused_claim_keeps_its_own_revision(state: State, claims):
    first = claims.ask(tier=2)
    copy = claims.again(first)
    records = [first, claims.again(first), claims.again(first)]
    answers = await decide(state, *records, limits=FULL)
    found = [(answer.state, answer.revision, answer.fresh) for answer in answers]
    assert found == [(R, number, True) for number in (1, 2, 3)]
    again = await decide(state, *records)
    assert [(answer.origin, answer.revision, answer.fresh) for answer in again] == [
        (record.origin, number, False) for number, record in enumerate(records, 1)
    ]
    assert (await step_one(state, copy)).revision == 3, "another record gets the current outcome"


async def test_what_a_claim_repeats_or_contradicts_decides_its_state(new_state, claims):
    """Each row: the earlier claim, the claim in question, its state, and the difference that is reported."""
    turned = TEXT.replace("ingest service", "service ingest")
    rows = [
        ((TEXT, 1), (TEXT, 1, {}), B, ["none"]),
        ((TEXT, 1), (TEXT, 2, {}), B, ["none"]),
        ((TEXT, 3), (TEXT, 1, {}), A, []),
        ((LONG, 1), (NEVER, 1, {}), P, ["negation"]),
        ((LONG, 1), (NEVER, 2, {}), P, ["negation"]),
        ((LONG, 1), (NEVER, 1, {"material": False}), B, ["negation"]),
        ((LONG, 2), (NEVER, 2, {}), P, ["negation"]),
        ((LONG, 2), (LONG, 2, {}), J, ["none"]),
        ((TEXT, 1), (turned, 1, {}), P, ["order"]),
        ((TEXT, 2), (TEXT, 2, {"failed": True}), P, []),
        ((None, 1), (None, 1, {}), A, []),
    ]
    wrong = []
    for (text, tier), (other, base, changes), expected, differences in rows:
        state = await new_state()
        await decide(state, claims.ask("c1", text, tier))
        (outcome,) = await decide(state, claims.ask("c2", other, base, **changes))
        found = outcome.state, [match.difference for match in outcome.matches]
        if found != (expected, differences):
            wrong.append((text, other, base, changes, found))
    assert wrong == []


async def test_what_broke_is_decided_anew_under_its_revision_unless_somebody_acted_since(
    state: State, claims, people
):
    parent = claims.ask("c1")
    leads = claims.ask("c2", OTHER, 2)
    asks = [parent, leads, claims.respond("r1")]
    await decide(state, *asks)
    broken = [
        replace(ask, base_tier=2, dedup=None, dedup_failed=ask.dedup is not None, again=True) for ask in asks
    ]
    outcomes = await decide(state, *broken)
    assert states(outcomes) == [P, P, V]
    assert {(one.revision, one.first_origin, one.fresh) for one in outcomes} == {(1, None, True)}
    assert await state.queue_depth() == 2
    resting = claims.ask("c3", "It rests on it", parents=[parent.subject])
    assert states(await decide(state, resting, claims.ask("c4"))) == [P, A], "it is found by nobody"
    assert await decide(state, *asks) == [replace(one, fresh=False) for one in outcomes]
    (afresh,) = await decide(state, claims.again(broken[1]), limits=FULL)
    assert (afresh.revision, afresh.fresh) == (1, False)
    refused, later = await decide(state, broken[1], claims.again(broken[1]), limits=FULL)
    assert [(one.state, one.revision, one.origin == broken[1].origin) for one in (refused, later)] == [
        (R, 1, True),
        (R, 2, False),
    ]
    await review_one(state, people.act("approve", parent))
    (acted,) = await decide(state, broken[0])
    assert (acted.state, acted.revision, acted.fresh) == (B, 2, False), "a duplicate of what came since"


async def test_a_match_reports_id_counts_and_class(state: State, claims):
    name = 'a "quote"\\ / \n\t\x7f\x01 ü 漢 😀 [1,2] \x1f'
    await decide(state, claims.ask(name))
    ask = claims.ask("c2", tier=3, parents=[subject(name)])
    (outcome,) = await decide(state, ask)
    (match,) = outcome.matches
    assert (match.subject_id, match.inter, match.union) == (name, 17, 17)
    assert (match.difference, match.match_class) == ("none", MatchClass.APPROVED)
    assert [parent.state for parent in outcome.parents] == ["approved"], "reported though blocked anyway"
    assert await decide(state, ask) == [replace(outcome, fresh=False)]


async def test_neither_itself_nor_an_approved_claim_past_its_horizon_is_a_duplicate(state: State, claims):
    ask = claims.ask("own", OTHER)
    await decide(state, replace(ask, subject=subject("own", kind=Kind.RESPONSE)))  # the expired entry
    (outcome,) = await decide(state, ask)
    assert (outcome.state, list(outcome.matches)) == (A, [])
    await decide(state, claims.ask("c1", horizon=1_003))
    before = replace(claims.ask("c2"), origin=origin(50, timestamp=1_002))
    after = replace(claims.ask("c3"), origin=origin(51, timestamp=1_003))
    assert states(await decide(state, before, after)) == [B, A]


async def test_a_text_that_a_person_rejected_lowers_tier_1_under_any_id(new_state, claims):
    long = f" {OTHER} and all of this has been so since the beginning"
    wrong = []
    for name in ("c2", "c1"):
        for changed in (TEXT, f"{TEXT} upstream", TEXT.replace("failed ", "")):
            state, ask = await new_state(), claims.ask("c1", TEXT + long, 2)
            if name == "c1":
                ask = replace(ask, subject=subject("c1", kind=Kind.RESPONSE))  # the expired entry
            (pending,) = await decide(state, ask)
            rejected = replace(pending, state=B, tier=3, revision=2, record=b"")
            await state.reassert([stored(ask, rejected, rejected=True)])
            (outcome,) = await decide(state, claims.ask(name, changed + long))
            found = outcome.state, outcome.tier, [match.match_class for match in outcome.matches]
            if found != (P, 2, [MatchClass.REJECTED]):
                wrong.append((name, changed, found))
    assert wrong == []


async def test_matches_come_nearest_first_then_earliest_then_by_id(state: State, claims):
    words = [f"word{n}" for n in range(60)]
    rows = {"far": (0, 61), "y": (1, 60), "x": (1, 60), "é": (1, 60), "a": (5, 60)}
    for turned, (name, (time, size)) in enumerate(rows.items(), start=1):
        text = [*words[turned:], *words[:turned], *["more"] * (size - 60)]  # another order: nothing joins
        ask = replace(claims.ask(name, " ".join(text), 2), origin=origin(turned, timestamp=time))
        assert states(await decide(state, ask)) == [P]
    (outcome,) = await decide(state, claims.ask("new", " ".join(words)))
    assert [match.subject_id for match in outcome.matches] == ["x", "y", "é", "a", "far"]
    assert [(match.inter, match.union) for match in outcome.matches] == [(60, 60)] * 4 + [(60, 61)]


async def test_a_claim_that_was_not_compared_or_not_queued_is_not_indexed(state: State, claims):
    (failed,) = await decide(state, claims.ask("c1", failed=True))
    assert (failed.state, failed.dedup_status, list(failed.matches)) == (P, "failed", [])
    (other,) = await decide(state, claims.ask("c2", tier=2))
    assert (other.state, list(other.matches)) == (P, [])
    disabled = await decide(state, claims.ask("c3", None), claims.ask("c4", None), claims.ask("c5", None, 2))
    assert states(disabled) == [A, A, P]
    assert {outcome.dedup_status for outcome in disabled} == {"disabled"}
    (unqueued,) = await decide(state, replace(claims.ask("c6", tier=2), queued=False))
    assert (unqueued.state, unqueued.place) == (V, Place.NOT_NEEDED), "it joins nothing"
    (later,) = await decide(state, claims.ask("c7", tier=2))
    assert [match.subject_id for match in later.matches] == ["c2"]


async def test_only_approved_parents_keep_tier_1_and_each_is_reported(state: State, claims):
    texts = [f"claim number {word} stands alone" for word in ("uno", "dos", "tres", "cuatro")]
    a, p, b = claims.ask("A", texts[0]), claims.ask("P", texts[1], 2), claims.ask("B", texts[2], 3)
    await decide(state, a, p, b, claims.ask("J", texts[1], 2))
    await decide(state, claims.ask("R", texts[3], 2), limits=FULL)
    reported = {"A": "approved", "P": "pending", "J": "joined", "R": "refused", "B": "blocked"}
    names = [*reported, "nobody", "A", "c1"]
    ask = claims.ask("c1", parents=[subject(name) for name in names])
    (lowered,) = await decide(state, ask)
    assert [(parent.id, parent.state) for parent in lowered.parents] == [
        (name, reported.get(name, "unknown")) for name in names
    ]
    assert (lowered.state, lowered.tier) == (P, 2)
    (kept,) = await decide(state, claims.ask("c2", OTHER, parents=[subject("A"), subject("A")]))
    assert kept.state is A
    await decide(state, claims.ask("nobody", "what the claim rests on"))
    assert await decide(state, ask) == [replace(lowered, fresh=False)], "as they were when it was decided"
    names = ("approved", "review", "blocked", "pending", "refused", "unknown")
    tiers = {"approved": 1, "blocked": 3}
    asks = [claims.respond(name, tiers.get(name, 2), queued=name == "pending") for name in names[:4]]
    await decide(state, *asks)
    await decide(state, claims.respond("refused", 2, queued=True), limits=FULL)
    parents = [subject(name, kind=Kind.RESPONSE) for name in names]
    asks = [claims.ask(f"{p.subject_id}#1", f"what {p.subject_id} says", parents=[p]) for p in parents]
    outcomes = await decide(state, *asks)
    assert [outcome.parents[0].state for outcome in outcomes] == list(names)
    assert states(outcomes) == [A, P, P, P, P, P]
    (claim,) = await decide(state, claims.ask("c9", "a third text", parents=[subject("approved")]))
    assert claim.parents[0].state == "unknown", "a claim of that name is another subject"


async def test_the_first_limit_that_is_reached_is_named(new_state, claims):
    """Each row: the limits, who asks second, and the place that the second gets. The first gets a freed place again."""
    users = (f"user-{n}" for n in range(1_000))
    own = partition_of("acme", "ada", PARTITIONS)  # a cluster counts other partitions later
    neighbour = next(user for user in users if partition_of("acme", user, PARTITIONS) == own)
    rows = [
        (QueueLimits(per_user=1, per_tenant=1, total=1), {}, Place.USER_FULL),
        (QueueLimits(per_user=9, per_tenant=1, total=1), {}, Place.TENANT_FULL),
        (QueueLimits(per_user=9, per_tenant=9, total=1), {}, Place.TOTAL_FULL),
        (QueueLimits(per_user=9, per_tenant=9, total=9), {}, Place.FREE),
        (QueueLimits(per_user=1), {"user": "bob"}, Place.FREE),
        (QueueLimits(per_tenant=1), {"user": neighbour}, Place.TENANT_FULL),
        (QueueLimits(per_tenant=1), {"tenant": "umbrella"}, Place.FREE),
        (QueueLimits(tenant_bytes=len(TEXT) + len(OTHER) - 1), {}, Place.TENANT_FULL),
        (QueueLimits(tenant_bytes=len(TEXT) + len(OTHER)), {}, Place.FREE),
        (QueueLimits(tenant_bytes=len(TEXT) + len(OTHER) - 1), {"tenant": "umbrella"}, Place.FREE),
    ]
    wrong = []
    for limits, who, place in rows:
        state, ask = await new_state(), claims.ask("c1", tier=2)
        first, second = await decide(state, ask, claims.ask("c2", OTHER, 2, **who), limits=limits)
        depth = await state.queue_depth()
        await state.reassert([stored(ask, replace(first, **APPROVED))])
        (after,) = await decide(state, claims.ask("c3", "a third text that waits", 2), limits=limits)
        freed = Place.FREE if place is not Place.FREE else after.place
        if (first.place, second.place, depth, after.place) != (
            Place.FREE, place, 1 + (place is Place.FREE), freed
        ):  # fmt: skip
            wrong.append((limits, who, second.place, depth, after.place))
    assert wrong == []


@pytest.mark.parametrize("seed", range(4))
async def test_a_tenant_below_its_reserved_places_gets_one_whatever_others_hold(new_state, seed):
    """Against a count of our own, while places are given back: six tenants that flood, and one with few claims."""
    draw, claims, state = random.Random(seed), Claims(), await new_state()
    known, reserved = frozenset({"good", "t0"} if seed % 2 else ()), 1 + seed // 2
    limits = QueueLimits(per_user=3, per_tenant=4, total=8, reserved=reserved, tenants=known)
    held: Counter[str] = Counter()
    pending: list[tuple[StepRequest, Outcome]] = []
    wrong, seen = [], set()

    def expected(tenant: str, user: str) -> Place:
        if held[user] >= limits.per_user:
            return Place.USER_FULL
        if held[tenant] >= (4 if not known or tenant in known else reserved):
            return Place.TENANT_FULL
        return Place.FREE if held[tenant] < reserved or held["total"] < 8 else Place.TOTAL_FULL

    for step in range(150):
        tenant = draw.choice(["t0", "t1", "t2", "t3", "t4", "t5"] if step % 9 else ["good"])
        user = f"{tenant}-{draw.randrange(3)}"
        ask = claims.ask(f"c{step}", None, 2, tenant=tenant, user=user)
        if isinstance(state, RedisState):
            state._queue._looked = float("-inf")  # a cluster counts its other partitions every second
        (outcome,) = await decide(state, ask, limits=limits)
        place = expected(tenant, user)
        wrong += [(step, tenant, place, outcome.place)] * (outcome.place is not place)
        seen.add(outcome.place)
        if outcome.place is Place.FREE:
            pending.append((ask, outcome))
            held.update((tenant, user, "total"))
        if pending and draw.random() < 0.1:
            ask, outcome = pending.pop(draw.randrange(len(pending)))
            await state.reassert([stored(ask, replace(outcome, **APPROVED))])
            held.subtract((ask.subject.tenant_id, ask.subject.user_id, "total"))
        assert await state.queue_depth() == held["total"]
    assert wrong == []
    assert {Place.FREE, Place.TOTAL_FULL} <= seen


async def test_responses_and_claims_share_places_but_not_the_index(state: State, claims):
    one = QueueLimits(per_user=1)
    pending, later = (claims.respond(name, 2, queued=True) for name in ("r1", "r2"))
    first, refused, claim = await decide(state, pending, later, claims.ask(tier=2), limits=one)
    assert (first.state, first.place, first.record) == (P, Place.FREE, b"answer r1")
    assert (refused.state, refused.tier, refused.place, refused.record) == (R, 2, Place.USER_FULL, b"")
    assert claim.place is Place.USER_FULL
    await state.reassert([stored(pending, replace(first, **APPROVED))])
    (afresh,) = await decide(state, claims.again(later), limits=one)
    assert (afresh.state, afresh.revision) == (P, 2)
    outcomes = await decide(state, claims.ask("c2"), claims.respond("r3"), claims.respond("r4", 2))
    assert states(outcomes) == [A, A, V]
    assert not any(outcome.matches for outcome in outcomes)


async def test_payloads_are_those_of_current_outcomes_in_the_order_asked_for(state: State, claims):
    lines = [b'{"engine":"%d"}\t{"n":%d}' % (n % 2, n) for n in range(6)] + [b"{}\t{}", b'{"no":"tab"}']
    asks = [replace(claims.ask(f"c{n}", f"{n} {n}", 1 + n % 3), payload=line) for n, line in enumerate(lines)]
    asks += [replace(claims.respond(f"r{n}", 1 + n % 3, queued=n == 4), payload=b"{}") for n in range(5)]
    payloads = [ask.payload for ask in asks]
    again = [claims.again(ask, payload=b"other\tline") for ask in asks]
    for answers in (await decide(state, *asks), await decide(state, *again)):
        assert [answer.payload for answer in answers] == payloads
    refused = claims.ask("refused", OTHER, 2)
    await decide(state, refused, limits=FULL)
    await decide(state, claims.again(refused, payload=b'{"n":2}'))
    await step_one(state, claims.ask("waiting", "a text that waits", wait=True))
    subjects = [subject("waiting"), *[ask.subject for ask in reversed(asks)], refused.subject, subject("r1")]
    assert await payloads_of(state, subjects) == [None, *reversed(payloads), b'{"n":2}', None]
    assert await payloads_of(state, []) == []


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
    waiting = claims.ask("w", "a text that waits", wait=True)
    await step_one(state, waiting)
    (known,) = await decide(state, replace(waiting, subject=subject("w", user="bob")), deferred=True)
    assert await state.reassert([stored(waiting, known)]) == 1
    assert await state.waiting_count() == 0


async def test_a_known_outcome_of_a_response_is_taken_over(new_state, claims):
    wrong = []
    for expected, tier in {A: 1, V: 2, B: 3, P: 2, R: 2}.items():
        state = await new_state()
        ask = claims.respond("r1", tier, queued=expected in {P, R})
        (known,) = await decide(state, ask, limits=FULL if expected is R else QueueLimits())
        lost = replace(ask, subject=subject("r1", user="bob", kind=Kind.RESPONSE))
        found = [await state.reassert([stored(lost, known)]), await decide(state, lost)]
        found += [await payloads_of(state, [lost.subject]), await state.queue_depth(), known.state]
        (claim,) = await decide(state, claims.ask("c1", user="bob", tier=3, parents=[lost.subject]))
        found.append(claim.parents[0].state)
        depth = 2 if expected is P else 0
        if found != [1, [replace(known, fresh=False)], [ask.payload], depth, expected, expected.name.lower()]:
            wrong.append((expected, found))
    assert wrong == []


async def test_a_record_brings_its_subject_from_one_state_to_the_next(new_state):
    """Each row: a record (`new`, the `same`, a `later` or an `older` one) of a subject in a named state."""

    @dataclass(frozen=True)
    class Row:
        start: str
        record: str
        to: SubjectState
        revision: int
        published: str
        changes: dict[str, Any] = field(default_factory=dict)
        limits: QueueLimits = LIMITS
        deferred: bool = False

    async def begin(start: str) -> StepRequest:
        """Bring about the state that a row starts in; return the request of its subject."""
        if start == "new answer":
            return claims.respond("r1")
        last = start.rpartition(" ")[2]
        if start == "new" or start.startswith("beside"):
            if start != "new":
                await in_state(state, claims, people, last.replace("waits", "waiting"))
            return claims.ask("c1", f"{last} {TEXT}")
        if not start.startswith("joined to"):
            return await in_state(state, claims, people, start)
        how = {"approved": "approve", "rejected": "reject", "expired": "expire"}.get(start.split()[3], "edit")
        ask = await in_state(state, claims, people, "joined")
        act = people.act(
            how, replace(ask, subject=subject("leader")), text=UNHEARD if how == "edit" else None
        )
        assert isinstance(await review_one(state, act), Reviewed)
        return ask

    where = {
        "approved": A,
        "pending": P,
        "joined": J,
        "refused": R,
        "blocked": B,
        "rejected": B,
        "waiting": W,
    }
    where |= {"answer approved": A, "answer in review": V, "answer blocked": B}
    final = where.keys() - {"joined", "refused", "waiting"}
    revisions = {"rejected": 2, "waiting": 0}
    other_payload = {"payload": b"{}", "record": b"other"}
    rows = [
        # a new subject gets the state of its tier
        *[
            Row("new", "new", to, 1, "decision", {"base_tier": tier, "capped": capped})
            for tier, to, capped in ((1, A, 0), (2, P, 0), (3, B, 0), (1, P, 1), (2, P, 1), (3, B, 1))
        ],
        Row("new", "new", R, 1, "decision", {"base_tier": 2}, FULL),
        Row("new", "new", W, 0, "deferred", {"wait": True}),
        Row("new", "new", A, 1, "decision", {"wait": True}, deferred=True),
        Row("beside one that waits", "new", W, 0, "deferred"),
        Row("beside one that waits", "new", A, 1, "decision", {"wait": True}, deferred=True),
        Row("beside one that is pending", "new", J, 1, "decision", {"base_tier": 2}),
        Row("beside one that is pending", "new", A, 1, "decision"),
        Row("beside one that is pending", "new", V, 1, "decision", {"base_tier": 2, "queued": False}),
        Row("beside one that is approved", "new", B, 1, "decision", {"base_tier": 2}),
        *[
            Row("new answer", "new", to, 1, "decision", {"base_tier": tier}, limits, deferred)
            for tier, to in ((1, A), (2, V), (3, B))
            for limits, deferred in ((FULL, False), (LIMITS, True))
        ],
        Row("new answer", "new", P, 1, "decision", {"base_tier": 2, "queued": True}),
        Row("new answer", "new", R, 1, "decision", {"base_tier": 2, "queued": True}, FULL),
        # a final outcome stands, whatever record comes again
        *[
            Row(start, record, where[start], revisions.get(start, 1), "repeat", changes, deferred=deferred)
            for start in final
            for record, changes in (("same", {}), ("later", other_payload))
            for deferred in (False, True)
        ],
        # refused or joined: a later record is decided afresh
        *[Row("refused", record, R, 1, "repeat") for record in ("same", "older", "as old")],
        Row("refused", "later", P, 2, "decision"),
        Row("refused", "later", R, 2, "decision", limits=FULL),
        Row("refused", "later", W, 1, "deferred", {"wait": True}),
        *[Row("joined", record, J, 1, "repeat") for record in ("same", "later")],
        Row("joined to one approved since", "same", J, 1, "repeat"),
        Row("joined to one approved since", "later", B, 2, "decision"),
        *[
            Row(f"joined to one {how} since", "later", P, 2, "decision")
            for how in ("rejected", "expired", "edited")
        ],
        # waiting: the record goes to `deferred` until it is decided from there
        Row("waiting", "same", W, 0, "deferred"),
        Row("waiting", "later", W, 0, "nothing"),
        *[Row("waiting", record, P, 1, "decision", deferred=True) for record in ("same", "later")],
        # other content under the same id
        *[
            Row(start, "conflicting", to, revisions.get(start, 1), "dead letter")
            for start, to in where.items()
        ],
        Row("waiting", "conflicting", W, 0, "dead letter", deferred=True),
    ]
    tiers, places = {A: 1, B: 3}, {P: Place.FREE, R: Place.USER_FULL}
    wrong = []
    for row in rows:
        state, claims = await new_state(), Claims()
        people = People(claims)
        ask = await begin(row.start)
        depth, waiting = await state.queue_depth(), await state.waiting_count()
        (before,), (held,) = await state.statuses([ask.subject]), await state.held([ask.subject])
        was = before.state if before and row.record != "new" else None
        if row.record == "conflicting":
            record = claims.again(ask, fingerprint="0" * 64)
        elif row.record in {"older", "as old"}:
            time = ask.origin.timestamp - (row.record == "older")
            record = replace(ask, origin=replace(ask.origin, offset=900, timestamp=time))
        else:
            changes = {**({"wait": False} if row.start == "refused" else {}), **row.changes}
            record = claims.again(ask, **changes) if row.record == "later" else replace(ask, **changes)
        answer = await step_one(state, record, limits=row.limits, deferred=row.deferred)
        found = [await state.statuses([ask.subject]), await state.queue_depth(), await state.waiting_count()]
        expected = [
            [SubjectStatus(row.to, row.revision)],
            depth + (row.to is P) - (was is P),
            waiting + (row.to is W) - (was is W),
        ]
        if row.published == "dead letter":
            found, expected = [*found, answer], [*expected, Conflict()]
        elif row.published in {"deferred", "nothing"}:
            found, expected = [*found, answer], [*expected, Waiting(publish=row.published == "deferred")]
        elif not isinstance(answer, Outcome):
            found.append(answer)
        elif row.published == "repeat":
            found += [answer.state, answer.revision, answer.fresh, answer.payload, answer.record]
            expected += [row.to, row.revision, False, held.payload, held.record]
        else:
            found += [answer.state, answer.revision, answer.fresh, answer.tier, answer.place]
            expected += [row.to, row.revision, True]
            expected += [tiers.get(row.to, 2), places.get(row.to, Place.NOT_NEEDED)]
            found += [answer.fingerprint, answer.payload, answer.record, answer.origin, answer.first_origin]
            kept = record.record if row.to is P else b""
            expected += [ask.fingerprint, record.payload, kept, record.origin]
            expected += [ask.origin if row.revision > 1 else None]
            for again in (record, *([claims.again(record)] if row.to in {A, P, B, V} else [])):
                found += await decide(state, again)
                expected.append(replace(answer, fresh=False))
        if found != expected:
            wrong.append((row, found, expected))
    assert wrong == []


async def test_an_action_brings_its_subject_to_its_next_revision(new_state):
    ends = (("approve", A), ("edit", A), ("reject", B), ("expire", B))
    rows = [(start, action, {}, to) for start in ("pending", "answer pending") for action, to in ends]
    rows += [("pending", action, {"expired": True}, B) for action in ("approve", "edit")]
    rows += [(start, "retract", {}, B) for start in ("approved", "answer approved")]
    wrong = []
    for start, action, changes, to in rows:
        state, claims = await new_state(), Claims()
        people = People(claims)
        ask = await in_state(state, claims, people, start)
        (before,) = await decide(state, ask)
        depth = await state.queue_depth()
        text = UNHEARD if action == "edit" and ask.dedup is not None else None
        act = people.act(action, ask, text=text, **changes)
        answer = await review_one(state, act)
        facts = {"state": to, "tier": 1 if to is A else 3, "revision": 2, "place": Place.NOT_NEEDED}
        facts |= {"origin": act.origin, "first_origin": ask.origin, "payload": act.payload, "record": b""}
        after = replace(before, **facts)
        found = [answer, await decide(state, ask, claims.again(ask))]
        found += [
            await decide(state, claims.again(ask), deferred=True),
            await payloads_of(state, [ask.subject]),
        ]
        left = depth - (action != "retract")
        if [*found, await state.queue_depth()] != [
            Reviewed(2, after),
            [after] * 2,
            [after],
            [act.payload],
            left,
        ]:
            wrong.append((start, action, changes, found))
    assert wrong == []
