"""A model's reply counts only as far as it says exactly what was asked: each limit, each rule by itself.

Requirements S4-16, S4-17.
"""

import json
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.support.score import SupportVerdict
from groundwire.epistemic.claims import ModelOpinion
from groundwire.epistemic.model import LogprobToken, ModelAnswer
from groundwire.epistemic.plan import VerifierFacts, plan_response, report_of
from groundwire.epistemic.prompts import (
    PRIOR_VERDICTS,
    SUPPORT_VERDICTS,
    Judgement,
    consensus,
    parse_score,
    prior_prompt,
    read_reply,
    support_prompt,
)
from groundwire.epistemic.types import ModelCall

from .clients import FULL, YES, said

HEAD = '{"verdict": "'


def read(text, kind="support", tokens=()):
    return read_reply(kind, ModelAnswer(text, tokens=tuple(tokens)))


def chances(text, at, **probabilities):
    """An answer whose tokens are single characters; those at a place have the alternatives given."""
    others = {name: log(value) for name, value in probabilities.items()}
    tokens = [
        LogprobToken(char, others.get(char, -0.01), others if place == at else {})
        for place, char in enumerate(text)
    ]
    return ModelAnswer(text, tokens=tuple(tokens))


def measured(verdict, probability, *others, before=""):
    """Read a reply whose token at the verdict is the whole of it, and has these alternatives."""
    text = said(verdict, probability)
    head = HEAD.removesuffix(before)
    tail = text[len(HEAD) + len(verdict) :]
    chances = {name: log(share) for name, share in others}
    chosen = LogprobToken(before + verdict, chances.pop(before + verdict), chances)
    tokens = (LogprobToken(head, 0.0, {}), chosen, LogprobToken(tail, 0.0, {}))
    found = read(text, tokens=tokens)
    assert found is not None
    return found


def test_a_reply_is_read_up_to_ten_thousand_characters_and_not_one_more():
    for kind in ["support", "prior"]:
        for reply in ("0.9 ", said("supported" if kind == "support" else "true")):
            whole = reply.ljust(10_000)
            assert read(whole, kind).support == 0.9
            assert read(whole + " ", kind) is None


def test_a_score_is_a_number_from_0_to_1_that_begins_a_text_and_is_no_number_of_a_list_or_scale():
    scores = {
        "0": 0.0,
        "1": 1.0,
        "1.0": 1.0,
        "1.": 1.0,
        "0.85 because": 0.85,
        "0.9\n2 reasons": 0.9,
        "1 - it is": 1.0,
        "Score: 0.85, as it says so": 0.85,
        "Support = 0.5": 0.5,
        "score 0.3.": 0.3,
        "SCORE: 1": 1.0,
    }
    none = """
    1. The evidence says so.|1.5|2|-0.9|90%|1.01|0.8e3|NaN|about 0.9|0.5/1|0.9/1|1 out of 10|1 of 5 parts|1 %
    1 percent|1,5|1:10|0.2 to 0.9|0.8 - 0.9|0.9, 0.1|0 or 1|0.\u0669|1 part of it|1. It is
    """
    assert {reply: parse_score(reply) for reply in scores} == scores
    others = [text for line in none.split("\n") for text in line.strip().split("|")]
    odd = ["", "1.\n2.", 0.9, None, b"0.9"]
    assert [reply for reply in (*others, *odd) if parse_score(reply) is not None] == []


def test_a_number_that_is_none_is_no_reply():
    for constant in ["NaN", "Infinity", "-Infinity"]:
        assert read(said().replace("0.9", constant)) is None
        other = f'{{"verdict": "supported", "probability": 0.9, "reason": {constant}}}'
        assert read(other) is None


def test_a_key_that_stands_twice_is_no_reply_even_where_both_say_the_same():
    for key in ["verdict", "probability", "reason"]:
        found = json.loads(said(reason=""))
        twice = said(reason="")[:-1] + f', "{key}": {json.dumps(found[key])}}}'
        assert read(twice) is None


def test_the_verdicts_of_one_question_are_none_of_the_other():
    assert read(said("supported"), "prior") is None
    assert read(said("true")) is None
    true, false = (read(said(verdict, 0.9), "prior") for verdict in ("true", "false"))
    assert true == Judgement(0.9, None)
    assert false == Judgement(pytest.approx(0.1), None), "what nobody saw evidence for has no verdict"


def test_a_fence_may_stand_around_the_object_and_nothing_beside_it():
    for fence in ("```json\n{}\n```", "  ```\n{}\n```\n", "```json \n\n{}\n ```"):
        assert read(fence.replace("{}", said())) is not None
    for fence in ("```json\n{}", "```python\n{}\n```", "Here:\n```json\n{}\n```", "```json\n{}\n```\nDone."):
        assert read(fence.replace("{}", said())) is None


def test_a_reason_is_kept_short_and_without_what_nobody_sees():
    assert read("0.9, because it is stated").reason == "because it is stated"
    for reply in (said(reason="\u202e" + "x" * 400), "0.9: " + "x" * 400):
        assert read(reply).reason == "x" * 300
    assert read(said(reason=f"{'x' * 299} y")).reason == "x" * 299


def test_a_verdict_that_is_not_supported_never_counts_for_a_claim():
    for reply, support in [
        (said("supported", 0.9), 0.9),
        (said("supported", 1), 1.0),
        (f"```json\n{said('supported', 0.9)}\n```", 0.9),
        ("0.85 because", 0.85),
        (said("contradicted", 0.02), 0.02),
        (said("contradicted", 0.98), 0.02),
        (said("partial_support", 0.5), 0.5),
    ]:
        assert read(reply).support == pytest.approx(support)


def test_what_is_not_exactly_the_object_asked_for_does_not_parse():
    for reply in [
        "",
        "yes",
        "Sure! " + YES,
        YES + " I am sure.",
        YES[:-1],
        YES + YES,
        f"[{YES}]",
        '{"verdict": "contradicted", "verdict": "supported", "probability": 0.9}',
        said("SUPPORTED", 0.9),
        said("true", 0.9),
        said("supported", 1.01),
        said("supported", -0.1),
        said("supported", "0.9"),
        said("supported", True),  # noqa: FBT003 - what a model may write
        said("supported", None),
        '{"verdict": "supported", "probability": NaN}',
        '{"verdict": "supported"}',
        '{"probability": 0.9}',
        said("supported", 0.9, approved=True),
        said("supported", 0.9, reason=["no text"]),
        said("supported", 0.9, reason="x" * 10_000),
        "[" * 5_000,
    ]:
        assert read(reply) is None


@given(st.sampled_from(SUPPORT_VERDICTS), st.floats(0, 1))
def test_only_supported_ever_gives_more_than_a_half(verdict, probability):
    found = read(said(verdict, probability))
    assert 0 <= found.support <= (1 if verdict == "supported" else 0.5)
    assert found.verdict is SupportVerdict(verdict)


@given(st.text(max_size=100))
def test_no_reply_raises(reply):
    for kind in ("support", "prior"):
        found = read(reply, kind)
        assert found is None or 0 <= found.support <= 1


def test_the_verdicts_asked_for_are_those_that_are_read():
    for kind, verdicts in (("support", SUPPORT_VERDICTS), ("prior", PRIOR_VERDICTS)):
        asked = support_prompt("", {}) if kind == "support" else prior_prompt("")
        assert all(f'"{verdict}"' in asked.system for verdict in verdicts)
        assert all(read(said(verdict, 0.5), kind) for verdict in verdicts)
    assert {str(verdict) for verdict in SupportVerdict} == set(SUPPORT_VERDICTS)


def test_where_there_are_log_probabilities_they_count_and_not_what_is_stated():
    text = said("supported", 0.99)
    at = text.index("supported")
    found = read_reply("support", chances(text, at, s=0.6, u=0.3, c=0.1))
    assert found.support == pytest.approx(0.6)
    doubted = said("supported", 0.1)
    assert read_reply("support", chances(doubted, at, s=0.9, u=0.1)).support == pytest.approx(0.1)


def test_log_probabilities_of_another_verdict_never_count_for_a_claim():
    text = said("unsupported", 0.9)
    found = read_reply("support", chances(text, text.index("unsupported"), s=0.6, u=0.4))
    assert found.support == pytest.approx(0.4)


def test_a_token_may_hold_the_quotation_mark_before_the_verdict_too():
    before, verdict, after = '{"verdict": ', '"supported', '", "probability": 0.9}'
    others = {'"supported': log(0.7), '"contr': log(0.3), "'": log(0.0001)}
    tokens = (
        LogprobToken(before, 0.0, {}),
        LogprobToken(verdict, log(0.7), others),
        LogprobToken(after, 0.0, {}),
    )
    answer = ModelAnswer(before + verdict + after, tokens=tokens)
    assert read_reply("support", answer).support == pytest.approx(0.7)


def test_log_probabilities_that_are_not_those_of_the_text_are_not_used():
    text = said("supported", 0.8)
    answer = chances(text, text.index("supported"), s=0.2, u=0.8)
    assert read(answer.text, tokens=answer.tokens[:-1]).support == 0.8
    vague = chances(text, text.index("supported"), s=0.2, x=0.8)
    assert read_reply("support", vague).support == 0.8


def test_a_stated_half_is_measured_and_a_stated_doubt_stays():
    chances = ("supported", 0.8), ("contradicted", 0.2)
    assert measured("supported", 0.5, *chances).support == pytest.approx(0.8)
    assert measured("supported", 0.49, *chances).support == 0.49


def test_a_measured_verdict_that_is_not_supported_gives_its_rest_and_never_more_than_a_half():
    for share in (0.3, 0.7):
        found = measured("contradicted", 0.9, ("contradicted", share), ("supported", 1 - share))
        assert found.support == pytest.approx(0.3)


def test_alternatives_count_for_the_one_verdict_that_they_begin():
    # "" and " " begin none, "su" begins one, "supported by" goes on after one
    others = [("", 0.1), (" ", 0.1), ("su", 0.2), ("contradicted", 0.2)]
    assert measured("supported", 0.9, ("supported", 0.4), *others).support == pytest.approx(0.6 / 0.8)
    longer = ("supported by", 0.2), ("contradicted", 0.2)
    assert measured("supported", 0.9, ("supported", 0.6), *longer).support == pytest.approx(0.8)


def test_alternatives_are_held_against_what_stands_before_the_verdict_in_their_token():
    chances = ('"supported', 0.5), ('"contradicted', 0.2), ("contradicted", 0.2), ('"', 0.1)
    assert measured("supported", 0.9, *chances, before='"').support == pytest.approx(0.5 / 0.7)
    other = ('"supported', 0.5), ("'contradicted", 0.3), ('"contradicted', 0.2)
    assert measured("supported", 0.9, *other, before='"').support == pytest.approx(0.5 / 0.7)


def test_a_verdict_whose_key_is_written_otherwise_is_taken_as_stated():
    text = said().replace("verdict", "\\u0076erdict")
    assert read(text, tokens=[LogprobToken(text, 0.0, {})]).support == 0.9


def test_what_the_alternatives_leave_open_by_half_is_not_measured():
    assert measured("supported", 0.9, ("supported", 0.25), ("contradicted", 0.25)).support == 0.9
    assert measured("supported", 0.9, ("supported", 0.3), ("contradicted", 0.3)).support == pytest.approx(0.5)


def test_a_chance_above_one_counts_as_one():
    found = measured("supported", 0.9, ("supported", 5.0), ("contradicted", 0.25))
    assert found.support == pytest.approx(1 / 1.25)


def test_the_place_that_is_measured_is_the_first_that_names_a_verdict():
    text = f'{{"reason": "no {HEAD[1:]}", "verdict": "supported", "probability": 0.9}}'
    tokens = (LogprobToken(text[:-1], 0.0, {}), LogprobToken("}", 0.0, {}))
    assert read(text, tokens=tokens) is None, "a quotation mark ends the reason"
    plain = said()
    early = ModelAnswer(
        plain, tokens=(LogprobToken(HEAD, log(0.6), {}), LogprobToken(plain[len(HEAD) :], log(0.01), {}))
    )
    assert read_reply("support", early).support == 0.9, "the token that ends before it measures nothing"


def test_several_answers_agree_on_their_mean_the_worse_of_two_verdicts_and_a_reason_of_that():
    yes, no = (
        Judgement(0.8, SupportVerdict.SUPPORTED, "yes"),
        Judgement(0.2, SupportVerdict.CONTRADICTED, "no"),
    )
    assert consensus([yes, no]) == Judgement(0.5, SupportVerdict.CONTRADICTED, "no")
    assert consensus([yes, no, no])[1:] == (SupportVerdict.CONTRADICTED, "no")
    assert consensus([no, yes, yes]) == (pytest.approx(0.6), SupportVerdict.SUPPORTED, "yes")
    scores = [Judgement(0.8, None, "a"), Judgement(0.4, None, "b")]
    assert consensus(scores) == Judgement(pytest.approx(0.6), None, "a")
    assert consensus([*scores, yes])[1:] == (SupportVerdict.SUPPORTED, "yes")


ANSWER = (
    "The gateway retries failed requests 3 times and waits 30 seconds between attempts. "
    "The gateway closes idle connections after 5 minutes."
)


def call(claim, fault=None):
    return ModelCall(claim_id=claim, kind="support", input_tokens=10, fault=fault)


def test_only_a_question_that_the_budget_did_not_reach_for_is_over_budget():
    calls = [call("r/claim#1"), call("r/claim#2", "timeout")]
    assert not VerifierFacts(model="m", calls=calls).over_budget
    assert VerifierFacts(model="m", calls=[*calls, call("r/claim#2", "over_budget")]).over_budget


def test_recorded_opinions_come_back_with_their_own_calls_and_count_in_the_report():
    context = {"a": ANSWER}
    opinions = [
        ModelOpinion(claim_id="r/claim#1", support=0.9, prior=0.2),
        ModelOpinion(claim_id="r/claim#2", support=0.1, verdict=SupportVerdict.CONTRADICTED, reason="no"),
    ]
    calls = [call("r/claim#1"), call("r/claim#2"), call("r/claim#2", "timeout")]
    facts = VerifierFacts(model="m", opinions=opinions, calls=calls, truncated=3)
    plan = plan_response(ANSWER, context, FULL, ask=False, response_id="r")
    alone, report = report_of(plan, None, FULL), report_of(plan, facts, FULL)
    assert [claim.flag_reason for claim in alone.claims] == [None, None]
    assert (alone.model_claims, alone.model_truncated, alone.calls) == (0, 0, [])
    assert [claim.flag_reason for claim in report.claims] == [None, "contradicted"]
    assert (report.model_claims, report.model_truncated, report.calls) == (2, 3, calls)
    stray = facts.model_copy(update={"calls": [*calls, call("r/claim#9")]})
    assert report_of(plan, stray, FULL).calls == calls
