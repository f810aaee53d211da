"""Operating points: each holds what a laxer one holds, `evaluate` says of a row what the gate says, and the picture."""

from datetime import UTC, datetime
from itertools import pairwise
from typing import get_args
from xml.etree import ElementTree as ET

from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st

from groundwire.cli.evaluate import evaluate
from groundwire.epistemic.types import OperatingPoint, VerificationConfig, is_doubted
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.response_checks import read_response
from groundwire.library.evaluate import Labelled, judge
from groundwire.library.trade_off import RatePoint, curve, picture
from groundwire.messages.decisions import Facts, ReasonCode
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy

FACTS = Facts(clock=datetime(2026, 1, 1, tzinfo=UTC))
POINTS = get_args(OperatingPoint)

BOAT = {
    "boat-1": "The Ilmari is a ferry. It carries 40 cars. Its crew of six sleeps on the island of Rymätt.",
    "boat-2": "Tickets cost 12 euros. Dogs travel free of charge. The ferry does not sail in January.",
}
SAID = (
    "The Ilmari carries 40 cars.",
    "The Ilmari is a smuggler.",
    "The Ilmari is a ferry company.",
    "Dogs are a nuisance on the ferry.",
    "Tickets cost 12 euros.",
    "Tickets cost 15 euros.",
    "The ferry sails in January.",
    "Lars sleeps on the island.",
    "Sailors on the ferry mostly enjoy quiet evenings of cards and soup.",
    "The passages do not mention the price of soup.",
    "I hope this helps!",
    "Its crew of six sleeps on Rymätt [boat-1].",
    "It was painted green [boat-7].",
    "Sure!",
    "Yes.",
)
answers = st.lists(st.sampled_from(SAID), min_size=1, max_size=6).map(" ".join)


def held(answer, point, query=None):
    """Whether the gate holds an answer at a point."""
    policy = Policy(verification=VerificationConfig(operating_point=point))
    record = {"response_id": "r", "user_id": "u", "answer": answer, "context": BOAT}
    response = LlmResponse.model_validate(record | ({"query": query} if query else {}))
    case = ResponseCase(response, read_response(response, policy), policy, FACTS)
    return case.before_queue().code != ReasonCode.GROUNDED


@settings(max_examples=15)
@given(answers, st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
@example("The Ilmari is a ferry company.", 0.5, 0.5, 0.5)  # one invented word weighs on a short answer
def test_what_one_point_flags_or_holds_every_stricter_one_does_too(answer, weakest, whole, threshold):
    doubted = {point: is_doubted(weakest, whole, point, threshold) for point in POINTS}
    found = {point: held(answer, point) for point in POINTS}
    for strict, lax in pairwise(("strict", "balanced", "lenient")):
        assert (doubted[strict], found[strict]) >= (doubted[lax], found[lax])
        assert found[strict] >= found[lax]
    assert found["balanced"] or answer != "The Ilmari is a ferry company."


@settings(max_examples=15)
@example("Yes.", "How green is the Ilmari?")
@given(answers, st.sampled_from([None, "What does a ticket cost?", "Is there soup on the ferry?"]))
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
