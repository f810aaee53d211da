"""Asks a model: bounded in time and cost, cached, counted.

Whatever a client does wrong (an exception, no answer in time, something other than text, an answer that does not
parse) is a fault of that question, never a pass and never an exception.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

from groundwire.epistemic.budget import Ledger, Purse, book
from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.memories import Memories
from groundwire.epistemic.model import Answer, Client, Fault, Model, ModelFault, Request
from groundwire.epistemic.prompts import Prompt
from groundwire.epistemic.replies import Judgement, read_reply
from groundwire.epistemic.types import ModelCall

_BYTES: Final = 4  # of a token, about; where the client does not count
_MILLION: Final = 1_000_000
_MOST: Final = 10**9  # tokens: no answer has as many
_GRACE: Final = 1.0  # seconds beyond its own time limit after which a Model is not waited for either

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back.

    Attributes:
        call: what it cost, and the fault where nothing counts.
        judgement: what was read; None where a question is no judgement, or has no answer that counts.
        text: of an answer to an open question.
    """

    call: ModelCall
    judgement: Judgement | None = None
    text: str | None = None


_memories: Final[Memories[Reply]] = Memories()


async def ask(
    client: Client,
    prompt: Prompt,
    config: VerificationConfig,
    *,
    claim_id: str,
    purse: Purse | None = None,
    sample: int = 0,
) -> Reply:
    """Put a question to a model, or take the reply to the same question from the cache (S4-46, S4-47).

    Args:
        client: the model.
        prompt: the question.
        config: name of the model, prices, limits.
        claim_id: whom the call is counted for.
        purse: what the response may still cost; a full one where none is given.
        sample: which of several answers to the same question.
    """
    purse = purse or Purse(config)
    key = (config.verification_model, prompt.key, config.samples > 1, sample)
    memory = _memories.of(client)
    async with purse.turn(key):
        known = memory.known(key)
        if known is not None:
            call = _call(prompt, claim_id, cached=True, requests=0)
            return Reply(call, known.judgement, known.text)
        reply = await _put(client, prompt, config, claim_id, purse, memory.minute)
    if reply.call.fault is None:
        memory.keep(key, reply)
    else:
        logger.warning("verification model: %s", reply.call.fault)
    return reply


async def _put(
    client: Client,
    prompt: Prompt,
    config: VerificationConfig,
    claim_id: str,
    purse: Purse,
    minute: Ledger,
) -> Reply:
    sent = _tokens(str(prompt))
    most = _price(config, sent, config.max_output_tokens)
    entries = purse.reserve(minute, sent + config.max_output_tokens, most)
    if entries is None or purse.seconds <= 0:
        book(entries or [], 0, 0.0)
        return Reply(_call(prompt, claim_id, requests=0, fault="over_budget"))
    try:
        answer = await _answer(client, prompt, config, purse.seconds)
        reply = _read(prompt, claim_id, answer, config, sent)
    except ModelFault as fault:
        used = (_or(fault.input_tokens, sent), _or(fault.output_tokens, 0))
        call = _call(prompt, claim_id, used, config, requests=_or(fault.requests, 1), fault=_code(fault))
        reply = Reply(call)
    except (
        Exception,
        SystemExit,
        asyncio.CancelledError,
    ) as exc:  # any failure of a client: it is unavailable
        if isinstance(exc, asyncio.CancelledError) and _is_called_off():
            raise  # the entries stand: nobody knows what it cost
        reply = Reply(_call(prompt, claim_id, (sent, 0), config, fault="failed"))
    book(entries, reply.call.input_tokens + reply.call.output_tokens, reply.call.cost_usd)
    return reply


async def _answer(client: Client, prompt: Prompt, config: VerificationConfig, seconds: float) -> Answer:
    if isinstance(client, Model):
        request = Request(
            prompt.user,
            config.verification_model,
            prompt.system,
            config.max_output_tokens,
            1.0 if config.samples > 1 else 0.0,
            seconds,
        )
        given: object = await _in_time(client.answer(request), seconds + _GRACE)
    else:
        given = await _in_time(client.complete(str(prompt), model=config.verification_model), seconds)
    if isinstance(given, str):
        return Answer(given)
    if not isinstance(given, Answer) or not isinstance(given.text, str):
        raise ModelFault("failed", requests=1, input_tokens=None)
    return given


async def _in_time(answer: Awaitable[object], seconds: float) -> object:
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise ModelFault("timeout", requests=1, input_tokens=None) from None


def _read(prompt: Prompt, claim_id: str, answer: Answer, config: VerificationConfig, sent: int) -> Reply:
    used = (_or(answer.input_tokens, sent), _or(answer.output_tokens, _tokens(answer.text)))
    requests = _or(answer.requests, 1)
    if prompt.kind == "answer":
        return Reply(_call(prompt, claim_id, used, config, requests=requests), text=answer.text)
    judgement = read_reply(prompt.kind, answer)
    fault: Fault | None = "unparseable" if judgement is None else None
    return Reply(_call(prompt, claim_id, used, config, requests=requests, fault=fault), judgement)


def _call(
    prompt: Prompt,
    claim_id: str,
    used: tuple[int, int] = (0, 0),
    config: VerificationConfig | None = None,
    *,
    cached: bool = False,
    requests: int = 1,
    fault: Fault | None = None,
) -> ModelCall:
    return ModelCall(
        claim_id=claim_id,
        kind=prompt.kind,
        cached=cached,
        input_tokens=used[0],
        output_tokens=used[1],
        cost_usd=_price(config, *used) if config else 0.0,
        requests=requests,
        fault=fault,
    )


def _price(config: VerificationConfig, sent: int, received: int) -> float:
    return (sent * config.input_price + received * config.output_price) / _MILLION


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // _BYTES)


def _or(counted: object, about: int) -> int:
    """Return a number that a client told, or another one where it is none."""
    return counted if type(counted) is int and 0 <= counted <= _MOST else about


def _code(fault: ModelFault) -> Fault:
    return fault.code if isinstance(fault.code, str) and fault.code else "failed"


def _is_called_off() -> bool:
    """Tell whether it is we who are to end, rather than a client that says so of its own."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
