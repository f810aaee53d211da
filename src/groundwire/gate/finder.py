"""Published decisions that actions of people rest on: looked up once for a batch, however often it is settled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from groundwire.gate.drafts import Find, Wanted
from groundwire.messages.decisions import Decision

_REMEMBERED: Final = 500
_LONG: Final = 10.0
"""Seconds after which a search that found nothing is not made again for the same batch: its answers would grow old."""


class Finder:
    """Looks published decisions up, and remembers the latest: a batch that is settled again asks again.

    What was derived a moment ago counts as published: nothing that rests on it is published before it is.

    Args:
        find: looks them up.
        clock: seconds, of which only differences count.
    """

    def __init__(self, find: Find, *, clock: Callable[[], float] = monotonic) -> None:
        self._find = find
        self._clock = clock
        self._known: OrderedDict[str, Decision] = OrderedDict()
        self._missed: frozenset[str] = frozenset()

    async def __call__(self, wanted: Sequence[Wanted]) -> dict[str, Decision]:
        """Return by id those that stand on their topics. Raises: StateUnavailable."""
        missed, self._missed = self._missed, frozenset()
        missing = [
            one for one in wanted if one.decision_id not in self._known and one.decision_id not in missed
        ]
        if missing:
            await self._look_up(missing)
        return {
            one.decision_id: self._known[one.decision_id] for one in wanted if one.decision_id in self._known
        }

    async def _look_up(self, missing: Sequence[Wanted]) -> None:
        begun = self._clock()
        found = await self._find(missing)
        for decision in found.values():
            self.remember(decision)
        if self._clock() - begun >= _LONG:
            self._missed = frozenset(one.decision_id for one in missing) - found.keys()

    def remember(self, decision: Decision) -> None:
        """Keep a decision for a while."""
        self._known[decision.decision_id] = decision
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
