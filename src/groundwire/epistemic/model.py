"""The port to a language model: the least that a client is, and what one that knows more gives beside the text.

A client is any object with `async complete(prompt, *, model) -> str`. A `Model` also counts tokens, gives
log-probabilities where its service offers them, keeps to a time limit, and says why there is no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from groundwire.errors import GroundwireError

Fault = Literal[
    "timeout",
    "unreachable",
    "rate_limited",
    "server_error",
    "unauthorized",
    "rejected",
    "refused",
    "truncated",
    "malformed",
    "paused",
    "busy",
    "over_budget",
    "too_long",
    "unparseable",
    "failed",
]
"""Why a question has no answer that counts. `failed` is whatever a client of another make raised."""


class Client(Protocol):
    """What verification asks of a language model, at the least."""

    async def complete(self, prompt: str, *, model: str) -> str:
        """Return the model's reply to a prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a `Model`.

    Attributes:
        prompt: what the user says.
        model: name of the model.
        system: what the operator says.
        max_tokens: of the answer.
        temperature: 0.0 for the likeliest answer, 1.0 for a sample.
        timeout: seconds for all of it, repeated requests included.
    """

    prompt: str = field(repr=False)
    model: str
    system: str = field(default="", repr=False)
    max_tokens: int = 300
    temperature: float = 0.0
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Token:
    """A token of an answer: its natural log-probability, and those of what might have stood there instead."""

    text: str
    logprob: float
    others: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a `Model` answered.

    Attributes:
        text: all of it.
        input_tokens: as the service counted; None where it did not.
        output_tokens: the same.
        tokens: those of the text in order, where the service offers log-probabilities; else none.
        requests: that it took, failed ones included.
    """

    text: str = field(repr=False)
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens: tuple[Token, ...] = field(default=(), repr=False)
    requests: int = 1


class ModelFault(GroundwireError):
    """A model gave no answer that counts.

    Neither prompt, nor answer, nor key is part of it.

    Attributes:
        code: why.
        requests: that were made.
        input_tokens: that the service counted all the same; None where nobody knows.
        output_tokens: the same.
    """

    def __init__(
        self,
        code: Fault,
        detail: str = "",
        *,
        requests: int = 0,
        input_tokens: int | None = 0,
        output_tokens: int | None = 0,
    ) -> None:
        super().__init__(f"{code}: {detail}" if detail else code)
        self.code: Fault = code
        self.requests = requests
        self.input_tokens = input_tokens
        self.output_tokens = output_tokens


class Model(ABC):
    """A client that says more than text; usable wherever a `Client` is."""

    @abstractmethod
    async def answer(self, request: Request) -> Answer:
        """Return the model's answer.

        Raises:
            ModelFault: there is none that counts.
        """

    async def complete(self, prompt: str, *, model: str) -> str:
        """Return the model's reply to a prompt. Raises: ModelFault."""
        return (await self.answer(Request(prompt, model))).text
