"""What a model is asked, how far its reply counts, what is counted, and clients of any make: without a network.

What a client is, raises or returns is no pass, no exception, and no way round a limit (S4-63).
Requirements S4-16, S4-17, S4-20, S4-34, S4-62, S4-66, S4-69, C-66, C-67.
"""

import asyncio
import dataclasses
import gc
import json
import math
import weakref
from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.support.score import SupportVerdict
from groundwire.epistemic.asking import Budget, Ledger, Memories, ask
from groundwire.epistemic.claims import ModelOpinion
from groundwire.epistemic.model import LogprobToken, ModelAnswer, ModelFault, cost_report
from groundwire.epistemic.plan import VerifierFacts, plan_response, report_of
from groundwire.epistemic.prompts import (
    MAX_CLAIM,
    MAX_EVIDENCE,
    MAX_PASSAGES,
    PRIOR_VERDICTS,
    answer_prompt,
    consensus,
    parse_score,
    prior_prompt,
    read_reply,
    support_prompt,
)
from groundwire.epistemic.types import ModelCall, VerificationConfig
from groundwire.library.epistemic import (
    audit_reasoning,
    detect_hallucinations,
    evidence_dependence,
    verify_claim,
)

from .clients import ALONE, FULL, LONG, TEXT, YES, Judge, said


@given(st.text(max_size=200), st.dictionaries(st.text(max_size=200), st.text(max_size=200), max_size=3))
def test_text_of_a_claim_and_its_evidence_cannot_leave_its_place_in_a_prompt(claim, evidence):
    asked = support_prompt(claim, evidence, nonce="NONCE")
    assert asked.system == support_prompt("", {}, nonce="NONCE").system
    first, *document, last = asked.user.split("\n")
    assert (first, last, len(document)) == ("DATA NONCE", "END NONCE", 1)
    assert json.loads(document[0]).keys() == {"claim", "evidence", "evidence_is_cut"}


def test_a_prompt_has_another_nonce_each_time_the_same_key_and_no_invisible_character():
    one, other = support_prompt(TEXT, {"a": TEXT}), support_prompt(TEXT, {"a": TEXT})
    assert one.user != other.user
    assert one.user.split()[1] in one.system
    assert one.key == other.key != support_prompt(TEXT, {"b": TEXT}).key
    for unseen in ["\0", "\x1b", "\x85", "\u202e", "\u200b", "\U000e0041", "\ud800", "\u2028"]:
        asked = support_prompt(f"a{unseen}b", {f"i{unseen}d": f"c{unseen}d"})
        assert unseen not in asked.user
        assert repr(unseen)[1:-1] not in asked.user
        asked.user.encode()


def test_a_claim_that_is_too_long_is_flagged_and_not_asked_about_in_half():
    for make in [lambda text: support_prompt(text, {}), prior_prompt, answer_prompt]:
        assert "x" * MAX_CLAIM in make("x" * MAX_CLAIM).user
        with pytest.raises(ModelFault) as raised:
            make("x" * (MAX_CLAIM + 1))
        assert raised.value.code == "too_long"
    judge, text = Judge(), "word " * MAX_CLAIM
    found = verify_claim(text, text, client=judge, config=FULL)
    assert (found.flag_reason, judge.requests) == ("verifier_unavailable", [])


def test_evidence_beyond_the_limit_is_left_out_the_prompt_says_so_and_a_model_that_has_not_seen_it_clears_nothing():
    """The limit holds however many passages there are, and however long their ids."""
    whole = support_prompt("c", {"a": "x" * MAX_EVIDENCE})
    cut = support_prompt("c", {"a": "x" * (MAX_EVIDENCE - 1), "b": "yy"})
    document = json.loads(cut.user.split("\n")[1])
    assert (whole.is_cut, cut.is_cut, document["evidence_is_cut"]) == (False, True, True)
    assert [len(passage["text"]) for passage in document["evidence"]] == [MAX_EVIDENCE - 1, 1]
    many = support_prompt("c", {f"{number:09}" * 100: "" for number in range(5_000)})
    assert len(json.loads(many.user.split("\n")[1])["evidence"]) == MAX_PASSAGES
    assert (many.is_cut, len(str(many)) < MAX_EVIDENCE + MAX_PASSAGES * 250) == (True, True)
    config = ALONE.model_copy(update={"model_may_clear": True})
    false, long = "Tokens are stored on a disk in the cellar.", "word " * MAX_EVIDENCE
    assert not verify_claim(false, TEXT, client=Judge(), config=config).is_flagged
    assert verify_claim(false, [TEXT, long], client=Judge(), config=config).is_flagged


def test_a_model_counts_its_own_tokens_or_they_are_estimated_and_prices_are_the_configured_ones():
    config = VerificationConfig(model_scope="all", mode="full", input_price=2, output_price=10)
    judge = Judge(ModelAnswer(YES, input_tokens=1_000, output_tokens=100, requests=2))
    report = detect_hallucinations(LONG, {"a": TEXT}, client=judge, config=config)
    assert [call.claim_id for call in report.calls[::2]] == [claim.claim_id for claim in report.claims]
    assert report.input_tokens == 1_000 * len(report.calls)
    counted = {(call.input_tokens, call.output_tokens, call.requests) for call in report.calls}
    assert counted == {(1_000, 100, 2)}
    assert report.calls[0].cost_usd == pytest.approx(0.003)
    assert report.cost_usd == pytest.approx(0.003 * len(report.calls))
    for counted in [-5, 5.5, math.nan, "7", True]:
        judge = Judge(ModelAnswer(YES, counted, counted, (), counted))
        report = detect_hallucinations(LONG, {"a": TEXT}, client=judge, config=ALONE)
        assert {call.output_tokens for call in report.calls} == {-(-len(YES) // 4)}
        assert {call.requests for call in report.calls} == {1}
        assert all(call.input_tokens > 100 for call in report.calls)


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
    half = Judge(ModelAnswer(said("supported", 1.0)), ModelAnswer("sure"))
    found = verify_claim(TEXT, TEXT, client=half, config=ALONE.model_copy(update={"samples": 2}))
    assert found.flag_reason == "verifier_unparseable", "an answer that does not parse is no pass"


def test_whatever_a_client_returns_or_raises_is_no_pass_and_no_exception_and_a_fault_is_told_by_its_code():
    for code, reason in [("truncated", "verifier_unparseable"), ("refused", "verifier_unavailable")]:
        fault = ModelFault(code, requests=3, input_tokens=7, output_tokens=9)
        report = detect_hallucinations(LONG, {"a": TEXT}, client=Judge(fault), config=ALONE)
        assert {claim.flag_reason for claim in report.claims} == {reason}
        first = report.calls[0]
        assert (first.fault, first.requests, first.input_tokens, first.output_tokens) == (code, 3, 7, 9)
    judge = Judge(ModelAnswer(said("contradicted", 0.0)))
    assert verify_claim(TEXT, TEXT, client=judge, config=ALONE).flag_reason == "contradicted"
    for text in ("certainly", "1.7"):
        assert (
            verify_claim(TEXT, TEXT, client=Judge(ModelAnswer(text)), config=ALONE).method == "deterministic"
        )

    class Slow:
        async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
            await asyncio.Event().wait()

    hasty = ALONE.model_copy(update={"timeout_seconds": 0.01})
    assert verify_claim(TEXT, TEXT, client=Slow(), config=hasty).flag_reason == "verifier_unavailable"
    for returned in [
        *(None, OSError()),
        ModelAnswer(None),
        ModelAnswer(b"0.9"),
        ModelAnswer("0.9", tokens=None),
        ModelAnswer(YES, tokens=("a",)),
        ModelAnswer(YES, tokens=tuple(LogprobToken(char, "x", {}) for char in YES)),
        ModelFault("timeout", requests=-1, input_tokens=-1, output_tokens=math.nan),
        ModelFault(None),
        ModelFault(""),
        SystemExit(3),
        asyncio.CancelledError(),
    ]:
        is_number = isinstance(returned, ModelAnswer) and returned.text == "0.9"
        found = verify_claim(TEXT, TEXT, client=Judge(returned), config=ALONE)
        assert found.is_flagged or is_number
        assert found.flag_reason in {"verifier_unavailable", None}
    with pytest.raises(KeyboardInterrupt):
        verify_claim(TEXT, TEXT, client=Judge(KeyboardInterrupt()), config=ALONE)
    assert verify_claim(TEXT, TEXT, client=Judge(ModelAnswer(YES)), config=ALONE).method == "model"


async def test_the_same_question_is_asked_once_also_at_the_same_time_unless_it_failed():
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
    assert {reply.opinion for reply in replies} == {replies[0].opinion}
    judge = Judge(ModelAnswer("sure"), ModelFault("timeout"), ModelAnswer(YES))
    faults = []
    for _ in range(4):
        reply = await ask(judge, support_prompt(TEXT, {}), FULL, claim_id="a")
        faults.append(reply.call.fault)
    assert (faults, len(judge.requests)) == (["unparseable", "timeout", None, None], 3)


def test_a_question_that_may_not_fit_the_budget_or_its_time_is_not_asked_and_what_one_did_not_cost_is_free():
    now = [0.0]
    budget = Budget(VerificationConfig(budget_seconds=30, timeout_seconds=10), lambda: now[0])
    assert budget.seconds == 10
    now[0] = 25
    assert budget.seconds == 5
    judge = Judge()
    now[0] = 30
    reply = asyncio.run(ask(judge, prior_prompt(TEXT), FULL, claim_id="a", budget=budget))
    assert (reply.call.fault, judge.requests) == ("over_budget", [])
    limits = {"budget_tokens": 700, "budget_usd": 0.000_5}
    for limit in [*limits.items(), *((f"{name}_per_minute", most) for name, most in limits.items())]:
        judge = Judge()
        config = ALONE.model_copy(update=dict([limit]))
        report = detect_hallucinations(LONG, {"a": TEXT}, client=judge, config=config)
        assert len(judge.requests) == 1
        assert [call.fault for call in report.calls] == [None, "over_budget"]
        assert [claim.flag_reason for claim in report.claims] == [None, "verifier_unavailable"]
        assert report.calls[1].cost_usd == report.calls[1].requests == 0
    config = VerificationConfig(budget_tokens=100, budget_tokens_per_minute=60)
    budget, minute = Budget(config), Ledger(60)
    assert budget.reserve(minute, 70, 0.0) is None
    assert budget.reserve(minute, 60, 0.0), "one for which the minute has no room costs the response nothing"
    judge = Judge(ModelAnswer(YES, input_tokens=1, output_tokens=1))
    config = ALONE.model_copy(update={"budget_tokens": 800, "parallel_verification": False})
    detect_hallucinations(LONG, {"a": TEXT}, client=judge, config=config)
    assert len(judge.requests) == 2


@given(st.lists(st.integers(0, 50)), st.integers(0, 100))
def test_a_ledger_never_holds_more_than_its_limit_and_forgets_after_its_window(sizes, most):
    now = [0.0]
    ledger = Ledger(60, lambda: now[0])
    limits = {"most_tokens": most, "most_usd": 1.0}
    kept = [size for size in sizes if ledger.reserve(size, 0.0, **limits)]
    assert sum(kept) <= most
    now[0] = 60.0
    assert ledger.reserve(most, 0.0, **limits)


def test_plain_functions_share_one_loop_to_which_a_client_may_bind_and_on_which_it_may_not_wait_for_another():
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

    class Nested(Judge):
        async def answer(self, request):
            verify_claim(TEXT, "other", client=Judge())
            return await super().answer(request)

    found = verify_claim(TEXT, TEXT, client=Nested(), config=ALONE)
    assert found.flag_reason == "verifier_unavailable"


def test_a_model_is_shown_the_passages_that_bind_a_claim_and_all_where_none_does():
    cache = "The cache lives in Dublin."
    for claim, passages in [
        (TEXT, [True, False]),
        (cache, [False, True]),
        ("Penguins sing loudly.", [True, True]),
    ]:
        judge = Judge()
        context = {"a": f"{TEXT} Requests are signed.", "b": f"{cache} It is small."}
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


class Slotted:
    __slots__ = ("asked",)

    def __init__(self):
        self.asked = 0

    async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
        self.asked += 1
        return YES


class Unhashable(Slotted):
    __hash__ = None


def test_each_client_has_a_memory_and_a_minutes_budget_of_its_own_hashable_or_not_until_it_is_gone():
    for make in [Unhashable, Slotted]:
        client = make()
        for _ in range(2):
            detect_hallucinations(LONG, {"a": TEXT}, client=client, config=ALONE)
        assert client.asked == 2
        poor = make()
        config = ALONE.model_copy(update={"budget_tokens_per_minute": 700})
        for number in range(5):
            verify_claim(f"{TEXT} {number}", TEXT, client=poor, config=config)
        assert poor.asked == 1

    @dataclasses.dataclass(frozen=True)
    class Equal:
        name: str

    memories = Memories()
    one, other = Equal("a"), Equal("a")
    reply = Equal("reply")
    memories.of(one).keep("question", reply)
    assert memories.of(one).known("question") is reply
    assert memories.of(other).known("question") is None
    gone = weakref.ref(reply)
    del reply
    del one
    gc.collect()
    assert gone() is None
    # of clients that nothing refers to weakly, the last ones are held
    clients = [Slotted() for _ in range(17)]
    for client in clients:
        memories.of(client).keep("question", "reply")
    assert [memories.of(client).known("question") for client in clients[1:]] == ["reply"] * 16
    assert memories.of(clients[0]).known("question") is None


def test_where_verification_is_disabled_or_evidence_is_blank_no_function_asks_a_model():
    """S4-37, S4-41, S4-42, S4-43, S4-68."""
    client = Unhashable()
    off = ALONE.model_copy(update={"enabled": False})
    assert not verify_claim(TEXT, TEXT, client=client, config=off).is_flagged
    audit_reasoning([{"claim": TEXT, "cites": ["a"]}], {"a": TEXT}, client=client, config=off)
    detect_hallucinations(LONG, {"a": TEXT}, client=client, config=off)
    evidence_dependence("How often?", TEXT, TEXT, client=client, config=off)
    for blank in ["", " \n\t"]:
        verify_claim(TEXT, [blank], client=client, config=ALONE)
        audit_reasoning(
            [{"claim": TEXT, "cites": ["a"]}], {"a": blank, "b": TEXT}, client=client, config=ALONE
        )
        assert detect_hallucinations(LONG, {"a": blank}, client=client, config=ALONE).verified_claims == 0
    assert client.asked == 0


def test_lines_of_costs_add_up_to_the_total_by_kind_and_a_free_response_has_no_share():
    timeout = "support", False, "timeout"
    calls = [("prior", False, None), ("support", True, None), timeout, ("answer", False, None)]
    made = [
        ModelCall(claim_id="c", kind=kind, cached=known, input_tokens=number, cost_usd=0.5, fault=fault)
        for number, (kind, known, fault) in enumerate(calls)
    ]
    report = cost_report(made, base_usd=4)
    expected = [("support", 2, 1, 1), ("prior", 1, 0, 0), ("answer", 1, 0, 0)]
    assert [line[:4] for line in report.lines] == expected
    for place, total in enumerate(report.total[1:], start=1):
        assert sum(line[place] for line in report.lines) == total
    assert (report.share, cost_report([], base_usd=0).share) == (0.5, None)
    for wrong in (-1, math.nan):
        with pytest.raises(ValueError, match="base_usd"):
            cost_report([], base_usd=wrong)


def test_in_sample_mode_a_small_model_costs_less_than_a_tenth_of_a_response_of_a_large_one():
    """The response: 5 chunks of 1,500 characters and 10 sentences of 100, at 3 and 15 dollars a million tokens.

    Of its prompt only the chunks are counted (S4-66).
    """

    class Brief(Judge):
        async def answer(self, request):
            verdict = "supported" if "evidence" in request.prompt else "true"
            return ModelAnswer(said(verdict, reason="it is stated there " * 3))

    sentence = "The part {} of the gateway waits {} seconds before it asks again, and gives up after the third answer."
    chunks = {f"chunk {part}": "\n".join([sentence.format(part, part)] * 15) for part in range(5)}
    answer = " ".join(sentence.format(number % 5, number % 5) for number in range(10))
    base = (sum(map(len, chunks.values())) / 4 * 3 + len(answer) / 4 * 15) / 1e6
    made = []
    for seed in range(20):
        config = VerificationConfig(model_scope="all", sample_seed=str(seed))
        made += detect_hallucinations(answer, chunks, client=Brief(), config=config).calls
    report = cost_report(made, base_usd=base * 20)
    assert report.total.questions > 60
    assert 0 < report.share < 0.1


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
