"""Dead letters: read by commands and console, and sent back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Final

from groundwire.dead_letters.letters import Selection, read_letter
from groundwire.dead_letters.redrive import Redrive
from groundwire.dead_letters.rules import Outcome, Rules
from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.base import from_milliseconds
from groundwire.messages.headers import dead_letter_headers
from tests.fuzz import examples
from tests.fuzz.entry import Case, Entry, hold, listening, quiet, read_strictly
from tests.fuzz.structure import any_value, mutated, written
from tests.fuzz.texts import scratched, text
from tests.unit.dead_letters.fake_log import AUDIT, CLAIMS, DEAD, PREFIX, FakeLog

INPUTS: Final = (CLAIMS, f"{PREFIX}llm-responses", f"{PREFIX}review-decisions")


async def _asleep(_seconds: float) -> None:
    """Wait for nobody."""


def some_letter(rng: Random) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return key, value and headers of a dead letter as the gate writes it, with some of it broken."""
    value: bytes | None = written(rng, mutated(rng, examples.claim(rng)))
    topic = rng.choice((*INPUTS, CLAIMS, f"{PREFIX}approved", "other.claims", text(rng)[:60])).encode(
        "utf-8", "replace"
    )
    error = RecordError(rng.choice(list(ErrorCode)), text(rng).encode("utf-8", "replace").decode())
    headers: list[tuple[str, bytes | None]] = list(
        dead_letter_headers(error, topic.decode(), rng.choice((0, 2)), rng.choice((0, 7, 2**62)), ())
    )
    for _ in range(rng.choice((0, 0, 1, 2))):
        name, held = headers.pop(rng.randrange(len(headers)))
        broken = rng.choice((None, b"", b"-1", b"9" * 30, "\u0663".encode(), scratched(rng, held or b"")))
        if rng.random() < 0.7:
            headers.insert(rng.randint(0, len(headers)), (name, broken))
    if rng.random() < 0.3:
        headers.append(
            (text(rng)[:40].encode("utf-8", "replace").decode(), rng.choice((None, b"x", b"\xff")))
        )
    key = rng.choice(
        (b"default:ada", b"acme:ann", None, b"", b":", b"\xff", text(rng).encode("utf-8", "replace"))
    )
    return key, rng.choice((value, value, value, None, b"", b"\xff")), headers


class Letters:
    """Puts letters and audit records on topics, and has them read and sent back, twice."""

    def __init__(self, heard: Callable[[], str]) -> None:
        self._heard = heard

    async def __call__(self, rng: Random) -> int:
        """Put one to four letters there."""
        log = FakeLog()
        size = 0
        for _ in range(rng.randint(1, 4)):
            key, value, headers = some_letter(rng)
            size += len(value or b"")
            read_letter(log.put(DEAD, key, value, headers))
        for _ in range(rng.choice((0, 0, 1))):
            log.put(AUDIT, b"", written(rng, any_value(rng)))
        before = {topic: len(records) for topic, records in log.topics.items()}
        steps = await self._redriven(log)
        sent = [step for step in steps if step.outcome == Outcome.REDRIVEN]
        written_to = {topic for topic, records in log.topics.items() if len(records) > before.get(topic, 0)}
        hold(written_to <= {AUDIT, *INPUTS}, f"written to {sorted(written_to)}")
        for step in sent:
            again = log.topics[step.letter.failed.topic]
            hold(any(one.value == step.letter.record.value and one.key == step.letter.record.key for one in again),
                 "a record went back with other bytes")  # fmt: skip
        for record in log.topics[AUDIT][before.get(AUDIT, 0) :]:
            read_strictly(record.value)
        hold(
            not any(step.outcome == Outcome.REDRIVEN for step in await self._redriven(log)), "sent back twice"
        )
        quiet(self._heard())
        return size

    async def _redriven(self, log: FakeLog) -> list:  # type: ignore[type-arg]
        run = Redrive(
            log, Selection(), Rules(PREFIX, "ann"), now=lambda: from_milliseconds(log.clock), sleep=_asleep
        )  # type: ignore[arg-type]
        return [step async for step in run.run()]


@asynccontextmanager
async def _opened() -> AsyncIterator[Case]:
    with listening() as heard:
        yield Letters(heard)


ENTRIES: Final = (Entry("letters", _opened, 6),)
