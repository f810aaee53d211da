"""Over-review against leak: curves, operating points and their picture."""

from itertools import pairwise
from xml.etree import ElementTree as ET

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from groundwire.cli.evaluate import evaluate
from groundwire.library.evaluate import Judged, verdicts_by_point
from groundwire.library.trade_off import RatePoint, curve, picture, share_of

SCORES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2).filter(
    lambda pairs: len({label for _, label in pairs}) == 2
)
SUPPORT = st.floats(0, 1)


@given(SCORES)
def test_a_curve_goes_from_flagging_everything_to_flagging_nothing_and_trades_one_error_for_the_other(scores):
    found = curve(scores)
    assert (found[0], found[-1]) == (RatePoint(1.0, 0.0), RatePoint(0.0, 1.0))
    assert all(a.over_review >= b.over_review and a.leak <= b.leak for a, b in pairwise(found))


@given(st.lists(st.tuples(SUPPORT, st.booleans(), st.booleans()), min_size=1), SUPPORT)
def test_a_laxer_point_flags_nothing_that_a_stricter_one_does_not(rows, threshold):
    judged = [
        Judged(one, one, 9, declared=True, supported=ok, group="g", hard=hard) for one, ok, hard in rows
    ]
    judged += [Judged(1.0, 1.0, 9, declared=True, supported=ok, group="g") for ok in (True, False)]
    points = {point: share_of(count) for point, count in verdicts_by_point(judged, threshold).items()}
    assert points["strict"].over_review >= points["balanced"].over_review >= points["lenient"].over_review
    assert points["strict"].leak <= points["balanced"].leak <= points["lenient"].leak


def test_labels_of_a_picture_do_not_lie_on_each_other():
    """It says what each point costs; points that nearly coincide share one, thresholds near to one are left out."""
    near = RatePoint(0.25, 0.3)
    points = {"strict": RatePoint(0.4, 0.3), "balanced": near, "lenient": near}
    marked = {0.5: RatePoint(0.25, 0.3), 0.6: RatePoint(0.8, 0.1), 0.65: RatePoint(0.81, 0.1)}
    drawn = {"verifier": curve([(0.1, True), (0.9, False)])}
    root = ET.fromstring(picture("a < b", drawn, points, marked))  # noqa: S314 - made here
    told = "".join(root.itertext())
    assert "a < b" in told
    assert "balanced: over-review 25%, leak 30%" in told
    texts = [element for element in root.iter() if element.tag.endswith("text")]
    said = [element.text for element in texts]
    assert texts[said.index("balanced, lenient")].get("y") != texts[said.index("strict")].get("y")
    assert "0.6" in said
    assert not {"0.5", "0.65"} & set(said)


def test_evaluate_draws_what_it_measured(tmp_path):
    labels, drawn = tmp_path / "labels.jsonl", tmp_path / "curve.svg"
    labels.write_text(
        '{"answer": "It has 5 parts.", "evidence": "It has 3 parts.", "label": false}\n'
        '{"claim": "It has 3 parts.", "evidence": "It has 3 parts.", "label": true}\n'
    )
    result = CliRunner().invoke(evaluate, [str(labels), "--draws", "10", "--plot", str(drawn)])
    assert result.exit_code == 0, result.output
    assert "2 rows from" in drawn.read_text()
