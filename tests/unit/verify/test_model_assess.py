"""A response assessed by a model over HTTP: the facts, and the report that follows from them alone."""

import json

import pytest

from groundwire.epistemic.asking import assess
from groundwire.epistemic.plan import VerifierFacts, plan_response, report_of
from groundwire.epistemic.types import VerificationConfig

from .model_service import ANSWER, CONTEXT, FULL, good, model_of, replying
from .server import Reply, Server


@pytest.fixture(params=["openai", "anthropic"])
def api(request):
    return request.param


async def test_a_response_is_assessed_once_and_its_report_follows_from_the_facts_alone(server: Server, api):
    low = '{"verdict": "contradicted", "probability": 0.9, "reason": "It is in Cork."}'
    replying(server, api, Reply(500), good(api), good(api, text=low))
    config = FULL.model_copy(update={"parallel_verification": False})
    plan = plan_response(ANSWER, CONTEXT, config, ask=True)
    facts = await assess(plan, model_of(api, server), config)
    assert len(server.asked) == 3
    recorded = json.loads(facts.model_dump_json())
    again = VerifierFacts.model_validate(recorded)
    report = report_of(plan_response(ANSWER, CONTEXT, config, ask=False), again, config)
    assert report == report_of(plan, facts, config)
    assert [claim.flag_reason for claim in report.claims] == [None, "contradicted"]
    assert [call.requests for call in report.calls] == [2, 1]
    assert (report.input_tokens, report.output_tokens) == (240, 40)
    assert recorded["opinions"][1]["reason"] == "It is in Cork."
    assert len(server.asked) == 3


async def test_nothing_is_asked_where_nothing_is_due(server: Server, api):
    sampled = VerificationConfig(mode="sample", sample_rate=0.0)
    for config, text in ((sampled, ANSWER), (FULL, ANSWER[:50])):
        plan = plan_response(text, CONTEXT, config, ask=True)
        assert await assess(plan, model_of(api, server), config) is None
    assert server.asked == []


async def test_beyond_the_limit_of_claims_nothing_is_asked_and_the_facts_say_so(server: Server, api):
    replying(server, api, good(api))
    config = FULL.model_copy(update={"max_claims_per_response": 1})
    plan = plan_response(ANSWER, CONTEXT, config, ask=True)
    facts = await assess(plan, model_of(api, server), config)
    assert (len(server.asked), len(facts.opinions), facts.truncated) == (1, 1, 1)
    report = report_of(plan_response(ANSWER, CONTEXT, config, ask=False), facts, config)
    assert (report.model_claims, report.model_truncated) == (1, 1)
    assert [claim.method for claim in report.claims] == ["model", "deterministic"]
    assert report_of(plan, None, config).model_claims == 0
