"""Keeps a board up to date: reads the output topics into it, and asks state what is still pending.

An outage of the broker or of Redis does not end it: it reports since when the board may be out of date, and goes on
when both answer again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

import structlog

from groundwire.config import Settings
from groundwire.errors import BrokerUnavailable, StateError, StateLost, StateUnavailable, UsageError
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.reader import Positions, Start, TopicReader
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.policy import load_policy
from groundwire.review.board import Board
from groundwire.review.records import reading, topic_records
from groundwire.state.model import SubjectStatus
from groundwire.state.redis import RedisState
from groundwire.state.server import connect

log = structlog.get_logger()

WINDOW: Final = timedelta(days=7)
_PORTION: Final = 1_000
_FULL_ROUND: Final = 60
"""In one round of so many, state is asked about dropped items too."""
_FORGET: Final = timedelta(hours=1)
_RECENT: Final = (
    TopicName.APPROVED,
    TopicName.BLOCKED,
    TopicName.RETRACTIONS,
    TopicName.AUDIT,
    TopicName.DEAD_LETTER,
)

_NOBODY: Final = Subject("-", "-", Kind.CLAIM, "-")
"""Asked about where nothing is pending, so that an outage or loss of state is noticed."""


class StatusSource(Protocol):
    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return where subjects stand; raises StateError."""
        ...


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals of the feed, in seconds.

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
        state: StatusSource | None,
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
        self._stale: dict[str, datetime] = {}
        self._read = False
        self._asked = state is None
        self._lost = False
        self._read_again = False
        self._rounds = 0

    @property
    def caught_up(self) -> bool:
        return self._read and self._asked

    @property
    def stale_since(self) -> datetime | None:
        """Since when what the board shows may be out of date; None where it is not."""
        return min(self._stale.values(), default=None)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._read_loop())
            tasks.create_task(self._state_loop())
            tasks.create_task(self._forget_loop())

    async def sync_state(self, *, dropped: bool = False) -> None:
        """Ask state about what the board shows as pending, and drop what is not.

        `dropped`: ask about dropped items too, and put back what is pending. Raises: StateError.
        """
        if self._state is None:
            return
        candidates = [subject for subject, _ in self._board.candidates(dropped=dropped)] or [_NOBODY]
        for start in range(0, len(candidates), _PORTION):
            portion = candidates[start : start + _PORTION]
            statuses = await self._state.statuses(portion)
            await asyncio.to_thread(self._board.apply_statuses, dict(zip(portion, statuses, strict=True)))

    async def _read_loop(self) -> None:
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
                self._mark_stale("broker", exc)
                await asyncio.sleep(self._pace.retry)

    async def _read_on(self, reader: TopicReader) -> None:
        """Read until the broker fails, or everything is to be read again."""
        loop = asyncio.get_running_loop()
        checked = loop.time()
        self._clear_stale("broker")
        while not self._read_again:
            records = await reader.batch(int(self._pace.poll * 1000))
            if records:
                await asyncio.to_thread(self._board.add, topic_records(records, self._prefix))
            if not self._read:
                self._read = await reader.caught_up()
            if loop.time() - checked >= self._pace.check:
                await reader.check()
                checked = loop.time()
        self._read_again = False

    async def _state_loop(self) -> None:
        while self._state is not None:
            if self._read:
                await self._sync_once()
            await asyncio.sleep(self._pace.check if self._asked else self._pace.poll)

    async def _sync_once(self) -> None:
        try:
            await self.sync_state(dropped=self._rounds % _FULL_ROUND == 0)
        except StateError as exc:
            self._lost = self._lost or isinstance(exc, StateLost)
            self._rounds = 0
            self._mark_stale("state", exc)
            return
        if self._lost:  # rebuilt: what was deleted as decided may be pending again
            self._lost, self._read_again = False, True
        self._rounds += 1
        self._asked = True
        self._clear_stale("state")

    async def _forget_loop(self) -> None:
        while True:
            await asyncio.sleep(_FORGET.total_seconds())
            await asyncio.to_thread(self._board.forget, datetime.now(UTC) - self._window)

    def _mark_stale(self, what: str, error: Exception) -> None:
        if what not in self._stale:
            self._stale[what] = datetime.now(UTC)
            log.warning("review_feed.stale", what=what, error=str(error))

    def _clear_stale(self, what: str) -> None:
        if self._stale.pop(what, None) is not None:
            log.info("review_feed.back", what=what)


async def fill(board: Board, brokers: str, prefix: str, window: timedelta, seconds: float) -> None:
    """Read into a board what the topics hold now, and no more: for a single look.

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
    async with (
        reading(brokers, prefix, _starts(window), seconds) as reader,
        aclosing(reader.rest()) as batches,
    ):
        async for records in batches:
            await asyncio.to_thread(board.add, topic_records(records, prefix))


def _starts(window: timedelta) -> dict[TopicName, Start]:
    return {TopicName.REVIEW: "earliest", **dict.fromkeys(_RECENT, datetime.now(UTC) - window)}


class RedisStatuses:
    """Asks Redis for the status of subjects, read-only; after a loss of state, the one that was rebuilt.

    Args:
        state: its own, for this use.
    """

    def __init__(self, state: RedisState) -> None:
        self._state = state
        self._known = False

    @classmethod
    def of(cls, settings: Settings) -> RedisStatuses:
        """Return the one of a deployment. Raises: UsageError, of the policy or the address."""
        policy = load_policy(settings.policy_file, os.environ)
        client = connect(settings.redis_url)
        scheme = dedup_scheme(policy)
        return cls(RedisState(client, settings.topic_prefix, scheme=scheme, require_aof=False))

    async def check_kind(self) -> None:
        """Refuse an address of another kind of server than it says; one that does not answer is asked later."""
        with suppress(StateUnavailable):
            await self._state.server.check_kind()

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return where subjects stand.

        Raises:
            StateUnavailable: Redis does not answer.
            StateLost: what was known is gone; the next call asks what is there then.
            SchemeMismatch: the policy here is not the workers'.
        """
        if not self._known:
            if await self._state.open() is None:
                raise StateLost("state is lost, and not rebuilt yet")
            self._known = True
        try:
            return await self._state.statuses(subjects)
        except StateLost:
            self._known = False
            raise

    async def close(self) -> None:
        await self._state.close()
