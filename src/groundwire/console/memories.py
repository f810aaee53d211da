"""The memories nearest to a claim: those that the gate compared it with, and a few below its rule.

What stands below the rule decided nothing. It is shown since people know what words in common do not say, and no page
says "fine: new" beside an approved memory that gives another value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from groundwire.console.evidence import memory_row
from groundwire.console.outbox import Outbox
from groundwire.console.site import Call
from groundwire.library.dedup import DedupChecker
from groundwire.messages.decisions import Kind, Verdict
from groundwire.review.model import Item, Nearest

_FEW: Final = 3
_CANDIDATES: Final = 10
"""Approved claims with words in common that are compared, of which a few are shown."""
_LEAST: Final = 0.3
"""Share of words in common from which on a memory is worth a look."""


@dataclass(frozen=True, slots=True)
class _Given:
    """Memories at hand, as a provider of them."""

    stored: Sequence[tuple[str, str]]

    async def memories(self, user_id: str, memory_type: str) -> Sequence[tuple[str, str]]:  # noqa: ARG002 - its interface
        return self.stored


async def memory_rows(call: Call, item: Item, text: str | None) -> list[dict[str, Any]]:
    """Return the memories nearest to a claim, each with its difference, source and age; none for a response."""
    if item.current.kind != Kind.CLAIM:
        return []
    compared = [_row(call, item, one, compared=True) for one in item.memories]
    below = await _below(call, item, text) if item.pending and text else []
    return [*compared, *(_row(call, item, one, compared=False) for one in below)]


def conflicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["subject_id"] for row in rows if row["difference"] and row["state"] == "approved"]


def with_conflicts(checks: Sequence[dict[str, str]], rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the checks, of which none calls a claim new that differs from something approved: people look at that."""
    found = ", ".join(conflicts(rows))
    return [
        {"name": "near_approved", "result": "look", "detail": found}
        if found and (check["name"], check["result"]) == ("not_duplicate", "passed")
        else dict(check)
        for check in checks
    ]


async def _below(call: Call, item: Item, text: str) -> list[Nearest]:
    known = {one.subject_id for one in item.memories}
    found = {
        one.subject_id: one
        for one in call.site.board.approved_near(call.scope, item, _CANDIDATES)
        if one.subject_id not in known and one.text is not None
    }
    given = _Given([(name, one.text or "") for name, one in found.items()])
    matches = [match.fact() for match in await DedupChecker(given).matches(text, "", [""])]
    shares = {match.subject_id: match.inter / match.union for match in matches if match.union}
    differing = {match.subject_id: str(match.difference) for match in matches}
    near = sorted((name for name in shares if shares[name] >= _LEAST), key=lambda name: (-shares[name], name))
    return [replace(found[name], similarity=shares[name], difference=differing[name]) for name in near[:_FEW]]


def is_replaceable(outbox: Outbox, item: Item, memory: Nearest) -> bool:
    """Say whether a pending claim may take a memory's place: one that is approved, with no action on its way."""
    free = memory.decision_id is not None and outbox.on(memory.decision_id) is None
    return item.pending and free and memory.verdict == Verdict.APPROVED


def _row(call: Call, item: Item, memory: Nearest, *, compared: bool) -> dict[str, Any]:
    age = (call.site.clock() - memory.decided_at).total_seconds() if memory.decided_at else None
    return {
        **memory_row(memory, item.decision),
        "age_seconds": None if age is None else max(0, round(age)),
        "compared": compared,
        "replaceable": is_replaceable(call.site.outbox, item, memory),
    }
