"""What a language model is asked is counted, and is progress of the worker that asks."""

from __future__ import annotations

from prometheus_client import REGISTRY

from agents.pauses import Pauses
from agents.wiring import build_assessor, count_model
from groundwire.epistemic.facts import VerifierFacts
from groundwire.epistemic.types import ModelCall
from groundwire.verify.models import ModelLimits, OpenAIModel

SPENT = {"input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5}


def facts(*calls: ModelCall) -> VerifierFacts:
    return VerifierFacts(model="haiku", calls=list(calls))


def call(**fields: object) -> ModelCall:
    return ModelCall.model_validate({"claim_id": "r/claim#1", "kind": "support", **fields})


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"groundwire_model_{name}", labels) or 0.0


def all_values() -> dict[str, float]:
    kinds = {"kind": "support"}
    return {
        "answered": value("questions_total", **kinds, result="answered"),
        "cached": value("questions_total", **kinds, result="cached"),
        "timeout": value("questions_total", **kinds, result="timeout"),
        "requests": value("requests_total"),
        "input": value("tokens_total", direction="input"),
        "output": value("tokens_total", direction="output"),
        "usd": value("cost_usd_total"),
        "responses": value("seconds_count"),
        "seconds": value("seconds_sum"),
    }


def test_questions_are_counted_by_what_came_of_them_with_what_they_cost():
    before = all_values()
    count_model(
        facts(call(requests=2, **SPENT), call(cached=True, requests=0), call(fault="timeout", requests=3)),
        1.5,
    )
    after = all_values()
    assert {name: after[name] - before[name] for name in after} == {
        "answered": 1,
        "cached": 1,
        "timeout": 1,
        "requests": 5,
        "input": 100,
        "output": 20,
        "usd": 0.5,
        "responses": 1,
        "seconds": 1.5,
    }


def test_a_service_that_is_left_alone_is_shown_until_it_is_asked_again():
    count_model(facts(call(fault="paused", requests=0)), 0.0)
    assert value("paused") == 1
    count_model(facts(call(cached=True, requests=0), call(fault="over_budget", requests=0)), 0.0)
    assert value("paused") == 1, "nobody was asked: nothing is known"
    count_model(facts(call()), 0.0)
    assert value("paused") == 0


def test_each_response_that_was_asked_about_is_progress_and_every_fault_is_counted_from_0():
    now = [0.0]
    pauses = Pauses(lambda: now[0])
    pauses.starts()
    assessor = build_assessor(OpenAIModel("http://127.0.0.1:1", limits=ModelLimits(concurrency=7)), pauses)
    now[0] = 100.0
    pauses.tick()
    assert not pauses.alive(60)
    assessor.told(facts(call()), 1.0)
    assert pauses.alive(60)
    assert pauses.ready() is False, "it has not joined its group"
    assert assessor.at_once == 3
    labels = {"kind": "prior", "result": "unreachable"}
    assert REGISTRY.get_sample_value("groundwire_model_questions_total", labels) is not None
