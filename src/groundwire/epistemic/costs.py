"""What verification cost, beside the response that was verified (S4-47, S4-66, S4-69)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from groundwire.epistemic.types import ModelCall

_Kind = Literal["support", "prior", "answer"]


class CostLine(NamedTuple):
    """What the questions of a kind cost; `questions` counts those that were known already too."""

    kind: str
    questions: int
    known: int
    failed: int
    requests: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class CostReport(NamedTuple):
    """What verification cost.

    Attributes:
        lines: one for each kind of question that was asked, in the order support, prior, answer.
        total: their sum.
        base_usd: what the response itself cost.
        share: of it, as a number: 0.1 for a tenth; None where the response cost nothing.
    """

    lines: tuple[CostLine, ...]
    total: CostLine
    base_usd: float
    share: float | None


def cost_report(calls: Iterable[ModelCall], *, base_usd: float) -> CostReport:
    """Return what calls cost, by kind of question, beside what the response cost.

    Args:
        calls: of one response or of many.
        base_usd: US dollars that the responses themselves cost.

    Raises:
        ValueError: `base_usd` is less than nothing, or no number.
    """
    if not base_usd >= 0:
        raise ValueError(f"base_usd: must be 0 or more, got {base_usd!r}")
    calls = list(calls)
    kinds = [kind for kind in get_args(_Kind) if any(call.kind == kind for call in calls)]
    lines = tuple(_line(kind, [call for call in calls if call.kind == kind]) for kind in kinds)
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
