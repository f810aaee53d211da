"""What verified citations say: their titles and first lines, so that "verified, but about something else" shows.

The gate keeps no text of a source, so they are looked up again, from the same places and behind the same guards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from cachetools import TTLCache

from groundwire.checks.citations import Citation
from groundwire.messages.decisions import CitationState
from groundwire.verify.citations import CitationVerifier
from groundwire.verify.results import CitationCheck

_MOST: Final = 5  # citations of an item that are looked up
_TASKS: Final = 20  # items that are looked up at the same time
_HEAD, _REST = 160, 360  # characters
_NOT_READ: Final = "This console cannot read it now"


class CitedTexts:
    """Looks citations up for `patience` seconds; what takes longer is there when the page is loaded again."""

    def __init__(self, verifier: CitationVerifier | None, patience: float = 2.0) -> None:
        self._verifier, self._patience = verifier, patience
        self._known: TTLCache[tuple[str, str], CitationCheck] = TTLCache(1_000, 300)
        self._running: set[asyncio.Task[None]] = set()

    async def of(self, decision: Mapping[str, Any]) -> dict[str, dict[str, str]]:
        """Return, by label, `head` and `rest` of what a citation names, or a `note` that says why they are missing."""
        tenant = decision["tenant_id"]
        cited = [
            Citation(one["type"], one["value"], one["start"], one["end"])
            for one in decision["citations"]
            if one["state"] == CitationState.VERIFIED
        ]
        wanted = {one.label: one for one in cited if (tenant, one.label) not in self._known}
        if self._verifier and wanted and len(self._running) < _TASKS:
            task = asyncio.create_task(self._look_up(self._verifier, tenant, [*wanted.values()][:_MOST]))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            await asyncio.wait([task], timeout=self._patience)
        return {one.label: _shown(self._known.get((tenant, one.label))) for one in cited}

    async def _look_up(self, verifier: CitationVerifier, tenant: str, cited: list[Citation]) -> None:
        found = await verifier.verify(tenant, cited, want_text=True)
        self._known.update({(tenant, label): check for label, check in found.items()})


def _shown(check: CitationCheck | None) -> dict[str, str]:
    lines = [line.strip() for line in (check.text or "").splitlines() if line.strip()] if check else []
    if not lines:
        note = f"{_NOT_READ}: {check.detail}." if check else f"{_NOT_READ}."
        return {"head": "", "rest": "", "note": note}
    head = lines[0].lstrip("#= ")
    rest = " ".join([head[_HEAD:], *lines[1:]]).strip()
    rest = rest[:_REST] + "\u2026" * (len(rest) > _REST)
    return {"head": head[:_HEAD], "rest": rest, "note": ""}
