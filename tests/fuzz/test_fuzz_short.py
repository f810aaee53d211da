"""A short run over every entry, with a seed that is always the same."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from groundwire.logs import report_fault
from tests.fuzz.entries import ENTRIES
from tests.fuzz.inputs import CANARY, mutated, written
from tests.fuzz.runner import Entry, Failed, hold, listening, quiet, run, seeds

SHARE = 40


@pytest.mark.parametrize("name", ENTRIES)
def test_whatever_comes_in_is_decided_or_refused_by_name_and_nothing_unchecked_is_approved(name):
    report = run(ENTRIES[name], list(seeds(20260131, name, SHARE * ENTRIES[name].share)), most=3)
    assert report.inputs > 0
    assert not report.failures, "\n".join(f"--replay {seed}\n{why}" for seed, why in report.failures.items())


def test_a_seed_makes_the_same_input_again():
    value = {"a": [1, "text", None], "b": {"c": True}}
    made = [
        [written(Random(f"x:1.{n}"), mutated(Random(f"x:1.{n}"), value, 1)) for n in range(200)]
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert len(set(made[0])) > 100


async def _broken(rng: Random) -> int:
    if rng.random() < 0.5:
        raise ValueError("planted")
    return 1


def test_a_planted_fault_is_found_with_the_seed_of_its_input():
    @asynccontextmanager
    async def opened():
        yield _broken

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
    hold(promise=True, told="")


ROOT = Path(__file__).parents[2]
THREATS = (ROOT / "docs/trust/threat-model.md").read_text("utf-8")


def test_each_test_that_the_threat_model_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", THREATS))
    written = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named - set(re.findall(r"def (test_\w+)\(", written)) == set()
