"""A model's reply counts only as far as it says exactly what was asked: each limit, each rule by itself."""

from __future__ import annotations

import json
from math import log

import pytest

from groundwire.checks.epistemic.score import Verdict
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.facts import ModelOpinion, VerifierFacts, settle_facts
from groundwire.epistemic.model import Answer, Token
from groundwire.epistemic.plan import plan_response
from groundwire.epistemic.replies import Judgement, parse_score, read_reply, together
from groundwire.epistemic.types import ModelCall

HEAD = '{"verdict": "'


def said(verdict: str = "supported", probability: float = 0.9, reason: str = "") -> str:
    return json.dumps({"verdict": verdict, "probability": probability, "reason": reason})


def measured(verdict: str, probability: float, *others: tuple[str, float], before: str = "") -> Judgement:
    """Read a reply whose token at the verdict is the whole of it, and has these alternatives."""
    text = said(verdict, probability)
    head = HEAD.removesuffix(before)
    tail = text[len(HEAD) + len(verdict) :]
    chances = {name: log(share) for name, share in others}
    chosen = Token(before + verdict, chances.pop(before + verdict), chances)
    tokens = (Token(head, 0.0, {}), chosen, Token(tail, 0.0, {}))
    found = read_reply("support", Answer(text, tokens=tokens))
    assert found is not None
    return found


# --- what is read


@pytest.mark.parametrize("kind", ["support", "prior"])
def test_a_reply_is_read_up_to_ten_thousand_characters_and_not_one_more(kind: str) -> None:
    for reply in ("0.9 ", said("supported" if kind == "support" else "true")):
        whole = reply.ljust(10_000)
        assert read_reply(kind, Answer(whole)).support == 0.9  # type: ignore[arg-type, union-attr]
        assert read_reply(kind, Answer(whole + " ")) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("0", 0.0),
        ("1", 1.0),
        ("1.0", 1.0),
        ("1.", 1.0),
        ("Score: 0.85, as it says so", 0.85),
        ("Support = 0.5", 0.5),
        ("score 0.3.", 0.3),
        ("1. The evidence says so.", None),
        ("1.\n2.", None),
        ("1.5", None),
        ("2", None),
        ("0.9/1", None),
        ("-0.9", None),
        ("90%", None),
        ("", None),
        (0.9, None),
        (None, None),
        (b"0.9", None),
    ],
)
def test_a_score_is_a_number_from_0_to_1_that_begins_a_text_and_is_no_number_of_a_list(
    reply: object, score: float | None
) -> None:
    assert parse_score(reply) == score


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_a_number_that_is_none_is_no_reply(constant: str) -> None:
    assert read_reply("support", Answer(said().replace("0.9", constant))) is None
    other = f'{{"verdict": "supported", "probability": 0.9, "reason": {constant}}}'
    assert read_reply("support", Answer(other)) is None


@pytest.mark.parametrize("key", ["verdict", "probability", "reason"])
def test_a_key_that_stands_twice_is_no_reply_even_where_both_say_the_same(key: str) -> None:
    found = json.loads(said())
    twice = said()[:-1] + f', "{key}": {json.dumps(found[key])}}}'
    assert read_reply("support", Answer(twice)) is None


def test_the_verdicts_of_one_question_are_none_of_the_other() -> None:
    assert read_reply("prior", Answer(said("supported"))) is None
    assert read_reply("support", Answer(said("true"))) is None
    true, false = (read_reply("prior", Answer(said(verdict, 0.9))) for verdict in ("true", "false"))
    assert true == Judgement(0.9, None)
    assert false == Judgement(pytest.approx(0.1), None), "what nobody saw evidence for has no verdict"


def test_a_fence_may_stand_around_the_object_and_nothing_beside_it() -> None:
    for fence in ("```json\n{}\n```", "  ```\n{}\n```\n", "```json \n\n{}\n ```"):
        assert read_reply("support", Answer(fence.replace("{}", said()))) is not None
    for fence in ("```json\n{}", "```python\n{}\n```", "Here:\n```json\n{}\n```", "```json\n{}\n```\nDone."):
        assert read_reply("support", Answer(fence.replace("{}", said()))) is None


def test_a_reason_is_kept_short_and_without_what_nobody_sees() -> None:
    assert read_reply("support", Answer("0.9, because it is stated")).reason == "because it is stated"  # type: ignore[union-attr]
    for reply in (said(reason="\u202e" + "x" * 400), "0.9: " + "x" * 400):
        assert read_reply("support", Answer(reply)).reason == "x" * 300  # type: ignore[union-attr]
    assert read_reply("support", Answer(said(reason=f"{'x' * 299} y"))).reason == "x" * 299  # type: ignore[union-attr]


# --- what counts


def test_a_stated_half_is_measured_and_a_stated_doubt_stays() -> None:
    chances = ("supported", 0.8), ("contradicted", 0.2)
    assert measured("supported", 0.5, *chances).support == pytest.approx(0.8)
    assert measured("supported", 0.49, *chances).support == 0.49


def test_a_measured_verdict_that_is_not_supported_gives_its_rest_and_never_more_than_a_half() -> None:
    for share in (0.3, 0.7):
        found = measured("contradicted", 0.9, ("contradicted", share), ("supported", 1 - share))
        assert found.support == pytest.approx(0.3)


def test_alternatives_count_for_the_one_verdict_that_they_begin() -> None:
    # "" and " " begin none, "su" begins one, "supported by" goes on after one
    others = [("", 0.1), (" ", 0.1), ("su", 0.2), ("contradicted", 0.2)]
    assert measured("supported", 0.9, ("supported", 0.4), *others).support == pytest.approx(0.6 / 0.8)
    longer = ("supported by", 0.2), ("contradicted", 0.2)
    assert measured("supported", 0.9, ("supported", 0.6), *longer).support == pytest.approx(0.8)


def test_alternatives_are_held_against_what_stands_before_the_verdict_in_their_token() -> None:
    chances = ('"supported', 0.5), ('"contradicted', 0.2), ("contradicted", 0.2), ('"', 0.1)
    assert measured("supported", 0.9, *chances, before='"').support == pytest.approx(0.5 / 0.7)
    other = ('"supported', 0.5), ("'contradicted", 0.3), ('"contradicted', 0.2)
    assert measured("supported", 0.9, *other, before='"').support == pytest.approx(0.5 / 0.7)


def test_a_verdict_whose_key_is_written_otherwise_is_taken_as_stated() -> None:
    text = said().replace("verdict", "\\u0076erdict")
    assert read_reply("support", Answer(text, tokens=(Token(text, 0.0, {}),))).support == 0.9  # type: ignore[union-attr]


def test_what_the_alternatives_leave_open_by_half_is_not_measured() -> None:
    assert measured("supported", 0.9, ("supported", 0.25), ("contradicted", 0.25)).support == 0.9
    assert measured("supported", 0.9, ("supported", 0.3), ("contradicted", 0.3)).support == pytest.approx(0.5)


def test_a_chance_above_one_counts_as_one() -> None:
    found = measured("supported", 0.9, ("supported", 5.0), ("contradicted", 0.25))
    assert found.support == pytest.approx(1 / 1.25)


def test_the_place_that_is_measured_is_the_first_that_names_a_verdict() -> None:
    text = f'{{"reason": "no {HEAD[1:]}", "verdict": "supported", "probability": 0.9}}'
    tokens = (Token(text[:-1], 0.0, {}), Token("}", 0.0, {}))
    assert read_reply("support", Answer(text, tokens=tokens)) is None, "a quotation mark ends the reason"
    plain = said()
    early = Answer(plain, tokens=(Token(HEAD, log(0.6), {}), Token(plain[len(HEAD) :], log(0.01), {})))
    assert read_reply("support", early).support == 0.9, "the token that ends before it measures nothing"  # type: ignore[union-attr]


def test_of_several_answers_the_reason_is_one_of_the_verdict_that_most_give() -> None:
    yes, no = Judgement(0.8, Verdict.SUPPORTED, "yes"), Judgement(0.2, Verdict.CONTRADICTED, "no")
    assert together([yes, no, no])[1:] == (Verdict.CONTRADICTED, "no")
    assert together([no, yes, yes])[1:] == (Verdict.SUPPORTED, "yes")
    scores = [Judgement(0.8, None, "a"), Judgement(0.4, None, "b")]
    assert together(scores) == Judgement(pytest.approx(0.6), None, "a")
    assert together([*scores, yes])[1:] == (Verdict.SUPPORTED, "yes")


# --- facts

ANSWER = (
    "The gateway retries failed requests 3 times and waits 30 seconds between attempts. "
    "The gateway closes idle connections after 5 minutes."
)
CONTEXT = {"a": ANSWER}
FULL = VerificationConfig(mode="full")


def call(claim: str, fault: str | None = None) -> ModelCall:
    return ModelCall(claim_id=claim, kind="support", input_tokens=10, fault=fault)


def test_only_a_question_that_the_budget_did_not_reach_for_is_over_budget() -> None:
    calls = [call("r/claim#1"), call("r/claim#2", "timeout")]
    assert not VerifierFacts(model="m", calls=calls).over_budget
    assert VerifierFacts(model="m", calls=[*calls, call("r/claim#2", "over_budget")]).over_budget


def test_recorded_opinions_come_back_with_their_own_calls_and_count_in_the_report() -> None:
    opinions = [
        ModelOpinion(claim_id="r/claim#1", support=0.9, prior=0.2),
        ModelOpinion(claim_id="r/claim#2", support=0.1, verdict=Verdict.CONTRADICTED, reason="no"),
    ]
    calls = [call("r/claim#1"), call("r/claim#2"), call("r/claim#2", "timeout")]
    facts = VerifierFacts(model="m", opinions=opinions, calls=calls, truncated=3)
    asked = facts.asked()
    assert [len(one.calls) for one in asked.values()] == [1, 2]
    assert asked["r/claim#2"].opinion == (0.1, None, "", Verdict.CONTRADICTED, "no")
    plan = plan_response(ANSWER, CONTEXT, FULL, ask=False, response_id="r")
    alone, report = settle_facts(plan, None, FULL), settle_facts(plan, facts, FULL)
    assert [claim.flag_reason for claim in alone.claims] == [None, None]
    assert (alone.model_claims, alone.model_truncated, alone.calls) == (0, 0, [])
    assert [claim.flag_reason for claim in report.claims] == [None, "contradicted"]
    assert (report.model_claims, report.model_truncated, report.calls) == (2, 3, calls)
