"""Keeps a board up to date: reads the output topics into it, and asks state what is still pending.

Neither a broker nor a Redis that is away ends it: it says since when what it shows may be out of date, and goes on
when they are back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

from groundwire.client.kafka import unavailable
from groundwire.client.tail import Start
from groundwire.errors import BrokerUnavailable, StateError, StateLost, UsageError
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.review.board import Board
from groundwire.review.reading import Positions, Reader, reading
from groundwire.state.model import Standing

log = structlog.get_logger()

WINDOW: Final = timedelta(days=7)
_PORTION: Final = 1_000
_FULL_ROUND: Final = 60
"""Each so many rounds state is asked about what was dropped, too."""
_FORGET: Final = timedelta(hours=1)
_RECENT: Final = (
    TopicName.APPROVED,
    TopicName.BLOCKED,
    TopicName.RETRACTIONS,
    TopicName.AUDIT,
    TopicName.DEAD_LETTER,
)

_NOBODY: Final = Subject("-", "-", Kind.CLAIM, "-")
"""Asked about where nothing is pending: so that state's absence or loss does not go unseen."""


class Standings(Protocol):
    """What the feed needs of state."""

    async def standings(self, subjects: Sequence[Subject]) -> list[Standing | None]:
        """Return where subjects stand; raises StateError."""
        ...


@dataclass(frozen=True, slots=True)
class Notice:
    """That something changed; a listener looks at the board itself, within its own scope.

    Attributes:
        version: of the board; the same number, the same content.
        caught_up: whether everything was read that was there at the start, and state was asked.
        stale_since: since when broker or state do not answer; None where they do.
    """

    version: int
    caught_up: bool
    stale_since: datetime | None


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the feed does what, in seconds.

    Attributes:
        poll: to wait for records.
        check: between two questions to broker and state.
        retry: after a failure.
        answer: that the broker may take to answer.
    """

    poll: float = 0.5
    check: float = 5.0
    retry: float = 1.0
    answer: float = 10.0


class Feed:
    """Feeds one board; `run` does it until it is cancelled.

    Args:
        board: what is kept up to date.
        state: asked what is pending; None: the topics are believed.
        brokers: `host:port,...`.
        prefix: before every topic's name.
        window: how far back all topics but `review` are read, and kept.
        pace: how often it does what.
    """

    def __init__(
        self,
        board: Board,
        state: Standings | None,
        *,
        brokers: str,
        prefix: str,
        window: timedelta = WINDOW,
        pace: Pace = Pace(),
    ) -> None:
        self._board = board
        self._state = state
        self._brokers = brokers
        self._prefix = prefix
        self._window = window
        self._pace = pace
        self._listeners: set[asyncio.Event] = set()
        self._stale: dict[str, datetime] = {}
        self._read = False
        self._asked = state is None
        self._lost = False
        self._again = False
        self._rounds = 0
        self._announced = self.notice

    @property
    def notice(self) -> Notice:
        """How things stand."""
        return Notice(self._board.version, self._read and self._asked, self.stale_since)

    @property
    def caught_up(self) -> bool:
        """Whether everything was read that was there at the start, and state was asked."""
        return self.notice.caught_up

    @property
    def stale_since(self) -> datetime | None:
        """Since when what the board shows may be out of date; None where it is not."""
        return min(self._stale.values(), default=None)

    async def subscribe(self) -> AsyncIterator[Notice]:
        """Yield how things stand, now and whenever it changes; changes in quick succession come as one."""
        changed = asyncio.Event()
        self._listeners.add(changed)
        try:
            while True:
                changed.clear()
                yield self.notice
                await changed.wait()
        finally:
            self._listeners.discard(changed)

    async def run(self) -> None:
        """Read, settle and forget until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_reading())
            tasks.create_task(self._keep_settling())
            tasks.create_task(self._keep_forgetting())

    async def settle(self, *, dropped: bool = False) -> None:
        """Ask state about what the board takes for pending, and drop what is not.

        `dropped`: ask about what was dropped too, and put back what is pending. Raises: StateError.
        """
        if self._state is None:
            return
        candidates = [subject for subject, _ in self._board.candidates(dropped=dropped)] or [_NOBODY]
        for start in range(0, len(candidates), _PORTION):
            portion = candidates[start : start + _PORTION]
            standings = await self._state.standings(portion)
            await asyncio.to_thread(self._board.settle, dict(zip(portion, standings, strict=True)))

    async def _keep_reading(self) -> None:
        starts = _starts(self._window)
        positions: Positions = {}
        while True:
            try:
                async with reading(
                    self._brokers, self._prefix, starts, self._pace.answer, positions
                ) as reader:
                    positions = reader.positions
                    await self._read_on(reader)
                    positions = {}
            except (BrokerUnavailable, UsageError) as exc:
                self._mark("broker", exc)
                await asyncio.sleep(self._pace.retry)

    async def _read_on(self, reader: Reader) -> None:
        """Read until the broker fails, or everything is to be read again."""
        loop = asyncio.get_running_loop()
        checked = loop.time()
        self._unmark("broker")
        while not self._again:
            records = await reader.batch(int(self._pace.poll * 1000))
            if records:
                await asyncio.to_thread(self._board.add, records)
            if not self._read:
                self._read = await reader.caught_up()
            if loop.time() - checked >= self._pace.check:
                await reader.check()
                checked = loop.time()
            self._announce()
        self._again = False

    async def _keep_settling(self) -> None:
        while self._state is not None:
            if self._read:
                await self._settle_once()
            await asyncio.sleep(self._pace.check if self._asked else self._pace.poll)

    async def _settle_once(self) -> None:
        try:
            await self.settle(dropped=self._rounds % _FULL_ROUND == 0)
        except StateError as exc:
            self._lost = self._lost or isinstance(exc, StateLost)
            self._rounds = 0
            self._mark("state", exc)
            return
        if self._lost:  # rebuilt: what was forgotten as decided may be pending again
            self._lost, self._again = False, True
        self._rounds += 1
        self._asked = True
        self._unmark("state")

    async def _keep_forgetting(self) -> None:
        while True:
            await asyncio.sleep(_FORGET.total_seconds())
            await asyncio.to_thread(self._board.forget, datetime.now(UTC) - self._window)

    def _mark(self, what: str, error: Exception) -> None:
        if what not in self._stale:
            self._stale[what] = datetime.now(UTC)
            log.warning("review_feed.stale", what=what, error=str(error))
        self._announce()

    def _unmark(self, what: str) -> None:
        if self._stale.pop(what, None) is not None:
            log.info("review_feed.back", what=what)
        self._announce()

    def _announce(self) -> None:
        notice = self.notice
        if notice != self._announced:
            self._announced = notice
            for listener in self._listeners:
                listener.set()


async def fill(board: Board, brokers: str, prefix: str, window: timedelta, seconds: float) -> None:
    """Read into a board what the topics hold now, and no more; for who looks once.

    Args:
        board: what is filled.
        brokers: `host:port,...`.
        prefix: before every topic's name.
        window: how far back all topics but `review` are read.
        seconds: how long the broker may take to answer.

    Raises:
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer, or brings nothing for so long.
    """
    loop = asyncio.get_running_loop()
    async with reading(brokers, prefix, _starts(window), seconds) as reader:
        came = loop.time()
        while not await reader.caught_up():
            records = await reader.batch()
            await asyncio.to_thread(board.add, records)
            if records:
                came = loop.time()
            elif loop.time() - came > seconds:
                raise unavailable(brokers, seconds, "bring the rest of the topics")


def _starts(window: timedelta) -> dict[TopicName, Start]:
    return {TopicName.REVIEW: "earliest", **dict.fromkeys(_RECENT, datetime.now(UTC) - window)}
