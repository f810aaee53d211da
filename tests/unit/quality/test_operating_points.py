"""Operating points: each holds what a laxer one holds, and thresholds are chosen by labels and written to policies."""

import json
import tomllib
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import get_args
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bench.quality.trade_off import RatePoint, curve, picture
from groundwire.epistemic.types import OperatingPoint, VerificationConfig, evidence_gap_bits, is_doubted
from groundwire.errors import UsageError
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.response_checks import read_response
from groundwire.library import calibrate as module
from groundwire.library.calibrate import calibrate, check_writable, choose, write_keys
from groundwire.library.evaluate import FOLDS, Judged, Labelled, counted, folds, judge
from groundwire.messages.decisions import Facts, ReasonCode
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy, load_policy
from tests.unit.checks.tables import failing

POINTS = get_args(OperatingPoint)

BOAT = {
    "boat-1": "The Ilmari is a ferry. It carries 40 cars. Its crew of six sleeps on the island of Rymätt.",
    "boat-2": "Tickets cost 12 euros. Dogs travel free of charge. The ferry does not sail in January.",
}
ANSWERS = st.lists(
    st.sampled_from(
        [
            "The Ilmari carries 40 cars.",
            "The Ilmari is a smuggler.",
            "Dogs are a nuisance on the ferry.",
            "Tickets cost 15 euros.",
            "The ferry sails in January.",
            "Sailors on the ferry mostly enjoy quiet evenings of cards and soup.",
            "The passages do not mention the price of soup.",
            "It was painted green [boat-7].",
            "Sure!",
        ]
    ),
    min_size=1,
    max_size=6,
).map(" ".join)


OWN = Path(__file__).parents[3] / "bench" / "quality" / "own"


def held(answer, point, query=None, threshold=0.7, **given):
    """Whether the gate holds an answer at a point."""
    policy = Policy(verification=VerificationConfig(operating_point=point, support_threshold=threshold))
    record = {"response_id": "r", "user_id": "u", "answer": answer, **(given or {"context": BOAT})}
    response = LlmResponse.model_validate(record | ({"query": query} if query else {}))
    case = ResponseCase(
        response, read_response(response, policy), policy, Facts(clock=datetime(2026, 1, 1, tzinfo=UTC))
    )
    return case.before_queue().code != ReasonCode.GROUNDED


@settings(max_examples=15)
@given(ANSWERS, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
@example("The Ilmari is a ferry company.", 0.5, 0.5, 0.5)  # one invented word weighs on a short answer
def test_what_one_point_flags_or_holds_every_stricter_one_does_too(answer, weakest, whole, threshold):
    doubted = {point: is_doubted(weakest, whole, point, threshold) for point in POINTS}
    found = {point: held(answer, point) for point in POINTS}
    for strict, lax in pairwise(("strict", "balanced", "lenient")):
        assert (doubted[strict], found[strict]) >= (doubted[lax], found[lax])
        assert found[strict] >= found[lax]
    assert found["balanced"] or answer != "The Ilmari is a ferry company."


@pytest.mark.parametrize("step", [20, pytest.param(1, marks=pytest.mark.slow)])
def test_of_the_labelled_answers_each_point_holds_all_that_a_laxer_one_holds(step):
    paths = [*sorted(OWN.glob("*-responses.jsonl")), *sorted(OWN.glob("planted-*.jsonl"))]
    records = [json.loads(line)["record"] for path in paths for line in path.read_text("utf-8").splitlines()]
    led = {
        "a": "Lars Vinter leads the harbour office in Odense.",
        "b": "Lars Vinter leads the team since 2019.",
    }
    records = [{"answer": "Lars Vinter is a fraud.", "context": led}, *records[::step]]
    for threshold in (0.7, 0.9):
        sets = {
            point: {at for at, one in enumerate(records) if held(point=point, threshold=threshold, **one)}
            for point in POINTS
        }
        assert sets["strict"] >= sets["balanced"] >= sets["lenient"], threshold
        assert 0 < len(sets["lenient"]) < len(records)


@settings(max_examples=15)
@example("Yes.", "How green is the Ilmari?")
@given(ANSWERS, st.sampled_from([None, "What does a ticket cost?", "Is there soup on the ferry?"]))
def test_evaluate_says_of_an_answer_what_the_gate_says_at_each_point(answer, query):
    judged = judge(
        Labelled(1, answer, declared=False, evidence=BOAT, supported=True, group="g", query=query or "")
    )
    threshold = VerificationConfig().support_threshold
    assert {point: judged.flagged_at(point, threshold) for point in POINTS} == {
        point: held(answer, point, query) for point in POINTS
    }


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2).filter(
        lambda pairs: len({label for _, label in pairs}) == 2
    )
)
def test_a_curve_goes_from_flagging_everything_to_flagging_nothing_and_trades_one_error_for_the_other(scores):
    found = curve(scores)
    assert (found[0], found[-1]) == (RatePoint(1.0, 0.0), RatePoint(0.0, 1.0))
    assert all(a.over_review >= b.over_review and a.leak <= b.leak for a, b in pairwise(found))


def test_a_picture_names_each_point_and_says_what_it_costs_and_points_that_coincide_share_a_label():
    points = {"strict": RatePoint(0.4, 0.3)} | dict.fromkeys(("balanced", "lenient"), RatePoint(0.25, 0.3))
    drawn = {"verifier": curve([(0.1, True), (0.9, False)])}
    root = ET.fromstring(picture("a < b", drawn, points))  # noqa: S314 - made here
    said = [element.text for element in root.iter()]
    assert {"a < b", "balanced, lenient", "strict", "● balanced: over-review 25%, leak 30%"} <= set(said)


# thresholds that are chosen by labels

SUPPORT = st.integers(0, 100).map(lambda number: number / 100)


def judged(support, supported, group="g", whole=None, *, hard=False):
    whole = support if whole is None else whole
    return Judged(support, whole, 20, declared=True, supported=supported, group=group, hard=hard)


ROWS = st.lists(
    st.builds(judged, SUPPORT, st.booleans(), st.sampled_from("abcdefgh"), SUPPORT, hard=st.booleans()),
    min_size=1,
    max_size=60,
)
CONFIG = st.builds(
    VerificationConfig,
    operating_point=st.sampled_from(["strict", "balanced", "lenient"]),
    support_threshold=SUPPORT,
)
SHARE = st.sampled_from([0.01, 0.05, 0.1, 0.25, 0.5])


@given(ROWS, SHARE, CONFIG)
def test_no_stricter_threshold_keeps_the_promise_about_false_alarms(rows, share, config):
    point = config.operating_point
    threshold = choose(rows, share, config)
    count = counted(rows, threshold, point)
    certain = sum(row.hard for row in rows if row.supported)
    assert count.false_alarms <= max(share * count.supported + 1e-9, certain)
    for stricter in (hundredth / 100 for hundredth in range(101)):
        more = counted(rows, stricter, point)
        if count.supported > certain and stricter > threshold:
            assert more.missed >= count.missed or more.false_alarms > share * more.supported


@given(ROWS, SHARE, CONFIG)
def test_the_threshold_in_force_is_kept_where_another_would_change_no_verdict(rows, share, config):
    point = config.operating_point
    best = counted(rows, choose(rows, share, config.model_copy(update={"support_threshold": 0.0})), point)
    threshold = choose(rows, share, config)
    assert counted(rows, threshold, point) == best


@given(ROWS, SHARE, CONFIG)
def test_the_figures_of_a_threshold_are_those_counted_at_it(rows, share, config):
    try:
        found = calibrate(rows, share, config)
    except UsageError:
        return
    assert found.chosen_on == counted(rows, found.support_threshold, config.operating_point)
    held = found.held_out
    assert (held.supported, held.unsupported) == (found.chosen_on.supported, found.chosen_on.unsupported)
    assert found.gap_threshold_bits == pytest.approx(
        max(0, evidence_gap_bits(found.support_threshold)), abs=0.002
    )


def test_rows_that_are_held_out_have_no_say_in_the_threshold_that_they_are_measured_with():
    """One source is unlike the others: what it would need is not what it gets."""
    rows = [judged(0.9, supported=True, group=f"g{n}") for n in range(40)]
    rows += [judged(0.2, supported=False, group=f"g{n}") for n in range(40)]
    rows += [judged(0.5, supported=True, group="other") for _ in range(2)]
    found = calibrate(rows, 0.05)
    assert found.chosen_on.false_alarms == 2
    assert found.held_out.false_alarms == 2
    strict = calibrate(rows, 0.04)
    assert strict.chosen_on.false_alarms == 0
    assert strict.held_out.false_alarms == 2, "without the odd source the others' threshold is higher"
    names = [f"g{n}" for n in range(23)]
    fold = folds(names * 3)
    assert fold == folds(reversed(names)), "a source is held out whole, and once"
    sizes = [list(fold.values()).count(number) for number in range(FOLDS)]
    assert max(sizes) - min(sizes) <= 1


def test_labels_that_cannot_tell_are_refused_with_what_is_missing():
    for rows, part in [
        ([judged(1.0, supported=True, group=str(n)) for n in range(19)], "at least 20"),
        ([judged(1.0, supported=True, group=str(n)) for n in range(30)], "nothing to detect"),
        ([judged(1.0, supported=n > 0) for n in range(30)], "group"),
        ([judged(1.0, supported=n > 0, group=str(n), hard=n < 9) for n in range(30)], "every threshold"),
    ]:
        with pytest.raises(UsageError, match=part):
            calibrate(rows, 0.05)


KEYS = {"support_threshold": 0.61, "gap_threshold_bits": 2.5}


def test_all_else_in_a_policy_file_stays_as_it_is_comments_and_mode_too(tmp_path):
    rest = '# ours\nversion = "a"  # kept\n\n[limits]\nreview_total = 5\n{table}\n[hedges]\n'
    rest += 'block = ["perhaps",\n         "maybe"]\n'

    def check(table):
        inline = table.startswith("verification")
        text = table + rest.format(table="") if inline else rest.format(table=table)
        path.write_text(text)
        path.chmod(0o640)
        write_keys(link, KEYS)
        written = path.read_text()
        before, after = tomllib.loads(text), tomllib.loads(written)
        assert after == before | {"verification": before.get("verification", {}) | KEYS}
        lines = [line for line in text.splitlines() if "support_threshold" not in line]
        kept = [line for line in lines if not line.startswith("veri")]
        assert [line for line in kept if line not in written.splitlines()] == []
        assert "# the default" in written or "# the default" not in text
        assert path.stat().st_mode & 0o777 == 0o640

    path, link = tmp_path / "policy.toml", tmp_path / "link.toml"
    path.touch()
    link.symlink_to(path)
    tables = [
        "",
        "[verification]\nsupport_threshold = 0.7  # the default\n",
        '[verification]\non_failure = "ask"\n',
        "verification = {on_failure = 'ask'}\n",
    ]
    assert failing(check, tables) == []
    assert link.is_symlink()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.toml", "policy.toml"]


def test_a_file_that_is_no_policy_is_refused_and_left_alone_and_one_that_is_not_there_is_made(tmp_path):
    for text in [
        "version = \n",
        "verification = 3\n",
        'versoin = "x"\n',
        "[verification]\nno_such_key = 1\n",
    ]:
        path = tmp_path / "policy.toml"
        path.write_text(text)
        with pytest.raises(UsageError, match="policy"):
            write_keys(path, KEYS)
        assert path.read_text() == text
        assert [file.name for file in tmp_path.iterdir()] == ["policy.toml"]
    path = tmp_path / "new.toml"
    write_keys(path, KEYS)
    assert tomllib.loads(path.read_text()) == {"verification": KEYS}
    assert load_policy(path, {}).verification.support_threshold == KEYS["support_threshold"]


def test_a_place_that_cannot_be_written_to_is_refused_with_its_folder(tmp_path, monkeypatch):
    missing = tmp_path / "none"
    with pytest.raises(UsageError, match=f"there is no folder {missing}$"):
        check_writable(missing / "policy.toml")
    with pytest.raises(UsageError, match="it is a folder"):
        check_writable(tmp_path)
    with pytest.raises(UsageError, match=f"in {tmp_path}: File name too long$"):
        check_writable(tmp_path / ("n" * 300))

    def refuse(**_):
        raise PermissionError(13, "Permission denied", "/some/.groundwire-x")

    monkeypatch.setattr(module.tempfile, "TemporaryDirectory", refuse)
    with pytest.raises(UsageError, match=f"in {tmp_path}: Permission denied$"):
        write_keys(tmp_path / "policy.toml", KEYS)
    monkeypatch.setattr(module.os, "access", lambda *_: False)
    with pytest.raises(UsageError, match=f"the folder {tmp_path} cannot be written to$"):
        check_writable(tmp_path / "policy.toml")
