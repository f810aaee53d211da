"""How often an identity or an address may ask: token buckets in bounded memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

_MOST: Final = 20_000
"""Callers that are remembered; past it the one not heard of for longest is forgotten."""


class Rates:
    """Lets each caller through `per_minute` times a minute, at most so many at once.

    Attributes:
        per_minute: requests a minute.
    """

    def __init__(self, per_minute: int, monotonic: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._now = monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> float:
        """Count one request; return 0.0 where it may pass, else the seconds to wait."""
        now = self._now()
        left, since = self._buckets.pop(caller, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - since) * self.per_minute / 60)
        passed = left >= 1
        self._buckets[caller] = (left - 1 if passed else left, now)
        while len(self._buckets) > _MOST:
            self._buckets.popitem(last=False)
        return 0.0 if passed else (1 - left) * 60 / self.per_minute

    def __len__(self) -> int:
        """Return how many callers are remembered."""
        return len(self._buckets)
