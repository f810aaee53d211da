"""A worker with a fault built in: `python -m tests.stream.faulty FAULT ROLE`.

Claims that hold the magic words bring the fault about; all others are decided as ever.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from agents.publisher import ProducerBroken, Publisher
from groundwire.decide.reading import Reading, read
from groundwire.gate import claims
from groundwire.policy import Policy

MAGIC = "xyzzy"


def _die() -> None:
    os._exit(139)


def _raise() -> None:
    raise RuntimeError("no reading today")


def _break_producer() -> None:
    """Let the next publication fail as it does after a hole in the producer's sequence."""

    async def publish(self: Publisher, outputs: object) -> None:
        raise ProducerBroken("OutOfOrderSequenceNumber")

    Publisher.publish = publish  # type: ignore[assignment]


FAULTS: dict[str, Callable[[], None]] = {"die": _die, "raise": _raise, "producer": _break_producer}


def plant(fault: Callable[[], None]) -> None:
    """Have the gate's reading of a text fail."""

    def faulty(content: str, policy: Policy) -> Reading:
        if MAGIC in content:
            fault()
        return read(content, policy)

    claims.read = faulty


if __name__ == "__main__":
    from agents.__main__ import main

    plant(FAULTS[sys.argv[1]])
    main(sys.argv[2:], prog_name="python -m agents")
