"""Graceful degradation for whoever generates answers: a lower mode, then the sources alone.

Requirements S2-24..S2-27, C-45, C-46.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

from groundwire.arguments import settled
from groundwire.library.events import emit
from groundwire.messages.events import Event

Response = Mapping[str, Any]
Pipeline = Callable[[str], Awaitable[Response] | Response]
Validate = Callable[[Response], Awaitable[float] | float]
Chunks = Iterable[Any] | Callable[[], Awaitable[Iterable[Any]] | Iterable[Any]]

CHAIN: Final = ("thinking", "auto", "instant")
"""Modes in the order in which they are tried, from the one asked for on."""

ENOUGH: Final = 0.5
"""Least validation confidence of an answer that is given (S2-24)."""


async def execute_with_fallback(
    mode: str, *, pipeline: Pipeline, validate: Validate, chunks: Chunks
) -> Response:
    """Answer in the mode asked for, or in the highest lower one that holds; never raise for the pipeline (S2-27).

    Args:
        mode: `thinking`, `auto` or `instant`.
        pipeline: awaited with a mode; gives a response mapping. A plain function will do too.
        validate: awaited with the response; gives its validation confidence, 0..1. What is none (NaN, a bool, text,
            above 1) counts as 0. A plain function will do too.
        chunks: what was retrieved, or a function that gives what has been gathered when it is called. Looked at
            only where no answer is given.

    Returns:
        The first response whose confidence is at least 0.5, as the pipeline gave it. Where even `instant` stays
        below, the sources alone: answer None, sources the chunks, confidence 0, complete False, no warnings, and
        `fallback` "raw_sources" (S2-25). At an exception of any part the same without `fallback`, with one warning
        of type PIPELINE_ERROR and the exception's message (S2-26).

    Raises:
        ValueError: there is no such mode.

    Example:
        >>> import asyncio
        >>> async def pipeline(mode):
        ...     return {"answer": f"in mode {mode}", "sources": [], "complete": True}
        >>> async def validate(response):
        ...     return 0.49 if "thinking" in response["answer"] else 0.5
        >>> asyncio.run(execute_with_fallback("thinking", pipeline=pipeline, validate=validate, chunks=[]))["answer"]
        'in mode auto'
    """
    if mode not in CHAIN:
        raise ValueError(f"mode: {mode!r} is none of {', '.join(CHAIN)}")
    try:
        for tried in CHAIN[CHAIN.index(mode) :]:
            response = await settled(pipeline(tried))
            if not isinstance(response, Mapping):
                raise TypeError(f"the pipeline gave {type(response).__name__}, not a mapping")  # noqa: TRY301 - as below
            confidence = await settled(validate(response))
            is_number = isinstance(confidence, (int, float)) and not isinstance(confidence, bool)
            if is_number and ENOUGH <= confidence <= 1:  # compared as it is, without rounding up to the limit
                return response
            emit(Event("fallback.degraded", {"mode": tried}, level="info"))
        return {**_without_answer(await _gathered(chunks)), "fallback": "raw_sources"}
    except Exception as error:  # noqa: BLE001 - whatever broke: partial results rather than failure (S2-26)
        emit(Event("fallback.pipeline_error", {"mode": mode, "error": type(error).__name__}))
        try:
            sources = await _gathered(chunks)
        except Exception:  # noqa: BLE001 - gathering broke too: then there is nothing to show
            sources = []
        try:
            message = str(error) or type(error).__name__
        except Exception:  # noqa: BLE001 - an exception of somebody else's: its text may be broken as well
            message = type(error).__name__
        return _without_answer(sources, {"type": "PIPELINE_ERROR", "message": message})


def _without_answer(sources: list[Any], *warnings: dict[str, str]) -> dict[str, Any]:
    return {
        "answer": None,
        "sources": sources,
        "confidence": 0.0,
        "complete": False,
        "warnings": list(warnings),
    }


async def _gathered(chunks: Chunks) -> list[Any]:
    return list(await settled(chunks() if callable(chunks) else chunks))
