"""What a model is asked, how its reply is read, and what is counted: without a network."""

import asyncio
import json
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.epistemic.score import Verdict
from groundwire.epistemic import VerificationConfig, detect_hallucinations, evidence_dependence, verify_claim
from groundwire.epistemic.asking import ask
from groundwire.epistemic.budget import Ledger, Purse
from groundwire.epistemic.model import Answer, Model, ModelFault, Token
from groundwire.epistemic.prompts import (
    MAX_CLAIM,
    MAX_EVIDENCE,
    PRIOR_VERDICTS,
    SUPPORT_VERDICTS,
    answer_prompt,
    prior_prompt,
    support_prompt,
)
from groundwire.epistemic.replies import Judgement, read_reply, together

FULL = VerificationConfig(mode="full")
ALONE = VerificationConfig(mode="full", evidence_scrubbing=False)
TEXT = "The gateway retries failed requests 3 times and waits 30 seconds between attempts."
YES = '{"verdict": "supported", "probability": 0.9, "reason": "it says so"}'
texts = st.text(max_size=200)


class Judge(Model):
    """Answers by rule, and remembers what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers) or [Answer(YES)]
        self.requests = []

    async def answer(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def said(verdict, probability, **other):
    return json.dumps({"verdict": verdict, "probability": probability, **other})


def chances(text, at, **probabilities):
    """An answer whose tokens are single characters; those at a place have the alternatives given."""
    others = {name: log(value) for name, value in probabilities.items()}
    tokens = [
        Token(char, others.get(char, -0.01), others if place == at else {}) for place, char in enumerate(text)
    ]
    return Answer(text, tokens=tuple(tokens))


# What is asked ---------------------------------------------------------------------------------------------


@given(texts, st.dictionaries(texts, texts, max_size=3))
def test_text_of_a_claim_and_its_evidence_cannot_leave_its_place_in_a_prompt(claim, evidence):
    asked = support_prompt(claim, evidence, nonce="NONCE")
    assert asked.system == support_prompt("", {}, nonce="NONCE").system
    first, *document, last = asked.user.split("\n")
    assert (first, last, len(document)) == ("DATA NONCE", "END NONCE", 1)
    assert json.loads(document[0]).keys() == {"claim", "evidence", "evidence_is_cut"}


def test_the_number_between_whose_lines_data_stands_is_another_each_time_and_the_question_the_same():
    one, other = support_prompt(TEXT, {"a": TEXT}), support_prompt(TEXT, {"a": TEXT})
    assert one.user != other.user
    assert one.user.split()[1] in one.system
    assert one.key == other.key != support_prompt(TEXT, {"b": TEXT}).key


@pytest.mark.parametrize(
    "unseen", ["\0", "\x1b", "\x85", "\u202e", "\u200b", "\U000e0041", "\ud800", "\u2028"]
)
def test_what_nobody_sees_is_not_sent(unseen):
    asked = support_prompt(f"a{unseen}b", {f"i{unseen}d": f"c{unseen}d"})
    assert unseen not in asked.user
    assert repr(unseen)[1:-1] not in asked.user
    asked.user.encode()


@pytest.mark.parametrize("make", [lambda text: support_prompt(text, {}), prior_prompt, answer_prompt])
def test_a_claim_that_is_too_long_is_not_asked_about_in_half(make):
    assert "x" * MAX_CLAIM in make("x" * MAX_CLAIM).user
    with pytest.raises(ModelFault) as raised:
        make("x" * (MAX_CLAIM + 1))
    assert raised.value.code == "too_long"


def test_evidence_beyond_the_limit_is_left_out_and_the_prompt_says_so():
    whole = support_prompt("c", {"a": "x" * MAX_EVIDENCE})
    cut = support_prompt("c", {"a": "x" * (MAX_EVIDENCE - 1), "b": "yy"})
    document = json.loads(cut.user.split("\n")[1])
    assert (whole.is_cut, cut.is_cut, document["evidence_is_cut"]) == (False, True, True)
    assert [len(passage["text"]) for passage in document["evidence"]] == [MAX_EVIDENCE - 1, 1]


# How a reply is read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "support"),
    [
        (said("supported", 0.9), 0.9),
        (said("supported", 1), 1.0),
        (f"```json\n{said('supported', 0.9)}\n```", 0.9),
        ("0.85 because", 0.85),
        (said("contradicted", 0.02), 0.02),
        (said("contradicted", 0.98), 0.02),
        (said("partial_support", 0.5), 0.5),
    ],
)
def test_a_verdict_that_is_not_supported_never_counts_for_a_claim(reply, support):
    assert read_reply("support", Answer(reply)).support == pytest.approx(support)


@pytest.mark.parametrize(
    "reply",
    [
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
    ],
)
def test_what_is_not_exactly_the_object_asked_for_does_not_parse(reply):
    assert read_reply("support", Answer(reply)) is None


@given(st.sampled_from(SUPPORT_VERDICTS), st.floats(0, 1))
def test_only_supported_ever_gives_more_than_a_half(verdict, probability):
    found = read_reply("support", Answer(said(verdict, probability)))
    assert 0 <= found.support <= (1 if verdict == "supported" else 0.5)
    assert found.verdict is Verdict(verdict)


@given(st.text(max_size=100))
def test_no_reply_raises(reply):
    for kind in ("support", "prior"):
        found = read_reply(kind, Answer(reply))
        assert found is None or 0 <= found.support <= 1


def test_the_verdicts_asked_for_are_those_that_are_read():
    for kind, verdicts in (("support", SUPPORT_VERDICTS), ("prior", PRIOR_VERDICTS)):
        asked = support_prompt("", {}) if kind == "support" else prior_prompt("")
        assert all(f'"{verdict}"' in asked.system for verdict in verdicts)
        assert all(read_reply(kind, Answer(said(verdict, 0.5))) for verdict in verdicts)
    assert {str(verdict) for verdict in Verdict} == set(SUPPORT_VERDICTS)


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
    tokens = (Token(before, 0.0, {}), Token(verdict, log(0.7), others), Token(after, 0.0, {}))
    answer = Answer(before + verdict + after, tokens=tokens)
    assert read_reply("support", answer).support == pytest.approx(0.7)


def test_log_probabilities_that_are_not_those_of_the_text_are_not_used():
    text = said("supported", 0.8)
    answer = chances(text, text.index("supported"), s=0.2, u=0.8)
    assert read_reply("support", Answer(answer.text, tokens=answer.tokens[:-1])).support == 0.8
    vague = chances(text, text.index("supported"), s=0.2, x=0.8)
    assert read_reply("support", vague).support == 0.8


def test_several_answers_agree_on_their_mean_and_on_the_worse_of_two_verdicts():
    yes, no = Judgement(0.9, Verdict.SUPPORTED), Judgement(0.1, Verdict.CONTRADICTED, "no")
    assert together([yes, no]) == Judgement(0.5, Verdict.CONTRADICTED, "no")
    assert together([yes, no, yes])[:2] == (pytest.approx(1.9 / 3), Verdict.SUPPORTED)


# What is counted -------------------------------------------------------------------------------------------


def test_a_model_counts_its_own_tokens_and_prices_are_the_configured_ones():
    config = VerificationConfig(mode="full", input_price=2, output_price=10)
    judge = Judge(Answer(YES, input_tokens=1_000, output_tokens=100, requests=2))
    report = detect_hallucinations(TEXT + " It waits 30 seconds.", {"a": TEXT}, client=judge, config=config)
    assert {(call.input_tokens, call.output_tokens, call.requests) for call in report.calls} == {
        (1_000, 100, 2)
    }
    assert report.calls[0].cost_usd == pytest.approx(0.003)
    assert report.cost_usd == pytest.approx(0.003 * len(report.calls))


def test_instructions_and_data_go_to_a_model_apart_and_to_another_client_together():
    judge = Judge()
    verify_claim(TEXT, TEXT, client=judge, config=ALONE)
    (request,) = judge.requests
    assert TEXT in request.prompt
    assert TEXT not in request.system
    assert (request.model, request.temperature, request.max_tokens) == ("haiku", 0.0, 300)


def test_sampled_agreement_asks_as_often_as_configured_and_takes_the_mean():
    judge = Judge(
        Answer(said("supported", 1.0)), Answer(said("supported", 0.9)), Answer(said("contradicted", 0.0))
    )
    config = ALONE.model_copy(update={"samples": 3})
    found = verify_claim(TEXT, TEXT, client=judge, config=config)
    assert (len(judge.requests), {one.temperature for one in judge.requests}) == (3, {1.0})
    assert found.evidence_support == pytest.approx(1.9 / 3)
    assert found.is_flagged


def test_one_of_several_answers_that_does_not_parse_is_no_pass():
    judge = Judge(Answer(said("supported", 1.0)), Answer("sure"))
    found = verify_claim(TEXT, TEXT, client=judge, config=ALONE.model_copy(update={"samples": 2}))
    assert found.flag_reason == "verifier_unparseable"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("truncated", "verifier_unparseable"),
        ("refused", "verifier_unavailable"),
        ("paused", "verifier_unavailable"),
    ],
)
def test_a_fault_flags_the_claim_and_is_told_by_its_code(code, reason):
    fault = ModelFault(code, requests=3, input_tokens=7, output_tokens=9)
    text = TEXT + " It waits 30 seconds."
    report = detect_hallucinations(text, {"a": TEXT}, client=Judge(fault), config=ALONE)
    assert {claim.flag_reason for claim in report.claims} == {reason}
    first = report.calls[0]
    assert (first.fault, first.requests, first.input_tokens, first.output_tokens) == (code, 3, 7, 9)


def test_a_verdict_that_a_model_lowers_is_told_in_its_word():
    judge = Judge(Answer(said("contradicted", 0.0)))
    assert verify_claim(TEXT, TEXT, client=judge, config=ALONE).flag_reason == "contradicted"


def test_a_model_that_has_not_seen_all_evidence_clears_nothing():
    config = ALONE.model_copy(update={"model_may_clear": True})
    false, long = "Tokens are stored on a disk in Paris.", "word " * MAX_EVIDENCE
    assert not verify_claim(false, TEXT, client=Judge(), config=config).is_flagged
    assert verify_claim(false, [TEXT, long], client=Judge(), config=config).is_flagged


def test_a_claim_that_is_too_long_is_flagged_without_a_call():
    judge, text = Judge(), "word " * MAX_CLAIM
    found = verify_claim(text, text, client=judge, config=FULL)
    assert (found.flag_reason, judge.requests) == ("verifier_unavailable", [])


async def test_the_same_question_at_the_same_time_is_asked_once():
    class Slow(Judge):
        async def answer(self, request):
            found = await super().answer(request)
            await asyncio.sleep(0)  # the others come to ask meanwhile
            return found

    judge, purse = Slow(), Purse(FULL)
    replies = await asyncio.gather(
        *(ask(judge, support_prompt(TEXT, {}), FULL, claim_id=name, purse=purse) for name in "abc")
    )
    assert len(judge.requests) == 1
    assert [reply.call.cached for reply in replies] == [False, True, True]
    assert {reply.judgement for reply in replies} == {replies[0].judgement}


async def test_what_failed_is_asked_again_and_what_parsed_is_not():
    judge = Judge(Answer("sure"), ModelFault("timeout"), Answer(YES))
    faults = []
    for _ in range(4):
        reply = await ask(judge, support_prompt(TEXT, {}), FULL, claim_id="a")
        faults.append(reply.call.fault)
    assert (faults, len(judge.requests)) == (["unparseable", "timeout", None, None], 3)


# What it may cost ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit",
    [
        {"budget_tokens": 700},
        {"budget_usd": 0.000_5},
        {"budget_tokens_per_minute": 700},
        {"budget_usd_per_minute": 0.000_5},
    ],
)
def test_a_question_that_may_not_fit_the_budget_is_not_asked(limit):
    judge = Judge()
    config = ALONE.model_copy(update=limit)
    text = TEXT + " It waits 30 seconds."
    report = detect_hallucinations(text, {"a": TEXT}, client=judge, config=config)
    assert len(judge.requests) == 1
    assert [call.fault for call in report.calls] == [None, "over_budget"]
    assert [claim.flag_reason for claim in report.claims] == [None, "verifier_unavailable"]
    assert report.calls[1].cost_usd == report.calls[1].requests == 0


def test_time_that_a_response_has_used_up_leaves_no_question():
    now = [0.0]
    purse = Purse(VerificationConfig(budget_seconds=30, timeout_seconds=10), lambda: now[0])
    assert purse.seconds == 10
    now[0] = 25
    assert purse.seconds == 5
    judge = Judge()
    now[0] = 30
    reply = asyncio.run(ask(judge, prior_prompt(TEXT), FULL, claim_id="a", purse=purse))
    assert (reply.call.fault, judge.requests) == ("over_budget", [])


@given(st.lists(st.integers(0, 50)), st.integers(0, 100))
def test_a_ledger_never_holds_more_than_its_limit_and_forgets_after_its_window(sizes, most):
    now = [0.0]
    ledger = Ledger(60, lambda: now[0])
    limits = {"most_tokens": most, "most_usd": 1.0}
    kept = [size for size in sizes if ledger.reserve(size, 0.0, **limits)]
    assert sum(kept) <= most
    now[0] = 60.0
    assert ledger.reserve(most, 0.0, **limits)


def test_a_question_for_which_the_minute_has_no_room_costs_the_response_nothing():
    config = VerificationConfig(budget_tokens=100, budget_tokens_per_minute=60)
    purse, minute = Purse(config), Ledger(60)
    assert purse.reserve(minute, 70, 0.0) is None
    assert purse.reserve(minute, 60, 0.0)


def test_what_a_question_did_not_cost_is_free_again():
    judge = Judge(Answer(YES, input_tokens=1, output_tokens=1))
    config = ALONE.model_copy(update={"budget_tokens": 800, "parallel_verification": False})
    text = TEXT + " It waits 30 seconds."
    detect_hallucinations(text, {"a": TEXT}, client=judge, config=config)
    assert len(judge.requests) == 2


# Where it runs ---------------------------------------------------------------------------------------------


def test_plain_functions_share_one_loop_to_which_a_client_may_bind():
    loops = set()

    class Bound(Judge):
        async def answer(self, request):
            loops.add(asyncio.get_running_loop())
            return await super().answer(request)

    client = Bound()
    for _ in range(2):
        verify_claim(TEXT, TEXT, client=client, config=ALONE.model_copy(update={"sample_seed": str(_)}))
        evidence_dependence(f"What is {_}?", TEXT, TEXT, client=client)
    assert len(loops) == 1


def test_a_client_that_waits_for_another_verification_is_told_and_does_not_hang():
    class Nested(Judge):
        async def answer(self, request):
            verify_claim(TEXT, "other", client=Judge())
            return await super().answer(request)

    found = verify_claim(TEXT, TEXT, client=Nested(), config=ALONE)
    assert found.flag_reason == "verifier_unavailable"
