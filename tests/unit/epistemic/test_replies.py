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
    consensus,
    parse_score,
    prior_prompt,
    read_reply,
    support_prompt,
)
from groundwire.epistemic.types import ModelCall

from .clients import FULL, YES, said


def read(text, kind="support", tokens=()):
    return read_reply(kind, ModelAnswer(text, tokens=tuple(tokens)))


def test_a_score_is_a_number_from_0_to_1_that_begins_a_text_and_is_no_number_of_a_list_or_scale():
    scores = dict.fromkeys(("1", "1.0", "1.", "1 - it is", "SCORE: 1"), 1.0) | {"0": 0.0, "score 0.3.": 0.3}
    scores |= {"0.9\n2 reasons": 0.9, "Score: 0.85, as it says so": 0.85, "Support = 0.5": 0.5}
    none = """
    1. The evidence says so.|1.5|2|-0.9|90%|1.01|0.8e3|NaN|about 0.9|0.5/1|0.9/1|1 out of 10|1 of 5 parts|1 %
    1 percent|1,5|1:10|0.2 to 0.9|0.8 - 0.9|0.9, 0.1|0 or 1|0.\u0669|1 part of it|1. It is
    """
    assert {reply: parse_score(reply) for reply in scores} == scores
    others = [text for line in none.split("\n") for text in line.strip().split("|")]
    odd = ["", "1.\n2.", 0.9, None, b"0.9"]
    assert [reply for reply in (*others, *odd) if parse_score(reply) is not None] == []


def test_a_reply_is_a_score_or_exactly_the_object_asked_for_perhaps_in_a_fence():
    supports = {
        said("supported", 0.9): 0.9,
        said("supported", 1): 1.0,
        YES.ljust(10_000): 0.9,
        "0.9 ".ljust(10_000): 0.9,
        f"```json\n{YES}\n```": 0.9,
        f"  ```\n{YES}\n```\n": 0.9,
        f"```json \n\n{YES}\n ```": 0.9,
        "0.85 because": 0.85,
        said("contradicted", 0.02): 0.02,
        said("contradicted", 0.98): 0.02,
        said("partial_support", 0.5): 0.5,
    }
    found = {reply: read(reply) and read(reply).support for reply in supports}
    assert found == pytest.approx(supports)
    twice = [said(reason="")[:-1] + f', "{key}": {value}}}' for key, value in json.loads(said()).items()]
    fences = ("```json\n{}", "```python\n{}\n```", "Here:\n```json\n{}\n```", "```json\n{}\n```\nDone.")
    none = [
        *("", "yes", "Sure! " + YES, YES + " I am sure.", YES[:-1], YES + YES, f"[{YES}]", "[" * 5_000),
        *("0.9 ".ljust(10_001), YES.ljust(10_001)),
        *(fence.replace("{}", YES) for fence in fences),
        *(said(verdict, 0.9) for verdict in ("SUPPORTED", "true")),
        *(said("supported", number) for number in (1.01, -0.1, "0.9", True, None)),
        *(said().replace("0.9", constant) for constant in ("NaN", "Infinity", "-Infinity")),
        *('{"verdict": "supported"}', '{"probability": 0.9}'),
        *twice,
        '{"verdict": "contradicted", "verdict": "supported", "probability": 0.9}',
        '{"verdict": "supported", "probability": 0.9, "reason": NaN}',
        *(said(approved=True), said(reason=["no text"]), said(reason="x" * 10_000)),
    ]
    assert [reply[:200] for reply in none if read(reply) is not None] == []


def test_the_verdicts_of_one_question_are_none_of_the_other_and_all_that_are_asked_for_are_read():
    assert read(said("supported"), "prior") is None
    true, false = (read(said(verdict, 0.9), "prior") for verdict in ("true", "false"))
    assert true == ModelOpinion(claim_id="", support=0.9)
    assert (round(false.support, 9), false.verdict) == (0.1, None), "without evidence there is no verdict"
    for kind, verdicts in (("support", tuple(SupportVerdict)), ("prior", PRIOR_VERDICTS)):
        asked = support_prompt("", {}) if kind == "support" else prior_prompt("")
        assert all(f'"{verdict}"' in asked.system for verdict in verdicts)
        assert all(read(said(verdict, 0.5), kind) for verdict in verdicts)


def test_a_reason_is_kept_short_and_without_invisible_characters():
    assert read("0.9, because it is stated").reason == "because it is stated"
    for reply in (said(reason="\u202e" + "x" * 400), "0.9: " + "x" * 400):
        assert read(reply).reason == "x" * 300
    assert read(said(reason=f"{'x' * 299} y")).reason == "x" * 299


@given(st.sampled_from(SupportVerdict), st.floats(0, 1), st.text(max_size=100))
def test_no_reply_raises_and_only_supported_ever_gives_more_than_a_half(verdict, probability, other):
    found = read(said(verdict, probability))
    assert 0 <= found.support <= (1 if verdict == "supported" else 0.5)
    assert found.verdict is SupportVerdict(verdict)
    for kind in ("support", "prior"):
        found = read(other, kind)
        assert found is None or 0 <= found.support <= 1


def test_log_probabilities_at_the_verdict_count_where_they_tell_its_alternatives_apart():
    """Each case: the verdict and probability stated, what its token begins with, all its alternatives."""
    yes, no = "supported", "contradicted"
    for verdict, stated, before, chances, support in [
        (yes, 0.99, "", {yes: 0.6, "unsupported": 0.3, no: 0.1}, 0.6),
        (yes, 0.99, "", {yes: 0.6, "u": 0.3, "c": 0.1}, 0.6),
        (yes, 0.5, "", {yes: 0.8, no: 0.2}, 0.8),
        (yes, 0.49, "", {yes: 0.8, no: 0.2}, 0.49),  # a stated doubt stays
        # another verdict gives its rest, and never more than a half
        ("unsupported", 0.9, "", {yes: 0.6, "unsupported": 0.4}, 0.4),
        (no, 0.9, "", {no: 0.3, yes: 0.7}, 0.3),
        (no, 0.9, "", {no: 0.7, yes: 0.3}, 0.3),
        # "" and " " begin no verdict, "su" begins one, "supported by" goes on after one
        (yes, 0.9, "", {yes: 0.4, "": 0.1, " ": 0.1, "su": 0.2, no: 0.2}, 0.6 / 0.8),
        (yes, 0.9, "", {yes: 0.6, "supported by": 0.2, no: 0.2}, 0.8),
        # alternatives begin as their token does
        (yes, 0.9, '"', {f'"{yes}': 0.5, f'"{no}': 0.2, no: 0.2, '"': 0.1}, 0.5 / 0.7),
        (yes, 0.9, '"', {f'"{yes}': 0.5, f"'{no}": 0.3, f'"{no}': 0.2}, 0.5 / 0.7),
        (yes, 0.9, '"', {f'"{yes}': 0.7, '"contr': 0.3, "'": 0.0001}, 0.7),
        # what they leave open by half is not measured, and a chance above one counts as one
        (yes, 0.9, "", {yes: 0.25, no: 0.25}, 0.9),
        (yes, 0.8, "", {yes: 0.2, "x": 0.8}, 0.8),
        (yes, 0.9, "", {yes: 0.3, no: 0.3}, 0.5),
        (yes, 0.9, "", {yes: 5.0, no: 0.25}, 1 / 1.25),
    ]:
        text, token = said(verdict, stated), before + verdict
        at = text.index(token)
        others = {name: log(share) for name, share in chances.items()}
        tokens = (
            LogprobToken(text[:at], 0.0, {}),
            LogprobToken(token, others.pop(token), others),
            LogprobToken(text[at + len(token) :], 0.0, {}),
        )
        assert read(text, tokens=tokens).support == pytest.approx(support), chances
        assert read(text, tokens=tokens[:-1]).support == read(text).support, "tokens of another text"
    head = '{"verdict": "'  # the place that is measured is the first that names a verdict
    text = f'{{"reason": "no {head[1:]}", "verdict": "supported", "probability": 0.9}}'
    tokens = (LogprobToken(text[:-1], 0.0, {}), LogprobToken("}", 0.0, {}))
    assert read(text, tokens=tokens) is None, "a quotation mark ends the reason"
    early = (LogprobToken(head, log(0.6), {}), LogprobToken(YES[len(head) :], log(0.01), {}))
    assert read(YES, tokens=early).support == 0.9, "the token that ends before it measures nothing"
    escaped = YES.replace("verdict", "\\u0076erdict")
    assert read(escaped, tokens=[LogprobToken(escaped, 0.0, {})]).support == 0.9, "a key written otherwise"


def test_several_answers_agree_on_their_mean_the_worse_of_two_verdicts_and_a_reason_of_that():
    yes = ModelOpinion(claim_id="", support=0.8, verdict="supported", reason="yes")
    no = ModelOpinion(claim_id="", support=0.2, verdict="contradicted", reason="no")
    scores = [
        ModelOpinion(claim_id="", support=0.8, reason="a"),
        ModelOpinion(claim_id="", support=0.4, reason="b"),
    ]
    for replies, support, verdict, reason in (
        ([yes, no], 0.5, "contradicted", "no"),
        ([yes, no, no], 0.4, "contradicted", "no"),
        ([no, yes, yes], 0.6, "supported", "yes"),
        (scores, 0.6, None, "a"),
        ([*scores, yes], 2 / 3, "supported", "yes"),
    ):
        found = consensus([None, *replies])
        assert found.support == pytest.approx(support)
        assert (found.verdict, found.reason) == (verdict, reason)


def test_recorded_opinions_come_back_with_their_own_calls_and_count_in_the_report():
    def call(claim, fault=None):
        return ModelCall(claim_id=claim, kind="support", input_tokens=10, fault=fault)

    answer = (
        "The gateway retries failed requests 3 times and waits 30 seconds between attempts. "
        "The gateway closes idle connections after 5 minutes."
    )
    opinions = [
        ModelOpinion(claim_id="r/claim#1", support=0.9, prior=0.2),
        ModelOpinion(claim_id="r/claim#2", support=0.1, verdict=SupportVerdict.CONTRADICTED, reason="no"),
    ]
    calls = [call("r/claim#1"), call("r/claim#2"), call("r/claim#2", "timeout")]
    facts = VerifierFacts(model="m", opinions=opinions, calls=calls, truncated=3)
    plan = plan_response(answer, {"a": answer}, FULL, ask=False, response_id="r")
    alone, report = report_of(plan, None, FULL), report_of(plan, facts, FULL)
    assert [claim.flag_reason for claim in alone.claims] == [None, None]
    assert (alone.model_claims, alone.model_truncated, alone.calls) == (0, 0, [])
    assert [claim.flag_reason for claim in report.claims] == [None, "contradicted"]
    assert (report.model_claims, report.model_truncated, report.calls) == (2, 3, calls)
    recorded = VerifierFacts.model_validate_json(facts.model_dump_json())
    assert report_of(plan, recorded, FULL) == report, "a report follows from the recorded facts alone"
    stray = facts.model_copy(update={"calls": [*calls, call("r/claim#9")]})
    assert report_of(plan, stray, FULL).calls == calls
    over = facts.model_copy(update={"calls": [*calls, call("r/claim#2", "over_budget")]})
    assert (facts.over_budget, over.over_budget) == (False, True), "a timeout is not the budget's"
