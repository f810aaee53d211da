"""What a model is asked, how its reply is read, and what is counted: without a network.

Requirements S4-16, S4-17, S4-20, S4-34, S4-62, C-67.
"""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.epistemic.asking import Budget, Ledger, ask
from groundwire.epistemic.model import ModelAnswer, ModelFault
from groundwire.epistemic.prompts import (
    MAX_CLAIM,
    MAX_EVIDENCE,
    answer_prompt,
    prior_prompt,
    support_prompt,
)
from groundwire.epistemic.types import VerificationConfig
from groundwire.library.epistemic import detect_hallucinations, evidence_dependence, verify_claim

from .clients import ALONE, FULL, TEXT, YES, Judge, said

texts = st.text(max_size=200)


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


def test_what_nobody_sees_is_not_sent():
    for unseen in ["\0", "\x1b", "\x85", "\u202e", "\u200b", "\U000e0041", "\ud800", "\u2028"]:
        asked = support_prompt(f"a{unseen}b", {f"i{unseen}d": f"c{unseen}d"})
        assert unseen not in asked.user
        assert repr(unseen)[1:-1] not in asked.user
        asked.user.encode()


def test_a_claim_that_is_too_long_is_not_asked_about_in_half():
    for make in [lambda text: support_prompt(text, {}), prior_prompt, answer_prompt]:
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


def test_a_model_counts_its_own_tokens_and_prices_are_the_configured_ones():
    config = VerificationConfig(model_scope="all", mode="full", input_price=2, output_price=10)
    judge = Judge(ModelAnswer(YES, input_tokens=1_000, output_tokens=100, requests=2))
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
        ModelAnswer(said("supported", 1.0)),
        ModelAnswer(said("supported", 0.9)),
        ModelAnswer(said("contradicted", 0.0)),
    )
    config = ALONE.model_copy(update={"samples": 3})
    found = verify_claim(TEXT, TEXT, client=judge, config=config)
    assert (len(judge.requests), {one.temperature for one in judge.requests}) == (3, {1.0})
    assert found.evidence_support == pytest.approx(1.9 / 3)
    assert found.is_flagged


def test_one_of_several_answers_that_does_not_parse_is_no_pass():
    judge = Judge(ModelAnswer(said("supported", 1.0)), ModelAnswer("sure"))
    found = verify_claim(TEXT, TEXT, client=judge, config=ALONE.model_copy(update={"samples": 2}))
    assert found.flag_reason == "verifier_unparseable"


def test_a_fault_flags_the_claim_and_is_told_by_its_code():
    for code, reason in [
        ("truncated", "verifier_unparseable"),
        ("refused", "verifier_unavailable"),
        ("paused", "verifier_unavailable"),
    ]:
        fault = ModelFault(code, requests=3, input_tokens=7, output_tokens=9)
        text = TEXT + " It waits 30 seconds."
        report = detect_hallucinations(text, {"a": TEXT}, client=Judge(fault), config=ALONE)
        assert {claim.flag_reason for claim in report.claims} == {reason}
        first = report.calls[0]
        assert (first.fault, first.requests, first.input_tokens, first.output_tokens) == (code, 3, 7, 9)


def test_a_verdict_that_a_model_lowers_is_told_in_its_word():
    judge = Judge(ModelAnswer(said("contradicted", 0.0)))
    assert verify_claim(TEXT, TEXT, client=judge, config=ALONE).flag_reason == "contradicted"


def test_a_model_that_has_not_seen_all_evidence_clears_nothing():
    config = ALONE.model_copy(update={"model_may_clear": True})
    false, long = "Tokens are stored on a disk in the cellar.", "word " * MAX_EVIDENCE
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

    judge, budget = Slow(), Budget(FULL)
    replies = await asyncio.gather(
        *(ask(judge, support_prompt(TEXT, {}), FULL, claim_id=name, budget=budget) for name in "abc")
    )
    assert len(judge.requests) == 1
    assert [reply.call.cached for reply in replies] == [False, True, True]
    assert {reply.judgement for reply in replies} == {replies[0].judgement}


async def test_what_failed_is_asked_again_and_what_parsed_is_not():
    judge = Judge(ModelAnswer("sure"), ModelFault("timeout"), ModelAnswer(YES))
    faults = []
    for _ in range(4):
        reply = await ask(judge, support_prompt(TEXT, {}), FULL, claim_id="a")
        faults.append(reply.call.fault)
    assert (faults, len(judge.requests)) == (["unparseable", "timeout", None, None], 3)


def test_a_question_that_may_not_fit_the_budget_is_not_asked():
    for limit in [
        {"budget_tokens": 700},
        {"budget_usd": 0.000_5},
        {"budget_tokens_per_minute": 700},
        {"budget_usd_per_minute": 0.000_5},
    ]:
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
    budget = Budget(VerificationConfig(budget_seconds=30, timeout_seconds=10), lambda: now[0])
    assert budget.seconds == 10
    now[0] = 25
    assert budget.seconds == 5
    judge = Judge()
    now[0] = 30
    reply = asyncio.run(ask(judge, prior_prompt(TEXT), FULL, claim_id="a", budget=budget))
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
    budget, minute = Budget(config), Ledger(60)
    assert budget.reserve(minute, 70, 0.0) is None
    assert budget.reserve(minute, 60, 0.0)


def test_what_a_question_did_not_cost_is_free_again():
    judge = Judge(ModelAnswer(YES, input_tokens=1, output_tokens=1))
    config = ALONE.model_copy(update={"budget_tokens": 800, "parallel_verification": False})
    text = TEXT + " It waits 30 seconds."
    detect_hallucinations(text, {"a": TEXT}, client=judge, config=config)
    assert len(judge.requests) == 2


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


CACHE = "The cache lives in Dublin."


def test_a_model_is_shown_the_passages_that_bind_a_claim_and_all_where_none_does():
    for claim, passages in [
        (TEXT, [True, False]),
        (CACHE, [False, True]),
        ("Penguins sing loudly.", [True, True]),
    ]:
        judge = Judge()
        context = {"a": f"{TEXT} Requests are signed.", "b": f"{CACHE} It is small."}
        detect_hallucinations(claim + " " * 100, context, client=judge, config=ALONE)
        (asked,) = (request.prompt for request in judge.requests)
        assert ["Requests are signed." in asked, "It is small." in asked] == passages


async def test_a_question_whose_asker_is_called_off_ends_and_is_not_told_as_a_fault_of_the_model():
    asked = asyncio.Event()

    class Waiting(Judge):
        async def answer(self, request):  # noqa: ARG002 - the port names its arguments
            asked.set()
            await asyncio.Event().wait()
            return ModelAnswer(YES)

    task = asyncio.create_task(ask(Waiting(), support_prompt(TEXT, {}), ALONE, claim_id="a"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
