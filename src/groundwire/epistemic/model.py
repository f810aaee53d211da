"""Asks a model: bounded in time, cached, counted; and runs its coroutines for plain functions.

A client is any object with `async complete(prompt, *, model) -> str`. Whatever it does wrong (an exception, no answer
in time, something other than text) is an unavailable verifier for that claim, never a pass and never an exception.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Coroutine, MutableMapping
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

from groundwire.epistemic.config import VerificationConfig
from groundwire.epistemic.prompts import parse_score
from groundwire.epistemic.types import ModelCall

_T = TypeVar("_T")
_CACHED: Final = 1_024  # replies per client
_CHARACTERS: Final = 4  # of a token, about; where the client does not count
_MILLION: Final = 1_000_000

logger = logging.getLogger(__name__)


class Client(Protocol):
    """What verification asks of a language model."""

    async def complete(self, prompt: str, *, model: str) -> str:
        """Return the model's reply to a prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: `text` is None where the verifier was unavailable."""

    text: str | None
    call: ModelCall


_caches: MutableMapping[Client, OrderedDict[tuple[str, str], str]] = WeakKeyDictionary()
_lock = threading.Lock()


def run(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in an event loop of its own, on a thread of its own.

    So a plain function may ask a model wherever it is called, inside a running loop too.
    """
    outcome: list[_T] = []
    failure: list[BaseException] = []

    def work() -> None:
        try:
            outcome.append(asyncio.run(coroutine))
        except BaseException as exc:  # noqa: BLE001 - raised again where the caller waits
            failure.append(exc)

    thread = threading.Thread(target=work, name="groundwire-verifier", daemon=True)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]


async def ask(
    client: Client,
    prompt: str,
    config: VerificationConfig,
    *,
    claim_id: str,
    kind: Literal["support", "prior", "answer"],
) -> Reply:
    """Put a question to a model, or take the reply to the same question from the cache (S4-46, S4-47)."""
    key = (config.verification_model, prompt)
    cached = _remembered(client, key)
    if cached is not None:
        call = ModelCall(
            claim_id=claim_id, kind=kind, cached=True, input_tokens=0, output_tokens=0, cost_usd=0
        )
        return Reply(cached, call)
    text: str | None = None
    try:
        async with asyncio.timeout(config.timeout_seconds):
            given = await client.complete(prompt, model=config.verification_model)
        text = given if isinstance(given, str) else None
    except Exception as exc:  # noqa: BLE001 - any failure is an unavailable verifier
        logger.warning("verification model failed: %s", type(exc).__name__)
    if text is not None and (kind == "answer" or parse_score(text) is not None):
        _remember(client, key, text)
    sent, received = _tokens(prompt), _tokens(text or "")
    cost = (sent * config.input_price + received * config.output_price) / _MILLION
    call = ModelCall(
        claim_id=claim_id, kind=kind, cached=False, input_tokens=sent, output_tokens=received, cost_usd=cost
    )
    return Reply(text, call)


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARACTERS)


def _remembered(client: Client, key: tuple[str, str]) -> str | None:
    with _lock:
        try:
            replies = _caches.get(client)
        except TypeError:  # no weak references, or no hash: nothing is kept for it
            return None
        if replies is None or key not in replies:
            return None
        replies.move_to_end(key)
        return replies[key]


def _remember(client: Client, key: tuple[str, str], text: str) -> None:
    with _lock:
        try:
            replies = _caches.setdefault(client, OrderedDict())
        except TypeError:
            return
        replies[key] = text
        if len(replies) > _CACHED:
            replies.popitem(last=False)
