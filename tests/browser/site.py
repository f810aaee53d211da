"""Review items for every reason, a console in a thread that shows them, and a person at a browser."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Page, expect

from groundwire.console.app import create_app, make_server, serve
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Parts, Site
from groundwire.keys.watched import WatchedKeys
from groundwire.library.check import Checker
from groundwire.messages.base import format_time, sha256_hex, to_milliseconds
from groundwire.messages.decisions import AuditEvent, Decision, IngestionTier, Kind, ReasonCode, Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.review.actions import outcome_of
from groundwire.review.board import Board
from groundwire.review.model import risk_of
from groundwire.review.permissions import Permissions, Person, ViewScope
from groundwire.verify.citations import CitationVerifier, Sources
from tests.unit.console import rooms
from tests.unit.console.rooms import Clock

TENANT = "acme"
LEAD = Person("lead@acme.example", frozenset({TENANT}))
OWNER = Person("ana@acme.example", frozenset({TENANT}))
KEYS = rooms.KEYS.replace(b'"lead"', b'"lead@acme.example"')

REASONS: Final = [
    code for code in ReasonCode if risk_of(code).rank and code is not ReasonCode.PENDING_DUPLICATE
]
"""Why something waits for a person; what follows another item is decided with that one."""

HOSTILE: Final = {
    "script": "</textarea></p><script>alert(1)</script><script src='https://evil.example/x.js'></script>",
    "handler": "<img src=https://evil.example/pixel onerror=alert(1)><svg onload=alert(2)><body onfocus=alert(3)>",
    "link": "[read](javascript:alert(1)) javascript:alert(2) data:text/html,<script>alert(3)</script>",
    "style": "<style>body{display:none}</style><link rel=stylesheet href=//evil.example/x.css><base href=//evil>",
    "turned": "The release is \u202eexe.gnp\u202c, see \u2066both\u2069 and a zero\u200bwidth \u0007 sign.",
    "template": "{{ 7 * 7 }} {% raw %} ${7*7} <%= 7 * 7 %> &lt;b&gt; &#x3c;i&#x3e; %3Cscript%3E",
    "frame": "<iframe srcdoc='<script>parent.alert(1)</script>'></iframe><form action=//evil.example><button>ok",
    "long-word": "Supercalifragilistic" * 60 + " " + "\u0301" * 200 + "W" * 600,
    "huge": "<b>Nothing</b> is as long as this sentence, which is probably repeated. " * 270,
    "address": "See https://evil.example/" + "a/" * 400 + '?q="><script>alert(1)</script> as ADR-999 says.',
}
"""Texts that would run, load, or break the page if they were anything but text."""


RECORDS = []
"""The topic of responses: every record that was decided here."""


async def read_record(_topic, _partition, offset):
    return RECORDS[offset] if offset < len(RECORDS) else None


def decided(records):
    """Decide records as the gate does; those that cannot be decided are left out."""

    async def decide():
        lines = [json.dumps(record, ensure_ascii=False).encode() for record in records]
        by_hash, found = {sha256_hex(line): line for line in lines}, []
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "ADR-003-retries.md").write_text("# Retries\n\nStatus: accepted\n")  # noqa: ASYNC240 - nothing waits
            verifier = CitationVerifier({"*": Sources(adr_dir=Path(folder), repo=None)}, network=False)
            async for one in Checker(Policy(), verifier, now=datetime.now(UTC)).check(lines):
                if isinstance(one, Decision):
                    place = {"topic": "groundwire.llm-responses", "offset": len(RECORDS)}
                    RECORDS.append(by_hash[one.origin.sha256])
                    found.append(one.model_copy(update={"origin": one.origin.model_copy(update=place)}))
        return found

    with ThreadPoolExecutor(1) as pool:  # playwright runs an event loop in the thread of the test
        return pool.submit(asyncio.run, decide()).result()


def in_review(records):
    """Decide records as the gate does, and send all to review, for one reason after the other."""
    now, found = datetime.now(UTC), []
    for n, one in enumerate(decided(records)):
        values = one.model_dump(by_alias=True)
        subject = Subject(one.tenant_id, one.user_id, Kind(one.kind), one.subject_id)
        values |= {"decision_id": decision_id(subject, 1), "revision": 1, "tier": IngestionTier.FLAG_REVIEW}
        values |= {"verdict": Verdict.REVIEW, "approved": False, "reason_code": REASONS[n % len(REASONS)]}
        values |= {"facts": {**values["facts"], "place": "free"}, "decided_at": now - timedelta(minutes=n)}
        found.append(Decision.model_validate(values))
    return tuple(found)


def as_record(message, topic, offset, at):
    value = message.model_dump_json(by_alias=True).encode()
    return InboundRecord(topic, 0, offset, to_milliseconds(at), b"", value)


@cache
def waiting(count: int) -> tuple[Decision, ...]:
    """Return so many decisions in review: every fourth a response, every tenth a hostile text, all reasons."""
    harm, parts = (
        list(HOSTILE.items()),
        ["checkout", "billing", "search", "login", "export", "inventory", "mail"],
    )
    plain = (
        "The {part} service keeps {n} sessions in memory and evicts the oldest first.",
        "Requests to {part} should usually finish within {n} ms, which is probably enough.",
        "As ADR-{n} says, the {part} team retries a failed call, with a pause that doubles each time.",
    )
    claims = []
    for n in (n for n in range(count) if n % 4 != 3):
        name, text = harm[n // 10 % len(harm)]
        if n % 10:
            name = parts[n % len(parts)]
            text = plain[n % len(plain)].format(part=name, n=100 + n)
        claims.append(claim(f"{name}-{n:03}", text))
    return in_review([*claims, *(_response(n) for n in range(3, count, 4))])


def more(before: int, after: int) -> list[Decision]:
    """Return those by which `waiting(after)` is more than `waiting(before)`."""
    known = {one.subject_id for one in waiting(before)}
    return [one for one in waiting(after) if one.subject_id not in known]


def claim(claim_id: str, content: str, **changes: Any) -> dict[str, Any]:
    base = {"tenant_id": TENANT, "user_id": OWNER.name, "memory_type": "fact", "source": "ai_synthesis"}
    return {**base, "claim_id": claim_id, "content": content, **changes}


def _response(number: int, **changes: Any) -> dict[str, Any]:
    file = "src/<script>alert(1)</script>.py" if number % 8 == 3 else "src/retry.py"
    chunk = {"chunk_id": "c1", "file": file, "content": "def retry(): ...", "start_line": 1, "end_line": 3}
    return {
        "tenant_id": TENANT,
        "user_id": OWNER.name,
        "response_id": f"answer-{number:03}",
        "query": "How are payments retried?",
        "answer": "Payments are retried by `retryWithBackoff` with the `maxAttempts` option, see src/retries.py.",
        "confidence": 0.9,
        "chunks": [chunk],
        "sources": [{"file": file}, {"file": "src/retries.py"}],
        **changes,
    }


def faulty_response(name: str = "pump") -> dict[str, Any]:
    """Return a response with something wrong for nearly every check."""
    chunks = [
        "The pump in Lyon runs at 40 bar. It is serviced every 30 days by two technicians, who write a report.",
        "Reports are kept for seven years in the archive. " + "The archive is dry and cool. " * 60,
        "Visitors are not allowed in the pump hall. The canteen opens at noon.",
    ]
    return _response(
        0,
        response_id=name,
        query="At which pressure does the pump run, and who services it?",
        answer="The pump in Lyon runs at 400 bar. It is serviced every 30 days by two technicians. "
        "Visitors are allowed in the pump hall. Its colour was chosen by the mayor's daughter.",
        chunks=[
            {"chunk_id": f"pump-{n}", "file": "pump.md", "content": text, "start_line": n, "end_line": n}
            for n, text in enumerate(chunks, start=1)
        ],
        sources=[{"file": "pump.md"}],
        transcript="Ana: The pump has never failed in eleven years. Ben: We oil it on Mondays, before breakfast.",
        evidence={
            "safety": ["The pump has failed in eleven years", "We oil it on Mondays, before breakfast."]
        },
        entities=[{"id": "pump-7", "role": "valve"}, {"id": "lyon"}, {"id": "atlantis"}],
        corpus_index={"pump-7": {"confidence": 0.9, "role": "pump"}, "lyon": {"confidence": 0.8}},
        claims=[{"subject": "pump-7", "relation": "stands in", "object": "Lyon", "version": "1"}],
        relations=[{"subject": "pump-7", "relation": "stands in", "object": "Lyon", "version": "2"}],
    )


def put(board: Board, *decisions: Decision) -> list[str]:
    """Put decisions on a board, as if they had come over the topics; return their ids."""
    now = datetime.now(UTC)
    board.add([as_record(one, TopicName.of(one.verdict), n, now) for n, one in enumerate(decisions)])
    return [one.decision_id for one in decisions]


def board_of(decisions: Sequence[Decision]) -> Board:
    board = Board()
    put(board, *decisions)
    return board


def full_board() -> Board:
    """Return a board with something on each page: pending, approved, blocked, near, responses, a dead letter."""
    known = (
        "As ADR-003 says, the ledger service closes a batch after 40 entries or 15 seconds, whichever comes first,"
        " and signs it with the key of the region in which the batch was opened, not with that of the client."
    )
    sources = [{"file": "src/retry.py"}] * 3 + [{"file": "src/retries.py"}]
    others = [
        claim("ledger-batches", known, memory_type="decision"),
        claim("ledger-batches-2", known.replace("after 40", "after 400"), memory_type="decision"),
        claim("guess", "I think maybe the cache is the problem, I am not sure.", memory_type="decision"),
        _response(900),
        _response(901, answer="Payments are retried.", sources=sources),
    ]
    board = board_of([*decided(others), *waiting(32), *in_review([faulty_response()])])
    headers = [("gw-error", b"invalid_record"), ("__connect.errors.topic", b"groundwire.claims")]
    key, value = f"{TENANT}:ben@acme.example".encode(), b'{"claim_id": "c-1", "content": "x"}'
    at = to_milliseconds(datetime.now(UTC))
    board.add([InboundRecord(TopicName.DEAD_LETTER, 0, 0, at, key, value, headers)])
    return board


@cache
def hostile() -> tuple[Decision, ...]:
    return in_review([claim(name, text) for name, text in HOSTILE.items()])


def hostile_board() -> tuple[Board, dict[str, str]]:
    """Return a board with every hostile text, in review, and their ids by name."""
    return board_of(hostile()), {one.subject_id: one.decision_id for one in hostile()}


@dataclass
class RecordingReviews:
    """Records what is sent to the reviews topic, and puts the agent's outcome on the board.

    `refuse`: codes with which the next actions are refused; while `silent`, no outcome comes back.
    """

    board: Board
    scope: ViewScope
    sent: list[ReviewDecision] = field(default_factory=list)
    refuse: list[str] = field(default_factory=list)
    silent: bool = False

    async def send(self, decision):
        self.sent.append(decision)

    async def outcome(self, action, timeout):  # noqa: ASYNC109 - as in Actions
        if self.silent:
            await asyncio.sleep(timeout)
            return None
        subject = Subject(action.tenant_id, action.user_id, Kind(action.kind), action.subject_id)
        known = self.board.item(self.scope, decision_id(subject, action.expected_revision))
        now, code = datetime.now(UTC), self.refuse.pop(0) if self.refuse else None
        if known is None or known.current.revision != action.expected_revision:
            code = "stale"
        detail, made = {"action_id": action.action_id, "action": action.action, "outcome": code}, None
        if code is None:
            last, approved = known.decision, action.action in ("approve", "edit")
            codes = {"reject": "human_rejected", "retract": "retracted"}
            names = ("action", "action_id", "reviewer", "reason")
            review = {name: getattr(action, name) for name in names}
            changes = {
                "decision_id": decision_id(subject, last["revision"] + 1),
                "revision": last["revision"] + 1,
                "supersedes": last["decision_id"],
                "tier": "tier_1" if approved else "tier_3",
                "verdict": "approved" if approved else "blocked",
                "approved": approved,
                "reason": f"Decided by {action.reviewer}",
                "reason_code": codes.get(action.action, "human_approved"),
                "facts": {**last["facts"], "place": "not_needed", "review": review},
                "subject_origin": last["subject_origin"] or last["origin"],
                "decided_at": format_time(now),
            }
            if action.content is not None:
                edited = {**last["evidence"], "claim": action.content}
                changes |= {"evidence": edited, "hedges": [], "citations": []}
            made = Decision.model_validate_json(json.dumps(last | changes))
            detail |= {"outcome": made.reason_code, "revision": made.revision, "verdict": made.verdict}
            self.board.add([as_record(made, TopicName.of(made.verdict), 10_000 + len(self.sent), now)])
        kind = "review_action" if made else "refused_action"
        event = AuditEvent(
            event_id=event_id(kind, action.action_id),
            type=kind,
            at=now,
            tenant_id=action.tenant_id,
            actor=action.reviewer,
            subject_id=action.subject_id,
            decision_id=made.decision_id if made else None,
            detail=detail,
        )
        self.board.add([as_record(event, TopicName.AUDIT, len(self.sent), now)])
        return outcome_of(event)


@dataclass(frozen=True)
class Running:
    url: str
    link: str
    board: Board
    reviews: RecordingReviews
    site: Site
    clock: Clock

    @property
    def scope(self) -> ViewScope:
        return self.site.permissions.scope(LEAD)

    def release(self) -> None:
        self.clock.forward(seconds=self.site.settings.undo_seconds + 1)

    def invite(self, person: Person) -> str:
        return f"{self.url}/signin#{self.site.links.issue(person)}"


@contextmanager
def running(board, *, port=0, shared=None, **settings):
    """Run a console over a board on a loopback port, 0: a free one; in a thread. `shared`: that of an earlier one."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", port)) as listening:
        file = Path(folder, "keys.toml")
        file.touch(mode=0o600)
        file.write_bytes(KEYS)
        permissions = Permissions(WatchedKeys(file))  # as a console has them
        reviews, clock = RecordingReviews(board, permissions.scope(LEAD)), Clock(datetime.now(UTC))
        given = ConsoleSettings(port=listening.getsockname()[1], **settings)
        parts = Parts(board, permissions, reviews, shared=shared, read=read_record, clock=clock)
        app, secret = create_app(given, parts, LEAD)
        link = f"{given.origin}/signin#{secret}"
        server = make_server(app)
        thread = threading.Thread(target=lambda: asyncio.run(serve(server, app, listening)))
        thread.start()
        try:
            yield Running(given.origin, link, board, reviews, app.state.site, clock)
        finally:
            server.should_exit = True
            thread.join(15)


class Reader:
    """One person at one browser window.

    `complaints` lists what a page of the console never does: dialogs, requests elsewhere, errors of scripts.
    """

    def __init__(self, page: Page, console: Running) -> None:
        self.page, self.console = page, console
        self.complaints: list[str] = []
        page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: self._complain_of(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _complain_of(self, url):
        if not url.startswith(f"{self.console.url}/"):
            self.complaints.append(url)

    def sign_in(self, link: str) -> None:
        self.page.goto(link)
        self.page.wait_for_url(f"{self.console.url}/")

    def arrive(self, link: str) -> None:
        """Sign in by requests, without rendering the pages between, and open the queue."""
        address, _, secret = link.partition("#")
        token = re.search(r'data-csrf="([^"]+)"', self.page.request.get(address).text())
        assert token is not None
        self.page.request.post(f"{address}/link", form={"csrf": token[1], "secret": secret}, max_redirects=0)
        self.open("/")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.console.url}{path}")

    def ready(self) -> None:
        """Wait until the page was there for a moment, before which nothing is decided."""
        self.page.locator("html.ready").wait_for(state="attached")

    def press(self, *keys: str) -> None:
        for key in keys:
            if key in ("a", "r", "p", "Enter", "Control+Enter"):
                self.ready()
            self.page.keyboard.press(key)

    def go(self, *keys: str) -> None:
        """Press keys of which the last one leads to another page."""
        self.press(*keys[:-1])
        with self.page.expect_navigation():
            self.press(keys[-1])

    def open_first(self, kind: str = "claim") -> None:
        self.open(f"/?kind={kind}")
        self.go("Enter")

    @property
    def item(self):
        return self.page.locator("#item").get_attribute("data-id")

    @property
    def subject(self):
        return self.page.locator("#title").inner_text()

    @property
    def focused(self):
        """What has the focus: its id, else its name, else its class, else its tag."""
        e = "document.activeElement"
        return self.page.evaluate(f"{e}.id || {e}.name || {e}.className || {e}.tagName")

    @property
    def selected(self):
        """The id of the item that has the focus in a list."""
        script = "document.activeElement.closest('#list > .item')?.dataset.id ?? null"
        return self.page.evaluate(script)

    def ids(self):
        rows = self.page.locator("#list > .item")
        return rows.evaluate_all("all => all.map(i => i.dataset.id)")

    def said(self, text: str) -> None:
        expect(self.page.locator("#outcomes")).to_contain_text(text)

    def fits(self) -> bool:
        root = "document.documentElement"
        return self.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")


def eventually(holds):
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, "the condition never held"
        time.sleep(0.05)
