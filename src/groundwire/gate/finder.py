"""Published decisions that actions of people rest on: looked up once for a batch, however often it is settled."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from groundwire.gate.drafts import Find, Wanted
from groundwire.messages.decisions import Decision

_REMEMBERED: Final = 500


class Finder:
    """Looks published decisions up, and remembers the latest.

    A search in vain may read a topic from its beginning, and answers of state that are older than it may not be
    published: it is made once for a batch, or the batch would be settled for ever. What was derived a moment ago counts
    as published: nothing that rests on it is published before it is.

    Args:
        find: looks them up.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._known: OrderedDict[str, Decision] = OrderedDict()
        self._missed: set[str] = set()

    def begin(self) -> None:
        """Search again for what was not there: another batch begins, or time has passed since."""
        self._missed.clear()

    async def __call__(self, wanted: Sequence[Wanted]) -> dict[str, Decision]:
        """Return by id those that stand on their topics. Raises: StateUnavailable."""
        missing = [one for one in wanted if one.decision_id not in self._known.keys() | self._missed]
        if missing:
            found = await self._find(missing)
            for decision in found.values():
                self.remember(decision)
            self._missed |= {one.decision_id for one in missing} - found.keys()
        return {
            one.decision_id: self._known[one.decision_id] for one in wanted if one.decision_id in self._known
        }

    def remember(self, decision: Decision) -> None:
        """Keep a decision for a while."""
        self._missed.discard(decision.decision_id)
        self._known[decision.decision_id] = decision
        while len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
