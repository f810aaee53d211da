"""A short run over every entry, with a seed that is always the same."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from groundwire.logs import report_fault
from tests.fuzz.entries import ENTRIES
from tests.fuzz.inputs import CANARY, Dice, mutated, written
from tests.fuzz.runner import Entry, Failed, listening, quiet, run, seeds


def failures_of(inputs: int) -> list[str]:
    failed = []
    for name, entry in ENTRIES.items():
        report = run(entry, list(seeds(20260131, name, inputs * entry.share)), most=3)
        assert report.inputs > 0
        failed += [f"--replay {seed}\n{why}" for seed, why in report.failures.items()]
    return failed


def test_hostile_input_is_decided_or_refused_by_name_and_nothing_unchecked_is_approved():
    failed = failures_of(1)
    assert not failed, "\n".join(failed)


@pytest.mark.slow
def test_hostile_input_is_decided_or_refused_by_name_in_a_longer_run():
    failed = failures_of(40)
    assert not failed, "\n".join(failed)


def test_a_seed_makes_the_same_input_again():
    value = {"a": [1, "text", None], "b": {"c": True}}

    def made():
        return [written(Dice(f"x:1.{n}"), mutated(Dice(f"x:1.{n}"), value, 1)) for n in range(200)]

    assert made() == made()
    assert len(set(made())) > 100


def test_a_planted_fault_is_found_with_the_seed_of_its_input():
    async def broken(rng: Dice) -> int:
        if rng.chance(0.5):
            raise ValueError("planted")
        return 1

    @asynccontextmanager
    async def opened():
        yield broken

    report = run(Entry("broken", opened), list(seeds(1, "broken", 50)), most=100)
    assert (report.inputs, 10 < report.failed < 40) == (50, True)
    (seed, *_) = report.failures
    assert run(Entry("broken", opened), [seed]).failed == 1


def test_a_text_in_a_log_and_a_fault_inside_are_found():
    with pytest.raises(Failed):
        quiet(f"decided {CANARY}")
    with listening() as heard:
        report_fault("claim.unreadable", ValueError("x"))
        with pytest.raises(Failed, match="broke inside"):
            quiet(heard())
