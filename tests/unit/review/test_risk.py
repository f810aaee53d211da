"""The risk of an item is the gravest of its reason and of all failed checks, whichever came first in the tree."""

from __future__ import annotations

import sqlite3

from groundwire.messages.decisions import ReasonCode
from groundwire.review.board import Board
from groundwire.review.model import Query, risk_at, risk_of
from tests.unit.review.world import ADMIN, FilledBoard, decision, records

OF_CLAIMS = (
    ("hedge_words_detected: maybe", "technical_hedge"),
    ("citation_missing", "ungrounded"),
    ("citation_unverified: adr:999", "citation_unverified"),
    ("citation_irrelevant: adr:003", "citation_irrelevant"),
    ("conflicting_near_duplicate: c: negation", "conflicting_near_duplicate"),
    ("dedup_check_failed", "dedup_unavailable"),
    ("previously_rejected: c", "previously_rejected"),
    ("source_unattested: user", "source_unattested"),
    ("derived_from_unapproved: b", "derived_from_unapproved"),
)
OF_RESPONSES = (
    ("phantom_file: f", "phantom_source"),
    ("snippet_mismatch: f", "snippet_mismatch"),
    ("stale_index: f", "stale_index"),
    ("unverified_fields: a, b", "unverified_fields"),
    ("source_tags_missing: 2", "flagged_claims"),
    ("source_tag_phantom: 7", "phantom_source"),
    ("quotes_rejected: 2 of 5", "quotes_rejected"),
    ("quote_polarity: d", "flagged_claims"),
    ("values_unsupported: 1", "flagged_claims"),
    ("flagged_claims: 1", "flagged_claims"),
    ("critical_gap: 1", "critical_gap"),
    ("low_confidence: 0.42", "low_confidence"),
)
BROKEN = ("sources", "index", "fields", "source_tags", "quotes", "entities", "relations", "values", "claims")
BROKEN += ("hedges", "citation", "citation_verification", "parents")
LEAST = ReasonCode.PENDING_DUPLICATE


def test_a_failed_check_is_as_grave_as_the_reason_that_it_may_give() -> None:
    wrong = [
        check
        for check, like in OF_CLAIMS + OF_RESPONSES
        if risk_of(LEAST, ["source_not_trusted: chat", check]) != risk_of(like)
    ]
    unavailable = risk_of(ReasonCode.CHECK_UNAVAILABLE)
    wrong += [check for check in BROKEN if risk_of(LEAST, [f"{check}_unavailable"]) != unavailable]
    assert wrong == []


def test_a_lesser_failure_changes_nothing_and_an_unknown_one_comes_first() -> None:
    for reason in (code for code in ReasonCode if risk_of(code).rank):
        assert risk_of(reason, ["source_not_trusted: chat"]) == risk_of(reason)
        lesser = [check for check, like in OF_CLAIMS if risk_of(like).rank >= risk_of(reason).rank]
        assert risk_of(reason, lesser) == risk_of(reason)
        assert risk_of(reason, [*lesser, "of_a_later_version: x"]).rank == 0
        assert risk_at(risk_of(reason).rank) == risk_of(reason)
    assert {risk_at(rank).rank for rank in (-1, 0, 10_000)} == {0}


MIXED = (
    decision("worded", reason_code="technical_hedge", age=90),
    decision("rests", reason_code="ungrounded", age=1, checks_failed=["derived_from_unapproved: b"]),
    decision(
        "cites", reason_code="derived_from_unapproved", age=1, checks_failed=["citation_unverified: #7"]
    ),
    decision(
        "denies", reason_code="technical_hedge", checks_failed=["conflicting_near_duplicate: c: number"]
    ),
)
ORDER = ["denies", "cites", "rests", "worded"]


def names(board: Board) -> list[str]:
    return [row.subject_id for row in board.pending(ADMIN, Query()).rows]


def test_the_queue_goes_by_the_gravest_failure_and_says_which_it_is() -> None:
    for step in (1, -1):
        board = FilledBoard()
        board.add(records(*MIXED)[::step])
        assert sorted(names(board)[1:3]) == sorted(ORDER[1:3])
        assert [names(board)[0], names(board)[-1]] == ["denies", "worded"]
        first = board.pending(ADMIN, Query()).rows[0]
        assert (first.reason_code, first.risk) == ("technical_hedge", risk_of("conflicting_near_duplicate"))
        assert board.item(ADMIN, first.decision_id).current.risk == first.risk


def test_an_item_that_is_decided_again_is_as_grave_as_its_highest_revision() -> None:
    board = FilledBoard()
    later = decision("c", 2, reason_code="ungrounded", checks_failed=["citation_missing"])
    earlier = decision("c", 1, reason_code="ungrounded", checks_failed=["previously_rejected: b"])
    board.put(later, earlier)
    (row,) = board.pending(ADMIN, Query()).rows
    assert row.risk == risk_of("ungrounded")


def test_a_board_that_an_earlier_version_wrote_is_put_in_order_when_it_is_opened(tmp_path) -> None:
    path = str(tmp_path / "board.sqlite")
    board = FilledBoard(path)
    board.put(*MIXED)
    order = names(board)
    board.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE items SET risk = 5")
        connection.execute("PRAGMA user_version = 0")
    connection.close()
    again = FilledBoard(path)
    assert names(again) == order
    again.close()
