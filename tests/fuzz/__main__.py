"""`python -m tests.fuzz --seed 7 --inputs 100000`: hostile input for every entry, by pytest and Hypothesis.

Hypothesis prints the input's seed where one fails; the next run on this machine begins with it.
"""

from __future__ import annotations

import argparse
import sys
import time

import pytest
from hypothesis import settings

SHARES = 108
"""Inputs of all entries together at 20 examples."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all, shared among the entries")
    parser.add_argument("--only", default="", help="entries, as pytest's -k")
    given = parser.parse_args()
    examples = max(1, 20 * given.inputs // SHARES)
    settings.register_profile("groundwire-fuzz", deadline=None, max_examples=examples)
    options = ["--hypothesis-profile=groundwire-fuzz", f"--hypothesis-seed={given.seed}", "-k", given.only]
    options += [
        "-W",
        "ignore::pytest.PytestAssertRewriteWarning",
    ]  # hypothesis is imported before pytest starts
    return int(pytest.main(["tests/fuzz", "--timeout=0", "-v", *options]))


if __name__ == "__main__":
    sys.exit(main())
