"""Graceful degradation: the chain of modes, what comes back at its end, and what an exception leads to.

Requirements S2-24..S2-27, S2-38, C-45, C-46.
"""

import asyncio
import doctest
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.library import fallback
from groundwire.library.events import StandardSink, use_sink
from groundwire.library.fallback import CHAIN, execute_with_fallback

CHUNKS = [{"chunk_id": "k1", "file": "a.md", "content": "topK: 5"}]


def answer(mode):
    return {"answer": f"in {mode}", "sources": [{"file": "a.md"}], "confidence": 0.9, "complete": True}


def run(mode="thinking", *, confidences=(), pipeline=None, validate=None, chunks=CHUNKS):
    """Run with these confidences for the modes in the order tried; return the result and the modes."""
    left, tried = list(confidences), []

    async def generate(mode):
        tried.append(mode)
        return await pipeline(mode) if pipeline else answer(mode)

    async def judge(response):
        return await validate(response) if validate else left.pop(0)

    result = asyncio.run(execute_with_fallback(mode, pipeline=generate, validate=judge, chunks=chunks))
    return result, tried


def failed(message, sources=CHUNKS):
    """The response at an exception, with exactly these parts (S2-26)."""
    warnings = [{"type": "PIPELINE_ERROR", "message": message}]
    return {"answer": None, "sources": sources, "confidence": 0, "complete": False, "warnings": warnings}


RAW = {
    "answer": None,
    "sources": CHUNKS,
    "confidence": 0,
    "complete": False,
    "warnings": [],
    "fallback": "raw_sources",
}


def returning(value):
    async def pipeline(_):
        return value

    return pipeline


def raising(error):
    async def pipeline(_):
        raise error

    return pipeline


def test_an_answer_that_holds_comes_back_as_the_pipeline_gave_it():
    for mode in CHAIN:
        given_answer = answer(mode)
        result, tried = run(mode, confidences=[0.5], pipeline=returning(given_answer))
        assert result is given_answer
        assert tried == [mode]


def test_below_one_half_a_lower_mode_is_tried():
    for mode, confidences, tried in [
        ("thinking", [0.49, 0.5], ["thinking", "auto"]),
        ("thinking", [math.nextafter(0.5, 0), 0, 0.9], ["thinking", "auto", "instant"]),
        ("auto", [0.49, 1.0], ["auto", "instant"]),
    ]:
        assert run(mode, confidences=confidences) == (answer(tried[-1]), tried)


def test_the_chain_ends_in_the_sources_alone():
    for mode in CHAIN:
        expected = list(CHAIN[CHAIN.index(mode) :])
        assert run(mode, confidences=[0.49, 0.3, 0.0]) == (RAW, expected)


def test_a_confidence_that_is_none_gives_no_answer():
    for confidence in [math.nan, math.inf, -math.inf, True, "0.9", None, 85, [0.9], {}, object()]:
        assert run("instant", confidences=[confidence])[0] == RAW


@given(
    st.sampled_from(CHAIN),
    st.lists(st.floats(allow_nan=True) | st.booleans() | st.none(), min_size=3, max_size=3),
)
def test_the_first_mode_that_holds_answers_and_none_after_it_is_asked(mode, confidences):
    chain = CHAIN[CHAIN.index(mode) :]
    holds = [m for m, c in zip(chain, confidences, strict=False) if isinstance(c, float) and 0.5 <= c <= 1]
    result, tried = run(mode, confidences=confidences)
    assert result == (answer(holds[0]) if holds else RAW)
    assert tried == list(chain[: chain.index(holds[0]) + 1] if holds else chain)


def test_an_exception_gives_the_sources_and_a_warning_with_its_message():
    for part in ("pipeline", "validate"):
        for error in (ValueError("no model"), TimeoutError("too slow"), KeyError("chunks")):
            assert run(**{part: raising(error)})[0] == failed(str(error))


def test_an_exception_in_a_lower_mode_does_the_same():
    async def pipeline(mode):
        if mode == "auto":
            raise RuntimeError("out of tokens")
        return answer(mode)

    assert run(confidences=[0.1], pipeline=pipeline) == (failed("out of tokens"), ["thinking", "auto"])


class Speechless(Exception):
    def __str__(self):
        raise RuntimeError("not even that")


def test_an_exception_without_a_message_gives_its_class_and_no_response_is_an_error_like_any_other():
    for error, message in ((TimeoutError(), "TimeoutError"), (Speechless(), "Speechless")):
        assert run(pipeline=raising(error))[0] == failed(message)
    for value in (None, "text", ["list"]):
        message = f"the pipeline gave {type(value).__name__}, not a mapping"
        assert run(pipeline=returning(value))[0] == failed(message)


def test_sources_are_what_was_gathered_until_then():
    gathered = []

    async def pipeline(mode):
        gathered.append(mode)
        if mode == "instant":
            raise RuntimeError("gone")
        return answer(mode)

    expected = failed("gone", ["thinking", "auto", "instant"])
    assert run(confidences=[0, 0], pipeline=pipeline, chunks=lambda: gathered)[0] == expected
    gathered.clear()
    assert run(confidences=[0, 0], pipeline=pipeline, chunks=gathered)[0] == expected

    async def later():
        return iter(CHUNKS)

    assert run("instant", confidences=[0], chunks=later)[0] == RAW


def test_gathering_that_breaks_leaves_no_sources_but_a_response():
    def chunks():
        raise OSError("index closed")

    assert run("instant", confidences=[0], chunks=chunks)[0] == failed("index closed", [])

    for none in (chunks, None):
        assert run(pipeline=raising(RuntimeError("no model")), chunks=none)[0] == failed("no model", [])


def test_chunks_are_not_looked_at_where_there_is_an_answer():
    assert run("auto", confidences=[0.7], chunks=lambda: 1 / 0)[0] == answer("auto")


def test_plain_functions_will_do():
    made = execute_with_fallback("auto", pipeline=answer, validate=lambda _: 0.8, chunks=CHUNKS)
    assert asyncio.run(made) == answer("auto")


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


def test_an_unknown_mode_is_an_error_that_names_it():
    for mode in ["", "fast", "THINKING", None]:
        with pytest.raises(ValueError, match="thinking, auto, instant"):
            run(mode)


@pytest.fixture
def events():
    """What is sent to the process's sink."""
    seen = []

    class Sink:
        def try_emit(self, event, payload):
            seen.append((event, payload))

    use_sink(Sink())
    yield seen
    use_sink(StandardSink())


def test_events_say_that_it_degraded_without_any_text(events):
    async def pipeline(mode):
        if mode == "auto":
            raise ValueError("secret text")
        return answer(mode)

    run(confidences=[0.2], pipeline=pipeline)
    assert events == [
        ("fallback.degraded", {"mode": "thinking"}),
        ("fallback.pipeline_error", {"mode": "thinking", "error": "ValueError"}),
    ]


def test_the_example_in_the_documentation_runs(events):
    result = doctest.testmod(fallback)
    assert (result.failed, result.attempted > 0) == (0, True)
