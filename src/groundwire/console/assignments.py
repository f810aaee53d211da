"""Who takes which item: claimed, or assigned by somebody else. It leads people past each other, and refuses nobody."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final

from groundwire.console.shared import Shared
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject

LASTS: Final = timedelta(days=7)
"""After which an item that nobody decided is anybody's again."""
_SHELF: Final = "assigned"


class Assignments:
    """Names of people by item; where the store does not answer, nobody has taken anything."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def of(self, subjects: Sequence[Subject]) -> list[str | None]:
        """Return who has taken each of the items."""
        names = [name_of(subject) for subject in subjects]
        found = await self._shared.read(_SHELF, names) or {}
        return [found.get(name) for name in names]

    async def read_all(self) -> dict[Subject, str] | None:
        """Return everything that somebody has taken, None: the store does not answer."""
        found = await self._shared.read(_SHELF)
        return None if found is None else {subject_named(name): person for name, person in found.items()}

    async def of_others(self, person: str) -> set[str]:
        """Return what others have taken, each as `name_of` calls it."""
        found = await self._shared.read(_SHELF) or {}
        return {name for name, taker in found.items() if taker != person}

    async def give(self, subjects: Iterable[Subject], person: str) -> bool:
        """Give items to a person, or with an empty name back to all; False: the store does not answer."""
        return await self._shared.put(_SHELF, {name_of(one): person or None for one in subjects}, LASTS)


def name_of(subject: Subject) -> str:
    """Return how consoles call an item in Redis."""
    return json.dumps(subject.names, ensure_ascii=False)


def subject_named(name: str) -> Subject:
    """Return the item that consoles call so."""
    tenant, user, kind, subject_id = json.loads(name)
    return Subject(tenant, user, Kind(kind), subject_id)
