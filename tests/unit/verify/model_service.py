"""A language model for tests: a server that speaks both APIs, and what a client of it is made with."""

import json

import pytest

from groundwire.epistemic.model import ModelFault, ModelRequest
from groundwire.epistemic.types import VerificationConfig
from groundwire.verify.models import AnthropicModel, ModelLimits, OpenAIModel

from .server import Reply

KEY = "sk-0123456789-secret"
YES = '{"verdict": "supported", "probability": 0.9}'
PATHS = {"openai": "/chat/completions", "anthropic": "/v1/messages"}
KINDS = {"openai": OpenAIModel, "anthropic": AnthropicModel}
QUESTION = ModelRequest("the data", "haiku", "the instructions", timeout=30)
FULL = VerificationConfig(model_scope="all", mode="full", evidence_scrubbing=False)
TEXT = "The gateway retries failed requests 3 times and waits 30 seconds between attempts."
ANSWER = TEXT + " The cache of the gateway is located in Dublin."
CONTEXT = {"a": TEXT, "b": "The cache of the gateway is located in Dublin."}


def document(api, text=YES, end="good", sent=120, received=20):
    if api == "openai":
        ends = {"good": "stop", "truncated": "length", "refused": "content_filter"}
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": ends.get(end, end)}
        return {"choices": [choice], "usage": {"prompt_tokens": sent, "completion_tokens": received}}
    ends = {"good": "end_turn", "truncated": "max_tokens", "refused": "refusal"}
    usage = {"input_tokens": sent - 100, "cache_read_input_tokens": 100, "output_tokens": received}
    return {"content": [{"type": "text", "text": text}], "stop_reason": ends.get(end, end), "usage": usage}


def good(api, **other):
    return Reply(body=json.dumps(document(api, **other)).encode())


def replying(server, api, *replies):
    left = list(replies)
    server.routes[PATHS[api]] = lambda _: left.pop(0) if len(left) > 1 else left[0]


def model_of(api, server, **other):
    given = {"limits": ModelLimits(attempts=3, failures=100), "backoff": lambda _failures: 0.0} | other
    return KINDS[api](server.url(""), KEY, **given)


async def fault_of(model, request=QUESTION):
    with pytest.raises(ModelFault) as raised:
        await model.answer(request)
    return raised.value
