"""What became of an action, as the audit tells it, and what to do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from groundwire.checks.hedges import HedgeAction
from groundwire.decide.reading import read
from groundwire.messages.audit import AuditEvent
from groundwire.policy import Policy

_APPLIED: Final = {
    "human_approved": "Approved: the memory is published.",
    "human_rejected": "Rejected: nothing is stored, and texts close to it come to review from now on.",
    "retracted": "Retracted: the approval is withdrawn; look at what rests on it.",
    "review_expired": "Expired: nobody reviewed it in time; send the claim again if it still matters.",
    "expired": "Blocked: its validity ended before the approval; send it again with a later horizon.",
    "duplicate": "Blocked: an approved memory already says this; there is nothing left to do.",
    "superseded": "Done, and changed again since; look at where it stands now.",
}
_REFUSED: Final = {
    "stale": "The item has another revision by now; look at what changed and decide again.",
    "unknown": "There is no such item, or it was forgotten; look at the queue again.",
    "not_pending": "It waits for nobody; look at where it stands.",
    "not_approved": "Only what is approved can be retracted; look at where it stands.",
    "waiting": "The gate is still checking it; try again when it is in the queue.",
    "action_id_reused": "This action id stands for another action already; act again with a new one.",
    "unattested": "The signature was not accepted: the key needs the role reviewer for this tenant, and to be valid.",
    "unauthorized": "Only the owner or a reviewer delegated for the tenant may decide it; ask one of them.",
    "invalid_reason": "The reason is no code: 1 to 64 letters, digits, dots, dashes; put words into the note.",
    "reserved": "This action or name belongs to the gate itself; act under your own name.",
    "personal_speculation": "The edited text speculates and cannot be approved; word it as a fact, or reject it.",
    "not_published": "The decision it rests on is on no topic yet; try again in a moment.",
    "not_editable": "A response cannot be edited; approve or reject it.",
    "unreadable": "The edited text could not be read; shorten or reword it.",
}

SENTENCES: Final = {**_APPLIED, **_REFUSED}


def speculating(content: str, policy: Policy) -> str:
    """Return a sentence that quotes the words for which a policy blocks a text, empty where it does not (C-02)."""
    found = read(content, policy)
    if found.action is not HedgeAction.BLOCK:
        return ""
    words = dict.fromkeys(hedge.text for hedge in found.hedges if hedge.action is HedgeAction.BLOCK)
    return f"It says {', '.join(f'“{word}”' for word in words)}."


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action.

    Attributes:
        applied: whether anything changed.
        code: the reason of the new decision, or why the action was refused.
        revision: the one brought about; of a refused action the current one, where it is known.
        verdict: of the new decision, None of a refused action.
        decision_id: of the new decision.
    """

    action_id: str
    applied: bool
    code: str
    revision: int | None
    verdict: str | None
    decision_id: str | None

    @property
    def sentence(self) -> str:
        """One sentence for people: what happened, and what to do next."""
        if self.code in SENTENCES:
            return SENTENCES[self.code]
        if self.applied:
            return f"Done, with the code {self.code}; look at where it stands."
        return (
            f"Refused with the code {self.code}, nothing was changed; look at the item before you try again."
        )


def outcome_of(event: AuditEvent) -> Outcome:
    """Read the AuditEvent of an action."""
    detail = event.detail
    revision, verdict = detail.get("revision"), detail.get("verdict")
    return Outcome(
        action_id=str(detail.get("action_id")),
        applied=event.type == "review_action",
        code=str(detail.get("outcome") or "unknown_code"),
        revision=revision if type(revision) is int else None,
        verdict=verdict if isinstance(verdict, str) else None,
        decision_id=event.decision_id,
    )
