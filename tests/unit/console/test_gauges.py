"""What the console tells Prometheus is what its board counts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from prometheus_client import CollectorRegistry, generate_latest

from groundwire.console.status import ReviewGauges
from groundwire.policy import Limits
from groundwire.review.model import Agreement, Backlog, DecisionCounts

NOW = datetime(2026, 1, 31, tzinfo=UTC)


class FakeBoard:
    def __init__(self) -> None:
        self.asked: list[object] = []

    def backlog(self) -> Backlog:
        return Backlog(7, 20, 40, NOW - timedelta(days=3))

    def agreement(self, scope: object, since: datetime) -> Agreement:
        self.asked = [scope, since]
        rows = [
            DecisionCounts("ungrounded", 3, 1, 2, timedelta(seconds=60), timedelta(seconds=90)),
            DecisionCounts("duplicate", 0, 0, 1, None, None),
        ]
        sources = [
            DecisionCounts("user", 1, 0, 0, None, None),
            DecisionCounts("agent of maria", 9, 9, 9, None, None),
        ]
        return Agreement(rows[0], rows, sources)


def page(board: FakeBoard, stale: datetime | None = None) -> str:
    registry = CollectorRegistry()
    gauges = ReviewGauges(
        board,  # type: ignore[arg-type]
        {"acme"},
        lambda: stale,
        lambda: NOW,
        limits=Limits(review_per_user=10, review_per_tenant=50, review_total=90),
        ttl=timedelta(days=60),
    )
    registry.register(gauges)
    return generate_latest(registry).decode()


def test_decisions_are_counted_by_reason_with_the_time_they_took() -> None:
    board = FakeBoard()
    text = page(board)
    assert 'groundwire_reviewed_by_reason{outcome="rejected",reason="ungrounded"} 2.0' in text
    assert 'groundwire_review_seconds{quantile="0.9",reason="ungrounded"} 90.0' in text
    assert 'groundwire_review_seconds{quantile="0.5",reason="duplicate"}' not in text
    scope, since = board.asked
    assert (scope.whole, scope.own) == ({"acme"}, frozenset())  # type: ignore[attr-defined]
    assert since == NOW - timedelta(days=30)


def test_only_sources_of_a_closed_list_become_labels() -> None:
    text = page(FakeBoard())
    assert 'source="user"' in text
    assert "maria" not in text


def test_a_board_that_does_not_follow_says_for_how_long() -> None:
    assert "groundwire_console_stale_seconds 0.0" in page(FakeBoard())
    assert "groundwire_console_stale_seconds 5.0" in page(FakeBoard(), NOW - timedelta(seconds=5))


def test_the_queue_is_shown_against_its_limits_and_its_oldest_item_against_the_time_it_has() -> None:
    text = page(FakeBoard())
    for limit, fullest, places in (("user", 7, 10), ("tenant", 20, 50), ("total", 40, 90)):
        assert f'groundwire_review_fullest{{limit="{limit}"}} {fullest}.0' in text
        assert f'groundwire_review_limit{{limit="{limit}"}} {places}.0' in text
    assert f"groundwire_review_oldest_seconds {3 * 86400}.0" in text
    assert f"groundwire_review_ttl_seconds {60 * 86400 / 1e6}e+06" in text
