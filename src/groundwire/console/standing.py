"""What may be done with an item now, and what stands against an action on it."""

from __future__ import annotations

from typing import Any

from groundwire.console.call import Call
from groundwire.console.orders import Entry
from groundwire.console.rows import doing
from groundwire.console.words import label, moment
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Kind, Verdict
from groundwire.messages.reviews import Action
from groundwire.policy import Policy
from groundwire.review.actions import BLANK, is_blank
from groundwire.review.model import Item
from groundwire.review.outcomes import SENTENCES, speculating

Problem = dict[str, Any]
"""Why an action was not taken, as the item's page tells it: title, text, changes."""


def allowed(item: Item, entry: Entry | None) -> list[str]:
    """Return what a person may do with an item now; `entry` is what is on its way for it."""
    if entry is not None or not is_current(item):
        return []
    if item.pending:
        return ["approve", "reject", *(["edit"] if item.current.kind == Kind.CLAIM else [])]
    if item.current.verdict == Verdict.APPROVED and item.current.kind == Kind.CLAIM:
        return ["retract"]
    return []


def is_current(item: Item) -> bool:
    """Say whether it was not decided again since."""
    return bool(item.current.decision_id == item.decision["decision_id"])


def why_not(item: Item, entry: Entry | None) -> str | None:
    """Return why nothing can be done with an item now, None where something can."""
    if entry is not None:
        return f"This was {doing(entry)}."
    if not is_current(item):
        return f"This is revision {item.decision['revision']}; it was decided again since."
    if item.decision["reason_code"] == "pending_duplicate":
        return "It follows another item that waits: decide that one."
    if not allowed(item, entry):
        return "There is nothing to decide here."
    return None


def conflict(call: Call, item: Item, action: Action, revision: int) -> Problem | None:
    """Return what stands against an action: another revision, another action on its way, nothing to decide."""
    row = item.current
    if not is_current(item) or row.revision != revision:
        return changed(item, revision)
    entry = call.site.desk.on(row.decision_id)
    if entry is not None:
        return problem("An action is on its way.", f"{entry.order.person.name} was first.")
    if action not in allowed(item, None):
        return problem("That cannot be done with it.", "See how it stands.")
    return None


def changed(item: Item, revision: int) -> Problem:
    """Return what is different from the revision that a person saw."""
    row = item.current
    before = next((step for step in item.history if step.revision == revision), None)
    latest = next((step for step in item.history if step.revision == row.revision), None)
    changes = [{"what": "revision", "was": str(revision), "now": str(row.revision)}]
    if before is not None:
        changes.append({"what": "verdict", "was": str(before.verdict), "now": str(row.verdict)})
        changes.append({"what": "reason", "was": label(before.reason_code), "now": label(row.reason_code)})
    if latest is not None:
        at = moment(format_time(latest.decided_at))
        changes.append({"what": "decided", "was": "", "now": f"by {latest.reviewer or 'the gate'}, {at}"})
    return problem("It changed meanwhile.", "This is how it stands now.", changes)


def speculation(content: str, policy: Policy) -> Problem | None:
    """Return what stands against an edited text, None where nothing does: it is blank, or speculates (S0-78, C-02).

    The gate has the last word: it reads the text again under the policy that decides then.
    """
    if is_blank(content):
        text = f"{BLANK.capitalize()}; write what should be remembered, or reject it."
        return problem("This text cannot be approved.", text, code="blank")
    try:
        said = speculating(content, policy)
    except Exception:  # noqa: BLE001 - the gate refuses what it cannot read, whatever the reason
        return problem("This text cannot be approved.", SENTENCES["unreadable"], code="unreadable")
    if not said:
        return None
    text = f"{SENTENCES['personal_speculation']} {said}"
    return problem("This text cannot be approved.", text, code="personal_speculation")


def problem(
    title: str, text: str, changes: list[dict[str, str]] | None = None, code: str = "conflict"
) -> Problem:
    """Return a problem as it is told; `code` is for programs."""
    return {"title": title, "text": text, "changes": changes or [], "code": code}
