"""A console to look at: a board of mixed items, and actions whose outcomes come back to the board at once.

python -m tests.browser.site [ITEMS] starts it on a free loopback port and prints its address with a sign-in link.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from groundwire.console.app import create_app, make_server, serve
from groundwire.console.live import Shared
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Parts, Site
from groundwire.keys.attestation import Keys
from groundwire.keys.watched import WatchedKeys
from groundwire.messages.decisions import AuditEvent, Decision, Facts, IngestionTier, Kind, Origin, Verdict
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.actions import ActionOutcome, outcome_of
from groundwire.review.board import Board
from groundwire.review.permissions import Permissions, Person, ViewScope
from tests.browser.items import KEYS, LEAD, as_record, board_of, read_record, waiting


@dataclass
class RecordingReviews:
    """Stands for the reviews topic and its agent: keeps what is sent, and brings the outcome to the board.

    Attributes:
        sent: every record, in order.
        refuse: codes with which the next actions are refused.
        silent: whether nothing comes back.
    """

    board: Board
    sent: list[ReviewDecision] = field(default_factory=list)
    refuse: list[str] = field(default_factory=list)
    silent: bool = False

    async def send(self, decision: ReviewDecision) -> None:
        self.sent.append(decision)

    async def outcome(self, decision: ReviewDecision, timeout: float) -> ActionOutcome | None:  # noqa: ASYNC109 - as in Actions
        if self.silent:
            await asyncio.sleep(timeout)
            return None
        event = self._apply(decision)
        return outcome_of(event)

    def _apply(self, action: ReviewDecision) -> AuditEvent:
        subject = Subject(action.tenant_id, action.user_id, Kind(action.kind), action.subject_id)
        scope = Permissions(Keys.parse(KEYS, Path("keys.toml"))).scope(LEAD)
        known = self.board.item(scope, decision_id(subject, action.expected_revision))
        code = self.refuse.pop(0) if self.refuse else None
        if known is None or known.current.revision != action.expected_revision:
            code = "stale"
        now = datetime.now(UTC)
        if code is not None or known is None:
            event = self._event(action, "refused_action", code or "unknown", None, now)
        else:
            decision = self._next(action, Decision.model_validate(known.decision), subject, now)
            self.board.add(
                [as_record(decision, TopicName.of(decision.verdict), 10_000 + len(self.sent), now)]
            )
            event = self._event(action, "review_action", decision.reason_code, decision, now)
        self.board.add([as_record(event, TopicName.AUDIT, len(self.sent), now)])
        return event

    def _next(self, action: ReviewDecision, last: Decision, subject: Subject, now: datetime) -> Decision:
        approved = action.action in ("approve", "edit")
        code = {"reject": "human_rejected", "retract": "retracted"}.get(action.action, "human_approved")
        review = {
            "action": action.action,
            "action_id": action.action_id,
            "reviewer": action.reviewer,
            "reason": action.reason,
        }
        facts = Facts.model_validate(
            {**last.facts.model_dump(by_alias=True), "place": "not_needed", "review": review}
        )
        changes: dict[str, Any] = {
            "decision_id": decision_id(subject, last.revision + 1),
            "revision": last.revision + 1,
            "supersedes": last.decision_id,
            "tier": IngestionTier.AUTO_APPROVE if approved else IngestionTier.BLOCK,
            "verdict": Verdict.APPROVED if approved else Verdict.BLOCKED,
            "approved": approved,
            "reason": f"Decided by {action.reviewer}",
            "reason_code": code,
            "facts": facts,
            "subject_origin": last.subject_origin or last.origin,
            "origin": Origin(topic="review-decisions", partition=0, offset=0, timestamp=now, sha256="0" * 64),
            "decided_at": now,
        }
        if action.content is not None and last.evidence is not None:
            evidence = json.loads(last.model_dump_json())["evidence"] | {"claim": action.content}
            changes |= {"evidence": evidence, "hedges": [], "citations": []}
        return Decision.model_validate(last.model_dump(by_alias=True) | changes)

    def _event(
        self, action: ReviewDecision, kind: Any, code: str, decision: Decision | None, now: datetime
    ) -> AuditEvent:
        detail = {"action_id": action.action_id, "action": action.action, "outcome": code}
        if decision is not None:
            detail |= {"revision": decision.revision, "verdict": str(decision.verdict)}
        return AuditEvent(
            event_id=event_id(kind, action.action_id),
            type=kind,
            at=now,
            tenant_id=action.tenant_id,
            actor=action.reviewer,
            subject_id=action.subject_id,
            decision_id=decision.decision_id if decision else None,
            detail=detail,
        )


@dataclass
class Clock:
    """The time of day, which stands still until a test moves it: nobody races the seconds for undoing."""

    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **spans: float) -> None:
        self.now += timedelta(**spans)


@dataclass(frozen=True)
class Running:
    """A console that runs: where, how to sign in once, and what stands behind it."""

    url: str
    link: str
    board: Board
    reviews: RecordingReviews
    site: Site
    clock: Clock

    @property
    def scope(self) -> ViewScope:
        """What the lead sees."""
        return self.site.permissions.scope(LEAD)

    def release(self) -> None:
        """Let the seconds pass in which what is held can be undone."""
        self.clock.forward(seconds=self.site.settings.undo_seconds + 1)

    def invite(self, person: Person) -> str:
        """Return a link by which one more person signs in once."""
        return f"{self.url}/signin#{self.site.links.issue(person)}"


@contextmanager
def running(
    board: Board, person: Person = LEAD, *, port: int = 0, shared: Shared | None = None, **settings: Any
) -> Iterator[Running]:
    """Run a console over a board on a loopback port, 0: a free one; in a thread. `shared`: that of an earlier one."""
    reviews = RecordingReviews(board)
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", port)) as listening:
        file = Path(folder, "keys.toml")
        file.touch(mode=0o600)
        file.write_bytes(KEYS)
        keys = WatchedKeys(file)  # as a console has them
        port = listening.getsockname()[1]
        given = ConsoleSettings(port=port, **settings)
        clock = Clock()
        parts = Parts(board, Permissions(keys), reviews, shared=shared, read=read_record, clock=clock)
        app, secret = create_app(given, parts, person)
        server = make_server(app)
        thread = threading.Thread(target=lambda: asyncio.run(serve(server, app, listening)))
        thread.start()
        try:
            yield Running(
                given.origin, f"{given.origin}/signin#{secret}", board, reviews, app.state.site, clock
            )
        finally:
            server.should_exit = True
            thread.join(15)


if __name__ == "__main__":
    with running(board_of(waiting(int(sys.argv[1]) if len(sys.argv) > 1 else 100))) as site:
        sys.stdout.write(f"{site.link}\n")
        sys.stdout.flush()
        threading.Event().wait()
