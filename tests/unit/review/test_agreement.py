"""How people's decisions compare with the gate's."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.messages.decisions import Verdict
from groundwire.review.model import Blind, Query
from groundwire.review.permissions import ViewScope
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


# blind sample


def test_the_sample_is_off_by_default_and_hides_what_the_gate_decided() -> None:
    board = filled(decision("a", verdict="approved"), decision("b", verdict="blocked"), decision("c"))
    assert board.sample(ADMIN) == []
    found = board.sample(ADMIN, 1.0)
    assert {each.subject_id for each in found} == {"a", "b"}
    assert not any(
        hasattr(each, name) for each in found for name in ("verdict", "reason_code", "topic", "tier")
    )


def test_what_people_decided_is_not_sampled() -> None:
    board = filled(decision("a"), reviewed("a"), decision("b", verdict="approved"), reviewed("b", "retract"))
    assert board.sample(ADMIN, 1.0) == []


@settings(max_examples=20)
@given(st.floats(0, 1), st.floats(0, 1))
def test_a_smaller_sample_is_part_of_every_larger_one(one, other) -> None:
    board = filled(*(decision(f"c{n}", verdict="approved") for n in range(60)))
    small, large = (board.sample(ADMIN, share, 200) for share in sorted((one, other)))
    assert small == large[: len(small)]


def test_the_share_is_about_that_of_the_items() -> None:
    board = filled(*(decision(f"c{n}", verdict="approved") for n in range(180)))
    assert 20 <= len(board.sample(ADMIN, 0.25, 200)) <= 75
    assert len(board.sample(ADMIN, 1.0, 200)) == 180


def test_an_opinion_reveals_the_verdict_and_the_first_one_stands() -> None:
    board = filled(decision("a", verdict="approved"))
    (sampled,) = board.sample(ADMIN, 1.0)
    told = board.record_opinion(ADMIN, sampled.decision_id, "reject")
    assert (told.verdict, told.opinion, told.agrees) == (Verdict.APPROVED, "reject", False)
    assert board.record_opinion(ADMIN, sampled.decision_id, "approve").opinion == "reject"
    assert board.sample(ADMIN, 1.0) == []
    other = ViewScope("second", ADMIN.whole, ADMIN.own)
    assert board.sample(other, 1.0) == [sampled], "another person judges for themselves"


@pytest.mark.parametrize("scope", [ViewScope("eve", frozenset(), frozenset({"acme"})), ADMIN])
def test_an_opinion_on_what_is_not_seen_or_not_sampled_is_none(scope) -> None:
    board = filled(decision("a", verdict="approved"), decision("waits"))
    asked = decision("waits" if scope is ADMIN else "a", verdict="review" if scope is ADMIN else "approved")
    assert board.record_opinion(scope, asked.decision_id, "approve") is None
    assert board.agreement(ADMIN, EVER).blind == Blind(0, 0, 0, 0)
    assert board.pending(ADMIN, Query()).total == 1


def test_opinions_are_compared_with_the_gates_verdicts() -> None:
    board = filled(
        *(decision(f"a{n}", verdict="approved") for n in range(3)),
        *(decision(f"b{n}", verdict="blocked") for n in range(2)),
    )
    for name, verdict, opinion in (
        ("a0", "approved", "approve"),
        ("a1", "approved", "approve"),
        ("a2", "approved", "reject"),
        ("b0", "blocked", "reject"),
        ("b1", "blocked", "approve"),
    ):
        board.record_opinion(ADMIN, decision(name, verdict=verdict).decision_id, opinion)
    assert board.agreement(ADMIN, EVER).blind == Blind(2, 3, 1, 2)
