"""What stands beside an item in the queue: the nearest free ones, as a look at the whole list finds them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from groundwire.review.board import Board
from groundwire.review.model import SORTS, Neighbours, Query, Row
from tests.unit.review.world import ADMIN, decision, filled

REASONS = ("ungrounded", "phantom_source", "technical_hedge")


def by_hand(rows: Sequence[Row], decision_id: str, free: set[str]) -> Neighbours:
    ids = [row.decision_id for row in rows]
    others = [one for one in ids if one in free and one != decision_id]
    first = others[0] if others else None
    if decision_id not in ids:
        return Neighbours(after=first, then=first, total=len(ids))
    at = ids.index(decision_id)
    after = next((one for one in ids[at + 1 :] if one in free), None)
    before = next((one for one in reversed(ids[:at]) if one in free), None)
    return Neighbours(before, after, after or first, at + 1, len(ids))


def whole(board: Board, query: Query) -> list[Row]:
    return list(board.pending(ADMIN, query).rows)


@given(
    ages=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    taken=st.sets(st.integers(0, 11)),
    at=st.integers(0, 12),
    sort=st.sampled_from(SORTS),
    reason=st.sampled_from([None, "ungrounded"]),
)
def test_neighbours_are_those_that_a_look_at_the_whole_list_finds(ages, taken, at, sort, reason) -> None:
    made = [decision(f"c{n}", age=age, reason_code=REASONS[n % 3]) for n, age in enumerate(ages)]
    board = filled(*made)
    asked = made[at].decision_id if at < len(made) else "none"
    free = {one.decision_id for n, one in enumerate(made) if n not in taken}
    query = Query(reason=reason, sort=sort, limit=200)
    found = board.neighbours(ADMIN, query, asked, lambda row: row.decision_id in free)
    assert found == by_hand(whole(board, query), asked, free)
