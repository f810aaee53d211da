"""A worker with a fault built in: `python -m tests.stream.faulty FAULT ROLE`.

Claims that hold the magic word, and actions whose id does, bring the fault about; all others are decided as ever.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from faust.types import TP

from agents.outputs import Output
from agents.publisher import ProducerBroken, Publisher
from agents.sealing import Sealer
from groundwire.gate import claims
from groundwire.gate.claim_case import ClaimReading, read_claim
from groundwire.policy import Policy
from groundwire.state.model import ReviewAnswer, ReviewRequest
from groundwire.state.redis import RedisState

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


def die_before_the_step() -> None:
    """Die when an action is about to be carried out."""

    async def review(self: RedisState, asks: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        if any(MAGIC in ask.action_id for ask in asks):
            _die()
        return await _review(self, asks)

    RedisState.review = review  # type: ignore[method-assign]


def die_after_the_step() -> None:
    """Die when state has carried an action out, and nobody knows yet."""

    async def review(self: RedisState, asks: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        answers = await _review(self, asks)
        if any(MAGIC in ask.action_id for ask in asks):
            _die()
        return answers

    RedisState.review = review  # type: ignore[method-assign]


def die_after_publishing() -> None:
    """Die when an action's outcome is acknowledged, and its offset not committed."""

    async def publish(self: Publisher, outputs: Sequence[Output]) -> list[Output]:
        refused = await _publish(self, outputs)
        if any(MAGIC.encode() in (output.cause.value or b"") for output in outputs):
            _die()
        return refused

    Publisher.publish = publish  # type: ignore[method-assign]


_review, _publish = RedisState.review, Publisher.publish
STAGES = {
    "before-step": die_before_the_step,
    "after-step": die_after_the_step,
    "after-publishing": die_after_publishing,
}


def die_before_sealing() -> None:
    """Die of SIGKILL when the first that was published is about to be sealed."""

    async def seal(self: Sealer, offsets: Mapping[TP, int]) -> dict[TP, tuple[int, str]]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    Sealer.seal = seal  # type: ignore[method-assign]


def plant(fault: Callable[[], None]) -> None:
    """Have the gate's reading of a text fail."""

    def faulty(content: str, policy: Policy) -> ClaimReading:
        if MAGIC in content:
            fault()
        return read_claim(content, policy)

    claims.read_claim = faulty


if __name__ == "__main__":
    from agents.__main__ import main

    fault = sys.argv[1]
    planted = STAGES | {"before-sealing": die_before_sealing}
    planted[fault]() if fault in planted else plant(FAULTS[fault])
    main(sys.argv[2:], prog_name="python -m agents")
