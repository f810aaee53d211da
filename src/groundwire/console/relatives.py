"""What an item is near to, what it rests on, and what rests on it."""

from __future__ import annotations

from typing import Any

from groundwire.console.call import Call
from groundwire.console.worddiff import word_diff
from groundwire.review.model import Item, Nearest, Related


def near(nearest: Nearest | None, text: str | None) -> dict[str, Any] | None:
    """Return the memory that a claim is nearest to as it stands now, with the difference of the texts."""
    if nearest is None:
        return None
    changes = None
    if nearest.text is not None and text is not None:
        changes = [
            {"operation": change.operation, "text": change.text} for change in word_diff(nearest.text, text)
        ]
    return {
        "id": nearest.decision_id,
        "subject_id": nearest.subject_id,
        "state": nearest.state,
        "since": nearest.since,
        "similarity": f"{nearest.similarity:.0%}",
        "difference": nearest.difference if nearest.difference != "none" else None,
        "verdict": str(nearest.verdict) if nearest.verdict else nearest.match_class,
        "changes": changes,
    }


def resting(call: Call, item: Item) -> dict[str, Any]:
    """Return the approved claims that rest on an item, and how many they are."""
    page = call.site.board.resting(call.scope, item.current)
    return {"resting": [told(one) for one in page.rows], "resting_total": page.total}


def told(related: Related) -> dict[str, Any]:
    """Return what is told of something that an item rests on, or that rests on it."""
    return {
        "name": related.name,
        "id": related.decision_id,
        "state": related.state or None,
        "excerpt": related.excerpt,
    }
