"""How people's decisions compare with the gate's."""

from __future__ import annotations

from datetime import timedelta

from tests.unit.review.world import ADMIN, NOW, decision, filled, reviewed

EVER = NOW - timedelta(days=365)


def test_decisions_of_people_are_counted_by_reason_and_source() -> None:
    board = filled(
        decision("a", reason_code="technical_hedge"),
        reviewed("a"),
        decision("b"),
        reviewed("b", "edit"),
        decision("c", source="chat"),
        reviewed("c", "reject", source="chat"),
        decision("d"),
        reviewed("d", "reject"),
        decision("waits"),
    )
    found = board.agreement(ADMIN, EVER)
    assert (found.total.approved, found.total.edited, found.total.rejected) == (1, 1, 2)
    assert [(tally.name, tally.decided) for tally in found.by_reason] == [
        ("ungrounded", 3),
        ("technical_hedge", 1),
    ]
    assert [(tally.name, tally.decided) for tally in found.by_source] == [("ai_synthesis", 3), ("chat", 1)]


def test_what_nobody_decided_or_nobody_was_asked_is_not_counted() -> None:
    board = filled(
        decision("expired"),
        reviewed("expired", "expire"),
        decision("retracted", verdict="approved"),
        reviewed("retracted", "retract"),
        decision("old"),
        reviewed("old", age=50 * 60),
        decision("unseen", facts={"place": "not_needed"}),
        reviewed("unseen"),
    )
    assert board.agreement(ADMIN, NOW - timedelta(days=1)).total.decided == 0


def test_an_approval_that_ended_as_a_duplicate_counts_as_the_approval_that_it_was() -> None:
    duplicate = reviewed("a", verdict="blocked", tier="tier_3", approved=False, reason_code="duplicate")
    assert filled(decision("a"), duplicate).agreement(ADMIN, EVER).total.approved == 1


def test_times_are_from_the_review_to_the_decision_median_and_nine_of_ten() -> None:
    made = []
    for minutes in range(1, 11):
        made += [decision(f"c{minutes}", age=100), reviewed(f"c{minutes}", age=100 - minutes)]
    total = filled(*made).agreement(ADMIN, EVER).total
    assert (total.median, total.p90) == (timedelta(minutes=5, seconds=30), timedelta(minutes=9))
    nothing = filled().agreement(ADMIN, EVER).total
    assert (nothing.median, nothing.p90) == (None, None)
