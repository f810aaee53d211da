"""What is kept of workers' answers: bounded, never negative, right whatever restarts."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from groundwire import metrics
from groundwire.console.series import (
    MEASURES,
    MOST_WORKERS,
    POINT,
    SIZE,
    Measurement,
    SeriesHistory,
    UnreadableMetrics,
    parse_metrics,
)
from groundwire.console.settings import ConsoleSettings, ScrapeTarget
from groundwire.console.words import HEIGHT, highest, path
from groundwire.messages.decisions import ReasonCode

KEY = ("tiers", "tier_1")
LAG = ("lag", "claims")
MOST_KEYS = sum(len(measure.every_key()) for measure in MEASURES)

labels = st.text(max_size=6)
steps = st.lists(
    st.tuples(
        st.integers(1, 3 * SIZE),  # ticks until the next answer
        st.integers(0, 1000),  # what is counted meanwhile
        st.booleans(),  # whether the process is another one by then
    ),
    max_size=30,
)


def reading(count: float, started: float | None = None, **gauges: float) -> Measurement:
    return Measurement(
        "claims", started, {KEY: count}, {(name, "claims"): value for name, value in gauges.items()}
    )


ages = st.one_of(st.none(), st.floats(-1e6, 1e12))


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1e15), ages), max_size=40))
def test_rates_of_any_sequence_of_counts_are_never_negative(sequence) -> None:
    history = SeriesHistory()
    for ticks, count, age in sequence:
        history.advance(history.tick + ticks)
        history.take("one", reading(count), age=age)
        rates = [history.rate(KEY), history.total(KEY), *history.rates(KEY)]
        assert all(value is None or (value >= 0 and math.isfinite(value)) for value in rates)


@given(steps)
def test_what_is_counted_is_what_was_counted_whatever_restarted_as_long_as_it_lies_within_the_hour(
    sequence,
) -> None:
    history = SeriesHistory()
    history.take("one", reading(100, started=0.0))
    count, started, expected, passed = 100, 0.0, 0, 0
    for ticks, more, again in sequence:
        if passed + ticks >= SIZE:
            break
        passed += ticks
        history.advance(history.tick + ticks)
        if again:
            count, started = 0, passed * 10.0
        count += more
        expected += more
        history.take("one", reading(count, started), age=passed * 10.0 - started)
    total = history.total(KEY)
    assert (total or 0.0) == pytest.approx(expected)


@given(st.lists(st.tuples(st.text(max_size=3), labels, labels, st.integers(0, 400)), max_size=60))
def test_whatever_is_answered_no_more_is_kept_than_the_closed_list_for_an_hour(answers) -> None:
    history = SeriesHistory()
    for worker, tier, code, ticks in answers:
        registry = CollectorRegistry()
        counter = Counter("groundwire_decisions", "", ["tier", "reason_code"], registry=registry)
        counter.labels(tier, code).inc()
        history.advance(history.tick + ticks)
        history.take(worker, parse_metrics(generate_latest(registry).decode()))
    assert len(history) <= MOST_KEYS * SIZE


def test_no_more_workers_are_followed_than_there_can_be() -> None:
    history = SeriesHistory()
    for number in range(2 * MOST_WORKERS):
        history.take(str(number), reading(0, lag=1))
    assert history.latest(LAG) == MOST_WORKERS


def test_a_count_that_went_on_unseen_is_spread_over_the_time_in_which_nobody_looked() -> None:
    history = SeriesHistory()
    history.take("one", reading(0))
    history.advance(12)
    history.take("one", reading(120))
    assert history.rate(KEY) == 1.0
    assert history.rates(KEY)[-2:] == [1.0, 1.0]
    assert history.rates(KEY)[-3] is None
    assert history.levels(LAG)[-1] is None


def test_what_a_process_counted_before_it_was_first_seen_is_of_the_hour_if_it_is_younger_than_that() -> None:
    young, old = SeriesHistory(), SeriesHistory()
    young.take("one", reading(60, started=1.0), age=600)
    old.take("one", reading(60, started=1.0), age=3601)
    assert young.total(KEY) == pytest.approx(60)
    assert old.total(KEY) is None


def test_a_restart_is_seen_by_its_time_where_the_count_has_grown_past_the_one_before() -> None:
    history = SeriesHistory()
    history.take("one", reading(10, started=1.0), age=9_999)
    history.advance(6)
    history.take("one", reading(15, started=5_000.0), age=20)
    assert history.total(KEY) == pytest.approx(15)


def test_what_is_older_than_an_hour_is_forgotten() -> None:
    history = SeriesHistory()
    history.take("one", reading(0, lag=4))
    history.advance(1)
    history.take("one", reading(50, lag=4))
    history.advance(SIZE)
    assert history.total(KEY) == 50
    assert set(history.levels(LAG)) == {4.0, None}
    history.advance(SIZE + 1)
    assert history.total(KEY) is None
    assert set(history.levels(LAG)) == {None}


def test_a_level_of_a_minute_is_its_worst_so_that_the_present_one_is_never_above_the_line() -> None:
    history = SeriesHistory()
    for tick, lag in enumerate((5, 90, 20)):
        history.advance(tick)
        history.take("one", reading(0, lag=lag))
    assert history.latest(LAG) == 20
    assert history.levels(LAG)[-1] == 90


def test_a_second_answer_in_one_tick_changes_nothing() -> None:
    history = SeriesHistory()
    history.take("one", reading(0, lag=4, commit_age=2))
    history.take("one", reading(9, lag=4))
    assert history.latest(LAG) == 4
    history.take("two", reading(0, lag=1, commit_age=1))
    assert (history.latest(LAG), history.latest(("commit_age", "claims"))) == (5, 2), "a sum, and the worst"


def test_everything_that_is_read_is_a_metric_of_workers_with_these_labels() -> None:
    known = {}
    for metric in vars(metrics).values():
        if isinstance(metric, Counter | Gauge | Histogram):
            for suffix in ("_total", "_sum", ""):
                known[metric._name + suffix] = set(metric._labelnames)
    for measure in MEASURES:
        assert set(measure.labels) <= known[measure.sample], measure
    own = parse_metrics(generate_latest().decode())
    assert {key[1] for key in own.counts if key[0] == "reasons"} >= {str(code) for code in ReasonCode}


@given(st.text())
def test_any_text_is_read_or_refused(text) -> None:
    for answer in (text, "groundwire_decisions_total" + text, f'groundwire_paused{{dependency="{text}"}} 1'):
        try:
            found = parse_metrics(answer)
        except UnreadableMetrics:
            continue
        assert all(value >= 0 for value in found.counts.values())


@given(st.lists(st.one_of(st.none(), st.floats(0, 1e15)), max_size=80))
def test_a_line_stays_inside_its_box_with_a_gap_wherever_nothing_was_measured(values) -> None:
    drawn = path(values, highest([values]))
    heights = [float(number) for number in re.findall(r"[ML][\d.]+ ([\d.]+)", drawn)]
    assert len(heights) == sum(value is not None for value in values)
    assert all(0 <= height <= HEIGHT for height in heights)
    runs = "".join("x" if value is not None else " " for value in values).split()
    assert drawn.count("M") == len(runs)


def test_points_of_a_line_are_minutes() -> None:
    assert SIZE == 60 * POINT
    assert len(SeriesHistory().rates(KEY)) == 60


@pytest.mark.parametrize(
    "word", ["claims", "claims:", ":9100", "claims:0", "claims:99999", "http://claims:9100", "a@b:1"]
)
def test_where_workers_are_is_host_and_port(word) -> None:
    with pytest.raises(ValueError, match="must be host:port"):
        ConsoleSettings(workers=f"ok:1,{word}")


def test_addresses_of_workers_are_taken_once_each() -> None:
    found = ConsoleSettings(workers="claims:9100, [::1]:9101 ,claims:9100").targets
    assert found == (ScrapeTarget("claims", 9100), ScrapeTarget("::1", 9101))
    assert [str(one) for one in found] == ["claims:9100", "[::1]:9101"]
