"""What questions to a model may cost: of one response, and within a minute (S4-47).

A question is asked only where the most that it can cost still fits; what it did cost is booked instead afterwards.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from groundwire.epistemic.config import VerificationConfig

MINUTE = 60.0


@dataclass(slots=True)
class Entry:
    """What a question costs: at first the most that it can."""

    at: float
    tokens: int
    usd: float


@dataclass(slots=True)
class Ledger:
    """Sums what was spent within the last seconds; safe to use from several threads.

    Args:
        window: seconds after which an entry no longer counts.
        clock: monotonic seconds.
    """

    window: float = math.inf
    clock: Callable[[], float] = time.monotonic
    _entries: deque[Entry] = field(default_factory=deque, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def reserve(self, tokens: int, usd: float, *, most_tokens: int, most_usd: float) -> Entry | None:
        """Return an entry of that much, or None where it does not fit."""
        with self._lock:
            now = self.clock()
            while self._entries and self._entries[0].at <= now - self.window:
                self._entries.popleft()
            spent = sum(entry.tokens for entry in self._entries)
            paid = sum(entry.usd for entry in self._entries)
            if spent + tokens > most_tokens or paid + usd > most_usd:
                return None
            entry = Entry(now, tokens, usd)
            self._entries.append(entry)
            return entry


class Purse:
    """What one response may still cost, in tokens, dollars and seconds; belongs to one event loop.

    Args:
        config: the limits.
        clock: monotonic seconds.
    """

    def __init__(self, config: VerificationConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._clock = clock
        self._deadline = clock() + config.budget_seconds
        self._ledger = Ledger(clock=clock)
        self._turns: defaultdict[Hashable, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def seconds(self) -> float:
        """Time that a question may take now; 0 or less where none is left."""
        return min(self._config.timeout_seconds, self._deadline - self._clock())

    def turn(self, key: Hashable) -> asyncio.Lock:
        """Return what makes the same question wait for its own answer, which is then known."""
        return self._turns[key]

    def reserve(self, minute: Ledger, tokens: int, usd: float) -> list[Entry] | None:
        """Return the entries of a question, in this purse and in the minute's ledger; None where one has no room."""
        config = self._config
        own = self._ledger.reserve(tokens, usd, most_tokens=config.budget_tokens, most_usd=config.budget_usd)
        if own is None:
            return None
        shared = minute.reserve(
            tokens,
            usd,
            most_tokens=config.budget_tokens_per_minute,
            most_usd=config.budget_usd_per_minute,
        )
        if shared is None:
            book([own], 0, 0.0)
            return None
        return [own, shared]


def book(entries: list[Entry], tokens: int, usd: float) -> None:
    """Put in what a question did cost."""
    for entry in entries:
        entry.tokens, entry.usd = tokens, usd
