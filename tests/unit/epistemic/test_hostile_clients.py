"""Clients of any make: what they are, raise or return is no pass, no exception, and no way round a limit (S4-63)."""

import asyncio
import dataclasses
import gc
import json
import math
import weakref

import pytest

from groundwire.epistemic.asking import Memories
from groundwire.epistemic.model import LogprobToken, ModelAnswer, ModelFault
from groundwire.epistemic.prompts import MAX_EVIDENCE, MAX_PASSAGES, support_prompt
from groundwire.library.epistemic import (
    audit_reasoning,
    detect_hallucinations,
    evidence_dependence,
    verify_claim,
)

from .clients import ALONE, LONG, TEXT, YES, Judge


@dataclasses.dataclass
class Unhashable:
    """A client that has no hash."""

    asked: int = 0

    async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
        self.asked += 1
        return YES


class Slotted:
    """A client to which nothing can refer weakly."""

    __slots__ = ("asked",)

    def __init__(self):
        self.asked = 0

    async def complete(self, prompt, *, model):  # noqa: ARG002 - the port names its arguments
        self.asked += 1
        return YES


def test_a_client_without_hash_or_weak_references_is_cached_and_keeps_to_the_minutes_budget():
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


def test_clients_that_are_equal_have_a_memory_each_and_one_that_is_gone_has_none():
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


def test_of_clients_that_nothing_refers_to_weakly_the_last_ones_are_held():
    memories, clients = Memories(), [Slotted() for _ in range(17)]
    for client in clients:
        memories.of(client).keep("question", "reply")
    assert [memories.of(client).known("question") for client in clients[1:]] == ["reply"] * 16
    assert memories.of(clients[0]).known("question") is None


def test_whatever_a_client_returns_or_raises_is_no_pass_and_no_exception():
    for given in [
        None,
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
        given_number = isinstance(given, ModelAnswer) and given.text == "0.9"
        found = verify_claim(TEXT, TEXT, client=Judge(given), config=ALONE)
        assert found.is_flagged or given_number
        assert found.flag_reason in {"verifier_unavailable", None}


def test_a_count_that_is_none_is_estimated():
    for counted in [-5, 5.5, math.nan, "7", True]:
        report = detect_hallucinations(
            LONG, {"a": TEXT}, client=Judge(ModelAnswer(YES, counted, counted, (), counted)), config=ALONE
        )
        assert {call.output_tokens for call in report.calls} == {-(-len(YES) // 4)}
        assert {call.requests for call in report.calls} == {1}
        assert all(call.input_tokens > 100 for call in report.calls)


def test_a_client_that_wants_to_end_everything_ends_its_caller_alone():
    with pytest.raises(KeyboardInterrupt):
        verify_claim(TEXT, TEXT, client=Judge(KeyboardInterrupt()), config=ALONE)
    assert verify_claim(TEXT, TEXT, client=Judge(ModelAnswer(YES)), config=ALONE).method == "model"


def test_where_verification_is_disabled_no_function_asks_a_model():
    """S4-43, S4-68, S4-37, S4-42."""
    client = Unhashable()
    off = ALONE.model_copy(update={"enabled": False})
    assert not verify_claim(TEXT, TEXT, client=client, config=off).is_flagged
    audit_reasoning([{"claim": TEXT, "cites": ["a"]}], {"a": TEXT}, client=client, config=off)
    detect_hallucinations(LONG, {"a": TEXT}, client=client, config=off)
    evidence_dependence("How often?", TEXT, TEXT, client=client, config=off)
    assert client.asked == 0


def test_blank_evidence_is_none_and_nobody_is_asked():
    """S4-41."""
    for blank in ["", " \n\t"]:
        client = Unhashable()
        verify_claim(TEXT, [blank], client=client, config=ALONE)
        audit_reasoning(
            [{"claim": TEXT, "cites": ["a"]}], {"a": blank, "b": TEXT}, client=client, config=ALONE
        )
        assert detect_hallucinations(LONG, {"a": blank}, client=client, config=ALONE).verified_claims == 0
        assert client.asked == 0


def test_an_argument_of_another_type_is_named():
    for call, name in [
        (lambda: verify_claim("a", {"a": 7}), "evidence 'a'"),
        (lambda: verify_claim("a", None), "evidence"),
        (lambda: verify_claim("a", b"text"), "evidence"),
        (lambda: verify_claim("a", ["text", 7]), "evidence 2"),
        (lambda: verify_claim(None, "text"), "claim"),
        (lambda: detect_hallucinations("a", None), "context"),
        (lambda: detect_hallucinations("a", ["text"]), "context"),
        (lambda: detect_hallucinations("a", {1: "text"}), "id 1 of context"),
        (lambda: detect_hallucinations("a", {"a": None}), "context 'a'"),
        (lambda: audit_reasoning(None, {}), "steps"),
        (lambda: audit_reasoning({"claim": "a", "cites": []}, {}), "steps"),
        (lambda: audit_reasoning([], [("a", "text")]), "sources"),
    ]:
        with pytest.raises(TypeError, match=f"^{name}: "):
            call()


def test_a_threshold_that_is_no_share_is_named():
    for threshold in ["0.9", None, math.nan, -0.1, 1.1, True]:
        with pytest.raises(ValueError, match=r"^threshold must be"):
            verify_claim("a", "a", threshold)


def test_a_prompt_has_its_limit_however_many_passages_there_are_and_however_long_their_ids():
    evidence = {f"{number:09}" * 100: "" for number in range(5_000)}
    prompt = support_prompt("c", evidence)
    assert len(json.loads(prompt.user.split("\n")[1])["evidence"]) == MAX_PASSAGES
    assert (prompt.is_cut, len(str(prompt)) < MAX_EVIDENCE + MAX_PASSAGES * 250) == (True, True)
