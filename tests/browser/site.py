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

from groundwire.attestation import Keys
from groundwire.check import Checker
from groundwire.console.app import Parts, create_app
from groundwire.console.serving import make_server, serve
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Site
from groundwire.messages.audit import AuditEvent
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Facts, Kind, Origin, Verdict
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.tiers import IngestionTier
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.review.board import Board
from groundwire.review.outcomes import Outcome, outcome_of
from groundwire.review.people import Permissions, Person, Scope
from groundwire.review.records import TopicRecord
from groundwire.verify import CitationVerifier, Sources

TENANT = "acme"
LEAD = Person("lead@acme.example", frozenset({TENANT}))
OWNER = Person("ana@acme.example", frozenset({TENANT}))
STRANGER = Person("eve@globex.example", frozenset({"globex"}))
KEYS = b"""
[keys.console]
secret = "not a secret"
tenants = ["acme", "globex"]
roles = ["reviewer"]
[reviewers]
acme = ["lead@acme.example"]
"""

_USERS = ("ana@acme.example", "ben@acme.example", "chiara@acme.example", "dev-agent-7")
_PARTS = (
    "checkout",
    "billing",
    "search",
    "login",
    "export",
    "inventory",
    "reporting",
    "mail",
    "payments",
    "profile",
)
_CLAIMS: tuple[tuple[str, str, str], ...] = (
    (
        "fact",
        "ai_synthesis",
        "The {part} service keeps its sessions in a Redis cluster of {n} nodes and evicts the oldest first.",
    ),
    (
        "fact",
        "ai_synthesis",
        (
            "Requests to the {part} endpoint should usually finish within {n} milliseconds, which is probably enough"
            " for the mobile client."
        ),
    ),
    (
        "fact",
        "ai_synthesis",
        (
            "According to ADR-{n}, the {part} service writes to one table only; see also"
            " https://wiki.acme.example/{part}/{n}."
        ),
    ),
    (
        "decision",
        "ai_synthesis",
        "As ADR-003 says, the {part} team retries a failed call {n} times, with a pause that doubles each time.",
    ),
    (
        "fact",
        "conversation",
        (
            "Customers of plan {n} asked for a longer trial of {part}; support promised an answer by the end of the"
            " quarter, and sales wants to see numbers before anybody decides about prices."
        ),
    ),
    (
        "fact",
        "documentation",
        (
            "The {part} service exports metrics on port {n}, under the path /metrics, and answers health checks on"
            " the same port."
        ),
    ),
)


def _claim(number: int) -> dict[str, Any]:
    memory_type, source, text = _CLAIMS[number % len(_CLAIMS)]
    part = _PARTS[number // len(_CLAIMS) % len(_PARTS)]
    return {
        "claim_id": f"{part}-{number:04}",
        "tenant_id": TENANT,
        "user_id": _USERS[number % 4] if number < 380 else f"user-{number // 95}",
        "content": text.format(part=part, n=100 + number),
        "memory_type": memory_type,
        "source": source,
    }


def _others() -> list[dict[str, Any]]:
    """What is approved, blocked and near to something; and a response."""
    known = (
        "As ADR-003 says, the ledger service closes a batch after 40 entries or 15 seconds, whichever comes first,"
        " and signs it with the key of the region in which the batch was opened, not with that of the client."
    )
    base = {"tenant_id": TENANT, "user_id": _USERS[0], "memory_type": "decision"}
    hostile = (
        '<script>alert(1)</script> "quoted" \u202egnp.exe\u202c with a zero\u200bwidth, as ADR-999 might say.'
    )
    chunk = {
        "chunk_id": "c1",
        "file": "src/retry.py",
        "content": "def retry(): ...",
        "start_line": 1,
        "end_line": 3,
    }
    sources = [{"file": "src/retry.py"}] * 3 + [{"file": "src/retries.py"}]
    response = {
        "tenant_id": TENANT,
        "user_id": _USERS[0],
        "response_id": "answer-1",
        "query": "How are payments retried?",
        "answer": "Payments are retried by `retryWithBackoff` with the `maxAttempts` option, see src/retries.py.",
        "confidence": 0.9,
        "chunks": [chunk],
        "sources": [{"file": "src/retry.py"}, {"file": "src/retries.py"}],
    }
    return [
        {**base, "claim_id": "ledger-batches", "content": known},
        {**base, "claim_id": "ledger-batches-2", "content": known.replace("after 40", "after 400")},
        {**base, "claim_id": "guess", "content": "I think maybe the cache is the problem, I am not sure."},
        {**base, "claim_id": "hostile", "content": hostile},
        response,
        {**response, "response_id": "answer-2", "answer": "Payments are retried.", "sources": sources},
    ]


async def decide(records: list[dict[str, Any]], now: datetime) -> list[Decision]:
    """Decide records as the gate does; those that cannot be decided are left out."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ADR-003-retries.md").write_text("# Retries\n\nStatus: accepted\n")  # noqa: ASYNC240 - nothing waits
        verifier = CitationVerifier({"*": Sources(adr_dir=Path(folder), repo=None)}, network=False)
        checker = Checker(Policy(), verifier, now=now)
        lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
        return [found async for found in checker.check(lines) if isinstance(found, Decision)]


def as_record(message: Decision | AuditEvent, topic: TopicName, offset: int, at: datetime) -> TopicRecord:
    """Return a message as it stands on its topic."""
    value = message.model_dump_json(by_alias=True).encode()
    return TopicRecord(topic, 0, offset, to_milliseconds(at), b"", value)


async def filled_board(items: int, now: datetime) -> Board:
    """Return a board of so many mixed claims and a handful of others, decided over the last three days."""
    board = Board()
    decisions = await decide([*_others(), *(_claim(number) for number in range(items))], now)
    records = []
    for offset, decision in enumerate(decisions):
        at = now - timedelta(minutes=(offset * 37) % (3 * 24 * 60))
        shown = decision.model_copy(update={"decided_at": at})
        records.append(as_record(shown, TopicName.of(decision.verdict), offset, at))
    board.add(records)
    headers = [
        ("gw-error", b"invalid_record"),
        ("__connect.errors.topic", b"groundwire.claims"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"41"),
        ("__connect.errors.exception.message", b"user_id: Field required"),
    ]
    key, value = f"{TENANT}:{_USERS[1]}".encode(), b'{"claim_id": "c-1", "content": "x"}'
    board.add([TopicRecord(TopicName.DEAD_LETTER, 0, 0, to_milliseconds(now), key, value, headers)])
    return board


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

    async def outcome(self, decision: ReviewDecision, timeout: float) -> Outcome | None:  # noqa: ASYNC109 - as in Actions
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
    """The time of day, put forward by tests where people wait."""

    ahead: timedelta = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def forward(self, **spans: float) -> None:
        self.ahead += timedelta(**spans)


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
    def scope(self) -> Scope:
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
    items: int = 100, person: Person = LEAD, *, board: Board | None = None, port: int = 0, **settings: Any
) -> Iterator[Running]:
    """Run a console over so many items, or over a board, on a loopback port, 0: a free one; in a thread."""
    board = asyncio.run(filled_board(items, datetime.now(UTC))) if board is None else board
    reviews = RecordingReviews(board)
    keys = Keys.parse(KEYS, Path("keys.toml"))
    with socket.create_server(("127.0.0.1", port)) as listening:
        port = listening.getsockname()[1]
        given = ConsoleSettings(port=port, **settings)
        clock = Clock()
        parts = Parts(board, Permissions(keys), reviews, clock=clock)
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
    with running(int(sys.argv[1]) if len(sys.argv) > 1 else 100) as site:
        sys.stdout.write(f"{site.link}\n")
        sys.stdout.flush()
        threading.Event().wait()
