"""What people do to subjects, on every implementation of state (S0-129..S0-142)."""

from dataclasses import replace

import pytest

from groundwire.messages.decisions import Kind, MatchClass, ParentFact, Place
from groundwire.state.model import (
    MAX_AFFECTED,
    HeldEntry,
    Noted,
    QueueLimits,
    RefusedAction,
    ReviewAction,
    Reviewed,
    State,
    SubjectStatus,
)
from tests.state.claims import (
    FULL,
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
    W,
    decide,
    found,
    in_state,
    review_one,
    step_one,
    stored,
    subject,
)

FOUR = ("approve", "edit", "reject", "expire")
NOTING = (ReviewAction.COMMENT, ReviewAction.UNSURE)
POSSIBLE = {"retract": {"approved"}, "overrule": {"blocked", "rejected"}}  # others: pending
APPROVED, PENDING, REJECTED = MatchClass.APPROVED, MatchClass.PENDING, MatchClass.REJECTED
STANDINGS = {
    "approved": SubjectStatus(A, 1),
    "pending": SubjectStatus(P, 1),
    "joined": SubjectStatus(J, 1),
    "refused": SubjectStatus(R, 1),
    "blocked": SubjectStatus(B, 1),
    "rejected": SubjectStatus(B, 2),
    "waiting": SubjectStatus(W, 0),
}


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
    refused = claims.ask("c3", "a third text that waits", 2)
    await decide(state, refused, limits=FULL)
    await decide(state, claims.again(refused))
    answer = await review_one(state, people.act("approve", refused, revision=2))
    assert (answer.revision, answer.outcome.first_origin) == (3, refused.origin), "the first record of all"


async def test_what_the_index_finds_after_each_action(new_state):
    """Each row: how the claim was decided, the action, its state, and what later claims find of both texts."""
    rows = [
        ({}, ("approve", {}), A, ([("c1", APPROVED)], [])),
        ({}, ("reject", {}), B, ([("c1", REJECTED)], [])),
        ({}, ("expire", {}), B, ([], [])),
        ({}, ("approve", {"expired": True}), B, ([], [])),
        ({}, ("edit", {"text": OTHER, "expired": True}), B, ([], [])),
        ({}, ("edit", {"text": OTHER}), A, ([], [("c1", APPROVED)])),
        ({}, ("edit", {"text": OTHER, "dedup_failed": True}), A, ([], [])),
        ({"failed": True}, ("approve", {}), A, ([("c1", APPROVED)], [])),
        ({"failed": True}, ("edit", {"text": OTHER}), A, ([], [("c1", APPROVED)])),
        ({"failed": True}, ("reject", {"dedup_failed": True}), B, ([("c1", REJECTED)], [])),
        ({"failed": True}, ("expire", {}), B, ([], [])),
        ({"text": None}, ("reject", {}), B, ([], [])),
        ({"text": None}, ("approve", {}), A, ([], [])),
    ]
    wrong = []
    for how, (action, changes), to, finds in rows:
        state, claims = await new_state(), Claims()
        people, ask = People(claims), claims.ask("c1", **{"tier": 2, **how})
        await decide(state, ask)
        answer = await review_one(state, people.act(action, ask, **changes))
        seen = await found(state, claims), await found(state, claims, OTHER)
        if (answer.outcome.state, seen, await state.queue_depth()) != (to, finds, 0):
            wrong.append((how, action, changes, answer.outcome.state, seen))
        if action == "edit" and to is A and not changes.get("dedup_failed"):
            await review_one(state, people.act("retract", ask, revision=2))
            if (await found(state, claims), await found(state, claims, OTHER)) != ([], [("c1", REJECTED)]):
                wrong.append((how, "retract after edit"))
    assert wrong == []


async def test_an_approved_text_is_compared_once_more(new_state):
    """Each row: the claim, an approved other one, the action, its state, and the match that is reported."""
    rows = [
        ((TEXT, {}), (TEXT, {}), ("approve", {}), B, [("c2", APPROVED, "none")]),
        ((OTHER, {}), (TEXT, {}), ("edit", {"text": TEXT}), B, [("c2", APPROVED, "none")]),
        ((LONG, {}), (NEVER, {}), ("approve", {}), A, [("c2", APPROVED, "negation")]),
        ((LONG, {"material": False}), (NEVER, {}), ("approve", {}), B, [("c2", APPROVED, "negation")]),
        ((LONG, {}), (OTHER, {}), ("edit", {"text": LONG + " quietly"}), A, []),
        ((TEXT, {"failed": True}), (TEXT, {}), ("approve", {"dedup_failed": True}), A, []),
        ((TEXT, {"failed": True}), (TEXT, {}), ("approve", {"dedup_failed": True, "dedup": None}), A, []),
        ((TEXT, {}), (TEXT, {"horizon": 1_003}), ("approve", {}), A, []),
    ]
    wrong = []
    for (text, how), (other, its), (action, changes), to, matches in rows:
        state, claims = await new_state(), Claims()
        ask = claims.ask("c1", text, 2, **how)
        await decide(state, ask, claims.ask("c2", other, **its))
        answer = await review_one(state, People(claims).act(action, ask, **changes))
        seen = [(m.subject_id, m.match_class, m.difference) for m in answer.outcome.matches]
        if (answer.outcome.state, seen, await state.queue_depth()) != (to, matches, 0):
            wrong.append((text, action, changes, answer.outcome.state, seen))
    assert wrong == []
    state, claims = await new_state(), Claims()
    people, words = People(claims), [f"word{n}" for n in range(60)]
    texts = [" ".join(words[n:] + words[:n]) for n in range(3)]
    first, second = [claims.ask(name, texts[n], 2) for n, name in enumerate(("first", "second"))]
    rejected = claims.ask("rejected", LONG.replace("upload", "download"), 2)
    pending, edited = claims.ask("pending", LONG, 2), claims.ask("edited", OTHER, 2)
    await decide(state, first, second, rejected, pending, edited)
    acts = [people.act("reject", rejected), people.act("edit", edited, text=LONG)]
    outcome = (await state.review(acts))[1].outcome
    assert outcome.state is A, "neither a pending nor a rejected match stops a person"
    classes = {match.subject_id: match.match_class for match in outcome.matches}
    assert classes == {"rejected": REJECTED, "pending": PENDING}
    await state.review([people.act("approve", second), people.act("approve", first)])
    (outcome,) = await decide(state, claims.ask("c9", texts[2], 3))
    assert [match.subject_id for match in outcome.matches] == ["second", "first"], (
        "the earlier approval first"
    )
    ask = claims.ask("limited", tier=2)
    await decide(state, ask)
    act = people.act("approve", ask)
    await review_one(state, replace(act, horizon=act.origin.timestamp + 2))
    finds = [await found(state, claims), await found(state, claims)]
    assert finds == [[("limited", APPROVED)], []], "the horizon given with an approval counts"


async def test_parents_stay_as_the_person_knew_them_and_uncompared_facts_stay(state: State, claims, people):
    for action in ("edit", "reject", "expire", "retract"):
        parents = [subject(name, user=action) for name in ("p", "q")]
        ask = claims.ask(action, NEVER, 2, user=action, parents=parents)
        _, before = await decide(state, claims.ask("dup", LONG, 2, user=action), ask)
        assert [m.subject_id for m in before.matches] == ["dup"]
        await decide(state, claims.ask("p", "what the claim rests on", user=action))
        revision = 1
        if action == "retract":
            before, revision = (await review_one(state, people.act("approve", ask))).outcome, 2
        changes = {"text": OTHER} if action == "edit" else {"dedup": None}
        after = (await review_one(state, people.act(action, ask, revision=revision, **changes))).outcome
        assert after.parents == [ParentFact(id=name, state="unknown") for name in ("p", "q")]
        facts = ("ok", []) if action == "edit" else (before.dedup_status, before.matches)
        assert (after.dedup_status, after.matches, after.place) == (*facts, Place.NOT_NEEDED)


async def test_a_rejection_counts_against_the_same_id_and_outlives_later_claims(state: State, claims, people):
    ask = claims.ask("c1", tier=2)
    await decide(state, ask)
    await review_one(state, people.act("reject", ask))
    forgotten = replace(claims.ask("c1"), subject=subject("c1", kind=Kind.RESPONSE))  # the entry has expired
    (later,) = await decide(state, forgotten)
    assert (later.state, [m.match_class for m in later.matches]) == (P, [REJECTED])
    await review_one(state, people.act("expire", forgotten))
    assert await found(state, claims) == [("c1", REJECTED)]


async def test_a_parent_counts_from_its_approval_to_its_retraction(state: State, claims, people):
    parent = claims.ask("p", tier=2)
    await decide(state, parent)
    await review_one(state, people.act("approve", parent))
    (one,) = await decide(state, claims.ask("c1", OTHER, parents=[parent.subject]))
    await review_one(state, people.act("retract", parent, revision=2))
    (two,) = await decide(state, claims.ask("c2", "a third text", parents=[parent.subject]))
    assert (one.state, two.state, two.parents[0].state) == (A, P, "blocked")


async def test_a_decision_gives_its_place_back_once(new_state):
    wrong = []
    for action in FOUR:
        for one in (QueueLimits(per_user=1), QueueLimits(per_tenant=1), QueueLimits(total=1)):
            state, claims = await new_state(), Claims()
            people, ask = People(claims), claims.ask("c1", tier=2)
            await decide(state, ask, limits=one)
            act = people.act(action, ask)
            for each in (act, act, people.act("reject", ask, revision=2)):
                await review_one(state, each)
            asks = claims.ask("c2", OTHER, 2), claims.ask("c3", "a third", 2)
            _, full = await decide(state, *asks, limits=one)
            if (await state.queue_depth(), full.state) != (1, R):
                wrong.append((action, one))
    assert wrong == []


async def test_an_action_that_cannot_be_is_refused_and_changes_nothing(new_state):
    wrong = []
    for action in ReviewAction:
        for name, current in STANDINGS.items():
            state, claims = await new_state(), Claims()
            people = People(claims)
            ask = await in_state(state, claims, people, name)
            possible = name in POSSIBLE.get(action, {"pending"})
            text = f"{name} {TEXT}"
            before = [await step_one(state, ask), await state.queue_depth(), await found(state, claims, text)]
            refusals = [
                people.act(action, ask, revision=current.revision + 1),
                people.act(action, ask, revision=current.revision - 1),
                people.act(action, ask, revision=current.revision, refused="unauthorized"),
                *([] if possible else [people.act(action, ask, revision=current.revision)]),
            ]
            codes = ["stale", "stale", "unauthorized"]
            codes += [{"retract": "not_approved", "overrule": "not_overrulable"}.get(action, "not_pending")]
            if name == "waiting":
                codes = ["waiting", "waiting", "unauthorized", "waiting"]
            answers = [RefusedAction(code, current) for code in codes[: len(refusals)]]
            seen = [await state.review(refusals), await state.statuses([ask.subject])]
            seen += [await step_one(state, ask), await state.queue_depth(), await found(state, claims, text)]
            if possible:
                await review_one(state, people.act(action, ask, revision=current.revision))
            if [*seen, await state.review(refusals)] != [answers, [current], *before, answers]:
                wrong.append((action, name, seen))
    assert wrong == []


async def test_an_action_on_an_unknown_subject_is_refused(state: State, claims, people):
    for action in ReviewAction:
        act = people.act(action, claims.ask(tier=2))
        assert await state.review([act, act]) == [RefusedAction("unknown", None)] * 2
        assert await state.statuses([act.subject]) == await state.held([act.subject]) == [None]
    ask = claims.ask("decided between look-up and action", tier=2)
    await decide(state, ask)
    unseen = await review_one(state, people.act("approve", ask, payload=b""))
    assert unseen == RefusedAction("unknown", SubjectStatus(P, 1))
    assert await state.queue_depth() == 1
    assert await state.review([]) == await state.held([]) == await state.statuses([]) == []
    act = people.act("approve", claims.ask())
    later = people.act("approve", claims.ask(), action_id=act.action_id)
    answers = await state.review([act, later])
    assert [answer.at for answer in answers] == [act.origin.timestamp] * 2, "when it was first refused"
    acts = [("reject", 1), ("approve", 1), ("approve", 2)]
    first, *others = await state.review([people.act(how, ask, revision=number) for how, number in acts])
    assert isinstance(first, Reviewed), "of several in one batch the first counts"
    assert others == [RefusedAction(code, SubjectStatus(B, 2)) for code in ("stale", "not_pending")]


async def test_an_action_that_comes_again_gets_its_answer_again(new_state):
    """From the same state, and from one that knows the action from the topics alone."""
    for action in set(ReviewAction) - set(NOTING):
        state, other, claims = await new_state(), await new_state(), Claims()
        people, ask = People(claims), claims.ask(tier={"retract": 1, "overrule": 3}.get(action, 2))
        await decide(other, ask)
        act = people.act(action, ask)
        first = await review_one(other, act)
        later = people.act(action, ask, action_id=act.action_id, payload=b'{"by":"another record"}')
        acts = [act, later, replace(act, refused="unauthorized", expected_revision=9)]
        assert await other.review(acts) == [first] * 3
        await state.reassert([stored(ask, first.outcome, rejected=True)])
        refused = replace(act, refused="unauthorized", only_recorded=True)
        for again in (refused, act, act):
            answer = await review_one(state, again)
            seen = answer, answer.fresh, answer.at, answer.state
            assert seen == (first, False, act.origin.timestamp, first.state)


async def test_an_approval_keeps_its_answer_after_its_retraction(new_state):
    for action in ("approve", "edit"):
        state, claims = await new_state(), Claims()
        people, ask = People(claims), claims.ask(tier=2, parents=[subject("p")])
        await decide(state, claims.ask("p", "another text"), ask)
        act = people.act(action, ask)
        first, retracted = await state.review([act, people.act("retract", ask, revision=2)])
        assert (first.outcome.state, retracted.outcome.state) == (A, B)
        later = people.act(action, ask, action_id=act.action_id)
        for again in (act, later, replace(act, refused="unattested", only_recorded=True)):
            answer = await review_one(state, again)
            assert answer == replace(first, fresh=False)
            assert (answer.state, answer.at, answer.outcome.origin) == (A, act.origin.timestamp, act.origin)


async def test_what_the_gate_blocked_waits_with_a_place_once_it_is_overruled(state: State, claims, people):
    ask = claims.ask("c1", tier=3)
    await decide(state, ask)
    act = people.act("overrule", ask, record=b"the claim", dedup=ask.dedup)
    outcome = (await review_one(state, act)).outcome
    seen = outcome.state, outcome.tier, outcome.revision, outcome.place, outcome.record
    assert seen == (P, 2, 2, Place.FREE, b"the claim")
    assert (await state.queue_depth(), await found(state, claims)) == (1, [("c1", PENDING)])
    approved = await review_one(state, people.act("approve", ask, revision=2))
    assert (approved.outcome.state, approved.revision, await state.queue_depth()) == (A, 3, 0)
    assert (await review_one(state, act)).outcome == outcome, "which may not be published yet"


async def test_a_full_queue_refuses_to_overrule(new_state):
    for full in (
        QueueLimits(per_user=1),
        QueueLimits(per_tenant=1),
        QueueLimits(total=1),
        QueueLimits(tenant_bytes=1),
    ):
        state, claims = await new_state(), Claims()
        people, ask = People(claims), claims.ask("c1", tier=3)
        await decide(state, ask, claims.ask("c2", OTHER, 2))
        (answer,) = await state.review([people.act("overrule", ask, record=b"the claim")], full)
        assert answer == RefusedAction("review_queue_full", SubjectStatus(B, 1))
        assert await state.queue_depth() == 1


async def test_a_comment_changes_nothing_and_counts_once(state: State, claims, people):
    ask = claims.ask("c1", tier=2)
    await decide(state, ask)
    for action in NOTING:
        act = people.act(action, ask, payload=b"")
        noted = Noted(SubjectStatus(P, 1))
        assert await state.review([act, act]) == [noted, noted]
        other = replace(act, decisive=b"another text")
        assert await review_one(state, other) == RefusedAction("action_id_reused", None)
    assert (await state.statuses([ask.subject]), await state.queue_depth()) == ([SubjectStatus(P, 1)], 1)
    await review_one(state, people.act("reject", ask))
    assert await review_one(state, act) == noted, "whatever became of the subject since"


async def test_an_action_id_is_used_once_within_a_tenant(state: State, claims, people):
    one, two = claims.ask("c1", tier=2), claims.ask("c2", OTHER, 2, user="bob")  # in another bucket
    elsewhere = claims.ask("c1", tier=2, tenant="umbrella")
    await decide(state, one, two, elsewhere)
    act = people.act("approve", one, action_id="x", decisive=b"1" * 16)
    others = [("approve", two, 1), ("retract", one, 2), ("approve", claims.ask("c3"), 1)]
    others = [people.act(how, ask, revision=number, action_id="x") for how, ask, number in others]
    acts = [act, *others, replace(act, decisive=b"2" * 16), act]
    acts.append(people.act("approve", elsewhere, action_id="x"))
    first, *reused, again, other = await state.review(acts)
    assert reused == [RefusedAction("action_id_reused", None)] * 4
    assert isinstance(first, Reviewed)
    assert (again, other.outcome.state) == (first, A)
    assert await state.statuses([one.subject, two.subject]) == [SubjectStatus(A, 2), SubjectStatus(P, 1)]
    asks = [people.act("approve", two, action_id="y", refused="unattested")]
    asks.append(people.act("reject", two, action_id="y"))
    refused = [RefusedAction("unattested", SubjectStatus(P, 1)), RefusedAction("action_id_reused", None)]
    assert await state.review(asks) == refused, "a refused id is used up too"


async def test_any_text_may_be_an_action_id_and_none_uses_up_an_expiry(state: State, claims, people):
    for number, action_id in enumerate(["", "a b", "a\nb", "+2 \0", "x" * 5_000, "ü漢"]):
        ask = claims.ask(f"c{number}", f"text number {number}", 2)
        await decide(state, ask)
        act = people.act("approve", ask, action_id=action_id)
        answer = await review_one(state, act)
        assert (answer.revision, await review_one(state, act)) == (2, answer)
    ask, other = claims.ask("last", OTHER, 2), claims.ask("other")
    await decide(state, ask)
    await state.review(
        [people.act(how, who, action_id="x") for how, who in (("retract", ask), ("expire", other))]
    )
    assert isinstance(await review_one(state, people.act("expire", ask, action_id="x")), Reviewed)


async def test_a_refusal_that_is_not_remembered_does_not_stand(new_state):
    for flag in ("forget", "only_recorded"):
        state, claims = await new_state(), Claims()
        people, ask = People(claims), claims.ask(tier=2)
        await decide(state, ask)
        act = people.act("approve", ask)
        refused = await review_one(state, replace(act, refused="not_published", **{flag: True}))
        assert (refused, refused.at) == (RefusedAction("not_published", SubjectStatus(P, 1)), 0)
        assert isinstance(await review_one(state, act), Reviewed)
        other = people.act("approve", ask, action_id=act.action_id, refused="unattested", only_recorded=True)
        assert await review_one(state, other) == RefusedAction("unattested", SubjectStatus(A, 2))


def test_a_request_that_says_too_much_or_too_little_is_an_error(claims, people):
    for changes in ({"decisive": b"1" * 17}, {"only_recorded": True}):
        with pytest.raises(ValueError, match=r"decisive|refused"):
            people.act("approve", claims.ask(), **changes)


async def test_a_retraction_names_the_approved_claims_that_rest_on_the_subject(state: State, claims, people):
    """One level, by id, whoever approved them; as of the retraction."""
    parent = claims.ask("p", parents=[subject("p")], tier=2)
    rests = [subject("p"), subject("p"), subject("q")]
    texts = {name: f"{name * 3} text" for name in ("b", "a", "é", "pending", "blocked", "human", "gone")}
    tiers = {"pending": 2, "human": 2, "blocked": 3}
    await decide(state, parent)
    await review_one(state, people.act("approve", parent))
    kids = {n: claims.ask(n, t, tiers.get(n, 1), parents=rests[:1]) for n, t in texts.items()}
    grandchild = claims.ask("grandchild", "a text further down", parents=[subject("b")])
    twice = claims.ask("twice", "named twice and with another", 2, parents=rests)
    await decide(state, *kids.values(), grandchild, twice)
    acts = [people.act("approve", kids["human"]), people.act("edit", twice, text="named again")]
    await state.review([*acts, people.act("retract", kids["gone"])])
    act = people.act("retract", parent, revision=2)
    answer = await review_one(state, act)
    assert (answer.affected, answer.affected_total) == (("a", "b", "human", "twice", "é"), 5)
    await review_one(state, people.act("retract", kids["a"]))
    assert await review_one(state, act) == answer
    assert (await state.held([parent.subject]))[0].record == answer.outcome.record == b""
    assert await decide(state, parent) == [answer.outcome]
    child = claims.ask("c1", OTHER, 2, parents=[subject("r", kind=Kind.RESPONSE)])
    await decide(state, child)
    await review_one(state, people.act("approve", child))
    response = claims.respond("r")  # approved later; and a claim of its name is another subject
    await decide(state, response, claims.ask("c2", TEXT, parents=[subject("r")]))
    answer = await review_one(state, people.act("retract", response))
    assert (answer.affected, answer.affected_total) == (("c1",), 1)


async def test_at_most_a_thousand_affected_are_named_by_their_bytes_and_all_are_counted(
    new_state, claims, people
):
    state = await new_state()
    odd = ['a "quote"\\ / \n\t\x7f\x01', "漢", "😀", "ü", "Z", "a", "_", "a-b", "aB", "ab", "a b", "\x1f"]
    names = [*odd, *map(str, range(MAX_AFFECTED))]
    parent = claims.respond("r")
    kids = [replace(claims.ask(name, None, parents=[parent.subject]), record=b"") for name in names]
    await decide(state, parent, *kids)
    act = people.act("retract", parent)
    answer = await review_one(state, act)
    assert answer.affected_total == len(names)
    assert list(answer.affected) == sorted(names, key=str.encode)[:MAX_AFFECTED]
    assert await review_one(state, act) == answer
    state, parent = await new_state(max_candidates=3), claims.respond("r")
    await decide(state, parent, *[claims.ask(f"k{n}", None, parents=[parent.subject]) for n in range(5)])
    answer = await review_one(state, people.act("retract", parent))
    assert (answer.affected_total, len(answer.affected)) == (3, 3), "no more are looked at"


async def test_held_entries_and_statuses_are_those_of_the_steps_in_the_order_asked_for(
    state: State, claims, people
):
    asks = [claims.ask("c1", parents=[subject("p")]), claims.ask("c2", OTHER, 3)]
    asks.append(claims.respond("r1", 2, queued=True))
    asks.append(claims.ask("edited", "a text to be edited", 2))
    outcomes = await decide(state, *asks)
    outcomes[3] = (await review_one(state, people.act("edit", asks[3], text="another"))).outcome
    more = [await in_state(state, claims, people, name) for name in STANDINGS]
    waiting = more[-1].subject
    subjects = [*[ask.subject for ask in reversed(asks)], waiting, subject("nobody"), asks[0].subject]
    fields = ("state", "revision", "fingerprint", "payload", "record")
    expected = [
        outcome and HeldEntry(*[getattr(outcome, name) for name in fields])
        for outcome in [*reversed(outcomes), None, None, outcomes[0]]
    ]
    held = await state.held(subjects)
    assert held == expected
    assert held[1].record == b"answer r1"
    names = [subject("nobody"), *[ask.subject for ask in reversed(more)], more[0].subject]
    standings = list(STANDINGS.values())
    assert await state.statuses(names) == [None, *reversed(standings), standings[0]]


async def test_what_people_decided_is_reasserted_as_it_was(state: State, claims, people):
    """Index, parents and revisions: later claims and actions are decided as before the loss."""
    known = {}
    for action in ("approve", "reject", "expire"):
        ask = claims.ask(action, f"{action} {TEXT}", 2, parents=[subject("p")])
        (before,) = await decide(state, replace(ask, subject=subject(action, user="lost"), dedup=None))
        approved = action == "approve"
        facts = {"dedup_status": "ok", "fresh": False, "record": b"", "place": Place.NOT_NEEDED}
        facts |= {"state": A if approved else B, "tier": 1 if approved else 3, "revision": 2}
        known[action] = ask, replace(before, first_origin=ask.origin, **facts)
    parents = [subject("p")]
    loaded = [stored(a, o, rejected=n == "reject", parents=parents) for n, (a, o) in known.items()]
    assert await state.reassert(loaded) == 3
    for ask, outcome in known.values():
        assert await decide(state, ask) == [outcome]
    finds = [await found(state, claims, f"{name} {TEXT}") for name in known]
    assert finds == [[("approve", APPROVED)], [("reject", REJECTED)], []]
    parent = claims.ask("p", OTHER)
    await decide(state, parent)
    act = people.act("retract", parent)
    answer = await review_one(state, act)
    assert (answer.affected, answer.affected_total) == (("approve",), 1)
    newer = replace(answer.outcome, revision=3, fresh=False)
    await state.reassert([stored(parent, newer, rejected=True)])
    assert await review_one(state, act) == Reviewed(2, newer, ("approve",), 1)
    answer = await review_one(state, people.act("retract", known["approve"][0], revision=2))
    assert (answer.revision, answer.outcome.state) == (3, B)
    assert await found(state, claims, f"approve {TEXT}") == [("approve", REJECTED)]


async def test_an_action_that_is_refused_before_its_record_is_read_names_no_parents(state, claims, people):
    parent = claims.ask("parent")
    child = claims.ask("child", OTHER, 2, parents=[parent.subject])
    await decide(state, parent, child)
    refused = await review_one(state, people.act("approve", child, parents=[], refused="unattested"))
    assert (refused.code, refused.current) == ("unattested", SubjectStatus(P, 1))
    answer = await review_one(state, people.act("approve", child))
    assert answer.outcome.parents == [ParentFact(id="parent", state="approved")]
