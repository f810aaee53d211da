"""What an entailment model is asked, and what the gate makes of its scores."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from groundwire.checks.support.verify import check_answer
from groundwire.cli.evaluate import evaluate
from groundwire.epistemic.claims import ScoredClaim
from groundwire.epistemic.entailment import Entailed, EntailmentModel, Pair, window
from groundwire.epistemic.plan import plan_response
from groundwire.epistemic.types import AS_SCORED, VerificationConfig
from groundwire.gate.lookups import Assessor
from groundwire.library.calibrate import fit_head
from groundwire.library.epistemic import detect_hallucinations, evidence_dependence, verify_claim
from groundwire.library.evaluate import Judged
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import decode_response
from groundwire.policy import Policy, load_policy
from groundwire.replay.derive import decide_response as derive
from tests.unit.gate.world import World, chunk, summary
from tests.unit.verify.tiny_onnx import write_model

NAME = f"tiny@{'0' * 16}"
PASSAGE = (
    "Ada leads the payments team. Bea leads the search team. The gateway retries failed requests 3 times."
)
SWAPPED = "The failed gateway retries requests 3 times."
TOLD = "Failed requests are tried again by the gateway."


class Stub(EntailmentModel):
    """Says of claims what it was given, of others that they are stated."""

    def __init__(self) -> None:
        super().__init__(NAME)
        self.says: dict[str, float] = {}
        self.runs: list[Sequence[Pair]] = []
        self.began, self.free = threading.Event(), threading.Event()
        self.free.set()

    def run(self, pairs: Sequence[Pair]) -> list[Entailed]:
        self.runs.append(pairs)
        self.began.set()
        self.free.wait(60)
        return [Entailed(self.says.get(pair.claim, 0.98)) for pair in pairs]


def of(claim: str, score: float) -> Stub:
    stub = Stub()
    stub.says = {claim: score}
    return stub


def policy(**keys: Any) -> Policy:
    config = VerificationConfig(entailment_model=NAME, **keys)
    return Policy(check_values=False, verification=config)


async def decided(
    answer: str, stub: Stub, given: Policy | None = None, text: str = PASSAGE
) -> tuple[Decision, bytes]:
    """Return the decision, and what verification derives from its facts, with no model to ask."""
    given = given or policy()
    world = World(policy=given, assessor=Assessor(stub))
    record = world.response(answer=answer, chunks=[chunk(text)])
    (decision,) = await world.decide(record)
    again = derive(decision, record.value or b"", decode_response(record.value), given)
    return decision, again.to_bytes()


async def test_every_statement_that_no_passage_makes_in_its_words_is_scored_and_the_score_is_a_fact():
    stub = of(SWAPPED, 0.03126)
    decision, again = await decided(f"Bea leads the search team. {SWAPPED}", stub)
    ((asked,),) = stub.runs
    assert asked == Pair(PASSAGE, SWAPPED), "the rules are sure of it, and the answer is short"
    assert summary(decision) == ("tier_2", "flagged_claims")
    verifier = decision.facts.verifier
    assert (verifier["model"], verifier["opinions"][0]["support"]) == (NAME, 0.0313)
    assert again == decision.to_bytes()
    assert len(stub.runs) == 1


async def test_a_score_lowers_a_verdict_and_outweighs_what_rules_find_only_where_the_policy_lets_it():
    wrong = "The gateway retries failed requests 5 times."
    invented = "Its console shows each of them in a table of colours."
    for answer in (wrong, invented):
        kept, _ = await decided(answer, Stub())
        assert summary(kept) == ("tier_2", "flagged_claims")
        cleared, again = await decided(answer, Stub(), policy(model_may_clear=True))
        assert summary(cleared) == ("tier_1", "grounded")
        assert again == cleared.to_bytes()
        weighed = policy(model_may_clear=True, entailment_head=(0.0, 1.0, 0.0, -9.0))
        assert (await decided(wrong, Stub(), weighed))[0].verdict == "review", "by the weight of a hard fault"
    phantom, _ = await decided(f"{TOLD} [source:9]", Stub(), policy(model_may_clear=True))
    assert phantom.verdict == "review"


async def test_doubts_of_a_model_add_up_over_an_answer_and_what_a_point_holds_every_stricter_one_holds():
    claims = [f"The {what} of the gateway waits." for what in ("queue", "client", "server", "table")]
    for scores, held in (
        ((0.98, 0.98, 0.98, 0.98), ""),
        ((0.8, 0.98, 0.98, 0.98), ""),
        ((0.6, 0.98, 0.98, 0.98), "strict balanced"),
        ((0.8, 0.8, 0.8, 0.8), "strict balanced lenient"),
    ):
        for point in ("strict", "balanced", "lenient"):
            stub = Stub()
            stub.says = dict(zip(claims, scores, strict=True))
            given = policy(operating_point=point, model_may_clear=True)
            decision, _ = await decided(" ".join(claims), stub, given)
            assert (decision.verdict == "review") == (point in held.split()), (scores, point)


async def test_pairs_of_several_records_are_run_together_and_a_known_pair_is_not_run_again():
    stub = Stub()
    stub.free.clear()
    first = asyncio.create_task(stub.score(Pair("a", "b")))
    await asyncio.to_thread(stub.began.wait, 60)
    others = [asyncio.create_task(stub.score(Pair(name, "b"))) for name in "cdef"]
    await asyncio.sleep(0)
    others[0].cancel()
    await asyncio.gather(others[0], return_exceptions=True)
    stub.free.set()
    await asyncio.gather(first, *others[1:])
    assert [len(pairs) for pairs in stub.runs] == [1, 3], "one is not asked any more"
    assert [known for _, known in await asyncio.gather(*(stub.score(Pair(name, "b")) for name in "aef"))] == [
        True
    ] * 3
    assert len(stub.runs) == 2


async def test_what_has_no_score_within_the_budget_or_of_a_broken_model_is_a_review():
    stub = Stub()
    stub.free.clear()
    decision, again = await decided(TOLD, stub, policy(budget_seconds=0.001))
    stub.free.set()
    assert summary(decision) == ("tier_2", "check_unavailable")
    assert again == decision.to_bytes()
    stub.run = lambda _: 1 / 0  # type: ignore[assignment]
    decision, _ = await decided(TOLD, stub)
    assert decision.facts.verifier["calls"][0]["fault"] == "failed"
    assert decision.report["epistemic"]["claims"][0]["flag_reason"] == "verifier_unavailable"
    assert stub.trouble == "ZeroDivisionError"


def test_a_claim_is_held_against_the_sentences_that_bind_its_words_and_those_beside_them():
    filler = [f"Sentence number {n} is about nothing of the kind." for n in range(80)]
    long = " ".join(
        (
            *filler[:40],
            "It was founded late.",
            PASSAGE.split(". ", maxsplit=1)[0] + ".",
            "So it is.",
            *filler[40:],
        )
    )
    (claim,) = check_answer("The payments team has Ada as its lead.", {"a": long, "b": "Nothing."}).claims
    assert window(claim, {"a": long, "b": "Nothing."}) == (
        "It was founded late. Ada leads the payments team. So it is."
    )
    assert window(claim, {"b": "Nothing."}) == "Nothing.", "none of them is given"
    many = {name: f"{name} {long}" for name in "abc"}
    assert len(window(replace(claim, places=()), many)) <= 3_010


def test_the_library_takes_the_model_as_a_client_and_it_answers_no_open_question():
    config = policy(model_may_clear=True).verification
    report = detect_hallucinations(SWAPPED, {"a": PASSAGE}, client=of(SWAPPED, 0.1), config=config)
    assert (report.is_flagged, report.claims[0].method) == (True, "model")
    claim = verify_claim(TOLD, PASSAGE, client=Stub(), config=config)
    assert (claim.evidence_support, claim.is_flagged) == (0.98, False)
    with pytest.raises(RuntimeError, match="gave no answer"):
        evidence_dependence("How often?", TOLD, PASSAGE, client=Stub(), config=config)
    plan = plan_response(SWAPPED, {}, config, ask=True)
    assert not plan.due, "nothing is held against no evidence"


def test_a_head_learns_from_labels_of_whole_answers_how_far_a_model_is_to_be_believed():
    """Of a model that errs in a tenth, a score of .98 is worth about .9, and what rules say counts beside it."""
    drawn = random.Random(1)
    rows = []
    for number in range(400):
        wrongs = [drawn.random() < 0.1 for _ in range(5)]
        told = [wrong != (drawn.random() < 0.1) for wrong in wrongs]
        rules = [drawn.choice((0.3, 0.9) if wrong else (0.9, 0.99)) for wrong in wrongs]
        scored = [ScoredClaim(0.02 if t else 0.98, r, hard=False) for t, r in zip(told, rules, strict=True)]
        row = Judged(1.0, 1.0, 9, declared=False, supported=not any(wrongs), group=str(number))
        rows.append(row._replace(scored=tuple(scored)))
    head = fit_head(rows)
    assert 0.3 < head[1] < 0.9
    assert head[2] > 0.1
    assert (
        ScoredClaim(0.98, 0.99, hard=False).support(head)
        > 0.95
        > ScoredClaim(0.02, 0.9, hard=False).support(head)
    )


def test_calibration_writes_the_head_and_the_threshold_that_its_labels_give(tmp_path, monkeypatch):
    from groundwire.verify.models.onnx import OnnxModel  # noqa: PLC0415 - takes a moment

    folder, file = write_model(tmp_path / "tiny"), tmp_path / "policy.toml"
    name = OnnxModel(folder).name
    file.write_text(f'[verification]\nmodel_may_clear = true\nentailment_model = "{name}"\n')
    rows = [
        {"answer": f"claim {n} is so", "evidence": f"this is {word} {n}", "label": label, "group": str(n)}
        for n in range(30)
        for word, label in (("stated", True), ("denied", False))
    ]
    monkeypatch.setenv("GROUNDWIRE_MODEL_API", "entailment")
    monkeypatch.setenv("GROUNDWIRE_MODEL_FOLDER", str(folder))
    data = "\n".join(map(json.dumps, rows))
    result = CliRunner().invoke(
        evaluate, ["-", "--calibrate", "--policy", str(file), "--draws", "10"], input=data
    )
    assert result.exit_code == 0, result.output
    assert "on sources held out from the choice: 0 of 30 supported rows flagged" in result.output
    head = load_policy(file, {}).verification.entailment_head
    assert head[1] > 0.1
    assert head != AS_SCORED
    again = CliRunner().invoke(
        evaluate, ["-", "--policy", str(file), "--format", "json", "--draws", "10"], input=data
    )
    verdicts = json.loads(again.stdout)["verdicts"]
    assert (verdicts["false_alarms"], verdicts["missed"]) == (0, 0)
