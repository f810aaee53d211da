"""The life cycle of a subject as tables: state before, record or action, state after."""

from dataclasses import dataclass, field, replace
from typing import Any

from groundwire.messages.decisions import Place
from groundwire.state.model import (
    Conflict,
    Outcome,
    QueueLimits,
    ReviewAction,
    Reviewed,
    State,
    StepRequest,
    SubjectState,
    SubjectStatus,
    Waiting,
)
from tests.state.claims import (
    FULL,
    LIMITS,
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
    review_one,
    step_one,
    subject,
)

UNHEARD = "a text that nobody has ever said"


@dataclass(frozen=True)
class Row:
    """One transition: a record (`new`, the `same`, a `later` or an `older` one) of a subject in a named state."""

    start: str
    record: str
    to: SubjectState
    revision: int
    published: str
    changes: dict[str, Any] = field(default_factory=dict)
    limits: QueueLimits = LIMITS
    deferred: bool = False


async def begin(state: State, claims: Claims, people: People, start: str) -> StepRequest:
    """Bring about the state that a row starts in; return the request of its subject."""
    if start == "new answer":
        return claims.respond("r1")
    if start == "new" or start.startswith("beside"):
        if start != "new":
            await in_state(state, claims, people, start.rpartition(" ")[2].replace("waits", "waiting"))
        return claims.ask("c1", f"{start.rpartition(' ')[2]} {TEXT}")
    if not start.startswith("joined to"):
        return await in_state(state, claims, people, start)
    verbs = {"approved": "approve", "rejected": "reject", "expired": "expire", "edited": "edit"}
    how = verbs[start.split()[3]]
    ask = await in_state(state, claims, people, "joined")
    leader = replace(ask, subject=subject("leader"))
    assert isinstance(
        await review_one(state, people.act(how, leader, text=UNHEARD if how == "edit" else None)), Reviewed
    )
    return ask


async def test_a_record_brings_its_subject_from_one_state_to_the_next(new_state):
    final = (
        "approved",
        "pending",
        "blocked",
        "rejected",
        "answer approved",
        "answer in review",
        "answer blocked",
    )
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
    revisions = {"rejected": 2, "waiting": 0}
    other_payload = {"payload": b"{}", "record": b"other"}
    rows = [
        # a new subject gets the state of its tier
        *[Row("new", "new", to, 1, "decision", {"base_tier": tier}) for tier, to in ((1, A), (2, P), (3, B))],
        *[
            Row("new", "new", to, 1, "decision", {"base_tier": tier, "capped": True})
            for tier, to in ((1, P), (2, P), (3, B))
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
        ask = await begin(state, claims, People(claims), row.start)
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
            expected += [
                row.to,
                row.revision,
                True,
                tiers.get(row.to, 2),
                places.get(row.to, Place.NOT_NEEDED),
            ]
            found += [answer.fingerprint, answer.payload, answer.record, answer.origin, answer.first_origin]
            expected += [
                ask.fingerprint,
                record.payload,
                record.record if row.to is P else b"",
                record.origin,
            ]
            expected += [ask.origin if row.revision > 1 else None]
            for again in (record, *([claims.again(record)] if row.to in {A, P, B, V} else [])):
                found += await decide(state, again)
                expected.append(replace(answer, fresh=False))
        if found != expected:
            wrong.append((row, found, expected))
    assert wrong == []


async def test_an_action_brings_its_subject_to_its_next_revision(new_state):
    actions = [
        *[
            (start, action, {}, to)
            for start in ("pending", "answer pending")
            for action, to in (("approve", A), ("edit", A), ("reject", B), ("expire", B))
        ],
        *[("pending", action, {"expired": True}, B) for action in ("approve", "edit")],
        *[(start, "retract", {}, B) for start in ("approved", "answer approved")],
    ]
    wrong = []
    for start, action, changes, to in actions:
        state, claims = await new_state(), Claims()
        people = People(claims)
        ask = await in_state(state, claims, people, start)
        (before,) = await decide(state, ask)
        depth = await state.queue_depth()
        text = UNHEARD if action == "edit" and ask.dedup is not None else None
        act = people.act(action, ask, text=text, **changes)
        answer = await review_one(state, act)
        after = replace(
            before,
            state=to,
            tier=1 if to is A else 3,
            revision=2,
            origin=act.origin,
            first_origin=ask.origin,
            place=Place.NOT_NEEDED,
            payload=act.payload,
            record=b"",
        )
        found = [
            answer,
            await decide(state, ask, claims.again(ask)),
            await decide(state, claims.again(ask), deferred=True),
            await state.payloads([ask.subject]),
            await state.queue_depth(),
        ]
        left = depth - (action != ReviewAction.RETRACT)
        if found != [Reviewed(2, after), [after] * 2, [after], [act.payload], left]:
            wrong.append((start, action, changes, found))
    assert wrong == []
