"""Operating points: what one holds, every stricter one holds, and `evaluate` says of a row what the gate says."""

from datetime import UTC, datetime
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.epistemic.types import OperatingPoint, VerificationConfig, is_doubted
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.response_checks import read_response
from groundwire.library.evaluate import Labelled, judge
from groundwire.messages.decisions import Facts, ReasonCode
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy

FACTS = Facts(clock=datetime(2026, 1, 1, tzinfo=UTC))
POINTS = get_args(OperatingPoint)
STRICTER = [("strict", "balanced"), ("balanced", "lenient")]

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


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_doubts_that_flag_at_one_point_flag_at_every_stricter_one(weakest, whole, threshold):
    doubted = {point: is_doubted(weakest, whole, point, threshold) for point in POINTS}
    assert all(doubted[strict] >= doubted[lax] for strict, lax in STRICTER)


@settings(max_examples=15)
@given(answers)
def test_an_answer_that_one_point_holds_is_held_at_every_stricter_one(answer):
    found = {point: held(answer, point) for point in POINTS}
    assert all(found[strict] >= found[lax] for strict, lax in STRICTER)
    # one invented word weighs on a short answer
    assert all(held("The Ilmari is a ferry company.", point) for point in ("strict", "balanced"))


@settings(max_examples=15)
@given(answers, st.sampled_from([None, "What does a ticket cost?", "Is there soup on the ferry?"]))
def test_evaluate_says_of_an_answer_what_the_gate_says_at_each_point(answer, query):
    judged = judge(
        Labelled(1, answer, declared=False, evidence=BOAT, supported=True, group="g", query=query or "")
    )
    threshold = VerificationConfig().support_threshold
    assert {point: judged.flagged_at(point, threshold) for point in POINTS} == {
        point: held(answer, point, query) for point in POINTS
    }


def test_the_question_of_a_row_counts_as_at_the_gate():
    for query in ["How green is the Ilmari?", ""]:
        row = Labelled(1, "Yes.", declared=False, evidence=BOAT, supported=True, group="g", query=query)
        assert judge(row).hard == held("Yes.", "lenient", query or None)
