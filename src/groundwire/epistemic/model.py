"""The port to a language model, and what its answers cost (S4-47, S4-66, S4-69, C-66).

A client is any object with `async complete(prompt, *, model) -> str`. A `Model` also counts tokens, gives
log-probabilities where its service offers them, keeps to a time limit, and says why there is no answer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from groundwire.epistemic.types import ModelCall
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
    """The least that verification needs of a language model."""

    async def complete(self, prompt: str, *, model: str) -> str: ...


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A question to a `Model`."""

    prompt: str = field(repr=False)  # what the user says
    model: str  # its name
    system: str = field(default="", repr=False)  # what the operator says
    max_tokens: int = 300  # of the answer
    temperature: float = 0.0  # 0.0 for the likeliest answer, 1.0 for a sample
    timeout: float = 30.0  # seconds for all of it, repeated requests included


@dataclass(frozen=True, slots=True)
class LogprobToken:
    """A token of an answer: its natural log-probability, and those of its alternatives."""

    text: str
    logprob: float
    others: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a `Model` answered; counts of tokens are the service's, None where it does not count."""

    text: str = field(repr=False)
    input_tokens: int | None = None
    output_tokens: int | None = None
    tokens: tuple[LogprobToken, ...] = field(default=(), repr=False)  # of the whole text, where offered
    requests: int = 1  # that it took, failed ones included


class ModelFault(GroundwireError):
    """A model gave no answer that counts. Neither prompt, nor answer, nor key is part of it.

    `code` says why, `requests` how many were made; tokens are those that the service counted all the same, None where
    unknown.
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
    """A client that gives more than text; usable wherever a `Client` is."""

    @abstractmethod
    async def answer(self, request: ModelRequest) -> ModelAnswer:
        """Return the model's answer. Raises: ModelFault, there is none that counts."""

    async def complete(self, prompt: str, *, model: str) -> str:
        """Return the model's reply to a prompt. Raises: ModelFault."""
        return (await self.answer(ModelRequest(prompt, model))).text


class CostLine(NamedTuple):
    """What the questions of a kind cost; `questions` includes those answered from the cache, `known`."""

    kind: str
    questions: int
    known: int
    failed: int
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class CostReport(NamedTuple):
    """What verification cost."""

    lines: tuple[CostLine, ...]  # one for each kind of question that was asked: support, prior, answer
    total: CostLine
    base_usd: float  # what the response itself cost
    share: float | None  # of it, 0.1 for a tenth; None where the response cost nothing


def cost_report(calls: Iterable[ModelCall], *, base_usd: float) -> CostReport:
    """Return what calls cost, by kind of question, beside the US dollars that their responses cost.

    Raises: ValueError, `base_usd` is less than nothing, or no number.
    """
    if not base_usd >= 0:
        raise ValueError(f"base_usd: must be 0 or more, got {base_usd!r}")
    calls = list(calls)
    by_kind = {kind: [call for call in calls if call.kind == kind] for kind in ("support", "prior", "answer")}
    lines = tuple(_line(kind, found) for kind, found in by_kind.items() if found)
    total = _line("total", calls)
    return CostReport(lines, total, base_usd, total.cost_usd / base_usd if base_usd else None)


def _line(kind: str, calls: list[ModelCall]) -> CostLine:
    return CostLine(
        kind,
        len(calls),
        sum(call.cached for call in calls),
        sum(call.fault is not None for call in calls),
        sum(call.requests for call in calls),
        sum(call.input_tokens for call in calls),
        sum(call.output_tokens for call in calls),
        sum(call.cost_usd for call in calls),
    )
