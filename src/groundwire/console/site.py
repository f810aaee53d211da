"""Handler context and responses: a handler returns plain data, which the page renders and `/api` sends as JSON."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from groundwire.console.answer import Excerpts
from groundwire.console.auth import Authenticator, Identity, OneTimeLinks, OpenId, Sessions, TokenReader
from groundwire.console.cited import CitedTexts
from groundwire.console.guard import Rates
from groundwire.console.live import ChangeStream, Locks, MemoryLocks, MemoryShared, Shared
from groundwire.console.outbox import Outbox, ReviewOrder, ReviewSender
from groundwire.console.settings import ConsoleSettings
from groundwire.console.workers import Workers
from groundwire.errors import RecordError
from groundwire.messages.decode import parse_json
from groundwire.policy import Policy
from groundwire.review.board import Board
from groundwire.review.originals import RecordReader
from groundwire.review.permissions import Permissions, ViewScope
from groundwire.verify.citations import CitationVerifier

Fields = TypeVar("Fields", bound=BaseModel)
_NAMED: Final = {"missing": "missing", "extra_forbidden": "unknown"}
"""Error types after which the message lists the fields."""
MAX_REPORTED: Final = 20  # errors of one request that are listed


@dataclass(frozen=True, slots=True)
class Parts:
    """What a console is made of; tests put doubles in their place."""

    board: Board
    permissions: Permissions
    reviews: ReviewSender
    # its limits bound the queue, and an edited text is checked under it before it is held; the gate checks it again
    policy: Callable[[], Policy] = Policy
    tokens: TokenReader | None = None  # None: no API token is accepted
    read: RecordReader | None = None  # None: answers of responses are not shown
    verifier: CitationVerifier | None = None  # None: what citations name is not shown
    locks: Locks | None = None  # None: kept in this process, as are ended sessions
    shared: Shared | None = None
    stale_since: Callable[[], datetime | None] = lambda: None
    caught_up: Callable[[], bool] = lambda: True  # whether the board shows all that there was at the start
    review_ttl: timedelta = timedelta(days=60)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    monotonic: Callable[[], float] = time.monotonic


class Site:
    def __init__(self, settings: ConsoleSettings, parts: Parts) -> None:
        clock = parts.clock
        self.settings = settings
        self.board, self.permissions, self._policy = parts.board, parts.permissions, parts.policy
        self.stale_since, self.caught_up, self.clock = parts.stale_since, parts.caught_up, clock
        self.review_ttl, self.read = parts.review_ttl, parts.read
        self.excerpts, self.cited = Excerpts(parts.read), CitedTexts(parts.verifier)
        self.outbox = Outbox(parts.reviews, self.unchanged, timedelta(seconds=settings.undo_seconds), clock)
        self.locks = parts.locks or MemoryLocks(timedelta(seconds=settings.lock_seconds), clock)
        self.shared = parts.shared or MemoryShared(clock)
        self._looked = 0
        self.sessions = Sessions(timedelta(hours=settings.session_hours), clock, self.shared)
        self.live = ChangeStream(
            lambda: (
                self.board.version,
                self.outbox.version,
                self.stale_since(),
                self.caught_up(),
                self.shared.away_since,
                self.sessions.ended,
                self._looked,
            )
        )
        self.authenticator = Authenticator(settings, self.sessions, parts.tokens, clock)
        self.links = OneTimeLinks(clock)
        self.openid = OpenId(settings) if settings.oidc_issuer else None
        self.has_tokens = parts.tokens is not None
        self.identities = Rates(settings.rate_identity, parts.monotonic)
        self.attempts = Rates(settings.rate_signin, parts.monotonic)  # of an address, to sign in
        self.workers = Workers(settings.targets, parts.monotonic)

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self._policy()

    def look(self) -> None:
        """Refresh lists, which show who looks at an item, every other second at most."""
        self._looked = round(self.clock().timestamp()) // 2

    def unchanged(self, orders: Sequence[ReviewOrder]) -> set[str]:
        """Return the action ids of those whose item has the revision that the person saw."""
        found: set[str] = set()
        for person in {order.person for order in orders}:
            theirs = [order for order in orders if order.person == person]
            ids = [order.decision_id for order in theirs]
            standings = self.board.standings(self.permissions.scope(person), ids)
            found |= {
                order.action_id
                for order in theirs
                if (item := standings.get(order.decision_id))
                and item.current.revision == order.record.expected_revision
            }
        return found


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What a handler answers: the page shows `data` in its template, or goes to `location`; the API sends `data`."""

    data: Mapping[str, Any] = field(default_factory=dict)
    template: str | None = None
    status: int = 200
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A request of an authenticated person for a page or, unless `page`, of the API.

    `sent` has the fields of the form or of the JSON object; a field sent more than once is a list.
    """

    request: Request
    site: Site
    identity: Identity
    sent: Mapping[str, Any]
    page: bool

    @property
    def scope(self) -> ViewScope:
        return self.site.permissions.scope(self.identity.person)

    def fields(self, model: type[Fields]) -> Fields:
        return read(model, self.sent)

    def asked(self, model: type[Fields]) -> Fields:
        return read(model, self.request.query_params)


def read(model: type[Fields], given: Mapping[str, Any]) -> Fields:
    """Read fields or parameters. Raises: HTTPException 400 that names those at fault, not their values."""
    try:
        return model.model_validate(dict(given))
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
    lines = [
        f"{'.'.join(map(str, error['loc']))[:100] or 'request'}: "
        + _NAMED.get(error["type"], error["msg"].removeprefix("Value error, "))
        for error in errors
    ]
    more = [f"and {len(lines) - MAX_REPORTED} more"] if len(lines) > MAX_REPORTED else []
    if not {error["type"] for error in errors}.isdisjoint(_NAMED):
        needed = [name for name, field in model.model_fields.items() if field.is_required()]
        others = [name for name in model.model_fields if name not in needed]
        more += [f"needed: {', '.join(needed)}"] if needed else []
        more += [f"permitted: {', '.join(others)}"] if others else []
    raise HTTPException(400, "; ".join([*lines[:MAX_REPORTED], *more]))


PageHandler = Callable[[Call], Awaitable[PageAnswer]]


async def read_form(request: Request) -> dict[str, Any]:
    _require(request, "application/x-www-form-urlencoded")
    try:
        pairs = parse_qsl(
            (await request.body()).decode(), keep_blank_values=True, errors="strict", max_num_fields=1000
        )
    except ValueError:
        raise HTTPException(400, "the form is not UTF-8, or has too many fields") from None
    found: dict[str, Any] = {}
    for name, value in pairs:
        # a text area sends its line ends as CR LF, whatever they were
        text = value.replace("\r\n", "\n")
        if name in found:
            before = found[name] if isinstance(found[name], list) else [found[name]]
            found[name] = [*before, text]
        else:
            found[name] = text
    return found


async def read_json(request: Request) -> dict[str, Any]:
    _require(request, "application/json")
    try:
        value = parse_json(await request.body())
    except RecordError as exc:
        raise HTTPException(400, exc.message) from None
    if not isinstance(value, dict):
        raise HTTPException(400, "must be a JSON object")
    return value


def _require(request: Request, content_type: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != content_type:
        raise HTTPException(
            415, f"Send the header Content-Type: {content_type}.", {"accept-post": content_type}
        )
