"""A console in memory: a board filled by hand, actions that are recorded, a clock that a test moves."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import httpx
from prometheus_client import CollectorRegistry, Counter, Gauge
from starlette.applications import Starlette

from groundwire.console.app import create_app
from groundwire.console.outbox import OrderState
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Parts
from groundwire.keys.attestation import Keys
from groundwire.messages.base import format_time, to_milliseconds
from groundwire.messages.decisions import Kind
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.actions import ActionOutcome
from groundwire.review.board import Board
from groundwire.review.permissions import Permissions, Person
from tests.unit.review.world import wire

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KEYS = b"""
[keys.console]
secret = "not a secret"
tenants = ["acme", "globex"]
roles = ["reviewer"]
[reviewers]
acme = ["lead"]
"""
LEAD, ANA, BEN = (Person(name, frozenset({"acme"})) for name in ("lead", "ana", "ben"))
EVE = Person("eve", frozenset({"globex"}))
VIEWER = Person("lead", frozenset({"acme"}), read_only=True)
TOKENS = {"lead-token": LEAD, "ana-token": ANA, "ben-token": BEN, "eve-token": EVE, "viewer-token": VIEWER}
HOST = "http://127.0.0.1:8700"
NOBODYS = "00000000-0000-4000-8000-000000000000"
ITEM = {"action": "approve", "revision": 1}


@dataclass
class Clock:
    now: datetime = NOW

    def __call__(self):
        return self.now

    def monotonic(self):
        return self.now.timestamp()

    def forward(self, **spans):
        self.now += timedelta(**spans)


@dataclass
class Recorder:
    """Keeps what is sent; `applied` and `code` are the outcome of all but of `refused`; `fails` makes sending fail."""

    sent: list[ReviewDecision] = field(default_factory=list)
    applied: bool = True
    code: str = "human_approved"
    fails: bool = False
    refused: dict[str, str] = field(default_factory=dict)

    async def send(self, decision):
        if self.fails:
            raise OSError
        self.sent.append(decision)

    async def outcome(self, decision, timeout):  # noqa: ARG002, ASYNC109 - as in Actions
        code = self.refused.get(decision.action)
        applied = self.applied and code is None
        return ActionOutcome(decision.action_id, applied, code or self.code, 2, None, None)


def make_decision(subject_id, content="Water is wet.", **changes):
    """Return a Decision in review, decided an hour ago, as JSON."""
    tenant, user = changes.get("tenant_id", "acme"), changes.get("user_id", "ana")
    subject = Subject(tenant, user, Kind(changes.get("kind", "claim")), subject_id)
    at = format_time(NOW - timedelta(hours=1))
    given = {"at": at, "text": content, "facts": {"clock": format_time(NOW), "place": "free"}}
    return wire(subject, changes.pop("revision", 1), changes.pop("verdict", "review"), **(given | changes))


def blocked(subject_id, content="I guess.", **changes):
    final = {"verdict": "blocked", "facts": {"clock": format_time(NOW)}}
    return make_decision(subject_id, content, **(final | changes))


def approved(subject_id, content="Water is wet.", **changes):
    return blocked(subject_id, content, **({"verdict": "approved"} | changes))


def compared(*names, state="approved", difference="number"):
    """Return the facts of a claim that the gate compared with these memories."""
    match = {"class": state, "inter": 9, "union": 12, "difference": difference}
    matches = [{"subject_id": name, **match} for name in names]
    return {
        "clock": format_time(NOW),
        "place": "free",
        "dedup": {"status": "ok", "scheme": "s", "matches": matches},
    }


class Client(httpx.AsyncClient):
    async def html(self, path):
        return Html((await self.get(path)).text)

    async def csrf(self, path="/"):
        return (await self.html(path)).one("body")["data-csrf"]


@dataclass
class Room:
    """A console and what it is made of."""

    app: Starlette
    board: Board
    recorder: Recorder
    clock: Clock
    secret: str | None

    @property
    def site(self):
        return self.app.state.site

    def client(self, token=None, address="127.0.0.1", **headers):
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        transport = httpx.ASGITransport(self.app, client=(address, 5000), raise_app_exceptions=False)
        return Client(transport=transport, base_url=HOST, headers=headers)

    @contextlib.asynccontextmanager
    async def browser(self, person=LEAD):
        """Return a client that has signed in as a browser does."""
        async with self.client() as client:
            form = {"csrf": await client.csrf("/signin"), "secret": self.site.links.issue(person)}
            await client.post("/signin/link", data=form)
            yield client

    async def get(self, path, who="lead-token"):
        async with self.client(who) as client:
            return (await client.get(path)).json()

    async def act(self, decision_id, who="lead-token", **action):
        async with self.client(who) as client:
            return await client.post(f"/api/items/{decision_id}/actions", json=ITEM | action)

    @property
    def held(self):
        return list(self.site.outbox._in(OrderState.HELD))

    def add(self, *decisions):
        """Put decisions on the board; return their ids."""
        at = to_milliseconds(self.clock.now)
        values = [
            (TopicName(one["verdict"]), json.dumps(one, ensure_ascii=False).encode()) for one in decisions
        ]
        self.board.add(
            [InboundRecord(topic, 0, offset, at, b"", value) for offset, (topic, value) in enumerate(values)]
        )
        return [one["decision_id"] for one in decisions]

    def settle(self, subject_id):
        """Take an item out of the queue, as when state does not hold it as pending."""
        self.board.apply_statuses({Subject("acme", "ana", Kind.CLAIM, subject_id): None})

    async def released(self):
        """Let the time for undoing pass, and what is sent be answered."""
        self.clock.forward(seconds=self.site.settings.undo_seconds + 1)
        self.site.outbox.release()
        await self.site.outbox.delivered()


def make_room(shared=None, clock=None, **settings):
    clock = clock or Clock()
    keys = Keys.parse(KEYS, Path("keys.toml"))
    board, recorder = Board(keys=keys, clock=clock), Recorder()
    parts = Parts(
        board=board,
        permissions=Permissions(keys),
        reviews=recorder,
        tokens=SimpleNamespace(person=lambda token, _: TOKENS.get(token)),
        shared=shared,
        clock=clock,
        monotonic=clock.monotonic,
    )
    app, secret = create_app(ConsoleSettings(**settings), parts, settings.get("one_time"))
    return Room(app, board, recorder, clock, secret)


@dataclass
class Element:
    """An element of a page; `text` includes that of its children."""

    tag: str
    attributes: dict[str, str]
    text: str = ""

    def __getitem__(self, name):
        return self.attributes[name]


class Html(HTMLParser):
    """A page as a browser reads it; `words` is its text with single spaces."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.elements, self._open, self._said = [], [], []
        self.feed(page)
        self.close()
        self.words = " ".join("".join(self._said).split())

    def handle_starttag(self, tag, attrs):
        self._said.append(" ")
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in {"br", "hr", "img", "input", "link", "meta"}:
            self._open.append(self.elements[-1])

    def handle_endtag(self, tag):
        self._said.append(" ")
        while self._open and self._open.pop().tag != tag:
            pass

    def handle_data(self, data):
        self._said.append(data)
        for element in self._open:
            element.text += data

    def all(self, tag="", **attributes):
        """Return the elements with a tag and attributes; `data_x` means `data-x`, `class_` means `class`."""
        wanted = {(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items()}
        return [one for one in self.elements if tag in ("", one.tag) and wanted <= one.attributes.items()]

    def one(self, tag="", **attributes):
        (found,) = self.all(tag, **attributes)
        return found


def chosen(ids):
    """Return items at their first revision as the API takes them."""
    return [{"id": one, "revision": 1} for one in ids]


def worker_metrics(role, **values):
    """Return a worker's gauges by name, as its own library writes them: a number, or numbers by label."""
    registry = CollectorRegistry()
    Counter("groundwire_decisions", "", ["tier"], registry=registry).labels("tier_1").inc()
    zero = {"lag_records": {role: 0}, "commit_age_seconds": {role: 0}, "partitions": 0, "waiting_claims": 0}
    for name, value in (zero | values).items():
        labelled = isinstance(value, dict)
        gauge = Gauge(f"groundwire_{name}", "", ["label"] if labelled else [], registry=registry)
        for label, number in value.items() if labelled else [("", value)]:
            (gauge.labels(label) if labelled else gauge).set(number)
    return registry
