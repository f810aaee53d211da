"""One snapshot of the queue, or one round of actions, for `groundwire review`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from groundwire.config import load_settings
from groundwire.errors import BrokerUnavailable, StateError, UsageError, naming
from groundwire.kafka.reader import follow
from groundwire.keys.attestation import Keys
from groundwire.messages.records import Retraction, ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.actions import ActionOutcome, Actions, Signer
from groundwire.review.board import Board
from groundwire.review.feed import Feed, RedisStatuses, fill, open_board
from groundwire.review.model import Item, Page, Related
from groundwire.review.permissions import Permissions, Person, ViewScope

_CLOCK_SKEW: Final = timedelta(hours=1)
"""How far back a Retraction is looked for that was published a moment ago."""
_GIVE_KEYS_FILE: Final = "give --keys-file or set GROUNDWIRE_KEYS_FILE"
_NO_KEYS_FILE: Final = (
    "no keys file is configured, so that nobody is delegated and only what {reviewer!r} owns in the tenant {tenant!r}"
    f" is seen, which may be nothing: {_GIVE_KEYS_FILE}"
)

_FOR_NOTHING: Final = (
    "{reviewer!r} is delegated for nothing in {tenants}, so that only what {reviewer!r} owns there is seen:"
    " [reviewers] of the keys file says who reviews for a tenant"
)


@dataclass(frozen=True, slots=True)
class Session:
    """Who reviews, and where.

    `tenant`: the only one seen, None: all of the key's; `user`: owner of claim ids, None: the reviewer; `keys`: None
    without a keys file, where nobody is delegated; `key_id`: the signing key, None: read only.
    """

    reviewer: str
    tenant: str | None
    user: str | None
    keys: Keys | None
    key_id: str | None
    brokers: str
    prefix: str
    window: timedelta
    seconds: float

    @property
    def scope(self) -> ViewScope:
        keys = self.keys or Keys.empty()
        of_key = {tenant for key_id, key in keys if key_id == self.key_id for tenant in key.tenants}
        tenants = {self.tenant} if self.tenant else of_key or {"default"}
        return Permissions(keys).scope(Person(self.reviewer, frozenset(tenants)))

    @property
    def nothing(self) -> str | None:
        """Return why a reviewer may see nothing: the keys file delegates them no tenant; None if it does."""
        tenants = ", ".join(sorted(self.scope.own))
        told = _FOR_NOTHING.format(reviewer=self.reviewer, tenants=tenants)
        return None if self.scope.whole or self.keys is None else told

    def signer(self) -> Signer:
        """Return the signer. Raises: UsageError."""
        if self.key_id is None:
            raise UsageError("no key to sign with: give --key or set GROUNDWIRE_REVIEWER_KEY")
        if self.keys is None:
            raise UsageError(f"no keys file to find the key {self.key_id!r} in: {_GIVE_KEYS_FILE}")
        with naming("--key (GROUNDWIRE_REVIEWER_KEY)"):
            return Signer(self.keys, self.key_id)

    @property
    def warnings(self) -> list[str]:
        if self.keys is not None:
            return []
        return [_NO_KEYS_FILE.format(reviewer=self.reviewer, tenant=self.tenant or "default")]


@dataclass(slots=True)
class BoardSnapshot:
    board: Board
    warnings: list[str] = field(default_factory=list)

    def find(self, session: Session, name: str) -> Item:
        """Return the item of a decision id, or of a user's claim id. Raises: UsageError."""
        scope = session.scope
        item = self.board.item(scope, name)
        if item is not None:
            return item
        for tenant in sorted(scope.whole | scope.own):
            decision_id = self.board.find(scope, tenant, session.user or session.reviewer, name)
            found = self.board.item(scope, decision_id) if decision_id else None
            if found is not None:
                return found
        raise UsageError(
            f"there is no item {name!r} that {session.reviewer!r} may see: give the decision id, or a claim id with"
            " --tenant and --user; --days reads further back"
        )

    def dependents(self, session: Session, item: Item) -> Page[Related]:
        return self.board.dependents(session.scope, item.current)

    async def read_retractions(self, session: Session, outcomes: Iterable[ActionOutcome | None]) -> None:
        """Read the Retractions of applied actions into the board; late ones are left out."""
        missing = {one.decision_id for one in outcomes if one is not None and one.applied}
        if not missing:
            return
        topic, since = f"{session.prefix}{TopicName.RETRACTIONS}", datetime.now(UTC) - _CLOCK_SKEW
        read = follow(session.brokers, {topic: since}, session.seconds)
        with suppress(TimeoutError, BrokerUnavailable):
            async with asyncio.timeout(session.seconds), aclosing(read) as records:
                async for record in records:
                    self.board.add([record], session.prefix)
                    retraction = Retraction.try_parse(record.value)
                    missing -= {retraction.decision_id} if retraction else set()
                    if not missing:
                        return


async def take_snapshot(session: Session) -> BoardSnapshot:
    """Fill a board from the topics and check it against state. Raises: UsageError, BrokerUnavailable."""
    board = await open_board(None, session.brokers, session.prefix, session.seconds, session.keys)
    snapshot = BoardSnapshot(board, session.warnings)
    await fill(snapshot.board, session.brokers, session.prefix, session.window, session.seconds)
    settings = load_settings().model_copy(update={"topic_prefix": session.prefix})
    statuses = RedisStatuses.of(settings)
    try:
        await Feed(snapshot.board, statuses, brokers=session.brokers, prefix=session.prefix).sync_state(
            dropped=True
        )
    except StateError as exc:
        snapshot.warnings.append(
            "state cannot be asked, so that some of this may be decided already; is Redis up and"
            f" GROUNDWIRE_REDIS_URL right? {exc}"
        )
    finally:
        await statuses.close()
    return snapshot


async def send_actions(
    session: Session, decisions: Sequence[ReviewDecision], wait: float
) -> list[ActionOutcome | None]:
    """Send actions and return their outcomes in order; None after `wait` seconds in all.

    Raises: UsageError, BrokerUnavailable.
    """
    signer = session.signer()
    async with Actions(session.brokers, session.prefix, signer, session.seconds) as actions:
        for decision in decisions:
            await actions.send(decision)
        if not wait:
            return [None] * len(decisions)
        return list(await asyncio.gather(*(actions.outcome(decision, wait) for decision in decisions)))
