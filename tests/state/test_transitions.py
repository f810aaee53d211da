"""The life cycle of a subject as a table, over both implementations of state: from where, by what, to where."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

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
    Claims,
    People,
    decide,
    in_state,
    review_one,
    step_one,
    subject,
)

A, P, J, R, B, V, W = (
    SubjectState.APPROVED,
    SubjectState.PENDING,
    SubjectState.JOINED,
    SubjectState.REFUSED,
    SubjectState.BLOCKED,
    SubjectState.REVIEW,
    SubjectState.WAITING,
)
TIERS = {A: 1, B: 3}
PLACES = {P: Place.FREE, R: Place.USER_FULL}


@dataclass(frozen=True)
class Row:
    """One transition.

    Attributes:
        start: the state that the subject is in.
        record: `new`, the `same` as before, a `later` one, or an `older` one.
        changes: what differs in the request.
        to: the state after it, at this revision.
        published: `decision` for a fresh one, `repeat` for the recorded one, `deferred` where the record is sent there,
            nothing where another record stands for it, `dead letter` for a conflict.
    """

    start: str
    record: str
    to: SubjectState
    revision: int
    published: str
    changes: dict[str, Any] = field(default_factory=dict)
    limits: QueueLimits = LIMITS
    deferred: bool = False

    def __str__(self) -> str:
        how = [f"{name}={value}" for name, value in self.changes.items()]
        how += ["queue full"] if self.limits is FULL else []
        how += ["from deferred"] if self.deferred else []
        return f"{self.start}, {self.record} record {' '.join(how)}: {self.to.name} {self.revision}"


FINAL = (
    "approved",
    "pending",
    "blocked",
    "rejected",
    "answer approved",
    "answer in review",
    "answer blocked",
)
WHERE = {"approved": A, "pending": P, "joined": J, "refused": R, "blocked": B, "rejected": B, "waiting": W}
WHERE |= {"answer approved": A, "answer in review": V, "answer blocked": B}
REVISION = {"rejected": 2, "waiting": 0}
OTHER_PAYLOAD = {"payload": b"{}", "record": b"other"}

ROWS = [
    # a new subject gets the state of its tier
    *[Row("new", "new", to, 1, "decision", {"base_tier": tier}) for tier, to in ((1, A), (2, P), (3, B))],
    *[
        Row("new", "new", to, 1, "decision", {"base_tier": t, "capped": True})
        for t, to in ((1, P), (2, P), (3, B))
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
    # what was decided for good stays so, whatever record brings it again
    *[
        Row(start, record, WHERE[start], REVISION.get(start, 1), "repeat", changes, deferred=deferred)
        for start in FINAL
        for record, changes in (("same", {}), ("later", OTHER_PAYLOAD))
        for deferred in (False, True)
    ],
    # without a place, or joined to another: decided afresh by a record that is later
    Row("refused", "same", R, 1, "repeat"),
    Row("refused", "older", R, 1, "repeat"),
    Row("refused", "as old", R, 1, "repeat"),
    Row("refused", "later", P, 2, "decision"),
    Row("refused", "later", R, 2, "decision", limits=FULL),
    Row("refused", "later", W, 1, "deferred", {"wait": True}),
    Row("joined", "same", J, 1, "repeat"),
    Row("joined", "later", J, 1, "repeat"),
    Row("joined to one approved since", "same", J, 1, "repeat"),
    Row("joined to one approved since", "later", B, 2, "decision"),
    *[
        Row(f"joined to one {how} since", "later", P, 2, "decision")
        for how in ("rejected", "expired", "edited")
    ],
    # while it waits: its record is sent to `deferred` until it is decided from there
    Row("waiting", "same", W, 0, "deferred"),
    Row("waiting", "later", W, 0, "nothing"),
    Row("waiting", "same", P, 1, "decision", deferred=True),
    Row("waiting", "later", P, 1, "decision", deferred=True),
    # other content under the same id
    *[Row(start, "conflicting", to, REVISION.get(start, 1), "dead letter") for start, to in WHERE.items()],
    Row("waiting", "conflicting", W, 0, "dead letter", deferred=True),
]


async def begin(state: State, claims: Claims, people: People, start: str) -> StepRequest:
    """Bring about the state that a row starts in; return the request of its subject."""
    if start == "new answer":
        return claims.respond("r1")
    if start == "new" or start.startswith("beside"):
        if start != "new":
            await in_state(state, claims, people, start.rpartition(" ")[2].replace("waits", "waiting"))
        return claims.ask("c1", f"{start.rpartition(' ')[2]} {TEXT}")
    if start.startswith("joined to"):
        how = {"approved": "approve", "rejected": "reject", "expired": "expire", "edited": "edit"}[
            start.split()[3]
        ]
        ask = await in_state(state, claims, people, "joined")
        leader = replace(ask, subject=subject("leader"))
        text = "a text that nobody has ever said" if how == "edit" else None
        assert isinstance(await review_one(state, people.act(how, leader, text=text)), Reviewed)
        return ask
    return await in_state(state, claims, people, start)


def record_of(claims: Claims, ask: StepRequest, row: Row) -> StepRequest:
    """Return the record of a row, with what differs in it."""
    if row.record == "conflicting":
        return claims.again(ask, fingerprint="0" * 64)
    if row.record in {"older", "as old"}:
        time = ask.origin.timestamp - (row.record == "older")
        return replace(ask, origin=replace(ask.origin, offset=900, timestamp=time))
    changed = {**({"wait": False} if row.start == "refused" else {}), **row.changes}
    return claims.again(ask, **changed) if row.record == "later" else replace(ask, **changed)


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_a_record_brings_its_subject_from_one_state_to_the_next(state: State, claims, people, row: Row):
    ask = await begin(state, claims, people, row.start)
    depth, waiting = await state.queue_depth(), await state.waiting_count()
    known = row.record != "new"
    (before,) = await state.statuses([ask.subject])
    held = (await state.held([ask.subject]))[0]
    record = record_of(claims, ask, row)
    answer = await step_one(state, record, limits=row.limits, deferred=row.deferred)

    if row.published == "decision":
        assert isinstance(answer, Outcome)
        assert (answer.state, answer.revision, answer.fresh) == (row.to, row.revision, True)
        assert (answer.tier, answer.place) == (TIERS.get(row.to, 2), PLACES.get(row.to, Place.NOT_NEEDED))
        assert (answer.fingerprint, answer.payload) == (ask.fingerprint, record.payload)
        assert answer.record == (record.record if row.to is P else b"")
        assert (answer.origin, answer.first_origin) == (
            record.origin,
            ask.origin if row.revision > 1 else None,
        )
        for again in (record, *([claims.again(record)] if row.to in {A, P, B, V} else [])):
            assert await decide(state, again) == [replace(answer, fresh=False)]
    elif row.published == "repeat":
        assert isinstance(answer, Outcome)
        assert (answer.state, answer.revision, answer.fresh) == (row.to, row.revision, False)
        assert (answer.payload, answer.record) == (held.payload, held.record)
    elif row.published == "dead letter":
        assert answer == Conflict()
    else:
        assert answer == Waiting(publish=row.published == "deferred")

    assert await state.statuses([ask.subject]) == [SubjectStatus(row.to, row.revision)]
    was = before.state if known else None
    assert await state.queue_depth() == depth + (row.to is P) - (was is P)
    assert await state.waiting_count() == waiting + (row.to is W) - (was is W)


ACTIONS = [
    *[
        ("pending", action, {}, to)
        for action, to in (("approve", A), ("edit", A), ("reject", B), ("expire", B))
    ],
    *[("pending", action, {"expired": True}, B) for action in ("approve", "edit")],
    ("approved", "retract", {}, B),
    *[("answer pending", a, {}, to) for a, to in (("approve", A), ("edit", A), ("reject", B), ("expire", B))],
    ("answer approved", "retract", {}, B),
]


@pytest.mark.parametrize(("start", "action", "changes", "to"), ACTIONS)
async def test_an_action_brings_its_subject_to_its_next_revision(
    state: State, claims, people, start, action, changes, to
):
    ask = await in_state(state, claims, people, start)
    (before,) = await decide(state, ask)
    depth = await state.queue_depth()
    edited = action == "edit" and ask.dedup is not None
    act = people.act(action, ask, text="a text that nobody has ever said" if edited else None, **changes)
    answer = await review_one(state, act)
    after = replace(
        before,
        state=to,
        tier=TIERS[to],
        revision=2,
        origin=act.origin,
        first_origin=ask.origin,
        place=Place.NOT_NEEDED,
        payload=act.payload,
        record=b"",
    )
    assert answer == Reviewed(2, after)
    assert await decide(state, ask, claims.again(ask)) == [after] * 2
    assert await decide(state, claims.again(ask), deferred=True) == [after]
    assert await state.payloads([ask.subject]) == [act.payload]
    assert await state.queue_depth() == depth - (action != ReviewAction.RETRACT)
