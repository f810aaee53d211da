"""What one console holds: made by the app factory, handed to every handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from groundwire.console.desk import Desk
from groundwire.console.identity import Authenticator
from groundwire.console.live import Live
from groundwire.console.locks import Locks
from groundwire.console.onetime import OneTimeLinks
from groundwire.console.openid import OpenId
from groundwire.console.rates import Rates
from groundwire.console.scraping import Scraper
from groundwire.console.sessions import Sessions
from groundwire.console.settings import ConsoleSettings
from groundwire.policy import Limits, Policy
from groundwire.review.board import Board
from groundwire.review.people import Permissions


@dataclass(frozen=True, slots=True)
class Site:
    """The parts of a console.

    Attributes:
        policy: under which an edited text is read before it is held; the gate reads it again under its own.
        stale_since: since when the topics have not been heard of, None while they are.
        caught_up: whether the board shows all that there was at the start.
        identities: how often one person may ask.
        attempts: how often one address may try to sign in.
        has_tokens: whether API tokens are taken.
        scraper: what workers answered when they were asked for their metrics.
        review_ttl: after which an item expires, where the reviews agent has a key to say so.
    """

    settings: ConsoleSettings
    board: Board
    permissions: Permissions
    limits: Limits
    policy: Policy
    desk: Desk
    locks: Locks
    live: Live
    sessions: Sessions
    authenticator: Authenticator
    links: OneTimeLinks
    openid: OpenId | None
    stale_since: Callable[[], datetime | None]
    caught_up: Callable[[], bool]
    clock: Callable[[], datetime]
    identities: Rates
    attempts: Rates
    has_tokens: bool
    scraper: Scraper
    review_ttl: timedelta
