"""A console in memory: a board filled by hand, actions that are recorded, a clock that stands still."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette

from groundwire.attestation import Keys
from groundwire.console.app import Parts, create_app
from groundwire.console.orders import Entry, State
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Site
from groundwire.messages.audit import AuditEvent
from groundwire.messages.base import format_time, to_milliseconds
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.board import Board
from groundwire.review.outcomes import Outcome
from groundwire.review.people import Permissions, Person
from groundwire.review.records import TopicRecord

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KEYS = b"""
[keys.console]
secret = "not a secret"
tenants = ["acme", "globex"]
roles = ["reviewer"]
[reviewers]
acme = ["lead"]
"""
LEAD = Person("lead", frozenset({"acme"}))
ANA = Person("ana", frozenset({"acme"}))
BEN = Person("ben", frozenset({"acme"}))
EVE = Person("eve", frozenset({"globex"}))
VIEWER = Person("lead", frozenset({"acme"}), read_only=True)
TOKENS = {"lead-token": LEAD, "ana-token": ANA, "ben-token": BEN, "eve-token": EVE, "viewer-token": VIEWER}
HOST = "http://127.0.0.1:8700"
NOBODYS = "00000000-0000-4000-8000-000000000000"


@dataclass
class Clock:
    now: datetime = NOW

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self.now.timestamp()

    def forward(self, **spans: float) -> None:
        self.now += timedelta(**spans)


class FixedTokens:
    def person(self, token: str, at: datetime) -> Person | None:  # noqa: ARG002 - as in Tokens
        return TOKENS.get(token)


@dataclass
class Recorder:
    """Keeps what is sent; `applied` and `code` are the outcome of all, `fails` makes sending fail."""

    sent: list[ReviewDecision] = field(default_factory=list)
    applied: bool = True
    code: str = "human_approved"
    fails: bool = False

    async def send(self, decision: ReviewDecision) -> None:
        if self.fails:
            raise OSError
        self.sent.append(decision)

    async def outcome(self, decision: ReviewDecision, timeout: float) -> Outcome | None:  # noqa: ARG002, ASYNC109 - as in Actions
        return Outcome(decision.action_id, self.applied, self.code, 2, None, None)


def make_decision(subject_id: str, content: str = "Water is wet.", **changes: Any) -> dict[str, Any]:
    """Return a Decision in review, as JSON."""
    kind = changes.get("kind", "claim")
    subject = Subject(changes.get("tenant_id", "acme"), changes.get("user_id", "ana"), Kind(kind), subject_id)
    revision = changes.get("revision", 1)
    origin = {
        "topic": "groundwire.claims",
        "partition": 0,
        "offset": 7,
        "timestamp": format_time(NOW),
        "sha256": "0" * 64,
    }
    found: dict[str, Any] = {
        "decision_id": decision_id(subject, revision),
        "revision": revision,
        "supersedes": decision_id(subject, revision - 1) if revision > 1 else None,
        "kind": kind,
        "subject_id": subject_id,
        "tenant_id": subject.tenant_id,
        "user_id": subject.user_id,
        "fingerprint": "f" * 64,
        "memory_type": "fact",
        "source": "ai_synthesis",
        "derived_from": [],
        "tier": "tier_2",
        "verdict": "review",
        "approved": False,
        "reason": "Ungrounded assertion needs verification",
        "reason_code": "ungrounded",
        "retryable": False,
        "checks_passed": ["no_speculation"],
        "checks_failed": ["citation_missing"],
        "checks_skipped": ["relevance_skipped"],
        "hedges": [],
        "citations": [],
        "similarity_score": None,
        "conflicting_memory_id": None,
        "evidence": {"claim": content, "capture_time": format_time(NOW), "confidence": "medium", "source_id": None,
                     "validity_horizon": None, "metadata": {}},
        "report": None,
        "facts": {"clock": format_time(NOW), "place": "free"},
        "policy": {"version": "default", "sha256": "a" * 64},
        "engine": "0.1.0",
        "origin": origin,
        "subject_origin": None,
        "decided_at": format_time(NOW - timedelta(hours=1)),
        "truncated": None,
        "replay": None,
    }  # fmt: skip
    return found | changes


def blocked(subject_id: str, content: str = "I guess.", **changes: Any) -> dict[str, Any]:
    values = {
        "tier": "tier_3",
        "verdict": "blocked",
        "reason_code": "personal_speculation",
        "facts": {"clock": format_time(NOW)},
    }
    return make_decision(subject_id, content, **(values | changes))  # fmt: skip


def approved(subject_id: str, **changes: Any) -> dict[str, Any]:
    values = {"tier": "tier_1", "verdict": "approved", "approved": True, "reason_code": "trusted_source"}
    return make_decision(subject_id, **(values | {"facts": {"clock": format_time(NOW)}} | changes))


@dataclass
class Room:
    """A console and who stands around it."""

    app: Starlette
    board: Board
    recorder: Recorder
    clock: Clock
    secret: str | None

    @property
    def site(self) -> Site:
        site: Site = self.app.state.site
        return site

    def client(
        self, token: str | None = None, address: str = "127.0.0.1", **headers: str
    ) -> httpx.AsyncClient:
        """Return a client; with a token, one that sends it."""
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        transport = httpx.ASGITransport(self.app, client=(address, 5000), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url=HOST, headers=headers)

    @contextlib.asynccontextmanager
    async def browser(self, person: Person = LEAD) -> AsyncIterator[httpx.AsyncClient]:
        """Return a client that has signed in as a browser does."""
        async with self.client() as client:
            secret = self.site.links.issue(person)
            await client.post("/signin/link", data={"csrf": await csrf(client, "/signin"), "secret": secret})
            yield client

    @property
    def held(self) -> list[Entry]:
        """What can still be undone."""
        return list(self.site.desk._in(State.HELD))

    def add(self, *decisions: dict[str, Any]) -> list[str]:
        """Put decisions on the board; return their ids."""
        at = to_milliseconds(self.clock.now)
        values = [(one, json.dumps(one, ensure_ascii=False).encode()) for one in decisions]
        self.board.add(
            [
                TopicRecord(TopicName(one["verdict"]), 0, offset, at, b"", value)
                for offset, (one, value) in enumerate(values)
            ]
        )
        return [one["decision_id"] for one in decisions]

    def audit(self, event: AuditEvent) -> None:
        value = event.model_dump_json().encode()
        self.board.add([TopicRecord(TopicName.AUDIT, 0, 0, to_milliseconds(self.clock.now), b"", value)])

    def settle(self, subject_id: str, user: str = "ana") -> None:
        """Take an item out of the queue, as when state does not hold it as pending."""
        self.board.settle({Subject("acme", user, Kind.CLAIM, subject_id): None})

    async def released(self) -> None:
        """Let the time for undoing pass, and what is sent be answered."""
        self.clock.forward(seconds=self.site.settings.undo_seconds + 1)
        self.site.desk.release()
        await self.site.desk.delivered()


def make_room(**settings: Any) -> Room:
    clock = Clock()
    board = Board(clock=clock)
    recorder = Recorder()
    keys = Keys.parse(KEYS, Path("keys.toml"))
    parts = Parts(
        board=board,
        permissions=Permissions(keys),
        reviews=recorder,
        tokens=FixedTokens(),
        clock=clock,
        monotonic=clock.monotonic,
    )
    app, secret = create_app(ConsoleSettings(**settings), parts, settings.get("one_time"))
    return Room(app, board, recorder, clock, secret)


async def csrf(client: httpx.AsyncClient, path: str = "/") -> str:
    """Return the token that the forms of a page carry."""
    page = (await client.get(path)).text
    found = re.search(r'data-csrf="([^"]+)"', page)
    assert found is not None
    return found[1]
