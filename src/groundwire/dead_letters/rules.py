"""Which letters may go back, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from groundwire.client.kafka import MAX_RECORD_BYTES
from groundwire.client.produce import INPUT_TOPICS
from groundwire.dead_letters.ledger import Redriven
from groundwire.dead_letters.letters import Letter
from groundwire.errors import ErrorCode

WINDOW: Final = 100
"""Most records that are about to be sent at once."""

WINDOW_BYTES: Final = 4_000_000
"""Bytes from which on no more are added: all of it is to be acknowledged in time."""

_CODES: Final = frozenset(ErrorCode)
_HEADER_BYTES: Final = 12  # lengths around a header and its share of the batch, at most
_RECORD_BYTES: Final = 200


class Outcome(StrEnum):
    """What becomes of a letter; `redrive` in a dry run: it would be sent."""

    REDRIVE = "redrive"
    REDRIVEN = "redriven"
    SKIPPED = "skipped"
    REFUSED = "refused"


class Why(StrEnum):
    """Why a letter is not sent. The list is closed."""

    ALREADY_REDRIVEN = "already_redriven"
    NOT_A_DEAD_LETTER = "not_a_dead_letter"
    NOT_AN_INPUT_TOPIC = "not_an_input_topic"
    TOO_MANY_ATTEMPTS = "too_many_attempts"
    TOO_LARGE = "too_large"


@dataclass(frozen=True, slots=True)
class Step:
    """A letter and what became of it.

    Attributes:
        why: of those that are not sent.
        redriven: when and to where, of those that were sent, now or earlier.
    """

    letter: Letter
    outcome: Outcome
    why: Why | None = None
    redriven: Redriven | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """How letters are sent back.

    Attributes:
        prefix: of the deployment's topics.
        actor: who does it, as the audit names them.
        max_attempts: a record that has failed so often is not sent again.
        limit: stop after so many; None: no limit.
        rate: at most so many records a second.
        stop_after: stop once so many have failed again: workers pause at a hundred in a row.
    """

    prefix: str
    actor: str
    max_attempts: int = 3
    limit: int | None = None
    rate: float = 50.0
    stop_after: int = 20

    def full(self, letters: Sequence[Letter]) -> bool:
        """Tell whether so many are sent at once: those of a second, and no more than a slow line can take."""
        most = max(1, min(WINDOW, int(self.rate)))
        return len(letters) >= most or sum(map(_size, letters)) >= WINDOW_BYTES

    @property
    def topics(self) -> list[str]:
        """The input topics of the deployment: no other is ever written to."""
        return [f"{self.prefix}{name}" for name in INPUT_TOPICS]

    def why_not(self, letter: Letter) -> Why | None:
        """Return why a letter may not be sent; None where it may.

        A header's word is not enough for a topic: only this deployment's input topics are written to.
        """
        failed = letter.failed
        if failed.code not in _CODES or letter.attempts is None or letter.failure is None:
            return Why.NOT_A_DEAD_LETTER
        if failed.topic not in self.topics:
            return Why.NOT_AN_INPUT_TOPIC
        if letter.attempts >= self.max_attempts:
            return Why.TOO_MANY_ATTEMPTS
        return Why.TOO_LARGE if _size(letter) > MAX_RECORD_BYTES else None


def _size(letter: Letter) -> int:
    """Return about how many bytes a record takes, and never fewer."""
    headers = sum(len(name.encode()) + len(value or b"") + _HEADER_BYTES for name, value in letter.again)
    return len(letter.record.key or b"") + len(letter.record.value or b"") + headers + _RECORD_BYTES
