"""A worker with a fault built in: `python -m tests.stream.faulty FAULT ROLE`.

Claims that hold the magic word, and actions whose id does, bring the fault about; all others are decided as ever.
`skewed:SECONDS` puts the worker's clock forward, or back: the one that Groundwire and its Kafka client ask, not the one
that timers run on, which no machine's NTP turns. (libfaketime does not go with Python's threads.)
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from importlib import import_module
from typing import Any

from agents.publisher import ProducerBroken, Publisher
from agents.sealing import Sealer
from groundwire.gate import claims
from groundwire.gate.claim_case import ClaimReading, read_claim
from groundwire.policy import Policy
from groundwire.state.redis import RedisState

MAGIC = "xyzzy"
STAGES = ("before-step", "after-step", "after-publishing")


def die() -> None:
    os._exit(139)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise RuntimeError("no reading today")


def break_producer() -> None:
    """Let the next publication fail as it does after a hole in the producer's sequence."""

    async def publish(self: Publisher, outputs: object) -> None:
        raise ProducerBroken("OutOfOrderSequenceNumber")

    Publisher.publish = publish  # type: ignore[assignment]


def in_reading(fault: Callable[[], None]) -> None:
    """Bring a fault about when the gate reads a text with the magic word."""

    def faulty(content: str, policy: Policy) -> ClaimReading:
        if MAGIC in content:
            fault()
        return read_claim(content, policy)

    claims.read_claim = faulty


def in_call(
    fault: Callable[[], None], owner: type, method: str, bears: Callable[[Any], bool], *, after: bool = False
) -> None:
    """Bring a fault about before or after a call with something that bears the magic word."""
    done = getattr(owner, method)

    async def faulty(self: Any, given: Any) -> Any:
        if not after and bears(given):
            fault()
        answer = await done(self, given)
        if after and bears(given):
            fault()
        return answer

    setattr(owner, method, faulty)


def skew(seconds: float) -> None:
    real = time.time
    time.time = lambda: real() + seconds

    class Skewed(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(seconds=seconds)

    # the modules that ask for the time by `datetime.now`; all others are given it
    for name in ("agents.process", "agents.wiring", "groundwire.verify.results"):
        import_module(name).datetime = Skewed  # type: ignore[attr-defined]


def is_asked(asks: Any) -> bool:
    return any(MAGIC in ask.action_id for ask in asks)


def is_published(outputs: Any) -> bool:
    return any(MAGIC.encode() in (output.cause.value or b"") for output in outputs)


FAULTS: dict[str, Callable[[], None]] = {
    "die": lambda: in_reading(die),
    "raise": lambda: in_reading(fail),
    "producer": lambda: in_reading(break_producer),
    "before-step": lambda: in_call(die, RedisState, "review", is_asked),
    "after-step": lambda: in_call(die, RedisState, "review", is_asked, after=True),
    "after-publishing": lambda: in_call(die, Publisher, "publish", is_published, after=True),
    "before-sealing": lambda: in_call(kill, Sealer, "before_commit", lambda _: True),
}

if __name__ == "__main__":
    from agents.__main__ import main

    fault, _, seconds = sys.argv[1].partition(":")
    skew(float(seconds)) if fault == "skewed" else FAULTS[fault]()
    main(sys.argv[2:], prog_name="python -m agents")
