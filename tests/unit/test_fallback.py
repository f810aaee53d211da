"""Graceful degradation: the chain of modes, what comes back at its end, and what an exception leads to.

Requirements S2-24..S2-27, S2-38, C-45, C-46.
"""

import asyncio
import math
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.library.events import StandardSink, use_sink
from groundwire.library.fallback import CHAIN, execute_with_fallback

CHUNKS = [{"chunk_id": "k1", "file": "a.md", "content": "topK: 5"}]
EMPTY = {"answer": None, "sources": CHUNKS, "confidence": 0, "complete": False, "warnings": []}
RAW = {**EMPTY, "fallback": "raw_sources"}


def answer(mode):
    return {"answer": f"in {mode}", "sources": [{"file": "a.md"}], "confidence": 0.9, "complete": True}


def run(mode="thinking", *, confidences=(), pipeline=answer, validate=None, chunks=CHUNKS):
    """Run with these confidences for the modes in the order tried; return the result and the modes."""
    left, tried = list(confidences), []

    async def generate(mode):
        tried.append(mode)
        return pipeline(mode)

    async def judge(response):
        return validate(response) if validate else left.pop(0)

    result = asyncio.run(execute_with_fallback(mode, pipeline=generate, validate=judge, chunks=chunks))
    return result, tried


def failed(message, sources=CHUNKS):
    """The response at an exception, with exactly these parts (S2-26)."""
    return {**EMPTY, "sources": sources, "warnings": [{"type": "PIPELINE_ERROR", "message": message}]}


def raising(error):
    def part(_=None):
        raise error

    return part


@given(
    st.sampled_from(CHAIN),
    st.lists(st.floats(allow_nan=True) | st.booleans() | st.none(), min_size=3, max_size=3),
)
def test_the_first_mode_that_holds_answers_none_after_it_is_asked_and_the_chain_ends_in_the_sources(
    mode, confidences
):
    chain = CHAIN[CHAIN.index(mode) :]
    holds = [m for m, c in zip(chain, confidences, strict=False) if isinstance(c, float) and 0.5 <= c <= 1]
    result, tried = run(mode, confidences=confidences)
    assert result == (answer(holds[0]) if holds else RAW)
    assert tried == list(chain[: chain.index(holds[0]) + 1] if holds else chain)


def test_one_half_is_enough_and_a_confidence_that_is_none_or_just_below_gives_no_answer():
    given_answer = answer("auto")
    assert run("auto", confidences=[0.5], pipeline=lambda _: given_answer)[0] is given_answer
    nothing = [math.nan, math.inf, True, "0.9", None, 85, [0.9], {}, object(), math.nextafter(0.5, 0)]
    assert [one for one in nothing if run("instant", confidences=[one])[0] != RAW] == []


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


def test_an_exception_of_any_part_gives_the_sources_and_a_warning_with_its_message_or_its_class():
    for part in ("pipeline", "validate"):
        for error in (ValueError("no model"), KeyError("chunks")):
            assert run(**{part: raising(error)})[0] == failed(str(error))
    for error, message in ((TimeoutError(), "TimeoutError"), (Speechless(), "Speechless")):
        assert run(pipeline=raising(error))[0] == failed(message)
    for value in (None, "text", ["list"]):
        message = f"the pipeline gave {type(value).__name__}, not a mapping"
        assert run(pipeline=lambda _, value=value: value)[0] == failed(message)


def test_sources_are_what_was_gathered_until_then_and_gathering_that_breaks_leaves_none():
    gathered = []

    def pipeline(mode):
        gathered.append(mode)
        return raising(RuntimeError("gone"))() if mode == "instant" else answer(mode)

    expected = failed("gone", ["thinking", "auto", "instant"]), ["thinking", "auto", "instant"]
    for chunks in (lambda: gathered, gathered):
        gathered.clear()
        assert run(confidences=[0, 0], pipeline=pipeline, chunks=chunks) == expected

    async def later():
        return iter(CHUNKS)

    assert run("instant", confidences=[0], chunks=later)[0] == RAW
    broken = raising(OSError("index closed"))
    assert run("instant", confidences=[0], chunks=broken)[0] == failed("index closed", [])
    for none in (broken, None):
        assert run(pipeline=raising(RuntimeError("no model")), chunks=none)[0] == failed("no model", [])
    assert run("auto", confidences=[0.7], chunks=lambda: 1 / 0)[0] == answer("auto"), "not looked at"


def test_plain_functions_will_do_an_unknown_mode_is_named_and_events_say_without_any_text_that_it_degraded():
    made = execute_with_fallback("auto", pipeline=answer, validate=lambda _: 0.8, chunks=CHUNKS)
    assert asyncio.run(made) == answer("auto")
    for mode in ["", "fast", "THINKING", None]:
        with pytest.raises(ValueError, match="thinking, auto, instant"):
            run(mode)
    sink = Mock(spec=["try_emit"])
    use_sink(sink)
    try:
        run(confidences=[0.2], pipeline=lambda mode: answer(mode) if mode != "auto" else 1 / 0)
    finally:
        use_sink(StandardSink())
    assert [call.args for call in sink.try_emit.call_args_list] == [
        ("fallback.degraded", {"mode": "thinking"}),
        ("fallback.pipeline_error", {"mode": "thinking", "error": "ZeroDivisionError"}),
    ]


async def test_a_caller_that_is_cancelled_is_cancelled():
    begun = asyncio.Event()

    async def pipeline(_):
        begun.set()
        await asyncio.Event().wait()

    made = execute_with_fallback("auto", pipeline=pipeline, validate=lambda _: 1.0, chunks=CHUNKS)
    task = asyncio.create_task(made)
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
