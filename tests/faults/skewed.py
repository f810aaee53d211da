"""A worker whose clock is wrong: `python -m tests.faults.skewed SECONDS ROLE`.

It is the clock that Groundwire and its Kafka client ask, not the one that timers run on: no machine's NTP turns
that one. (libfaketime does not go with Python's threads: it breaks `time.sleep`, or waiting for a lock.)
"""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo
from importlib import import_module

ASKING = ("agents.process", "agents.wiring", "groundwire.verify.results")
"""The modules that ask for the time by `datetime.now`; all others are given it."""


def skew(seconds: float) -> None:
    """Put this process's clock forward, or back."""
    real = time.time
    time.time = lambda: real() + seconds

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    for name in ASKING:
        import_module(name).datetime = Skewed  # type: ignore[attr-defined]


if __name__ == "__main__":
    skew(float(sys.argv[1]))
    main = import_module("agents.__main__").main
    main(sys.argv[2:], prog_name="python -m agents")
