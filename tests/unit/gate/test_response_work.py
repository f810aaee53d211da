"""The budget of work of a response: counted, the same on every machine, and as much as its checks really do."""

from __future__ import annotations

import sys
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.gate import response_checks
from groundwire.gate.response_checks import WORK, ClaimReport, read_response
from groundwire.messages.decode import decode_response
from groundwire.messages.records import LlmResponse
from groundwire.policy import Policy
from groundwire.text.work import OverBudget, bounded, spend
from tests.unit.gate.world import World, chunk, response_bytes

FRAGMENTS = (
    "The gate waits 30 s before it asks again. ", "It does not retry. ", "1 ", "20 ms, ", "Ab Cd. ", "# a b\n",
    "|a|2|\n", "- 5 of 7\n", "x = 3\n", "`f1.x_1` ", "[1] ", "[source:1] ", "all but some; ",
    "on 3 May 2021 and 4 June 2022, ",
    "no one never ", "\n", "key:\n  ", "$5-10 million ", "word ", "\u00bd ", "is it so? ",
)  # fmt: skip
SIZE = 20_000
SMALL = 30_000
"""Units of work in these tests: what is counted differs in no way from the whole."""


def response(answer: str, evidence: str) -> LlmResponse:
    return decode_response(response_bytes("r1", answer, chunks=[chunk(evidence)]))


def calls_of(read: LlmResponse) -> int:
    """Count the calls of Python's functions, its own included, that reading a response takes."""
    count = 0

    def note(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        read_response(read, Policy())
    finally:
        sys.setprofile(None)
    return count


@given(
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5),
    st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=5),
)
def test_whatever_a_response_holds_its_checks_do_no_more_than_their_budget(
    said: list[str], there: list[str]
) -> None:
    # Calls of functions that a unit of work stands for at most.
    calls_table = 12
    answer, evidence = ("".join(said) * SIZE)[:SIZE], ("".join(there) * SIZE)[:SIZE]
    with patch.object(response_checks, "WORK", SMALL):
        assert calls_of(response(answer, evidence)) < calls_table * SMALL


async def test_the_decision_past_the_budget_names_the_checks_that_did_not_end() -> None:
    sentences = " ".join(
        f"Part {n} of the gateway waits before it asks part {n + 1} again." for n in range(9_000)
    )
    world = World()
    (decision,) = await world.decide(world.response(answer=sentences, chunks=[chunk("The gateway waits.")]))
    assert decision.reason_code == "check_unavailable"
    assert "claims_unavailable" in decision.checks_failed
    assert "claims=OverBudget" in (decision.facts.error or "")


def test_two_hundred_kilobytes_of_prose_are_within_the_budget() -> None:
    evidence = " ".join(
        f"Part {n % 97} of the gateway waits before it asks part {n % 89} again." for n in range(3_000)
    )
    reading = read_response(response(evidence[:2_000], evidence), Policy())
    assert isinstance(reading.claims, ClaimReport)


def test_work_is_counted_within_a_budget_only() -> None:
    spend(10 * WORK)
    with bounded(3):
        spend(3)
        with pytest.raises(OverBudget):
            spend(1)
        with pytest.raises(OverBudget):
            spend(1)
