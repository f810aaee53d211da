"""A console to look at, whose outcomes come back to the board at once, and a person who looks at it with a browser."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import Page, expect

from groundwire.console.app import create_app, make_server, serve
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Parts, Site
from groundwire.keys.watched import WatchedKeys
from groundwire.messages.base import format_time
from groundwire.messages.decisions import AuditEvent, Decision, Kind
from groundwire.messages.identity import Subject, decision_id, event_id
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.actions import outcome_of
from groundwire.review.board import Board
from groundwire.review.permissions import Permissions, Person, ViewScope
from tests.browser.items import KEYS, LEAD, as_record, read_record
from tests.unit.console.rooms import Clock


@dataclass
class RecordingReviews:
    """Stands for the reviews topic and its agent: keeps what is sent, and brings the outcome to the board.

    `refuse` holds the codes with which the next actions are refused; while `silent`, no outcome comes back.
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
    """A console that runs: where, how to sign in once, and what it is made of."""

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
        """Sign in as people do, by the link."""
        self.page.goto(link)
        self.page.wait_for_url(f"{self.console.url}/")

    def arrive(self, link: str) -> None:
        """Sign in with the secret of a link, without looking at the pages between, and look at the queue."""
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
        """Open the first item of a kind from the queue."""
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
        """Wait until an outcome says a text."""
        expect(self.page.locator("#outcomes")).to_contain_text(text)

    def fits(self) -> bool:
        root = "document.documentElement"
        return self.page.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")


def eventually(holds):
    """Wait until something holds."""
    until = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.05)
