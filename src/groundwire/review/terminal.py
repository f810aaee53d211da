"""What stands behind `groundwire review`: one look at the queue, or one action, and away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from groundwire.attestation import Keys
from groundwire.client.tail import Start
from groundwire.errors import BrokerUnavailable, StateError, UsageError, naming
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.actions import Actions, Signer
from groundwire.review.board import Board
from groundwire.review.feed import Feed, fill
from groundwire.review.model import Item, Page, Related
from groundwire.review.outcomes import Outcome
from groundwire.review.people import Permissions, Person, Scope
from groundwire.review.reading import reading
from groundwire.review.records import read_retraction
from groundwire.review.standings import LiveStandings
from groundwire.settings import load_settings

_JUST_NOW: Final = timedelta(hours=1)
"""How far back a Retraction is looked for that was published a moment ago: clocks differ."""
_GIVE_KEYS_FILE: Final = "give --keys-file or set GROUNDWIRE_KEYS_FILE"
_NO_KEYS_FILE: Final = (
    "no keys file is configured, so that nobody is delegated and only what {reviewer!r} owns in the tenant {tenant!r}"
    f" is seen, which may be nothing: {_GIVE_KEYS_FILE}"
)


@dataclass(frozen=True, slots=True)
class Desk:
    """Who looks, and where.

    Attributes:
        reviewer: the name under which is decided.
        tenant: the only one looked at, or None: all that the key speaks for.
        user: whose claim ids are meant; None: the reviewer's.
        keys: signing keys, and who is delegated; None: no keys file is configured, so that nobody is.
        key_id: the key that signs, or None: only looking.
        window: how far back decided items are read.
        seconds: how long the broker may take to answer.
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
    def scope(self) -> Scope:
        """What the reviewer sees."""
        tenants = {self.tenant} if self.tenant else self._of_key() or {"default"}
        return Permissions(self.keys or Keys.empty()).scope(Person(self.reviewer, frozenset(tenants)))

    def _of_key(self) -> set[str]:
        return {tenant for key_id, key in self.keys or () if key_id == self.key_id for tenant in key.tenants}

    def signer(self) -> Signer:
        """Return what signs. Raises: UsageError, where there is no such key."""
        if self.key_id is None:
            raise UsageError("no key to sign with: give --key or set GROUNDWIRE_REVIEWER_KEY")
        if self.keys is None:
            raise UsageError(f"no keys file to find the key {self.key_id!r} in: {_GIVE_KEYS_FILE}")
        with naming("--key (GROUNDWIRE_REVIEWER_KEY)"):
            return Signer(self.keys, self.key_id)

    @property
    def warnings(self) -> list[str]:
        """What may keep the reviewer from seeing anything."""
        if self.keys is not None:
            return []
        return [_NO_KEYS_FILE.format(reviewer=self.reviewer, tenant=self.tenant or "default")]


@dataclass(slots=True)
class Look:
    """A board filled once; `warnings` say what may be wrong with it."""

    board: Board
    warnings: list[str] = field(default_factory=list)

    def find(self, desk: Desk, name: str) -> Item:
        """Return the item that is meant by a decision id, or by the claim id of a user.

        Raises:
            UsageError: there is none that the reviewer sees.
        """
        scope = desk.scope
        item = self.board.item(scope, name)
        if item is not None:
            return item
        for tenant in sorted(scope.whole | scope.own):
            decision_id = self.board.find(scope, tenant, desk.user or desk.reviewer, name)
            found = self.board.item(scope, decision_id) if decision_id else None
            if found is not None:
                return found
        raise UsageError(
            f"there is no item {name!r} that {desk.reviewer!r} may see: give the decision id, or a claim id with"
            " --tenant and --user; --days reads further back"
        )

    def resting(self, desk: Desk, item: Item) -> Page[Related]:
        """Return the approved claims that rest on what is approved, or was until it was retracted."""
        return self.board.resting(desk.scope, item.current)

    async def hear(self, desk: Desk, outcomes: Iterable[Outcome | None]) -> None:
        """Read the Retractions that applied outcomes brought about; one that is not there in time is left out."""
        missing = {one.decision_id for one in outcomes if one is not None and one.applied}
        if not missing:
            return
        starts: dict[TopicName, Start] = {TopicName.RETRACTIONS: datetime.now(UTC) - _JUST_NOW}
        with suppress(TimeoutError, BrokerUnavailable):
            async with (
                asyncio.timeout(desk.seconds),
                reading(desk.brokers, desk.prefix, starts, desk.seconds) as reader,
            ):
                while missing:
                    records = await reader.batch()
                    self.board.add(records)
                    missing -= {told.decision_id for told in map(read_retraction, records) if told}


async def look(desk: Desk) -> Look:
    """Fill a board from the topics, and let state say what is pending.

    Raises:
        UsageError: a setting is wrong, or a topic does not exist.
        BrokerUnavailable: the broker does not answer.
    """
    found = Look(Board(), desk.warnings)
    await fill(found.board, desk.brokers, desk.prefix, desk.window, desk.seconds)
    settings = load_settings().model_copy(update={"topic_prefix": desk.prefix})
    standings = LiveStandings.of(settings)
    try:
        await Feed(found.board, standings, brokers=desk.brokers, prefix=desk.prefix).settle()
    except StateError as exc:
        found.warnings.append(
            "state cannot be asked, so that some of this may be decided already; is Redis up and"
            f" GROUNDWIRE_REDIS_URL right? {exc}"
        )
    finally:
        await standings.close()
    return found


async def act(desk: Desk, decisions: Sequence[ReviewDecision], wait: float) -> list[Outcome | None]:
    """Send actions and wait for what becomes of each.

    Args:
        desk: who acts.
        decisions: what is sent, in this order.
        wait: seconds, in all; 0: not at all.

    Returns:
        In the order of `decisions`; None where nothing was heard in time.

    Raises:
        UsageError: the key may not sign, or a topic does not exist.
        BrokerUnavailable: the broker does not acknowledge.
    """
    signer = desk.signer()
    async with Actions(desk.brokers, desk.prefix, signer, desk.seconds) as actions:
        for decision in decisions:
            await actions.send(decision)
        if not wait:
            return [None] * len(decisions)
        return list(await asyncio.gather(*(actions.outcome(decision, wait) for decision in decisions)))
