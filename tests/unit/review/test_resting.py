"""What rests on an item: followed as claims are approved and retracted, and told by Retractions."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from groundwire.messages.topics import TopicName
from groundwire.review.board import Board
from groundwire.review.permissions import ViewScope
from tests.unit.review.world import ADMIN, NOW, FilledBoard, decision, record, records, retraction, reviewed

BASE = decision("base", verdict="approved")


def approved(name, *parents, **changes):
    return decision(name, verdict="approved", derived_from=list(parents), **changes)


def board_of(*made) -> Board:
    board = FilledBoard()
    board.add(made)
    return board


def resting(board, name="base", revision=1, scope=ADMIN, **owner):
    found = board.item(ADMIN, decision(name, revision, **owner).decision_id)
    assert found is not None
    return board.dependents(scope, found.current)


def named(page):
    return [(one.name, one.state) for one in page.rows], page.total


@given(st.data())
def test_what_rests_on_an_item_is_what_a_look_at_every_approved_claim_finds_in_any_order_of_records(
    data,
) -> None:
    ids = [f"c{n}" for n in range(6)]
    made = []
    for name in data.draw(st.lists(st.sampled_from(ids), unique=True)):
        parents = data.draw(st.lists(st.sampled_from([*ids, "response:r"]), max_size=3))
        user = data.draw(st.sampled_from(["ann", "bob"]))
        verdict = data.draw(st.sampled_from(["approved", "review", "blocked"]))
        made.append(decision(name, verdict=verdict, derived_from=parents, user=user))
        action = {"approved": "retract", "review": "approve"}.get(verdict)
        if action and data.draw(st.booleans()):
            made.append(reviewed(name, action, derived_from=parents, user=user))
    made.append(decision("r", verdict="approved", kind="response"))
    order = data.draw(st.permutations(records(*made)))
    board = board_of(*order, *data.draw(st.lists(st.sampled_from(order))))
    highest = {one.subject_id: one for one in sorted(made, key=lambda one: one.revision)}
    for name, one in highest.items():
        if one.verdict == "approved" or one.reason_code == "retracted":
            called = name if one.kind == "claim" else f"response:{name}"
            expected = sorted(
                other.subject_id
                for other in highest.values()
                if (other.verdict, other.user_id) == ("approved", one.user_id)
                and other is not one
                and called in (other.derived_from or ())
            )
            page = board.dependents(ADMIN, board.item(ADMIN, one.decision_id).current)
            assert named(page) == ([(each, "approved") for each in expected], len(expected))


def test_of_a_retracted_item_the_claims_are_named_that_the_board_does_not_hold() -> None:
    told = retraction("base", "heir", "old", "since", "waits")
    made = records(
        BASE,
        reviewed("base", "retract"),
        approved("heir", "base"),
        approved("since", "base"),
        reviewed("since", "retract", derived_from=["base"]),
        decision("waits", derived_from=["base"]),
    )
    for order in ([told, *made], [*made, told, told]):
        found = resting(board_of(*order))
        assert named(found) == ([(name, "approved") for name in ("heir", "old", "waits")], 3)
        assert [one.decision_id is None for one in found.rows] == [False, True, False]


def test_more_than_are_named_are_counted() -> None:
    heirs = [approved(f"h{n:04}", "base") for n in range(1_002)]
    board = board_of(*records(BASE, *heirs))
    names, total = named(resting(board))
    assert ([name for name, _ in names], total) == ([one.subject_id for one in heirs[:1_000]], 1_002)
    board.add([record(reviewed("base", "retract")), retraction("base", "a", "h0000", more=2**80)])
    names, total = named(resting(board))
    assert names[:2] == [("a", "approved"), ("h0000", "approved")]
    assert len(names) == 1_000
    assert total > 2**30
    board = board_of(*records(BASE, reviewed("base", "retract")), retraction("base", "a", more=5))
    assert named(resting(board)) == ([("a", "approved")], 6)


def test_a_retraction_names_dependents_of_its_owners_item_of_that_kind_alone() -> None:
    retracted = records(BASE, reviewed("base", "retract"))
    others = ({"user": "bob"}, {"tenant": "globex"}, {"kind": "response"})
    board = board_of(
        *retracted, *(retraction("base", "x", **one) for one in others), retraction("other", "x")
    )
    assert named(resting(board)) == ([], 0)
    for value in (None, b"", b"{", b"null", b'{"affected": []}'):
        assert named(resting(board_of(*retracted, replace(retraction("base", "x"), value=value)))) == ([], 0)


def test_dependents_are_shown_to_who_sees_the_item_and_of_an_approved_or_retracted_item_alone() -> None:
    heir = approved("heir", "base")
    board = board_of(*records(BASE, reviewed("base", "retract"), heir), retraction("base", "x"))
    stranger = ViewScope("eve", frozenset(), frozenset({"acme"}))
    assert named(resting(board, scope=stranger)) == ([], 0)
    assert resting(board).total == 2
    assert named(resting(board_of(*records(decision("base"), heir)))) == ([], 0)


def test_what_is_forgotten_is_named_no_more() -> None:
    board = board_of(
        *records(
            BASE,
            reviewed("base", "retract", age=5),
            approved("heir", "base"),
            approved("late", "base", age=5),
        ),
        retraction("base", "heir", "gone", age=60),
    )
    board.forget(NOW - timedelta(minutes=50))
    assert named(resting(board, revision=2)) == ([("late", "approved")], 1)


def test_a_board_of_an_earlier_version_learns_what_rests_on_what_and_what_is_sought(tmp_path) -> None:
    path = str(tmp_path / "board.sqlite")
    board = FilledBoard(path)
    board.put(BASE, approved("heir", "base"))
    with board._writing() as connection:
        connection.execute("DELETE FROM rests")
        connection.execute("DELETE FROM texts_of_others")
        connection.execute("PRAGMA user_version = 2")
    board.close()
    board = FilledBoard(path)
    assert named(resting(board)) == ([("heir", "approved")], 1)
    assert board.not_pending(ADMIN, TopicName.APPROVED, text="heir").total == 1
